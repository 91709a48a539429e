"""Every picture by name, of the made-up runs, for tests of all of them."""

from functools import partial

import pymc_tempering as pmt
from support import picture_runs

OF_RUNS = {
    "ladder": pmt.plot_ladder,
    "barrier": pmt.plot_barrier,
    "log_z": pmt.plot_log_z,
    "running_log_z": pmt.plot_running_log_z,
    "temperature_trace": pmt.plot_temperature_trace,
    "round_trips": pmt.plot_round_trips,
    "tours": pmt.plot_tours,
    "looks": pmt.plot_looks,
    "looks_of_variables": partial(pmt.plot_looks, var_names="x"),
    "path": pmt.plot_path,
    "summary": pmt.plot_summary,
}
"""Pictures of a run."""

OF_RESULTS = {
    "evidence": lambda **settings: pmt.plot_evidence(
        picture_runs.estimates(), exact=-5.01, **settings
    ),
    "bayes_factors": lambda **settings: pmt.plot_bayes_factors(picture_runs.models(), **settings),
    "inclusion": lambda **settings: pmt.plot_inclusion(picture_runs.subsets(), **settings),
    "prior_sensitivity": lambda **settings: pmt.plot_prior_sensitivity(
        picture_runs.sensitivity(), **settings
    ),
    "calibration": lambda **settings: pmt.plot_calibration(picture_runs.calibration(), **settings),
    "annealing": lambda **settings: pmt.plot_annealing(picture_runs.fits(), **settings),
}
"""Pictures of other results."""
