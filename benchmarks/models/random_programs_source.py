"""A random program as the source of a PyMC model: what is printed is what is run."""

from typing import Any

import numpy as np
import pymc as pm

from benchmarks.models import random_programs_language as language  # fmt: skip
from benchmarks.models.random_programs_vectors import DT, VECTORS, ZERO_SUM_STDEV, W
from benchmarks.truths.random_programs_formulas import PDF_POINTS, X_POINTS

HEAD = """import numpy as np
import pymc as pm
import pytensor.tensor as pt

"""
HELPERS = {
    "laplace_logp": """def laplace_logp(x, mu, b):
    return -pm.math.abs(x - mu) / b - pm.math.log(2 * b)

def laplace_random(mu, b, rng=None, size=None):
    return rng.laplace(mu, b, size=size)

""",
    "lognormal_dist": """def lognormal_dist(mu, sigma, size):
    return pm.math.exp(pm.Normal.dist(mu, sigma, size=size))

""",
    "ou_sde": """def ou_sde(x, theta, g):
    return -theta * x, g

""",
}
TRANSFORMS = {
    "": "",
    "log": "default_transform=pm.distributions.transforms.log",
    "log_exp_m1": "default_transform=pm.distributions.transforms.LogExpM1()",
    "interval": "default_transform=pm.distributions.transforms.Interval(0, 1)",
    "ordered": "transform=pm.distributions.transforms.ordered",
    "zero_sum": "transform=pm.distributions.transforms.ZeroSumTransform([-1])",
}
_LAPLACE = ["logp=laplace_logp", "random=laplace_random"]
_POSITIONAL = {
    "CustomDist": _LAPLACE,
    "DensityDist": _LAPLACE,
    "CustomDist by dist": ["dist=lognormal_dist"],
}
FURTHER = {
    "Interpolated": [f"x_points=np.array({list(X_POINTS)})",
                     f"pdf_points=np.array({list(PDF_POINTS)})"],
    "OrderedLogistic": ["compute_p=False"],
    "OrderedProbit": ["compute_p=False"],
    "OrderedMultinomial": ["compute_p=False"],
    "StickBreakingWeights": ["K=2"],
    "CAR": [f"W=np.array({W.tolist()})"],
    "CAR of data": [f"W=np.array({W.tolist()})"],
    "ICAR": [f"W=np.array({W.tolist()})", f"zero_sum_stdev={ZERO_SUM_STDEV}"],
    "LKJCholeskyCov": ["n=2"],
    "EulerMaruyama": [f"dt={DT}", "sde_fn=ou_sde"],
}  # fmt: skip


def _number(value: Any) -> str:
    return "np.nan" if isinstance(value, float) and np.isnan(value) else repr(value)


def _list(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_list(each) for each in value)}]"
    return _number(value)


def constant(value: Any) -> str:
    """Text of a number or an array."""
    return f"np.array({_list(value)})" if isinstance(value, tuple) else _number(value)


def link_text(link: language.Link) -> str:
    """Text of a value computed from a variable."""
    x = link.source if link.index is None else f"{link.source}[{link.index}]"
    match link.form:
        case "linear":
            return f"{link.a} + {link.b} * {x}"
        case "exp":
            return f"pm.math.exp({link.a} + {link.b} * {x})"
        case "between":
            return f"{link.a} + {link.b - link.a:.6g} * pm.math.sigmoid({x})"
        case "slope":
            return f"{link.a} + {constant(link.table)} * {x}"
        case "pick":
            return f"pt.as_tensor_variable({_list(link.table)})[{x}]"
    return x


def argument_text(value: language.Argument) -> str:
    """Text of an argument."""
    return link_text(value) if isinstance(value, language.Link) else constant(value)


def call(dist: language.Dist, name: str = "", more: tuple[str, ...] = ()) -> str:
    """Text that makes a distribution, a variable of the model where it has a name."""
    family = dist.family.split(" ")[0]
    start = f"pm.{family}(" if name else f"pm.{family}.dist("
    words = [f'"{name}"'] if name else []
    return (
        start + ", ".join([*words, *_arguments(dist), *FURTHER.get(dist.family, []), *more]) + ")"
    )


