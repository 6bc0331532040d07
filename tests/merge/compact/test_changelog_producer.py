"""Changelogs omit updates that change no value if the table deduplicates its changelog."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as step

COLUMNS = "k BIGINT, v STRING, at BIGINT, list ARRAY<INT>"
Change = tuple[str, str | None, int | None]
OLD, SAME, LATER, OTHER = ("a", 1, [1]), ("a", 1, [1]), ("a", 2, [1]), ("a", 1, [1, None])


def changelog_of_replacement(
    root: Path, producer: str, new: tuple[object, ...], **options: str
) -> list[Change]:
    """Return the changelog of replacing a row."""
    table = new_table(root, COLUMNS, changelog_producer=producer, **options)
    strategy: step.CompactionStrategy = "full" if producer == "full-compaction" else "minor"
    for row in (OLD, new):
        table.upsert(table_of("k v at list", [(1, *row)]))
        step.compact(table, InProcessExecutor(), strategy=strategy)
    snapshot = table.snapshot()
    assert snapshot is not None
    changelog = table.incremental(snapshot.id - 1, snapshot.id, "changelog").to_arrow()
    return [(row["rowkind"], row["v"], row["at"]) for row in changelog.to_pylist()]


ONCE = {"changelog_producer__row_deduplicate": "true"}
NOT_TIME = ONCE | {"changelog_producer__row_deduplicate_ignore_fields": "at"}


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
@pytest.mark.parametrize(
    ("options", "new", "expected"),
    [
        ({}, SAME, [("-U", "a", 1), ("+U", "a", 1)]),
        (ONCE, SAME, []),
        (ONCE, LATER, [("-U", "a", 1), ("+U", "a", 2)]),
        (ONCE, (None, 1, [1]), [("-U", "a", 1), ("+U", None, 1)]),
        (ONCE, OTHER, [("-U", "a", 1), ("+U", "a", 1)]),
        (NOT_TIME, LATER, []),
        (NOT_TIME, OTHER, [("-U", "a", 1), ("+U", "a", 1)]),
    ],
)
def test_an_unchanged_update_is_in_the_changelog_unless_the_table_deduplicates_changes(
    tmp_path: Path,
    producer: str,
    options: dict[str, str],
    new: tuple[object, ...],
    expected: list[Change],
) -> None:
    assert changelog_of_replacement(tmp_path, producer, new, **options) == expected


VALUES = [
    ("DOUBLE", 0.0, -0.0, 2),
    ("DOUBLE", float("nan"), float("nan"), 0),
    ("ROW<x FLOAT>", {"x": 0.0}, {"x": -0.0}, 2),
    ("ARRAY<DOUBLE>", [float("nan")], [float("nan")], 0),
    ("MAP<INT, INT>", [(1, 1), (2, 2)], [(2, 2), (1, 1)], 0),
]


@pytest.mark.parametrize(("sql", "old", "new", "changes"), VALUES)
def test_changelogs_and_diffs_compare_values_as_java(
    tmp_path: Path, sql: str, old: object, new: object, changes: int
) -> None:
    table = new_table(tmp_path, f"k INT, v {sql}", changelog_producer="lookup", **ONCE)
    (_, field) = table.load().schema.fields
    for value in (old, new):
        v = pa.array([value], to_arrow_type(field.type))
        table.upsert(pa.table({"k": pa.array([1], pa.int32()), "v": v}))
        step.compact(table, InProcessExecutor())

    for mode, number in (("changelog", changes), ("diff", changes // 2)):
        assert table.incremental(2, 4, mode).to_arrow().num_rows == number


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_a_row_deleted_and_inserted_again_is_in_the_changelog(tmp_path: Path, vectors: str) -> None:
    """In Java Paimon (issue 8204), the old row can be a row that a deletion vector deletes."""
    table = new_table(
        tmp_path, changelog_producer="lookup", deletion_vectors__enabled=vectors, **ONCE
    )
    row = table_of("k v", [(1, "a")])
    kinds = []
    for write in (table.upsert, table.delete, table.upsert):
        write(row)
        step.compact(table, InProcessExecutor())
        snapshot = table.snapshot()
        assert snapshot is not None
        changes = table.incremental(snapshot.id - 1, snapshot.id, "changelog").to_arrow()
        kinds += changes["rowkind"].to_pylist()

    assert kinds == ["+I", "-D", "+I"]


@pytest.mark.parametrize(
    ("producer", "ignored", "expected"),
    [
        ("lookup", ["update_before"], ["+I", "+I", "+U", "-D"]),
        ("full-compaction", ["delete"], ["+I", "+I", "-U", "+U"]),
        ("input", ["update_before", "delete"], ["+I", "+I", "-U", "+U", "-D"]),
    ],
)
def test_changelogs_of_compactions_have_no_rows_of_ignored_kinds(
    tmp_path: Path, producer: str, ignored: list[str], expected: list[str]
) -> None:
    """The options exist since Paimon 2.1, for two producers; Java 2.0 does not know them."""
    options = {f"changelog_producer__ignore_{kind}": "true" for kind in ignored}
    table = new_table(tmp_path, changelog_producer=producer, **options)
    strategy: step.CompactionStrategy = "full" if producer == "full-compaction" else "minor"
    changes: list[list[tuple[str, int, str]]] = [
        [("+I", 1, "a"), ("+I", 2, "b")],
        [("-U", 1, "a"), ("+U", 1, "c"), ("-D", 2, "b")],
    ]
    for rows in changes:
        table.upsert(table_of("kind k v", rows), row_kind="kind")
        step.compact(table, InProcessExecutor(), strategy=strategy)
    snapshot = table.snapshot()
    assert snapshot is not None
    changelog = table.incremental(0, snapshot.id, "changelog").to_arrow()

    assert changelog["rowkind"].to_pylist() == expected
    assert rows_of(table) == [(1, "c")]
