"""Run this package beside the newest of each package around PyMC, and print a table.

    python tools/neighbors.py                   # all of them, an hour on two cores
    python tools/neighbors.py nutpie bambi --folder ~/environments

Each has an environment of its own, made anew, which pip fills with this package and that one. In it
one small model is sampled by `pmt.sample`, and where the neighbor has draws of that model, the
evidence of these stands beside. A neighbor that does not fit costs a row of the table, and no more.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]

SECONDS = 900  # longest time of an installation, and of a run
WITH = {"jax": "numpyro"}  # with both of them ArviZ puts off the import of JAX
NEVER = "torch<0\n"
"""Constraints of pip: PyTorch from PyPI brings gigabytes for graphics cards."""

BEGINNING = """
import json, warnings
import arviz
import numpy as np, pymc as pm
from importlib.metadata import version
import pymc_tempering as pmt

warnings.simplefilter("ignore")
rng = np.random.default_rng(1)
x = rng.normal(size=30)
y = 0.5 + x + rng.normal(size=30)
found, refused = {}, ""


def regression():
    with pm.Model() as model:
        slope, sigma = pm.Normal("slope", 0, 2), pm.HalfNormal("sigma", 2)
        pm.Normal("y", slope * x, sigma, observed=y)
    return model


def take(model, **draws):
    run = pmt.sample(model=model, cores=2, random_seed=1, quiet=True)
    found["pmt.sample"] = pmt.log_marginal_likelihood(run)
    for name, idata in draws.items():
        evidence = pmt.log_marginal_likelihood(idata, model, random_seed=1, quiet=True)
        found[evidence.method + " of " + name] = evidence
"""

END = """
names = ("pymc", "pytensor", *OTHERS)
print(json.dumps({
    "versions": {name: version(name) for name in names},
    "found": {name: (e.log_z, e.mcse, e.verdict) for name, e in found.items()},
    "refused": refused,
}))
"""

NEIGHBORS = {
    "jax": "take(regression())",
    "nutpie": """
import nutpie
model = regression()
take(model, nutpie=nutpie.sample(nutpie.compile_pymc_model(model), progress_bar=False, seed=1))
""",
    "numpyro": """
model = regression()
with model:
    idata = pm.sample(nuts_sampler="numpyro", chains=4, progressbar=False, random_seed=1)
take(model, numpyro=idata)
""",
    "bambi": """
import bambi, pandas
model = bambi.Model("y ~ x", pandas.DataFrame({"x": x, "y": y}))
model.build()
take(model, bambi=model.fit(chains=4, cores=2, progressbar=False, random_seed=1))
""",
    "pymc-extras": """
import pymc_extras
model = regression()
with model:
    take(model, laplace=pymc_extras.fit_laplace(draws=2000, progressbar=False, random_seed=1))
""",
    "pymc-marketing": """
import pandas
from pymc_marketing.mmm import GeometricAdstock, LogisticSaturation, MMM
table = pandas.DataFrame({"day": pandas.date_range("2024-01-01", periods=30), "tv": x**2})
mmm = MMM(date_column="day", channel_columns=["tv"], adstock=GeometricAdstock(l_max=3),
          saturation=LogisticSaturation(), target_column="y")
y = pandas.Series(y - y.min() + 1, name="y")
mmm.build_model(table, y)
with mmm.model:
    idata = pm.sample(chains=4, cores=2, progressbar=False, random_seed=1, target_accept=0.95)
take(mmm.model, mmm=idata)
""",
    "hssm": """
import hssm
data = hssm.simulate_data(model="ddm", theta=[0.5, 1.5, 0.5, 0.3], size=100, random_state=1)
model = hssm.HSSM(data=data, loglik_kind="analytical")
with model.pymc_model:
    idata = pm.sample(chains=4, cores=2, progressbar=False, random_seed=1)
take(model.pymc_model, hssm=idata)
""",
    "pymc-bart": """
import pymc_bart
with pm.Model() as model:
    pm.Normal("y", pymc_bart.BART("mu", x[:, None], y, m=5), 1.0, observed=y)
try:
    take(model)
except pmt.exceptions.ModelError as error:
    refused = str(error)
""",
}
"""Code that runs in each environment, between BEGINNING and END."""


def said_last(process: subprocess.CompletedProcess) -> str:
    """Last line that a process wrote, of its errors if there are any."""
    lines = (process.stderr.strip() or process.stdout.strip()).splitlines()
    return lines[-1][:200] if lines else f"exit status {process.returncode}"


def run_apart(command: list[str]) -> subprocess.CompletedProcess:
    """Run a command outside of the checkout, and keep what it writes."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, cwd=tempfile.gettempdir()
    )


def try_beside(name: str, folder: Path) -> tuple[str, str]:
    """Install a neighbor and this package in a fresh environment, and run its model."""
    home = folder / name
    venv.create(home, with_pip=True, clear=True)
    python = str(home / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    constraints = home / "constraints.txt"
    constraints.write_text(NEVER)
    wanted = ["-c", str(constraints), str(PROJECT), name, WITH.get(name, name)]
    try:
        installed = run_apart([python, "-m", "pip", "install", "-q", *wanted])
        if installed.returncode:
            return "", f"not installed: {said_last(installed)}"
        code = BEGINNING + NEIGHBORS[name] + f"\nOTHERS = [{name!r}]\n" + END
        ran = run_apart([python, "-I", "-c", code])
    except subprocess.TimeoutExpired as error:
        return "", f"no answer in {error.timeout:.0f} seconds"
    if ran.returncode:
        return "", f"failed: {said_last(ran)}"
    answer = json.loads(ran.stdout.strip().splitlines()[-1])
    versions = ", ".join(f"{which} {number}" for which, number in answer["versions"].items())
    return versions, judged(answer)


def judged(answer: dict) -> str:
    """Say in a line what came out, and whether estimates of one evidence agree."""
    if answer["refused"]:
        return f"refused: {answer['refused']}"
    estimates = answer["found"]
    text = "; ".join(f"{k} {z:.3f} ± {e:.3f} ({v})" for k, (z, e, v) in estimates.items())
    (first, error, _), *others = estimates.values()
    errors = [abs(z - first) / (e**2 + error**2) ** 0.5 for z, e, _ in others]
    apart = f": {max(errors):.1f} standard errors apart" if errors else ""
    return text + apart + (", TOO FAR" if max(errors, default=0.0) > 4 else "")


def table(names: list[str], folder: Path) -> Iterator[str]:
    """Rows of the table, each as soon as it is known."""
    yield "| neighbor | versions | result |"
    yield "|---|---|---|"
    for name in names:
        yield f"| {name} | {' | '.join(try_beside(name, folder))} |"


def main() -> None:
    """Read the command line, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NEIGHBORS)}")
    parser.add_argument(
        "--folder", type=Path, help="where environments are kept (default: nowhere)"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(NEIGHBORS):
        parser.error(
            f"no neighbors: {', '.join(sorted(unknown))}; there are {', '.join(NEIGHBORS)}"
        )
    with tempfile.TemporaryDirectory() as scratch:
        for line in table(options.names or [*NEIGHBORS], options.folder or Path(scratch)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
