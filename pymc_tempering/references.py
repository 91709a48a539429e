"""Reference distributions: normalized, and drawn from exactly at beta = 0."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.pytensorf import compile as pymc_compile
from pymc.pytensorf import find_rng_nodes
from pytensor.compile import In
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import toposort
from pytensor.tensor.random.type import random_generator_type

from pymc_tempering.compiled import NO_MIXTURE, adapt_draws
from pymc_tempering.exceptions import ImproperPriorError, LikelihoodError, TemperingWarning
from pymc_tempering.mixture import evaluate_rows
from pymc_tempering.path import Path, freeze_shared, ordered_transform

CHUNK = 1000
"""Draws that are evaluated at a time."""

N_CHECK = 1000
"""Reference draws that the model is checked on before anything else starts."""

MAX_ZERO_SHARE = 0.999
"""Refuse when a larger share of the reference draws has zero likelihood."""

MAX_OVERFLOW_SHARE = 1e-3
"""Refuse when a larger share of the reference draws has no finite unconstrained value."""


class Reference(Protocol):
    """What a reference distribution offers; `Prior` and `Fitted` are references."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    @property
    def path(self) -> Path:
        """The compiled model."""

    @property
    def mixture(self) -> np.ndarray:
        """Packed mixture that points carry; no rows for the prior."""

    def spawn(self, rng: np.random.Generator) -> list[np.random.Generator]:
        """Child generators for one stream of draws."""

    def draw(self, n: int, rngs: list[np.random.Generator]) -> np.ndarray:
        """Draw `n` fresh, independent states, shape (n, d), unconstrained."""

    def residuals(self, xs: np.ndarray) -> np.ndarray:
        """States less the center of the mode that each is in, as far as modes are known."""


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
    """

    path: Path
    draw_into: Callable
    n_rngs: int
    name: str = "prior"
    mixture: np.ndarray = field(default_factory=lambda: NO_MIXTURE)

    def spawn(self, rng: np.random.Generator) -> list[np.random.Generator]:
        """Child generators for one stream of draws."""
        return rng.spawn(self.n_rngs)

    def draw(self, n: int, rngs: list[np.random.Generator]) -> np.ndarray:
        """Draw `n` fresh, independent states, shape (n, d), unconstrained.

        A draw whose unconstrained value overflows (a Beta draw that rounds to 1) becomes NaN
        in all of its elements; the chain counts it and takes it for a state without
        likelihood.
        """
        out = np.empty((n, self.path.dim))
        self.draw_into(out, *rngs)
        return out

    def residuals(self, xs: np.ndarray) -> np.ndarray:
        """States as they are: the prior knows of no modes."""
        return xs


def forward_graph(model: pm.Model) -> list[Variable]:
    """Graph of one joint prior draw of the free variables, in the unconstrained space.

    An observed variable is replaced by its value, for the free ones downstream of it; draws
    of an ordered i.i.d. prior are sorted. Initial values play no part.
    """
    replaced: dict[Variable, Variable] = {}
    drawn: dict[Variable, Variable] = {}
    basic = set(model.basic_RVs)
    in_order = [out for node in toposort(model.basic_RVs) for out in node.outputs if out in basic]
    for rv in in_order:
        if rv in model.observed_RVs:
            replaced[rv] = model.rvs_to_values[rv].astype(rv.type.dtype)
            continue
        fresh = graph_replace([rv], replaced, strict=False)[0] if replaced else rv
        value = fresh
        if (ordered := ordered_transform(model, rv)) is not None:
            value = pt.sort(fresh, axis=-1)
            value = value if ordered.ascending else value[..., ::-1]
        replaced[rv] = value
        transform = model.rvs_to_transforms[rv]
        drawn[rv] = value if transform is None else transform.forward(value, *fresh.owner.inputs)
    return [drawn[rv] for rv in model.free_RVs]


def compile_prior(path: Path) -> Prior:
    """Compile forward sampling of the prior of `path.model`.

    Raises
    ------
    ImproperPriorError
        A prior that cannot be drawn from (`pm.Flat`, `pm.HalfFlat`, a custom distribution
        without random draws).
    """
    model = path.model
    improper = [rv.name for rv in model.free_RVs if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]
    if improper:
        raise ImproperPriorError(
            f"Improper prior: {', '.join(improper)}. The evidence of a model with pm.Flat or "
            "pm.HalfFlat does not exist; give these variables proper priors."
        )
    outputs = [out.astype("float64") for out in freeze_shared(forward_graph(model))]
    rngs = find_rng_nodes(outputs)
    inputs = [random_generator_type() for _ in rngs]
    outputs = graph_replace(outputs, dict(zip(rngs, inputs, strict=True)), strict=False)
    function = pytensor.function(
        [In(rng, mutable=True) for rng in inputs],
        outputs,
        mode=pytensor.compile.mode.get_mode("NUMBA"),
        on_unused_input="ignore",
    )
    return Prior(path, adapt_draws(function, len(inputs), path.layout.slices), len(inputs))


def evaluate(
    path: Path, draws: np.ndarray, mixture: np.ndarray = NO_MIXTURE
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate log_reference and log_ratio, each of shape (n,), at draws of shape (n, d)."""
    draws = np.ascontiguousarray(draws)
    values = np.empty((len(draws), 2))
    mixture = mixture.copy()  # it has scratch space
    for start in range(0, len(draws), CHUNK):
        part = slice(start, start + CHUNK)
        grads = np.empty((len(draws[part]), 2, path.dim))
        evaluate_rows(path.density, draws[part], values[part], grads, mixture)
    return values[:, 0], values[:, 1]


