"""How published metadata becomes changes of a table with metadata of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AddSnapshotUpdate

from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata, IcebergSnapshot
from paimon_orch.table.iceberg.rest_updates import (
    build_placeholder,
    can_extend,
    number_schemas,
    plan_updates,
    to_schema,
)


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


def test_a_new_snapshot_is_not_much_older_than_the_last_change_of_the_table() -> None:
    """Catalogs refuse a snapshot that is more than a minute older than the table."""
    published = metadata([column(1, "k")])
    [snapshot] = published.snapshots
    published = replace(published, snapshots=[replace(snapshot, summary={"operation": "append"})])
    schema, spec = build_placeholder(published)
    served = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "/t")
    assert can_extend(served, published)
    for changed, expected in ((259_000, 200_000), (59_001, 1), (59_000, 0), (10, 0)):
        aged = served.model_copy(update={"last_updated_ms": changed})
        [added] = [u for u in plan_updates(aged, published, {}) if isinstance(u, AddSnapshotUpdate)]
        assert added.snapshot.timestamp_ms == expected


def test_a_partition_column_0_cannot_be_created() -> None:
    columns = [column(0, "day"), column(1, "k")]
    for partition_ids in ((0,), (1, 0), ()):
        schema, spec = build_placeholder(metadata(columns, partition_ids=partition_ids))
        assert (schema.fields, spec.fields) == ((), ())


def test_a_partition_column_with_a_huge_number_does_not_need_as_many_columns() -> None:
    columns = [column(2**31 - 1, "day"), column(1, "k")]
    schema, spec = build_placeholder(metadata(columns, partition_ids=(2**31 - 1,)))
    assert (schema.fields, spec.fields) == ((), ())


def test_schemas_of_the_server_must_be_those_of_the_published_metadata() -> None:
    a, b = metadata([column(1, "a")]), metadata([column(1, "a")], [column(1, "b")])
    created = new_table_metadata(*build_placeholder(a), UNSORTED_SORT_ORDER, "/t")

    def serve(published: IcebergMetadata) -> TableMetadata:
        schemas = map(to_schema, number_schemas(published).schemas)
        return created.model_copy(update={"schemas": [*created.schemas, *schemas]})

    assert can_extend(serve(a), b)
    assert can_extend(serve(b), b)
    assert not can_extend(serve(b), a)
    assert not can_extend(serve(a), metadata([column(1, "b")]))
