"""What a calibration returns: are posterior model probabilities what they say, and are ranks even.

All of it is computed from a table of log evidences, the models that the data came from, and ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations

import numpy as np
import pandas as pd
from scipy import stats

from pymc_tempering.arguments import check_choice
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import log_mean, pareto_khat
from pymc_tempering.evidence.result import Part, Shown

ALARM = 0.01
"""p-value below which a test says that something is wrong."""

SIMULATIONS = 9_999
"""Tables of generating models that a test is held against."""

SEED = 20240521
"""Of these tables, so that the same evidences have the same p-value."""

FEWEST = 20
"""Data sets below which nothing is said to be well."""

FEWEST_TAIL = 50
"""Data sets of a model below which the tail of Bayes factors is not looked at."""

RIDGE = 1e-6
"""Share of the mean variance that is added to each, for probabilities that are all 0 or 1."""

LOWEST = -1e6
"""Log probability (nats) that stands for minus infinity."""

BINS = 10
MAX_ROWS = 12
"""Ranks that are shown at most, the least even ones."""


@dataclass(frozen=True, repr=False, eq=False)
class Calibration(Shown):
    """Evidences of data sets whose model is known, and what they say of the computation.

    It can be made of any table of log evidences: ``Calibration(names, prior, generated, log_z)``.

    Attributes
    ----------
    names : tuple of str
        The m models.
    prior : ndarray, shape (m,)
        Their prior probabilities.
    generated : ndarray of int, shape (n,)
        The place of the model that each data set came from.
    log_z : ndarray, shape (n, m)
        Log evidences (nats); not a number where a run failed.
    ranks : dict of str to ndarray
        By model and scalar, as in "line: b[0]": the share of thinned posterior draws that lie below
        the value that the data came from, one for each data set of this model. The shares are
        uniform on (0, 1) if the draws are right, since ties and steps are broken at random.
    runs : DataFrame, optional
        The row of each run, as :func:`sample_many` has them.
    probability : ndarray, shape (n, m)
        Posterior model probabilities; not a number in the row of a data set with a failed run.
    p_value : float
        Of the test that these are what they say; see Notes.
    rank_p_value : float
        Of the test that all ranks are uniform: the least p-value of the Kolmogorov-Smirnov tests,
        times their number. Not a number without ranks.
    verdict : {"ok", "unchecked", "disagreed"}
        "disagreed": one of the two p-values is below 0.01. "unchecked": data sets have failed runs,
        are fewer than 20, or there are no ranks. Where nothing is wrong it is "disagreed" with a
        probability of 0.02 at most.
    warnings : tuple of str

    Notes
    -----
    Given the data, the generating model is a draw from the posterior model probabilities. So each
    sum over data sets of 1[j generated it] - P_j has mean 0, and with the log probability of the
    generating model in its place, less its posterior mean, there is one more. These are the scores
    of the model q_j proportional to P_j^b exp(a_j) at b = 1 and a = 0: probabilities too high for
    a model, and too sure or too timid. The test takes their quadratic form by their covariance.
    Its p-value is exact for any number of data sets: the models are drawn again from the
    probabilities, 9,999 times.

    References
    ----------
    Schad, Nicenboim, Buerkner, Betancourt & Vasishth (2023), Psychological Methods;
    Sekulovski, Marsman & Wagenmakers (2024), Behavior Research Methods; Talts et al. (2018),
    arXiv:1804.06788; Cox (1958), Biometrika, for the two scores.

    Examples
    --------
    >>> import numpy as np, pymc_tempering as pmt
    >>> rng = np.random.default_rng(1)
    >>> generated = rng.integers(2, size=300)
    >>> y = rng.normal(0, np.where(generated, 2.0, 1.0))  # sd 1 or 2
    >>> log_z = np.column_stack([-0.5 * y**2, -np.log(2) - 0.5 * (y / 2) ** 2])
    >>> Calibration = pmt.evidence.calibration.Calibration
    >>> Calibration(("one", "two"), np.array([0.5, 0.5]), generated, log_z).p_value > 0.01
    True
    >>> log_z[:, 1] += np.log(2)  # a constant is forgotten
    >>> Calibration(("one", "two"), np.array([0.5, 0.5]), generated, log_z).p_value < 0.01
    True
    """

    names: tuple[str, ...]
    prior: FloatArray
    generated: np.ndarray
    log_z: FloatArray
    ranks: Mapping[str, FloatArray] = field(default_factory=dict)
    runs: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        n, m = len(self.generated), len(self.names)
        if m < 2 or np.shape(self.prior) != (m,) or np.shape(self.log_z) != (n, m) or not n:
            raise ValueError(
                f"{m} names, {n} data sets, prior of shape {np.shape(self.prior)} and log_z of "
                f"shape {np.shape(self.log_z)}: needed are 2 names or more, 1 data set or more, "
                "and the shapes (names,) and (data sets, names)."
            )
        if not np.isclose(np.sum(self.prior), 1.0) or np.min(self.prior) <= 0.0:
            raise ValueError(f"prior must be positive and sum to 1, not {self.prior}.")
        if not np.isin(self.generated, range(m)).all():
            raise ValueError(f"generated must hold places of models, 0 to {m - 1}.")

    @cached_property
    def log_probability(self) -> FloatArray:
        """Log of `probability`, shape (n, m) (nats)."""
        joint = np.asarray(self.log_z, dtype=float) + np.log(self.prior)
        with np.errstate(invalid="ignore"):  # all evidences are zero
            return joint - np.logaddexp.reduce(joint, axis=1, keepdims=True)

    @property
    def probability(self) -> FloatArray:
        """Posterior probabilities of the models for each data set, shape (n, m)."""
        return np.exp(self.log_probability)

    @property
    def known(self) -> np.ndarray:
        """Whether a data set has all its evidences, shape (n,)."""
        return ~np.isnan(self.log_probability).any(axis=1)

    @cached_property
    def p_value(self) -> float:
        """p-value of the test of the probabilities; not a number without any."""
        log_p, chosen = self.log_probability[self.known], self.generated[self.known]
        return _p_value(np.maximum(log_p, LOWEST), chosen) if len(log_p) else np.nan

    @cached_property
    def rank_p_value(self) -> float:
        """p-value of all ranks together, by Bonferroni."""
        p = self.rank_table()["p_value"]
        return float(min(1.0, len(p) * p.min())) if len(p) else np.nan

    @property
    def verdict(self) -> str:
        """Whether something is wrong, as far as it can be told."""
        found = np.array([self.p_value, self.rank_p_value])
        if np.any(found < ALARM):
            return "disagreed"
        whole = self.known.all() and len(self.known) >= FEWEST
        return "ok" if whole and not np.isnan(found).any() else "unchecked"

    @property
    def warnings(self) -> tuple[str, ...]:  # type: ignore[override]
        """One sentence each, saying what to do."""
        said = []
        if self.p_value < ALARM:
            said.append(
                "The posterior model probabilities are not what they say: evidences are wrong, or "
                "the models differ from those that drew the data. The table of models says which."
            )
        if self.rank_p_value < ALARM:
            said.append(
                "Posterior draws do not have the ranks that right ones have: the sampler misses "
                "something, or the density and the random draws of a model differ."
            )
        if lost := int(np.sum(~self.known)):
            said.append(
                f"{lost} of {len(self.known)} data sets have a failed run and no probabilities. "
                "They are no random part of all: mend what the column message of runs says."
            )
        return tuple(said)

    def models(self) -> pd.DataFrame:
        """Return prior and mean posterior probability of each model.

        Returns
        -------
        DataFrame
            By model: ``prior``, ``mean``, ``se`` (standard error of the mean over data sets),
            ``generated`` (data sets that came from it), ``least`` and ``most``: the mean if failed
            runs had left the probability 0, or 1.
        """
        p, known = self.probability, self.known
        n, lost = max(int(known.sum()), 1), int(np.sum(~known))
        total = p[known].sum(axis=0)
        spread = p[known].std(axis=0, ddof=1) if n > 1 else np.full(len(self.names), np.nan)
        columns = {
            "prior": self.prior, "mean": total / n, "se": spread / np.sqrt(n),
            "generated": np.bincount(self.generated, minlength=len(self.names)),
            "least": total / (n + lost), "most": (total + lost) / (n + lost),
        }  # fmt: skip
        return pd.DataFrame(columns, pd.Index(self.names, name="model"))

    def curve(self, model: str | None = None) -> pd.DataFrame:
        """Return how often a model had generated the data, along its posterior probability.

        Parameters
        ----------
        model : str, optional
            Its name; the second model by default.

        Returns
        -------
        DataFrame
            By tenths of the probability that have data sets: ``probability`` (mean), ``share`` that
            the model had generated, ``low`` and ``high`` (its exact 95 % interval), ``n``.

        Raises
        ------
        ValueError
            There is no model of that name.
        """
        model = self.names[1] if model is None else model
        check_choice("model", model, self.names)
        j = self.names.index(model)
        p, hit = self.probability[self.known, j], self.generated[self.known] == j
        bins = np.minimum((p * BINS).astype(int), BINS - 1)
        rows = []
        for b in np.unique(bins):
            here = bins == b
            found = stats.binomtest(int(hit[here].sum()), int(here.sum()))
            low, high = found.proportion_ci()
            rows.append((p[here].mean(), found.statistic, low, high, found.n))
        return pd.DataFrame(rows, columns=["probability", "share", "low", "high", "n"])

    def factors(self) -> pd.DataFrame:
        """Return the mean Bayes factors over the model that generated the data; each should be 1.

        Returns
        -------
        DataFrame
            By ``of``, a model, and ``under``, the one that generated the data: ``mean`` of the
            Bayes factor, ``largest``, the share of the largest one in their sum, ``k-hat``, the
            shape of their Pareto tail (from 0.5 on they have no finite variance, and the mean tells
            little; not a number for fewer than 50 data sets), and ``n``.
        """
        rows = []
        for i, j in permutations(range(len(self.names)), 2):
            here = self.known & (self.generated == i)
            if not here.any():
                continue
            log_bf = np.maximum(self.log_z[here, j] - self.log_z[here, i], LOWEST)
            n, mean = log_bf.size, log_mean(log_bf)
            khat = pareto_khat(log_bf) if n >= FEWEST_TAIL else np.nan
            with np.errstate(over="ignore"):
                largest = np.exp(log_bf.max() - mean) / n
                rows.append((self.names[j], self.names[i], np.exp(mean), largest, khat, n))
        table = pd.DataFrame(rows, columns=["of", "under", "mean", "largest", "k-hat", "n"])
        return table.set_index(["of", "under"])

    def rank_table(self) -> pd.DataFrame:
        """Return the test of the ranks of each scalar, the least even first.

        Returns
        -------
        DataFrame
            By scalar: ``mean`` (one half), ``p_value`` of the Kolmogorov-Smirnov test, and ``n``.
        """
        rows = {
            name: (np.mean(u), stats.kstest(u, "uniform").pvalue, len(u))
            for name, u in self.ranks.items() if len(u)
        }  # fmt: skip
        table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "p_value", "n"])
        return table.sort_values("p_value")

    def _parts(self) -> list[Part]:
        n = len(self.generated)
        rows = {
            "verdict": self.verdict,
            "data sets": f"{n}, {int(self.known.sum())} with all evidences",
            "probabilities": f"p = {self.p_value:.3g}",
            "ranks": f"p = {self.rank_p_value:.3g} of {len(self.ranks)} scalars",
        }
        if self.runs is not None:
            counts = self.runs["verdict"].value_counts()
            rows["runs"] = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        models = self.models()
        if self.known.all():
            models = models.drop(columns=["least", "most"])
        parts: list[Part] = ["Calibration", rows, models]
        parts += ["Bayes factors over the generating model, of mean 1", self.factors()]
        if len(ranks := self.rank_table()):
            cut = f", {MAX_ROWS} of {len(ranks)}" if len(ranks) > MAX_ROWS else ""
            parts += [f"Ranks, of mean 0.5{cut}", ranks.head(MAX_ROWS)]
        return parts


def _p_value(log_p: FloatArray, chosen: np.ndarray) -> float:
    """Test of models (n,) against the log probabilities (n, m) that they were drawn with."""
    n, m = log_p.shape
    p = np.exp(log_p)
    features = np.broadcast_to(np.eye(m)[:, 1:], (n, m, m - 1))
    features = np.concatenate([features, log_p[:, :, None]], axis=2)
    features = features - np.einsum("ij,ijk->ik", p, features)[:, None]
    covariance = np.einsum("ij,ijk,ijl->kl", p, features, features)
    ridge = RIDGE * np.trace(covariance) / m + 1e-100
    weight = np.linalg.inv(covariance + ridge * np.eye(m))
    rng = np.random.default_rng(SEED)
    scores = np.zeros((SIMULATIONS + 1, m))
    for of, share, own in zip(features, p.cumsum(axis=1), chosen, strict=True):
        drawn = np.searchsorted(share[:-1], rng.random(SIMULATIONS), side="right")
        scores += of[np.append(drawn, own)]
    size = np.maximum(np.einsum("sk,kl,sl->s", scores, weight, scores), 0.0)
    # Equal sizes differ by rounding.
    return float(np.mean(size >= size[-1] * (1.0 - 1e-9)))
