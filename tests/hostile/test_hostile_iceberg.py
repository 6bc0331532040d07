"""Published Iceberg metadata that another writer has changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.tables import new_table, table_of

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata
from paimon_orch.steps import check, sync_iceberg
from paimon_orch.table.iceberg.summary import FileTotals


@pytest.mark.parametrize("key", ["id", "name", "type"])
def test_a_schema_with_an_incomplete_column_is_refused_and_replaced(
    tmp_path: Path, key: str
) -> None:
    table = new_table(tmp_path, metadata__iceberg__storage="table-location")
    table.upsert(table_of("k v", [(1, "a")]))
    path = Path(table.paths.root) / "metadata" / "v1.metadata.json"
    value = json.loads(path.read_bytes())
    del value["schemas"][0]["fields"][0][key]
    path.write_text(json.dumps(value))

    with pytest.raises(CorruptFileError, match=str(path)):
        IcebergMetadata.from_json(path.read_bytes(), str(path))
    check(table)
    sync_iceberg(table)
    IcebergMetadata.from_json(path.read_bytes(), str(path))


CHANGES: dict[str, object] = {
    "snapshots.0.summary.paimon-commit-identity": ["x"],
    "snapshots.0.summary.total-files-size": 5,
    "snapshots.0.snapshot-id": 2**63,
    "snapshots.0.timestamp-ms": True,
    "refs": {"t": 5},
    "properties": {"a": None},
    "partition-specs": [],
}


@pytest.mark.parametrize("key", CHANGES)
def test_a_value_of_another_type_is_refused_and_replaced(tmp_path: Path, key: str) -> None:
    table = new_table(tmp_path, metadata__iceberg__storage="table-location")
    table.upsert(table_of("k v", [(1, "a")]))
    path = Path(table.paths.root) / "metadata" / "v1.metadata.json"
    value = json.loads(path.read_bytes())
    *outer, last = key.split(".")
    parent = value
    for name in outer:
        parent = parent[int(name) if name.isdecimal() else name]
    parent[last] = CHANGES[key]
    path.write_text(json.dumps(value))

    with pytest.raises(CorruptFileError, match=str(path)):
        IcebergMetadata.from_json(path.read_bytes(), str(path))
    check(table)
    table.upsert(table_of("k v", [(2, "b")]))
    sync_iceberg(table)


@pytest.mark.parametrize("size", ["\u00b2", "9" * 5_000, "-1", "1e3", ""])
def test_a_total_that_is_no_number_is_not_used(size: str) -> None:
    summary = {"total-data-files": "0", "total-files-size": size}
    assert FileTotals.find_data_size(summary, []) is None
