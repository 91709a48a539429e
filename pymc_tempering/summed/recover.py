"""Draws of the variables that were summed out, given all others."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomGeneratorType, random_generator_type

from pymc_tempering.exceptions import ModelError, warn_user
from pymc_tempering.model.constrain import compile_over_draws
from pymc_tempering.model.exactly import compile_exactly, one_thread_at_a_time
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.summed.elimination import draw_elements
from pymc_tempering.summed.groups import Summed

NEAR_END, CUT_OFF = 0.8, 1e-4
"""Share of what was summed over behind which counts are near its end, and the share of draws there
from which a warning comes."""


N_CHECKED, LARGEST_OFF = 50, 1e-5
"""Draws at which short ways are checked, and the largest error there (nats)."""


class Recovery:
    """Draws of a whole model, of those of one without some variables.

    Parameters
    ----------
    whole, without : pymc.Model
    groups : sequence of Summed
    leaves : sequence of Variable
        Random variables of `without` that were taken out and nothing depends on.
    names : dict of Variable to str
        Value variables of all that was taken out.
    """

    def __init__(
        self,
        whole: pm.Model,
        without: pm.Model,
        groups: Sequence[Summed],
        leaves: Sequence[Variable],
        values: dict[Variable, Variable],
    ) -> None:
        self.whole, self.without = whole, without
        self.groups, self.leaves, self.values = groups, leaves, values

    def __getstate__(self) -> dict[str, Any]:
        """State without compiled functions."""
        compiled = ("tables", "off", "leaf_draws")
        return {name: value for name, value in vars(self).items() if name not in compiled}

    @cached_property
    def tables(self) -> Callable[..., list[np.ndarray]]:
        """Compiled function of values of the variables that are left: all steps of all groups."""
        graphs = [step.log_p for group in self.groups for step in group.steps]
        graphs = self.without.replace_rvs_by_values(graphs)
        return compile_over_draws(self.without, self.without.value_vars, graphs, together=False)

    @cached_property
    def off(self) -> Callable[..., list[np.ndarray]]:
        """Compiled function of the same values: by how much sums by short ways are off."""
        graphs = [
            group.total - group.exact for group in self.groups if group.total is not group.exact
        ]
        graphs = self.without.replace_rvs_by_values(graphs)
        return compile_over_draws(
            self.without, self.without.value_vars, graphs, together=False, mode=python_mode()
        )

    @cached_property
    def leaf_draws(self) -> Callable[..., list[np.ndarray]]:
        """Compiled function of generators, and values of all other variables."""
        of_groups = {r.rv: self.values[r.rv] for group in self.groups for r in group.ranges}
        graphs = graph_replace(list(self.leaves), of_groups, strict=False)
        graphs = self.without.replace_rvs_by_values(graphs)
        sources = [v for v in graph_inputs(graphs) if isinstance(v.type, RandomGeneratorType)]
        inputs = {v: random_generator_type() for v in sources}
        graphs = graph_replace(graphs, inputs, strict=False)
        self.n_sources = len(inputs)
        return one_thread_at_a_time(
            compile_exactly(
                [*inputs.values(), *self.without.value_vars, *of_groups.values()],
                graphs, on_unused_input="ignore",
            )
        )  # fmt: skip

    def __call__(self, xs: np.ndarray) -> np.ndarray:
        """Draw what was summed out, at rows of `xs`, shape (n, d)."""
        here, there = model_layout(self.without), model_layout(self.whole)
        columns = here.unravel(xs)
        rngs = [np.random.default_rng(row.view(np.uint32)) for row in np.ascontiguousarray(xs)]
        self._check([column[:N_CHECKED] for column in columns.values()])
        steps = iter(self.tables(list(columns.values())) if self.groups else [])
        for group in self.groups:
            columns |= self._of_group(group, [next(steps) for _ in group.steps], rngs)
        if self.leaves:
            known, rows = list(columns.values()), []
            for i, rng in enumerate(rngs):
                draw = self.leaf_draws
                rows.append(draw(*rng.spawn(self.n_sources), *(column[i] for column in known)))
            for rv, column in zip(self.leaves, zip(*rows, strict=True), strict=True):
                columns[self.values[rv].name] = np.array(column)
        flat = [columns[name].reshape(len(xs), -1) for name in there.names]
        return np.concatenate(flat, axis=1, dtype=float)

    def _check(self, columns: list[np.ndarray]) -> None:
        """Compare sums by short ways with those without, at some draws."""
        worst = max((float(np.abs(row).max(initial=0.0)) for row in self.off(columns)), default=0.0)
        if worst > LARGEST_OFF:
            names = ", ".join(repr(r.rv.name) for group in self.groups for r in group.ranges)
            raise ModelError(
                f"The sums over {names} are off by {worst:.2g} nats at draws of this run: their terms "
                "depend on the parameters in another way here than at draws of the prior. Give them "
                f"a kernel, so that they are not summed out, as kernel={{{names}: 'slice'}}."
            )

    def _of_group(
        self, group: Summed, log_p: list[np.ndarray], rngs: Sequence[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        """Draws of the variables of a group, by value variable."""
        n = sum(r.first.size for r in group.ranges)
        uniform = np.array([rng.random(n) for rng in rngs])
        places = draw_elements(group.steps, log_p, uniform)
        columns, start = {}, 0
        for r in group.ranges:
            own = places[:, start : start + r.first.size].reshape(-1, *r.first.shape)
            if r.is_open and (share := float((own > NEAR_END * r.most).mean())) > CUT_OFF:
                warn_user(
                    f"{r.rv.name!r} was summed up to {r.most - 1}, and {share:.2%} of its draws are "
                    "near that end: the sum may lack larger values. Give it a prior with lighter "
                    "tails, or a kernel, so that it is not summed out."
                )
            columns[self.values[r.rv].name] = r.at(own)
            start += r.first.size
        return columns
