"""From a fit to a DataTree: draws, ELBO and temperatures in groups that ArviZ reads."""

from typing import Any

import numpy as np
import xarray as xr
from pymc.variational.opvi import Approximation

from pymc_tempering.arguments import as_seed, check_whole
from pymc_tempering.variational.tempered_fit import TemperedFit


def tempering_of(approx: Approximation, function: str) -> TemperedFit:
    """Return the report that ``fit`` attached.

    Raises
    ------
    ValueError
        If there is none.
    """
    report = getattr(approx, "tempering", None)
    if not isinstance(report, TemperedFit):
        raise ValueError(
            f"{function} needs an approximation from pmt.fit, got {type(approx).__name__} without "
            "`tempering`"
        )
    return report


def to_datatree(
    approx: Approximation,
    draws: int = 1000,
    *,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataTree:
    """Put a fit into a DataTree: draws, ELBO and temperature history.

    Parameters
    ----------
    approx : Approximation
        From :func:`pymc_tempering.fit`.
    draws : int, default 1000
        Independent draws from the approximation, at T = 1.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws.

    Returns
    -------
    DataTree
        The groups of ``approx.sample`` (``posterior``, in the constrained space, one chain), and
        ``variational``: by ``iteration`` ``loss`` (negative tempered ELBO, as ``approx.hist``),
        ``elbo`` (untempered, one noisy estimate each, nats) and ``inverse_temperature``; by
        ``update`` ``update_iteration``, and by ``update`` and ``temperature``
        ``temperature_probability``; ``log_c`` and ``log_c_mcse`` (nats) of VT;
        ``inverse_temperature_of_<observed>`` of LVT, in the shape of the data. Its attributes hold
        ``method``, ``elbo``, ``elbo_mcse``, ``log_z``, ``log_z_mcse`` (nats; NaN without an
        evidence), ``khat``, ``converged`` (0 or 1) and ``n_tempered``.

    Raises
    ------
    ValueError
        If ``approx`` does not come from :func:`pymc_tempering.fit`, or ``draws`` is below 1.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, observed=np.array([1.2, 0.7, 1.1]))
    >>> adam = pm.adam(learning_rate=0.05)
    >>> approx = pmt.fit(2000, model=model, obj_optimizer=adam, random_seed=1, progressbar=False)
    >>> idata = pmt.to_datatree(approx, draws=100)
    >>> idata["posterior"]["mu"].shape, idata["variational"]["elbo"].dims
    ((1, 100), ('iteration',))
    """
    report = tempering_of(approx, "to_datatree")
    check_whole(1, draws=draws)
    idata = approx.sample(draws, random_seed=as_seed(random_seed))
    idata["variational"] = xr.DataTree(_history(approx, report))
    return idata


def _history(approx: Approximation, report: TemperedFit) -> xr.Dataset:
    variables: dict[str, Any] = {
        "loss": ("iteration", approx.hist),
        "elbo": ("iteration", report.elbo_history),
        "inverse_temperature": ("iteration", report.inverse_temperature),
    }
    coords: dict[str, Any] = {"iteration": np.arange(report.n_iterations)}
    if report.temperatures.size:
        variables["update_iteration"] = ("update", report.q_iteration)
        variables["temperature_probability"] = (("update", "temperature"), report.q)
        coords["temperature"] = report.temperatures
        for name in ("log_c", "log_c_mcse"):
            if (value := getattr(report, name)) is not None:
                variables[name] = ("temperature", value)
    for name, value in report.local.items():
        dims = approx.model.named_vars_to_dims.get(name)
        if dims is None or len(dims) != value.ndim:
            dims = tuple(f"{name}_dim_{i}" for i in range(value.ndim))
        variables[f"inverse_temperature_of_{name}"] = (tuple(dims), value)
    evidence = report.evidence
    attrs = {
        "method": report.method,
        "elbo": report.elbo,
        "elbo_mcse": report.elbo_mcse,
        "log_z": np.nan if evidence is None else evidence.log_z,
        "log_z_mcse": np.nan if evidence is None else evidence.mcse,
        "khat": report.khat,
        "converged": int(report.converged),
        "n_tempered": report.n_tempered,
    }
    return xr.Dataset(variables, coords, attrs)
