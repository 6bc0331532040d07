"""System tables about the keys and indexes of files: file_key_ranges and table_indexes.

See docs/format/system-tables.md.
"""

from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.metadata_tables import (
    FILES_COLUMNS,
    Record,
    build_arrow_schema,
    build_file_columns,
    build_rows,
    build_state,
    format_partition_of_entry,
)

if TYPE_CHECKING:
    from paimon_orch.table.table import Table

FILE_KEY_RANGES_COLUMNS = pa.schema(
    FILES_COLUMNS.field(name)
    for name in (
        "partition",
        "bucket",
        "file_path",
        "file_format",
        "schema_id",
        "level",
        "record_count",
        "file_size_in_bytes",
        "min_key",
        "max_key",
        "first_row_id",
    )
)
_RANGE_TYPE = pa.struct(
    [
        pa.field("f0", pa.string(), nullable=False),
        pa.field("f1", pa.int32(), nullable=False),
        pa.field("f2", pa.int32(), nullable=False),
        pa.field("_CARDINALITY", pa.int64()),
    ]
)
TABLE_INDEXES_COLUMNS = build_arrow_schema(
    partition=pa.string(),
    bucket_=pa.int32(),
    index_type_=pa.string(),
    file_name_=pa.string(),
    file_size_=pa.int64(),
    row_count_=pa.int64(),
    dv_ranges=pa.list_(_RANGE_TYPE),
    row_range_start=pa.int64(),
    row_range_end=pa.int64(),
    index_field_id=pa.int32(),
    index_field_name=pa.string(),
)


def build_file_key_ranges_table(table: "Table", snapshot: Snapshot | None) -> pa.Table:
    """Return one row per live file, with its bounds of the key."""
    state = build_state(table, snapshot)
    rows = [columns for _, _, columns in build_file_columns(state)]
    return build_rows(rows, FILE_KEY_RANGES_COLUMNS)


def build_table_indexes_table(table: "Table", snapshot: Snapshot | None) -> pa.Table:
    """Return one row per index file: hash indexes, deletion vectors, global indexes."""
    state = build_state(table, snapshot)
    entries = state.manifests.read_index_entries(snapshot)
    rows = [_build_index_row(entry, state.schema) for entry in entries]
    return build_rows(rows, TABLE_INDEXES_COLUMNS)


def _build_index_row(entry: IndexManifestEntry, schema: TableSchema) -> Record:
    ranges = entry.ranges
    row = {
        "partition": format_partition_of_entry(entry.partition, schema),
        "dv_ranges": None
        if ranges is None
        else [
            {
                "f0": item.data_file,
                "f1": item.offset,
                "f2": item.length,
                "_CARDINALITY": item.cardinality,
            }
            for item in ranges
        ],
        **{name: getattr(entry, name) for name in ("bucket", "index_type", "file_name")},
        **{name: getattr(entry, name) for name in ("file_size", "row_count")},
    }
    index = entry.global_index
    if index is None:
        return row
    names = {field.id: field.name for field in schema.fields}
    return row | {
        "row_range_start": index.row_range_start,
        "row_range_end": index.row_range_end,
        "index_field_id": index.index_field_id,
        # A column that was dropped has no name; its id is still shown.
        "index_field_name": ",".join(names[number] for number in index.field_ids)
        if names.keys() >= set(index.field_ids)
        else None,
    }
