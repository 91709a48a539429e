"""Which unconstrained draws have constrained values that floating point rounds to an edge."""

import numpy as np
import pymc as pm

from pymc_tempering.model.exactly import compile_alone
from pymc_tempering.model.layout import Layout
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.model.unconstrain import unconstrained_graphs


def rounded_draws(model: pm.Model, layout: Layout, draws: np.ndarray) -> dict[str, np.ndarray]:
    """Tell for each free variable at which draws its constrained value is rounded.

    The constrained value of a log of 800 is infinity, and that of -800 zero; the way back from
    there leads to no finite number.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
        Of this model.
    draws : array, shape (n, dim)
        Finite unconstrained values.

    Returns
    -------
    dict of str to array of bool, shape (n,)
        By the name of the variable.
    """
    stand_in, ways_back = unconstrained_graphs(model, model.free_RVs)
    ways_there = model.replace_rvs_by_values(model.free_RVs)
    # As two functions: in one of them log(exp(x)) would be x.
    constrain = compile_alone(model.value_vars, ways_there, mode=python_mode())
    unconstrain = compile_alone(
        list(stand_in.values()), ways_back, mode=python_mode(), on_unused_input="ignore"
    )
    with np.errstate(all="ignore"):
        rows = [
            [
                not np.isfinite(np.asarray(value)).all()
                for value in unconstrain(*constrain(*layout.unravel(x).values()))
            ]
            for x in draws
        ]
    by_draw = np.array(rows, dtype=bool).reshape(len(draws), len(model.free_RVs))
    return {rv.name: by_draw[:, i] for i, rv in enumerate(model.free_RVs)}
