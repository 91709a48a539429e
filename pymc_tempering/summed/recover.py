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

from pymc_tempering.arguments import listed
from pymc_tempering.core.findings import Finding
from pymc_tempering.exceptions import ModelError
from pymc_tempering.model.constrain import compile_over_draws
from pymc_tempering.model.exactly import compile_exactly, one_thread_at_a_time
from pymc_tempering.model.layout import Layout, model_layout
from pymc_tempering.model.python_mode import compile_alone, python_mode
from pymc_tempering.summed.angles import angle_of, log_slope
from pymc_tempering.summed.elimination import draw_elements
from pymc_tempering.summed.ends import KEPT, ends_needed, ends_of, lengthened, looks_at
from pymc_tempering.summed.groups import Summed

N_LOOKED = 50
"""Draws at which it is looked whether counts are summed far enough."""

MOST_NUMBERS = 10_000_000
"""Probabilities of values of elements together that are held at a time."""

N_COMPARED, LARGEST_OFF, ROUNDED = 50, 1e-5, 1e-9
"""Draws at which sums by short ways are compared with those without, and the largest error there:
nats, and a share of their size."""


class Recovery:
    """Draws of a whole model, of those of one without some variables.

    Parameters
    ----------
    whole, without : pymc.Model
    groups : sequence of Summed
    leaves : sequence of Variable
        Random variables of `without` that were taken out and nothing depends on.
    values : dict of Variable to Variable
        Value variables of all that was taken out.
    cuts : dict of str to array
        Where circles were cut, by the names of the variables.
    ends : dict of str to int
        How far counts have to be summed at least, by name: what a check finds is noted there.
    """

    def __init__(
        self,
        whole: pm.Model,
        without: pm.Model,
        groups: Sequence[Summed],
        leaves: Sequence[Variable],
        values: dict[Variable, Variable],
        cuts: dict[str, np.ndarray],
        ends: dict[str, int],
    ) -> None:
        self.whole, self.without = whole, without
        self.groups, self.leaves, self.values, self.cuts = groups, leaves, values, cuts
        self.ends = ends

    def __getstate__(self) -> dict[str, Any]:
        """State without compiled functions."""
        compiled = ("tables", "off", "leaf_draws", "scans")
        return {name: value for name, value in vars(self).items() if name not in compiled}

    @cached_property
    def layouts(self) -> tuple[Layout, Layout]:
        """Where the variables of both models lie; to ask a model anew takes a walk through it."""
        return model_layout(self.without), model_layout(self.whole)

    @cached_property
    def tables(self) -> Callable[..., list[np.ndarray]]:
        """Compiled function of values of the variables that are left: all steps of all groups."""
        graphs = [step.log_p for group in self.groups for step in group.steps]
        graphs = self.without.replace_rvs_by_values(graphs)
        return compile_over_draws(self.without, self.without.value_vars, graphs, together=False)

    @cached_property
    def off(self) -> Callable[..., list[np.ndarray]]:
        """Compiled function of the same values: sums, and by how much short ways are off."""
        short = [group for group in self.groups if group.total is not group.exact]
        graphs = [g for group in short for g in (group.exact, group.total - group.exact)]
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
        return np.concatenate([self._recovered(part)[0] for part in self._parts(xs)])

    def _parts(self, xs: np.ndarray) -> list[np.ndarray]:
        """Rows in parts whose tables fit into memory."""
        largest = max((len(g.together) for g in self.groups if g.together is not None), default=1)
        return np.array_split(xs, len(xs) * largest // MOST_NUMBERS + 1)

    def log_change(self, xs: np.ndarray) -> np.ndarray:
        """Log density of the whole model less that of the one without, at rows, shape (n,).

        The whole model is taken at what is drawn there, and without the density of the leaves.
        """
        return np.concatenate([self._recovered(part)[1] for part in self._parts(xs)])

    def _recovered(self, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw what was taken out; also the change of the log density, without the leaves."""
        here, there = self.layouts
        columns, change = here.unravel(xs), np.zeros(len(xs))
        rngs = [np.random.default_rng(row.view(np.uint32)) for row in np.ascontiguousarray(xs)]
        steps = iter(self.tables(list(columns.values())) if self.groups else [])
        for group in self.groups:
            drawn, log_p = self._of_group(group, [next(steps) for _ in group.steps], rngs)
            columns |= drawn
            change += log_p
        if self.leaves:
            draw, known, rows = self.leaf_draws, list(columns.values()), []
            for i, rng in enumerate(rngs):
                rows.append(draw(*rng.spawn(self.n_sources), *(column[i] for column in known)))
            for rv, column in zip(self.leaves, zip(*rows, strict=True), strict=True):
                columns[self.values[rv].name] = np.array(column)
        for name, place in self.cuts.items():
            there_name = self.whole.rvs_to_values[self.whole[name]].name
            here_name = self.without.rvs_to_values[self.without[name]].name
            change -= log_slope(columns[here_name]).reshape(len(xs), -1).sum(axis=1)
            columns[there_name] = angle_of(columns[here_name], place)
        flat = [columns[name].reshape(len(xs), -1) for name in there.names]
        return np.concatenate(flat, axis=1, dtype=float), change

    @cached_property
    def scans(self) -> list[tuple[Summed, Callable[..., list[np.ndarray]]]]:
        """Groups with counts, and functions of values of what is left, of the group, and a scan."""
        found = []
        for group in self.groups:
            if group.scan is not None:
                graphs = self.without.replace_rvs_by_values(group.scan.graphs)
                inputs = [*self.without.value_vars, *(r.plain for r in group.ranges)]
                found.append((group, compile_alone([*inputs, group.scan.values], graphs)))
        return found

    def check(self, xs: np.ndarray) -> list[Finding]:
        """Check at some draws that short ways are right, and that counts are summed far enough.

        Raises
        ------
        ModelError
            A short way is not right.
        """
        columns = list(self.layouts[0].unravel(xs).values())
        found = self.off([column[:N_COMPARED] for column in columns])
        for exact, off in zip(found[::2], found[1::2], strict=True):
            worst = np.nanmax(np.abs(off) - ROUNDED * np.abs(exact), initial=0.0)
            if worst > LARGEST_OFF:
                raise ModelError(self._not_summed(f"is off by {worst:.2g} nats"))
        findings = []
        for group, function in self.scans:
            findings += self._beyond_ends(group, function, xs[:N_LOOKED])
        return findings

    def _beyond_ends(
        self, group: Summed, function: Callable[..., list[np.ndarray]], xs: np.ndarray
    ) -> list[Finding]:
        """Look at counts beyond their ends, at some draws; what sums lack is noted."""
        assert group.scan is not None
        here, there = self.layouts
        columns = [*here.unravel(xs).values()]
        drawn = there.unravel(self(xs))
        columns += [drawn[self.values[r.rv].name].astype(r.plain.dtype) for r in group.ranges]
        looks, ends = looks_at(function, columns, len(xs)), ends_of(group.ranges)
        with np.errstate(all="ignore"):
            needed, _, unknown = ends_needed(looks, group.scan, ends, KEPT, beyond=True)
        longer = lengthened(group.ranges, needed.max(axis=0, initial=0))
        findings, start = [], 0
        for old, new in zip(group.ranges, longer, strict=True):
            name, own = old.rv.name, unknown[start : start + old.first.size]
            start += old.first.size
            if new is not old:
                self.ends[name] = int(new.n_values.max())
                findings.append(Finding("sum_too_short", name, f"{old.most - 1}", "unchecked"))
            elif own.any():
                findings.append(Finding("sum_without_end", name, f"{old.most - 1}", "unchecked"))
        return findings

    def _not_summed(self, why: str) -> str:
        """Sentences about a sum that is not exact."""
        names = [r.rv.name for group in self.groups for r in group.ranges]
        kernels = ", ".join(f"{name!r}: 'slice'" for name in names)
        return (
            f"The sum over {listed(names)} {why}, so log Z may be wrong. Give the "
            f"variables kernels, with which they are not summed out: kernel={{{kernels}}}."
        )

    def _of_group(
        self, group: Summed, log_p: list[np.ndarray], rngs: Sequence[np.random.Generator]
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Draws of the variables of a group, by value variable, and their log probability."""
        n = sum(r.first.size for r in group.ranges) if group.together is None else 1
        uniform = np.array([rng.random(n) for rng in rngs])
        places, log_probability = draw_elements(group.steps, log_p, uniform)
        if group.together is not None:
            places = group.together[places[:, 0]]
        columns, start = {}, 0
        for r in group.ranges:
            own = places[:, start : start + r.first.size].reshape(-1, *r.first.shape)
            columns[self.values[r.rv].name] = r.at(own)
            start += r.first.size
        return columns, log_probability
