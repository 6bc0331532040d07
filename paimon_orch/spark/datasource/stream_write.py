"""``frame.writeStream.format("paimon")``: each batch of a stream becomes one snapshot, once.

Spark runs a batch again under its old number if it does not know that it was committed. The commit is named by the
query, which a checkpoint keeps, and by that number: a second one changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage

from paimon_orch.errors import UnsupportedError
from paimon_orch.spark.datasource.batch_write import (
    TaskCommitMessage,
    decode_messages,
    open_writable_table,
    warn_of_rows_not_visible,
    warn_of_small_files,
    write_task,
)
from paimon_orch.spark.datasource.datasource_options import STREAM_WRITE_OPTIONS, SourceOptions
from paimon_orch.steps import ingest
from paimon_orch.table.commit.commit import CommitId
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import discard_written_files
from paimon_orch.table.write.write_plan import WritePlan

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _Writer
else:
    _Writer = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)

_QUERY_ID_PROPERTY = "sql.streaming.queryId"  # Spark's name for it among the properties of a task
# By so much the numbers of rows grow with each task of each batch: the 33 bits of a single write would be used up in
# months, and the order of rows between the tasks of a stream is nobody's.
_STREAM_TASK_SHIFT_BITS = 24


def build_stream_writer(
    options: Mapping[str, str], columns: Sequence[str], *, overwrite: bool
) -> DataSourceStreamWriter:
    """Return a writer into the table that the options name; with ``overwrite`` each batch replaces the whole table.

    Raises :class:`UnsupportedError` on Spark 4.0, :class:`InputError` for tables whose rows must be clustered.
    """
    if _Writer is DataSourceStreamWriter:
        raise UnsupportedError(
            "Spark 4.0 hands the rows of a stream over one by one: write its batches by foreachBatch and "
            "paimon_orch.spark.write(batch, table, commit_id=CommitId(name, number))"
        )
    asked = SourceOptions.of(options, STREAM_WRITE_OPTIONS)
    table = open_writable_table(asked)
    planned = ingest.plan(
        table,
        columns,
        mode="overwrite" if overwrite else "append",
        row_kind=asked.values.get("row-kind"),
        partitions={} if overwrite else None,
    )
    return PaimonStreamWriter(table, planned)


@dataclass(frozen=True)
class StreamTaskCommitMessage(TaskCommitMessage):
    """What a task of a batch wrote, and for which query: only tasks are told."""

    query: str


class PaimonStreamWriter(_Writer):
    """Writes a batch in tasks and commits it once; another process makes the writer that commits."""

    def __init__(self, table: Table, planned: WritePlan) -> None:
        self._table, self._planned = table, planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamTaskCommitMessage:
        """Write the rows of one task; its files are removed if that fails."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_ID_PROPERTY)
        message = write_task(iterator, self._planned, _STREAM_TASK_SHIFT_BITS)
        return StreamTaskCommitMessage(message, query or "")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Make the rows of a batch visible in one snapshot, unless the query has committed that number."""
        written = decode_messages(messages)
        queries = {one.query for one in messages if isinstance(one, StreamTaskCommitMessage)}
        if not queries:
            return  # a batch without tasks has no rows
        (query,) = queries
        named = replace(self._planned, commit_id=CommitId(query, batchId))
        done = ingest.commit(self._table, named, written, 0.0)
        warn_of_small_files(self._table, written)
        warn_of_rows_not_visible(self._table, done)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove what finished tasks wrote when others did not; see ``PaimonWriter.abort``."""
        if any(message is None for message in messages):
            discard_written_files(self._table.stores.reader(), decode_messages(messages))
