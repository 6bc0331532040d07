"""Every snapshot, tag and branch of the golden tables has the rows that its writer read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.golden import (
    assert_rows_equal,
    canonical_rows,
    copy_warehouse,
    expected_rows,
    golden_tables,
    table_name,
)
from support.golden_bitmaps import order_bitmaps
from support.golden_limits import MERGED_BY_ENGINES, refusal_pattern

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError

Entry = dict[str, Any]
Warehouses = Callable[[Path], Path]

# Java 0.9 confuses null rows with rows of nulls (see `tests/data/README.md`).
# It also keeps null rows in nested tables; newer releases of Java Paimon drop them, as we do.
ROWS_OF_NULLS_MISREAD = {"pk_aggregation_complex"}


def _case(name: str, *values: Any, of: str = "") -> Any:
    return pytest.param(name, *values, id=f"{name}{of}")


def _without_rows_of_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        fields = {key: _without_rows_of_nulls(item) for key, item in value.items()}
        return fields if any(item is not None for item in fields.values()) else None
    return [_without_rows_of_nulls(item) for item in value] if isinstance(value, list) else value


def _without_null_rows(row: list[Any], types: list[str]) -> list[Any]:
    """Return a row without null rows in its arrays of rows."""
    return [
        [item for item in value if item is not None]
        if isinstance(value, list) and kind.startswith("list<") and "struct<" in kind
        else value
        for value, kind in zip(map(_without_rows_of_nulls, row), types, strict=True)
    ]


def _snapshot_cases() -> Iterator[Any]:
    for name, folder, entry in golden_tables():
        for snapshot in entry["snapshots"]:
            yield _case(name, folder, entry, snapshot, of=f"/snapshot-{snapshot['key']}")


def _tag_cases() -> Iterator[Any]:
    for name, folder, entry in golden_tables():
        for tag in entry["tag_rows"]:
            yield _case(name, folder, entry, tag, of=f"/tag-{tag['key']}")


def _latest_cases() -> Iterator[Any]:
    for name, folder, entry in golden_tables():
        yield _case(name, folder, entry, of="/latest")


def _cases_with(key: str) -> Iterator[Any]:
    for name, folder, entry in golden_tables():
        if key in entry:
            yield _case(name, folder, entry)


@pytest.fixture(scope="session")
def warehouse_of(tmp_path_factory: pytest.TempPathFactory) -> Warehouses:
    """Return the copy of a golden warehouse, one per session; the original is read-only."""
    root = tmp_path_factory.mktemp("golden")
    return cache(lambda folder: copy_warehouse(folder, root / folder.parent.name / folder.name))


def _open(warehouse: Path, entry: Entry) -> Any:
    return Catalog(str(warehouse)).table(table_name(entry))


@contextmanager
def _refused_as_listed(name: str) -> Iterator[None]:
    refusal = refusal_pattern(name)
    if refusal is None:
        yield
        return
    with pytest.raises(UnsupportedError, match=refusal):
        yield


def _scan(table: Any, name: str, **time_travel: Any) -> Any:
    """Return the rows that the recorded reader returned."""
    scan = table.scan(**time_travel)
    return (replace(scan, merge_postponed=False) if name in MERGED_BY_ENGINES else scan).to_arrow()


def _assert_reads(folder: Path, result: Any, expected: Entry) -> None:
    assert result.column_names == expected["columns"]
    types = [str(field.type) for field in result.schema]
    rows, expected_result = (
        order_bitmaps(side, result.column_names)
        for side in (canonical_rows(result), expected_rows(expected))
    )
    if folder.name in ROWS_OF_NULLS_MISREAD:
        rows, expected_result = (
            [_without_null_rows(row, types) for row in side] for side in (rows, expected_result)
        )
    assert_rows_equal(expected_result, rows, types)


@pytest.mark.sampled(100)
@pytest.mark.parametrize(("name", "folder", "entry", "snapshot"), list(_snapshot_cases()))
def test_a_snapshot_has_the_rows_that_its_writer_read(
    warehouse_of: Warehouses, name: str, folder: Path, entry: Entry, snapshot: Entry
) -> None:
    table = _open(warehouse_of(folder), entry)
    with _refused_as_listed(name):
        _assert_reads(folder, _scan(table, name, snapshot_id=snapshot["id"]), snapshot)


@pytest.mark.parametrize(("name", "folder", "entry", "tag"), list(_tag_cases()))
def test_a_tag_has_the_rows_that_its_writer_read(
    warehouse_of: Warehouses, name: str, folder: Path, entry: Entry, tag: Entry
) -> None:
    table = _open(warehouse_of(folder), entry)
    with _refused_as_listed(name):
        _assert_reads(folder, _scan(table, name, tag=tag["key"]), tag)


@pytest.mark.sampled(60)
@pytest.mark.parametrize(("name", "folder", "entry"), list(_latest_cases()))
def test_a_scan_reads_the_latest_snapshot(
    warehouse_of: Warehouses, name: str, folder: Path, entry: Entry
) -> None:
    if "combined_rows" in entry:
        pytest.skip("plain reads of tables with several branches have a separate test")
    table = _open(warehouse_of(folder), entry)
    with _refused_as_listed(name):
        result = _scan(table, name)
        latest = table.stores.snapshots.latest()
        if entry["latest_snapshot"] is None:
            assert latest is None
            names = [field["name"] for field in entry["fields"]]
            _assert_reads(folder, result, {"columns": names, "rows": []})
            return
        assert latest.id == entry["latest_snapshot"]
        assert result.column_names == [field["name"] for field in entry["fields"]]
        [expected] = [s for s in entry["snapshots"] if s["id"] == entry["latest_snapshot"]]
        _assert_reads(folder, result, expected)


@pytest.mark.parametrize(("name", "folder", "entry"), list(_cases_with("combined_rows")))
def test_a_read_combines_the_branches_as_the_writer_does(
    warehouse_of: Warehouses, name: str, folder: Path, entry: Entry
) -> None:
    table = _open(warehouse_of(folder), entry)
    expected = {"columns": entry["combined_columns"], "rows": entry["combined_rows"]}
    with _refused_as_listed(name):
        _assert_reads(folder, table.scan().to_arrow(), expected)


@pytest.mark.parametrize(("name", "folder", "entry"), list(_cases_with("row_tracking")))
def test_row_ids_and_sequence_numbers_equal_those_of_the_writer(
    warehouse_of: Warehouses, name: str, folder: Path, entry: Entry
) -> None:
    table = _open(warehouse_of(folder), entry)
    with _refused_as_listed(name):
        columns = [*table.load().schema.names, "_ROW_ID", "_SEQUENCE_NUMBER"]
        expected = {"columns": columns, "rows": entry["row_tracking"]}
        _assert_reads(folder, table.scan(columns).to_arrow(), expected)
