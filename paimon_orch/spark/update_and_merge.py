"""UPDATE and MERGE INTO: Spark computes the new values, and our tasks read and write rows."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypedDict, Unpack

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import MapType

from paimon_orch.errors import InputError
from paimon_orch.files.row_tracking import ROW_ID
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.spark.execution.job_failures import translate_failure
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.spark.execution.tasks import map_units_in_spark
from paimon_orch.spark.frame_writer import RowSource, cluster_by_bucket, cluster_by_row_range
from paimon_orch.spark.row_conversion import (
    build_carrier_schema,
    quote_column,
    to_carrier_batches,
    to_spark_schema,
)
from paimon_orch.spark.row_level_columns import (
    SOURCE_ALIAS,
    TARGET_ALIAS,
    Assignments,
    build_current_columns,
    build_old_value_columns,
    cast_assignments,
    cast_columns,
    expand_star,
    list_row_id_columns,
    to_column,
)
from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import Progress
from paimon_orch.steps.common.step import PlanAttempts
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.steps.row_level.assignments import (
    check_assignable,
    check_columns_exist,
    check_update,
    list_fixed_columns,
)
from paimon_orch.steps.row_level.row_level_plan import TargetUnit, check_row_level_supported
from paimon_orch.steps.row_level.row_level_write import (
    RowLevelPlan,
    RowLevelRequest,
    RowLevelResult,
    discard_encoded_changes,
)
from paimon_orch.steps.row_level.task_result import (
    ADDRESS_COLUMN,
    KIND_COLUMN,
    RowLevelTaskResult,
    build_multiple_matches_error,
)
from paimon_orch.table.commit.row_level_conflicts import ReadGuard
from paimon_orch.table.table import Table

_EXPRESSION_IN_ERROR = re.compile(r", in the expression (.*)\. Nothing was committed", re.DOTALL)


class MergeClauses(TypedDict, total=False):
    """The actions of :func:`merge_into` for rows with and without a match."""

    when_matched_update: Assignments | Literal["*"] | None
    when_matched_delete: str | Column | None
    when_not_matched_insert: Assignments | Literal["*"] | None


def update(
    session: SparkSession,
    table: Table,
    assignments: Assignments,
    where: str | Predicate | None = None,
    *,
    plan: RowLevelPlan | None = None,
    progress: Progress | None = None,
) -> RowLevelResult:
    """Update the rows that match a filter, in one snapshot; skips rows for which it is NULL.

    ``assignments`` are Spark expressions of the old values, in which TIME is an INT of
    milliseconds, and a timestamp with a precision above microseconds is a BIGINT of nanoseconds.
    Columns of the primary key, the partition and the bucket key cannot be updated. For tables that
    merge rows (``partial-update``, ``aggregation``, a sequence field), the update writes records
    that produce the new rows when they are merged with the old rows.

    Conflicts are handled as in :func:`paimon_orch.steps.row_level.row_level_write.delete`.

    :param plan: an existing plan of this update to execute
    :raises InputError: if the merge would not produce the new row, for example for a smaller value
        of a ``max`` column or sequence field; names the column and the rule. The table is then
        unchanged
    """
    check_update(table.stores.get_schema(), assignments)
    return _RowLevelWrite(
        session=session,
        table=table,
        build_changes=partial(_build_update, session, assignments),
        title="update rows of",
        where=where,
        assigned=assignments,
        updated=assignments,
    ).run(progress, plan)


def _build_update(
    session: SparkSession, assignments: Assignments, planned: RowLevelPlan
) -> DataFrame:
    """Return the new rows with their addresses and kinds."""
    schema = planned.schema
    old = build_current_columns(schema)
    new = cast_columns(schema, {**old, **cast_assignments(schema, assignments)})
    further = [*build_old_value_columns(schema, old), *map(fn.col, list_row_id_columns(schema))]
    kind = fn.lit("+U").alias(KIND_COLUMN)
    return _read_target(session, planned).select(ADDRESS_COLUMN, kind, *new, *further)


def merge_into(
    source: DataFrame,
    table: Table,
    on: str | Column,
    *,
    progress: Progress | None = None,
    **clauses: Unpack[MergeClauses],
) -> RowLevelResult:
    """Update or delete the rows that match rows of a frame, and insert other rows of the frame.

    Commits one snapshot. ``on``, conditions and values are Spark expressions of ``target.column``
    and ``source.column``. A matched row is deleted if the condition ``when_matched_delete`` is true
    (``"true"`` deletes all matched rows); other matched rows are updated with
    ``when_matched_update``. A source row without a match is inserted with the values of
    ``when_not_matched_insert``; other columns get their default or null. ``"*"`` assigns the
    source's columns of the same names: to all columns that can be updated, or, in an insert, to all
    columns. If several new rows have the same primary key, any of them is written.

    Conflicts are handled as in :func:`paimon_orch.steps.row_level.row_level_write.delete`; the
    source is computed again for each attempt. A table with the merge engine ``first-row`` allows
    only inserts.

    :raises InputError: if several source rows match the same row of the table, or if the merge
        would not produce the new row (see :func:`update`)
    """
    return _build_merge(source, table, on, clauses).run(progress)


def preview_merge(
    source: DataFrame, table: Table, on: str | Column, **clauses: Unpack[MergeClauses]
) -> RowLevelResult:
    """Count the rows that :func:`merge_into` would change; writes nothing."""
    return _build_merge(source, table, on, clauses).count_changes()


def check_merge(table: Table, **clauses: Unpack[MergeClauses]) -> None:
    """Raise an error if the table does not allow the clauses of a merge; needs no session.

    :raises InputError: for an unknown column, a column that cannot be set, or no clause
    :raises UnsupportedError: if the table's options do not allow the changes
    """
    updates = clauses.get("when_matched_update")
    inserts = clauses.get("when_not_matched_insert")
    delete = clauses.get("when_matched_delete")
    if updates is None and inserts is None and delete is None:
        raise InputError("a merge requires an update, delete or insert clause")
    schema = table.stores.get_schema()
    table.stores.check_step(StepKind.WRITE_ROWS, schema)
    check_row_level_supported(schema, _name_operation(updates=updates, delete=delete))
    if updates is not None and updates != "*":
        check_assignable(schema, updates)
    if inserts is not None and inserts != "*":
        check_columns_exist(schema, inserts)


def _name_operation(
    *, updates: object | None, delete: object | None
) -> Literal["merge", "insert", "update"]:
    """Return the name of the operation of a merge, for the check of the table's options."""
    if delete is not None:
        return "merge"
    return "insert" if updates is None else "update"


