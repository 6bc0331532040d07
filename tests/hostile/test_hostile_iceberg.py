"""Published Iceberg metadata that another writer has changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.tables import new_table, table_of

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata
from paimon_orch.steps import check, sync_iceberg


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
