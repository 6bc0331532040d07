"""Sort compaction on Spark: each task sorts and writes a range of the sort key.

:mod:`paimon_orch.steps.compaction.sort_compact` plans and commits.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.options.core_options import ZORDER_VAR_LENGTH_CONTRIBUTION
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.spark.execution.tasks import map_units_in_spark
from paimon_orch.spark.frame_writer import ClusteredFrame
from paimon_orch.spark.row_conversion import (
    build_carrier_schema,
    from_carriers,
    quote_column,
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

_CURVE_COLUMN = "__paimon_curve"


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
    request = ingest.IngestRequest(columns=table.stores.get_schema().names)
    writing = replace(ingest.plan(table, request), rows_are_new=False)
    schema = writing.schema
    target = schema.target_file_size
    ranges = max(1, math.ceil(sum(unit.bytes for unit in plan.units) / target))
    keys = [fn.col(quote_column(name)) for name in schema.partition_keys]
    if order.strategy == "order":
        keys += [fn.col(quote_column(name)) for name in order.columns]
    else:
        keys.append(fn.col(_CURVE_COLUMN))
    rows = _read_rows(session, plan, order).repartitionByRange(ranges, *keys)
    tracking = [field.name for field in row_tracking_fields(schema)]
    rows = rows.sortWithinPartitions(*keys).select(*map(quote_column, [*schema.names, *tracking]))
    writer = (
        partial(write_tracked_rows, writing.factory) if tracking else partial(write_rows, writing)
    )
    prepare = from_carriers(writing.prepare, schema.fields)
    results = ClusteredFrame(rows, ranges, prepare).collect(
        lambda rows: writer(rows).encode(),
        SparkExecutor(session),
        label=f"sort {table.identifier}",
        progress=progress,
        undo=partial(discard_results, table),
    )
    return [CommitMessage.decode(result) for result in results]


def _read_rows(session: SparkSession, planned: CompactionPlan, order: SortOrder) -> DataFrame:
    """Return the rows of a plan with their positions on the curve; one task reads each unit."""
    assert planned.reader is not None
    source = RowSource(planned.reader)
    schema = source.reader.schema
    fields = (*schema.fields, *row_tracking_fields(schema))
    units = list(map(cloudpickle.dumps, sort_compact.plan_read_units(planned)))
    width = schema.typed_options.get(ZORDER_VAR_LENGTH_CONTRIBUTION)
    carriers = build_carrier_schema(fields)
    if order.strategy != "order":
        carriers = carriers.append(pa.field(_CURVE_COLUMN, pa.binary()))

    def read(index: int) -> Iterator[pa.RecordBatch]:
        for addressed in cloudpickle.loads(units[index]).read(source, fields):
            rows = addressed.select([field.name for field in fields])
            if order.strategy != "order":
                rows = rows.append_column(_CURVE_COLUMN, order.keys(rows, width))
            yield from to_carrier_batches(rows, carriers)

    return map_units_in_spark(session, len(units), read, to_spark_schema(carriers))
