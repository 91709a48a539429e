"""Hamiltonian Monte Carlo: leapfrog steps, and trajectories of random length.

A metric is a vector: the standard deviations of the n coordinates, or the rows of the lower
Cholesky factor L of their covariance, one after the other. Positions are `L q`, so the force is
`L' g`.

Where the step of a rung is far too long, as in the neck of a funnel, each trajectory is rejected,
and the chain would never go there, or never leave. So a rejection beyond hope is followed by a
trajectory of shorter steps (delayed rejection: Modi, Barnett & Carpenter 2023).

`Persistent` makes single steps, with a momentum that goes on from one transition to the next, as in
HAIS. A transition of `pi_beta(x) N(v; 0, I)` is a refresh R of the momentum, v -> -sqrt(1 - gamma)
v + sqrt(gamma) r with r standard normal, and then a Metropolis step A, whose proposal is one
leapfrog step with the momentum turned round (Sohl-Dickstein & Culpepper 2011, section 2.3, whose
step 4 has gamma in place of sqrt(gamma): the variance would then not be kept). There R comes last;
it comes first here so that every path begins with a fresh momentum. A path A_1 R A_2 R ... R A_n
has the same form in reverse, and A and R are reversible: the kernel is its own reversal along a
path.
"""

from functools import partial
from typing import Literal

import numpy as np

from pymc_tempering.arguments import check_choice, check_whole
from pymc_tempering.borrowed.private import NOT_COUNTED
from pymc_tempering.kernels.contract import ACCEPTANCE, DIVERGED, N_EVALUATIONS, Block, Kernel, tell
from pymc_tempering.model.compiled import LOG_RATIO, LOG_REFERENCE
from pymc_tempering.model.copying import copy_numbers
from pymc_tempering.model.jit import borrowing, njit
from pymc_tempering.references.compiled_mixture import evaluate

MAX_ENERGY_ERROR = 1000.0
"""A trajectory whose energy error exceeds this many nats diverged (as in Stan)."""


@njit(forceinline=True, **NOT_COUNTED)
def set_force(point, beta, block, metric, force):  # type: ignore[no-untyped-def]
    """Write the gradient of the log density, in units of the metric, to `force`."""
    n = block.size
    reference, ratio = point.grads[LOG_REFERENCE], point.grads[LOG_RATIO]
    if metric.size == n:
        for i in range(n):
            j = block[i]
            force[i] = metric[i] * (reference[j] + beta * ratio[j])
        return
    for i in range(n):
        force[i] = 0.0
    for i in range(n):
        j = block[i]
        slope = reference[j] + beta * ratio[j]
        row = metric[i * n : i * n + i + 1]
        for k in range(i + 1):
            force[k] += row[k] * slope


@njit(forceinline=True, **NOT_COUNTED)
def move_along(point, block, metric, momentum, step):  # type: ignore[no-untyped-def]
    """Move the position along the momentum, in units of the metric."""
    n = block.size
    if metric.size == n:
        for i in range(n):
            point.x[block[i]] += step * metric[i] * momentum[i]
        return
    for i in range(n):
        row = metric[i * n : i * n + i + 1]
        total = 0.0
        for k in range(i + 1):
            total += row[k] * momentum[k]
        point.x[block[i]] += step * total


@njit(error_model="numpy", forceinline=True, **NOT_COUNTED)
def leapfrog_step(density, point, beta, block, metric, momentum, force, step):  # type: ignore[no-untyped-def]
    """Half a step of the momentum, a step of the position, half a step of the momentum.

    Momenta are in units of the metric, and `force` is that of the present state, before and
    after. Returns the energy: kinetic energy less the log density, which can be NaN.
    """
    n = block.size
    half = 0.5 * step
    for i in range(n):
        momentum[i] += half * force[i]
    move_along(point, block, metric, momentum, step)
    evaluate(density, point)
    set_force(point, beta, block, metric, force)
    kinetic = 0.0
    for i in range(n):
        momentum[i] += half * force[i]
        kinetic += momentum[i] * momentum[i]
    return 0.5 * kinetic - (point.values[LOG_REFERENCE] + beta * point.values[LOG_RATIO])


