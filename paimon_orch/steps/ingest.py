"""Ingest: each task writes its rows to sorted level-0 files, and one commit adds all files."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from paimon_orch.errors import CommitConflictError, InputError
from paimon_orch.format.display import Displayable
from paimon_orch.format.options.core_options import ROWKIND_FIELD
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict
from paimon_orch.steps.common.step import FiguresOutcome
from paimon_orch.steps.common.step_metrics import StepIo, StepMetrics
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.filter.partition_spec import (
    PartitionSpec,
    build_any_partition_matcher,
    format_partition,
)
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.bucket_routing import serialize_partitions
from paimon_orch.table.write.commit_message import CommitMessage, combine_messages
from paimon_orch.table.write.conform_rows import check_columns
from paimon_orch.table.write.partition_overwrite import build_overwrite_filter
from paimon_orch.table.write.text_formats import TextFormats
from paimon_orch.table.write.write_builder import WriteBuilder
from paimon_orch.table.write.write_plan import WritePlan

WriteMode = Literal["append", "overwrite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    """The columns of the rows to load, and how to write the rows."""

    columns: Sequence[str]
    """The columns of the rows to load."""
    are_columns_complete: bool = True
    """Whether the rows have no other columns; if they may, missing columns are not reported."""
    text_formats: TextFormats | None = None
    """How to convert text before it is cast to the types of columns."""
    mode: WriteMode = "append"
    row_kind: str | None = None
    """A text column of ``+I``, ``-U``, ``+U``, ``-D`` among the columns."""
    partitions: PartitionSpec | Sequence[PartitionSpec] | None = None
    """The partitions that an overwrite replaces, as in :meth:`Table.overwrite`."""
    commit_id: CommitId | None = None
    """With a commit id, the ingest can be repeated safely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult(FiguresOutcome):
    """The result of an ingest; ``snapshot_id`` is None if there were no rows.

    ``rows_not_visible`` is the number of rows that batch readers see only after a compaction.
    """

    snapshot_id: int | None
    rows: int
    files: int
    bytes: int
    """The size of the new files."""
    rows_not_visible: int = 0
    missing_columns: Sequence[str] = field(default=(), repr=False)
    """The columns of the table that loaded files do not have."""
    snapshot: Snapshot | None = field(default=None, repr=False, compare=False)
    """The snapshot of ``snapshot_id``, which may have expired already."""

    def count_io(self) -> StepIo:
        """Return the rows and files that were written."""
        return StepIo(rows_written=self.rows, files_written=self.files, bytes_written=self.bytes)


def plan(
    table: Table,
    request: IngestRequest,
    *,
    state: TableState | None = None,
    in_process: bool = False,
) -> WritePlan:
    """Check the columns of the rows to load, and plan the write.

    ``state`` is the table, if the caller has loaded it. ``in_process``: this process writes the
    rows. Raises :class:`CommitConflictError` if the plan needs a newer state than the caller's,
    because its snapshot has expired, and this has another schema.
    """
    given, partitions = state, request.partitions
    state = given or table.load()
    if partitions is not None and request.mode != "overwrite":
        raise InputError("partitions can only be set for an overwrite")
    if partitions is not None:
        specs = [partitions] if isinstance(partitions, Mapping) else partitions
        build_any_partition_matcher(specs, state.schema)  # this refuses other columns
    builder = WriteBuilder(
        state,
        is_overwrite=request.mode == "overwrite",
        partitions=partitions,
        commit_id=request.commit_id,
    )
    planned = builder.plan(
        request.row_kind or state.schema.typed_options.get(ROWKIND_FIELD), in_process=in_process
    )
    if given is not None and planned.schema.id != given.schema.id:
        raise CommitConflictError(
            f"{table.identifier}: the schema was changed while the write was planned. Nothing was "
            "changed; plan and run the step again."
        )
    columns = list(request.columns)
    if not request.are_columns_complete:
        expected = [*planned.schema.names, *([planned.row_kind] if planned.row_kind else [])]
        columns += [name for name in expected if name not in columns]
    check_columns(columns, planned.schema, row_kind=planned.row_kind)
    return replace(planned, text_formats=request.text_formats)


