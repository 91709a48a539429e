"""What is kept of a run, in one form for checkpoints and DataTrees: three parts, each as bytes.

`about` has what the run was asked for, and what its model is known by; `plan` the frozen plan, with
how it came about; `chains` pieces of the chains. A checkpoint has a further `chains` each time that
it is written, a DataTree one.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.chain.chains import ChainRun, HotStates
from pymc_tempering.chain.pieces import Written, joined, piece_since, written_by
from pymc_tempering.chain.plan import Plan
from pymc_tempering.chain.record import Chain, Record
from pymc_tempering.chain.state import ChainState
from pymc_tempering.chain.tuning import Tuning
from pymc_tempering.core.deadline import Cut
from pymc_tempering.core.installed import OWN, versions_of
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.kernels import Compound
from pymc_tempering.model.compiled import Point
from pymc_tempering.model.identity import identity_of
from pymc_tempering.references.mixture import Fitted, FullScales, LowRankScales, Mixture
from pymc_tempering.references.prior import Prior, evaluate_draws
from pymc_tempering.references.warp import FunnelWarp
from pymc_tempering.sampling.call import Call, Goal, Job, Options, kernels_in_words
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.evaluated import Evaluated
from pymc_tempering.sampling.fit_reference import Passes, ReferenceFit
from pymc_tempering.sampling.looks import Looks
from pymc_tempering.sampling.reference_draws import Beside
from pymc_tempering.sampling.rounds import Outcome, Round
from pymc_tempering.sampling.search import SearchRound
from pymc_tempering.sampling.suspects import Peak
from pymc_tempering.storage.plain_values import Codec, Hook
from pymc_tempering.warmup.annealed_pass import AnnealedPass
from pymc_tempering.warmup.warm_up import Warmup, WarmupRound

PACKAGES = (OWN, "pymc", "pytensor", "numba", "numpy")
"""What computes densities and draws: their versions decide the bits of a run."""

PLAN_GROUP = "tempering_plan"
"""Group of a DataTree with an array of bytes for each part."""

N_PROBES, PROBE_SEED = 8, 21
"""States at which two processes compare the density, drawn from the prior with this seed."""

CLASSES = (
    AnnealedPass, Call, Chain, ChainRun, ChainState, ChosenPlan, Cut, Evaluated, Fitted, FullScales,
    FunnelWarp, Goal, HotStates, Ladder, Looks, LowRankScales, Mixture, Options, Passes, Peak, Plan,
    Record, ReferenceFit, Round, SearchRound, Tuning, Warmup, WarmupRound,
)  # fmt: skip
"""What a call, its plan and its chains are made of."""

CODEC = Codec(CLASSES)
"""For what has no compiled code in it."""


def plan_codec(prior: Prior, kernel: Compound) -> Codec:
    """How plans of a compiled model are written and read; its compiled code stays where it is."""
    again = Hook(
        lambda used: used is not kernel,
        lambda densified: kernel.densified() if densified else kernel,
    )
    return Codec(CLASSES, {Prior: Hook(lambda _: None, lambda _: prior), Compound: again})


def chain_codec(plan: Plan) -> Codec:
    """How chains of a plan are written and read; a point gets a packed mixture of its own."""
    return Codec(CLASSES, {
        Point: Hook(
            lambda point: [point.x, point.values, point.grads],
            lambda xvg: Point(xvg[0], xvg[1], xvg[2], plan.reference.mixture.copy()),
        )
    })  # fmt: skip


def about_part(job: Job, call: Call, **more: Any) -> bytes:
    """Write what is checked before anything else is read."""
    xs, densities = probe(job.prior)
    identity = identity_of(job.prior.path.model)
    return CODEC.to_bytes({
        "versions": versions_of(PACKAGES),
        "call": call,
        "kernels": kernels_in_words(job.kernel),
        "prior_constant": job.prior.prior_constant,
        "seal": {"identity": identity, "probe_x": xs, "probe_density": densities},
        **more,
    })  # fmt: skip


def plan_part(job: Job, chosen: ChosenPlan) -> bytes:
    """Write a frozen plan."""
    return plan_codec(job.prior, job.kernel).to_bytes(chosen)


def read_plan(job: Job, part: bytes) -> ChosenPlan:
    """Read a frozen plan for the compiled model of a job."""
    chosen: ChosenPlan = plan_codec(job.prior, job.kernel).from_bytes(part)
    return chosen


def chains_part(
    plan: Plan, runs: Sequence[ChainRun], since: Sequence[Written], **more: Any
) -> bytes:
    """Write what chains have written since then, where they stand, and their generators."""
    pieces = [piece_since(run, each) for run, each in zip(runs, since, strict=True)]
    return chain_codec(plan).to_bytes({"pieces": pieces, **more})


def read_chains(plan: Plan, parts: Sequence[bytes]) -> tuple[list[ChainRun], dict[str, Any]]:
    """Put chains together; and what the last part has beside them.

    Raises
    ------
    ValueError
        The parts contradict themselves.
    """
    codec = chain_codec(plan)
    read: list[dict[str, Any]] = [codec.from_bytes(part) for part in parts]
    pieces = zip(*(each.pop("pieces") for each in read), strict=True)
    return [joined(own) for own in pieces], read[-1]


def beside_part(beside: Beside) -> bytes:
    """Write reference draws without their plan, which is that of the run."""
    return CODEC.to_bytes({f.name: getattr(beside, f.name) for f in fields(beside)[1:]})


def lasting(chosen: ChosenPlan) -> ChosenPlan:
    """Plan without what no later step of its run reads."""
    return replace(chosen, fit=chosen.fit and replace(chosen.fit, trial=None))


def slim(chosen: ChosenPlan) -> ChosenPlan:
    """Plan that draws can go on with, and no search: without particles, fits and scouts."""
    plan, warmup, last = chosen.plan, chosen.warmup, chosen.last
    none = np.empty((0, plan.reference.path.dim))

    def without_particles(one: AnnealedPass) -> AnnealedPass:
        return replace(
            one, log_ratio=np.empty((0, 0)), states=none[None], tuning=plan.tuning, other=None
        )

    annealed = without_particles(warmup.annealed)
    passes = chosen.passes and Passes(tuple(map(without_particles, chosen.passes.each)))
    if last is not None:
        last = replace(last, heavy=[])
    return replace(
        chosen, warmup=replace(warmup, annealed=annealed), passes=passes, fit=None, last=last,
        let_go=(),
    )  # fmt: skip


def probe(prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Draw states from the prior, shape (n, d), with the density's values there, shape (n, 2)."""
    xs = prior.draw(N_PROBES, prior.spawn(np.random.default_rng(PROBE_SEED)))
    return xs, np.column_stack(evaluate_draws(prior.path, xs))


