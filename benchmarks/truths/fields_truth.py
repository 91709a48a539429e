"""Truths of the models with a latent field, of both halves: found, and kept in a file.

Run by itself, the file fills in results/fields_truths.csv.
"""

import argparse
import csv
from itertools import groupby, product
from pathlib import Path
from time import process_time

from benchmarks.fresh_runs import RESULTS
from benchmarks.truths.fields_first_truth import FIRST_TRUTHS, Truth
from benchmarks.truths.fields_second_truth import SECOND_TRUTHS

TRUTHS = FIRST_TRUTHS | SECOND_TRUTHS
"""By the kinds of models; the lattice has none."""
COLUMNS = ("kind", "dim", "seed", "log_z", "error")
STORED = RESULTS / "fields_truths.csv"


def stored(path: Path = STORED) -> dict[tuple[str, int, int], Truth]:
    """Truths that were found before."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {
            (row["kind"], int(row["dim"]), int(row["seed"])): (
                float(row["log_z"]), float(row["error"])
            )
            for row in csv.DictReader(file)
        }  # fmt: skip


def store(truths: dict[tuple[str, int, int], Truth], path: Path = STORED) -> None:
    """Write all truths, in order."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for key in sorted(truths):
            log_z, error = truths[key]
            writer.writerow([*key, f"{log_z:.6f}", f"{error:.1e}"])


def main() -> None:
    """Find the truths that are asked for and not stored."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=TRUTHS, default=list(TRUTHS))
    parser.add_argument("--dims", type=int, nargs="+", default=[200, 500, 1000, 2000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--out", type=Path, default=STORED)
    args = parser.parse_args()
    jobs = [
        job for job in product(args.dims, args.kinds, args.seeds) if job[0] < 2000 or job[2] < 4
    ]
    for (dim, kind), group in groupby(jobs, key=lambda job: job[:2]):
        for seed in (job[2] for job in group):
            known = stored(args.out)
            if (kind, dim, seed) in known:
                continue
            began = process_time()
            found = TRUTHS[kind](dim, seed)
            store(known | {(kind, dim, seed): found}, args.out)
            print(kind, dim, seed, found, f"{process_time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
