"""The end of a call: from the outcome of its rounds to the DataTree that the user gets."""

import xarray as xr

from pymc_tempering.sampling.call import Call
from pymc_tempering.sampling.checkpoint import storable
from pymc_tempering.sampling.closing import close, warn_of_run
from pymc_tempering.sampling.goal import Outcome
from pymc_tempering.sampling.output import build_datatree
from pymc_tempering.sampling.plan_group import with_plan
from pymc_tempering.sampling.rounds import LAST_SHARE
from pymc_tempering.sampling.setup import Job


def finish_call(
    call: Call, job: Job, outcome: Outcome, seconds: dict[str, float], *, quiet: bool
) -> xr.DataTree:
    """Put the outcome of a call into a DataTree, and warn and tell of it.

    PyMC's checks of all variables, which take seconds in many dimensions, are left out where the
    time of the call has long been over.
    """
    model = job.prior.path.model
    warn_of_run(
        outcome, call.tune, call.n_draws, searched=job.options.reference == "auto",
        max_time=call.goal.max_time,
    )  # fmt: skip
    idata = build_datatree(
        outcome,
        tune=call.tune,
        seconds=seconds,
        var_names=call.var_names,
        discard_tuned_samples=call.discard_tuned_samples,
        idata_kwargs=call.idata_kwargs,
    )
    if storable(job):
        with_plan(idata, call, job, outcome)
    checked = call.convergence_checks and not job.deadline.part(LAST_SHARE).late
    close(
        idata, model, seconds, quiet=quiet, convergence_checks=checked, least=outcome.least,
    )  # fmt: skip
    return idata
