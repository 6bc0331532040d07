"""Row ids of files and indexes that cannot be, or that leave none for new rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.damage import edit_delta, edit_files, edit_index, edit_snapshot
from support.data_evolution import evolving_table
from support.limited_process import refuse, run_limited
from support.tables import rows_of, table_of
from support.tables_with_deletion_vectors import EXECUTOR

from paimon_orch.errors import CorruptFileError, InputError, UnsupportedError
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.row_range_set import MAX_ROW_ID
from paimon_orch.steps import check, compact, create_global_index
from paimon_orch.steps.inspection.doctor.doctor import examine_opened_table
from paimon_orch.table.column_index.row_id_groups import get_index_meta
from paimon_orch.table.table import Table

LAST = 2**63 - 1


def indexed_table(root: Path, **options: str) -> Table:
    """Create a table of 20 rows with an index, and 5 rows without."""
    table = evolving_table(root, **options)
    table.append(table_of("a b c", [(n, n, 0) for n in range(20)]))
    create_global_index(table, "a")
    table.append(table_of("a b c", [(n, n, 0) for n in range(100, 105)]))
    return table


def state_range(table: Table, start: int, end: int) -> None:
    """Let the index of a table cover other rows than it has."""

    def change(entries: list[IndexManifestEntry]) -> Sequence[IndexManifestEntry]:
        [entry] = entries
        moved = replace(get_index_meta(entry), row_range_start=start, row_range_end=end)
        return [replace(entry, global_index=moved)]

    latest = table.stores.snapshots.latest_id()
    assert latest is not None
    edit_index(table, latest, change)


def find_texts(table: Table) -> list[str]:
    return [finding.text for finding in check(table, deep=True).findings]


@pytest.mark.parametrize("end", [2**31, 2**61])
def test_an_index_of_more_rows_than_memory_is_one_finding(tmp_path: Path, end: int) -> None:
    table = indexed_table(tmp_path)
    state_range(table, 0, end)

    findings = run_limited(lambda: find_texts(table))

    assert isinstance(findings, list)
    assert f"covers the rows 0 to {end}, but there are 20 rows" in findings
    assert any("lacks 5 rows; the first is row 20" in text for text in findings)


@pytest.mark.parametrize(("start", "end"), [(0, LAST), (-(2**63), 19), (10, 3), (LAST, LAST)])
def test_an_index_of_impossible_rows_is_not_used_and_can_be_replaced(
    tmp_path: Path, start: int, end: int
) -> None:
    table = indexed_table(tmp_path)
    state_range(table, start, end)

    assert len(rows_of(table, filter="a > 5")) == 19
    assert any(f"covers the rows {start} to {end}" in text for text in find_texts(table))
    examine_opened_table(table)
    compact(table, EXECUTOR, strategy="full")
    create_global_index(table, "a")
    assert len(rows_of(table, filter="a > 5")) == 19
    assert table.scan(filter="a = 7").explain().files == 1


FILES: dict[str, dict[str, Any]] = {
    "too many rows": {"row_count": 2**62},
    "a negative number of rows": {"row_count": -1},
    "ids above the last one": {"first_row_id": MAX_ROW_ID - 1},
    "negative ids": {"first_row_id": -9},
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_impossible_row_ids_is_refused_and_not_left_out(
    tmp_path: Path, name: str
) -> None:
    table = indexed_table(tmp_path)
    edit_files(table, 3, **FILES[name])

    for action in (
        lambda: rows_of(table),
        lambda: rows_of(table, filter="a > 5"),
        lambda: create_global_index(table, "b"),
    ):
        with pytest.raises(CorruptFileError, match="which is out of range"):
            action()
    assert any("out of range" in text for text in find_texts(table))


def test_ids_whose_sum_overflows_are_no_assigned_ids(tmp_path: Path) -> None:
    table = indexed_table(tmp_path)

    def change(entries: list[ManifestEntry]) -> list[ManifestEntry]:
        [entry] = entries
        forged = replace(entry.file, first_row_id=LAST - 1)
        # a file without ids, so that the manifest list needs no last id
        other = replace(entry.file, first_row_id=None, file_name="data-other.parquet")
        return [replace(entry, file=file) for file in (forged, other)]

    edit_delta(table, 3, change)

    texts = [finding.text for finding in check(table).findings]

    assert any(f"has row ids up to {LAST + 3}" in text for text in texts)


def test_a_row_count_without_bytes_plans_no_index_files(tmp_path: Path) -> None:
    table = indexed_table(tmp_path)
    edit_files(table, 3, row_count=10**12)
    assert "states 1000000000000 rows" in refuse(lambda: create_global_index(table, "b"))


def test_a_plan_does_not_have_an_index_file_for_each_row(tmp_path: Path) -> None:
    table = evolving_table(tmp_path, sorted_index__records_per_range="1")
    table.append(table_of("a b c", [(n, n, 0) for n in range(20)]))
    edit_files(table, 1, row_count=10**6)
    with pytest.raises(InputError, match=r"needs more than 100000 index files"):
        create_global_index(table, "a")


def test_rows_get_no_ids_that_readers_refuse(tmp_path: Path) -> None:
    table = indexed_table(tmp_path)
    edit_snapshot(table, 3, next_row_id=MAX_ROW_ID)

    with pytest.raises(UnsupportedError, match="append the rows of the table to a new one"):
        table.append(table_of("a b c", [(1, 1, 1)]))
    assert any(f"nextRowId is {MAX_ROW_ID}, and no" in text for text in find_texts(table))
    compact(table, EXECUTOR, strategy="full")
    assert len(rows_of(table)) == 25
