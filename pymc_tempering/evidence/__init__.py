"""Evidence of a model from its tempering run."""

from pymc_tempering.core.cycles import CycleStats
from pymc_tempering.evidence.alarms import homogeneity_pvalue
from pymc_tempering.evidence.bar import bar, mbar, mbar_log_z, stepping_stone
from pymc_tempering.evidence.bracket import Bracket, backward, bracket, forward
from pymc_tempering.evidence.datatree import Run, read_run
from pymc_tempering.evidence.diagnostics import overlap
from pymc_tempering.evidence.estimators import ESTIMATORS, Estimator
from pymc_tempering.evidence.factor import BayesFactor, PosteriorOdds
from pymc_tempering.evidence.pieces import Tours, tour_sums
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.reweight import expectation
from pymc_tempering.evidence.rts import counts, pooled, rts, rts_log_z
from pymc_tempering.evidence.ti import integrate, ti

__all__ = [
    "ESTIMATORS",
    "BayesFactor",
    "Bracket",
    "CycleStats",
    "Estimator",
    "Evidence",
    "PosteriorOdds",
    "Run",
    "Tours",
    "backward",
    "bar",
    "bracket",
    "counts",
    "expectation",
    "forward",
    "homogeneity_pvalue",
    "integrate",
    "mbar",
    "mbar_log_z",
    "overlap",
    "pooled",
    "read_run",
    "rts",
    "rts_log_z",
    "stepping_stone",
    "ti",
    "tour_sums",
]
