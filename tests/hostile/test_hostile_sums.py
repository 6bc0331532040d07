"""Many small index files, or many entries of one: each is below its limit, all are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.damage import edit_index
from support.data_evolution import evolving_table
from support.limited_process import refuse, run_limited
from support.tables import new_table, rows_of, table_of

from paimon_orch.format.manifest.index_manifest import HASH_INDEX, IndexManifestEntry
from paimon_orch.steps import create_global_index
from paimon_orch.table.column_index import global_index_evaluator
from paimon_orch.table.table import Table

ROWS, ENTRIES, LIMIT = 1 << 19, 64, 300 << 20


def table_with_nulls(root: Path) -> Table:
    """Create a table with an index that states a million ranges in a few bytes for each."""
    table = evolving_table(root)
    numbers = np.arange(ROWS)
    rows = {"a": pa.array(numbers, mask=numbers % 2 == 0), "b": numbers, "c": numbers}
    table.append(pa.table(rows))
    create_global_index(table, "a")
    return table


def repeat_index(table: Table, *, copies: bool) -> None:
    """Let entries name one index file, or copies of it."""

    def repeat(entries: list[IndexManifestEntry]) -> Sequence[IndexManifestEntry]:
        [entry] = entries
        path = Path(table.paths.index_file(table.load().schema, entry))
        if not copies:
            return [entry] * ENTRIES
        names = [f"{entry.file_name}-{number}" for number in range(ENTRIES)]
        for name in names:
            path.with_name(name).hardlink_to(path)
        return [replace(entry, file_name=name) for name in names]

    latest = table.stores.snapshots.latest_id()
    assert latest is not None
    edit_index(table, latest, repeat)


@pytest.mark.parametrize("copies", [False, True])
def test_indexes_of_many_ranges_need_the_memory_of_their_union(
    tmp_path: Path, *, copies: bool
) -> None:
    table = table_with_nulls(tmp_path)
    repeat_index(table, copies=copies)

    def count() -> int:
        return table.scan(["b"], filter="a IS NULL AND b < 10").explain().files

    assert run_limited(count, memory=LIMIT, seconds=300) == 1


def test_no_index_is_used_after_too_many_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(global_index_evaluator, "_PENDING_RANGES", 1)
    monkeypatch.setattr(global_index_evaluator, "_MAX_RANGES", 2)
    table = evolving_table(tmp_path)
    for start in range(0, 40, 10):
        table.append(table_of("a b c", [(n % 2 or None, n, 0) for n in range(start, start + 10)]))
        create_global_index(table, "a")

    expected = [(n,) for n in range(0, 40, 2)]
    assert rows_of(table, columns=["b"], filter="a IS NULL") == expected


def test_buckets_do_not_share_a_hash_index(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="-1")
    table.upsert(table_of("k v", [(n, "a") for n in range(50_000)]))

    def share(entries: list[IndexManifestEntry]) -> Sequence[IndexManifestEntry]:
        [entry] = entries
        assert entry.index_type == HASH_INDEX
        return [replace(entry, bucket=number) for number in range(30_000)]

    edit_index(table, 1, share)

    message = refuse(lambda: table.upsert(table_of("k v", [(-1, "b")])))
    assert "has the hashes of two buckets" in message
    assert table.stores.snapshots.latest_id() == 1
