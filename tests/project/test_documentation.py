"""What the documentation says is held against the code: arguments, defaults and examples."""

import dataclasses
import doctest
import inspect
import math
import re
from importlib import import_module
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytest
from support.synthetic import GaussianToy, gaussian_run

import pymc_tempering as pmt

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [*sorted((DOCS / "developer").glob("*.md")), DOCS / "restart.md"]
"""Pages whose Python blocks are run, one after the other."""
NAMESPACE = {"az": az, "np": np, "pm": pm, "pmt": pmt}
RUNS = {str(s): gaussian_run(400, toy=GaussianToy(2.0, s)) for s in (0.5, 1.0, 2.0)}
near, far = (gaussian_run(400, toy=GaussianToy(3.0, s)) for s in (2.0, 0.5))
NAMESPACE |= {"idata": RUNS["0.5"], "runs": RUNS, "near": near, "far": far}
"""What examples may take for granted: short names, and runs of `pmt.sample`, here of toys."""


WHOLE_MODULES = (pmt, pmt.arrays, pmt.testsystems, pmt.variational)
"""All that these name is public; of other modules what the reference pages list is."""


def public_callables(module):
    """Functions and classes in ``__all__``, by dotted name, those of public submodules included."""
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.ismodule(value) and (value in WHOLE_MODULES or module is not pmt):
            yield from public_callables(value)
        elif callable(value):
            yield f"{module.__name__}.{name}", value


def on_the_reference_pages():
    """Dotted names of the functions and classes that the reference pages list."""
    for page in sorted((DOCS / "reference").glob("*.rst")):
        module = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if head := re.fullmatch(r"\.\. currentmodule:: (\S+)", line):
                module = head[1]
            elif re.fullmatch(r"   [A-Za-z_][\w.]*", line):
                yield f"{module}.{line.strip()}"


def at_its_path(name):
    """What stands at a dotted name, whose last part may be that of a module, too."""
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


LISTED = {name: at_its_path(name) for name in on_the_reference_pages()}
ERRORS = {
    f"pymc_tempering.exceptions.{name}": value
    for name, value in vars(pmt.exceptions).items()
    if inspect.isclass(value)
}
PUBLIC = dict(public_callables(pmt)) | ERRORS
PUBLIC |= {name: value for name, value in LISTED.items() if "variational.conjugate" not in name}


def takes_documented_arguments(value):
    """Exceptions take a message, which needs no table of arguments."""
    return not (inspect.isclass(value) and issubclass(value, BaseException))