@dataclass(frozen=True, slots=True)
class IngestPreview(Displayable):
    """The result of a dry run: rows to load, and partitions and rows that would be replaced."""

    rows: int
    replaced_partitions: tuple[str, ...]
    replaced_rows: int
    missing_columns: Sequence[str] = ()
    """The columns of the table that the files do not have."""

    def to_dict(self) -> dict[str, object]:
        """Return the preview as JSON values."""
        return {
            "rows": self.rows,
            "replaced_partitions": list(self.replaced_partitions),
            "replaced_rows": self.replaced_rows,
        }


def count_rows(planned: WritePlan, parts: Iterable[pa.Table]) -> bytes:
    """Count the rows of a task and list their partitions, for :func:`build_preview`."""
    row_count, partitions = 0, set[bytes]()
    for rows in parts:
        row_count += rows.num_rows
        partitions |= serialize_partitions(rows, planned.schema)
    return json.dumps([row_count, sorted(map(bytes.hex, partitions))]).encode()


def build_preview(table: Table, planned: WritePlan, results: Sequence[bytes]) -> IngestPreview:
    """Build the preview of an ingest from the results of :func:`count_rows`."""
    counts = [json.loads(result) for result in results]
    row_count = sum(count for count, _ in counts)
    if not planned.is_overwrite:
        return IngestPreview(row_count, (), 0)
    schema = planned.schema
    written = {bytes.fromhex(partition) for _, partitions in counts for partition in partitions}
    is_replaced = build_overwrite_filter(written, planned.partitions, schema)
    splits = [] if is_replaced is None else [s for s in table.files() if is_replaced(s.partition)]
    names = dict.fromkeys(format_partition(split.partition, schema) for split in splits)
    return IngestPreview(row_count, tuple(names), sum(split.row_count for split in splits))


def run_ingest(
    table: Table,
    plan: WritePlan,
    write: Callable[[], Sequence[CommitMessage]],
    *,
    sources: Sequence[str] = (),
) -> IngestResult:
    """Write rows by ``write`` and commit them, unless the commit id is already committed.

    :param sources: the files of the rows, for events of lineage
    """
    metrics = StepMetrics("ingest into", table, sources)
    builder = WriteBuilder(plan.state or table.load(), commit_id=plan.commit_id)
    with metrics.record_errors():
        committed = builder.find_committed()
        if committed is not None:
            builder.report_commit(committed)
            result = IngestResult(
                snapshot_id=committed.id, snapshot=committed, rows=0, files=0, bytes=0
            )
        else:
            result = commit(table, plan, write())
    has_commit = committed is None and result.snapshot_id is not None
    metrics.record_success(
        result.count_io(), is_committed=has_commit, snapshot_id=result.snapshot_id
    )
    return replace(result, duration_seconds=metrics.seconds, attempts=1)


def commit(table: Table, plan: WritePlan, messages: Sequence[CommitMessage]) -> IngestResult:
    """Commit the files of all tasks in one snapshot; after a conflict, delete them."""
    builder = WriteBuilder(
        plan.state or table.load(),
        is_overwrite=plan.is_overwrite,
        partitions=plan.partitions,
        commit_id=plan.commit_id,
    )
    with discard_files_on_conflict(table, messages):
        written = combine_messages(messages)
        snapshot = builder.commit(written, plan.hashes)
    return IngestResult(
        snapshot_id=None if snapshot is None else snapshot.id,
        snapshot=snapshot,
        rows=sum(entry.file.row_count for entry in written.entries),
        files=len(written.entries),
        bytes=sum(entry.file.file_size for entry in written.entries),
        rows_not_visible=builder.count_unseen_rows(written.entries),
    )
