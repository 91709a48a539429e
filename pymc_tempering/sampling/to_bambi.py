"""`to_bambi`: draws of a Bambi model, as its `predict` needs them."""

from typing import Any

import pymc as pm
import xarray as xr

from pymc_tempering.exceptions import ModelError
from pymc_tempering.model.bambi import MARK, NOTED, is_bambi, is_of_bambi, shifted, with_posterior
from pymc_tempering.model.check import find_model
from pymc_tempering.model.same_model import check_same_model


def to_bambi(idata: xr.DataTree, model: Any) -> xr.DataTree:
    """Return draws as the ``fit`` of a Bambi model returns them, for its ``predict``.

    Bambi centers the predictors behind an intercept, so that PyMC's draws of the intercept are
    those at average predictors, a = a_0 + mean(x) b. Bambi's ``predict`` takes a_0.

    Parameters
    ----------
    idata : DataTree
        A run of :func:`sample` on the Bambi model or on its ``backend.model``, or draws of that by
        any other sampler. It is not changed.
    model : bambi.Model
        The Bambi model itself, which was built. Its version is 0.21 or newer.

    Returns
    -------
    DataTree
        A copy whose ``posterior`` (constrained space, shapes as they were) has Bambi's intercepts
        and its attribute ``modeling_interface``. Draws that are Bambi's already stay as they are.
        Every function that takes draws and a model takes it with the Bambi model.

    Raises
    ------
    ModelError
        ``model`` is no Bambi model that is built.
    DataMismatchError
        The draws are of another model, or lack a variable.

    Examples
    --------
    >>> import bambi as bmb, pandas as pd
    >>> import pymc_tempering as pmt
    >>> data = pd.DataFrame({"x": [4.0, 5.0, 6.0], "y": [3.1, 3.4, 4.1]})
    >>> model = bmb.Model("y ~ x", data)
    >>> model.build()
    >>> idata = pmt.sample(200, model=model, random_seed=1, quiet=True)
    >>> fitted = pmt.to_bambi(idata, model)
    >>> model.predict(fitted, data=pd.DataFrame({"x": [5.0]}))
    >>> bool(abs(fitted.posterior["mu"].mean() - 3.5) < 0.2)
    True
    """
    if not is_bambi(model):
        what = "its backend.model or another model of PyMC" if isinstance(model, pm.Model) else ""
        raise ModelError(
            "to_bambi needs the Bambi model itself, which was built, not "
            f"{what or f'a {type(model).__name__}'}."
        )
    if is_of_bambi(idata):
        return idata.copy()
    check_same_model(idata, find_model(model))
    posterior = shifted(idata["posterior"].to_dataset(), model, -1.0)
    groups = [dim for dim in posterior.dims if str(dim).endswith("__factor_dim")]
    posterior = posterior.transpose(..., *groups)  # an order that predict relies on
    posterior.attrs.pop(NOTED, None)
    return with_posterior(idata, posterior.assign_attrs(dict([MARK])))
