"""When a chain counts as stuck, and what to say of it."""

from pymc_tempering.chain.plan import Plan

CYCLE_BOUND = 2000
"""A chain that has not come back to beta = 1 within this many iterations per rung is stuck."""


def cycle_bound(plan: Plan) -> int:
    """Bound the iterations without a visit to beta = 1, after which a chain counts as stuck."""
    return CYCLE_BOUND * plan.ladder.n_rungs


def stuck_message(plan: Plan, rung: int) -> str:
    """Say where a chain hangs, and what to do."""
    beta = plan.ladder.betas[rung]
    return (
        f"A chain has not come back to beta = 1 in {cycle_bound(plan)} iterations; it hangs at "
        f"rung {rung} of {plan.ladder.n_rungs} (beta = {beta:.3g}). Likely the likelihood changes "
        "abruptly there (a phase transition), or the kernel does not move: try a larger "
        "target_accept, more rungs (rungs_per_barrier), or a tighter prior."
    )
