"""Tables with data evolution, and files with some columns of their rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from support.tables import new_table, table_of

from paimon_orch.files.batch_sizes import DEFAULT_BATCH_SIZES, BatchSizes
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.maintenance.create_global_index import create_global_index
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.steps.row_level.row_level_write import (
    RowLevelPlan,
    RowLevelRequest,
    RowLevelResult,
)
from paimon_orch.steps.row_level.task_result import (
    ADDRESS_COLUMN,
    KIND_COLUMN,
    RowLevelTaskResult,
    first_row_address,
)
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
    names = tuple(name for name in table.load().schema.names if name in rows.column_names)
    factory = FileWriterFactory(table.io, table.paths, table.load().schema, batch_sizes=sizes)
    writer = factory.writer(PartitionBucket(EMPTY_ROW, 0), columns=names)
    writer.write(rows)
    [file] = writer.close()
    if first_row_id is not None:
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


def rows_by_id(table: Table) -> dict[int, tuple[object, ...]]:
    """Return the rows by row id."""
    rows = table.scan(["_ROW_ID", *table.load().schema.names]).to_arrow()
    return {row[0]: row[1:] for row in zip(*(c.to_pylist() for c in rows.columns), strict=True)}


@dataclass
class RowChanges:
    """Changes of rows of one commit: an update of some columns, deletes and new rows."""

    updated: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    """New values by row id and column; all rows have the same columns."""
    deleted: Collection[int] = ()
    inserted: Sequence[Sequence[object]] = ()

    def write(self, table: Table) -> tuple[RowLevelPlan, list[RowLevelTaskResult]]:
        """Write the files, as a task of Spark does."""
        names = list(dict.fromkeys(name for row in self.updated.values() for name in row))
        operation = "merge" if self.deleted else "update"
        planned = row_level.plan(table, RowLevelRequest(operation=operation))
        writing = ingest.plan(table, ingest.IngestRequest(columns=table.load().schema.names))
        update = row_level.plan_column_update(planned, writing, names)
        rows = [
            *((self._find_address(planned, n), "+U", n, row) for n, row in self.updated.items()),
            *((self._find_address(planned, n), "-D", n, {}) for n in self.deleted),
            *(
                (None, "+I", None, dict(zip(table.load().schema.names, row, strict=True)))
                for row in self.inserted
            ),
        ]
        address, kind, row_id, values = zip(*rows, strict=True)
        columns = {
            name: pa.array([row.get(name) for row in values]) for name in table.load().schema.names
        }
        columns |= {
            ADDRESS_COLUMN: pa.array(address, pa.int64()),
            KIND_COLUMN: pa.array(kind),
            "_ROW_ID": pa.array(row_id, pa.int64()),
        }
        result = update.run(update.prepare(pa.table(columns).to_batches()))
        return planned, [RowLevelTaskResult.decode(result)]

    def commit(self, table: Table) -> RowLevelResult:
        """Write and commit the changes."""
        planned, results = self.write(table)
        return row_level.commit(table, planned, results, executor=InProcessExecutor())

    @staticmethod
    def _find_address(planned: RowLevelPlan, row_id: int) -> int:
        for number, each in enumerate(planned.row_ranges):
            position = row_id - each.first_row_id
            if 0 <= position < each.files[0].row_count:
                return first_row_address(number) + position
        raise AssertionError(f"no row has the id {row_id}")


def change_an_indexed_table(root: Path, **options: str) -> Iterator[tuple[str, Table]]:
    """Yield a table with indexes of the columns a and b after each of several changes."""
    named = {"deletion_vectors__enabled": "true", "compaction__min__file_num": "2", **options}
    table = evolving_table(root, "p INT, a BIGINT, b STRING", ["p"], **named)
    table.append(table_of("p a b", [(n // 40, n % 25, f"b{n % 4}") for n in range(80)]))
    create_global_index(table, "a")
    create_global_index(table, "b", index_type="bitmap")
    yield "index", table
    RowChanges(
        updated={n: {"a": 3} for n in (1, 2, 43)}, deleted=[0, 25], inserted=[(0, 3, "b1")]
    ).commit(table)
    yield "merge", table
    RowChanges(updated={n: {"b": None} for n in range(50, 60)}).commit(table)
    yield "update", table
    RowChanges(deleted=[3, 28, 60]).commit(table)
    yield "delete", table
    create_global_index(table, "a")
    yield "index again", table
    table.rollback(4)
    yield "rollback", table
    compact(table, InProcessExecutor(), strategy="full")
    yield "compaction", table
    table.append(table_of("p a b", [(2, 3, "b1"), (2, 4, None)]))
    create_global_index(table, "a")
    create_global_index(table, "b", index_type="bitmap")
    yield "append", table
    table.drop_partitions(["p=0"])
    yield "drop partitions", table
