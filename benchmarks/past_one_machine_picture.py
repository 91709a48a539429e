"""The picture of many worker threads and a task that sleeps, from the table that the runs left.

`python past_one_machine_picture.py` draws it again, without any run.
"""

import argparse
import csv
from pathlib import Path

import matplotlib as mpl
import numpy as np
from common import RESULTS

NAME = "past_one_machine_threads"
BLUE, ORANGE, GRAY = "#3b6ea5", "#d98032", "0.45"


def read(path: Path) -> dict[str, np.ndarray]:
    """Columns of a table, by name."""
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def picture(out: Path) -> None:
    """Draw throughput and overhead against the number of threads."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    table = read(out / f"{NAME}.csv")
    n, tasks, ideal = table["threads"], table["tasks"], table["ideal"]
    bare = 1000.0 * (table["Dask alone"] - ideal) / tasks
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8))
    left.plot(n, tasks / ideal, color=GRAY, ls="--", label="no overhead")
    left.plot(n, tasks / table["seconds"], color=BLUE, marker="o", label="send_chunks")
    left.plot(n, tasks / table["Dask alone"], color=ORANGE, marker="s", label="Dask alone")
    for at, share, y in zip(n, table["of ideal"], tasks / table["seconds"], strict=True):
        left.annotate(f"{share:.0%}", (at, y), (4, -12), textcoords="offset points", fontsize=8)
    left.set(xscale="log", yscale="log", xlabel="worker threads", ylabel="tasks a second")
    left.set_ylim(bottom=1.0)
    left.set_title("tasks that sleep for half a second,\nand the share of the ideal", fontsize=10)
    left.legend(frameon=False, fontsize=9)
    right.plot(n, table["ms beyond, a task"], color=BLUE, marker="o", label="send_chunks")
    right.plot(n, bare, color=ORANGE, marker="s", label="Dask alone")
    most = 1000.0 / table["ms beyond, a task"][-1]
    right.set(xscale="log", xlabel="worker threads", ylabel="ms beyond the sleep, a task")
    right.set_ylim(bottom=0.0)
    right.set_title(
        f"one process sends {most:,.0f} tasks a second at most;\n"
        f"a small model is {table['bytes of a small model'][-1]:,.0f} bytes", fontsize=10,
    )  # fmt: skip
    for axes in (left, right):
        axes.set_xticks(n, [f"{each:.0f}" for each in n])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(out / f"{NAME}.png", dpi=120)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, default=RESULTS, help="folder of the table")
    picture(arguments.parse_args().out)


if __name__ == "__main__":
    main()
