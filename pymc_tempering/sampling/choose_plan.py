"""The plan that a run is made with: from the prior, or from a fitted and searched reference.

Particles are annealed from the prior in several passes, and the reference is fitted to them and to
weighted draws of its own. Then looks and scouts from the prior, which the fit never saw, show
whether it missed something; what they find enters a new fit.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from pymc_tempering.chain.draw_statistics import Schema
from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.cycles import OVERFLOWS, FreshLooks
from pymc_tempering.core.deadline import PAST
from pymc_tempering.core.findings import Finding
from pymc_tempering.core.ladder import check_betas
from pymc_tempering.evidence.reference_check import no_looks, summarize_looks
from pymc_tempering.exceptions import StuckChainError, warn_user
from pymc_tempering.kernels import Compound
from pymc_tempering.model.origin import check_ends, origin_of
from pymc_tempering.references.mixture import Mixture
from pymc_tempering.references.prior import Fitted, Prior
from pymc_tempering.sampling.call import Job
from pymc_tempering.sampling.effort import WIDE_SPREAD, is_wide
from pymc_tempering.sampling.evaluated import can_climb
from pymc_tempering.sampling.fit_reference import (
    Passes,
    ReferenceFit,
    first_fit,
    fit_reference,
    fit_to,
    fit_to_passes,
    make_passes,
    warm_up_for,
)
from pymc_tempering.sampling.looks import take_looks
from pymc_tempering.sampling.regions import Peak
from pymc_tempering.sampling.search import (
    Search,
    SearchRound,
    first_looks,
    search,
    strangers,
)
from pymc_tempering.warmup.warm_up import Warmup

LATE_CESS = 0.1
"""Conditional effective sample size of the steps of an annealed pass that is late; usually 0.5.
The pass then takes about half as many evaluations, and its ladder still serves."""


N_CHECKED = 200
"""Draws of the reference at which sums over discrete variables are checked."""


REACHED = 0.5
"""Share of the posterior draws below which it is noted how much of them looks have reached."""


@dataclass(frozen=True, eq=False)
class ChosenPlan:
    """A frozen plan, and how it came about.

    Attributes
    ----------
    plan : Plan
        What the run is made with.
    warmup : Warmup
        Of that plan.
    passes : Passes, optional
        Annealed passes from the prior; only with a fitted reference.
    fit : ReferenceFit, optional
        Of the reference.
    last : SearchRound, optional
        The last round of the search, whose looks count.
    let_go : tuple of Peak
        Peaks without mass.
    needed : int
        Looks that were asked for.
    fits : int
        Rounds of the search, each with a fit of its own.
    settled : bool
        Whether the last of them found nothing new.
    dropped : float
        Share of the evidence in regions that they let go.
    reached : float
        Share of the posterior draws in regions where looks have arrived.
    interrupted : bool
        Whether Ctrl-C ended the search; what was known by then stands.
    work : dict
        Density evaluations of each stage.
    seconds : dict
        Time of each stage of `core.deadline.STAGES` that there was.
    """

    plan: Plan
    warmup: Warmup
    passes: Passes | None = None
    fit: ReferenceFit | None = None
    last: SearchRound | None = None
    let_go: tuple[Peak, ...] = ()
    needed: int = 0
    fits: int = 0
    settled: bool = True
    dropped: float = 0.0
    reached: float = float("nan")
    interrupted: bool = False
    work: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def fitted(self) -> Fitted | None:
        """The fitted reference, if that is what the run is made with."""
        reference = self.plan.reference
        return reference if isinstance(reference, Fitted) else None

    @property
    def spent(self) -> int:
        """Density evaluations of all stages, scouts apart: they go by what an evaluation costs."""
        return sum(n for stage, n in self.work.items() if stage != "scouts")

    @property
    def fresh(self) -> FreshLooks | None:
        """What the looks say of the fitted reference."""
        if self.fitted is None:
            return None
        if self.last is None:
            return no_looks(self.needed)
        last, log_z = self.last, np.empty(0) if self.passes is None else self.passes.log_z
        return summarize_looks(
            last.looks.log_w, int(last.strange.sum()), self.needed, int(last.arrived.sum()),
            log_z, last.home_passes, last.islands, settled=self.settled, let_go=self.dropped,
            reached=self.reached,
            least_spread=WIDE_SPREAD if is_wide(self.plan.reference.path) else 0.0,
        )  # fmt: skip

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What did not look for modes, and does so in most runs; and what looks did not reach."""
        path, kernel = self.plan.reference.path, self.plan.kernel
        if self.fitted is None:
            return (Finding("not_searched", "the tours"),)
        found = list[Finding]()
        if not can_climb(path, kernel):
            found.append(Finding("not_climbed", repr(kernel.name)))
        if 0.0 < self.reached < REACHED:
            found.append(Finding("not_reached", "looks from the prior", f"{self.reached:.1%}"))
        return tuple(found)

    @property
    def schema(self) -> Schema:
        """Statistics of the draws of the run."""
        fitted = self.fitted
        components = None if fitted is None else fitted.components
        plan, origin = self.plan, origin_of(self.plan.reference.path.model)
        volume = None if origin is None else origin.log_volume
        return Schema(plan.ladder, components, self.fresh, plan.reference.prior_constant, volume)


