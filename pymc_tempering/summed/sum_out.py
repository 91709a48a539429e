"""A model without the discrete variables that can be summed out, and draws of them afterwards.

A label that one datum sees, a switch point, a latent count, a hidden state: given all else, their
sum is cheap and exact. What is left is a model of real numbers, with a potential in the place of
the terms that were summed over. A variable that nothing observed depends on sums to one.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_tempering.arguments import listed
from pymc_tempering.kernels.assign import find_kernel
from pymc_tempering.model.given_up import LongSumError, RewriteError, give_up
from pymc_tempering.model.index_checks import check_indices
from pymc_tempering.model.layout import is_discrete
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.new_data import copy_of
from pymc_tempering.model.origin import Origin, known_ends
from pymc_tempering.summed.angles import circular, cut_angles
from pymc_tempering.summed.groups import Summed, children_of, sum_of
from pymc_tempering.summed.parts import related
from pymc_tempering.summed.recover import Recovery


def without_sums(
    model: pm.Model, choice: Any = None, tempered: Sequence[str] | None = None
) -> pm.Model:
    """Do as :func:`sum_out` for a call with such arguments.

    A variable stays that the user gave a kernel, by name or by one kernel that can move it. All
    stay where only some terms are tempered.
    """
    discrete = {rv.name for rv in model.free_RVs if is_discrete(rv)}
    if tempered is not None:
        return model
    if choice is None:
        return sum_out(model)
    if isinstance(choice, Mapping) and not set(choice) <= {rv.name for rv in model.free_RVs}:
        return model  # what is unknown is named by whoever gives kernels
    if isinstance(choice, Mapping):
        return sum_out(model, discrete & set(choice))
    moves = find_kernel(choice, 0.8).kinds - {"continuous"}
    return sum_out(model, discrete if moves else ())


def sum_out(model: pm.Model, keep: Collection[str] = ()) -> pm.Model:
    """Return a model without the discrete variables that can be summed out.

    Parameters
    ----------
    model : pymc.Model
        It stays as it is.
    keep : collection of str
        Discrete variables that stay unknowns.

    Returns
    -------
    pymc.Model
        The model itself, if there are none. Otherwise one whose draws become those of the whole
        model by :func:`~pymc_tempering.model.origin.origin_of`.
    """
    left = [rv for rv in model.free_RVs if is_discrete(rv) and rv.name not in keep]
    if not left and not circular(model):
        return model
    ends = known_ends(model)
    key = ("summed", tuple(sorted(keep)), tuple(sorted(ends.items())))
    found = remembered(model, key, lambda: _without(model, keep, ends))
    return model if found is None else found


def _without(model: pm.Model, keep: Collection[str], ends: dict[str, int]) -> pm.Model | None:
    """Make such a model; None if no variable can go, or none would be left."""
    check_indices(model)  # sums would select by all values of a label
    copy = copy_of(model)
    chosen = [rv for rv in copy.free_RVs if _may_go(copy, rv) and rv.name not in keep]
    values = {rv: copy.rvs_to_values[rv] for rv in chosen}
    leaves = _leaves(copy, chosen)
    rest = [rv for rv in chosen if rv not in leaves]
    if len(chosen) == len(copy.free_RVs):
        leaves, rest = [], []
    remove(copy, leaves)
    summed: list[Summed] = []
    failed: dict[str, RewriteError] = {}
    for together in _groups(copy, rest):
        try:
            summed.append(sum_of(copy, together, ends))
        except RewriteError as error:
            failed[listed([rv.name for rv in together])] = error
    changed = bool(leaves or summed or circular(copy))
    for group in summed:
        name = ", ".join(v.name for v in group.replaced)
        remove(copy, group.replaced)
        with copy:
            pm.Potential(name, group.total)
        remove(copy, [r.rv for r in group.ranges])
    if changed:
        whole = copy_of(model)
        recovery = Recovery(whole, copy, summed, leaves, values, cut_angles(copy), ends)
        copy.summed_from = Origin(
            whole, recovery, recovery.check, recovery.log_change,
            leaves=tuple(rv.name for rv in leaves), ends=dict(ends),
        )  # fmt: skip
    for names, why in failed.items():
        left = copy if changed else model
        if isinstance(why, LongSumError):  # nothing has looked at all of its values
            give_up(left, "count_not_summed", names, why, "unchecked")
        else:
            give_up(left, "not_summed", names, why)
    return copy if changed else None


def _may_go(model: pm.Model, rv: Variable) -> bool:
    """Whether a variable is discrete, and its elements have values of their own."""
    single = getattr(rv.owner.op, "ndim_supp", 0) == 0
    return is_discrete(rv) and single and model.rvs_to_transforms[rv] is None


def _leaves(model: pm.Model, chosen: Collection[Variable]) -> list[Variable]:
    """Variables that no term depends on but those of other such variables; the last ones first."""
    leaves: list[Variable] = []
    while True:
        more = [v for v in chosen if v not in leaves and set(children_of(model, v)) <= set(leaves)]
        if not more:
            return leaves
        leaves += more


def _groups(model: pm.Model, chosen: Sequence[Variable]) -> list[list[Variable]]:
    """Sort variables into groups that no term joins."""
    groups: list[set[Variable]] = []
    for term in [*model.basic_RVs, *model.potentials]:
        joined = (related([term], model.basic_RVs) | {term}) & set(chosen)
        if joined:
            near = [group for group in groups if group & joined]
            groups = [group for group in groups if group not in near] + [joined.union(*near)]
    return [[v for v in chosen if v in group] for group in groups]


def remove(model: pm.Model, variables: Sequence[Variable]) -> None:
    """Take variables out of a model, with the deterministic ones that depend on them."""
    gone = set(variables)
    derived = [v for v in model.deterministics if v not in gone and gone & set(ancestors([v]))]
    for v in [*derived, *variables]:
        for kind in (model.free_RVs, model.observed_RVs, model.potentials, model.deterministics):
            if v in kind:
                kind.remove(v)
        model.named_vars.pop(v.name)
        model.named_vars_to_dims.pop(v.name, None)
        if v in model.rvs_to_values:
            model.values_to_rvs.pop(model.rvs_to_values.pop(v))
            model.rvs_to_transforms.pop(v, None)
            model.rvs_to_initial_values.pop(v, None)
