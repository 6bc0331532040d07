"""Manifest lists that state other ranges, bounds or counts than their manifests have.

Readers skip manifests by them. A check finds the difference, and no deletion relies on them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.damage import edit_snapshot, edit_summaries
from support.data_evolution import evolving_table
from support.tables import new_table, rows_of, stored_files, table_of
from support.tables_with_deletion_vectors import EXECUTOR

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.manifest.manifest_list import encode_manifest_list
from paimon_orch.format.row.simple_stats import UNKNOWN_STATS, ColumnStats, SimpleStats
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.steps import check, compact, expire_snapshots, remove_orphan_files
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache
from paimon_orch.table.table import Table

TYPES = [field.type for field in parse_columns("p STRING, d INT")]


def partitioned_table(root: Path) -> Table:
    table = new_table(
        root, "k BIGINT, p STRING, d INT", key=("k", "p", "d"), partition_by=("p", "d")
    )
    table.upsert(table_of("k p d", [(1, "b", 2), (2, "b", 3)]))
    table.upsert(table_of("k p d", [(1, "b", 2), (3, "c", 4)]))
    return table


def nullable_table(root: Path) -> Table:
    table = new_table(
        root, "k BIGINT, p STRING, d INT", key=(), partition_by=("p", "d"), bucket="-1"
    )
    table.append(table_of("k p d", [(1, "b", 2), (2, "b", None)]))
    table.append(table_of("k p d", [(3, "b", 4), (4, None, 4)]))
    return table


def stats(p: ColumnStats, d: ColumnStats = UNKNOWN_STATS) -> dict[str, Any]:
    return {"partition_stats": SimpleStats.of([p, d], TYPES)}


RANGES: dict[str, tuple[dict[str, Any], str]] = {
    "bucket": ({"min_bucket": 1, "max_bucket": 9}, "the buckets 1 to 9, but .* have 0 to 0"),
    "no bucket": ({"min_bucket": 5, "max_bucket": -1}, "the buckets 5 to -1"),
    "level": ({"min_level": 3, "max_level": 5}, "the levels 3 to 5, but .* have 0 to 0"),
    "low text": (stats(ColumnStats("a", "ab")), "from 'a' to 'ab' .* but an entry has 'b'"),
    "high text": (stats(ColumnStats("bb", None)), "from 'bb' to None .* but an entry has 'b'"),
    "number": (stats(ColumnStats(), ColumnStats(7, 9)), "column 1 has values from 7 to 9"),
    "only nulls": (stats(ColumnStats(None, None, 2)), "null in 2 of 2 entries"),
    "bytes": ({"partition_stats": SimpleStats(b"\0\0\0\2", b"\0\0\0\2")}, "cannot be decoded"),
}


def find_texts(table: Table) -> list[str]:
    clear_metadata_cache()
    return [finding.text for finding in check(table).findings if finding.rule == "manifest-list"]


@pytest.mark.parametrize("name", RANGES)
def test_check_finds_a_list_by_which_readers_skip_a_manifest(tmp_path: Path, name: str) -> None:
    table, (changes, text) = partitioned_table(tmp_path), RANGES[name]
    assert not find_texts(table)

    edit_summaries(table, 2, lambda meta: replace(meta, **changes))

    [*texts] = find_texts(table)
    assert len(texts) == 2, "both manifests of the snapshot are named"
    assert all(re.search(text, found) for found in texts), texts


@pytest.mark.parametrize(("low", "high"), [(30, 40), (0, 5), (11, None)])
def test_check_finds_row_ids_that_a_list_leaves_out(
    tmp_path: Path, low: int, high: int | None
) -> None:
    table = evolving_table(tmp_path)
    table.append(table_of("a b c", [(n, n, n) for n in range(10)]))

    edit_summaries(table, 1, lambda meta: replace(meta, min_row_id=low, max_row_id=high))

    [text] = find_texts(table)
    assert f"states the row ids {low} to {high}, but the entries have 0 to 9" in text


@pytest.mark.parametrize("counts", [(0, 0), (0, None), (None, 0)])
def test_check_finds_nulls_that_a_list_denies(
    tmp_path: Path, counts: tuple[int | None, int | None]
) -> None:
    table = nullable_table(tmp_path)
    assert not find_texts(table)
    columns = stats(*(ColumnStats(null_count=count) for count in counts))

    edit_summaries(table, 2, lambda meta: replace(meta, **columns))

    texts = find_texts(table)
    assert len(texts) == sum(count == 0 for count in counts)
    assert all("is null in 0 of 2 entries" in text for text in texts)


def test_check_accepts_lists_that_state_nothing_or_wider_ranges(tmp_path: Path) -> None:
    table = partitioned_table(tmp_path)
    wide: dict[str, Any] = {"min_bucket": None, "max_bucket": 7, "min_level": 0, "max_level": None}
    wide |= stats(ColumnStats("a", "z", None), ColumnStats(None, None, 1))

    edit_summaries(table, 2, lambda meta: replace(meta, **wide))

    assert not check(table).findings


@pytest.mark.parametrize("changes", [{"num_added_files": 7}, {"num_deleted_files": 1}])
def test_check_compares_the_counts_of_each_list(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Lists of older snapshots have the right counts of the same manifests."""
    table = partitioned_table(tmp_path)

    edit_summaries(table, 2, lambda meta: replace(meta, **changes))

    with pytest.raises(CorruptFileError, match="as in its manifest list"):
        rows_of(table)
    [finding] = check(table).findings
    assert (finding.rule, finding.where) == ("unreadable", "snapshot 2")
    assert "as in its manifest list" in finding.text