def storable(job: Job) -> bool:
    """Whether the chains of a run can be stored at all."""
    try:
        CODEC.to_bytes(job.rng)
    except TypeError:
        return False
    return not any(kernel.keeps_state for kernel in job.kernel.kernels)


def with_plan(
    idata: xr.DataTree, call: Call, job: Job, outcome: Outcome, *, before: int = 0
) -> None:
    """Add to a DataTree what its chains can go on with.

    Where chains were cut to one length, it has the draws beyond, and where they end.

    Parameters
    ----------
    idata : DataTree
        Of the run; changed in place.
    call : Call
    job : Job
    outcome : Outcome
        With all chains of the run, of which the DataTree may have some.
    before : int, default 0
        Draws of each chain that another DataTree has.
    """
    drawn = idata["posterior"].to_dataset()
    kept = [outcome.runs[int(i)] for i in drawn["chain"].values]
    length = drawn.sizes["draw"] + call.tune
    since = [(length, *written_by(run)[1:]) for run in kept]
    parts = {
        "about": about_part(job, call, n_chains=len(kept), draws=before + drawn.sizes["draw"]),
        "plan": plan_part(job, slim(outcome.chosen)),
        "chains": chains_part(outcome.chosen.plan, kept, since),
    }
    arrays = {name: np.frombuffer(part, dtype=np.uint8) for name, part in parts.items()}
    idata[PLAN_GROUP] = xr.DataTree(
        xr.Dataset({name: (f"{name}_byte", array) for name, array in arrays.items()})
    )


def read_plan_group(idata: xr.DataTree) -> dict[str, bytes]:
    """Parts of a run that its DataTree has."""
    arrays = idata[PLAN_GROUP].to_dataset().data_vars
    return {str(name): array.values.astype(np.uint8).tobytes() for name, array in arrays.items()}
