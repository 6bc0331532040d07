"""Writes the pictures of docs/images as SVG, which follow the light or dark theme of the reader.

PYTHONPATH=tests:. python -m support.docs.pictures
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "docs" / "images"

_STYLE = """\
svg { color-scheme: light dark; }
text { font: 13px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; fill: #1f2430; }
.title { font-weight: 600; font-size: 14px; }
.head { font-weight: 600; }
.code { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.small { font-size: 12px; fill: #565d6d; }
.page { fill: #ffffff; stroke: #d5d9e2; }
.box { fill: #f3f5fa; stroke: #8a93a8; }
.data { fill: #e3f1e6; stroke: #3f8a55; }
.meta { fill: #e4ecfb; stroke: #4469b8; }
.warn { fill: #fdf0d8; stroke: #b07a1e; }
.gone { fill: #f8e4e4; stroke: #b45252; stroke-dasharray: 4 3; }
.line { stroke: #565d6d; stroke-width: 1.5; fill: none; }
.dash { stroke-dasharray: 5 4; }
.tip { fill: #565d6d; }
.strike { text-decoration: line-through; fill: #a23b3b; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9f0; }
  .small { fill: #aab2c3; }
  .page { fill: #1b1f2a; stroke: #3a4152; }
  .box { fill: #272d3b; stroke: #77819a; }
  .data { fill: #1f3a2a; stroke: #62b67c; }
  .meta { fill: #22304f; stroke: #7f9fe6; }
  .warn { fill: #40331a; stroke: #d9a54a; }
  .gone { fill: #41262a; stroke: #d98080; }
  .line { stroke: #aab2c3; }
  .tip { fill: #aab2c3; }
  .strike { fill: #ef9a9a; }
}
"""


@dataclass
class Picture:
    """An SVG under construction; coordinates are pixels from the upper left corner."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """Add one line of text; ``y`` is its baseline."""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{style}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def box(
        self, area: tuple[float, float, float, float], lines: Sequence[str], style: str = "box"
    ) -> None:
        """Add a box (x, y, width, height) with centred lines: ``#`` begins a head, `` ` `` code."""
        x, y, width, height = area
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="{style}"/>'
        )
        baseline = y + height / 2 - (len(lines) - 1) * 9 + 4.5
        for number, line in enumerate(lines):
            kind = {"#": "head", "`": "code", "~": "strike code"}.get(line[:1], "")
            text = line[1:] if kind else line
            self.text(x + width / 2, baseline + 18 * number, text, kind, "middle")

    def arrow(self, *points: tuple[float, float], label: str = "", dashed: bool = False) -> None:
        """Add a line through the points with an arrowhead at its end, and a label at its middle."""
        path = " L ".join(f"{x:g} {y:g}" for x, y in points)
        style = "line dash" if dashed else "line"
        self.parts.append(f'<path d="M {path}" class="{style}" marker-end="url(#tip)"/>')
        if label:
            (x1, y1), (x2, y2) = points[0], points[1]
            if x1 == x2:
                self.text(x1 + 8, (y1 + y2) / 2 + 4, label, "small")
            else:
                self.text((x1 + x2) / 2, y1 - 6, label, "small", "middle")

    def svg(self) -> str:
        """Return the document."""
        body = "\n".join(self.parts)
        return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" \
viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(self.title)}">
<title>{escape(self.title)}</title>
<style>
{_STYLE}</style>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" \
orient="auto"><path d="M 0 0 L 10 5 L 0 10 z" class="tip"/></marker></defs>
<rect x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="8" class="page"/>
{body}
</svg>
"""


def floors() -> Picture:
    """The packages, each of which imports only those below it."""
    picture = Picture(780, 470, "The packages of paimon_orch; imports point down only")
    rows = [
        ("definitions", "an example code location of Dagster", "box"),
        ("cli | demo", "commands; the flights demo", "box"),
        ("dagster", "resources, assets, jobs, sensors, checks, components", "box"),
        ("spark", "sessions, the executor, reading and writing frames, the data source", "box"),
        (
            "steps",
            "plan, run and commit of each step: compaction, expiration, cleanup, ...",
            "meta",
        ),
        ("table", "catalog, snapshots, scan, write, commit, tags, branches, references", "meta"),
        ("merge", "levels, sort-merge, merge engines, aggregate functions, lookup", "data"),
        ("files", "Parquet, ORC and Avro data files, statistics, schema evolution", "data"),
        ("format | storage", "bytes to values without I/O; local disks and object stores", "data"),
        ("errors", "one tree of exceptions", "box"),
    ]
    for number, (name, content, style) in enumerate(rows):
        y = 20 + 43 * number
        parts = name.split(" | ")
        width = (190 - 8 * (len(parts) - 1)) / len(parts)
        for index, part in enumerate(parts):
            picture.box((60 + index * (width + 8), y, width, 34), [f"`{part}"], style)
        picture.text(268, y + 22, content)
    picture.arrow((32, 24), (32, 445))
    picture.parts.append(
        '<text x="22" y="235" class="small" text-anchor="middle" transform="rotate(-90 22 235)">'
        "imports</text>"
    )
    return picture


def table_on_disk() -> Picture:
    """The files of a table, and which file names which."""
    picture = Picture(1000, 440, "The files of a Paimon table and their references")
    picture.box((20, 40, 150, 50), ["#hints", "`snapshot/LATEST"], "box")
    picture.box((220, 40, 170, 50), ["#snapshot", "`snapshot/snapshot-7"], "meta")
    picture.box((220, 20 + 330, 170, 50), ["#schema", "`schema/schema-1"], "meta")
    lists = [
        ("base manifest list", 40),
        ("delta manifest list", 110),
        ("changelog manifest list", 180),
    ]
    for name, y in lists:
        picture.box((450, y, 220, 50), [f"#{name}", "`manifest/manifest-list-..."], "meta")
    picture.box((450, 265, 220, 50), ["#index manifest", "`manifest/index-manifest-..."], "meta")
    picture.box((730, 40, 250, 50), ["#manifests", "`manifest/manifest-..."], "meta")
    picture.box(
        (730, 125, 250, 68),
        ["#data files", "`dt=2026-01-31/bucket-0/", "`data-....parquet"],
        "data",
    )
    picture.box(
        (730, 265, 250, 50), ["#deletion vectors, hash indexes", "`index/index-..."], "data"
    )
    picture.arrow((170, 65), (219, 65))
    picture.arrow((390, 65), (449, 65))
    for y in (135, 205, 290):
        picture.arrow((420, 65), (420, y), (449, y))
    picture.arrow((670, 65), (729, 65))
    picture.arrow((670, 135), (695, 135), (695, 75), (729, 75))
    picture.arrow((670, 205), (705, 205), (705, 82), (729, 82))
    picture.arrow((855, 90), (855, 124), label="add, delete")
    picture.arrow((670, 290), (729, 290))
    picture.arrow((855, 265), (855, 194), label="deleted positions", dashed=True)
    picture.arrow((305, 90), (305, 349), label="schema id")
    picture.text(20, 116, "A hint may be stale or", "small")
    picture.text(20, 133, "missing: readers check", "small")
    picture.text(20, 150, "the next snapshot too.", "small")
    picture.text(
        450, 352, "Files never change once they are visible; hints are overwritten.", "small"
    )
    picture.text(
        450, 372, "Older data files name an older schema; readers convert their rows.", "small"
    )
    picture.text(
        450, 392, "Tags (tag/tag-...) are copies of a snapshot file and keep its files.", "small"
    )
    picture.text(
        20,
        425,
        "An arrow points from a file to a file that it names. Names with ... contain a UUID.",
        "small",
    )
    return picture


def lookup_compaction() -> Picture:
    """The example of docs/format/lookup-compaction.md in three states."""
    picture = Picture(960, 430, "A lookup compaction with its deletion vector, step by step")
    columns = [
        (20, "1. Before", "New rows are on level 0.", "Readers do not see them."),
        (
            340,
            "2. Compaction",
            "Levels 0 and 4 are merged. For key 1,",
            "a lookup finds the older row in A.",
        ),
        (
            660,
            "3. After the commit",
            "A is unchanged on disk. Readers take",
            "A without its deleted rows, and D.",
        ),
    ]
    for x, title, first, second in columns:
        picture.text(x, 32, title, "title")
        picture.text(x, 54, first, "small")
        picture.text(x, 71, second, "small")
    for x in (20, 340, 660):
        for level, y in ((0, 112), (4, 202), (5, 292)):
            picture.text(x, y + 5, f"level {level}", "small")
    _file(picture, (75, 85), "C", ["1 new", "2 new", "9 delete"], style="warn")
    _file(picture, (75, 175), "B", ["2", "9"])
    _file(picture, (75, 265), "A", ["1", "~2", "3"], vector="{1}")
    _file(picture, (395, 85), "C", ["1 new", "2 new", "9 delete"], style="gone")
    _file(picture, (395, 175), "B", ["2", "9"], style="gone")
    _file(picture, (395, 265), "A", ["~1", "~2", "3"], vector="{0, 1}")
    _file(picture, (715, 175), "D", ["1 new", "2 new"], style="data")
    _file(picture, (715, 265), "A", ["~1", "~2", "3"], vector="{0, 1}")
    picture.text(715, 117, "empty", "small")
    picture.arrow((615, 112), (635, 112), (635, 292), (616, 292))
    picture.text(
        20,
        372,
        "Key 2 is in both inputs: the newest row wins. Key 9: the delete removes the row of B and is dropped.",
        "small",
    )
    picture.text(
        20,
        392,
        "The commit deletes B and C, adds D and the new deletion vector of A, all in one snapshot.",
        "small",
    )
    picture.text(
        20, 412, "Numbers are keys; a deletion vector holds positions in its file, from 0.", "small"
    )
    return picture


def _file(
    picture: Picture,
    place: tuple[float, float],
    name: str,
    keys: Sequence[str],
    *,
    vector: str = "",
    style: str = "data",
) -> None:
    x, y = place
    picture.parts.append(f'<rect x="{x}" y="{y}" width="220" height="55" rx="6" class="{style}"/>')
    picture.text(x + 10, y + 20, f"file {name}", "head")
    if vector:
        picture.text(x + 210, y + 20, f"deletion vector {vector}", "small", "end")
    for index, key in enumerate(keys):
        struck = key.startswith("~")
        picture.text(
            x + 10 + index * 70, y + 42, key.lstrip("~"), "strike code" if struck else "code"
        )


def plan_run_commit() -> Picture:
    """The three phases of a step."""
    picture = Picture(960, 330, "A step: plan, run, commit")
    for x, title, where in (
        (20, "plan", "driver"),
        (350, "run", "executor: one task per unit"),
        (680, "commit", "driver"),
    ):
        picture.text(x, 30, title, "title")
        picture.text(x + 70, 30, where, "small")
    picture.box(
        (20, 50, 230, 110),
        ["Read metadata only:", "options, snapshot, manifests.", "The result is the dry run."],
        "meta",
    )
    for index in range(3):
        picture.box(
            (350, 50 + 40 * index, 230, 32), [f"unit {index + 1}: inputs to fresh files"], "data"
        )
    picture.box(
        (680, 50, 260, 110),
        [
            "Check that the inputs still exist.",
            "Create the next snapshot file,",
            "which only one committer can do.",
        ],
        "meta",
    )
    for index in range(3):
        picture.arrow((250, 105), (300, 105), (300, 66 + 40 * index), (349, 66 + 40 * index))
        picture.arrow((580, 66 + 40 * index), (630, 66 + 40 * index), (630, 105), (679, 105))
    picture.text(252, 98, "units", "small")
    picture.text(634, 98, "results", "small")
    picture.box((680, 215, 260, 44), ["One new snapshot, seen as a whole"], "data")
    picture.arrow((810, 160), (810, 214), label="created")
    picture.box((350, 215, 230, 44), ["Delete the fresh files"], "warn")
    picture.arrow((740, 160), (740, 190), (465, 190), (465, 214))
    picture.text(600, 184, "inputs changed", "small", "middle")
    picture.arrow((350, 237), (135, 237), (135, 161), label="plan again, at most a few times")
    picture.text(
        20,
        290,
        "A unit names its input files. Running it twice is harmless: each attempt writes files with names of",
        "small",
    )
    picture.text(
        20, 308, "its own, and only the attempt that the executor returns is committed.", "small"
    )
    return picture


def sensor() -> Picture:
    """How the sensor on LATEST decides in one tick."""
    picture = Picture(960, 640, "The decision of the sensor in one tick")
    middle, width = 300, 330
    x = middle - width / 2
    steps = [
        (20, 46, ["Load the table"], "box"),
        (96, 62, ["Anything new since the cursor,", "pending, or waiting past max_wait?"], "box"),
        (
            188,
            62,
            ["Can the cursor be continued?", "(same table, not rolled back, not expired)"],
            "box",
        ),
        (
            280,
            62,
            ["Read the next snapshots (at most 100):", "partitions of APPEND and OVERWRITE"],
            "meta",
        ),
        (
            372,
            62,
            ["The policy decides for each partition", "from manifests: compact, or not now"],
            "meta",
        ),
        (
            464,
            62,
            ["Do the table's options allow compaction?", "Does the asset have the partition?"],
            "box",
        ),
        (556, 62, ["#Run requests, at most 25", "the others wait in the cursor"], "data"),
    ]
    for y, height, lines, style in steps:
        picture.box((x, y, width, height), lines, style)
    for (y, height, _, _), (below, *_) in pairwise(steps):
        picture.arrow((middle, y + height), (middle, below - 1))
    picture.text(middle + 8, 174, "yes", "small")
    picture.text(middle + 8, 266, "yes", "small")
    picture.text(middle + 8, 542, "yes", "small")
    picture.text(middle + 8, 450, "compact", "small")
    right = 560
    skips = [
        (20, 46, ["Skip: the table does not exist"], "warn", 43, "not found"),
        (96, 62, ["Skip: snapshot already handled,", "or no snapshot yet"], "warn", 127, "no"),
        (188, 62, ["Look at all partitions", "of the newest snapshot"], "meta", 219, "no"),
        (
            372,
            62,
            ["Skip: nothing to compact, with the", "reasons; work below a threshold waits"],
            "warn",
            403,
            "not now",
        ),
        (
            464,
            62,
            ["Skip: the option that forbids it;", "a missing partition is logged"],
            "warn",
            495,
            "no",
        ),
    ]
    for y, height, lines, style, center, label in skips:
        picture.box((right, y, 300, height), lines, style)
        picture.arrow((x + width, center), (right - 1, center))
        picture.text((x + width + right) / 2, center - 6, label, "small", "middle")
    picture.arrow((right + 150, 250), (right + 150, 350), (middle + 60, 350), (middle + 60, 371))
    picture.text(
        right - 40,
        575,
        "Also with each tick that reads snapshots: observations of the table,",
        "small",
    )
    picture.text(
        right - 40, 593, "dynamic partitions added and deleted, and the new cursor.", "small"
    )
    picture.text(right - 40, 611, "COMPACT and ANALYZE snapshots are ignored.", "small")
    return picture


def pages() -> dict[str, str]:
    """Return the SVG of each picture by file name."""
    return {
        "floors.svg": floors().svg(),
        "table-on-disk.svg": table_on_disk().svg(),
        "lookup-compaction.svg": lookup_compaction().svg(),
        "plan-run-commit.svg": plan_run_commit().svg(),
        "sensor.svg": sensor().svg(),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
