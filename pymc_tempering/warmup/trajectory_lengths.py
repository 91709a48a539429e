"""Which trajectory lengths pay along the path, from what the sweeps of each stage measured."""

import numpy as np

MIN_GAIN, MAX_RHO = 1.1, 0.7
"""Another trajectory length than the usual one has to change log_ratio by so much more for each
gradient, and the usual one has to forget so much of it at once: where it does not, the first
change says little about the slow ones that follow."""


def choose_lengths(jumps: np.ndarray, costs: np.ndarray, log_ratio: np.ndarray) -> np.ndarray:
    """Choose, for each stage, the trajectories that change `log_ratio` most for each gradient.

    That is, those with the largest (1 - rho) / gradients, where rho is the autocorrelation of
    `log_ratio` across one transition. Neighboring stages lend each other their measurements.

    Parameters
    ----------
    jumps : array, shape (S - 1, C)
        Mean squared changes of `log_ratio` in one transition of each choice, from stage 1 on.
    costs : array, shape (S - 1, C)
        Gradients of one transition.
    log_ratio : array, shape (S, n)
        Of the particles.

    Returns
    -------
    array of int, shape (S,)
    """
    with np.errstate(all="ignore"):  # what comes of zeros and overflow is no gain
        variance = np.array([np.var(row[row > -np.inf]) for row in log_ratio[1:]])
        gain = np.log(jumps / costs) - np.log(jumps[:, :1] / costs[:, :1])
        rho = 1.0 - 0.5 * jumps[:, 0] / variance
    padded = np.pad(np.column_stack([gain, rho]), ((1, 1), (0, 0)), mode="edge")
    smooth = (padded[:-2] + padded[1:-1] + padded[2:]) / 3.0
    gain, rho = smooth[:, :-1], smooth[:, -1]
    best = np.nan_to_num(gain, nan=-np.inf).argmax(axis=1)
    pays = np.take_along_axis(gain, best[:, None], axis=1)[:, 0] > np.log(MIN_GAIN)
    choice = np.where(pays & (rho < MAX_RHO), best, 0)
    return np.append(choice[:1], choice)
