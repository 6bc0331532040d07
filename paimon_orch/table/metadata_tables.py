"""Metadata tables: system tables about files, snapshots and options, with the columns of Paimon.

As in Java Paimon, times without a time zone are local wall clock times.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_orch.errors import wrap_decode_errors
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.files.stats.file_stats import FileStats
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileSource
from paimon_orch.format.options.core_options import SCAN_FALLBACK_BRANCH
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.format.partition_path import format_partition_value, format_partition_values
from paimon_orch.format.paths import parse_file_format
from paimon_orch.format.row.binary_row import deserialize_row, read_row_arity
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import AtomicType, Field
from paimon_orch.safe_text import escape_surrogates
from paimon_orch.table.metadata.metadata_io import read_statistics
from paimon_orch.table.metadata.tags import parse_tag_time
from paimon_orch.table.metadata.time_travel import SnapshotSelector
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.fallback_branch import find_branch_snapshot
from paimon_orch.table.table_state import TableState, build_table_state

if TYPE_CHECKING:
    from paimon_orch.table.table import Table

Record = dict[str, Any]
TIME_TYPE = pa.timestamp("ms")


def build_arrow_schema(**columns: pa.DataType) -> pa.Schema:
    """Return a schema; a column whose name ends with ``_`` is not nullable."""
    return pa.schema(
        [
            pa.field(name.removesuffix("_"), kind, not name.endswith("_"))
            for name, kind in columns.items()
        ]
    )


def build_rows(rows: Iterable[Record], form: pa.Schema) -> pa.Table:
    """Return rows as a table; names that are not UTF-8 have escape sequences for their bytes."""
    rows = list(rows)
    try:
        return pa.Table.from_pylist(rows, form)
    except UnicodeEncodeError:
        shown = [
            {
                key: escape_surrogates(value) if isinstance(value, str) else value
                for key, value in row.items()
            }
            for row in rows
        ]
        return pa.Table.from_pylist(shown, form)


SNAPSHOTS_COLUMNS = build_arrow_schema(
    snapshot_id_=pa.int64(),
    schema_id_=pa.int64(),
    commit_user_=pa.string(),
    commit_identifier_=pa.int64(),
    commit_kind_=pa.string(),
    commit_time_=TIME_TYPE,
    base_manifest_list_=pa.string(),
    delta_manifest_list_=pa.string(),
    changelog_manifest_list=pa.string(),
    total_record_count=pa.int64(),
    delta_record_count=pa.int64(),
    changelog_record_count=pa.int64(),
    watermark=pa.int64(),
)
SCHEMAS_COLUMNS = build_arrow_schema(
    schema_id_=pa.int64(),
    fields_=pa.string(),
    partition_keys_=pa.string(),
    primary_keys_=pa.string(),
    options_=pa.string(),
    comment=pa.string(),
    update_time_=TIME_TYPE,
)
OPTIONS_COLUMNS = build_arrow_schema(key_=pa.string(), value_=pa.string())
TAGS_COLUMNS = build_arrow_schema(
    tag_name_=pa.string(),
    snapshot_id_=pa.int64(),
    schema_id_=pa.int64(),
    commit_time_=TIME_TYPE,
    record_count=pa.int64(),
    create_time=TIME_TYPE,
    time_retained=pa.string(),
)
MANIFESTS_COLUMNS = build_arrow_schema(
    file_name_=pa.string(),
    file_size_=pa.int64(),
    num_added_files_=pa.int64(),
    num_deleted_files_=pa.int64(),
    schema_id_=pa.int64(),
    min_partition_stats=pa.string(),
    max_partition_stats=pa.string(),
    min_row_id=pa.int64(),
    max_row_id=pa.int64(),
)
FILES_COLUMNS = build_arrow_schema(
    partition=pa.string(),
    bucket_=pa.int32(),
    file_path_=pa.string(),
    file_format_=pa.string(),
    schema_id_=pa.int64(),
    level_=pa.int32(),
    record_count_=pa.int64(),
    file_size_in_bytes_=pa.int64(),
    min_key=pa.string(),
    max_key=pa.string(),
    null_value_counts_=pa.string(),
    min_value_stats_=pa.string(),
    max_value_stats_=pa.string(),
    min_sequence_number=pa.int64(),
    max_sequence_number=pa.int64(),
    creation_time=TIME_TYPE,
    deleteRowCount=pa.int64(),
    file_source=pa.string(),
    first_row_id=pa.int64(),
    write_cols=pa.list_(pa.string()),
)
PARTITIONS_COLUMNS = build_arrow_schema(
    partition=pa.string(),
    record_count_=pa.int64(),
    file_size_in_bytes_=pa.int64(),
    file_count_=pa.int64(),
    last_update_time=TIME_TYPE,
    created_at=TIME_TYPE,
    created_by=pa.string(),
    updated_by=pa.string(),
    options=pa.string(),
    total_buckets_=pa.int32(),
    done_=pa.bool_(),
)
BUCKETS_COLUMNS = build_arrow_schema(
    partition=pa.string(),
    bucket_=pa.int32(),
    record_count_=pa.int64(),
    file_size_in_bytes_=pa.int64(),
    file_count_=pa.int64(),
    last_update_time=TIME_TYPE,
)
STATISTICS_COLUMNS = build_arrow_schema(
    snapshot_id_=pa.int64(),
    schema_id_=pa.int64(),
    mergedRecordCount=pa.int64(),
    mergedRecordSize=pa.int64(),
    colstat=pa.string(),
)


def build_snapshots_table(table: "Table", _: Snapshot | None) -> pa.Table:
    """Return one row per snapshot, oldest first."""
    snapshots = sorted(table.stores.snapshots.walk_back(), key=lambda snapshot: snapshot.id)
    return build_rows([_build_snapshot_row(snapshot) for snapshot in snapshots], SNAPSHOTS_COLUMNS)


def _build_snapshot_row(snapshot: Snapshot) -> Record:
    record = {
        name: getattr(snapshot, name) for name in SNAPSHOTS_COLUMNS.names if hasattr(snapshot, name)
    }
    kind, commit_time = snapshot.commit_kind.value, to_local_time(snapshot.time_millis)
    return record | {"snapshot_id": snapshot.id, "commit_kind": kind, "commit_time": commit_time}


def to_local_time(millis: float) -> datetime:
    """Return the local wall clock time of epoch milliseconds."""
    return datetime.fromtimestamp(millis / 1000, UTC).astimezone().replace(tzinfo=None)


def build_schemas_table(table: "Table", _: Snapshot | None) -> pa.Table:
    """Return one row per schema version; nested values are JSON."""
    schemas = table.stores.schemas
    return build_rows([_build_schema_row(schemas.get(n)) for n in schemas.ids()], SCHEMAS_COLUMNS)


def _build_schema_row(schema: TableSchema) -> Record:
    values = json.loads(schema.to_json())
    return {
        "schema_id": schema.id,
        "fields": _encode_compact_json(values["fields"]),
        "partition_keys": _encode_compact_json(values["partitionKeys"]),
        "primary_keys": _encode_compact_json(values["primaryKeys"]),
        "options": _encode_compact_json(hide_secrets(values["options"])),
        "comment": schema.comment,
        "update_time": to_local_time(schema.time_millis),
    }


def _encode_compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def build_options_table(table: "Table", _: Snapshot | None) -> pa.Table:
    """Return the options that are set."""
    rows = [
        {"key": key, "value": value}
        for key, value in hide_secrets(table.stores.get_schema().options).items()
    ]
    return build_rows(rows, OPTIONS_COLUMNS)


def build_tags_table(table: "Table", _: Snapshot | None) -> pa.Table:
    """Return one row per tag, sorted by name."""
    return build_rows(
        [_build_tag_row(table, name) for name in table.stores.snapshots.tags()], TAGS_COLUMNS
    )


def _build_tag_row(table: "Table", name: str) -> Record:
    snapshot = table.stores.snapshots.tag(name)
    values = json.loads(table.io.read_bytes(f"{table.paths.tag_dir}/tag-{name}"))
    retained = values.get("tagTimeRetained")
    return {
        "tag_name": name,
        "snapshot_id": snapshot.id,
        "schema_id": snapshot.schema_id,
        "commit_time": to_local_time(snapshot.time_millis),
        "record_count": snapshot.total_record_count,
        "create_time": parse_tag_time(values.get("tagCreateTime")),
        "time_retained": None if retained is None else _format_duration(retained),
    }


def _format_duration(value: object) -> str:
    """Return an ISO 8601 duration as Java formats it: ``PT24H``."""
    if isinstance(value, str):
        return value
    if not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a duration")  # noqa: TRY004 - damage
    minutes, seconds = divmod(float(value), 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = ((hours, "H"), (minutes, "M"), (seconds, "S"))
    return "PT" + ("".join(f"{number:g}{unit}" for number, unit in parts if number) or "0S")


def build_manifests_table(table: "Table", snapshot: Snapshot | None) -> pa.Table:
    """Return one row per manifest of the snapshot."""
    manifests = [] if snapshot is None else table.stores.manifests.manifests(snapshot)
    fields = table.stores.get_schema().partition_fields
    rows = [
        {
            **{name: getattr(m, name) for name in MANIFESTS_COLUMNS.names if hasattr(m, name)},
            "min_partition_stats": format_row(m.partition_stats.min_values, fields),
            "max_partition_stats": format_row(m.partition_stats.max_values, fields),
        }
        for m in manifests
    ]
    return build_rows(rows, MANIFESTS_COLUMNS)


def format_row(data: bytes, fields: Sequence[Field]) -> str:
    """Return the values of a binary row as ``{value, value}``."""
    return _format_values(deserialize_row(data, [field.type for field in fields]), fields)


def format_partition_of_entry(partition: bytes, schema: TableSchema) -> str:
    """Return the values of a serialized partition as ``{value, value}``."""
    return _format_values(schema.decode_partition(partition), schema.partition_fields)


def _format_values(values: Sequence[object], fields: Sequence[Field]) -> str:
    formatted = [_format_value(value, field) for value, field in zip(values, fields, strict=True)]
    return f"{{{', '.join(formatted)}}}"


def _format_value(value: object, field: Field) -> str:
    if value is None:
        return "null"
    return (
        value.hex()
        if isinstance(value, bytes)
        else format_partition_value(value, field, legacy=False)
    )


def build_files_table(table: "Table", snapshot: Snapshot | None) -> pa.Table:
    """Return one row per live file, with statistics of the columns of the newest schema."""
    state = build_state(table, snapshot)
    statistics = FileStats(state.schema, state.schemas.get)
    rows = [
        columns | _build_statistics_columns(statistics, split.partition, file, state.schema)
        for split, file, columns in build_file_columns(state)
    ]
    return build_rows(rows, FILES_COLUMNS)


def build_state(table: "Table", snapshot: Snapshot | None) -> TableState:
    """Return a table with a snapshot that may be older than its newest one; reads the schema."""
    stores = table.stores
    return build_table_state(stores, stores.get_schema(), snapshot)


def build_file_columns(state: TableState) -> Iterator[tuple[BucketSplit, DataFileMeta, Record]]:
    """Yield the live files with the columns that need only their metadata and their schemas."""
    reader = state.reader()
    for split in state.files():
        for file in split.files:
            place = {
                "partition": format_partition_of_entry(split.partition, state.schema),
                "bucket": split.bucket,
                "file_path": reader.path(BucketFile(split.partition, split.bucket, file)),
            }
            yield split, file, place | _describe_file(file, state.schemas.get(file.schema_id))


def _describe_file(file: DataFileMeta, schema: TableSchema) -> Record:
    source = file.file_source
    return {
        "file_format": parse_file_format(file.file_name),
        "schema_id": file.schema_id,
        "level": file.level,
        "record_count": file.row_count,
        "file_size_in_bytes": file.file_size,
        "min_key": _format_key(file.min_key, file, schema),
        "max_key": _format_key(file.max_key, file, schema),
        "min_sequence_number": file.min_sequence_number,
        "max_sequence_number": file.max_sequence_number,
        "creation_time": file.creation_time,
        "deleteRowCount": file.delete_row_count,
        "file_source": None if source is None else FileSource(source).name,
        "first_row_id": file.first_row_id,
        "write_cols": file.write_cols,
    }


def _format_key(key: bytes, file: DataFileMeta, schema: TableSchema) -> str | None:
    if not read_row_arity(key):
        return None
    with wrap_decode_errors(f"{file.file_name} (its key bounds in the manifest)"):
        return f"[{format_row(key, schema.order_fields(file.level))[1:-1]}]"


def _build_statistics_columns(
    statistics: FileStats, partition: bytes, file: DataFileMeta, schema: TableSchema
) -> Record:
    stats_of = statistics.of(partition, file)
    columns = {field.name: (field, stats_of(field.name)) for field in schema.fields}

    def text(part: Callable[[str], str]) -> str:
        return "{" + ", ".join(f"{name}={part(name)}" for name in sorted(columns)) + "}"

    def bound(name: str, which: str) -> str:
        field, stats = columns[name]
        atomic = isinstance(field.type, AtomicType)
        return _format_value(getattr(stats, which) if atomic else None, field)

    def nulls(name: str) -> str:
        count = columns[name][1].null_count
        return "null" if count is None else str(min(count, file.row_count))

    return {
        "null_value_counts": text(nulls),
        "min_value_stats": text(lambda name: bound(name, "min")),
        "max_value_stats": text(lambda name: bound(name, "max")),
    }


def build_partitions_table(table: "Table", snapshot: Snapshot | None) -> pa.Table:
    """Return one row per partition, sorted by name; includes those of the fallback branch."""
    state = build_state(table, snapshot)
    groups = _group_by_partition(_read_fallback_splits(state))
    groups |= _group_by_partition(state.files())
    rows = [
        {
            "partition": _format_partition(partition, state.schema),
            **_sum_files(file for split in splits for file in split.files),
            "total_buckets": splits[0].total_buckets,
            "done": False,
        }
        for partition, splits in groups.items()
    ]
    return build_rows(sorted(rows, key=_partition_sort_key), PARTITIONS_COLUMNS)


def _group_by_partition(splits: Iterable[BucketSplit]) -> dict[bytes, list[BucketSplit]]:
    groups: dict[bytes, list[BucketSplit]] = {}
    for split in splits:
        groups.setdefault(split.partition, []).append(split)
    return groups


def _read_fallback_splits(state: TableState) -> list[BucketSplit]:
    """Return the live files of the fallback branch at the time of a snapshot of the table."""
    branch = (state.schema.typed_options.get(SCAN_FALLBACK_BRANCH) or "").strip()
    if not branch or branch == state.paths.branch:
        return []
    stores, snapshot, newest = state.of_branch(branch), state.snapshot, state.snapshots.latest()
    is_past = snapshot is not None and newest is not None and snapshot.id < newest.id
    selector = SnapshotSelector(snapshot.id) if snapshot and is_past else SnapshotSelector()
    return stores.files(find_branch_snapshot(stores.snapshots, selector, snapshot))


def build_buckets_table(table: "Table", snapshot: Snapshot | None) -> pa.Table:
    """Return one row per bucket, sorted by partition and number."""
    state = build_state(table, snapshot)
    rows = [
        {
            "partition": _format_partition(split.partition, state.schema),
            "bucket": split.bucket,
            **_sum_files(split.files),
        }
        for split in state.files()
    ]
    return build_rows(sorted(rows, key=_partition_sort_key), BUCKETS_COLUMNS)


def build_statistics_table(table: "Table", snapshot: Snapshot | None) -> pa.Table:
    """Return one row with the result of ANALYZE, if it exists; column statistics are JSON."""
    if snapshot is None or snapshot.statistics is None:
        return STATISTICS_COLUMNS.empty_table()
    values = read_statistics(table.io, table.paths, snapshot.statistics)
    row = {
        "snapshot_id": values.snapshot_id,
        "schema_id": values.schema_id,
        "mergedRecordCount": values.row_count,
        "mergedRecordSize": values.size,
        "colstat": _encode_compact_json(json.loads(values.to_json())["colStats"]),
    }
    return build_rows([row], STATISTICS_COLUMNS)


def _partition_sort_key(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["partition"], row.get("bucket", 0)


def _format_partition(partition: bytes, schema: TableSchema) -> str:
    """Return ``k1=v1/k2=v2`` without escapes."""
    values = schema.decode_partition(partition)
    names = format_partition_values(values, schema.partition_fields, schema.typed_options)
    return "/".join(f"{key}={value}" for key, value in names.items())


def _sum_files(files: Iterable[DataFileMeta]) -> Record:
    files = list(files)
    times = [file.creation_time for file in files if file.creation_time is not None]
    return {
        "record_count": sum(file.row_count for file in files),
        "file_size_in_bytes": sum(file.file_size for file in files),
        "file_count": len(files),
        "last_update_time": max(times, default=None),
    }
