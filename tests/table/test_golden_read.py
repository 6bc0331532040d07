"""Every golden table reads back as its reference reader did: every snapshot, tag and branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from golden import (
    GOLDEN,
    assert_rows_equal,
    canonical_rows,
    copy_warehouse,
    expected_rows,
    golden_tables,
    table_name,
)

from paimon_orch import Catalog

Entry = dict[str, Any]
Warehouses = Callable[[Path], Path]

# Java 0.9 takes a null row for a row of nulls, and the other way round: see the README of its golden tables.
ROWS_OF_NULLS_MISREAD = {"pk_aggregation_complex"}


def _case(name: str, *values: Any) -> Any:
    return pytest.param(*values, id=name)


def _without_rows_of_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_rows_of_nulls(item) for key, item in value.items()}
        return kept if any(item is not None for item in kept.values()) else None
    return [_without_rows_of_nulls(item) for item in value] if isinstance(value, list) else value


def _or_missing(cases: Iterator[Any], arguments: int) -> list[Any]:
    if GOLDEN.exists():
        return list(cases)
    missing = pytest.mark.skip(
        "the golden tables are missing: no ../shared/golden beside the repository"
    )
    return [pytest.param(*[None] * arguments, id="no-golden-tables", marks=missing)]


def _snapshot_cases() -> Iterator[Any]:
    for name, folder, entry in golden_tables():
        for snapshot in entry["snapshots"]:
            yield _case(f"{name}/snapshot-{snapshot['key']}", folder, entry, snapshot)


def _tag_cases() -> Iterator[Any]:
    for name, folder, entry in golden_tables():
        for tag in entry["tag_rows"]:
            yield _case(f"{name}/tag-{tag['key']}", folder, entry, tag)


def _latest_cases() -> Iterator[Any]:
    for name, folder, entry in golden_tables():
        yield _case(f"{name}/latest", folder, entry)


@pytest.fixture(scope="session")
def warehouse_of(tmp_path_factory: pytest.TempPathFactory) -> Warehouses:
    """Gives the copy of a golden folder's warehouse, made once a session: the original is read-only."""
    root = tmp_path_factory.mktemp("golden")
    return cache(lambda folder: copy_warehouse(folder, root / folder.parent.name / folder.name))


def _open(warehouse: Path, entry: Entry) -> Any:
    return Catalog(str(warehouse)).table(table_name(entry))


def _assert_reads(folder: Path, found: Any, expected: Entry) -> None:
    assert found.column_names == expected["columns"]
    types = [str(field.type) for field in found.schema]
    rows, wanted = canonical_rows(found), expected_rows(expected)
    if folder.name in ROWS_OF_NULLS_MISREAD:
        rows, wanted = ([_without_rows_of_nulls(row) for row in side] for side in (rows, wanted))
    assert_rows_equal(wanted, rows, types)


@pytest.mark.parametrize(("folder", "entry", "snapshot"), _or_missing(_snapshot_cases(), 3))
def test_snapshot_reads_as_its_writer_did(
    warehouse_of: Warehouses, folder: Path, entry: Entry, snapshot: Entry
) -> None:
    table = _open(warehouse_of(folder), entry)
    _assert_reads(folder, table.scan(snapshot_id=snapshot["id"]).to_arrow(), snapshot)


@pytest.mark.parametrize(("folder", "entry", "tag"), _or_missing(_tag_cases(), 3))
def test_tag_reads_as_its_writer_did(
    warehouse_of: Warehouses, folder: Path, entry: Entry, tag: Entry
) -> None:
    table = _open(warehouse_of(folder), entry)
    _assert_reads(folder, table.scan(tag=tag["key"]).to_arrow(), tag)


@pytest.mark.parametrize(("folder", "entry"), _or_missing(_latest_cases(), 2))
def test_scan_reads_the_latest_snapshot(
    warehouse_of: Warehouses, folder: Path, entry: Entry
) -> None:
    table = _open(warehouse_of(folder), entry)
    found = table.scan().to_arrow()
    latest = table.snapshots.latest()
    if entry["latest_snapshot"] is None:
        assert latest is None
        names = [field["name"] for field in entry["fields"]]
        _assert_reads(folder, found, {"columns": names, "rows": []})
        return
    assert latest.id == entry["latest_snapshot"]
    assert found.column_names == [field["name"] for field in entry["fields"]]
    [expected] = [s for s in entry["snapshots"] if s["id"] == entry["latest_snapshot"]]
    _assert_reads(folder, found, expected)