@njit(**NOT_COUNTED)
def keep_state(point, block, scratch, row):  # type: ignore[no-untyped-def]
    """Copy position and gradients to three rows of the scratch space.

    All gradients are kept, those of other blocks too.
    """
    for i in range(block.size):
        scratch[row, i] = point.x[block[i]]
    copy_numbers(scratch[row + 1], point.grads[LOG_REFERENCE])
    copy_numbers(scratch[row + 2], point.grads[LOG_RATIO])


@njit(**NOT_COUNTED)
def put_back(point, block, scratch, row, log_reference, log_ratio):  # type: ignore[no-untyped-def]
    """Make a kept state the present one."""
    for i in range(block.size):
        point.x[block[i]] = scratch[row, i]
    copy_numbers(point.grads[LOG_REFERENCE], scratch[row + 1])
    copy_numbers(point.grads[LOG_RATIO], scratch[row + 2])
    point.values[LOG_REFERENCE] = log_reference
    point.values[LOG_RATIO] = log_ratio


STEP, PATH_LENGTH, MAX_STEPS, METRIC = 0, 1, 2, 3
"""Layout of the tuning numbers; the metric starts at `METRIC`."""

METRICS: dict[str, bool | None] = {"auto": None, "diag": False, "dense": True}
"""Whether the metric is dense, by the name that `HMC` takes."""

LENGTHS = (1.2, 0.6)
"""Mean trajectory lengths that the warm-up chooses from, the usual one first."""


HOPELESS = 2.0
"""Error of the energy (nats) above which a rejected trajectory is followed by a shorter one. Where
the step fits, it is this large about once in ten thousand times."""

SHORTER, SHORTEST = 0.5, 1.0 / 16.0
"""Factors of the usual step between which that of the second trajectory lies, at random."""

# Rows of the scratch space. Of a kept state there are position and both gradients.
START, SHORT, MOMENTUM, FIRST_MOMENTUM, FORCE = 0, 3, 6, 7, 8


@borrowing
def follow(density, point, beta, block, metric, momentum, force, step, n_steps, energy):  # type: ignore[no-untyped-def]
    """Make leapfrog steps; return the error of the energy and the steps that were taken.

    A trajectory that diverges ends at once; its error is infinite.
    """
    set_force(point, beta, block, metric, force)
    error = np.inf
    taken = 0.0
    for _ in range(int(n_steps)):
        error = leapfrog_step(density, point, beta, block, metric, momentum, force, step) - energy
        taken += 1.0
        # NaN and an infinite density are no numbers either.
        if not -np.inf < error < MAX_ENERGY_ERROR:
            return np.inf, taken
    return error, taken


@borrowing
def second_trajectory(  # type: ignore[no-untyped-def]
    density, point, beta, block, params, scratch, rng, shorter, step, n_steps, energy, first_error
):
    """Follow shorter steps from the start; return whether to stay there, and the steps taken.

    With a the acceptance of a first trajectory, the second from z to z' is accepted with
    probability min(1, pi(z') (1 - a(z')) / (pi(z) (1 - a(z)))), where a second would have been
    tried from z' too. So the first trajectory from z', momentum turned round, is followed as well.
    """
    metric = params[METRIC:]
    momentum, force = scratch[MOMENTUM], scratch[FORCE]
    error, taken = follow(
        density, point, beta, block, metric, momentum, force, shorter, n_steps, energy
    )
    if not error < np.inf:
        return 0.0, taken
    log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
    keep_state(point, block, scratch, SHORT)
    for i in range(block.size):
        momentum[i] = -momentum[i]
    from_there, more = follow(
        density, point, beta, block, metric, momentum, force, step, n_steps, energy + error
    )
    taken += more
    if from_there <= HOPELESS:
        return 0.0, taken
    accepted = np.exp(-error) * np.expm1(-from_there) / np.expm1(-first_error)
    if rng.random() >= accepted:
        return 0.0, taken
    put_back(point, block, scratch, SHORT, log_reference, log_ratio)
    return 1.0, taken


