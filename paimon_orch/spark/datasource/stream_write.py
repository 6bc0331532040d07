"""``frame.writeStream.format("paimon")``: each batch becomes one snapshot, exactly once.

Spark repeats a batch with the same number if it does not know whether it was committed. The id of
the query, which the checkpoint stores, and the number of the batch identify the commit, so a second
commit has no effect.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage

from paimon_orch.errors import UnsupportedError
from paimon_orch.spark.datasource.datasource_options import DataSourceOptions
from paimon_orch.spark.datasource.option_names import STREAM_WRITE_OPTIONS
from paimon_orch.spark.datasource.session_settings import get_task_property
from paimon_orch.spark.datasource.task_write import (
    FrameColumns,
    TaskCommitMessage,
    commit_tasks,
    discard_unless_all_finished,
    open_writable_table,
    write_task,
)
from paimon_orch.spark.datasource.worker_errors import hide_traceback
from paimon_orch.steps import ingest
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.table import Table
from paimon_orch.table.write.write_plan import WritePlan

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _Writer
else:
    _Writer = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)

_QUERY_ID_PROPERTY = "sql.streaming.queryId"  # a property that Spark sets in each task
# The row numbers of a task start at a multiple of 2 ** 24. In a batch write, this is 2 ** 33, with
# which a stream would use up all numbers within months. The rows of different tasks have no defined
# order, so the numbers of a large task may overlap those of the next task.
_STREAM_TASK_SHIFT_BITS = 24


def build_stream_writer(
    spark_options: Mapping[str, str], columns: Sequence[str], *, overwrite: bool
) -> DataSourceStreamWriter:
    """Return a writer to the table that the options name.

    With ``overwrite``, each batch replaces the whole table. Raises :class:`UnsupportedError` for
    Spark 4.0, and :class:`InputError` for tables whose rows must be clustered before a write.
    """
    if _Writer is DataSourceStreamWriter:
        raise UnsupportedError(
            "Spark 4.0 passes the rows of a stream individually: write its batches with "
            "foreachBatch and "
            "paimon_orch.spark.write(batch, table, commit_id=CommitId(name, number))"
        )
    options = DataSourceOptions.of(spark_options, STREAM_WRITE_OPTIONS)
    table = open_writable_table(options)
    frame_columns = FrameColumns.of(columns, table)
    request = ingest.IngestRequest(
        columns=frame_columns.names,
        mode="overwrite" if overwrite else "append",
        row_kind=options.values.get("row-kind"),
        partitions={} if overwrite else None,
    )
    return PaimonStreamWriter(table, frame_columns, ingest.plan(table, request))


@dataclass(frozen=True)
class StreamTaskCommitMessage(TaskCommitMessage):
    """The files of a task of a batch, and the id of the query, which only tasks can read."""

    query: str


class PaimonStreamWriter(_Writer):
    """Writes a batch in tasks, and commits it once in another process."""

    def __init__(self, table: Table, columns: FrameColumns, planned: WritePlan) -> None:
        self._table, self._columns, self._planned = table, columns, planned

    @hide_traceback()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamTaskCommitMessage:
        """Write the rows of one task; after an error, delete its files."""
        message = write_task(iterator, self._columns, self._planned, _STREAM_TASK_SHIFT_BITS)
        return StreamTaskCommitMessage(message, get_task_property(_QUERY_ID_PROPERTY) or "")

    @hide_traceback()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Commit the rows of a batch in one snapshot, if the batch is not committed yet."""
        queries = {
            message.query for message in messages if isinstance(message, StreamTaskCommitMessage)
        }
        if not queries:
            return  # a batch without tasks has no rows
        (query,) = queries
        named = replace(self._planned, commit_id=CommitId(query, batchId))
        commit_tasks(self._table, named, messages)

    @hide_traceback()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Delete the files of finished tasks if other tasks failed."""
        discard_unless_all_finished(self._table, messages)
