"""UPDATE and MERGE INTO on Spark: new values are Spark's expressions, rows are found and written by our own tasks."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import AtomicType, MapType

from paimon_orch.errors import InputError
from paimon_orch.files.row_tracking import ROW_ID, row_tracking_fields
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import type_to_sql
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.merge.compact.append_deletion_vectors import is_bucket_unaware
from paimon_orch.merge.engine.row_update import should_merge_updates
from paimon_orch.spark.execution.job_failures import translate_failure
from paimon_orch.spark.execution.spark_executor import (
    SparkExecutor,
)
from paimon_orch.spark.execution.tasks import map_units_in_spark
from paimon_orch.spark.row_conversion import (
    build_carrier_schema,
    quote_column,
    to_carrier_batches,
    to_spark_schema,
)
from paimon_orch.spark.writer import cluster_by_bucket
from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import Progress
from paimon_orch.steps.common.retry import retry_on_conflict
from paimon_orch.steps.row_level import row_level
from paimon_orch.steps.row_level.row_level import (
    RowLevelPlan,
    RowLevelResult,
    TargetUnit,
    discard_changes,
)
from paimon_orch.steps.row_level.task_result import (
    ADDRESS_COLUMN,
    KIND_COLUMN,
    OLD_VALUE_PREFIX,
    build_multiple_matches_error,
)
from paimon_orch.table.commit.row_level_conflicts import ReadGuard
from paimon_orch.table.table import Table

Assignments = Mapping[str, str | Column]
"""New values by column: SQL expressions as text, or columns of Spark."""

SOURCE_ALIAS, TARGET_ALIAS = "source", "target"
_EXPRESSION_IN_ERROR = re.compile(r", in the expression (.*)\. Nothing was committed", re.DOTALL)


def update(
    session: SparkSession,
    table: Table,
    assignments: Assignments,
    where: str | Predicate | None = None,
    *,
    progress: Progress | None = None,
) -> RowLevelResult:
    """Give the rows that a filter keeps new values, in one snapshot; rows for which it is unknown (NULL) stay.

    ``assignments`` are Spark expressions over the row's old values. Columns of the primary key, of the partition and of
    the bucket key cannot change: that would move rows. In expressions a TIME is its milliseconds, a timestamp finer
    than microseconds its nanoseconds. On tables that merge rows (``partial-update``, ``aggregation``, a sequence field)
    what is written makes the new row of the old one; if the table's options make another one of it, say of a lowered
    ``max`` or sequence field, :class:`InputError` names the column and the rule, and nothing is changed. Conflicts are
    answered as by :func:`paimon_orch.steps.row_level.row_level.delete`.
    """
    if not assignments:
        raise InputError("an update needs at least one column to set")
    _check_assignable(table.schema, assignments)

    def changed(planned: RowLevelPlan) -> DataFrame:
        rows = _read_target(session, planned)
        old = _build_current_columns(planned.schema, None)
        columns = _cast_columns(
            planned.schema, {**old, **_cast_assignments(planned.schema, assignments)}
        )
        beside: list[Column | str] = [
            *_build_old_value_columns(planned.schema, old),
            *_find_row_id_columns(planned.schema),
        ]
        return rows.select(ADDRESS_COLUMN, fn.lit("+U").alias(KIND_COLUMN), *columns, *beside)

    label = f"update rows of {table.identifier}"
    return _RowLevelWrite(
        session=session,
        table=table,
        changed=changed,
        label=label,
        where=where,
        assigned=assignments,
    ).run(progress)


def merge_into(
    source: DataFrame,
    table: Table,
    on: str | Column,
    *,
    when_matched_update: Assignments | Literal["*"] | None = None,
    when_matched_delete: str | Column | None = None,
    when_not_matched_insert: Assignments | Literal["*"] | None = None,
    progress: Progress | None = None,
) -> RowLevelResult:
    """Change the rows of a table that rows of a frame match, and add those that match none, in one snapshot.

    ``on``, conditions and values are Spark expressions over ``target.column`` and ``source.column``. A matched row for
    which the condition ``when_matched_delete`` holds (``"true"``: each) is deleted, another one gets the values of
    ``when_matched_update``. ``"*"`` takes the source's column of the same name: in updates for all columns that may
    change, in inserts for all. Columns that an insert leaves out get their default or null. Of several new rows of one
    primary key any may win.

    Raises :class:`InputError` if several source rows change one row of the table, or if the table's merge engine would
    not make of a row what was asked for (see :func:`update`); a table that keeps first rows takes inserts only.
    Conflicts are answered as by :func:`paimon_orch.steps.row_level.row_level.delete`; the source is computed again then.
    """
    return _build_merge(
        source,
        table,
        on,
        update=when_matched_update,
        delete=when_matched_delete,
        insert=when_not_matched_insert,
    ).run(progress)


def preview_merge(
    source: DataFrame,
    table: Table,
    on: str | Column,
    *,
    when_matched_update: Assignments | Literal["*"] | None = None,
    when_matched_delete: str | Column | None = None,
    when_not_matched_insert: Assignments | Literal["*"] | None = None,
) -> RowLevelResult:
    """Return how many rows :func:`merge_into` would change; nothing is written."""
    return _build_merge(
        source,
        table,
        on,
        update=when_matched_update,
        delete=when_matched_delete,
        insert=when_not_matched_insert,
    ).counts()


def _build_merge(
    source: DataFrame,
    table: Table,
    on: str | Column,
    *,
    update: Assignments | Literal["*"] | None,
    delete: str | Column | None,
    insert: Assignments | Literal["*"] | None,
) -> "_RowLevelWrite":
    schema = table.schema
    updates = _expand_star(update, schema.names, set(_find_fixed_columns(schema)))
    inserts = _expand_star(insert, schema.names, set())
    if updates is None and inserts is None and delete is None:
        raise InputError("a merge needs something to do: update, delete or insert")
    _check_assignable(schema, updates or {})
    _check_columns_exist(schema, inserts or {})

    return _RowLevelWrite(
        session=source.sparkSession,
        table=table,
        changed=_MergeQuery(source=source, on=on, updates=updates, delete=delete, inserts=inserts),
        label=f"merge into {table.identifier}",
        operation=_choose_operation(updates, delete),
        guarded=inserts is not None and not schema.primary_keys,
        assigned={**(inserts or {}), **(updates or {})},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _MergeQuery:
    """What a merge makes of the rows of a table."""

    source: DataFrame
    on: str | Column
    updates: Assignments | None
    delete: str | Column | None
    inserts: Assignments | None

    def __call__(self, planned: RowLevelPlan) -> DataFrame:
        # Spark takes the table for as small as the list of its units, and would broadcast it
        target = _read_target(self.source.sparkSession, planned).alias(TARGET_ALIAS).hint("merge")
        how = "inner" if self.inserts is None else "right"
        rows = target.join(self.source.alias(SOURCE_ALIAS), _to_column(self.on), how)
        rows = rows.withColumn(KIND_COLUMN, self._build_row_kind()).filter(
            fn.col(KIND_COLUMN).isNotNull()
        )
        old = _build_current_columns(planned.schema, TARGET_ALIAS)
        new = {**old, **_cast_assignments(planned.schema, self.updates or {})}
        added = {name: fn.lit(None) for name in old}
        added |= _cast_assignments(planned.schema, self.inserts or {})
        kind = fn.col(KIND_COLUMN)
        values = {
            name: fn.when(kind == "+I", added[name]).when(kind == "+U", new[name]).otherwise(value)
            for name, value in old.items()
        }
        address = fn.col(f"{TARGET_ALIAS}.`{ADDRESS_COLUMN}`").alias(ADDRESS_COLUMN)
        ids = [
            fn.col(f"{TARGET_ALIAS}.{name}").alias(name)
            for name in _find_row_id_columns(planned.schema)
        ]
        beside = [*_build_old_value_columns(planned.schema, old), *ids]
        return rows.select(address, KIND_COLUMN, *_cast_columns(planned.schema, values), *beside)

    def _build_row_kind(self) -> Column:
        """Return what becomes of a row; null for nothing."""
        address = fn.col(f"{TARGET_ALIAS}.`{ADDRESS_COLUMN}`")
        kind = fn.when(address.isNull(), fn.lit("+I"))
        if self.delete is not None:
            kind = kind.when(_to_column(self.delete), fn.lit("-D"))
        return kind if self.updates is None else kind.otherwise(fn.lit("+U"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowLevelWrite:
    """Plans, writes what ``changed`` returns and commits; ``guarded`` lets no other commit change any row meanwhile."""

    session: SparkSession
    table: Table
    changed: Callable[[RowLevelPlan], DataFrame]
    label: str
    where: str | Predicate | None = None
    operation: str = "update"
    guarded: bool = False
    assigned: Assignments = field(default_factory=dict)

    def run(self, progress: Progress | None) -> RowLevelResult:
        started = time.monotonic()

        def attempt(number: int) -> RowLevelResult:
            done = self._attempt(progress)
            return replace(done, duration_seconds=time.monotonic() - started, attempts=number)

        return retry_on_conflict(self.label, attempt)

    def _attempt(self, progress: Progress | None) -> RowLevelResult:
        planned = row_level.plan(self.table, self.where, self.operation)
        schema = planned.schema
        kinds = [KIND_COLUMN] if schema.primary_keys else []
        writing = ingest.plan(
            self.table, [*schema.names, *kinds], row_kind=KIND_COLUMN if kinds else None
        )
        clustered = cluster_by_bucket(
            _analyze_frame(self.changed, planned),
            schema,
            partial(row_level.prepare_changes, writing),
        )
        executor = SparkExecutor(self.session)
        try:
            results = clustered.collect(
                partial(row_level.write_changes, writing),
                executor,
                label=self.label,
                progress=progress,
                undo=partial(discard_changes, self.table),
            )
        except InputError as error:
            raise self._add_column_name(error) from error
        guard = ReadGuard(planned.snapshot_id) if self.guarded else None
        return row_level.commit(
            self.table, executor, planned, results, guard=guard, hashes=writing.hashes
        )

    def _add_column_name(self, error: InputError) -> InputError:
        """Return an error of an expression with the column that the expression is for."""
        part = _EXPRESSION_IN_ERROR.search(str(error))
        for name, expression in self.assigned.items():
            if part is not None and isinstance(expression, str) and part.group(1) in expression:
                return InputError(f"column {name!r} = {expression}: {error}")
        return error

    def counts(self) -> RowLevelResult:
        """Return how many rows would change; raises the errors of a run for the new values, and writes nothing."""
        planned = row_level.plan(self.table, self.where, self.operation)
        frame = _analyze_frame(self.changed, planned)
        kinds = {"inserted": "+I", "updated": "+U", "deleted": "-D"}
        hashable = [f.name for f in frame.schema if not isinstance(f.dataType, MapType)]
        try:
            (found,) = frame.agg(
                *(
                    fn.count_if(fn.col(KIND_COLUMN) == kind).alias(name)
                    for name, kind in kinds.items()
                ),
                fn.count(ADDRESS_COLUMN).alias("addressed"),
                fn.count_distinct(fn.col(ADDRESS_COLUMN)).alias("distinct"),
                fn.max(fn.xxhash64(*(fn.col(quote_column(name)) for name in hashable))).alias(
                    "values"
                ),
            ).collect()
        except (PySparkException, Py4JError) as error:
            failure = translate_failure(self.label, error, 1)
            raise (
                self._add_column_name(failure) if isinstance(failure, InputError) else failure
            ) from error
        if found["distinct"] < found["addressed"]:
            raise build_multiple_matches_error()
        return RowLevelResult(**{name: found[name] for name in kinds})


def _analyze_frame(
    changed: Callable[[RowLevelPlan], DataFrame], planned: RowLevelPlan
) -> DataFrame:
    try:
        frame = changed(planned)
        frame.schema  # noqa: B018 - Spark Connect looks at expressions only when the schema is asked for
    except (AnalysisException, ParseException) as error:
        lines = str(error).strip().splitlines()
        raise InputError(f"Spark does not understand an expression: {lines[0]}") from error
    return frame


def _read_target(session: SparkSession, planned: RowLevelPlan) -> DataFrame:
    """Return the rows of a plan behind their addresses, one task a unit."""
    tracking = [field for field in (ROW_ID,) if _find_row_id_columns(planned.schema)]
    fields = [*planned.schema.fields, *tracking]
    carriers = pa.schema([(ADDRESS_COLUMN, pa.int64()), *build_carrier_schema(fields)])
    units = [cloudpickle.dumps(unit) for unit in planned.units]

    def read(index: int) -> Iterator[pa.RecordBatch]:
        unit: TargetUnit = cloudpickle.loads(units[index])
        for rows in unit.read(fields):
            yield from to_carrier_batches(rows, carriers)

    return map_units_in_spark(session, len(units), read, to_spark_schema(carriers))


def _find_row_id_columns(schema: TableSchema) -> list[str]:
    """Return the column of row ids, if the table keeps them."""
    return [ROW_ID.name] if row_tracking_fields(schema) else []


def _to_column(expression: str | Column) -> Column:
    return fn.expr(expression) if isinstance(expression, str) else expression


def _to_columns(assignments: Assignments) -> dict[str, Column]:
    return {name: _to_column(expression) for name, expression in assignments.items()}


def _build_current_columns(schema: TableSchema, alias: str | None) -> dict[str, Column]:
    prefix = "" if alias is None else f"{alias}."
    return {name: fn.col(prefix + quote_column(name)) for name in schema.names}


def _build_old_value_columns(schema: TableSchema, old: Mapping[str, Column]) -> list[Column]:
    """Return the old values where the table merges a change with them."""
    if not schema.primary_keys or not should_merge_updates(schema):
        return []
    return [value.alias(f"{OLD_VALUE_PREFIX}{name}") for name, value in old.items()]


def _choose_operation(updates: Assignments | None, delete: str | Column | None) -> str:
    if delete is not None:
        return "merge"
    return "insert" if updates is None else "update"


def _cast_columns(schema: TableSchema, values: Mapping[str, Column]) -> list[Column]:
    """Return the table's columns in their types."""
    types = to_spark_schema(build_carrier_schema(schema.fields))
    return [values[field.name].cast(field.dataType).alias(field.name) for field in types]