@borrowing
def hmc_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Move the point along a leapfrog trajectory and accept by Metropolis.

    Position and momentum are in units of the metric of the rung. The trajectory
    length is uniform on (0.5, 1.5) times `PATH_LENGTH`, so that no frequency of the target
    resonates with it.
    """
    metric = params[METRIC:]
    momentum, force = scratch[MOMENTUM], scratch[FORCE]
    log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
    keep_state(point, block, scratch, START)
    step = params[STEP] * (0.9 + 0.2 * rng.random())
    n_steps = int(params[PATH_LENGTH] * (0.5 + rng.random()) / step) + 1
    n_steps = min(n_steps, int(params[MAX_STEPS]))
    kinetic = 0.0
    for i in range(block.size):
        momentum[i] = rng.standard_normal()
        kinetic += momentum[i] * momentum[i]
    copy_numbers(scratch[FIRST_MOMENTUM], momentum)
    energy = 0.5 * kinetic - (log_reference + beta * log_ratio)
    error, taken = follow(
        density, point, beta, block, metric, momentum, force, step, n_steps, energy
    )
    tell(info, min(1.0, np.exp(-error)), taken, 0.0 if error < np.inf else 1.0)
    if rng.random() < info[ACCEPTANCE]:
        return
    put_back(point, block, scratch, START, log_reference, log_ratio)
    if error > HOPELESS:
        shorter = step * SHORTER * (SHORTEST / SHORTER) ** rng.random()
        copy_numbers(momentum, scratch[FIRST_MOMENTUM])
        accepted, taken = second_trajectory(
            density, point, beta, block, params, scratch, rng, shorter, step, n_steps, energy, error
        )
        info[N_EVALUATIONS] += taken
        if accepted > 0.0:
            info[DIVERGED] = 0.0
        else:
            put_back(point, block, scratch, START, log_reference, log_ratio)


def HMC(
    target_accept: float = 0.8,
    path_length: float | Literal["auto"] = "auto",
    max_steps: int = 256,
    metric: Literal["auto", "diag", "dense"] = "auto",
) -> Kernel:
    """Hamiltonian Monte Carlo on real variables.

    Parameters
    ----------
    target_accept : float, default 0.8
        Acceptance probability that the step size of each rung is tuned for.
    path_length : float or "auto", default "auto"
        Mean trajectory length, in units of the rung's own standard deviations. By default the
        warm-up chooses at each rung between 1.2, somewhat less than a quarter of a period of a
        Gaussian, and half of it. It takes the one that changes `log_ratio` more for each gradient,
        which gives a smaller error of log Z for the same work (docs/explanation/kernels.md).
    max_steps : int, default 256
        Largest number of leapfrog steps in one transition.
    metric : {"auto", "diag", "dense"}, default "auto"
        Standard deviations alone, or a full covariance, which follows correlations. By default it
        is dense for at most 30 variables, and on the path from a fitted reference for up to 200
        where that shows strong correlation.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        An argument out of its range.

    Examples
    --------
    >>> from pymc_tempering.kernels import HMC
    >>> HMC(target_accept=0.9).name
    'hmc'
    """
    check_whole(1, max_steps=max_steps)
    check_choice("metric", metric, METRICS)
    sound = path_length == "auto" if isinstance(path_length, str) else path_length > 0
    if not sound:
        raise ValueError(f'path_length must be positive or "auto", not {path_length!r}.')
    options = target_accept, path_length, max_steps
    usual = LENGTHS[0] if isinstance(path_length, str) else path_length

    def pack(
        step_size: float, metric: np.ndarray, block: Block, length: float = usual
    ) -> np.ndarray:
        return np.concatenate([[step_size, length, max_steps], metric.ravel()])

    return Kernel(
        name="hmc",
        transition=hmc_transition,
        n_scratch=9,
        pack=pack,
        target_accept=target_accept,
        uses_gradient=True,
        lengths=LENGTHS if path_length == "auto" else (),
        reversal="self",
        dense=METRICS[metric],
        dense_form=partial(HMC, *options, "dense") if metric == "auto" else None,
        rebuild=(HMC, (*options, metric)),
    )


KEEP, SCALE = 1, 2
"""Layout of the tuning numbers after `STEP`; the standard deviations start at `SCALE`."""

KEPT = 1
"""Scratch row of the state to go back to, which takes three; before it stands the momentum."""


def refresh_share(step_size: float, renewal: float = 1.0) -> float:
    """Gamma that renews half of the momentum's power `renewal` times per unit of time.

    After 1 / step steps the share (1 - gamma)^(1 / step) of the power is left, which is 1/2 for
    gamma = 1 - 2^(-step) (HAIS, section 2.3).
    """
    return float(-np.expm1(-np.log(2.0) * renewal * step_size))


@njit()
def refresh(momentum, keep, rng):  # type: ignore[no-untyped-def]
    """Renew the share gamma = 1 - keep^2 of the momentum's power, and turn the rest round."""
    fresh = np.sqrt(1.0 - keep * keep)
    for i in range(momentum.size):
        momentum[i] = -keep * momentum[i] + fresh * rng.standard_normal()


