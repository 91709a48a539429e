"""Reproduce the figures of the three papers at small size: docs/benchmarks/reproduction.md.

Each script runs with small settings; its table stands in the page beside that of the largest run,
which `benchmarks/results` keeps. What is said to hold is computed from the tables.

    python benchmarks/reproduce.py
    python benchmarks/reproduce.py --papers HAIS VT  # the other sections stay as they are
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
from common import RESULTS, machine, read_table
from reproduce_piece import Piece, Table, says as _says
from reproduce_pieces_hais import PIECES as HAIS_PIECES
from reproduce_pieces_vt import PIECES as VT_PIECES

HERE = Path(__file__).parent
PAGES = HERE.parent / "docs" / "benchmarks"


def judge_speed(rows: Table) -> str:
    """At most 1.5 times the bare sweep."""
    ratio = float(np.median([float(row["ratio"]) for row in rows]))
    return _says(ratio <= 1.5, f"the median ratio is {ratio:.2f}, at most 1.5 is wanted")


def judge_figure1(rows: Table) -> str:
    """Rao-Blackwell converges, counts do not."""
    last = {way: [r for r in rows if r["way"] == way][-1] for way in ("Rao-Blackwell", "counts")}
    rb, counts = (abs(float(last[way]["log Z off"])) for way in ("Rao-Blackwell", "counts"))
    text = (
        f"after {last['counts']['round']} rounds log Z-hat is {rb:.2f} nats off with "
        f"Rao-Blackwellization and {counts:.1f} by counts"
    )
    return _says(rb < 2.0 and counts > 10.0, text)


def judge_figure3(rows: Table) -> str:
    """RTS at 10^3 sweeps: near the truth, and as good as AIS at 10^4."""
    found = []
    for name in dict.fromkeys(row["machine"] for row in rows):
        own = {(r["method"], int(r["sweeps"])): r for r in rows if r["machine"] == name}
        ais = own.get(("AIS", 10000))
        for method in ("RTS", "RTS, r = exp(2 beta)"):
            rts = own.get((method, 1000))
            if rts is None:
                continue
            text = f"{name}: {method}, at 1,000 sweeps: mean {float(rts['mean']):.2f}, {_rmse(rts)}"
            if "784 x 500 (rbm" in name:
                off = float(rts["mean"]) - 451.27
                text += f"; {_says(abs(off) < 0.2, f'the mean is {off:+.2f} off, 0.2 is wanted')}"
            if ais is not None:
                ratio = float(rts["RMSE"]) / float(ais["RMSE"])
                said = f"that is {ratio:.2f} times AIS at 10,000 ({_rmse(ais)}), 1.3 is wanted"
                text += f"; {_says(ratio <= 1.3, said)}"
            found.append(text)
    return ". ".join(found)


def judge_figure4(rows: Table) -> str:
    """RTS with 100, 300 and 1,000 rungs within a factor 1.5."""
    rmse = {int(r["rungs"]): float(r["RMSE"]) for r in rows if r["estimator"] == "RTS"}
    many = [rmse[n] for n in (100, 300, 1000) if n in rmse]
    if len(many) < 2:
        return "too few numbers of rungs to say"
    few = ", ".join(f"{value:.2f} with {n} rungs" for n, value in rmse.items() if n < 100)
    ratio = max(many) / min(many)
    said = f"RMSE with 100 rungs and more is {min(many):.2f} to {max(many):.2f}, a factor "
    return _says(ratio <= 1.5, f"{said}{ratio:.2f}; 1.5 is wanted") + f". Below: {few}"


def judge_figure5(rows: Table) -> str:
    """Tracked log Z within half a nat of AIS."""
    late = [abs(float(row["difference"])) for row in rows[max(1, len(rows) // 10) :]]
    mean = float(np.mean(late))
    said = f"mean absolute difference to AIS after the first tenth {mean:.2f} nats; 0.5 is wanted"
    return _says(mean <= 0.5, said)


def _rmse(row: dict[str, str]) -> str:
    low, high, value = (float(row[key]) for key in ("RMSE from", "RMSE to", "RMSE"))
    return f"RMSE {value:.2f} ({low:.2f} to {high:.2f}, {row['repeats']} runs)"


PIECES = (
    Piece(
        "rts_speed",
        "Speed",
        ("--sweeps", "200", "--repeats", "3"),
        "Not of the paper: sweeps of 100 chains with RTS statistics beside the bare arithmetic.",
        judge_speed,
        picture=False,
    ),
    Piece(
        "rts_figure1",
        "Figure 1: initial iterations",
        ("--updates", "5000", "--rounds", "10"),
        "The curve with Rao-Blackwellization comes to the exact one within some rounds of 50 "
        "sweeps from Z-hat = 1; that of counts does not.",
        judge_figure1,
    ),
    Piece(
        "rts_figure3",
        "Figure 3: RTS, AIS and RAISE against sweeps",
        ("--repeats", "3", "--ais-repeats", "2", "--long-repeats", "0", "--longest", "1000",
         "--updates", "2000"),
        "The bias of RTS falls faster than that of AIS and RAISE, and AIS needs ten times the "
        "sweeps for the same RMSE.",
        judge_figure3,
        "RTS has less bias than AIS at 1,000 sweeps and less than half of its RMSE, as the paper "
        "finds. Nearly all of its error comes from the last rungs: states at beta = 1 have modes "
        "that take hundreds of sweeps to leave. The weights of the paper's section 4.4, "
        "exp(2 beta), put more chains there, and then AIS does need ten times the sweeps on the "
        "large machine; with even weights it needs some five times. On 784 x 100 AIS at 10,000 is "
        "ahead of both. The warm-up costs as much as some 3,000 sweeps, which are not counted, as "
        "the paper does not count its own. Beyond 1,000 sweeps RTS has 4 runs and RAISE 2.",
    ),
    Piece(
        "rts_figure4",
        "Figure 4: number of rungs",
        ("--rungs", "10", "30", "100", "--sweeps", "300", "--repeats", "2"),
        "RTS does not depend on the number of rungs once they are enough.",
        judge_figure4,
        "The path is 13 units of the barrier long, so that 10 rungs are too few. The paper draws "
        "its samples from one long run; each of these 30 runs has its own start. MBAR is solved "
        "for 10 and 30 rungs.",
    ),
    Piece(
        "rts_figure5",
        "Figure 5: tracking while training",
        ("--updates", "100", "--checkpoints", "10", "--ais-rungs", "1000"),
        "Tracked log likelihoods follow those of AIS.",
        judge_figure5,
        "Fewer chains, sweeps and updates than the paper's 2,000 x 25 and 8,000, and plain "
        "gradient ascent in place of RMSspectral.",
    ),
)  # fmt: skip


def run_small(piece: Piece, out: Path) -> float:
    """Run a script at small size; the seconds that it took."""
    begin = perf_counter()
    script = HERE / f"{piece.script or piece.name}.py"
    subprocess.run([sys.executable, script, *piece.small, "--out", out], check=True)
    return perf_counter() - begin


def _heading(piece: Piece) -> str:
    return f"## {piece.paper}, {piece.title}"


def section(piece: Piece, small: Path, seconds: float) -> list[str]:
    """One figure's part of the page."""
    lines = [_heading(piece), "", piece.claim, ""]
    largest = RESULTS / f"{piece.name}.csv"
    if largest.exists():
        lines += [f"Largest run: {piece.judge(read_table(largest))}.", ""]
        for picture in piece.pictures or ((piece.name,) if piece.picture else ()):
            name = f"{picture}.png"
            (PAGES / "reproduction").mkdir(exist_ok=True)
            shutil.copy(RESULTS / name, PAGES / "reproduction" / name)
            lines += [f"![{piece.title}](reproduction/{name})", ""]
        lines += _body(largest.with_suffix(".md"))
    lines += [piece.why, ""] if piece.why else []
    said = piece.judge(read_table(small / f"{piece.name}.csv"))
    options = " ".join(piece.small)
    command = f"{piece.script or piece.name}.py {options}"
    lines += [f"Small run (`{command}`, {seconds:.0f} seconds): {said}.", ""]
    return lines + _body(small / f"{piece.name}.md")


