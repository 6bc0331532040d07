"""The changes that make a table of an Iceberg REST catalog show the published metadata.

The server has metadata of its own, with manifest lists and schemas of ours.
See docs/format/iceberg-metadata.md#rest-catalogs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.types import BooleanType, NestedField

from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata, IcebergSnapshot
from paimon_orch.table.iceberg.metadata_store import normalize_path

MAIN = "main"
_PLACEHOLDER_SCHEMA = 0
"""The schema with which a table is created, because servers number its columns from 1."""
_MAX_PLACEHOLDER_COLUMNS = 5_000
_MAX_TIME_BEFORE_MILLIS = 59_000
"""Iceberg refuses snapshots that are a minute older than the last change of the table."""


@dataclass(frozen=True, slots=True)
class NumberedSchemas:
    """The schemas of published metadata, numbered from 1; equal ones have one number."""

    schemas: Sequence[Mapping[str, Any]]
    numbers: Mapping[int, int] = field(default_factory=dict)
    """The number of each schema by its id in the published metadata."""


def number_schemas(metadata: IcebergMetadata) -> NumberedSchemas:
    """Return the schemas with the numbers that Java Paimon gives them, because a server numbers new schemas itself."""
    unique: list[Mapping[str, Any]] = []
    numbers: dict[int, int] = {}
    for schema in sorted(metadata.schemas, key=lambda item: int(item["schema-id"])):
        known = [n for n, other in enumerate(unique, 1) if other["fields"] == schema["fields"]]
        if not known:
            unique.append({**schema, "schema-id": len(unique) + 1})
        numbers[schema["schema-id"]] = known[0] if known else len(unique)
    return NumberedSchemas(unique, numbers)


def to_schema(value: Mapping[str, Any]) -> Schema:
    """Return a schema of pyiceberg."""
    return Schema.model_validate(dict(value))


def build_placeholder(metadata: IcebergMetadata) -> tuple[Schema, PartitionSpec]:
    """Return the schema and the partition spec with which a table is created.

    Servers number the columns of a new table from 1, and Paimon's begin with 0. So the columns are
    added afterwards, except those of the partition spec, which are put at the places of their ids.
    A spec with the column 0, or with a number of thousands, which would need as many columns,
    cannot be had; then the table shows no partitions.
    """
    sources = {int(item["source-id"]) for item in metadata.partition_spec}
    if not sources or 0 in sources or max(sources) > _MAX_PLACEHOLDER_COLUMNS:
        return Schema(), UNPARTITIONED_PARTITION_SPEC
    [current] = (s for s in metadata.schemas if s["schema-id"] == metadata.current_schema_id)
    by_id = {column.field_id: column for column in to_schema(current).fields}
    columns = [
        by_id[number]
        if number in sources
        else NestedField(number, f"f{number}", BooleanType(), required=False)
        for number in range(1, max(sources) + 1)
    ]
    spec = [PartitionField.model_validate(dict(item)) for item in metadata.partition_spec]
    return Schema(*columns), PartitionSpec(*spec)


def is_same_snapshot(served: Snapshot | None, ours: IcebergSnapshot | None) -> bool:
    """Return whether a snapshot of the server is ours: manifest lists have unique names."""
    return (
        served is not None
        and ours is not None
        and served.snapshot_id == ours.id
        and normalize_path(served.manifest_list) == normalize_path(ours.manifest_list)
    )


def can_extend(served: TableMetadata, published: IcebergMetadata) -> bool:
    """Return whether the published snapshots continue those of the server.

    They do not after a rollback or a rebuild. The table must then be created again.
    """
    if served.format_version != published.format_version:
        return False
    schemas = number_schemas(published).schemas
    for schema in served.schemas:
        number = schema.schema_id
        if number == _PLACEHOLDER_SCHEMA:
            continue
        if (
            number > len(schemas)
            or schema.as_struct() != to_schema(schemas[number - 1]).as_struct()
        ):
            return False
    current = served.current_snapshot()
    return current is None or is_same_snapshot(
        current, published.find_snapshot(current.snapshot_id)
    )


def plan_updates(
    served: TableMetadata, published: IcebergMetadata, properties: Mapping[str, str]
) -> tuple[TableUpdate, ...]:
    """Return the changes of a table that :func:`can_extend` holds for; empty if there are none."""
    changed = {k: v for k, v in properties.items() if served.properties.get(k) != v}
    return (
        *_plan_schemas(served, published),
        *_plan_snapshots(served, published),
        *_plan_tags(served, published),
        *([SetPropertiesUpdate(updates=changed)] if changed else ()),
    )


def _plan_schemas(served: TableMetadata, published: IcebergMetadata) -> list[TableUpdate]:
    numbered = number_schemas(published)
    known = {schema.schema_id for schema in served.schemas}
    updates: list[TableUpdate] = [
        AddSchemaUpdate(schema=to_schema(schema))
        for schema in numbered.schemas
        if schema["schema-id"] not in known
    ]
    current = numbered.numbers[published.current_schema_id]
    if current != served.current_schema_id:
        updates.append(SetCurrentSchemaUpdate.model_validate({"schema-id": current}))
    return updates


def _plan_snapshots(served: TableMetadata, published: IcebergMetadata) -> list[TableUpdate]:
    current = served.current_snapshot()
    numbers = number_schemas(published).numbers
    newest = -1 if current is None else current.snapshot_id
    updates: list[TableUpdate] = []
    changed_millis = served.last_updated_ms
    for snapshot in published.snapshots:
        if snapshot.id <= newest:
            continue
        changed_millis = max(snapshot.time_millis, changed_millis - _MAX_TIME_BEFORE_MILLIS)
        value = snapshot.to_json() | {"timestamp-ms": changed_millis}
        if snapshot.schema_id is not None:
            value["schema-id"] = numbers[snapshot.schema_id]
        updates.append(AddSnapshotUpdate(snapshot=Snapshot.model_validate(value)))
    if newest != published.current.id:
        updates.append(_set_ref(MAIN, SnapshotRefType.BRANCH, published.current.id))
    removed = [
        snapshot.snapshot_id
        for snapshot in served.snapshots
        if not is_same_snapshot(snapshot, published.find_snapshot(snapshot.snapshot_id))
    ]
    if removed:
        updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": removed}))
    return updates


def _plan_tags(served: TableMetadata, published: IcebergMetadata) -> list[TableUpdate]:
    newest = -1 if (current := served.current_snapshot()) is None else current.snapshot_id
    ids = {snapshot.snapshot_id for snapshot in served.snapshots}
    ids |= {snapshot.id for snapshot in published.snapshots if snapshot.id > newest}
    tags = {name: number for name, number in published.tags.items() if number in ids}
    existing = {name: ref.snapshot_id for name, ref in served.refs.items() if name != MAIN}
    changed = {name: number for name, number in tags.items() if existing.get(name) != number}
    removed = [name for name in existing if name not in tags]
    return [
        *(_set_ref(name, SnapshotRefType.TAG, number) for name, number in changed.items()),
        *(RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in removed),
    ]


def _set_ref(name: str, kind: SnapshotRefType, snapshot_id: int) -> TableUpdate:
    value = {"ref-name": name, "type": kind, "snapshot-id": snapshot_id}
    return SetSnapshotRefUpdate.model_validate(value)
