"""How published metadata becomes changes of a table with metadata of its own."""

from __future__ import annotations

from typing import Any

from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata, IcebergSnapshot
from paimon_orch.table.iceberg.rest_updates import build_placeholder, number_schemas


def column(number: int, name: str, kind: str = "int") -> dict[str, Any]:
    return {"id": number, "name": name, "required": False, "type": kind}


def metadata(
    *columns: list[dict[str, Any]], partition_ids: tuple[int, ...] = ()
) -> IcebergMetadata:
    """Return metadata with a schema for each list of columns; the last one is current."""
    names = {field["id"]: field["name"] for field in columns[-1]}
    return IcebergMetadata(
        format_version=2,
        table_uuid="00000000-0000-0000-0000-000000000000",
        location="/t",
        last_updated_millis=0,
        last_column_id=9,
        schemas=[
            {"type": "struct", "schema-id": number, "fields": fields}
            for number, fields in enumerate(columns)
        ],
        current_schema_id=len(columns) - 1,
        partition_spec=[
            {"name": names[i], "transform": "identity", "source-id": i, "field-id": 1000 + n}
            for n, i in enumerate(partition_ids)
        ],
        snapshots=[
            IcebergSnapshot(
                id=1, parent_id=None, time_millis=0, manifest_list="a", schema_id=0, summary={}
            )
        ],
    )


def test_equal_schemas_have_one_number() -> None:
    a, b = [column(0, "a")], [column(0, "a"), column(1, "b")]

    numbered = number_schemas(metadata(a, a, b, b, a))

    assert [schema["schema-id"] for schema in numbered.schemas] == [1, 2]
    assert [schema["fields"] for schema in numbered.schemas] == [a, b]
    assert numbered.numbers == {0: 1, 1: 1, 2: 2, 3: 2, 4: 1}


def test_partition_columns_are_created_with_their_ids() -> None:
    columns = [column(0, "k"), column(3, "day", "string"), column(1, "hour")]

    schema, spec = build_placeholder(metadata(columns, partition_ids=(3, 1)))

    assert [(field.field_id, field.name) for field in schema.fields] == [
        (1, "hour"),
        (2, "f2"),
        (3, "day"),
    ]
    assert [(field.source_id, field.field_id, field.name) for field in spec.fields] == [
        (3, 1000, "day"),
        (1, 1001, "hour"),
    ]


def test_a_partition_column_0_cannot_be_created() -> None:
    columns = [column(0, "day"), column(1, "k")]
    for partition_ids in ((0,), (1, 0), ()):
        schema, spec = build_placeholder(metadata(columns, partition_ids=partition_ids))
        assert (schema.fields, spec.fields) == ((), ())
