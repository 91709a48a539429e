"""The evidence of four published regressions by many estimators, beside the published values.

Two runs a model. One as users make it (`pmt.sample`, from a fitted reference, which has few rungs)
gives RTS and MBAR, and the posterior draws for bridge sampling; AIS and HAIS are runs of their own.
Thermodynamic integration is for a fine ladder from the prior and has a run of its own, with
`rungs_per_barrier=30`: `ti_rb` by the trapezoid, `ti_corrected_rb` with second moments.

The table is written after each model, and rows of an earlier call that were not asked for are kept:

    python benchmarks/published_check.py --models radiata1 radiata2 --methods rts bridge_sampling
"""

import os
import time
import warnings
from collections.abc import Iterator, Sequence

from common import Row, parser, read_table, save
from published import PUBLISHED, Published

import pymc_tempering as pmt
from pymc_tempering.evidence import Evidence

BY_RUN, BY_TI = ("rts", "mbar"), ("ti_rb", "ti_corrected_rb")
OWN = {"ais": pmt.ais, "hais": pmt.annealed.hais}
METHODS = (*BY_RUN, "bridge_sampling", *OWN, *BY_TI)

MAX_MCSE = {"ais": 0.05, "hais": 0.05}
"""Largest mcse asked for, in nats; 0.02 of the others."""

TI_DRAWS = {"radiata": 1500, "pima": 6000}
"""Draws of each of four chains of the run from the prior."""


def evidences(
    published: Published, methods: Sequence[str], seed: int, draws: int, n_particles: int
) -> Iterator[tuple[str, Evidence, float]]:
    """Yield method, evidence, and CPU seconds with those of the run that the method reads."""
    model, quiet = published.model, {"quiet": True, "progressbar": False}
    began = time.process_time()

    def seconds(before: float = 0.0) -> float:
        return before + time.process_time() - began

    if set(methods) & {*BY_RUN, "bridge_sampling"}:
        idata = pmt.sample(draws, model=model, random_seed=seed, **quiet)
        sampled = seconds()
        for method in [name for name in methods if name in BY_RUN]:
            began = time.process_time()
            yield method, pmt.log_marginal_likelihood(idata, method), seconds(sampled)
        if "bridge_sampling" in methods:
            began = time.process_time()
            found = pmt.bridge_sampling(idata, model, random_seed=seed)
            yield "bridge_sampling", found, seconds(sampled)
    for method in [name for name in methods if name in OWN]:
        began = time.process_time()
        found = OWN[method](model, n_particles=n_particles, random_seed=seed, progressbar=False)
        yield method, found, seconds()
    if set(methods) & set(BY_TI):
        began = time.process_time()
        fine = pmt.sample(
            TI_DRAWS[published.name[:-1]], model=model, random_seed=seed, reference="prior",
            rungs_per_barrier=30.0, keep=None, **quiet,
        )  # fmt: skip
        sampled = seconds()
        for method in [name for name in methods if name in BY_TI]:
            began = time.process_time()
            yield method, pmt.log_marginal_likelihood(fine, method), seconds(sampled)


def make_row(published: Published, method: str, evidence: Evidence, seconds: float) -> Row:
    """Compare an evidence with the published one, which has an error of its own."""
    off = evidence.log_z - published.log_evidence
    error = (evidence.mcse**2 + published.mcse**2) ** 0.5
    met = abs(off) < 3.0 * error and evidence.mcse <= MAX_MCSE.get(method, 0.02)
    return {
        "model": published.name, "method": method, "log Z": f"{evidence.log_z:.4f}",
        "mcse": f"{evidence.mcse:.4f}", "published": f"{published.log_evidence:.4f}",
        "z": f"{off / error:+.2f}", "met": "yes" if met else "no",
        "rungs": str(evidence.betas.size or "-"), "seconds": f"{seconds:.0f}",
    }  # fmt: skip


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], 1)
    arguments.add_argument("--models", nargs="+", choices=list(PUBLISHED), default=list(PUBLISHED))
    arguments.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments.add_argument("--draws", type=int, default=1000)
    arguments.add_argument("--particles", type=int, default=400)
    args = arguments.parse_args()
    settings = {
        "draws": str(args.draws), "particles of AIS and HAIS": str(args.particles),
        "seed": str(args.seed), "cores": str(os.cpu_count()),
        "z": "difference to the published value over both errors",
        "met": "z below 3 and an mcse of at most 0.02, 0.05 of AIS and HAIS",
        "seconds": "CPU time, with that of the run that an estimator reads",
    }  # fmt: skip
    rows: dict[tuple[str, str], Row] = {}
    earlier = args.out / "published_check.csv"
    if earlier.exists():
        rows = {(row["model"], row["method"]): dict(row) for row in read_table(earlier)}
    for name in args.models:
        published = PUBLISHED[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for found in evidences(published, args.methods, args.seed, args.draws, args.particles):
                rows[name, found[0]] = make_row(published, *found)
                print(rows[name, found[0]], flush=True)
        order = [rows[key] for key in ((m, e) for m in PUBLISHED for e in METHODS) if key in rows]
        save("published_check", order, args.out, "Published regressions by many estimators",
             settings)  # fmt: skip


if __name__ == "__main__":
    main()
