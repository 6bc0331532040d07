"""Tables with data evolution, and files with some columns of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from support.tables import new_table

from paimon_orch.files.batch_sizes import DEFAULT_BATCH_SIZES, BatchSizes
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.table import Table


def evolving_table(
    root: Path,
    columns: str = "a BIGINT, b BIGINT, c BIGINT",
    partition_by: Sequence[str] = (),
    **options: str,
) -> Table:
    """Create an append table with data evolution; see :func:`new_table`."""
    evolution = {"row_tracking__enabled": "true", "data_evolution__enabled": "true"}
    return new_table(
        root, columns, key=(), partition_by=partition_by, bucket="-1", **evolution, **options
    )


def add_columns(
    table: Table,
    rows: pa.Table,
    first_row_id: int | None = None,
    sizes: BatchSizes = DEFAULT_BATCH_SIZES,
) -> DataFileMeta:
    """Commit a file with some columns; with a row id it belongs to existing rows."""
    schema = table.schema
    fields = tuple(field for field in schema.fields if field.name in rows.column_names)
    schema_of_file = replace(schema, fields=fields)
    factory = FileWriterFactory(table.io, table.paths, schema_of_file, batch_sizes=sizes)
    writer = factory.writer(PartitionBucket(EMPTY_ROW, 0))
    writer.write(rows)
    [file] = writer.close()
    if first_row_id is not None:
        names = tuple(field.name for field in fields)
        file = replace(file, first_row_id=first_row_id, write_cols=names, max_sequence_number=0)
    entry = ManifestEntry(
        kind=FileKind.ADD, partition=EMPTY_ROW, bucket=0, total_buckets=-1, file=file
    )
    table.stores.new_commit(StepKind.WRITE_ROWS).commit(
        CommitChanges(kind=CommitKind.APPEND, entries=(entry,))
    )
    return file


def files_of(table: Table) -> list[DataFileMeta]:
    """Return the live files, ordered by row id."""
    files = [file for split in table.files() for file in split.files]
    return sorted(files, key=lambda file: (file.first_row_id or 0, file.max_sequence_number))


def rows_by_id(table: Table) -> Mapping[int, tuple[object, ...]]:
    """Return the rows by row id."""
    rows = table.scan(["_ROW_ID", *table.schema.names]).to_arrow()
    return {row[0]: row[1:] for row in zip(*(c.to_pylist() for c in rows.columns), strict=True)}
