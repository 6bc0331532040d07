"""Files that a compaction rewrites in addition: with many deleted or with expired rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables import (
    assert_healthy,
    deletion_vectors_of,
    levels_of,
    new_table,
    rows_of,
    table_of,
)

from paimon_orch.format.manifest.index_manifest import DeletionVectorRange, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind
from paimon_orch.format.options import Options
from paimon_orch.merge.tree.compact_strategy import find_files_above_delete_ratio
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as step
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
Rows = list[tuple[int, str]]


@pytest.mark.parametrize(
    ("options", "deleted_rows", "expected"),
    [
        ({}, 51, True),
        ({}, 50, False),
        ({}, None, True),  # the deletion vector has no cardinality
        ({"compaction.delete-ratio-threshold": "0.2"}, 21, True),
        ({"compaction.delete-ratio-threshold": "0.2"}, 20, False),
        ({"compaction.delete-ratio-threshold": "1"}, 100, False),
    ],
)
def test_a_file_is_rewritten_if_its_delete_ratio_exceeds_the_limit(
    options: dict[str, str], deleted_rows: int | None, expected: bool
) -> None:
    files = [
        DataFileMeta(file_name="f", file_size=1, row_count=100),
        DataFileMeta(file_name="untouched", file_size=1, row_count=100),
    ]
    ranges = (DeletionVectorRange(data_file="f", offset=1, length=9, cardinality=deleted_rows),)
    entry = IndexManifestEntry(
        kind=FileKind.ADD,
        partition=b"",
        bucket=0,
        index_type="DELETION_VECTORS",
        file_name="i",
        file_size=9,
        row_count=1,
        ranges=ranges,
    )

    selected = find_files_above_delete_ratio(files, [entry], Options(options))

    assert selected == (tuple(files[:1]) if expected else ())


def two_levels(root: Path, **options: str) -> Table:
    """Return a table with 100 keys on the highest level; keys from 60 are replaced below it."""
    table = new_table(root, deletion_vectors__enabled="true", **options)
    table.upsert(table_of("k v", [(k, "old") for k in range(100)]))
    step.compact(table, EXECUTOR)
    table.upsert(table_of("k v", [(k, "new") for k in range(60, 100)]))
    step.compact(table, EXECUTOR)
    assert levels_of(table) == [4, 5]
    return table


def expected(deleted: range) -> Rows:
    rows = [(k, "old" if k < 60 else "new") for k in range(100)]
    return [row for row in rows if row[0] not in deleted]


def test_a_minor_compaction_rewrites_files_with_many_deleted_rows_on_their_level(
    tmp_path: Path,
) -> None:
    table = two_levels(tmp_path)
    table.delete(table_of("k", [(k,) for k in range(30)]))
    moved = step.compact(table, EXECUTOR)
    assert moved.plan.units[0].level0_files == 1
    assert [v.cardinality for v in deletion_vectors_of(table).values()] == [70], (
        "newly deleted rows"
    )

    planned = step.plan(table, step.CompactRequest())
    assert [(unit.reason, unit.files, unit.rows) for unit in planned.units] == [
        ("deleted rows", 1, 100)
    ]
    result = step.compact(table, EXECUTOR)

    assert result.rows_written == 30
    assert levels_of(table) == [4, 5]
    assert deletion_vectors_of(table) == {}
    assert rows_of(table) == expected(range(30))
    assert_healthy(table)
    assert not step.plan(table, step.CompactRequest())


def test_a_file_is_rewritten_while_a_level_0_compaction_deletes_more_of_its_rows(
    tmp_path: Path,
) -> None:
    table = two_levels(tmp_path, compaction__delete_ratio_threshold="0.3")
    table.delete(table_of("k", [(k,) for k in range(10)]))

    result = step.compact(table, EXECUTOR)

    assert result.level0_before == 1
    assert deletion_vectors_of(table) == {}
    assert rows_of(table) == expected(range(10))
    assert sum(file.row_count for s in table.files() for file in s.files) == 90
    assert_healthy(table)


def test_a_file_without_live_rows_is_deleted(tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(k, "old") for k in range(9)]))
    step.compact(table, EXECUTOR)
    table.delete(table_of("k", [(k,) for k in range(9)]))
    step.compact(table, EXECUTOR)

    step.compact(table, EXECUTOR)

    assert levels_of(table) == []
    assert rows_of(table) == []
    assert_healthy(table)


def test_files_rewritten_individually_are_separate_units(tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true", target_file_size="500")
    table.upsert(table_of("k v", [(k, "old") for k in range(3000)]))
    step.compact(table, EXECUTOR)
    deleted_keys = range(0, 3000, 7)
    table.delete(table_of("k", [(k,) for k in deleted_keys]))
    step.compact(table, EXECUTOR)
    assert len(deletion_vectors_of(table)) > 1

    result = step.compact(table, EXECUTOR, strategy="full")

    assert len(result.plan.units) == result.files_before > 1
    assert deletion_vectors_of(table) == {}
    assert rows_of(table) == [(k, "old") for k in range(3000) if k not in deleted_keys]
    assert_healthy(table)
