"""Pictures of `variational_mixtures.py`: where the starts end, and q(T) over the iterations."""

from pathlib import Path

import numpy as np

COLORS = ("#7F7F7F", "#0072B2", "#D55E00", "#009E73")


def panels(count: int, columns: int, size: tuple[float, float]):  # type: ignore[no-untyped-def]
    """Figure and its axes, as many as there are models."""
    import matplotlib.pyplot as plt

    columns = min(columns, count)
    rows = -(-count // columns)
    fig, axes = plt.subplots(
        rows, columns, figsize=(size[0] * columns, size[1] * rows), layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for ax in axes.flat[count:]:
        ax.set_visible(False)
    return fig, axes


def draw_elbo(found: dict[str, dict], path: Path) -> None:
    """One panel a model: the ELBO of each start below the best that any method found."""
    fig, axes = panels(len(found), 5, (2.3, 3.0))
    for ax, (name, runs) in zip(axes.flat, found.items(), strict=False):
        best = max(max(values) for values in runs["elbo"].values())
        for i, (values, color) in enumerate(zip(runs["elbo"].values(), COLORS, strict=False)):
            below = np.clip(best - np.array(values), 0.1, 1e5)
            ax.plot(i + np.linspace(-0.25, 0.25, below.size), below, "o", ms=4, alpha=0.6,
                    color=color)  # fmt: skip
            ax.hlines(np.median(below), i - 0.38, i + 0.38, color=color, lw=2.2)
        ax.set_yscale("log")
        deepest = max(best - min(values) for values in runs["elbo"].values())
        ax.set_ylim(np.clip(1.5 * deepest, 10.0, 1e5), 0.08)
        ax.set_title(name.replace("_", " "), fontsize="small")
        ax.set_xticks(range(len(runs["elbo"])), list(runs["elbo"]), rotation=45, ha="right")
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[:, 0]:
        ax.set_ylabel("nats below the best ELBO")
    fig.savefig(path, dpi=120)


def draw_temperatures(
    found: dict[str, dict], path: Path, largest_of: dict[str, float], usual: float
) -> None:
    """One panel a model and form of VT: q(T) over the tempered stage of the first start."""
    forms = list(next(iter(found.values()))["q"])
    fig, axes = panels(len(found) * len(forms), 5, (2.5, 2.3))
    cells = [(name, form) for form in forms for name in found]
    for ax, (name, form) in zip(axes.flat, cells, strict=False):
        q = np.array(found[name]["q"].get(form, [[0.0]])).T
        largest = largest_of.get(name, usual)
        image = ax.imshow(
            q / q.max(axis=0, keepdims=True), origin="lower", aspect="auto", cmap="magma",
            extent=(0.0, 1.0, 0.0, np.log10(largest)), interpolation="nearest",
        )  # fmt: skip
        ax.set_title(f"{name.replace('_', ' ')}\n{form}", fontsize="small")
        ticks = [1, 2, 5, 10, 20] if largest > 2.0 else [1, 1.2, 1.4, 1.6, 1.8]
        ax.set_yticks(np.log10(ticks), [str(t) for t in ticks])
        ax.set_xticks([0.0, 0.5, 1.0])
    for ax in axes[:, 0]:
        ax.set_ylabel("T")
    for ax in axes[-1]:
        ax.set_xlabel("share of the tempered stage")
    fig.colorbar(image, ax=axes, shrink=0.4, label="q(T) over its largest value")
    fig.savefig(path, dpi=120)
