"""Random programs in ways of writing: of each program's source, or of its model.

Where PyMC itself refuses a way for a program, that is written as it is.
"""

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
from pymc.model.transform.optimization import freeze_dims_and_data

from benchmarks.models.random_programs_language import Observed, Program
from benchmarks.models.random_programs_source import source_of

OBSERVED = re.compile(r"observed=(np\.array\(.*?\)|[-\w.]+)(?=[,)])")
"""Data in the text of a program."""


def _run(text: str, more: Mapping[str, Any] | None = None) -> pm.Model:
    names: dict[str, Any] = dict(more or {})
    exec(text, names)  # our own text
    return names["model"]


def _with_dims(program: Program) -> pm.Model:
    return _run(source_of(replace(program, coords=True)))


def _with_data(program: Program, coords: bool = True) -> Program:
    items = [replace(i, as_data=True) if isinstance(i, Observed) else i for i in program.items]
    return replace(program, coords=coords, items=tuple(items))


def _wrapped(program: Program, wrap: Callable[[Any], Any]) -> pm.Model:
    text = OBSERVED.sub(r"observed=wrap(\1)", source_of(program))
    return _run(text, {"wrap": wrap})


def _as_pandas(values: Any) -> Any:
    values = np.asarray(values)
    return {1: pd.Series, 2: pd.DataFrame}.get(values.ndim, np.asarray)(values)


def _as_small(values: Any) -> np.ndarray:
    values = np.asarray(values)
    return values.astype(np.int16 if values.dtype.kind == "i" else np.float32)


def _set_again(program: Program) -> pm.Model:
    program = _with_data(program)
    model = _run(source_of(program))
    data = {f"{i.name}_data": np.asarray(i.data) for i in program.items if isinstance(i, Observed)}
    with model:
        pm.set_data({name: np.flip(values) for name, values in data.items()})
        pm.set_data(data)
    return model


def _observed_later(program: Program) -> pm.Model:
    data = {i.name: np.asarray(i.data) for i in program.items if isinstance(i, Observed)}
    shapes = iter(values.shape for values in data.values())
    text = source_of(replace(program, coords=False))
    text = OBSERVED.sub(lambda found: f"shape={next(shapes)}", text)
    if any(np.isnan(values.astype(float)).any() for values in data.values()) or "_data" in text:
        raise ValueError("missing values are observed with the model")
    return pm.observe(_run(text), data)


def _inside(program: Program) -> pm.Model:
    head, body = source_of(program).split("with pm.Model(", 1)
    given, lines = body.split(") as model:\n", 1)
    inner = "\n".join(f"    {line}" for line in lines.splitlines())
    text = f'{head}with pm.Model({given}) as model:\n    with pm.Model(name="inner"):\n{inner}\n'
    return _run(text)


def _with_blanks(program: Program) -> pm.Model:
    return _run(re.sub(r'(pm\.\w+\()"(\w+)"', r'\1"1 | \2 a:b"', source_of(program)))


def _then(change: Callable[[pm.Model], pm.Model], program: Program) -> pm.Model:
    return change(_run(source_of(_with_data(program))))


WAYS: Mapping[str, Callable[[Program], pm.Model]] = {
    "dims": _with_dims,
    "pm.Data": lambda program: _run(source_of(_with_data(program))),
    "pm.Data set again": _set_again,
    "pandas": partial(_wrapped, wrap=_as_pandas),
    "small types": partial(_wrapped, wrap=_as_small),
    "pm.observe": _observed_later,
    "frozen": partial(_then, freeze_dims_and_data),
    "deep copy": partial(_then, copy.deepcopy),
    "pickled": partial(_then, lambda model: cloudpickle.loads(cloudpickle.dumps(model))),
    "model in a model": _inside,
    "blanks and bars": _with_blanks,
}


def way_of(seed: int) -> str:
    """Draw a way for a seed."""
    return str(np.random.default_rng([seed, 67]).choice(list(WAYS)))


def written(program: Program, way: str) -> tuple[str, pm.Model]:
    """Write a program in a way; as it is where PyMC does not take that."""
    try:
        return way, WAYS[way](program)
    except Exception:  # of PyMC's, which has many
        return "as it is", _run(source_of(program))
