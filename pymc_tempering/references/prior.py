"""Reference distributions, which are normalized and can be drawn from exactly."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile import In
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import toposort
from pytensor.tensor.random.type import RandomGeneratorType, random_generator_type
from pytensor.xtensor.type import XTensorType

from pymc_tempering.exceptions import PriorDrawsError, UndrawableError
from pymc_tempering.model.car import known_car
from pymc_tempering.model.check import check_proper
from pymc_tempering.model.compiled import NO_MIXTURE, Mixing
from pymc_tempering.model.density import make_draws, open_graph
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.model.exactly import ALONE
from pymc_tempering.model.far_priors import far_priors, unconstrained_draw
from pymc_tempering.model.imputed import imputed_parts
from pymc_tempering.model.layout import ordered_transform, unconstrained_shapes
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.ordered_priors import draw_in_order
from pymc_tempering.model.path import FEW, Path
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.model.terms import wide_law
from pymc_tempering.references.compiled_mixture import MIXER, evaluate_rows
from pymc_tempering.references.labels import find_labelings
from pymc_tempering.references.mixture import Mixture, nearest_component
from pymc_tempering.references.straight import multiples, straight_density, straight_warp
from pymc_tempering.references.warp import FunnelWarp
from pymc_tempering.references.warp_fit import PriorDraws

CHUNK = 1000
"""Draws that are evaluated at a time."""

N_SAMPLE, SAMPLE_SEED = 2000, 20
"""Draws that show the shape of a prior, and their seed: the same in each run, and drawn from no
stream of a run."""

N_BLAMED = 5000
"""Draws of each variable that show whether it raises."""


@dataclass(frozen=True)
class Prior:
    """The prior of a model as reference, drawn by forward sampling.

    Attributes
    ----------
    path : Path
    draw_into : callable
        Compiled `draw_into(out, *generators)`; fills the rows of `out`, shape (n, d), with
        fresh unconstrained draws.
    n_rngs : int
        Number of generators that `draw_into` takes.
    prior_constant : tuple of float
        Log of the constant that the target's prior lacks to be normalized, and its error (nats).
    warp : FunnelWarp, optional
        Whose coordinates the path and the draws have; by default they have those of the model.
    """

    path: Path
    draw_into: Callable
    n_rngs: int
    name: str = "prior"
    mixture: Mixing = NO_MIXTURE
    prior_constant: tuple[float, float] = (0.0, 0.0)
    warp: FunnelWarp | None = None

    def spawn(self, rng: np.random.Generator) -> list[np.random.Generator]:
        """Child generators for one stream of draws."""
        return rng.spawn(self.n_rngs)

    def draw(self, n: int, rngs: list[np.random.Generator]) -> np.ndarray:
        """Draw `n` fresh, independent states, shape (n, d), unconstrained.

        If the unconstrained value of a draw overflows (a Beta draw that rounds to 1), all of its
        elements are NaN. The chain counts such a draw as a state of zero likelihood.
        """
        out = np.empty((n, self.path.dim))
        try:
            self.draw_into(out, *rngs)
        except Exception as error:  # of a distribution's own draws, whatever it is
            raise PriorDrawsError(
                f"Draws of the prior raise {type(error).__name__}: {error}. "
                f"{_about_raised(self.path.model)}Use a less extreme prior."
            ) from error
        return self.inner(out)

    def inner(self, xs: np.ndarray) -> np.ndarray:
        """States of the model, shape (n, d), in the coordinates of the path."""
        return xs if self.warp is None else self.warp.forward(xs)[0]

    def outer(self, us: np.ndarray) -> np.ndarray:
        """States of the path, shape (n, d), in the coordinates of the model, unconstrained."""
        return us if self.warp is None else self.warp.inverse(us)

    @cached_property
    def straight(self) -> "Prior":
        """The same with effects divided by their scales; itself where there are none.

        Variables whose shape changes with what they depend on, such as logits of a beta, stay.
        """
        path = self.path
        effects = multiples(self.screened.effects, path.layout.slices)
        if not effects or path.density.data.evaluator is not None:
            return self
        warp = straight_warp(effects)
        straight = replace(path, density=straight_density(path.density, warp))
        return replace(self, path=straight, warp=warp)

    @cached_property
    def sample(self) -> np.ndarray:
        """Draws that show the shape of the prior, shape (m, d), unconstrained."""
        return self.draw(N_SAMPLE, self.spawn(np.random.default_rng(SAMPLE_SEED)))

    @cached_property
    def screened(self) -> PriorDraws:
        """These draws, and the funnels that they show."""
        return PriorDraws(self.sample)

    @cached_property
    def labelings(self) -> np.ndarray | None:
        """Linear maps (G, d, d) of a state to all labelings, if labels can be exchanged."""
        path = self.path
        return find_labelings(
            path.layout, self.sample, lambda xs: np.column_stack(evaluate_draws(path, xs))
        )

    def residuals(self, xs: np.ndarray) -> np.ndarray:
        """States as they are, because no modes are known."""
        return xs

    @property
    def covariance(self) -> None:
        """Unknown."""
        return None


@dataclass(frozen=True)
class Fitted:
    """A mixture of t's plus a share of the prior, as the reference of a path.

    Attributes
    ----------
    prior : Prior
    components : Mixture
    """

    prior: Prior
    components: Mixture
    name: str = "fitted"

    @property
    def path(self) -> Path:
        """The compiled model."""
        return self.prior.path

    @property
    def prior_constant(self) -> tuple[float, float]:
        """Log Z of the target's prior and its error."""
        return self.prior.prior_constant

    @cached_property
    def mixture(self) -> Mixing:
        """Packed mixture that points carry."""
        warp = self.components.warp
        rows = NO_MIXTURE.warp if warp is None else warp.packed
        return Mixing(MIXER, self.components.pack(), rows)

    @cached_property
    def covariance(self) -> np.ndarray | None:
        """Mean covariance of the modes, shape (d, d); None with a warp or in many dimensions."""
        return self.components.covariance

    def spawn(self, rng: np.random.Generator) -> list[np.random.Generator]:
        """Child generators for one stream of draws."""
        return [*rng.spawn(1), *self.prior.spawn(rng)]

    def draw(self, n: int, rngs: list[np.random.Generator]) -> np.ndarray:
        """Draw `n` fresh, independent states, shape (n, d), unconstrained."""
        own, *priors = rngs
        from_prior = own.random(n) < self.components.prior_share
        draws = self.components.draw(n, own)
        draws[from_prior] = self.prior.draw(int(from_prior.sum()), priors)
        return draws

    def residuals(self, xs: np.ndarray) -> np.ndarray:
        """States, shape (n, d), minus the mean of the nearest component of each.

        With a warp the difference is that of warped states, times the spread at each state.
        """
        modes = self.components.modes
        means = modes.means[nearest_component(modes, xs)]
        if modes.warp is None:
            return xs - np.pad(means, ((0, 0), (0, modes.n_white)))
        return (modes.warp.forward(xs)[0] - means) * modes.warp.spread(xs)