@njit(error_model="numpy")
def persistent_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Refresh the momentum in part, make one leapfrog step, and accept by Metropolis.

    The order momentum, position, momentum needs one evaluation, since the gradient at the present
    state is known; HAIS has it the other way round.
    """
    n = block.size
    scales = params[SCALE : SCALE + n]
    momentum = scratch[0, :n]
    start_v, force = scratch[4], scratch[5]
    refresh(momentum, params[KEEP], rng)
    log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
    keep_state(point, block, scratch, KEPT)
    kinetic = 0.0
    for i in range(n):
        start_v[i] = momentum[i]
        kinetic += momentum[i] * momentum[i]
    energy = 0.5 * kinetic - (log_reference + beta * log_ratio)
    set_force(point, beta, block, scales, force)
    error = (
        leapfrog_step(density, point, beta, block, scales, momentum, force, params[STEP]) - energy
    )
    sound = -np.inf < error < MAX_ENERGY_ERROR  # neither NaN
    tell(info, min(1.0, np.exp(-error)) if sound else 0.0, 1.0, 0.0 if sound else 1.0)
    if rng.random() < info[ACCEPTANCE]:
        for i in range(n):
            momentum[i] = -momentum[i]  # the refresh turns it round again: it goes on
        return
    put_back(point, block, scratch, KEPT, log_reference, log_ratio)
    for i in range(n):
        momentum[i] = start_v[i]  # the refresh turns it round: it goes back


def Persistent(target_accept: float = 0.95, renewal: float = 1.0) -> Kernel:
    """One leapfrog step on real variables, with a momentum that is renewed in part.

    Time is in standard deviations of the rung. Many rungs of one evaluation each then move a state
    far, and not by a random walk. It is for annealing along a path
    (:func:`pymc_tempering.annealed.hais`).

    Parameters
    ----------
    target_accept : float, default 0.95
        Acceptance probability that the step size of each rung is tuned for: a rejection turns the
        momentum round.
    renewal : float, default 1.0
        How often half of the momentum's power is renewed in a unit of time.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        An argument out of its range.
    """
    if not renewal > 0:
        raise ValueError(f"renewal must be positive, not {renewal!r}.")

    def pack(step_size: float, scale: np.ndarray, block: Block) -> np.ndarray:
        keep = np.sqrt(1.0 - refresh_share(step_size, renewal))
        return np.concatenate([[step_size, keep], scale])

    return Kernel(
        name="persistent",
        transition=persistent_transition,
        n_scratch=6,
        pack=pack,
        rebuild=(Persistent, (target_accept, renewal)),
        target_accept=target_accept,
        uses_gradient=True,
        reversal="self",
        carries=True,
    )
