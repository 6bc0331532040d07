"""Writes the pictures of docs/images as SVG, which follow the light or dark theme of the reader.

PYTHONPATH=tests:. python -m support.docs.pictures
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
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

    def boxes(self, lines: str) -> None:
        """Add a box for each line: x, y, width, height, style, and its lines separated by ``|``."""
        for line in lines.splitlines():
            *area, style, content = line.split(" ", 5)
            x, y, width, height = map(int, area)
            self.box((x, y, width, height), content.split("|"), style)

    def note(self, x: float, y: float, *lines: str) -> None:
        """Add small lines of text below each other."""
        for number, line in enumerate(lines):
            self.text(x, y + 18 * number, line, "small")

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
    """The packages; each package imports only those below it."""
    picture = Picture(780, 599, "The packages of paimon_orch; imports point down only")
    rows = [
        ("definitions", "an example code location of Dagster", "box"),
        ("cli | demo", "commands; the flights demo", "box"),
        ("airflow | dagster", "operators, triggers; assets, jobs, sensors, components", "box"),
        ("orchestration", "cursors, due partitions, planned runs, limits, reports", "box"),
        ("spark", "sessions, the executor, reading and writing frames, the data source", "box"),
        (
            "steps",
            "plan, run and commit of each step: compaction, expiration, cleanup, ...",
            "meta",
        ),
        ("catalog", "file systems, REST servers, Hive metastores, SQL databases", "meta"),
        ("table", "snapshots, scan, write, commit, tags, branches, references", "meta"),
        ("merge", "levels, sort-merge, merge engines, aggregate functions, lookup", "data"),
        ("files", "Parquet, ORC and Avro data files, statistics, schema evolution", "data"),
        ("metastore", "the client of Hive metastores", "data"),
        ("format | storage", "bytes to values without I/O; local disks and object stores", "data"),
        ("errors | retry_policy", "exceptions; how often operations are retried", "box"),
    ]
    for number, (name, content, style) in enumerate(rows):
        y = 20 + 43 * number
        parts = name.split(" | ")
        width = (190 - 8 * (len(parts) - 1)) / len(parts)
        for index, part in enumerate(parts):
            picture.box((60 + index * (width + 8), y, width, 34), [f"`{part}"], style)
        picture.text(268, y + 22, content)
    picture.arrow((32, 24), (32, 574))
    picture.parts.append(
        '<text x="22" y="300" class="small" text-anchor="middle" transform="rotate(-90 22 300)">'
        "imports</text>"
    )
    return picture


_TABLE_BOXES = """\
20 40 150 50 box #hints|`snapshot/LATEST
220 40 170 50 meta #snapshot|`snapshot/snapshot-7
220 350 170 50 meta #schema|`schema/schema-1
450 40 220 50 meta #base manifest list|`manifest/manifest-list-...
450 110 220 50 meta #delta manifest list|`manifest/manifest-list-...
450 180 220 50 meta #changelog manifest list|`manifest/manifest-list-...
450 265 220 50 meta #index manifest|`manifest/index-manifest-...
730 40 250 50 meta #manifests|`manifest/manifest-...
730 125 250 68 data #data files|`dt=2026-01-31/bucket-0/|`data-....parquet
730 265 250 50 data #deletion vectors, hash indexes|`index/index-...
"""


def table_on_disk() -> Picture:
    """The files of a table and the references between them."""
    picture = Picture(1000, 440, "The files of a Paimon table and their references")
    picture.boxes(_TABLE_BOXES)
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
    picture.note(
        20, 116, "A hint may be stale or", "missing: readers check", "the next snapshot too."
    )
    picture.note(
        450,
        352,
        "Files never change once they are visible; hints are overwritten.",
        "Older data files name an older schema; readers convert their rows.",
        "Tags (tag/tag-...) are copies of a snapshot file and keep its files.",
    )
    picture.note(
        20,
        425,
        "An arrow points from a file to a file that it names. Names with ... contain a UUID.",
    )
    return picture


_STAGES = (
    (20, "1. Before", ("New rows are on level 0.", "Readers do not see them.")),
    (
        340,
        "2. Compaction",
        ("Levels 0 and 4 are merged. For key 1,", "a lookup finds the older row in A."),
    ),
    (
        660,
        "3. After the commit",
        ("A is unchanged on disk. Readers take", "A without its deleted rows, and D."),
    ),
)
_LEVELS = {0: 112, 4: 202, 5: 292}
"""Levels and the middle of their files."""

_STAGE_FILES = """\
20 0 C warn 1 new,2 new,9 delete
20 4 B data 2,9
20 5 A data 1,~2,3 {1}
340 0 C gone 1 new,2 new,9 delete
340 4 B gone 2,9
340 5 A data ~1,~2,3 {0, 1}
660 4 D data 1 new,2 new
660 5 A data ~1,~2,3 {0, 1}
"""
"""Stage, level, name, style, keys (deleted ones with ``~``), deletion vector."""


def lookup_compaction() -> Picture:
    """The example of docs/format/lookup-compaction.md in three states."""
    picture = Picture(960, 430, "A lookup compaction with its deletion vector, step by step")
    for x, title, lines in _STAGES:
        picture.text(x, 32, title, "title")
        picture.note(x, 54, *lines)
        for level, y in _LEVELS.items():
            picture.text(x, y + 5, f"level {level}", "small")
    for line in _STAGE_FILES.splitlines():
        stage, file_level, name, style, content = line.split(" ", 4)
        keys, _, vector = content.partition(" {")
        place = (int(stage) + 55, _LEVELS[int(file_level)] - 27)
        _file(picture, place, name, keys.split(","), vector=vector and "{" + vector, style=style)
    picture.text(715, 117, "empty", "small")
    picture.arrow((615, 112), (635, 112), (635, 292), (616, 292))
    picture.note(
        20,
        372,
        "Key 2 is in both inputs: the newest row wins. Key 9: the delete removes the row of B and is dropped.",
        "The commit deletes B and C, adds D and the new deletion vector of A, all in one snapshot.",
        "Numbers are keys; a deletion vector holds positions in its file, from 0.",
    )
    return picture


def _file(
    picture: Picture,
    place: tuple[float, float],
    name: str,
    keys: Sequence[str],
    *,
    vector: str,
    style: str,
) -> None:
    x, y = place
    picture.box((x, y, 220, 55), [], style)
    picture.text(x + 10, y + 20, f"file {name}", "head")
    if vector:
        picture.text(x + 210, y + 20, f"deletion vector {vector}", "small", "end")
    for index, key in enumerate(keys):
        kind = "strike code" if key.startswith("~") else "code"
        picture.text(x + 10 + index * 70, y + 42, key.lstrip("~"), kind)


_STEP_BOXES = """\
20 50 230 110 meta Read metadata only:|options, snapshot, manifests.|The result is the dry run.
350 50 230 32 data unit 1: inputs to fresh files
350 90 230 32 data unit 2: inputs to fresh files
350 130 230 32 data unit 3: inputs to fresh files
680 50 260 110 meta Check that the inputs still exist.|Create the next snapshot file,|which only one committer can do.
680 215 260 44 data One new snapshot, seen as a whole
350 215 230 44 warn Delete the fresh files
"""


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
    picture.boxes(_STEP_BOXES)
    for y in (66, 106, 146):
        picture.arrow((250, 105), (300, 105), (300, y), (349, y))
        picture.arrow((580, y), (630, y), (630, 105), (679, 105))
    picture.text(252, 98, "units", "small")
    picture.text(634, 98, "results", "small")
    picture.arrow((810, 160), (810, 214), label="created")
    picture.arrow((740, 160), (740, 190), (465, 190), (465, 214))
    picture.text(600, 184, "inputs changed", "small", "middle")
    picture.arrow((350, 237), (135, 237), (135, 161), label="plan again, at most a few times")
    picture.note(
        20,
        290,
        "A unit names its input files. Running it twice is harmless: each attempt writes files with names of",
        "its own, and only the attempt that the executor returns is committed.",
    )
    return picture


_TICK_BOXES = """\
135 20 330 46 box Load the table
135 96 330 62 box Anything new since the cursor,|pending, or waiting past max_wait?
135 188 330 62 box Can the cursor be continued?|(same table, not rolled back, not expired)
135 280 330 62 meta Read the next snapshots (at most 100):|partitions of APPEND and OVERWRITE
135 372 330 62 meta The policy decides for each partition|from manifests: compact, or not now
135 464 330 62 box Do the table's options allow compaction?|Does the asset have the partition?
135 556 330 62 data #Run requests, at most 25|the others wait in the cursor
560 20 300 46 warn Skip: the table does not exist
560 96 300 62 warn Skip: snapshot already handled,|or no snapshot yet
560 188 300 62 meta Look at all partitions|of the newest snapshot
560 372 300 62 warn Skip: nothing to compact, with the|reasons; work below a threshold waits
560 464 300 62 warn Skip: the option that forbids it;|a missing partition is logged
"""


def sensor() -> Picture:
    """The decisions of the sensor on LATEST in one tick."""
    picture = Picture(960, 640, "The decision of the sensor in one tick")
    picture.boxes(_TICK_BOXES)
    downwards = ("", "yes", "yes", "", "compact", "yes")
    for label, start, end in zip(
        downwards, (66, 158, 250, 342, 434, 526), (95, 187, 279, 371, 463, 555), strict=True
    ):
        picture.arrow((300, start), (300, end), label=label)
    exits = {43: "not found", 127: "no", 219: "no", 403: "not now", 495: "no"}
    for y, label in exits.items():
        picture.arrow((465, y), (559, y), label=label)
    picture.arrow((710, 250), (710, 350), (360, 350), (360, 371))
    picture.note(
        520,
        575,
        "Also with each tick that reads snapshots: observations of the table,",
        "dynamic partitions added and deleted, and the new cursor.",
        "COMPACT and ANALYZE snapshots are ignored.",
    )
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
