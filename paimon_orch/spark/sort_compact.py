"""Sort compaction on Spark: each task sorts and writes a range of the sort key.

:mod:`paimon_orch.steps.compaction.sort_compact` plans and commits.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.options.core_options import ZORDER_VAR_LENGTH_CONTRIBUTION
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.spark.execution.tasks import map_units_in_spark
from paimon_orch.spark.frame_writer import ClusteredFrame
from paimon_orch.spark.row_conversion import (
    build_carrier_schema,
    from_carriers,
    to_carrier_batches,
    to_spark_schema,
)
from paimon_orch.steps import ingest
from paimon_orch.steps.common.conflict_retry import discard_results
from paimon_orch.steps.common.executor import Progress
from paimon_orch.steps.common.partition_request import require_partitions
from paimon_orch.steps.common.row_tracking_writer import write_tracked_rows
from paimon_orch.steps.common.step import PlanAttempts
from paimon_orch.steps.compaction import sort_compact
from paimon_orch.steps.compaction.plan import CompactionPlan, CompactionResult
from paimon_orch.steps.compaction.sort_compact import SortOrder, SortRequest
from paimon_orch.steps.row_level.row_target import RowSource
from paimon_orch.table.scan.partition_selection import PartitionSpecs
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.table_write import write_rows


def sort_table(
    session: SparkSession,
    table: Table,
    order: SortOrder,
    *,
    partitions: PartitionSpecs | None = None,
    where: str | None = None,
    progress: Progress | None = None,
) -> CompactionResult:
    """Sort the rows of each partition of an append table, in one OVERWRITE snapshot.

    Replaces only the files that were read, and keeps rows of concurrent commits. If another commit
    changed one of these files, the sort is planned and run again, at most three times; then
    :class:`CommitConflictError` is raised, and the table is unchanged.
    """
    require_partitions(table, partitions)
    request = SortRequest(order=order, partitions=partitions, where=where)
    return run_sort(session, table, sort_compact.plan(table, request), progress=progress)


def run_sort(
    session: SparkSession, table: Table, plan: CompactionPlan, *, progress: Progress | None = None
) -> CompactionResult:
    """Execute the plan of a sort; see :func:`sort_table`."""
    request = plan.request
    assert isinstance(request, SortRequest)

    attempts = PlanAttempts("sort", table, plan, replan=lambda _: sort_compact.plan(table, request))
    for attempt in attempts:
        with attempt:
            current = attempts.next_plan()
            messages = []
            if current:
                messages = _write_sorted(session, table, current, request.order, progress)
            result = sort_compact.commit(table, current, messages)
    return attempts.complete(result)


def _write_sorted(
    session: SparkSession,
    table: Table,
    plan: CompactionPlan,
    order: SortOrder,
    progress: Progress | None,
) -> list[CommitMessage]:
    """Sort and write the rows of a plan; each new file has one range of the sort key."""
    schema = plan.state.schema
    request = ingest.IngestRequest(columns=schema.names)
    writing = replace(ingest.plan(table, request, state=plan.state), rows_are_new=False)
    target = schema.target_file_size
    ranges = max(1, math.ceil(sum(unit.bytes for unit in plan.units) / target))
    tracking = [field.name for field in row_tracking_fields(schema)]
    names = [*schema.names, *tracking]
    sorted_by = order.columns if order.strategy == "order" else ()
    rows = _read_rows(session, plan, order)
    keys = [rows.columns[names.index(name)] for name in (*schema.partition_keys, *sorted_by)]
    keys += rows.columns[len(names) :]  # the positions on the curve
    rows = rows.repartitionByRange(ranges, *keys).sortWithinPartitions(*keys)
    writer = (
        partial(write_tracked_rows, writing.factory) if tracking else partial(write_rows, writing)
    )
    convert = from_carriers(writing.prepare, schema.fields)

    def prepare(batches: Iterable[pa.RecordBatch], first_row: int) -> Iterator[pa.Table]:
        return convert((batch.rename_columns(names) for batch in batches), first_row)

    results = ClusteredFrame(rows.select(rows.columns[: len(names)]), ranges, prepare).collect(
        lambda rows: writer(rows).encode(),
        SparkExecutor(session),
        label=f"sort {table.identifier}",
        progress=progress,
        undo=partial(discard_results, table),
    )
    return [CommitMessage.decode(result) for result in results]


def _read_rows(session: SparkSession, planned: CompactionPlan, order: SortOrder) -> DataFrame:
    """Return the rows of a plan with their positions on the curve; one task reads each unit.

    The columns have numbers as names, because Spark ignores the case of names.
    """
    assert planned.reader is not None
    source = RowSource(planned.reader)
    schema = source.reader.schema
    fields = (*schema.fields, *row_tracking_fields(schema))
    units = list(map(cloudpickle.dumps, sort_compact.plan_read_units(planned)))
    width = schema.typed_options.get(ZORDER_VAR_LENGTH_CONTRIBUTION)
    types = build_carrier_schema(fields).types
    types += [] if order.strategy == "order" else [pa.binary()]
    carriers = pa.schema([(str(number), kind) for number, kind in enumerate(types)])

    def read(index: int) -> Iterator[pa.RecordBatch]:
        for addressed in cloudpickle.loads(units[index]).read(source, fields):
            rows = addressed.select([field.name for field in fields])
            if order.strategy != "order":
                rows = rows.append_column("", order.keys(rows, width))
            yield from to_carrier_batches(rows, carriers)

    return map_units_in_spark(session, len(units), read, to_spark_schema(carriers))