def _build_merge(
    source: DataFrame, table: Table, on: str | Column, clauses: MergeClauses
) -> "_RowLevelWrite":
    check_merge(table, **clauses)
    schema = table.stores.get_schema()
    fixed = set(list_fixed_columns(schema))
    updatable = [name for name in schema.names if name not in fixed]
    updates = expand_star(clauses.get("when_matched_update"), updatable)
    inserts = expand_star(clauses.get("when_not_matched_insert"), schema.names)
    delete = clauses.get("when_matched_delete")
    merge = _Merge(source=source, on=on, updates=updates, delete=delete, inserts=inserts)
    return _RowLevelWrite(
        session=source.sparkSession,
        table=table,
        build_changes=merge.build_changes,
        title="merge into",
        operation=_name_operation(updates=updates, delete=delete),
        is_guarded=inserts is not None and not schema.primary_keys,
        assigned={**(inserts or {}), **(updates or {})},
        updated=updates or (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merge:
    source: DataFrame
    on: str | Column
    updates: Assignments | None
    delete: str | Column | None
    inserts: Assignments | None

    def build_changes(self, planned: RowLevelPlan) -> DataFrame:
        """Return the changed and new rows with their addresses and kinds."""
        schema = planned.schema
        # Without this hint, Spark would broadcast the table, because it estimates the size of the
        # table from its list of work units.
        target = _read_target(self.source.sparkSession, planned).alias(TARGET_ALIAS).hint("merge")
        how = "inner" if self.inserts is None else "right"
        rows = target.join(self.source.alias(SOURCE_ALIAS), to_column(self.on), how)
        rows = rows.withColumn(KIND_COLUMN, self._build_row_kind())
        old = build_current_columns(schema, TARGET_ALIAS)
        new = {**old, **cast_assignments(schema, self.updates or {})}
        added = {name: fn.lit(None) for name in old}
        added |= cast_assignments(schema, self.inserts or {})
        kind = fn.col(KIND_COLUMN)
        values = {
            name: fn.when(kind == "+I", added[name]).when(kind == "+U", new[name]).otherwise(value)
            for name, value in old.items()
        }
        row_ids = [
            fn.col(f"{TARGET_ALIAS}.{name}").alias(name) for name in list_row_id_columns(schema)
        ]
        return rows.filter(kind.isNotNull()).select(
            _build_target_address().alias(ADDRESS_COLUMN),
            KIND_COLUMN,
            *cast_columns(schema, values),
            *build_old_value_columns(schema, old),
            *row_ids,
        )

    def _build_row_kind(self) -> Column:
        """Return the kind of each joined row, or null if the row does not change."""
        kind = fn.when(_build_target_address().isNull(), fn.lit("+I"))
        if self.delete is not None:
            kind = kind.when(to_column(self.delete), fn.lit("-D"))
        return kind if self.updates is None else kind.otherwise(fn.lit("+U"))


def _build_target_address() -> Column:
    return fn.col(f"{TARGET_ALIAS}.`{ADDRESS_COLUMN}`")


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowLevelWrite:
    """Plans, writes the changed rows and commits them."""

    session: SparkSession
    table: Table
    build_changes: Callable[[RowLevelPlan], DataFrame]
    """Returns the changed rows with their addresses and kinds."""
    title: str
    """A verb phrase to put before the table's name."""
    where: str | Predicate | None = None
    operation: str = "update"
    is_guarded: bool = False
    """Whether any concurrent change of the table is a conflict."""
    assigned: Assignments = field(default_factory=dict)
    """The new values, for error messages."""
    updated: Collection[str] = ()
    """The columns that get new values in existing rows."""

    @property
    def label(self) -> str:
        """Return the label in the Spark UI and in errors."""
        return f"{self.title} {self.table.identifier}"

    def run(self, progress: Progress | None, plan: RowLevelPlan | None = None) -> RowLevelResult:
        plan = plan or self._plan()
        attempts = PlanAttempts(self.title, self.table, plan, replan=lambda _: self._plan())
        for attempt in attempts:
            with attempt:
                result = self._write(attempts.next_plan(), progress)
        return attempts.complete(result)

    def _write(self, planned: RowLevelPlan, progress: Progress | None) -> RowLevelResult:
        row_kind = planned.target.row_kind_column
        columns = [*planned.schema.names, *([row_kind] if row_kind else [])]
        request = ingest.IngestRequest(columns=columns, row_kind=row_kind)
        writing = ingest.plan(self.table, request, state=planned.state)
        prepare = partial(row_level.prepare_changes, writing)
        write: Callable[[Iterator[pa.Table]], bytes] = partial(row_level.write_changes, writing)
        frame = self._build_frame(planned)
        if planned.row_ranges:
            update = row_level.plan_column_update(planned, writing, self.updated)
            clustered = cluster_by_row_range(frame, update)
            write = update.run
        else:
            clustered = cluster_by_bucket(RowSource(frame, prepare), planned.schema)
        executor = SparkExecutor(self.session)
        try:
            results = clustered.collect(
                write,
                executor,
                label=self.label,
                progress=progress,
                undo=partial(discard_encoded_changes, self.table),
            )
        except InputError as error:
            raise self._add_column_name(error) from error
        guard = ReadGuard(planned.snapshot_id) if self.is_guarded else None
        return row_level.commit(
            self.table,
            planned,
            [RowLevelTaskResult.decode(result) for result in results],
            executor=executor,
            guard=guard,
            hashes=writing.hashes,
        )

    def _plan(self) -> RowLevelPlan:
        request = RowLevelRequest(where=self.where, operation=self.operation)
        return row_level.plan(self.table, request)

    def _build_frame(self, planned: RowLevelPlan) -> DataFrame:
        try:
            frame = self.build_changes(planned)
            frame.schema  # noqa: B018 - Spark Connect analyzes expressions when the schema is read
        except (AnalysisException, ParseException) as error:
            lines = str(error).strip().splitlines()
            raise InputError(f"an expression is invalid: {lines[0]}") from error
        return frame

    def _add_column_name(self, error: InputError) -> InputError:
        """Return an error of an expression with the name of the assigned column."""
        match = _EXPRESSION_IN_ERROR.search(str(error))
        for name, expression in self.assigned.items():
            is_text = isinstance(expression, str)
            if match is not None and is_text and match.group(1) in expression:
                return InputError(f"column {name!r} = {expression}: {error}")
        return error

    def count_changes(self) -> RowLevelResult:
        """Count the rows that would change; raises the same errors of new values as a run."""
        frame = self._build_frame(self._plan())
        kinds = {"inserted": "+I", "updated": "+U", "deleted": "-D"}
        counts = [
            fn.count_if(fn.col(KIND_COLUMN) == kind).alias(name) for name, kind in kinds.items()
        ]
        # Spark computes only the values that are used; the hash uses all new values
        hashable = [f.name for f in frame.schema if not isinstance(f.dataType, MapType)]
        values = fn.xxhash64(*(fn.col(quote_column(name)) for name in hashable))
        try:
            (row,) = frame.agg(
                *counts,
                fn.count(ADDRESS_COLUMN).alias("addressed"),
                fn.count_distinct(fn.col(ADDRESS_COLUMN)).alias("distinct"),
                fn.max(values).alias("values"),
            ).collect()
        except (PySparkException, Py4JError) as error:
            failure = translate_failure(self.label, error, 1)
            if isinstance(failure, InputError):
                failure = self._add_column_name(failure)
            raise failure from error
        if row["distinct"] < row["addressed"]:
            raise build_multiple_matches_error()
        return RowLevelResult(**{name: row[name] for name in kinds})


def _read_target(session: SparkSession, planned: RowLevelPlan) -> DataFrame:
    """Return the rows of a plan with their addresses; one task reads each unit."""
    has_row_ids = bool(list_row_id_columns(planned.schema))
    fields = [*planned.schema.fields, *([ROW_ID] if has_row_ids else [])]
    carriers = pa.schema([(ADDRESS_COLUMN, pa.int64()), *build_carrier_schema(fields)])
    units, source = [cloudpickle.dumps(unit) for unit in planned.units], planned.source

    def read(index: int) -> Iterator[pa.RecordBatch]:
        unit: TargetUnit = cloudpickle.loads(units[index])
        assert source is not None
        for rows in unit.read(source, fields):
            yield from to_carrier_batches(rows, carriers)

    return map_units_in_spark(session, len(units), read, to_spark_schema(carriers))
