"""The wheel and the sdist: what they hold, that they work, and what other files repeat of them."""

import ast
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from importlib import util
from pathlib import Path

import pytest

import pymc_tempering as pmt

PROJECT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))
ASKED = SETTINGS["project"]["dependencies"]
EXTRAS = SETTINGS["project"]["optional-dependencies"]
VERSION = pmt.__version__


def tool(name):
    """Module of a file in tools/."""
    spec = util.spec_from_file_location(name, PROJECT / "tools" / f"{name}.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(folder, target, out):
    """Build a "wheel" or an "sdist" of a folder by the project's own builder, without a network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory"]
    subprocess.run([*command, str(out)], cwd=folder, check=True, capture_output=True)
    return next(out.glob("*.whl" if target == "wheel" else "*.tar.gz"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Return the sdist, and the folder that it unpacks to."""
    out = tmp_path_factory.mktemp("sdist")
    path = build(PROJECT, "sdist", out)
    with tarfile.open(path) as content:
        content.extractall(out, filter="data")
    return next(p for p in out.iterdir() if p.is_dir())


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """Return the wheel, made of the unpacked sdist as a packager does."""
    return build(sdist, "wheel", tmp_path_factory.mktemp("wheel"))


def files_under(folder, pattern="**/*.*"):
    """Names of the files that git would keep."""
    left_out = {"__pycache__", "_build", "generated", ".hypothesis", "figures"}
    return {
        str(path.relative_to(folder))
        for path in folder.glob(pattern)
        if path.is_file() and not left_out & set(path.parts) and path.suffix not in (".nbi", ".nbc")
    }


@pytest.mark.slow("other processes")
def test_the_sdist_holds_what_is_needed_to_build_and_to_test(sdist):
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Makefile", "PKG-INFO"):
        assert (sdist / name).is_file(), name
    for folder in ("pymc_tempering", "tests", "examples", "docs", "tools", "benchmarks"):
        assert not files_under(PROJECT / folder, "**/*.py") - files_under(sdist / folder), folder
    assert not list(sdist.rglob("__pycache__"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
    tops = {name.split("/")[0] for name in names}
    assert tops == {"pymc_tempering", f"pymc_tempering-{VERSION}.dist-info"}
    assert "pymc_tempering/py.typed" in names
    assert f"pymc_tempering-{VERSION}.dist-info/licenses/LICENSE" in names
    ours = {f"pymc_tempering/{name}" for name in files_under(PROJECT / "pymc_tempering")}
    assert {name for name in names if name.startswith("pymc_tempering/")} == ours


@pytest.mark.slow("other processes")
def test_the_wheel_works_in_a_fresh_environment(wheel, tmp_path):
    """One without pip, whose other libraries are those of this process."""
    venv.create(tmp_path / "fresh", with_pip=False, symlinks=sys.platform != "win32")
    scheme = sysconfig.get_paths("venv", {"base": str(tmp_path / "fresh")})
    with zipfile.ZipFile(wheel) as content:
        content.extractall(scheme["purelib"])
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    code = f"""
import sys
sys.path += {others!r}
import pymc_tempering
from importlib.metadata import version
print(pymc_tempering.__file__, version("pymc-tempering"), pymc_tempering.sample.__name__)
"""
    python = next(Path(scheme["scripts"]).glob("python*"))
    done = subprocess.run(
        [python, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(scheme["purelib"])
    assert done.stdout.split()[1:] == [VERSION, "sample"]


def bounds(lines):
    """`{name: bounds}` of requirements, however they are written."""
    found = (re.match(r"([\w.-]+)(?:\[[\w,-]+\])?\s*(.*)", line) for line in lines)
    return {match[1].lower(): match[2] for match in found}


def imports():
    """Libraries that the package imports, with the files."""
    for path in sorted((PROJECT / "pymc_tempering").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((alias.name.split(".")[0], path.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.split(".")[0], path.name


def test_every_library_that_is_imported_is_declared():
    declared = set(bounds([*ASKED, *(line for name in EXTRAS for line in EXTRAS[name])]))
    other_names = {"sklearn": "scikit-learn"}
    for name, file in set(imports()):
        if name not in sys.stdlib_module_names and name != "pymc_tempering":
            assert other_names.get(name, name.replace("_", "-")) in declared, f"{name} of {file}"


def test_private_parts_have_an_upper_bound():
    assert all("<" in bounds(ASKED)[name] for name in ("pymc", "pytensor"))


def test_the_oldest_versions_are_the_bounds():
    lines = list(tool("oldest_versions").oldest_versions(SETTINGS["project"]))
    assert "pymc==6.3.1" in lines
    assert {line.split("==")[0] for line in lines} >= set(bounds(ASKED))
    assert not {line for line in lines if line.startswith(("ruff", "sphinx"))}
    with pytest.raises(SystemExit, match="no lower bound"):
        next(tool("oldest_versions").oldest_versions(
            {"name": "x", "dependencies": ["numpy"], "optional-dependencies": {}}
        ))  # fmt: skip


def test_the_conda_recipe_asks_for_the_same():
    text = (PROJECT / "conda" / "recipe.yaml").read_text("utf-8")
    run = re.findall(r"^    - (\S+) (\S+)$", text.split("  run:")[1], re.M)
    own_names = {"pymc-base": "pymc"}  # without the compilers, which only PyTensor's C code needs
    found = {own_names.get(name, name): bound for name, bound in run}
    assert found.pop("python") == SETTINGS["project"]["requires-python"]
    assert found == bounds(ASKED)
    assert f'version: "{VERSION}"' in text


def test_pre_commit_takes_the_tools_of_lint():
    text = (PROJECT / ".pre-commit-config.yaml").read_text("utf-8")
    named = re.findall(r"additional_dependencies: (\[.*\])", text)
    wanted = {line for one in named for line in ast.literal_eval(one)}
    assert set(EXTRAS["lint"]) <= wanted
    assert ".venv" not in text


ADDRESS = "https://example.org/somebody/pymc_tempering"


def test_the_address_is_written_where_the_setting_says():
    writers = tool("address").WRITERS
    texts = {name: (PROJECT / name).read_text("utf-8") for name in writers}
    address = tool("address").address_in(texts["pyproject.toml"])
    for name, write in writers.items():
        assert write(texts[name], address) == texts[name], f"{name}: run tools/address.py"


def test_an_address_is_put_in_and_taken_out():
    writers = tool("address").WRITERS
    for name, write in writers.items():
        text = write((PROJECT / name).read_text("utf-8"), "")
        given = write(text, ADDRESS)
        assert ADDRESS in given
        assert write(given, ADDRESS) == given
        assert write(given, "") == text
    links = re.findall(
        r"\]\(([^)]+)\)", writers["README.md"]("# A\n\n[b](docs/design.md) [d](#e)", ADDRESS)
    )
    assert f"{ADDRESS}/blob/main/docs/design.md" in links
    assert {link for link in links if not link.startswith("https://")} == {"#e"}


@pytest.mark.parametrize("address", ["", ADDRESS])
def test_the_pages_link_the_address_that_the_setting_gives(tmp_path, address):
    for name in ("docs/conf.py", "tools/address.py", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        text = (PROJECT / name).read_text("utf-8")
        (tmp_path / name).write_text(re.sub(r'(?m)^address = ".*"', f'address = "{address}"', text))
    code = "import runpy, sys; settings = runpy.run_path(sys.argv[1])"
    code += "; print(settings['html_theme_options']['icon_links'])"
    command = [sys.executable, "-c", code, str(tmp_path / "docs" / "conf.py")]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [link["url"] for link in ast.literal_eval(told)] == [address] * bool(address)


def test_unraised_errors_are_found():
    if util.find_spec("coverage") is None:
        pytest.skip("coverage is not installed")
    source = (
        "def f(x):\n    if x:\n        raise ValueError(\n            'no'\n        )\n    raise\n"
    )
    assert [line for line, _ in tool("unraised").messages(source, {3, 6})] == [3]
    assert not list(tool("unraised").messages(source, {1, 2}))
