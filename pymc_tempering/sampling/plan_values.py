"""Frozen plans as plain values: which classes make up a plan, and what stands for compiled code."""

from dataclasses import replace
from typing import Any

import numpy as np

from pymc_tempering.chain.plan import Plan
from pymc_tempering.chain.tuning import Tuning
from pymc_tempering.core.deadline import Cut
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.exceptions import CheckpointError
from pymc_tempering.kernels import Compound
from pymc_tempering.model.identity import identity_of
from pymc_tempering.references.mixture import Fitted, FullScales, LowRankScales, Mixture
from pymc_tempering.references.prior import Prior, evaluate_draws
from pymc_tempering.references.warp import FunnelWarp
from pymc_tempering.sampling.call import Call
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.evaluated import Evaluated
from pymc_tempering.sampling.fit_reference import ReferenceFit
from pymc_tempering.sampling.goal import Goal, Round
from pymc_tempering.sampling.looks import Looks
from pymc_tempering.sampling.passes import Passes
from pymc_tempering.sampling.search import SearchRound
from pymc_tempering.sampling.setup import Options
from pymc_tempering.sampling.suspects import Peak
from pymc_tempering.storage.plain_values import Codec, Hook
from pymc_tempering.warmup.annealed_pass import AnnealedPass
from pymc_tempering.warmup.warm_up import Warmup, WarmupRound

CLASSES = (
    AnnealedPass, Call, ChosenPlan, Cut, Evaluated, Fitted, FullScales, FunnelWarp, Goal, Ladder,
    Looks, LowRankScales, Mixture, Options, Passes, Peak, Plan, ReferenceFit, Round, SearchRound,
    Tuning, Warmup, WarmupRound,
)  # fmt: skip
"""What a call and its plan are made of."""

N_PROBES, PROBE_SEED = 8, 21
"""States at which two processes compare the density, drawn from the prior with this seed."""

NEAR = 1e-6
"""Relative difference of densities above which the model is another one. Less comes from another
machine or library."""


def plan_codec(prior: Prior, kernel: Compound) -> Codec:
    """How plans of a compiled model are written and read; its compiled code stays where it is."""
    return Codec(
        CLASSES,
        {
            Prior: Hook(lambda _: None, lambda _: prior),
            Compound: Hook(
                lambda used: used is not kernel,
                lambda densified: kernel.densified() if densified else kernel,
            ),
        },
    )


def call_codec() -> Codec:
    """How the arguments of a call are written and read, before anything is compiled."""
    return Codec(CLASSES)


def lasting(chosen: ChosenPlan) -> ChosenPlan:
    """Plan without what no later step of its run reads."""
    fit = chosen.fit and replace(chosen.fit, trial=None)
    return replace(chosen, fit=fit)


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
        last = replace(last, scouts=last.scouts.at(np.zeros(0, dtype=int)), heavy=[])
    return replace(
        chosen, warmup=replace(warmup, annealed=annealed), passes=passes, fit=None, last=last,
        scouts=None, let_go=(),
    )  # fmt: skip


def probe(prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Draw states from the prior, shape (n, d), with the density's values there, shape (n, 2)."""
    xs = prior.draw(N_PROBES, prior.spawn(np.random.default_rng(PROBE_SEED)))
    return xs, np.column_stack(evaluate_draws(prior.path, xs))


def compare_probes(
    stored: tuple[np.ndarray, np.ndarray], now: tuple[np.ndarray, np.ndarray]
) -> bool:
    """Whether two probes have the same bits.

    Raises
    ------
    CheckpointError
        They differ by more than rounding.
    """
    same = True
    for name, old, new in zip(("prior draws", "density"), stored, now, strict=True):
        if not (
            old.shape == new.shape and np.allclose(old, new, rtol=NEAR, atol=NEAR, equal_nan=True)
        ):
            raise CheckpointError(
                f"The model here is not the one of the run: its {name} differ. Pass the model and "
                "the data that the run was begun with."
            )
        same = same and bool(np.array_equal(old, new, equal_nan=True))
    return same


def seal_of(prior: Prior) -> dict[str, Any]:
    """Return what a later process checks its model against."""
    xs, values = probe(prior)
    return {"identity": identity_of(prior.path.model), "probe_x": xs, "probe_density": values}
