"""``count`` returns the number of rows of a scan, and reads no data if metadata has the number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.data_evolution import add_columns, evolving_table
from support.tables import new_table, table_of

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.steps import compact, delete
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.table.table import Table

ROWS = [(p, k, "x") for p in ("a", "b") for k in range(5)]
KINDS: Mapping[str, dict[str, Any]] = {
    "append": {"key": (), "bucket": "-1"},
    "keyed": {"key": ("p", "k")},
    "vectors": {"key": ("p", "k"), "deletion_vectors__enabled": "true"},
    "aggregation": {
        "key": ("p", "k"),
        "merge_engine": "aggregation",
        "fields__v__aggregate_function": "last_value",
    },
}
SCANS: list[dict[str, Any]] = [
    {},
    {"limit": 3},
    {"limit": 0},
    {"filter": "p = 'a'"},
    {"filter": "k > 1"},
    {"filter": "v = 'y'", "columns": ["k"]},
    {"filter": "p = 'a' and k > 1", "limit": 2, "order_by": "v"},
    {"filter": "p = 'nowhere'"},
]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of the fields of each read of a data file."""
    names: list[list[str]] = []
    read = FileReader.read

    def record(self: FileReader, file: Any, fields: Any, *args: Any, **kwargs: Any) -> Any:
        names.append([field.name for field in fields])
        return read(self, file, fields, *args, **kwargs)

    monkeypatch.setattr(FileReader, "read", record)
    return names


def written(root: Path, kind: str) -> Table:
    table = new_table(root, "p STRING, k BIGINT, v STRING", partition_by=("p",), **KINDS[kind])
    table.append(table_of("p k v", ROWS))
    table.append(table_of("p k v", [("a", 1, "y"), ("b", 7, None)]))
    return table


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_the_count_is_the_number_of_rows_that_are_read(tmp_path: Path, kind: str) -> None:
    table = written(tmp_path, kind)

    for scan in SCANS:
        assert table.scan(**scan).count() == table.scan(**scan).to_arrow().num_rows, scan
    if kind != "append":
        compact(table, InProcessExecutor(), strategy="full")
    if kind in ("append", "vectors"):
        delete(table, InProcessExecutor(), "k = 1")
    for scan in SCANS:
        assert table.scan(**scan).count() == table.scan(**scan).to_arrow().num_rows, scan


@pytest.mark.parametrize("kind", KINDS)
def test_no_data_is_read_where_no_merge_and_no_filter_is_needed(
    tmp_path: Path, kind: str, reads: list[list[str]]
) -> None:
    table = written(tmp_path, kind)
    if kind != "append":
        compact(table, InProcessExecutor(), strategy="full")
        reads.clear()

    assert table.scan().count() == (12 if kind == "append" else 11)
    assert table.scan(filter="p = 'b'").count() == 6
    assert reads == []


def test_only_the_keys_are_read_for_a_merge(tmp_path: Path, reads: list[list[str]]) -> None:
    table = written(tmp_path, "keyed")

    assert table.scan().count() == 11
    assert {name for names in reads for name in names} <= {"p", "k", "_VALUE_KIND"}


def test_rows_whose_columns_are_in_several_files_are_counted_once(
    tmp_path: Path, reads: list[list[str]]
) -> None:
    table = evolving_table(tmp_path)
    add_columns(table, table_of("a b c", [(n, n, n) for n in range(4)]))
    add_columns(table, table_of("b", [(5,)] * 4), 0)

    assert table.scan().count() == table.scan(filter="b = 5").count() == 4
    reads.clear()
    assert table.scan().count() == 4
    assert reads == []


def test_system_tables_are_counted(tmp_path: Path) -> None:
    table = written(tmp_path, "keyed")

    for name in ("snapshots", "files", "audit_log", "ro"):
        scan = table.system(name).scan()
        assert scan.count() == scan.to_arrow().num_rows, name


def test_a_scan_of_no_rows_counts_zero(tmp_path: Path) -> None:
    assert new_table(tmp_path).scan().count() == 0


def test_rows_are_read_into_polars(tmp_path: Path) -> None:
    frame = written(tmp_path, "append").scan(columns=["k"], filter="k = 7").to_polars()

    assert frame.to_dict(as_series=False) == {"k": [7]}
