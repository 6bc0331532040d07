"""UPDATE and MERGE INTO: Spark computes the new values, and our tasks read and write rows."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
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
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.spark.execution.job_failures import translate_failure
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.spark.execution.tasks import map_units_in_spark
from paimon_orch.spark.frame_writer import RowSource, cluster_by_bucket, cluster_by_row_range
from paimon_orch.spark.row_conversion import (
    build_carrier_schema,
    from_carriers,
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
    check_assignments,
    expand_star,
    list_row_id_columns,
    to_column,
)
from paimon_orch.steps.common.executor import Progress
from paimon_orch.steps.common.step import PlanAttempts
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.steps.row_level.assignments import check_update, list_fixed_columns
from paimon_orch.steps.row_level.merge_clauses import (
    can_get_matches,
    check_merge,
    find_matched_columns,
    name_operation,
)
from paimon_orch.steps.row_level.row_level_plan import TargetUnit
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
    when_not_matched_by_source_update: Assignments | None
    when_not_matched_by_source_delete: str | Column | None


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
    rows = _read_target(session, planned)
    check_assignments(rows, schema, assignments)
    old = build_current_columns(schema)
    new = cast_columns(schema, {**old, **cast_assignments(schema, assignments)})
    further = [*build_old_value_columns(schema, old), *map(fn.col, list_row_id_columns(schema))]
    kind = fn.lit("+U").alias(KIND_COLUMN)
    return rows.select(ADDRESS_COLUMN, kind, *new, *further)


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
    source's columns of the same names: to all columns that can be updated (the others must have the
    same values on both sides), or, in an insert, to all columns. If several new rows have the same
    primary key, any of them is written. Rows of the table that no row of the source matches are
    deleted if ``when_not_matched_by_source_delete`` is true, and are otherwise updated with
    ``when_not_matched_by_source_update``.

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


def _build_merge(
    source: DataFrame, table: Table, on: str | Column, clauses: MergeClauses
) -> "_RowLevelWrite":
    schema = check_merge(table, clauses)
    fixed = set(list_fixed_columns(schema))
    updatable = [name for name in schema.names if name not in fixed]
    inserts = expand_star(clauses.get("when_not_matched_insert"), schema.names)
    has_star = isinstance(clauses.get("when_matched_update"), str)
    merge = _Merge(
        source=source.withColumn(_MATCH_COLUMN, fn.lit(True)),
        on=on,
        updates=expand_star(clauses.get("when_matched_update"), updatable),
        delete=clauses.get("when_matched_delete"),
        inserts=inserts,
        unmatched_updates=clauses.get("when_not_matched_by_source_update"),
        unmatched_delete=clauses.get("when_not_matched_by_source_delete"),
        kept=[name for name in source.columns if has_star and name in fixed],
    )
    updates = {**(merge.unmatched_updates or {}), **(merge.updates or {})}
    return _RowLevelWrite(
        session=source.sparkSession,
        table=table,
        build_changes=merge.build_changes,
        title="merge into",
        operation=name_operation(clauses),
        is_guarded=inserts is not None and can_get_matches(schema, find_matched_columns(on)),
        assigned={**(inserts or {}), **updates},
        updated=updates,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merge:
    source: DataFrame
    on: str | Column
    updates: Assignments | None
    delete: str | Column | None
    inserts: Assignments | None
    unmatched_updates: Assignments | None
    unmatched_delete: str | Column | None
    kept: Sequence[str]
    """Columns of both that a star cannot set, so that their values must be equal already."""

    def build_changes(self, planned: RowLevelPlan) -> DataFrame:
        """Return the changed and new rows with their addresses and kinds."""
        schema = planned.schema
        rows = self._join_target(planned).withColumn(KIND_COLUMN, self._build_row_kind())
        for assignments in (self.updates, self.unmatched_updates, self.inserts):
            check_assignments(rows, schema, assignments or {})
        old = build_current_columns(schema, TARGET_ALIAS)
        new = {**old, **cast_assignments(schema, self.updates or {})}
        unmatched = {**old, **cast_assignments(schema, self.unmatched_updates or {})}
        added = {name: fn.lit(None) for name in old}
        added |= cast_assignments(schema, self.inserts or {})
        kind = fn.col(KIND_COLUMN)
        is_matched = fn.col(_MATCH_COLUMN).isNotNull()
        values = {
            name: fn.when(kind == "+I", added[name])
            .when((kind == "+U") & is_matched, new[name])
            .when(kind == "+U", unmatched[name])
            .otherwise(value)
            for name, value in old.items()
        }
        for name in self.kept:
            given = fn.col(f"{SOURCE_ALIAS}.{quote_column(name)}")
            moves = (kind == "+U") & is_matched & ~old[name].eqNullSafe(given)
            error = fn.raise_error(_build_move_message(name, old[name], given))
            values[name] = fn.when(moves, error).otherwise(values[name])
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

    def _join_target(self, planned: RowLevelPlan) -> DataFrame:
        # Without this hint, Spark would broadcast the table, because it estimates the size of the
        # table from its list of work units.
        target = _read_target(self.source.sparkSession, planned).alias(TARGET_ALIAS).hint("merge")
        keeps_target = self.unmatched_updates is not None or self.unmatched_delete is not None
        how = _JOINS[keeps_target, self.inserts is not None]
        return target.join(self.source.alias(SOURCE_ALIAS), to_column(self.on), how)

    def _build_row_kind(self) -> Column:
        """Return the kind of each joined row, or null if the row does not change."""
        unmatched = _build_change_kind(self.unmatched_delete, self.unmatched_updates)
        matched = _build_change_kind(self.delete, self.updates)
        kind = fn.when(_build_target_address().isNull(), fn.lit("+I"))
        return kind.when(fn.col(_MATCH_COLUMN).isNull(), unmatched).otherwise(matched)


_MATCH_COLUMN = "__paimon_match"  # a column of the source, which is null in rows without a match
_JOINS = {  # by whether rows of the table, and of the source, are kept without a match
    (False, False): "inner",
    (False, True): "right",
    (True, False): "left",
    (True, True): "full",
}


def _build_move_message(name: str, old: Column, given: Column) -> Column:
    start = f'when_matched_update = "*": the source\'s column {name!r} is '
    end = (
        f", and {name} cannot be set, because it determines where a row is stored. Match rows by it "
        "too, or name the columns to set"
    )
    texts = [fn.coalesce(value.cast("string"), fn.lit("NULL")) for value in (given, old)]
    return fn.concat(fn.lit(start), texts[0], fn.lit(" for a row with "), texts[1], fn.lit(end))


def _build_change_kind(delete: str | Column | None, updates: Assignments | None) -> Column:
    """Return the kind of the change of rows of the table, or null if a row does not change."""
    kind = fn.lit(None if updates is None else "+U").cast("string")
    return kind if delete is None else fn.when(to_column(delete), fn.lit("-D")).otherwise(kind)


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
        writing = row_level.plan_writing(self.table, planned)
        fields = writing.schema.fields
        prepare = from_carriers(partial(row_level.prepare_changes, writing), fields)
        write: Callable[[Iterator[pa.Table]], bytes] = partial(row_level.write_changes, writing)
        frame = self._build_frame(planned)
        if planned.row_ranges:
            update = row_level.plan_column_update(planned, writing, self.updated)
            clustered = cluster_by_row_range(frame, update, from_carriers(update.prepare, fields))
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
