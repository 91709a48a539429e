"""Softplus and its slope from one exponential, where they are most of what a value costs.

PyMC's Bernoulli density with `logit_p` has a softplus for each outcome, a sigmoid to check the
probability, and another in the gradient: six exponentials and logarithms for each row. By
`softplus(x) = max(x, 0) + log(1 + exp(-|x|))` both outcomes and both slopes share one of each.
"""

from collections.abc import Sequence

import pytensor.scalar as ps
import pytensor.scalar.math as ps_math
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.elemwise import Elemwise

from pymc_tempering.model.log_graphs import computes, in_place_of, is_everywhere


@node_rewriter([Elemwise])
def _share(fgraph, node):  # type: ignore[no-untyped-def]
    """Write a softplus by the size of its argument; a sigmoid is in [0, 1] unless it is NaN."""
    kind, x = node.op.scalar_op, node.inputs[0]
    if isinstance(kind, ps_math.Softplus):
        turned = computes(x, ps.Neg)
        x = x.owner.inputs[0] if turned else x
        above = x > 0.0  # as switches, so that the slope at 0 is a half
        shared = pt.log1p(pt.exp(-pt.switch(above, x, -x)))
        part = pt.switch(above, 0.0, -x) if turned else pt.switch(above, x, 0.0)
        return in_place_of(node.outputs[0], part + shared)
    is_check = (isinstance(kind, ps.GE) and is_everywhere(node.inputs[1], 0.0)) or (
        isinstance(kind, ps.LE) and is_everywhere(node.inputs[1], 1.0)
    )
    if is_check and computes(x, ps_math.Sigmoid):
        return in_place_of(node.outputs[0], ~pt.isnan(x.owner.inputs[0]))
    return None


_rewrite = in2out(_share, name="shared_exponentials")


def with_shared_exponentials(outputs: Sequence[Variable]) -> list[Variable]:
    """Rewrite the softplus of stable graphs, before gradients are taken."""
    return list(rewrite_graph(list(outputs), include=(), custom_rewrite=_rewrite))
