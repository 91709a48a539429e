"""Posterior expectations from the states of all rungs, weighted by q(beta = 1 | x)."""

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import MIN_ESS, kish
from pymc_tempering.evidence.datatree import read_states
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.reweight import WeightedDraws, moments
from pymc_tempering.exceptions import TemperingWarning

METRICS = ("mean", "sd", "mcse", "ess")

type Function = Callable[[xr.Dataset], xr.DataArray]


def expectation(
    idata: xr.DataTree,
    functions: Function | Mapping[str, Function] | None = None,
    *,
    var_names: Sequence[str] | None = None,
) -> xr.Dataset:
    """Estimate posterior expectations from the states of all rungs.

    E[h] = sum_i w_i h(x_i) / sum_i w_i over all iterations, with w_i = q(beta_K | x_i), the
    probability of beta = 1 given the state (Geyer & Thompson 1995; Carlson et al. 2016, section
    2.1).

    Parameters
    ----------
    idata : DataTree
        A run of :func:`pymc_tempering.sample` with ``keep="states"``.
    functions : callable or mapping of str to callable, optional
        Each takes a Dataset of the variables of ``posterior`` (constrained space, deterministics
        included) with dimensions (chain, state, ...) and returns a DataArray with (chain, state)
        among its dimensions. By default the variables themselves.
    var_names : sequence of str, optional
        Variables, where there are no ``functions``; by default all.

    Returns
    -------
    Dataset
        Each expectation with a dimension ``metric``: ``mean``, ``sd`` (of h under the posterior),
        ``mcse`` (over tours, at least that over batches of draws) and ``ess``, the number of
        independent posterior draws with the same mcse, (sd / mcse)^2. Attributes: ``weight_ess``,
        Kish's effective number of the weighted states, ``n_states`` and ``n_tours``.

    Raises
    ------
    NotTemperedError
        If ``idata`` holds no states, or a trace that is not of its draws.
    LadderError
        If its draws do not come from one ladder.
    ValueError
        If a name is unknown, a function returns something else than a DataArray by (chain, state),
        or a value is not finite.

    Warns
    -----
    TemperingWarning
        For each warning of the run's evidence, which concerns the states as well. Where that has
        no error (too few tours, an alarm) the mcse is infinite here, too.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> found = pmt.expectation(idata, {"square": lambda draws: draws["x"] ** 2})["square"]
    >>> mean, mcse = found.sel(metric=["mean", "mcse"]).values
    >>> bool(abs(mean - 2.76) < 4 * mcse)
    True
    """
    states = read_states(idata)
    draws = WeightedDraws(states.run.stats, states.run.pieces, states.weight, states.piece)
    values = _values(states.variables, functions, var_names)

    evidence = estimate_quietly(idata)
    sentences = list(evidence.warnings)
    n_tours = float(draws.tours(draws.weight[:, None])[0])
    known = np.isfinite(evidence.mcse) and n_tours >= MIN_ESS
    if not known and not sentences:
        sentences.append(
            f"A few tours hold nearly all the weight (effective number {n_tours:.1f}), so "
            "the mcse of expectations is infinite: sample more draws."
        )
    result = {}
    for name, value in values.items():
        ordered = value.transpose("chain", "state", ...)
        table = _finite_table(name, ordered, states.keep)
        mean, sd, mcse = moments(draws, np.zeros((len(table), 1)), table)[:, 0]
        if not known:
            mcse = np.full_like(mcse, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            ess = np.where(mcse > 0.0, (sd / mcse) ** 2, np.inf)
        rest = ordered.isel(chain=0, state=0, drop=True)
        result[name] = xr.concat(
            [rest.copy(data=row.reshape(rest.shape)) for row in (mean, sd, mcse, ess)], dim="metric"
        )
    for sentence in sentences:
        warnings.warn(sentence, TemperingWarning, stacklevel=2)
    attrs = {
        "weight_ess": float(kish(draws.weight)),
        "n_states": len(draws.weight),
        "n_tours": evidence.n_tours,
    }
    return xr.Dataset(result, {"metric": list(METRICS)}, attrs)


def _values(
    draws: xr.Dataset,
    functions: Function | Mapping[str, Function] | None,
    var_names: Sequence[str] | None,
) -> dict[str, xr.DataArray]:
    """Evaluate the functions, or pick the variables."""
    if functions is None:
        names = [str(name) for name in draws.data_vars] if var_names is None else list(var_names)
        unknown = [name for name in names if name not in draws.data_vars]
        if unknown:
            raise ValueError(
                f"var_names {', '.join(map(repr, unknown))} are not among the states' variables: "
                f"{', '.join(str(name) for name in draws.data_vars)}"
            )
        return {name: draws[name] for name in names}
    if not isinstance(functions, Mapping):
        functions = {getattr(functions, "__name__", "expectation"): functions}
    values = {name: function(draws) for name, function in functions.items()}
    for name, value in values.items():
        if not isinstance(value, xr.DataArray) or not {"chain", "state"} <= set(value.dims):
            raise ValueError(
                f"{name!r} must return a DataArray with dimensions chain and state, got "
                f"{getattr(value, 'dims', type(value).__name__)}"
            )
    return values


def _finite_table(name: str, ordered: xr.DataArray, keep: np.ndarray) -> FloatArray:
    """Return the values at the kept states, shape (n, M)."""
    table = np.asarray(ordered.values, dtype=float)[keep]
    if not np.isfinite(table).all():
        raise ValueError(f"{name!r} is not finite at {int(np.sum(~np.isfinite(table)))} states")
    return table.reshape(len(table), -1)
