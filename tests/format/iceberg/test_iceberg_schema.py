"""Schemas and partition specs of Iceberg metadata equal those that Java Paimon wrote."""

from __future__ import annotations

import json

import pytest
from support.golden import GOLDEN

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.iceberg.iceberg_schema import (
    build_iceberg_schema,
    build_partition_spec,
    compute_last_column_id,
)
from paimon_orch.format.schema import TableSchema, build_table_schema
from paimon_orch.format.types.data_types import parse_columns

GOLDEN_METADATA = sorted(GOLDEN.glob("java-2.0/iceberg_*/warehouse/*/*/metadata/v*.metadata.json"))


def schema_of(columns: str, partition_by: tuple[str, ...] = ()) -> TableSchema:
    return build_table_schema(parse_columns(columns), partition_by=partition_by)


def test_golden_schemas_and_specs_equal_those_of_java() -> None:
    assert len(GOLDEN_METADATA) >= 5
    for path in GOLDEN_METADATA:
        metadata = json.loads(path.read_text(encoding="utf-8"))
        for expected in metadata["schemas"]:
            file = path.parents[1] / "schema" / f"schema-{expected['schema-id']}"
            schema = TableSchema.from_json(file.read_bytes(), str(file))
            actual = build_iceberg_schema(schema, metadata["format-version"])
            assert json.dumps(actual) == json.dumps(expected)
            assert build_partition_spec(schema) == metadata["partition-specs"][0]["fields"]
        assert compute_last_column_id(schema) == metadata["last-column-id"]


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("TIMESTAMP(2)", "less than millisecond precision"),
        ("TIMESTAMP_LTZ(0)", "less than millisecond precision"),
        ("TIMESTAMP(7)", "version 2 has no nanosecond timestamps"),
        ("TIME(4)", "TIME in milliseconds"),
    ],
)
def test_types_that_iceberg_lacks_are_refused_by_name(column: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"column 'c' has type .*{reason}"):
        build_iceberg_schema(schema_of(f"id INT, c {column}"), 2)