def parameters_in(docstring, sections=("Parameters", "Other Parameters")):
    """``{name: type line}`` of numpydoc sections; ``"a, b : int"`` counts as two."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    found = {}
    section = None
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if re.fullmatch(r"-{3,}", below.strip()):
            section = line.strip()
        elif section in sections and line[:1].strip() and not re.fullmatch(r"-{3,}", line.strip()):
            names, _, kind = line.partition(" : ")
            found |= {name.strip().lstrip("*"): kind.strip() for name in names.split(",")}
    return found


def stated_default(kind):
    """Text after "default" in a type line, or None where none is stated."""
    match = re.search(r"\bdefault(?:\s*[:=]\s*|\s+)(.+)$", kind)
    return match and match[1].strip().strip("`")


def same_default(text, default):
    """Whether the text of a docstring means the default of a signature."""
    try:
        stated = eval(text, {"__builtins__": {}, "inf": math.inf, "np": np, "pi": math.pi})
    except (SyntaxError, NameError, AttributeError):
        return text in {str(default), repr(default), getattr(default, "__name__", None)}
    return type(stated) is type(default) and stated == default


def has_default(argument):
    """Whether an argument has a default that tells a reader something."""
    return argument.default is not inspect.Parameter.empty and argument.default is not None


def docstring_faults(value, complete=True):
    """Sentences that say where a docstring and a signature disagree.

    ``complete`` asks for every default other than None to be stated.
    """
    sections = ("Parameters", "Other Parameters")
    is_value = dataclasses.is_dataclass(value)  # its fields are attributes, made by the package
    if is_value:
        sections += ("Attributes",)
    documented = parameters_in(value.__doc__, sections)
    if is_value:  # fields of a base class are told there
        for base in value.__mro__[1:-1]:
            documented |= parameters_in(base.__doc__, sections)
    arguments = {
        name: argument
        for name, argument in inspect.signature(value).parameters.items()
        if not name.startswith("_")
    }
    known = set(arguments)
    if is_value:
        known |= set(dir(value))  # Attributes may list properties too
    for name in documented.keys() - known:
        yield f"{name} is documented and is no argument"
    for name, argument in arguments.items():
        if name not in documented:
            yield f"{name} is not documented"
            continue
        text = stated_default(documented[name])
        default = argument.default
        if text is not None and default is inspect.Parameter.empty:
            yield f"{name}: the docstring states the default {text}, the signature has none"
        elif text is not None and not same_default(text, default):
            yield f"{name}: the docstring states the default {text}, the signature {default!r}"
        elif text is None and complete and not is_value and has_default(argument):
            yield f"{name}: the default {default!r} is not in the docstring's type line"


@pytest.mark.parametrize("name", [n for n in PUBLIC if takes_documented_arguments(PUBLIC[n])])
def test_documented_arguments_and_defaults_are_the_real_ones(name):
    at_the_front = name.removeprefix("pymc_tempering.") in pmt.__all__
    faults = list(docstring_faults(PUBLIC[name], complete=at_the_front))
    assert not faults, f"{name}\n" + "\n".join(faults)


def test_every_front_door_is_on_a_reference_page():
    doors = {name for name in pmt.__all__ if callable(getattr(pmt, name))}
    doors -= {"TemperingError", "TemperingWarning"}  # with the other exceptions
    assert {f"pymc_tempering.{name}" for name in doors} <= set(LISTED)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_docstring_has_a_summary(name):
    assert (PUBLIC[name].__doc__ or "").strip(), f"{name} has no docstring"


@pytest.mark.parametrize("name", [n for n in pmt.__all__ if inspect.isfunction(getattr(pmt, n))])
def test_public_function_shows_an_example(name):
    assert ">>> " in getattr(pmt, name).__doc__, f"{name} shows no example"


@pytest.mark.slow("examples of documents")
@pytest.mark.parametrize("name", PUBLIC)
def test_examples_in_docstrings_run(name):
    finder = doctest.DocTestFinder(exclude_empty=True)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for example in finder.find(PUBLIC[name], name, globs=dict(NAMESPACE)):
        report = []
        result = doctest.DocTestRunner(optionflags=flags).run(example, out=report.append)
        assert not result.failed, "".join(report)


@pytest.mark.slow("examples of documents")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_in_pages_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": f"docs_{page.stem}"}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.M):
        exec(compile(block, str(page), "exec"), namespace)


def documented(draws=1000, accept=0.8, move="gibbs", model=None, **kwargs):
    """Stand in for a public function.

    Parameters
    ----------
    draws : int, default 1000
        Text that says default 3.
    accept : float, default: 0.8
    move : {"gibbs", "nonreversible"}, default "gibbs"
    model : Model, optional
    **kwargs
        Handed on.

    Returns
    -------
    other : int, default 3
    """


def test_a_faultless_docstring_passes():
    assert not list(docstring_faults(documented))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("default 1000", "default 500", "draws"),
        ("default: 0.8", "default: 0.9", "accept"),
        ('default "gibbs"', "default gibbs_move", "move"),
        ("int, default 1000", "int", "draws"),
        ("draws : int", "n_draws : int", "n_draws"),
        ("Model, optional", "Model, default 3", "model"),
    ],
)
def test_a_planted_fault_is_found(old, new, fault):
    def changed(draws=1000, accept=0.8, move="gibbs", model=None, **kwargs):
        pass

    assert old in documented.__doc__
    changed.__doc__ = documented.__doc__.replace(old, new)
    assert any(fault in sentence for sentence in docstring_faults(changed))


def rows_outside_tables(text):
    """Lines with cells that no head belongs to, as after an empty line within a table."""
    text = re.sub(r"(?ms)^```.*?^```", lambda block: "\n" * block[0].count("\n"), text)
    lines = ["", *text.splitlines(), ""]
    firsts = (i for i, line in enumerate(lines) if line[:1] == "|" and lines[i - 1][:1] != "|")
    return [i for i in firsts if not re.fullmatch(r"\|[\s:|-]+\|", lines[i + 1])]


@pytest.mark.slow("examples of documents")
def test_every_row_belongs_to_a_table():
    assert rows_outside_tables("| a |\n|---|\n| b |\n\n| c |\n```\n| d |\n```\n") == [5]
    pages = [p for p in DOCS.rglob("*.md") if "_build" not in p.parts]
    strays = {p.name: rows for p in pages if (rows := rows_outside_tables(p.read_text("utf-8")))}
    assert not strays