def _cast_assignments(schema: TableSchema, assignments: Assignments) -> dict[str, Column]:
    """Return new values in the types of their columns; one that does not fit is an error that names both.

    Without this Spark would convert decimals and text to doubles where the other values have another type.
    """
    types = {
        field.name: field.dataType for field in to_spark_schema(build_carrier_schema(schema.fields))
    }
    columns = {}
    for name, value in _to_columns(assignments).items():
        kind = types[name]
        columns[name] = value.cast(kind)
        if isinstance(kind, AtomicType):
            sql = type_to_sql(schema.field(name).type.with_nullable(True))
            message = fn.concat(
                fn.lit(f"column {name!r}: the value '"),
                value.cast("string"),
                fn.lit(f"' is not a value of its type, {sql}"),
            )
            misfit = value.isNotNull() & value.try_cast(kind).isNull()
            columns[name] = fn.when(misfit, fn.raise_error(message)).otherwise(columns[name])
    return columns


def _expand_star(
    assignments: Assignments | Literal["*"] | None, names: Sequence[str], without: set[str]
) -> Assignments | None:
    if assignments != "*":
        return assignments
    return {
        name: fn.col(f"{SOURCE_ALIAS}.{quote_column(name)}")
        for name in names
        if name not in without
    }


def _find_fixed_columns(schema: TableSchema) -> list[str]:
    """Return the columns that say where a row lies."""
    keys = (*schema.primary_keys, *schema.partition_keys)
    buckets = (
        [] if is_bucket_unaware(schema) else [field.name for field in schema.bucket_key_fields]
    )
    return list(dict.fromkeys((*keys, *buckets)))


def _check_assignable(schema: TableSchema, assignments: Assignments) -> None:
    _check_columns_exist(schema, assignments)
    fixed = _find_fixed_columns(schema)
    wrong = [name for name in assignments if name in fixed]
    if wrong:
        raise InputError(
            f"{', '.join(wrong)} cannot be set: a row lies where its primary key, partition and bucket key say "
            f"({', '.join(fixed)}). Delete the row and write the new one."
        )


def _check_columns_exist(schema: TableSchema, assignments: Assignments) -> None:
    for name in assignments:
        schema.field(name)