def choose_plan(job: Job) -> ChosenPlan:
    """Find the plan for a run of a compiled model.

    Raises
    ------
    ShortSumError
        The model has to be rewritten with longer sums.
    """
    return _finished(job, _choose(job))


def _finished(job: Job, chosen: ChosenPlan) -> ChosenPlan:
    """Give the rungs the weights that the user wants, and note what the plan has taken.

    The constants of the ladder were learned with even weights.
    """
    plan, weights = chosen.plan, job.options.rung_weights
    origin = origin_of(job.prior.path.model)
    if origin is not None:
        check_ends(origin.check(_some_draws(plan)))
    if weights is not None:
        plan = plan.with_ladder(plan.ladder.with_weights(weights))
    return replace(chosen, plan=plan, work=dict(job.tally.work), seconds=dict(job.tally.seconds))


def _some_draws(plan: Plan) -> np.ndarray:
    """Few draws of the reference, of no stream of a run, shape (n, d)."""
    xs = plan.reference.draw(N_CHECKED, plan.reference.spawn(np.random.default_rng(N_CHECKED)))
    return xs[np.isfinite(xs).all(axis=1)]


def _choose(job: Job) -> ChosenPlan:
    """Find the plan, with even weights of the rungs."""
    prior, kernel, options = job.prior, job.kernel, job.options
    if options.reference == "fitted":
        _check_can_fit(prior, kernel)
    hopeless = options.reference == "auto" and prior.prior_constant == OVERFLOWS  # states no error
    if options.reference == "prior" or hopeless or not can_fit(prior, kernel):
        return _from_prior(job)
    passes, first, particles = fit_to_passes(job, make_passes(job))
    job.tally.end("annealed_pass")
    fit, found, interrupted = None, None, False
    try:
        fit = _fit_in_two_tries(job, first, particles)
        job.tally.end("fit")
        if options.reference == "auto" and passes.complete:
            found = search(job, passes, fit)
    except KeyboardInterrupt:
        interrupted = True
    except StuckChainError:
        if options.reference == "fitted":
            raise
        warn_user(
            "Two trial runs from a fitted reference hung, so the run uses the prior as reference, "
            "and its error is larger: sample more draws."
        )
        job.tally.end("fit" if fit is None else "search")
        return _from_prior(job)
    job.tally.end("fit" if fit is None else "search")
    fit = fit or first_fit(job, first, particles)
    return _freeze(job, passes, fit, found, interrupted=interrupted)


def _freeze(
    job: Job, passes: Passes, fit: ReferenceFit, found: Search | None, *, interrupted: bool = False
) -> ChosenPlan:
    """Freeze the plan of a fitted reference, or of the last one of a search, with what that found.

    After Ctrl-C it is frozen at once, and nothing has searched it.
    """
    if found is not None:
        fit, interrupted = found.fit, found.interrupted
    job.report("Learning the weights")
    if interrupted:
        job.report("Ctrl-C: a short run with what is known; once more to stop")
        job = replace(job, deadline=PAST)
    warmup = fit.warm_up(job)
    job.tally.end("weights")
    chosen = ChosenPlan(
        warmup.plan, warmup, passes, fit, needed=first_looks(job), fits=1,
        interrupted=interrupted,
    )  # fmt: skip
    if found is None or interrupted:
        return chosen
    # A search that the deadline has ended in the middle is as good as none.
    last = found.last if found.settled or not job.deadline.late else None
    return replace(
        chosen, last=last, let_go=tuple(found.let_go), fits=found.rounds,
        settled=found.settled, dropped=found.dropped,
        reached=float("nan") if last is None else last.reached(fit),
    )  # fmt: skip


