"""Plots of soak.py: what a scan of each table opens, over the time of a soak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from performance_plots import IMAGES

_COLUMNS = 4
_FILES, _RUNS = "#3f51b5", "#d08c2f"


def draw_soaks(reports: Mapping[str, Mapping[str, Any]]) -> Iterator[Path]:
    """Draw a picture for each place, and yield its path."""
    for place, report in reports.items():
        path = IMAGES / f"soak-{place}.svg"
        _draw(report, path)
        yield path


def _draw(report: Mapping[str, Any], path: Path) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Text stays text, and the same figures give the same file.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 8})
    tables = report["tables"]
    rows = -(-len(tables) // _COLUMNS)
    figure = Figure(figsize=(9.0, 0.8 + 1.3 * rows), layout="constrained")
    figure.patch.set_facecolor("white")
    panels = figure.subplots(rows, _COLUMNS, sharex=True, squeeze=False).flatten()
    for axes, (name, table) in zip(panels, tables.items(), strict=False):
        _draw_table(axes, name, table["samples"])
    for axes in panels[len(tables) :]:
        axes.set_visible(False)
    lines = [mpl.lines.Line2D([], [], color=color) for color in (_FILES, _RUNS)]
    labels = ["files", "sorted runs of the bucket with most of them"]
    figure.legend(lines, labels, loc="outside upper right", ncols=2, frameon=False)
    title = f"What a scan opens: {report['place']}, seed {report['seed']}"
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    figure.supxlabel(f"minutes; {report['measured']}", fontsize=7, color="#666666")
    figure.savefig(path, metadata={"Date": None})


def _draw_table(axes: Any, name: str, samples: list[list[int]]) -> None:
    minutes = [sample[0] / 60 for sample in samples]
    axes.plot(minutes, [sample[1] for sample in samples], color=_FILES, linewidth=1)
    if any(sample[2] for sample in samples):
        axes.plot(minutes, [sample[2] for sample in samples], color=_RUNS, linewidth=1)
    axes.set_title(name, fontsize=8, loc="left")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
