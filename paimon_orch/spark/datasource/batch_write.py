"""``frame.write.format("paimon")``: each task writes the rows that it has, as the API moves no rows.

Clustered rows, one snapshot and few files are what :func:`paimon_orch.spark.write` gives; this is for frames
that are small, or clustered already.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from paimon_orch.errors import InputError
from paimon_orch.spark.column_types import cast_timestamps_as_spark
from paimon_orch.spark.datasource.datasource_options import WRITE_OPTIONS, SourceOptions
from paimon_orch.spark.shuffle import TASK_SHIFT_BITS, first_row_number
from paimon_orch.steps import ingest
from paimon_orch.steps.ingest import IngestResult
from paimon_orch.table.commit.commit import CommitId
from paimon_orch.table.filter.partition_spec import parse_partition_spec
from paimon_orch.table.scan.visibility import describe_unseen_rows_after_write
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files
from paimon_orch.table.write.dynamic_bucket import has_dynamic_buckets
from paimon_orch.table.write.postpone_bucket import has_postpone_buckets
from paimon_orch.table.write.write_plan import WritePlan

logger = logging.getLogger(__name__)

_USE_WRITE_INSTEAD = "use paimon_orch.spark.write(frame, table), which clusters the rows first"
_TIME_ZONE_PROPERTY = (
    "spark.sql.session.timeZone"  # Spark hands the settings of a query to its tasks
)


def build_writer(
    options: Mapping[str, str], columns: Sequence[str], *, overwrite: bool
) -> DataSourceArrowWriter:
    """Return a writer into the table that the options name.

    Raises :class:`InputError` for tables whose rows must be clustered to be written at all.
    """
    asked = SourceOptions.of(options, WRITE_OPTIONS)
    table = open_writable_table(asked)
    spec = asked.values.get("overwrite-partition")
    planned = ingest.plan(
        table,
        columns,
        mode="overwrite" if overwrite else "append",
        row_kind=asked.values.get("row-kind"),
        partitions=None
        if spec is None
        else parse_partition_spec(spec, table.schema)
        if spec
        else {},
        commit_id=_parse_commit_id(asked),
    )
    return PaimonWriter(table, planned)


def open_writable_table(asked: SourceOptions) -> Table:
    """Return the table that options name, if tasks can write any rows into it."""
    table = asked.open()
    if not isinstance(table, Table):
        raise InputError(
            f"{table.table.identifier}${table.name} is a system table: it is read only"
        )
    schema = table.schema
    if has_dynamic_buckets(schema) or has_postpone_buckets(schema):
        raise InputError(
            f"{table.identifier} assigns buckets to rows as they come, for which all rows of a partition must be in "
            f"one task; a data source cannot ask for that: {_USE_WRITE_INSTEAD}"
        )
    return table


def _parse_commit_id(asked: SourceOptions) -> CommitId | None:
    user, identifier = asked.values.get("commit-user"), asked.number("commit-identifier")
    if user is None and identifier is None:
        return None
    if user is None or identifier is None:
        raise InputError("paimon: the options commit-user and commit-identifier belong together")
    return CommitId(user, identifier)


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """What a task wrote: an encoded :class:`CommitMessage`."""

    message: bytes = field(repr=False)


def write_task(
    batches: Iterator[pa.RecordBatch], planned: WritePlan, task_shift: int = TASK_SHIFT_BITS
) -> bytes:
    """Write the rows of one task and return an encoded :class:`CommitMessage`.

    Rows are numbered by their order in the frame: the last row of a key wins, in any task.
    """
    context = TaskContext.get()
    zone = None if context is None else context.getLocalProperty(_TIME_ZONE_PROPERTY)
    rows = (cast_timestamps_as_spark(batch, planned.schema.fields, zone) for batch in batches)
    return planned.write(planned.prepare(rows, first_row_number(task_shift))).encode()


class PaimonWriter(DataSourceArrowWriter):
    """Writes in tasks and commits in the driver; only the attempt of a task that Spark counts is committed."""

    def __init__(self, table: Table, planned: WritePlan) -> None:
        self._table, self._planned = table, planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the rows of one task; its files are removed if that fails."""
        return TaskCommitMessage(write_task(iterator, self._planned))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all rows visible in one snapshot."""
        written = decode_messages(messages)
        done = ingest.commit(self._table, self._planned, written, 0.0)
        warn_of_small_files(self._table, written)
        warn_of_rows_not_visible(self._table, done)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what finished tasks wrote when others did not finish.

        After all have finished a commit was tried: it may have won without knowing, and has cleaned up if it lost.
        """
        if any(message is None for message in messages):
            discard_written_files(self._table.stores.reader(), decode_messages(messages))


def warn_of_small_files(table: Table, messages: Sequence[CommitMessage]) -> None:
    """Warn if several tasks wrote to the same bucket, which makes more and smaller files."""
    tasks = [{entry.partition_bucket for entry in message.entries} for message in messages]
    file_count, bucket_count = sum(map(len, tasks)), len(set().union(*tasks))
    if table.options.bucket > 0 and file_count > bucket_count:
        logger.warning(
            "%s: %d tasks wrote %d files or more into %d buckets; for one per bucket %s",
            table.identifier,
            len(messages),
            file_count,
            bucket_count,
            _USE_WRITE_INSTEAD,
        )


def warn_of_rows_not_visible(table: Table, result: IngestResult) -> None:
    """Warn if batch readers see the rows only after a compaction, with the command to run."""
    row_count = result.rows_not_visible
    if row_count:
        text = describe_unseen_rows_after_write(table.identifier, table.paths, row_count)
        logger.warning("%s", text)


def decode_messages(messages: Sequence[WriterCommitMessage | None]) -> list[CommitMessage]:
    """Return what the tasks that finished wrote."""
    return [
        CommitMessage.decode(message.message)
        for message in messages
        if isinstance(message, TaskCommitMessage)
    ]