type Reference = Prior | Fitted


def forward_graph(model: pm.Model, wide: Collection[str] = ()) -> list[Variable]:
    """Graph of one joint reference draw of the free variables, in the unconstrained space.

    A variable in `wide`, whose prior cannot be drawn from, is drawn from a wide law instead. An
    observed variable has its observed value, which matters to free variables that depend on it.
    Draws of an ordered prior are in order. Initial values do not matter. A prior that reaches
    past the range of exp is drawn in the unconstrained space itself.
    """
    far = far_priors(model)
    shapes = dict(zip(model.free_RVs, unconstrained_shapes(model), strict=True)) if wide else {}
    imputed = imputed_parts(model)
    replaced: dict[Variable, Variable] = {}
    drawn: dict[Variable, Variable] = {}
    basic = set(model.basic_RVs)
    in_order = [out for node in toposort(model.basic_RVs) for out in node.outputs if out in basic]
    for rv in in_order:
        if rv in model.observed_RVs:
            replaced[rv] = model.rvs_to_values[rv].astype(rv.type.dtype)
            continue
        law = imputed[rv.name].draw if rv.name in imputed else rv
        if (known := known_car(rv)) is not None:
            law = known.draw()
        fresh = graph_replace([law], replaced, strict=False)[0] if replaced else law
        value = fresh
        if rv.name in wide or rv.name in far:
            is_wide = rv.name in wide
            unconstrained = wide_law(shapes[rv]) if is_wide else unconstrained_draw(fresh)
            transform = model.rvs_to_transforms[rv]
            inputs = fresh.owner.inputs
            drawn[rv] = unconstrained
            replaced[rv] = (
                unconstrained if transform is None else transform.backward(unconstrained, *inputs)
            ).astype(rv.type.dtype)
            continue
        if ordered_transform(model, rv) is not None:
            value = draw_in_order(model, rv, fresh)
        replaced[rv] = value
        transform = model.rvs_to_transforms[rv]
        drawn[rv] = value if transform is None else transform.forward(value, *fresh.owner.inputs)
    return [drawn[rv] for rv in model.free_RVs]


def _about_raised(model: pm.Model) -> str:
    """Return a sentence that names the first variable whose draws raise; empty if none does."""
    for rv in model.free_RVs:
        try:
            pm.draw(rv, draws=N_BLAMED, random_seed=SAMPLE_SEED)
        except Exception:  # what depends on it raises as well
            return f"It comes from {rv.name!r}. "
    return ""


def compile_prior(path: Path) -> Prior:
    """Compile forward sampling of the prior of `path.model`.

    Raises
    ------
    ImproperPriorError
        A prior that cannot be normalized (`pm.Flat`, `pm.HalfFlat`).
    UndrawableError
        A prior without random draws, as a custom distribution that has none.
    """
    model, terms = path.model, path.terms
    check_proper(rv for rv in model.free_RVs if rv.name not in terms.wide)
    draw_into, n_rngs = remembered(model, ("draws", terms.wide), lambda: _compile_draws(path))
    return Prior(path, draw_into, n_rngs, "white" if path.n_white else "prior")


