"""Run models of many kinds by `pmt.sample`, each beside its exact evidence where it is known.

The models are those of tests/support/model_kinds.py and tests/sampling/test_discrete_models.py, and
some of the package's test systems. Bambi's models join them where Bambi is installed.
"""

import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import arviz as az
import numpy as np
from common import Row, parser, save

import pymc_tempering as pmt
from pymc_tempering import testsystems

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from sampling.test_discrete_models import MODELS as DISCRETE
from support.model_kinds import MODEL_KINDS


def bambi_model() -> tuple:
    """A varying intercept, as Bambi builds it; its evidence is not known."""
    import bambi
    import pandas as pd

    rng = np.random.default_rng(0)
    group = np.repeat(list("abcd"), 10)
    x = rng.normal(size=40)
    y = 1.0 + 0.5 * x + np.repeat(rng.normal(size=4), 10) + 0.5 * rng.normal(size=40)
    data = pd.DataFrame({"y": y, "x": x, "group": group})
    model = bambi.Model("y ~ x + (1 | group)", data)
    model.build()
    return model.backend.model, None, {}


def known(factory: Callable) -> Callable[[], tuple]:
    def build() -> tuple:
        system = factory()
        return system.model, system.log_evidence, {}

    return build


SYSTEMS = {
    name: known(getattr(testsystems, name))
    for name in (
        "conjugate_regression", "hierarchical_normal", "eight_schools", "logistic_regression",
        "gaussian_mixture", "gaussian_shells", "twenty_modes", "unidentifiable_binomial",
    )
}  # fmt: skip
ZOO: dict[str, Callable[[], tuple]] = {
    **MODEL_KINDS,
    **{name: build for name, (build, _) in DISCRETE.items()},
    **SYSTEMS,
    "bambi": bambi_model,
}


def run(name: str, seed: int, draws: int) -> Row:
    """Sample one model and compare."""
    model, log_z, _ = ZOO[name]()
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pmt.TemperingWarning)
        idata = pmt.sample(draws, model=model, random_seed=seed, quiet=True, progressbar=False)
        evidence = pmt.log_marginal_likelihood(idata)
    seconds = time.perf_counter() - started
    rhat = max(float(values.max()) for values in az.rhat(idata.posterior).data_vars.values())
    attrs = idata["tempering"].attrs
    truth = np.nan if log_z is None else float(log_z)
    return {
        "model": name,
        "kernel": attrs["kernel"],
        "reference": attrs["reference"],
        "log Z": evidence.log_z,
        "mcse": evidence.mcse,
        "truth": truth,
        "z": (evidence.log_z - truth) / evidence.mcse,
        "R-hat": rhat,
        "verdict": evidence.verdict,
        "warnings": len({str(w.message) for w in caught}),
        "seconds": seconds,
    }


def main() -> None:
    arguments = parser(__doc__, 1)
    arguments.add_argument("--draws", type=int, default=1000)
    arguments.add_argument("--only", nargs="+", choices=list(ZOO), default=list(ZOO))
    args = arguments.parse_args()
    rows, failed = [], []
    for name in args.only:
        try:
            rows.append(run(name, args.seed, args.draws))
            print(rows[-1], flush=True)
        except ImportError as error:
            print(f"{name}: left out, {error}", flush=True)
        except Exception:
            failed.append(name)
            print(f"{name} failed", flush=True)
            traceback.print_exc()
    off = [str(row["model"]) for row in rows if abs(float(row["z"])) > 4]
    settings = {
        "settings": f"pmt.sample({args.draws}), four chains, seed {args.seed}; seconds with the "
        "compilation of the model",
        "failed": ", ".join(failed) or "none",
        "off by more than 4 mcse": ", ".join(off) or "none",
    }
    save("model_zoo", rows, args.out, f"{len(rows)} models of many kinds", settings)


if __name__ == "__main__":
    main()
