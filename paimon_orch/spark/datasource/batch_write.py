"""``frame.write.format("paimon")``: tasks write files, and the driver commits one snapshot."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from paimon_orch.errors import InputError
from paimon_orch.spark.datasource.datasource_options import DataSourceOptions
from paimon_orch.spark.datasource.option_names import WRITE_OPTIONS
from paimon_orch.spark.datasource.task_write import (
    FrameColumns,
    TaskCommitMessage,
    commit_tasks,
    discard_unless_all_finished,
    open_writable_table,
    write_task,
)
from paimon_orch.spark.datasource.worker_errors import hide_traceback
from paimon_orch.spark.shuffle import TASK_SHIFT_BITS
from paimon_orch.steps import ingest
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.filter.partition_spec import parse_partition_spec
from paimon_orch.table.table import Table
from paimon_orch.table.write.write_plan import WritePlan


def build_writer(
    spark_options: Mapping[str, str], columns: Sequence[str], *, overwrite: bool
) -> DataSourceArrowWriter:
    """Return a writer to the table that the options name.

    Raises :class:`InputError` for tables whose rows must be clustered before a write.
    """
    options = DataSourceOptions.of(spark_options, WRITE_OPTIONS)
    table = open_writable_table(options)
    partition = options.values.get("overwrite-partition")
    partitions = parse_partition_spec(partition, table.stores.get_schema()) if partition else {}
    frame_columns = FrameColumns.of(columns, table)
    request = ingest.IngestRequest(
        columns=frame_columns.names,
        mode="overwrite" if overwrite else "append",
        row_kind=options.values.get("row-kind"),
        partitions=None if partition is None else partitions,
        commit_id=_parse_commit_id(options),
    )
    return PaimonWriter(table, frame_columns, ingest.plan(table, request))


def _parse_commit_id(options: DataSourceOptions) -> CommitId | None:
    user, identifier = options.values.get("commit-user"), options.number("commit-identifier")
    if user is None and identifier is None:
        return None
    if user is None or identifier is None:
        raise InputError("paimon: set both options commit-user and commit-identifier, or neither")
    return CommitId(user, identifier)


class PaimonWriter(DataSourceArrowWriter):
    """Writes files in tasks; the driver commits the files of the attempts that Spark accepts."""

    def __init__(self, table: Table, columns: FrameColumns, planned: WritePlan) -> None:
        self._table, self._columns, self._planned = table, columns, planned

    @hide_traceback()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the rows of one task; after an error, delete its files."""
        message = write_task(iterator, self._columns, self._planned, TASK_SHIFT_BITS)
        return TaskCommitMessage(message)

    @hide_traceback()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the rows of all tasks in one snapshot."""
        commit_tasks(self._table, self._planned, messages)

    @hide_traceback()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the files of finished tasks if other tasks failed."""
        discard_unless_all_finished(self._table, messages)
