"""From estimates to a cross-check: judged, put into words, and in the order of reading."""

from collections.abc import Mapping, Sequence

import numpy as np

from pymc_tempering.crosscheck.draw_check import DrawCheck
from pymc_tempering.crosscheck.entry import Entry
from pymc_tempering.crosscheck.judge import judge
from pymc_tempering.crosscheck.store import CrossCheck, make_table
from pymc_tempering.crosscheck.words import put_in_words
from pymc_tempering.evidence.estimators import OWN, POSTERIOR, RUN

ORDER = {OWN: 0, POSTERIOR: 1, RUN: 2}
"""Place in the table of estimates by their draws: those first that are independent of the run."""


def assemble(
    entries: Sequence[Entry],
    seconds: Sequence[float],
    left_out: Mapping[str, str],
    draws: DrawCheck | None = None,
) -> CrossCheck:
    """Judge estimates and put everything into a ``CrossCheck``.

    The reference comes first, then what is independent of it.
    """
    found = judge(entries, draws)
    pairs = sorted(
        zip(entries, seconds, strict=True),
        key=lambda pair: (pair[0].method != found.reference, ORDER[pair[0].draws]),
    )
    entries, seconds = [entry for entry, _ in pairs], [took for _, took in pairs]
    evidence = [entry.evidence for entry in entries]
    # Reading a run needs no new evaluations.
    evaluations = [
        float(0 if entry.draws == RUN else np.nan)
        if entry.evidence.n_evaluations is None
        else float(entry.evidence.n_evaluations)
        for entry in entries
    ]
    table = make_table(
        [entry.method for entry in entries],
        {
            "log_z": [e.log_z for e in evidence],
            "mcse": [e.mcse for e in evidence],
            "bias_direction": [e.bias_direction for e in evidence],
            "n_evaluations": evaluations,
            "seconds": list(seconds),
            "agrees": [found.agrees[entry.method] for entry in entries],
            "draws": [entry.draws for entry in entries],
            "verdict": [e.verdict for e in evidence],
            "agreement": [found.agreement[entry.method] for entry in entries],
        },
    )
    return CrossCheck(
        table=table,
        verdict=found.verdict,
        words=put_in_words(entries, found, left_out),
        believe=found.believe,
        reference=found.reference,
        left_out=dict(left_out),
        warnings=tuple(f"{e.method}: {text}" for e in entries for text in e.evidence.warnings),
        draws=draws,
    )
