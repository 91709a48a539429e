"""Compare models by their evidence: Bayes factors and posterior model probabilities."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from pymc_tempering.arguments import check_choice
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.factor import SCALES, BayesFactor, factor_of
from pymc_tempering.evidence.front import estimate_quietly
from pymc_tempering.evidence.result import Evidence, emit_warnings
from pymc_tempering.exceptions import DataMismatchError


def bayes_factor(
    a: xr.DataTree | Evidence,
    b: xr.DataTree | Evidence,
    *,
    scale: str = "kass_raftery",
    check_data: bool = True,
) -> BayesFactor:
    """Return the log Bayes factor of model ``a`` over model ``b``.

    log BF = log Z_a - log Z_b with mcse sqrt(mcse_a^2 + mcse_b^2), in words by the categories of
    Kass & Raftery (1995, section 3.2) on 2 log BF, or by the grades of Jeffreys (1961).

    Parameters
    ----------
    a, b : DataTree or Evidence
        Tempering runs of the two models, or their evidence.
    scale : {"kass_raftery", "jeffreys"}, default "kass_raftery"
        Whose words :attr:`BayesFactor.words` are.
    check_data : bool, default True
        Raise an error if the observed data of DataTrees differ. An ``Evidence`` holds no data.

    Returns
    -------
    BayesFactor
        In nats, positive in favor of ``a``.

    Raises
    ------
    DataMismatchError
        If the stored observed data differ.
    NotTemperedError, LadderError
        If a DataTree holds no complete tempering run.
    ValueError
        If ``scale`` is not known.

    Warns
    -----
    TemperingWarning
        For each warning of an estimate from a DataTree.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> from pymc_tempering.evidence.synthetic import GaussianToy, gaussian_run
    >>> near, far = GaussianToy(y=3.0, sigma=2.0), GaussianToy(y=3.0, sigma=0.5)
    >>> bf = pmt.bayes_factor(gaussian_run(400, toy=near), gaussian_run(400, toy=far))
    >>> bf.words
    'positive evidence in favor of the first model'
    >>> bf.in_words("jeffreys")
    'substantial evidence in favor of the first model'
    >>> round(bf.posterior_odds(prior_odds=0.5).probability, 1)
    0.8
    """
    check_choice("scale", scale, SCALES)
    if check_data:
        check_same_data({"the first model": a, "the second model": b})
    first, second = _evidence(a, "the first model"), _evidence(b, "the second model")
    sentences = [f"First model: {s}" for s in first.warnings]
    sentences += [f"Second model: {s}" for s in second.warnings]
    mcse = float(np.hypot(first.mcse, second.mcse))
    return factor_of(first.log_z - second.log_z, mcse, tuple(sentences), scale=scale)


def compare(
    models: Mapping[str, xr.DataTree | Evidence],
    *,
    prior: Mapping[str, float] | None = None,
    check_data: bool = True,
) -> pd.DataFrame:
    """Compare models by evidence and posterior model probability.

    p(M_i | y) is proportional to prior_i Z_i. Its error is that of the delta method:
    var p_i = p_i^2 sum_j (1[i = j] - p_j)^2 mcse_j^2.

    Parameters
    ----------
    models : mapping of str to DataTree or Evidence
        Tempering runs of the models, or their evidence, by name.
    prior : mapping of str to float, optional
        Prior probability of each model; they are normalized. Uniform by default.
    check_data : bool, default True
        Raise an error if the observed data of DataTrees differ. An ``Evidence`` holds no data.

    Returns
    -------
    DataFrame
        One row a model, highest ``log_z`` first, with columns ``log_z``, ``mcse`` (nats),
        ``prior``, ``probability``, ``p_mcse``, ``log_bf`` (against the first row, nats),
        ``n_tours`` and ``verdict``. If any ``mcse`` is infinite, every ``p_mcse`` is.

    Raises
    ------
    DataMismatchError
        If the stored observed data differ.
    NotTemperedError, LadderError
        If a DataTree holds no complete tempering run.
    ValueError
        If there are no models, or ``prior`` does not give each a finite probability >= 0.

    Warns
    -----
    TemperingWarning
        For each warning of an estimate from a DataTree, with the name of the model.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> from pymc_tempering.evidence.synthetic import GaussianToy, gaussian_run
    >>> runs = {str(s): gaussian_run(400, toy=GaussianToy(2.0, s)) for s in (0.5, 1.0, 2.0)}
    >>> pmt.compare(runs)["probability"].round(1).to_dict()
    {'2.0': 0.4, '1.0': 0.4, '0.5': 0.2}
    """
    if not models:
        raise ValueError("compare needs at least one model")
    weight = _prior(list(models), prior)
    if check_data:
        check_same_data({f"model {name!r}": model for name, model in models.items()})
    evidence = {name: _evidence(model, f"model {name!r}") for name, model in models.items()}
    log_z = np.array([e.log_z for e in evidence.values()])
    mcse = np.array([e.mcse for e in evidence.values()])
    probability, error = _probabilities(log_z, mcse, weight)
    table = pd.DataFrame(
        {
            "log_z": log_z,
            "mcse": mcse,
            "prior": weight,
            "probability": probability,
            "p_mcse": error,
            "log_bf": log_z - log_z.max(),
            "n_tours": [e.n_tours for e in evidence.values()],
            "verdict": [e.verdict for e in evidence.values()],
        },
        index=pd.Index(list(evidence), name="model"),
    )
    return table.sort_values("log_z", ascending=False, kind="stable")


def _evidence(model: xr.DataTree | Evidence, name: str) -> Evidence:
    if isinstance(model, Evidence):
        return model
    evidence = estimate_quietly(model)
    return emit_warnings(evidence, f"{name[0].upper()}{name[1:]}: ", stacklevel=4)


def _prior(names: list[str], prior: Mapping[str, float] | None) -> FloatArray:
    if prior is None:
        return np.full(len(names), 1.0 / len(names))
    if set(prior) != set(names):
        raise ValueError(f"prior must name the models {names}, got {list(prior)}")
    weight = np.array([prior[name] for name in names], dtype=float)
    if not np.all(np.isfinite(weight)) or np.any(weight < 0.0) or weight.sum() == 0.0:
        raise ValueError(f"prior probabilities must be finite and not negative, got {dict(prior)}")
    return np.asarray(weight / weight.sum())


def _probabilities(
    log_z: FloatArray, mcse: FloatArray, prior: FloatArray
) -> tuple[FloatArray, FloatArray]:
    with np.errstate(divide="ignore"):
        log_p = log_z + np.log(prior)
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    if not np.all(np.isfinite(mcse)):
        return p, np.full(p.size, np.inf)
    jacobian = p[:, None] * (np.eye(p.size) - p)
    return p, np.sqrt(np.sum((jacobian * mcse) ** 2, axis=1))


def check_same_data(models: Mapping[str, xr.DataTree | Evidence]) -> None:
    """Raise an error if DataTrees, by what messages call them, have different observed data.

    Raises
    ------
    DataMismatchError
    """
    trees = {name: m for name, m in models.items() if isinstance(m, xr.DataTree)}
    data = {name: _observed(tree) for name, tree in trees.items()}
    names = list(data)
    for other in names[1:]:
        odd = _unmatched(data[names[0]], data[other])
        if odd:
            raise DataMismatchError(
                f"{names[0]} and {other} have different observed data in {odd}, so their evidence "
                "cannot be compared; check_data=False overrides this for data that are the same "
                "in another shape"
            )


def _observed(tree: xr.DataTree) -> dict[str, np.ndarray]:
    if "observed_data" not in tree.children:
        return {}
    variables = tree["observed_data"].to_dataset().data_vars
    return {str(name): np.ravel(values.values) for name, values in variables.items()}


def _unmatched(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    """Return the variables of one that equal no variable of the other, by name if possible."""
    rest = dict(b)
    odd = []
    for name, values in sorted(a.items(), key=lambda item: item[0] not in b):
        twins = [name] if name in b else [other for other in rest if other not in a]
        twin = next((t for t in twins if t in rest and _same(values, rest[t])), None)
        if twin is None:
            odd.append(name)
        else:
            del rest[twin]
    return sorted({*odd, *rest})


def _same(a: ArrayLike, b: ArrayLike) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return False
    if not (np.issubdtype(a.dtype, np.number) and np.issubdtype(b.dtype, np.number)):
        return bool(np.array_equal(a, b))
    # Data that are standardized twice agree up to rounding, relative to their scale.
    scale = np.max(np.abs(a[np.isfinite(a)]), initial=0.0)
    return bool(np.allclose(a, b, rtol=0.0, atol=1e-9 * scale, equal_nan=True))
