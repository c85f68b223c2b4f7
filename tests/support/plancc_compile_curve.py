"""The plot of compile times: layers against seconds, a line a number of devices."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

INK, GRID = "#333333", "#dddddd"
COLOURS = ("#1b7837", "#2166ac", "#b2691b", "#9c1f4b")
SIZE = (9.0, 3.8)


def draw(points: Sequence[dict[str, Any]], path: Path) -> None:
    """An SVG with one panel for each `what`: median user seconds, each seed as a dot."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "plancc", "svg.fonttype": "path", "font.size": 9})
    from matplotlib import pyplot

    panels = list(dict.fromkeys(point["what"] for point in points))
    figure, axes = pyplot.subplots(1, len(panels), figsize=SIZE, sharey=True, squeeze=False)
    for axis, what in zip(axes[0], panels, strict=True):
        _panel(axis, what, [point for point in points if point["what"] == what])
    axes[0][0].set_ylabel("user CPU seconds, cold process")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _panel(axis: Any, what: str, points: Sequence[dict[str, Any]]) -> None:
    counts = sorted({point["devices"] for point in points})
    for colour, devices in zip(COLOURS, counts, strict=False):
        here = [point for point in points if point["devices"] == devices]
        layers = [point["layers"] for point in here]
        axis.plot(layers, [point["user_s"]["median"] for point in here], color=colour,
                  label=f"{devices} devices", linewidth=1.6)  # fmt: skip
        for point in here:
            each = point["each_user_s"]
            axis.plot([point["layers"]] * len(each), each, ".", color=colour, markersize=4)
    axis.set_title(what, fontsize=10, color=INK)
    axis.set_xlabel("layers, all unequal")
    axis.set_xticks(sorted({point["layers"] for point in points}))
    axis.set_yscale("log")
    axis.set_yticks([1, 2, 5, 10, 20, 50], labels=["1", "2", "5", "10", "20", "50"])
    axis.minorticks_off()
    axis.grid(axis="y", color=GRID, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[::-1], labels[::-1], frameon=False, fontsize=8, loc="upper left")