def _blame(model: pm.Model, path: Path, draws: np.ndarray) -> str:
    """Name the likelihood terms and potentials that are NaN or infinite at draws, with shares."""
    terms = model.observed_RVs + model.potentials
    graphs = [
        pt.any(pt.isnan(graph) | pt.eq(graph, np.inf))
        for graph in model.logp(vars=terms, sum=False)
    ]
    with model:  # so that parameters out of their bounds mean -inf here too
        function = pymc_compile(
            model.value_vars, graphs, mode="FAST_COMPILE", on_unused_input="ignore"
        )
    try:
        bad = np.array([function(*path.layout.unravel(x).values()) for x in draws], dtype=float)
    except Exception as error:
        return f"a term that raises: {error}"
    return ", ".join(
        f"{term.name!r} ({share:.1%} of them)"
        for term, share in zip(terms, bad.mean(axis=0), strict=True)
        if share > 0
    )


def check_reference(prior: Prior, seed: int = 0) -> None:
    """Check the model on reference draws, before work starts.

    Raises
    ------
    LikelihoodError
        The log-likelihood is NaN at some draws, or zero at nearly all of them.
    ImproperPriorError
        The reference does not have the density that the model says.
    """
    path = prior.path
    draws = prior.draw(N_CHECK, prior.spawn(np.random.default_rng(seed)))
    overflow = ~np.isfinite(draws)
    if (share := overflow.any(axis=1).mean()) > 0:
        worst = path.layout.label(int(overflow.mean(axis=0).argmax()))
        message = (
            f"{share:.1%} of the prior draws have no finite unconstrained value (worst: {worst}): "
            "the prior puts mass where floating point, or a transform narrower than the prior's "
            "own support, cannot follow."
        )
        if share > MAX_OVERFLOW_SHARE:
            raise ImproperPriorError(message + " Use a less extreme prior, or its own transform.")
        warnings.warn(message, TemperingWarning, stacklevel=3)
    draws = draws[~overflow.any(axis=1)]
    log_reference, log_ratio = evaluate(path, draws)
    if (bad := np.isnan(log_ratio) | (log_ratio == np.inf)).any():
        raise LikelihoodError(
            f"The log-likelihood is not a number at {bad.mean():.1%} of the prior draws, in "
            f"{_blame(path.model, path, draws[bad]) or 'the sum of its terms'}. Restrict the prior "
            "to where the likelihood is defined, or make the likelihood return -inf there."
        )
    if (share := (log_ratio == -np.inf).mean()) > MAX_ZERO_SHARE:
        raise LikelihoodError(
            f"The likelihood is zero at {share:.1%} of {len(draws)} prior draws: the path from "
            "prior to posterior cannot be entered. Use a prior nearer to the data, or a "
            "likelihood with wider support."
        )
    if not np.isfinite(log_reference).all():
        raise ImproperPriorError(
            f"The prior density is not finite at {(~np.isfinite(log_reference)).mean():.1%} of its "
            "own draws: draws and density disagree. Check custom distributions and transforms."
        )