def _fit_in_two_tries(job: Job, first: Mixture, particles: np.ndarray) -> ReferenceFit:
    """Fit the reference; where a trial run hangs, once more with other random numbers.

    Raises
    ------
    StuckChainError
        The second one hung too.
    """
    try:
        return fit_reference(job, first, particles)
    except StuckChainError:
        job.report("A trial run hung: fitting again")
        return fit_reference(job, first, particles)


def can_fit(prior: Prior, kernel: Compound) -> bool:
    """Whether a fitted reference may stand in for the prior."""
    return prior.path.fittable and not kernel.prior_only


def _check_can_fit(prior: Prior, kernel: Compound) -> None:
    """Refuse a fitted reference where none can be had."""
    if can_fit(prior, kernel):
        return
    raise ValueError(
        "reference='fitted' is not for this model: "
        + (
            f"the kernel {kernel.name!r} only knows the path from the prior."
            if kernel.prior_only
            else "it has discrete or circular variables, for which no mixture of t's is fitted."
        )
        + " Use reference='prior', or 'auto'."
    )


def search_again(job: Job, chosen: ChosenPlan, draws: np.ndarray) -> ChosenPlan:
    """Fit the reference to the draws (n, d) of a run from it too, and search anew.

    Raises
    ------
    KeyboardInterrupt
        The plan that there was still stands.
    """
    fitted, old, passes = chosen.fitted, chosen.fit, chosen.passes
    assert fitted is not None
    assert old is not None
    assert passes is not None
    job.tally.end("run")
    seen = np.concatenate([old.draws.xs, draws])
    first = fit_to(job, seen, fitted.components, rough=True)
    found = search(job, passes, fit_reference(job, first, seen))
    if found.interrupted:
        raise KeyboardInterrupt("Interrupted while the reference was fitted again.")
    job.tally.end("search")
    again = _freeze(job, passes, found.fit, found)
    return _finished(job, replace(again, fits=chosen.fits + again.fits))


def more_looks(job: Job, chosen: ChosenPlan, budget: int) -> ChosenPlan:
    """Take further looks until all have cost `budget` density evaluations."""
    fit, last, passes = chosen.fit, chosen.last, chosen.passes
    if chosen.fitted is None or fit is None or last is None or passes is None:
        return chosen
    looks = last.looks
    if looks.n == 0:
        return chosen
    n = int((budget - looks.n_evaluations) / (looks.n_evaluations / looks.n))
    if n < looks.n:
        return chosen
    new = take_looks(job, passes.best, n)
    strange = strangers(job, new.ends, fit, passes, chosen.let_go)
    if job.deadline.late:  # their ways home were cut short, and say nothing
        return chosen
    job.tally.work["looks"] += new.n_evaluations
    last = last.with_looks(new, strange, fit)
    return replace(chosen, last=last, reached=last.reached(fit), work=dict(job.tally.work))


def _from_prior(job: Job) -> ChosenPlan:
    """Warm up from the prior."""
    warmup, tally = warm_up_prior(job), job.tally
    tally.work["prior_warmup"] += warmup.annealed.n_evaluations
    tally.end("weights")
    tally.seconds["weights"] -= warmup.seconds_annealing
    tally.seconds["annealed_pass"] = (
        tally.seconds.get("annealed_pass", 0.0) + warmup.seconds_annealing
    )
    return ChosenPlan(warmup.plan, warmup)


def warm_up_prior(job: Job) -> Warmup:
    """Run the warm-up from the prior; warn if it did not settle.

    Chains on a ladder whose annealed pass went the rest of its way in one step seldom come back to
    beta = 1. So at the deadline it hurries first, and the one step comes at the end of the
    overtime.
    """
    options = job.options
    betas = None if options.betas is None else check_betas(options.betas)
    warmup = warm_up_for(
        job, job.prior, job.kernel, betas=betas, late_cess=LATE_CESS, report=job.report
    )
    if not (warmup.converged or warmup.cut):
        rounds = "initial iterations" if options.weight_adaptation == "rts" else "weights"
        warn_user(
            f"The {rounds} did not settle in {len(warmup.rounds)} rounds: the last one "
            f"visited a rung {np.exp(warmup.rounds[-1].max_log_off):.0f} times too often or too "
            "rarely. Run more draws, and look at pmt.diagnose."
        )
    return warmup