def _arguments(dist: language.Dist) -> list[str]:
    args = {key: argument_text(value) for key, value in dist.args}
    parts = [call(part) for part in dist.parts]
    if dist.family in _POSITIONAL:
        return [*args.values(), *_POSITIONAL[dist.family]]
    match dist.family:
        case "Truncated" | "Censored":
            limits = {k: v for k, v in args.items() if "inf" not in v}
            return [parts[0], *(f"{k}={v}" for k, v in limits.items())]
        case "Mixture":
            return [f"w={args['w']}", f"comp_dists=[{', '.join(parts)}]"]
        case "KroneckerNormal":
            covs = f"covs=[{args['cov0']}, {args['cov1']}]"
            return [f"mu={args['mu']}", covs, f"sigma={args['sigma']}"]
        case "EulerMaruyama":
            return [f"sde_pars=({args['theta']}, {args['g']})", f"init_dist={parts[0]}"]
        case "LKJCholeskyCov":
            return [f"eta={args['eta']}", f"sd_dist={call(dist.parts[0], more=('shape=2',))}"]
        case "LKJCorr":
            return [f"n={dist.core[0]}", f"eta={args['eta']}"]
        case "RandomWalk":
            return [f"init_dist={parts[0]}", f"innovation_dist={parts[1]}"]
    words = [f"{key}={text}" for key, text in args.items()]
    return words + [f"init_dist={part}" for part in parts]


def _dims(name: str, shape: tuple[int, ...]) -> list[str]:
    return [f"{name}_{axis}" for axis in range(len(shape))]


def item_text(item: language.Item, coords: bool) -> list[str]:
    """Lines of a variable or a term."""
    match item:
        case language.Deterministic():
            return [f'{item.name} = pm.Deterministic("{item.name}", {link_text(item.link)})']
        case language.Potential():
            x = link_text(item.link)
            term = {
                "square": f"-{item.b} * ({x} - {item.a}) ** 2",
                "tilt": f"{item.b} * pm.math.tanh({x} - {item.a})",
            }[item.form]
            return [f'pm.Potential("{item.name}", {term})']
        case language.Unknown():
            return [_unknown_text(item, coords)]
    data, lines = constant(item.data), []
    if item.as_data:
        lines = [f'{item.name}_data = pm.Data("{item.name}_data", {data})']
        data = f"{item.name}_data"
    more = [f"observed={data}"]
    shape = np.shape(item.data)
    if coords and shape and not np.isnan(np.asarray(item.data, float)).any():
        more.append(f"dims={_dims(item.name, shape)}")
    return [*lines, f"{item.name} = {call(item.dist, item.name, tuple(more))}"]


def _unknown_text(item: language.Unknown, coords: bool) -> str:
    shape = (*item.shape, *item.dist.core)
    more = [TRANSFORMS[item.transform]] if item.transform else []
    if item.transform == "ordered":
        more.append(f"initval=np.arange(1.0, {shape[0] + 1.0})")
    family = item.dist.family
    if family == "WishartBartlett":
        args = dict(item.dist.args)
        return (
            f'{item.name} = pm.WishartBartlett("{item.name}", {constant(args["S"])}, {args["nu"]})'
        )
    target = f"{item.name}, _, _" if family == "LKJCholeskyCov" else item.name
    if shape and family not in ("LKJCholeskyCov", "LKJCorr", "StickBreakingWeights"):
        plain = coords and family not in VECTORS
        more.append(f"dims={_dims(item.name, shape)}" if plain else f"shape={shape}")
    return f"{target} = {call(item.dist, item.name, tuple(more))}"


def source_of(program: language.Program) -> str:
    """Python source that builds the model as `model`."""
    lines = [line for item in program.items for line in item_text(item, program.coords)]
    names = [
        (item.name, item.shape if isinstance(item, language.Unknown) else np.shape(item.data))
        for item in program.items if isinstance(item, language.Unknown | language.Observed)
    ]  # fmt: skip
    coords = {
        axis: list(range(size))
        for name, shape in names
        for axis, size in zip(_dims(name, shape), shape, strict=True)
    }
    body = "\n".join(f"    {line}" for line in lines)
    helpers = "".join(text for name, text in HELPERS.items() if name in body)
    given = f"coords={coords}" if program.coords else ""
    return f"{HEAD}{helpers}with pm.Model({given}) as model:\n{body}\n"


def model_of(program: language.Program) -> pm.Model:
    """Build the PyMC model of a program."""
    names: dict[str, Any] = {}
    exec(source_of(program), names)  # our own text
    return names["model"]