def _body(path: Path) -> list[str]:
    """A table's file without its title, and with headings below those of the page."""
    return [re.sub("^##", "###", line) for line in path.read_text().strip().splitlines()[2:]] + [""]


def sections_of(page: Path) -> dict[str, list[str]]:
    """Sections of a page that is there, by their headings."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in page.read_text().splitlines() if page.exists() else []:
        if line.startswith("## "):
            lines = found.setdefault(line, [])
        lines.append(line)
    return found


def main() -> None:
    papers = ["RTS", "HAIS", "VT"]
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--page", type=Path, default=PAGES / "reproduction.md")
    arguments.add_argument("--papers", nargs="+", default=papers, choices=papers)
    args = arguments.parse_args()
    head = [
        "# Reproduction of the papers' figures",
        "",
        "The figures of Carlson, Stinson, Pakman & Paninski (2016, RTS), on",
        "[densities over arrays](../howto/arrays.md), of Sohl-Dickstein & Culpepper (2011, HAIS),",
        "see [annealed methods](annealed.md), and of Mandt et al. (2016, VT), see",
        "[variational tempering](variational.md), as far as the data at hand allow.",
        "`make reproduce` runs each script at small size and writes this page; the largest runs",
        "are those that `benchmarks/results` keeps, each with its settings below. What holds",
        "is computed from the tables. Log Z, log likelihoods and their errors: nats.",
        "",
    ]
    pieces = (*PIECES, *HAIS_PIECES, *VT_PIECES)
    sections = sections_of(args.page)
    with tempfile.TemporaryDirectory() as folder:
        mine = [piece for piece in pieces if piece.paper in args.papers]
        parts = [(piece, run_small(piece, Path(folder))) for piece in mine]
        for piece, took in parts:
            sections[_heading(piece)] = section(piece, Path(folder), took)
    body = [line for piece in pieces for line in [*sections.get(_heading(piece), []), ""]]
    seconds = sum(
        int(n) for n in re.findall(r"^Small run \(.*, (\d+) seconds\)", "\n".join(body), re.M)
    )
    head += [f"The small runs of this page took {seconds} seconds on {machine()['machine']}.", ""]
    text = re.sub("\n{3,}", "\n\n", "\n".join([*head, *body]))
    args.page.write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
