"""The evidence of four published regressions by many estimators, beside the published values.

Two runs a model. One as users make it (`pmt.sample`, from a fitted reference, which has few rungs)
gives RTS and MBAR, and the posterior draws for bridge sampling; AIS and HAIS are runs of their own.
Thermodynamic integration is for a fine ladder from the prior and has a run of its own, with
`rungs_per_barrier=30`: `ti_rb` by the trapezoid, `ti_corrected_rb` with second moments.
"""

import os
import time
import warnings
from collections.abc import Callable

from common import Row, parser, save
from published import PUBLISHED, Published

import pymc_tempering as pmt
from pymc_tempering.evidence import Evidence

MAX_MCSE = {"ais": 0.05, "hais": 0.05}
"""Largest mcse asked for, in nats; 0.02 of the others."""

TI_DRAWS = {"radiata": 1000, "pima": 4000}
"""Draws of each of four chains of the run from the prior."""


def evidences(published: Published, seed: int, draws: int, n_particles: int) -> list[tuple]:
    """Return (method, evidence, rungs, CPU seconds with the run that it needs)."""
    model, found = published.model, []

    def timed(name: str, run: Callable[[], Evidence], before: float = 0.0) -> None:
        began = time.process_time()
        evidence = run()
        seconds = before + time.process_time() - began
        rungs = evidence.betas.size if evidence.betas is not None else 0
        found.append((name, evidence, rungs, seconds))
        print(published.name, name, evidence.log_z, evidence.mcse, f"{seconds:.0f} s", flush=True)

    quiet = {"quiet": True, "progressbar": False}
    began = time.process_time()
    idata = pmt.sample(draws, model=model, random_seed=seed, **quiet)
    sampled = time.process_time() - began
    for method in ("rts", "mbar"):
        timed(method, lambda m=method: pmt.log_marginal_likelihood(idata, m), sampled)
    timed("bridge_sampling", lambda: pmt.bridge_sampling(idata, model, random_seed=seed), sampled)
    for name, function in (("ais", pmt.ais), ("hais", pmt.hais)):
        timed(name, lambda f=function: f(
            model, n_particles=n_particles, random_seed=seed, progressbar=False
        ))  # fmt: skip
    began = time.process_time()
    fine = pmt.sample(
        TI_DRAWS[published.name[:-1]], model=model, random_seed=seed, reference="prior",
        rungs_per_barrier=30.0, keep=None, **quiet,
    )  # fmt: skip
    sampled = time.process_time() - began
    for method in ("ti_rb", "ti_corrected_rb"):
        timed(method, lambda m=method: pmt.log_marginal_likelihood(fine, m), sampled)
    return found


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], 1)
    arguments.add_argument("--models", nargs="+", choices=list(PUBLISHED), default=list(PUBLISHED))
    arguments.add_argument("--draws", type=int, default=1000)
    arguments.add_argument("--particles", type=int, default=400)
    args = arguments.parse_args()
    settings = {
        "draws": str(args.draws), "particles of AIS and HAIS": str(args.particles),
        "seed": str(args.seed), "cores": str(os.cpu_count()),
        "z": "difference to the published value over both errors",
        "seconds": "CPU time, with that of the run that an estimator reads",
    }  # fmt: skip
    rows: list[Row] = []
    for name in args.models:
        published = PUBLISHED[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = evidences(published, args.seed, args.draws, args.particles)
        for method, evidence, rungs, seconds in found:
            off = evidence.log_z - published.log_evidence
            error = (evidence.mcse**2 + published.mcse**2) ** 0.5
            rows.append({
                "model": name, "method": method, "log Z": f"{evidence.log_z:.4f}",
                "mcse": f"{evidence.mcse:.4f}", "published": f"{published.log_evidence:.4f}",
                "z": f"{off / error:+.2f}",
                "met": "yes" if abs(off) < 3.0 * error and (
                    evidence.mcse <= MAX_MCSE.get(method, 0.02)) else "no",
                "rungs": str(rungs or "-"), "seconds": f"{seconds:.0f}",
            })  # fmt: skip
        save(
            "published_check", rows, args.out, "Published regressions by many estimators", settings
        )


if __name__ == "__main__":
    main()
