"""The front door: annealed or tempered stochastic variational inference."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_tempering.variational.conjugate.protocol import ConjugateModel, Globals
from pymc_tempering.variational.conjugate.svi_fit import Fit
from pymc_tempering.variational.conjugate.svi_options import SviOptions, check_svi_options
from pymc_tempering.variational.conjugate.svi_run import SviRun
from pymc_tempering.variational.conjugate.temperature_grid import ScheduleOption


def svi(
    model: ConjugateModel,
    data: Any,
    method: str = "variational_tempering",
    *,
    iterations: int = 500,
    untempered: int | None = None,
    batch_size: int | None = None,
    tau: float = 1024.0,
    kappa: float = 0.7,
    temperatures: Any = None,
    log_partition: Any = None,
    start: str = "hot",
    update_every: int = 1,
    damping: float = 0.95,
    schedule: ScheduleOption = "linear",
    hottest: float = 10.0,
    anneal_passes: float | None = None,
    jitter: float = 1e-3,
    tol: float = 1e-7,
    elbo_every: int | None = None,
    initial: Globals | None = None,
    cores: int | None = None,
    random_seed: int | np.random.Generator | None = None,
    callback: Callable[[int, Globals], None] | None = None,
) -> Fit:
    """Fit a conjugate model by variational inference, plain, annealed or tempered.

    Algorithm 1 of Mandt et al. (2016), in batches or minibatches: a local step at inverse
    temperature E[1/T], the update of q(T), then the global step ``lam = (1 - rho) * lam + rho *
    (alpha + N / B * sum of E[1/T] E[t])`` with ``rho = (tau + t)^-kappa``, or 1 when the batch is
    all data. A tempered fit ends with iterations at T = 1, so that what it returns approximates
    the posterior of the model itself; its tempered optimum is kept beside it.

    Parameters
    ----------
    model : LDA, FactorialMixture, GaussianMixture, or another ConjugateModel
        The model.
    data : array_like or scipy.sparse array
        What the model describes, one data point a row.
    method : str, default "variational_tempering"
        ``"vi"``: T = 1. ``"annealed"`` (AVI): T follows `schedule`. ``"variational_tempering"``
        (VT): one random temperature, updated by equation (9).
        ``"local_variational_tempering"`` (LVT): one for each data point, equation (10).
    iterations : int, default 500
        Largest number of iterations, annealed or tempered ones included.
    untempered : int, optional
        Largest number of further iterations at T = 1 that end VT and LVT; a fourth of
        `iterations` by default.
    batch_size : int, optional
        Data points in a minibatch, drawn without replacement within a pass; all by default.
    tau : float, default 1024.0
        Delay of the learning rate. Ignored without minibatches.
    kappa : float, default 0.7
        Its forgetting rate, above 0.5 and at most 1.
    temperatures : array_like, shape (M,), optional
        1 = T_1 < ... < T_M. By default 100 of them: exponential from 1 to 10 for VT, and with 1/T
        in even steps from 1 down to 0.01 for LVT.
    log_partition : array_like, shape (M,), optional
        log C(T) of VT at each temperature in nats; by default the model's own.
    start : {"hot", "uniform"}, default "hot"
        First q(T) of VT: all mass on T_M, or uniform as in the paper.
    update_every : int, default 1
        Iterations between updates of q(T) in VT, and between updates of the normalizers in LVT.
    damping : float, default 0.95
        Share of the old q(T) that an update of VT keeps; in [0, 1), and 0 is no damping. q becomes
        ``damping * q + (1 - damping) * q_new`` with q_new from equation (9), which never lowers
        the T-ELBO. (:func:`pymc_tempering.fit` mixes log q in the same shares.)
    schedule : {"linear", "exponential"} or callable, default "linear"
        Temperature of AVI; a callable takes the share of the annealing that is done.
    hottest : float, default 10.0
        First temperature of AVI with a named schedule.
    anneal_passes : float, optional
        Length of the annealing in passes over the data (tA of the paper). By default half of
        `iterations`.
    jitter : float, default 0.001
        Relative size of a random change of the global parameters, so that components that became
        equal at high temperatures can separate again: AVI, once a pass while T > 1; VT
        and LVT, where they settle above T = 1 and before the iterations at T = 1.
    tol : float, default 1e-7
        Batch only: stop where the relative change of the ELBO is smaller, and the temperature is
        at rest.
    elbo_every : int, optional
        Iterations between entries of the ELBO's history, which are NaN in between; 1 by default,
        and one pass with minibatches. 0: no history with minibatches, and no final ELBO.
    initial : tuple of ndarray, optional
        First global parameters; random by default.
    cores : int, optional
        Threads of the local step; all cores by default. It does not change the result.
    random_seed : int or numpy.random.Generator, optional
        Seed of the first parameters and of the minibatches.
    callback : callable, optional
        Called after each iteration with the number of iterations so far and the global
        parameters. The next iteration writes over these: copy what you keep.

    Returns
    -------
    Fit
        Global parameters, ELBO in nats, and the history of both ELBO and temperature.

    Raises
    ------
    TemperatureError
        If a temperature is below 1, or a grid does not start at 1 or does not increase.
    DataError
        If the model cannot describe the data.
    ValueError
        If an option is out of its range.

    Warns
    -----
    TemperingWarning
        If the ELBO in batch mode has not converged.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_tempering as pmt
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=(200, 1)) + 4.0 * rng.integers(2, size=(200, 1))
    >>> model = pmt.variational.conjugate.GaussianMixture(2, sd=1.0, prior_sd=5.0)
    >>> fit = pmt.variational.conjugate.svi(model, x, random_seed=1)
    >>> np.sort(fit.posterior["mean"].values.ravel()).round()
    array([-0.,  4.])
    """
    data = model.check(data)
    options = check_svi_options(
        SviOptions(
            method=method,
            iterations=iterations,
            untempered=untempered,
            batch_size=batch_size,
            tau=tau,
            kappa=kappa,
            temperatures=temperatures,
            log_partition=log_partition,
            start=start,
            update_every=update_every,
            damping=damping,
            schedule=schedule,
            hottest=hottest,
            anneal_passes=anneal_passes,
            jitter=jitter,
            tol=tol,
            elbo_every=elbo_every,
            cores=cores,
            callback=callback,
        ),
        model.n_data(data),
    )
    rng = np.random.default_rng(random_seed)
    if initial is None:
        lam = model.initialize(data, rng)
    else:
        lam = _given(initial, model.initialize(data, np.random.default_rng(0)), model.name)
    return SviRun(model, data, options, rng).fit(lam)


def _given(initial: Globals, like: Globals, name: str) -> Globals:
    """Return a copy of the user's first parameters, shaped like the model's own."""
    given = tuple(np.array(part, dtype=float, order="C") for part in initial)
    shapes, needed = [part.shape for part in given], [part.shape for part in like]
    if shapes != needed:
        raise ValueError(f"initial has arrays of shapes {shapes}; {name} needs {needed} here.")
    if not all(np.isfinite(part).all() for part in given):
        raise ValueError("initial holds a value that is not finite.")
    return given
