"""Reproduce figures of the papers at small size: docs/benchmarks/reproduction.md.

Each script runs with small settings; its table stands in the page beside that of the largest run,
which `benchmarks/results` keeps. What is said to hold is computed from the tables.

    python benchmarks reproduce
    python benchmarks reproduce --papers VT  # the other sections stay as they are
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.common import RESULTS, machine, read_table

HERE = Path(__file__).parent
PAGES = HERE.parents[1] / "docs" / "benchmarks"

type Table = list[dict[str, str]]


@dataclass(frozen=True)
class Piece:
    """One figure of a paper.

    Attributes
    ----------
    name : str
        Of the results.
    title : str
    small : tuple of str
        Small settings for its script.
    claim : str
    judge : callable
        From a table to whether the claim holds, and the numbers.
    why : str
    paper, script : str
        The paper, and the script if its name is not that of the results.
    pictures : tuple of str
        Names of pictures, if they are others than the results'.
    """

    name: str
    title: str
    small: tuple[str, ...]
    claim: str
    judge: Callable[[Table], str]
    why: str = ""
    paper: str = "RTS"
    script: str = ""
    pictures: tuple[str, ...] = ()


def says(holds: bool, text: str) -> str:
    """Say whether a claim holds, and by which numbers."""
    return f"{'**holds**' if holds else '**does not hold**'}: {text}"


def judge_rts_figure1(rows: Table) -> str:
    """Rao-Blackwell converges, counts do not."""
    last = {way: [r for r in rows if r["way"] == way][-1] for way in ("Rao-Blackwell", "counts")}
    rb, counts = (abs(float(last[way]["log Z off"])) for way in ("Rao-Blackwell", "counts"))
    text = (
        f"after {last['counts']['round']} rounds log Z-hat is {rb:.2f} nats off with "
        f"Rao-Blackwellization and {counts:.1f} by counts"
    )
    return says(rb < 2.0 and counts > 10.0, text)


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
                text += f"; {says(abs(off) < 0.2, f'the mean is {off:+.2f} off, 0.2 is wanted')}"
            if ais is not None:
                ratio = float(rts["RMSE"]) / float(ais["RMSE"])
                said = f"that is {ratio:.2f} times AIS at 10,000 ({_rmse(ais)}), 1.3 is wanted"
                text += f"; {says(ratio <= 1.3, said)}"
            found.append(text)
    return ". ".join(found)


def _rmse(row: dict[str, str]) -> str:
    low, high, value = (float(row[key]) for key in ("RMSE from", "RMSE to", "RMSE"))
    return f"RMSE {value:.2f} ({low:.2f} to {high:.2f}, {row['repeats']} runs)"


def judge_figure1(rows: Table) -> str:
    """Annealing and tempering find the better optimum from all starts."""
    found = {row["method"]: float(row["all found"].strip("%")) for row in rows}
    plain = found.pop("VI")
    text = f"both components from {plain:.0f} % of the starts by VI, "
    text += f"from at least {min(found.values()):.0f} % by AVI, VT and LVT"
    return says(min(found.values()) > plain, text)


def judge_factorial(rows: Table) -> str:
    """AVI and VT have higher ELBO at T = 1 than VI, and find more of the components."""
    elbo = {row["method"]: float(row["ELBO median"]) for row in rows}
    found = {row["method"]: row["all found"] for row in rows}
    best = max((v, name) for name, v in elbo.items() if name.startswith("AVI"))
    text = f"median ELBO {elbo['VI']:,.0f} by VI, {best[0]:,.0f} by {best[1]}, "
    text += f"{elbo['VT']:,.0f} by VT"
    text += f"; all eight found: {found['VI']}, {found[best[1]]}, {found['VT']}"
    return says(min(best[0], elbo["VT"]) > elbo["VI"], text)


def judge_patches(rows: Table) -> str:
    """VT comes close to the best linear schedule, and above VI."""

    def number(text: str) -> float:
        return float("inf") if text in ("-", "nan", "") else float(text)

    values = {row["method"]: (float(row["held out"]), number(row["its se"])) for row in rows}
    linear = max(value for name, value in values.items() if name.startswith("AVI lin"))
    found = []
    for name, other, words in (
        ("VI", values["VI"], "VT above VI"),
        ("linear", linear, "VT less the best linear schedule"),
    ):
        gain, error = values["VT"][0] - other[0], (values["VT"][1] ** 2 + other[1] ** 2) ** 0.5
        holds = error < float("inf") and gain > (2.0 if name == "VI" else -2.0) * error
        found.append(says(holds, f"{words}: {gain:+.3f} (error {error:.3f})"))
    return ". ".join(found)


PIECES = (
    Piece(
        "rts_figure1",
        "Figure 1: initial iterations",
        ("--updates", "5000", "--rounds", "10"),
        "The curve with Rao-Blackwellization comes to the exact one within some rounds of 50 "
        "sweeps from Z-hat = 1; that of counts does not.",
        judge_rts_figure1,
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
        "variational_figure1",
        "Figure 1: the annealed objective of two Gaussians",
        ("figure1", "--repeats", "5"),
        "At a high temperature the objective has one optimum; as it cools, the algorithm is led to "
        "the better of two.",
        judge_figure1,
        paper="VT",
        script="variational",
    ),
    Piece(
        "variational_patches",
        "Figure 3: held-out likelihood of the factorial mixture",
        ("patches", "--repeats", "2"),
        "VT finds a schedule that comes close to the best linear one.",
        judge_patches,
        "Patches of photographs: the Yale faces are not at hand.",
        paper="VT",
        script="variational",
    ),
    Piece(
        "variational_factorial",
        "Figures 3 and 4: the factorial mixture on toy data",
        ("factorial", "--repeats", "2", "--n-data", "1000"),
        "AVI and VT come to better optima at T = 1 than VI, and to cleaner components.",
        judge_factorial,
        paper="VT",
        script="variational",
        pictures=("variational_factorial", "variational_factorial_parts"),
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
        for picture in piece.pictures or (piece.name,):
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
    papers = ["RTS", "VT"]
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--page", type=Path, default=PAGES / "reproduction.md")
    arguments.add_argument("--papers", nargs="+", default=papers, choices=papers)
    args = arguments.parse_args()
    head = [
        "# Reproduction of the papers' figures",
        "",
        "Figures of Carlson, Stinson, Pakman & Paninski (2016, RTS), on",
        "[densities over arrays](../howto/arrays.md), and of Mandt et al. (2016, VT), see",
        "[variational tempering](variational.md), as far as the data at hand allow.",
        "`make reproduce` runs each script at small size and writes this page; the largest runs",
        "are those that `benchmarks/results` keeps, each with its settings below. What holds",
        "is computed from the tables. Log Z, log likelihoods and their errors: nats.",
        "",
    ]
    sections = sections_of(args.page)
    with tempfile.TemporaryDirectory() as folder:
        mine = [piece for piece in PIECES if piece.paper in args.papers]
        parts = [(piece, run_small(piece, Path(folder))) for piece in mine]
        for piece, took in parts:
            sections[_heading(piece)] = section(piece, Path(folder), took)
    body = [line for piece in PIECES for line in [*sections.get(_heading(piece), []), ""]]
    seconds = sum(
        int(n) for n in re.findall(r"^Small run \(.*, (\d+) seconds\)", "\n".join(body), re.M)
    )
    head += [f"The small runs of this page took {seconds} seconds on {machine()['machine']}.", ""]
    text = re.sub("\n{3,}", "\n\n", "\n".join([*head, *body]))
    args.page.write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
