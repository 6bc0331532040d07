"""Plots of the answers of performance.py: horizontal bars, one colour for each series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from measurement import HERE
from performance_results import Answer, Bar

IMAGES = HERE.parent / "docs" / "images"
_COLORS = ("#3f51b5", "#9aa5b1", "#d08c2f", "#6b9a5b")
_BAR_HEIGHT, _GAP, _FRAME_HEIGHT, _WIDTH = 0.36, 0.6, 1.6, 9.0
_FOOTER_CHARACTERS, _LABEL_CHARACTERS = 130, 22


def draw_all(answers: Mapping[str, Answer]) -> Iterator[Path]:
    """Write a picture for each answer, and yield its path."""
    for name, answer in answers.items():
        path = IMAGES / f"performance-{name}.svg"
        _draw(answer, path)
        yield path


def _draw(answer: Answer, path: Path) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Text stays text, and the same figures give the same file.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 10})
    units = list(dict.fromkeys(bar.unit for bar in answer.bars))
    series = list(dict.fromkeys(bar.series for bar in answer.bars))
    panels = [[bar for bar in answer.bars if bar.unit == unit] for unit in units]
    rows = max(len(panel) + _GAP * len({bar.group for bar in panel}) for panel in panels)
    figure = Figure(figsize=(_WIDTH, _FRAME_HEIGHT + rows * _BAR_HEIGHT), layout="constrained")
    figure.patch.set_facecolor("white")
    colors = dict(zip(series, _COLORS, strict=False))
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, panel, colors)
    # The legend is placed in the second line of the title.
    figure.suptitle(f"{answer.title}\n", x=0.01, ha="left", fontweight="bold")
    if len(series) > 1:
        handles = [mpl.patches.Patch(color=color, label=name) for name, color in colors.items()]
        figure.legend(
            handles=handles,
            loc="upper right",
            ncols=len(series),
            frameon=False,
            bbox_to_anchor=(0, 0, 1, 0.97),
        )
    figure.supxlabel(fill(answer.measured, _FOOTER_CHARACTERS), fontsize=7, color="#666666")
    figure.savefig(path, metadata={"Date": None})


def _draw_panel(axes: Any, bars: Sequence[Bar], colors: Mapping[str, str]) -> None:
    ticks: dict[str, list[float]] = {}
    y = 0.0
    groups = list(dict.fromkeys(bar.group for bar in bars))
    for bar in sorted(bars, key=lambda bar: groups.index(bar.group)):
        y += _GAP if bar.group not in ticks and ticks else 0
        ticks.setdefault(bar.group, []).append(y)
        axes.barh(y, bar.value, height=0.85, color=colors[bar.series])
        axes.annotate(
            f"{bar.value:.3g}", (bar.value, y), (4, 0), textcoords="offset points", va="center"
        )
        y += 1
    labels = [fill(group, _LABEL_CHARACTERS) for group in ticks]
    axes.set_yticks([sum(group) / len(group) for group in ticks.values()], labels)
    axes.invert_yaxis()
    axes.set_xlabel(bars[0].unit)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
