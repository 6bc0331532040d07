"""Updates of single rows: computes rows that produce the new rows when merged with the old rows.

All engines except plain deduplicate merge a written row with the old one: a sum adds it, a null
does not overwrite. The row to write is therefore computed, and then merged with the old row as
in reads and compactions. An update is refused if this merge does not return the requested row.

See docs/format/merge-engines.md and docs/format/aggregate-functions.md.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Mask, to_arrow_array, to_numpy
from paimon_orch.format.java_equality import find_differences
from paimon_orch.format.options.core_options import SEQUENCE_FIELD
from paimon_orch.format.row.row_kind import is_retract
from paimon_orch.format.schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from paimon_orch.merge.aggregate.registry import find_aggregate_function
from paimon_orch.merge.engine.merge_engine import MergeEngine, create_merge_engine
from paimon_orch.merge.engine.merge_function import contiguous_column
from paimon_orch.merge.engine.partial_update import parse_sequence_groups
from paimon_orch.merge.sort.sort_merge_reader import MergeBatch, build_sorted_batch

_WHOLE_VALUE_FUNCTIONS = (None, "last_value", "first_value")  # functions that treat null as a value
_FLOAT_TOLERANCE = 1e-12  # the rounding of a float sum depends on the order of its rows


def should_merge_updates(schema: TableSchema) -> bool:
    """Return whether a table merges an updated row with the old row instead of replacing it."""
    if not schema.primary_keys:
        return False
    engine = create_merge_engine(schema)
    return schema.typed_options.merge_engine != "deduplicate" or bool(engine.sequence.names)


def compute_update_rows(schema: TableSchema, old: pa.Table, new: pa.Table) -> pa.Table:
    """Return the rows to write so that each row of ``old`` becomes the row of ``new``.

    Both have the table's columns and the same number of rows with distinct keys; ``new`` also has
    ``_VALUE_KIND``; a -D row deletes the old row. Raises :class:`InputError` naming a row that the
    merge engine would not produce, with the column and the rule.
    """
    deleted: Mask = is_retract(new.column(VALUE_KIND.name))
    functions = _aggregate_functions(schema)
    columns = {VALUE_KIND.name: new.column(VALUE_KIND.name).combine_chunks()}
    for field in schema.fields:
        before, after = (
            _effective_old_column(schema, old, field.name),
            contiguous_column(new, field.name),
        )
        function = functions.get(field.name)
        needs_value = not field.type.nullable or field.default_value is not None
        if function in _WHOLE_VALUE_FUNCTIONS:
            columns[field.name] = after
            continue
        changed = deleted | find_differences(before, after)
        contribution = (
            _compute_sum_delta(field.name, before, after, ~deleted) if function == "sum" else after
        )
        if needs_value:
            columns[field.name] = contribution
        else:
            rows = to_arrow_array(np.arange(len(contribution)), mask=~changed)
            columns[field.name] = contribution.take(rows)
    rows_to_write = pa.table(columns)
    _check_merge_result(schema, old, new, rows_to_write)
    return rows_to_write


def _aggregate_functions(schema: TableSchema) -> dict[str, str]:
    """Return the aggregate functions of the columns in which a null does not overwrite."""
    engine = schema.typed_options.merge_engine
    names = set(schema.value_names) - set(schema.typed_options.get(SEQUENCE_FIELD))
    if engine == "aggregation":
        return {
            name: find_aggregate_function(schema, name) or "last_non_null_value" for name in names
        }
    if engine != "partial-update":
        return {}
    groups = parse_sequence_groups(schema)
    names -= {name for group in groups for name in group.sequence}
    protected = {name for group in groups for name in group.columns}
    functions = {name: find_aggregate_function(schema, name) for name in names}
    return {
        name: function or "last_non_null_value"
        for name, function in functions.items()
        if function is not None or name not in protected
    }


def _effective_old_column(schema: TableSchema, old: pa.Table, name: str) -> pa.Array:
    """Return the values to merge: null in sequence groups without a sequence."""
    column = contiguous_column(old, name)
    if schema.typed_options.merge_engine == "partial-update":
        for group in parse_sequence_groups(schema):
            if name in group.columns:
                some = [
                    to_numpy(contiguous_column(old, field).is_valid()) for field in group.sequence
                ]
                rows = to_arrow_array(np.arange(len(column)), mask=~np.logical_or.reduce(some))
                return column.take(rows)
    return column


def _compute_sum_delta(name: str, before: pa.Array, after: pa.Array, updated: Mask) -> pa.Array:
    """Return the difference of two sums in the rows of ``updated``, ``after`` in other rows."""
    has_sum = to_arrow_array(updated & to_numpy(before.is_valid()))
    try:
        difference = pc.subtract_checked(after, before).cast(after.type)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"column {name!r} is a sum: the difference of the new and the old value does not fit "
            f"its type {after.type}"
        ) from error
    return pc.if_else(has_sum, difference, after)


def _check_merge_result(
    schema: TableSchema, old: pa.Table, new: pa.Table, rows_to_write: pa.Table
) -> None:
    """Merge the rows to write with the old rows; refuse them if the result is not ``new``."""
    engine, count = create_merge_engine(schema), old.num_rows
    kinds = to_arrow_array(np.zeros(count, np.int8))
    old_rows = pa.table(
        {VALUE_KIND.name: kinds, **{name: old.column(name) for name in schema.names}}
    )
    numbers = to_arrow_array(np.arange(2 * count))
    rows = pa.concat_tables([old_rows, rows_to_write]).add_column(0, SEQUENCE_NUMBER.name, numbers)
    step = engine.prepare(build_sorted_batch(rows, schema.primary_keys, engine.sequence))
    merged = engine.merge(step)
    # the result is sorted by key, so ``new`` is sorted in the same way before the comparison
    row_indices = step.order[step.starts] % count
    expected = new.take(to_arrow_array(row_indices))
    deleted = is_retract(expected.column(VALUE_KIND.name))
    differs = is_retract(merged.column(VALUE_KIND.name)) != deleted
    if differs.any():
        row = int(np.flatnonzero(differs)[0])
        raise _refusal_error(
            engine,
            step,
            expected=expected,
            row=row,
            reason=f"the row would {'not ' if deleted[row] else ''}be deleted",
        )
    for name in schema.names:
        actual, requested = contiguous_column(merged, name), contiguous_column(expected, name)
        is_unexpected = find_differences(actual, requested) & ~deleted
        if find_aggregate_function(schema, name) == "sum" and pa.types.is_floating(actual.type):
            is_unexpected &= ~np.isclose(
                actual.fill_null(np.nan), requested.fill_null(np.nan), _FLOAT_TOLERANCE, 0
            )
        if is_unexpected.any():
            row = int(np.flatnonzero(is_unexpected)[0])
            reason = (
                f"column {name!r} would be {actual[row].as_py()!r}, not "
                f"{requested[row].as_py()!r}: {_explain_rule(schema, name)}"
            )
            raise _refusal_error(engine, step, expected=expected, row=row, reason=reason)


def _explain_rule(schema: TableSchema, name: str) -> str:
    options = schema.typed_options
    for group in parse_sequence_groups(schema) if options.merge_engine == "partial-update" else ():
        if name in group.fields:
            return (
                f"it changes only with its sequence group ({', '.join(group.sequence)}), whose "
                "values must not be null or lower than before"
            )
    function = _aggregate_functions(schema).get(name)
    if function == "last_non_null_value":
        return "a null does not overwrite its value"
    return f"its aggregate function {function!r} merges the new value with the old one"


def _refusal_error(
    engine: MergeEngine, step: MergeBatch, expected: pa.Table, row: int, reason: str
) -> InputError:
    options, names = engine.schema.typed_options, engine.schema.primary_keys
    key = ", ".join(f"{name} = {expected.column(name)[row].as_py()!r}" for name in names)
    is_old_row_newest = step.newest_row_per_key[row] < step.rows.num_rows // 2
    if engine.sequence.names and is_old_row_newest:
        order = "lower" if not engine.sequence.descending else "higher"
        reason = (
            "the old row would win, because 'sequence.field' "
            f"({', '.join(engine.sequence.names)}) of the new row is {order} or null; "
            f"set it to the old value or a {'higher' if order == 'lower' else 'lower'} one"
        )
    return InputError(
        f"the row {key} of a table with 'merge-engine' = {options.merge_engine!r} cannot be "
        f"updated as requested: {reason}. Nothing was changed."
    )
