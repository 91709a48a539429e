"""The evidence of four published regressions by six estimators, beside the published values."""

import os
import time
import warnings

from common import Row, parser, save
from published import PUBLISHED

import pymc_tempering as pmt

METHODS = ("rts", "mbar", "ti_rb", "ais", "hais", "bridge_sampling")


def main() -> None:
    arguments = parser(__doc__, 1)
    arguments.add_argument("--draws", type=int, default=4000)
    args = arguments.parse_args()
    rows: list[Row] = []
    for name, build in PUBLISHED.items():
        published = build()
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Many rungs, for the sake of thermodynamic integration.
            idata = pmt.sample(
                args.draws, model=published.model, random_seed=args.seed,
                rungs_per_barrier=80.0, quiet=True,
            )  # fmt: skip
            checked = pmt.cross_check(idata, model=published.model, methods=METHODS,
                                      random_seed=args.seed)  # fmt: skip
        for method, row in checked.table.iterrows():
            rows.append({
                "model": name, "method": method, "log Z": float(row["log_z"]),
                "mcse": float(row["mcse"]), "published": published.log_evidence,
                "z": float((row["log_z"] - published.log_evidence) / row["mcse"]),
            })  # fmt: skip
            print(rows[-1], flush=True)
        print(name, checked.verdict, f"{time.perf_counter() - started:.0f} s", flush=True)
    settings = {"draws": str(args.draws), "seed": str(args.seed), "cores": str(os.cpu_count())}
    save("published_check", rows, args.out, "Published regressions by six estimators", settings)


if __name__ == "__main__":
    main()
