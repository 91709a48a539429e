"""Which narrow modes are missed with fewer particles in the passes, and with fewer scouts.

Rows of needles.py, as if a value of their density were dear: default runs with so many particles
and so many evaluations of scouts in a round.
"""

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from common import parser, save
from needles import ROWS, tempering
from threadpoolctl import threadpool_limits

from pymc_tempering.model.path import Path
from pymc_tempering.sampling import fit_reference, rounds, search, suspects
from pymc_tempering.sampling.effort import Effort

HARD = ("2d_100", "3d_30", "5d_5", "5d_5_axis", "4d_16_box", "8d_4_box")
"""Rows of which a search with few evaluations misses some."""

NUMBERS = (256, 10_000), (32, 10_000), (32, 6_000), (32, 2_000)
"""Particles, and evaluations of scouts: at least so many by default, and no more where the default
has fewer."""

FOUND = 0.25
"""Share of the needle's own share that its draws have in a run that has found it."""


def found_in(name: str, seed: int, particles: int, scouting: int) -> bool:
    """Whether a run with such numbers finds the narrow mode."""
    full = Effort()
    dear = replace(
        full, particles=particles, trial_particles=(32, 64), proposed=250, draws=250,
        scouting=scouting, looks=50,
    )  # fmt: skip
    with ExitStack() as stack:
        for module in (fit_reference, rounds, search, suspects):
            stack.enter_context(patch.object(module, "effort_of", lambda path: dear))
        stack.enter_context(patch.object(Path, "dear", True))
        stack.enter_context(patch.object(suspects, "SCOUT_WORK", 1))
        exactly = 0 if scouting < full.scouting else np.inf
        stack.enter_context(patch.object(suspects, "SCOUTED_WORK", exactly))
        return tempering(name, seed).share > FOUND * ROWS[name].share


def main() -> None:
    arguments = parser(__doc__, 25)
    arguments.add_argument("--rows", nargs="+", choices=list(ROWS), default=HARD)
    args = arguments.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    table: list[dict[str, Any]] = []
    seeds = range(args.seed, args.seed + args.repeats)
    for particles, scouting in NUMBERS:
        row: dict[str, Any] = {"particles": particles, "scouting": scouting}
        for name in args.rows:
            with threadpool_limits(1):
                row[name] = int(np.sum([found_in(name, s, particles, scouting) for s in seeds]))
        table.append(row)
        print(row, flush=True)
    settings = {
        "seeds": f"{seeds.start} to {seeds.stop - 1}",
        "rows": "runs that found the narrow mode; names are those of needles.py",
    }
    save("dear_search", table, args.out, "Narrow modes, by particles and scouts", settings)


if __name__ == "__main__":
    main()