def expire(table: Table) -> object:
    return expire_snapshots(table, EXECUTOR, retain_max=1, retain_min=1)


def clean(table: Table) -> object:
    return remove_orphan_files(table, EXECUTOR, older_than=int(time.time() * 1000))


@pytest.mark.parametrize("delete", [expire, clean])
@pytest.mark.parametrize("name", [name for name in RANGES if name != "bytes"])
def test_no_deletion_relies_on_ranges_of_lists(
    tmp_path: Path, name: str, delete: Callable[[Table], object]
) -> None:
    table = partitioned_table(tmp_path)
    compact(table, EXECUTOR, strategy="full")
    table.upsert(table_of("k p d", [(9, "b", 2)]))
    rows = rows_of(table)

    edit_summaries(table, 4, lambda meta: replace(meta, **RANGES[name][0]))
    delete(table)

    clear_metadata_cache()
    assert rows_of(table) == rows
    assert all(finding.rule == "manifest-list" for finding in check(table).findings)


@pytest.mark.parametrize("delete", [expire, clean])
@pytest.mark.parametrize(
    "changes", [{"num_added_files": 0}, {"num_deleted_files": 0}, {"num_deleted_files": 9}]
)
def test_no_file_is_deleted_by_wrong_counts_of_lists(
    tmp_path: Path, changes: dict[str, Any], delete: Callable[[Table], object]
) -> None:
    table = partitioned_table(tmp_path)
    compact(table, EXECUTOR, strategy="full")
    edit_summaries(table, 3, lambda meta: replace(meta, **changes))
    before = stored_files(table)

    with suppress(CorruptFileError):  # an expiration that sees no deleted files reads no manifest
        delete(table)
    deleted = before - stored_files(table)
    lists = "manifest-list-"  # of expired snapshots
    assert not [p for p in deleted if ".parquet" in p or ("manifest-" in p and lists not in p)]


def name_again(table: Table, snapshot_id: int, list_name: str) -> None:
    """Add the delta manifest of a snapshot to one of its lists."""
    snapshot, reader = table.stores.snapshots.get(snapshot_id), table.stores.manifests
    [added] = reader.manifest_list(snapshot.delta_manifest_list)
    name = getattr(snapshot, list_name)
    data = encode_manifest_list([*reader.manifest_list(name), added])
    (Path(table.paths.manifest_dir) / name).write_bytes(data)
    edit_snapshot(table, snapshot_id, **{f"{list_name}_size": len(data)})
    clear_metadata_cache()


@pytest.mark.parametrize("list_name", ["base_manifest_list", "delta_manifest_list"])
def test_rows_of_a_manifest_that_is_named_twice_are_not_read_twice(
    tmp_path: Path, list_name: str
) -> None:
    table = nullable_table(tmp_path)
    name_again(table, 2, list_name)

    for action in (rows_of, lambda t: t.scan().count(), lambda t: compact(t, EXECUTOR)):
        with pytest.raises(CorruptFileError, match="is named 2 times"):
            action(table)
    assert check(table).findings


def test_many_small_manifests_share_one_limit(tmp_path: Path) -> None:
    """Each of them is below the limit of its own decoder."""
    table = nullable_table(tmp_path)
    snapshot = table.stores.snapshots.get(2)
    [meta] = table.stores.manifests.manifest_list(snapshot.delta_manifest_list)
    many = [replace(meta, file_name=f"m-{n}", num_added_files=10_000) for n in range(100)]

    with pytest.raises(CorruptFileError, match="100 manifests have 1000000 entries, which needs"):
        next(table.stores.manifests.open_all(many))
