"""Errors for unsupported column types name schema file, column and type."""

import json
import re
from pathlib import Path

import pytest

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.schema import TableSchema


@pytest.mark.parametrize(
    "stored_type",
    ["GEOMETRY", {"type": "GEOGRAPHY NOT NULL"}, {"type": "ARRAY", "element": "BLOB"}],
    ids=["text", "object", "nested"],
)
def test_the_error_contains_the_schema_the_column_and_the_type(
    stored_type: object, tmp_path: Path
) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", "id BIGINT, payload STRING")
    path = Path(table.stores.schemas.path(0))
    schema = json.loads(path.read_bytes())
    schema["fields"][1]["type"] = stored_type
    path.write_text(json.dumps(schema))
    name = (
        stored_type["type"]
        if isinstance(stored_type, dict)
        else str(stored_type).split(" ", maxsplit=1)[0]
    )
    with pytest.raises(UnsupportedError, match=rf"schema-0: column 'payload'.*{re.escape(name)}"):
        TableSchema.from_json(path.read_bytes(), str(path))
