"""Merge of Arrow rows into a table in this process.

:func:`paimon_orch.spark.merge_into` merges large sources, with any expression of Spark.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.files.arrow_conversion import convert_to_arrow_type
from paimon_orch.files.row_tracking import ROW_ID, row_tracking_fields
from paimon_orch.format.arrays import Indices, Mask, to_arrow_array, to_numpy
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_type, to_paimon_type
from paimon_orch.format.types.data_types import Field
from paimon_orch.format.types.predicate import Leaf, Operator, Predicate, conjoin
from paimon_orch.merge.engine.update_rows import should_merge_updates
from paimon_orch.steps.common.executor import Progress
from paimon_orch.steps.common.step import PlanAttempts
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.steps.row_level.assignments import NewValues, is_number
from paimon_orch.steps.row_level.local_write import write_in_process
from paimon_orch.steps.row_level.merge_clauses import (
    SOURCE,
    TARGET,
    MergeClauses,
    MergeRules,
    can_get_matches,
    check_merge,
    name_operation,
)
from paimon_orch.steps.row_level.row_level_write import (
    RowLevelPlan,
    RowLevelRequest,
    RowLevelResult,
)
from paimon_orch.steps.row_level.task_result import (
    ADDRESS_COLUMN,
    KIND_COLUMN,
    OLD_VALUE_PREFIX,
    RowAddresses,
    build_multiple_matches_error,
    group_rows_by_file,
)
from paimon_orch.table.commit.row_level_conflicts import ReadGuard
from paimon_orch.table.table import Table
from paimon_orch.table.write.arrow_input import ArrowStreamExportable, to_arrow_table

_MIN_JOINED_ROWS = 1 << 16  # rows of the table that are joined with the source at the same time
_MAX_TESTED_VALUES = 100  # more values of a key are tested as a range when files are skipped


def merge(
    table: Table,
    source: ArrowStreamExportable,
    on: str | Sequence[str],
    **clauses: Unpack[MergeClauses],
) -> RowLevelResult:
    """Update, delete and insert rows as the rows of a source say, in one snapshot.

    See :meth:`Table.merge` for the arguments. The source is held in memory; the table's files that
    may have matching rows are read once for each attempt. Conflicts are handled, and rows of merge
    engines written, as in :func:`paimon_orch.spark.merge_into`.

    :raises InputError: if several source rows match and change the same row of the table
    :raises UnsupportedError: for an expression that only Spark computes, or a change that the
        table's options do not allow
    """
    return plan_merge(table, source, on, **clauses).run()


def plan_merge(
    table: Table,
    source: ArrowStreamExportable,
    on: str | Sequence[str],
    **clauses: Unpack[MergeClauses],
) -> "MergePlan":
    """Check a merge, and find the files that may have matching rows; reads only metadata."""
    schema = check_merge(table, clauses)
    rows, fields = _read_source(source, schema)
    rules = MergeRules.parse(schema, fields, on, clauses)
    where = None
    if not rules.changes_unmatched:
        where = _build_filter(_convert_keys(rows, schema, rules))
    request = RowLevelRequest(where=where, operation=name_operation(clauses))
    parse = partial(MergeRules.parse, source=fields, on=on, clauses=clauses)
    return MergePlan(
        table=table,
        source=rows,
        parse=parse,
        planned=row_level.plan(table, request),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """A merge whose clauses are checked."""

    table: Table
    source: pa.Table
    parse: "partial[MergeRules]"
    """Parses the clauses for a schema."""
    planned: RowLevelPlan

    def run(self, progress: Progress | None = None) -> RowLevelResult:
        """Execute the merge; after a conflict with another commit, plan and execute it again."""
        attempts = PlanAttempts(
            "merge into",
            self.table,
            self.planned,
            replan=lambda planned: row_level.plan(self.table, planned.request),
        )
        for attempt in attempts:
            with attempt:
                result = self._write(attempts.next_plan())
        if progress is not None:
            progress(1, 1)
        return attempts.complete(result)

    def _write(self, planned: RowLevelPlan) -> RowLevelResult:
        join = self._join(planned)
        inserts = join.rules.insert is not None
        is_guarded = inserts and can_get_matches(planned.schema, join.rules.keys)
        guard = ReadGuard(planned.snapshot_id) if is_guarded else None
        changes = join.compute_changes()
        return write_in_process(self.table, planned, changes, join.rules.updated, guard=guard)

    def preview(self) -> RowLevelResult:
        """Count the rows that would change; raises the same errors as a run, writes nothing."""
        counts, addresses = Counter[str](), list[RowAddresses]()
        writing = row_level.plan_writing(self.table, self.planned)
        for batch in self._join(self.planned).compute_changes():
            counts[batch.column(KIND_COLUMN)[0].as_py()] += batch.num_rows
            addresses.append(to_numpy(batch.column(ADDRESS_COLUMN).drop_null()))
            for rows in row_level.prepare_changes(writing, [batch]):
                for _ in self.planned.target.build_rows_to_write(rows):
                    pass
        group_rows_by_file(addresses)
        return RowLevelResult(deleted=counts["-D"], updated=counts["+U"], inserted=counts["+I"])

    def _join(self, planned: RowLevelPlan) -> "_Join":
        rules = self.parse(planned.schema)
        return _Join(planned, rules, self.source, _convert_keys(self.source, planned.schema, rules))


def _read_source(
    source: ArrowStreamExportable, schema: TableSchema
) -> tuple[pa.Table, list[Field]]:
    """Return the rows of a source in types of Paimon, with their columns."""
    rows = to_arrow_table(source)
    repeated = sorted(name for name, count in Counter(rows.column_names).items() if count > 1)
    if repeated:
        raise InputError(f"the source has several columns {', '.join(repeated)}; rename them")
    columns, fields = {}, []
    for column in rows.schema:
        field = _find_field(column, schema)
        array = rows.column(column.name).combine_chunks()
        columns[column.name] = _convert(array, field, f"the source's column {column.name!r}")
        fields.append(field)
    return pa.table(columns), fields


def _find_field(column: "pa.Field[pa.DataType]", schema: TableSchema) -> Field:
    """Return a column of the source; those without a type of Paimon have that of the table."""
    if pa.types.is_null(column.type):
        kind = next((x.type for x in schema.fields if x.name == column.name), None)
        return Field(id=0, name=column.name, type=kind or to_paimon_type(pa.string()))
    try:
        return Field(id=0, name=column.name, type=to_paimon_type(column.type))
    except InputError as error:
        if column.name in schema.names:
            return schema.field(column.name)
        raise InputError(f"the source's column {column.name!r}: {error}") from error


def _convert(array: pa.Array, field: Field, label: str) -> pa.Array:
    target = to_arrow_type(field.type)
    try:
        return convert_to_arrow_type(array, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InputError(
            f"{label} is {array.type} and cannot be converted to {target}: {error}. Nothing was "
            "written; convert the column first"
        ) from error


def _convert_keys(source: pa.Table, schema: TableSchema, rules: MergeRules) -> pa.Table:
    """Return the source's values of the matched columns, in the table's types and by its names.

    Numbers that are matched with FLOAT or DOUBLE become DOUBLE, as in Spark.
    """
    columns = {}
    for name, key in rules.keys.items():
        field, array = schema.field(name), source.column(key).combine_chunks()
        if pa.types.is_floating(to_arrow_type(field.type)) and is_number(array.type):
            columns[name] = array.cast(pa.float64(), safe=False)
            continue
        if pa.types.is_string(to_arrow_type(field.type)) and not pa.types.is_string(array.type):
            raise InputError(  # SQL compares numbers: 1 equals '01'
                f"on: the source's column {key!r} is {array.type}, but column {name!r} is text; "
                "convert one of them"
            )
        columns[name] = _convert(array, field, f"on: the source's column {key!r}")
    return pa.table(columns)


def _build_filter(keys: pa.Table) -> Predicate | None:
    """Return a filter that all rows with a match pass, to skip other files and rows."""
    tests = list[Predicate]()
    for name in keys.column_names:
        values = pc.unique(keys.column(name)).drop_null()
        if not len(values) or pa.types.is_floating(values.type):  # statistics have no order of NaN
            continue
        if len(values) <= _MAX_TESTED_VALUES:
            tests.append(Leaf(name, Operator.IN, tuple(values)))
        else:
            ends = pc.min_max(values)
            tests.append(Leaf(name, Operator.GREATER_OR_EQUAL, (ends["min"],)))
            tests.append(Leaf(name, Operator.LESS_OR_EQUAL, (ends["max"],)))
    return conjoin(tests) if tests else None


@dataclass(frozen=True, slots=True)
class _Join:
    """Joins the rows of a plan with a source, and computes the changed rows."""

    planned: RowLevelPlan
    rules: MergeRules
    source: pa.Table
    keys: pa.Table
    """The values of the source that are matched, by the table's columns."""

    def compute_changes(self) -> Iterator[pa.RecordBatch]:
        """Yield changed and new rows with their addresses and kinds, each batch of one kind."""
        matched: Mask = np.zeros(self.source.num_rows, np.bool_)
        for rows in self._read_target():
            target_rows, source_rows = self._match(rows)
            matched[source_rows] = True
            prefixed = rows.rename_columns(
                [
                    name if name in (ADDRESS_COLUMN, ROW_ID.name) else f"{TARGET}.{name}"
                    for name in rows.column_names
                ]
            )
            if self.rules.changes_matched:
                joined = prefixed.take(to_arrow_array(target_rows))
                for name in self.source.column_names:
                    values = self.source.column(name).take(to_arrow_array(source_rows))
                    joined = joined.append_column(f"{SOURCE}.{name}", values)
                yield from self._change(joined, self.rules.delete, self.rules.update)
            if self.rules.changes_unmatched:
                mask: Mask = np.ones(rows.num_rows, np.bool_)
                mask[target_rows] = False
                rules = (self.rules.delete_unmatched, self.rules.update_unmatched)
                yield from self._change(prefixed.filter(to_arrow_array(mask)), *rules)
        if self.rules.insert is not None:
            new = self.source.filter(to_arrow_array(~matched))
            yield from self._insert(new, self.rules.insert)

    def _read_target(self) -> Iterator[pa.Table]:
        """Yield rows of the table, at least as many as the source has, so that few joins run."""
        schema, source = self.planned.schema, self.planned.source
        fields = [*schema.fields, *([ROW_ID] if row_tracking_fields(schema) else [])]
        if not self.rules.changes_rows:
            fields = schema.select(self.rules.keys)
        if not (self.source.num_rows or self.rules.changes_unmatched):
            return
        size = max(self.source.num_rows, _MIN_JOINED_ROWS)
        parts, count = list[pa.Table](), 0
        for unit in self.planned.units:
            assert source is not None
            for rows in unit.read(source, fields):
                parts.append(rows)
                count += rows.num_rows
                if count >= size:
                    yield pa.concat_tables(parts)
                    parts, count = [], 0
        if parts:
            yield pa.concat_tables(parts)

    def _match(self, rows: pa.Table) -> tuple[Indices, Indices]:
        """Return the positions of the rows and of the source rows that match.

        They are pairs in the order of the rows if these may change. Otherwise they are not: keys
        that both sides have many times would give too many pairs.
        """
        names = self.keys.column_names
        keys = _name_keys(names)
        target = _number_keys(rows.select(names), TARGET)
        source = _number_keys(self.keys, SOURCE)
        matching = source.join(target, keys, join_type="left semi")
        if not self.rules.changes_matched:
            matched = target.join(source, keys, join_type="left semi")
            return to_numpy(matched.column(TARGET)), to_numpy(matching.column(SOURCE))
        is_repeated = matching.group_by(keys).aggregate([]).num_rows < matching.num_rows
        if is_repeated and self.rules.update is not None:  # each pair changes its row
            raise build_multiple_matches_error()
        pairs = target.join(matching, keys, join_type="inner")
        target_rows, source_rows = (to_numpy(pairs.column(side)) for side in (TARGET, SOURCE))
        order = np.lexsort((source_rows, target_rows))
        return target_rows[order], source_rows[order]

    def _change(
        self, rows: pa.Table, delete: pc.Expression | None, update: NewValues | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the deleted rows, and the new values of the others."""
        if delete is not None:
            numbered = rows.append_column(KIND_COLUMN, to_arrow_array(np.arange(rows.num_rows)))
            mask: Mask = np.zeros(rows.num_rows, np.bool_)
            mask[to_numpy(numbered.filter(delete).column(KIND_COLUMN))] = True
            yield from self._build_batches(rows.filter(to_arrow_array(mask)), "-D", {})
            rows = rows.filter(to_arrow_array(~mask))
        if update is not None:
            if update is self.rules.update:
                self._check_kept(rows)
            yield from self._build_batches(rows, "+U", update.compute(rows))

    def _check_kept(self, rows: pa.Table) -> None:
        """Raise :class:`InputError` if a star would have to move rows to other files."""
        for name in self.rules.kept:
            label = f"the source's column {name!r}"
            given = rows.column(f"{SOURCE}.{name}").combine_chunks()
            old = rows.column(f"{TARGET}.{name}")
            new = _convert(given, self.planned.schema.field(name), label)
            differs = pc.not_equal(old, new)
            if pa.types.is_floating(new.type):  # NaN equals NaN, as in Spark
                differs = pc.and_not(differs, pc.and_(pc.is_nan(old), pc.is_nan(new)))
            differs = pc.fill_null(differs, fill_value=False)
            differs = pc.or_(differs, pc.not_equal(old.is_valid(), new.is_valid()))
            position = pc.index(differs, value=True).as_py()
            if position >= 0:
                raise InputError(
                    f'when_matched_update = "*": {label} is {new[position].as_py()!r} for a row '
                    f"with {old[position].as_py()!r}, and {name} cannot be set, because it "
                    "determines where a row is stored. Match rows by it too, or name the columns to "
                    "set. Nothing was changed."
                )

    def _build_batches(
        self, rows: pa.Table, kind: str, values: Mapping[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        if not rows.num_rows:
            return
        schema = self.planned.schema
        old = {name: rows.column(f"{TARGET}.{name}") for name in schema.names}
        columns = {ADDRESS_COLUMN: rows.column(ADDRESS_COLUMN), **old, **values}
        if should_merge_updates(schema):
            columns |= {f"{OLD_VALUE_PREFIX}{name}": value for name, value in old.items()}
        if ROW_ID.name in rows.column_names:
            columns[ROW_ID.name] = rows.column(ROW_ID.name)
        yield from _to_batches(columns, kind)

    def _insert(self, new: pa.Table, values: NewValues) -> Iterator[pa.RecordBatch]:
        """Yield new rows; the columns that get no value are null."""
        if not new.num_rows:
            return
        schema = self.planned.schema
        rows = new.rename_columns([f"{SOURCE}.{name}" for name in new.column_names])
        computed = values.compute(rows)
        columns: dict[str, Any] = {ADDRESS_COLUMN: pa.nulls(new.num_rows, pa.int64())}
        for field in schema.fields:
            missing = field.name not in computed
            empty = pa.nulls(new.num_rows, to_arrow_type(field.type)) if missing else None
            columns[field.name] = computed.get(field.name, empty)
        if row_tracking_fields(schema):
            columns[ROW_ID.name] = pa.nulls(new.num_rows, pa.int64())
        yield from _to_batches(columns, "+I")


def _name_keys(names: Sequence[str]) -> list[str]:
    return [str(number) for number in range(len(names))]


def _number_keys(keys: pa.Table, side: str) -> pa.Table:
    """Return keys with other names, and the positions of the rows in a column of a side."""
    values = [_normalize_floats(column) for column in keys.columns]
    numbered = pa.table(values, names=_name_keys(keys.column_names))
    return numbered.append_column(side, to_arrow_array(np.arange(keys.num_rows)))


def _normalize_floats(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floating-point values as DOUBLE with one NaN and one zero, as Spark joins them.

    Arrow joins them by their bits. Other values are returned as they are.
    """
    if not pa.types.is_floating(values.type):
        return values
    zero = pa.scalar(0.0)
    values = pc.add(values.cast(pa.float64()), zero)  # -0.0 becomes 0.0
    return pc.if_else(pc.is_nan(values), pa.scalar(math.nan), values)


def _to_batches(columns: Mapping[str, Any], kind: str) -> Iterator[pa.RecordBatch]:
    rows = pa.table(dict(columns))
    kinds = pa.array(np.full(rows.num_rows, kind))
    rows = rows.append_column(KIND_COLUMN, kinds).combine_chunks()
    yield from rows.to_batches(max_chunksize=_MIN_JOINED_ROWS)