def _compile_draws(path: Path) -> tuple[Callable, int]:
    """Compile forward sampling, and return it with the number of generators that it takes."""
    model = path.model
    plain = [
        out.values if isinstance(out.type, XTensorType) else out
        for out in forward_graph(model, path.terms.wide)
    ]
    outputs = [out.astype("float64") for out in freeze_shared(plain, open_numbers=True)]
    inputs, outputs = in_one_stream(outputs)
    slices = path.layout.slices
    if len(outputs) > FEW:
        outputs, slices = [_joined(outputs)], (slice(0, path.dim),)
    graph = open_graph([In(rng, mutable=True) for rng in inputs], outputs)
    draw_into = make_draws(graph, slices, len(inputs))
    try:
        draw_into(np.empty((1, path.dim)), *np.random.default_rng(0).spawn(len(inputs)))
    except NotImplementedError as error:
        names = undrawable(path)
        raise UndrawableError(
            f"The priors of {', '.join(map(repr, names))} have no random draws ({error}).", names
        ) from error
    except Exception as error:  # of a distribution's own draws, whatever it is
        raise PriorDrawsError(
            f"Draws of the prior raise {type(error).__name__}: {error}. {_about_raised(model)}"
            "Correct its `random` or `dist`."
        ) from error
    return draw_into, len(inputs)


def in_one_stream(outputs: list[Variable]) -> tuple[list[Variable], list[Variable]]:
    """Let all random variables of some graphs draw one after the other from one generator.

    An operation that takes several generators has its own. Numba waits longer for each generator
    that it is given than for the draws of a variable.

    Returns
    -------
    generators, outputs : list of Variable
    """
    graph = FunctionGraph(outputs=outputs, clone=True)
    now = stream = random_generator_type()
    others: list[Variable] = []
    for node in graph.toposort():
        places = [i for i, v in enumerate(node.inputs) if _is_generator(v)]
        after = [v for v in node.outputs if _is_generator(v)]
        if len(places) == len(after) == 1:
            graph.change_node_input(node, places[0], now, import_missing=True)
            [now] = after
            continue
        for place in places:
            others.append(random_generator_type())
            graph.change_node_input(node, place, others[-1], import_missing=True)
    return [stream, *others], list(graph.outputs)


def _is_generator(variable: Variable) -> bool:
    return isinstance(variable.type, RandomGeneratorType)


def _joined(outputs: list[Variable]) -> Variable:
    """Join graphs to one vector, neighboring numbers first: PyTensor is slow with many vectors."""
    parts: list[Variable] = []
    for is_number, group in groupby(outputs, key=lambda out: out.type.ndim == 0):
        together = list(group)
        parts += [pt.stack(together)] if is_number else [out.ravel() for out in together]
    return pt.concatenate(parts)


def undrawable(path: Path) -> tuple[str, ...]:
    """Free variables whose prior has no random draws."""
    names: list[str] = []
    for i, rv in enumerate(path.model.free_RVs):
        [graph] = freeze_shared([forward_graph(path.model, (*path.terms.wide, *names))[i]])
        try:
            with ALONE:
                function = pytensor.function(
                    [], graph, mode=python_mode(), on_unused_input="ignore"
                )
            function()
        except NotImplementedError:
            names.append(rv.name)
    return tuple(names)


def evaluate_draws(
    path: Path, draws: np.ndarray, mixture: Mixing = NO_MIXTURE, cores: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate log_reference and log_ratio, each of shape (n,), at draws of shape (n, d)."""
    draws = np.ascontiguousarray(draws)
    values = np.empty((len(draws), 2))
    mixture = mixture.copy()  # it has scratch space
    for start in range(0, len(draws), CHUNK):
        part = slice(start, start + CHUNK)
        no_grads = np.empty((len(draws[part]), 0, path.dim))
        evaluate_rows(path.density, draws[part], values[part], no_grads, mixture, cores)
    return values[:, 0], values[:, 1]


def evaluate_terms(path: Path, xs: np.ndarray, cores: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate log prior and log likelihood, (n, 2), and gradients, (n, 2, d), at states (n, d)."""
    values, grads = np.empty((len(xs), 2)), np.zeros((len(xs), 2, path.dim))
    evaluate_rows(path.density, np.ascontiguousarray(xs), values, grads, NO_MIXTURE, cores)
    return values, grads


N_PROBES, PROBE_SEED = 8, 21
"""States at which two processes compare the density, drawn from the prior with this seed."""


def probe(prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Draw states from the prior, shape (n, d), with the density's values there, shape (n, 2)."""
    xs = prior.draw(N_PROBES, prior.spawn(np.random.default_rng(PROBE_SEED)))
    return xs, np.column_stack(evaluate_draws(prior.path, xs))
