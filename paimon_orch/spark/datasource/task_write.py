"""Batch and stream writes of the data source: each task writes the rows that it receives.

The data source API does not move rows between tasks, so use it for frames that are small or already
clustered. :func:`paimon_orch.spark.write` moves rows and writes fewer files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from paimon_orch.errors import InputError
from paimon_orch.safe_text import get_logger
from paimon_orch.spark.column_types import cast_timestamps_as_spark
from paimon_orch.spark.datasource.datasource_options import DataSourceOptions
from paimon_orch.spark.datasource.session_settings import (
    TIME_ZONE_SETTING,
    PlannedSettings,
    get_task_property,
    list_renamed,
    match_columns,
)
from paimon_orch.spark.shuffle import first_row_number
from paimon_orch.steps import ingest
from paimon_orch.steps.common.conflict_retry import discard_messages
from paimon_orch.steps.ingest import IngestResult
from paimon_orch.table.scan.unseen_rows import describe_unseen_rows_after_write
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.dynamic_bucket import has_dynamic_buckets
from paimon_orch.table.write.postpone_bucket import has_postpone_buckets
from paimon_orch.table.write.table_write import write_rows
from paimon_orch.table.write.write_plan import WritePlan

logger = get_logger(__name__)

_USE_WRITE_INSTEAD = "use paimon_orch.spark.write(frame, table), which clusters the rows first"


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """The files that a task wrote: an encoded :class:`CommitMessage`."""

    message: bytes = field(repr=False)


def open_writable_table(options: DataSourceOptions) -> Table:
    """Open the table that the options name.

    Raises an error for tables whose rows must be clustered before a write.
    """
    table = options.open()
    if not isinstance(table, Table):
        raise InputError(f"{table.table.identifier}${table.name} is a read-only system table")
    schema = table.stores.get_schema()
    if has_dynamic_buckets(schema) or has_postpone_buckets(schema):
        raise InputError(
            f"{table.identifier} assigns buckets while rows are written, so one task must receive "
            f"all rows of a partition, which a data source cannot require: {_USE_WRITE_INSTEAD}"
        )
    return table


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """The columns of a frame, in the names of the table."""

    names: tuple[str, ...]
    settings: PlannedSettings

    @classmethod
    def of(cls, names: Sequence[str], table: Table) -> "FrameColumns":
        """Match columns by :func:`match_columns`; tasks verify that the session allows this."""
        matched = match_columns(names, table.stores.get_schema().names)
        return cls(tuple(matched), PlannedSettings(list_renamed(names, matched)))

    def rename(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with the names of the table."""
        self.settings.verify_in_task()
        for batch in batches:
            yield pa.RecordBatch.from_arrays(batch.columns, names=self.names)


def write_task(
    batches: Iterator[pa.RecordBatch], columns: FrameColumns, planned: WritePlan, task_shift: int
) -> bytes:
    """Write the rows of one task and return an encoded :class:`CommitMessage`.

    Rows are numbered by their order in the frame, so that the last row of a key wins even if other
    tasks write it. After an error, the files of the task are deleted.
    """
    zone, fields = get_task_property(TIME_ZONE_SETTING), planned.schema.fields
    rows = (cast_timestamps_as_spark(batch, fields, zone) for batch in columns.rename(batches))
    return write_rows(planned, planned.prepare(rows, first_row_number(task_shift))).encode()


def commit_tasks(
    table: Table, planned: WritePlan, messages: Sequence[WriterCommitMessage | None]
) -> None:
    """Commit the files of all tasks in one snapshot, and warn of small files and invisible rows."""
    written = _decode_messages(messages)
    result = ingest.commit(table, planned, written)
    _warn_of_small_files(table, written)
    _warn_of_rows_not_visible(table, result)


def discard_unless_all_finished(
    table: Table, messages: Sequence[WriterCommitMessage | None]
) -> None:
    """Delete the files of finished tasks if other tasks failed.

    If all tasks finished, a commit was tried. Keep the files then: the commit may have succeeded
    even if Spark reports a failure, and after a conflict, it has already deleted the files.
    """
    if any(message is None for message in messages):
        discard_messages(table, _decode_messages(messages))


def _decode_messages(messages: Sequence[WriterCommitMessage | None]) -> list[CommitMessage]:
    """Return the messages of the tasks that finished."""
    return [
        CommitMessage.decode(message.message)
        for message in messages
        if isinstance(message, TaskCommitMessage)
    ]


def _warn_of_small_files(table: Table, messages: Sequence[CommitMessage]) -> None:
    """Warn if several tasks wrote to the same bucket, which creates many small files."""
    tasks = [{entry.partition_bucket for entry in message.entries} for message in messages]
    file_count, bucket_count = sum(map(len, tasks)), len(set().union(*tasks))
    if table.stores.get_schema().typed_options.bucket > 0 and file_count > bucket_count:
        logger.warning(
            "%s: %d tasks wrote at least %d files to %d buckets; for one file per bucket %s",
            table.identifier,
            len(messages),
            file_count,
            bucket_count,
            _USE_WRITE_INSTEAD,
        )


def _warn_of_rows_not_visible(table: Table, result: IngestResult) -> None:
    """Warn if batch readers see the rows only after a compaction, with the command to run."""
    row_count = result.rows_not_visible
    if row_count:
        text = describe_unseen_rows_after_write(table.stores.label, row_count)
        logger.warning("%s", text)
