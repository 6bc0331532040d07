"""Changing single rows on top of a merge engine: what to write so that the merge makes the wanted rows of the old ones.

Engines that merge (all but plain deduplicate) take a written row as a contribution, not as the row's new values: a sum
adds it up, a null overwrites nothing. So the contribution is computed, and merged with the old row as readers and
compactions will do it: what would not give the row that was asked for is refused.

See docs/format/merge-engines.md and docs/format/aggregate-functions.md.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Mask
from paimon_orch.format.options.core_options import SEQUENCE_FIELD
from paimon_orch.format.row.row_kind import is_retract
from paimon_orch.format.schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from paimon_orch.merge.aggregate.registry import find_aggregate_function
from paimon_orch.merge.engine.merge_engine import MergeEngine, create_merge_engine
from paimon_orch.merge.engine.row_merge import parse_sequence_groups
from paimon_orch.merge.sort.key_order import to_comparable_column
from paimon_orch.merge.sort.sort_merge_reader import MergeBatch, build_sorted_batch

_WHOLE_VALUE_FUNCTIONS = (
    None,
    "last_value",
    "first_value",
)  # functions for which a null says something
_FLOAT_TOLERANCE = 1e-12  # a sum of floats rounds, in whatever order its rows come


def should_merge_updates(schema: TableSchema) -> bool:
    """Tell whether a table merges a changed row with the old one instead of always putting it in its place."""
    engine = create_merge_engine(schema)
    return schema.typed_options.merge_engine != "deduplicate" or bool(engine.sequence.names)


def compute_update_rows(schema: TableSchema, old: pa.Table, new: pa.Table) -> pa.Table:
    """Return what to write so that each row of ``old`` becomes the one of ``new``, or is deleted if that is a -D row.

    Both have the table's columns, row by row; ``new`` has ``_VALUE_KIND`` too, and no key comes twice. Raises
    :class:`InputError` naming a row that the table's merge engine would not make so, the column and the rule.
    """
    deleted: Mask = is_retract(new.column(VALUE_KIND.name))
    functions = _aggregate_functions(schema)
    columns = {VALUE_KIND.name: new.column(VALUE_KIND.name).combine_chunks()}
    for field in schema.fields:
        before, after = (
            _effective_old_column(schema, old, field.name),
            _contiguous_column(new, field.name),
        )
        function = functions.get(field.name)
        needs_value = not field.type.nullable or field.default_value is not None
        if function in _WHOLE_VALUE_FUNCTIONS:
            columns[field.name] = after
            continue
        changed = deleted | _find_differences(before, after)
        given = (
            _compute_sum_delta(field.name, before, after, ~deleted) if function == "sum" else after
        )
        if needs_value:
            columns[field.name] = given
        else:
            rows = pa.array(np.arange(len(given)), mask=~changed)
            columns[field.name] = given.take(rows)
    given = pa.table(columns)
    _check_merge_result(schema, old, new, given)
    return given


def _aggregate_functions(schema: TableSchema) -> dict[str, str]:
    """Return the columns that a row without a value leaves alone, with what their values are merged by."""
    engine, names = schema.typed_options.merge_engine, set(schema.names)
    names -= {*schema.primary_keys, *schema.typed_options.get(SEQUENCE_FIELD)}
    if engine == "aggregation":
        return {
            name: find_aggregate_function(schema, name) or "last_non_null_value" for name in names
        }
    if engine != "partial-update":
        return {}
    groups = parse_sequence_groups(schema)
    names -= {name for group in groups for name in group.sequence}
    protected = {name for group in groups for name in group.columns}
    found = {name: find_aggregate_function(schema, name) for name in names}
    return {
        name: function or "last_non_null_value"
        for name, function in found.items()
        if function is not None or name not in protected
    }


def _effective_old_column(schema: TableSchema, old: pa.Table, name: str) -> pa.Array:
    """Return what a column brings into the merge: without its sequence, a column of a sequence group brings nothing."""
    column = _contiguous_column(old, name)
    if schema.typed_options.merge_engine == "partial-update":
        for group in parse_sequence_groups(schema):
            if name in group.columns:
                some = [
                    _contiguous_column(old, field).is_valid().to_numpy(False)
                    for field in group.sequence
                ]
                rows = pa.array(np.arange(len(column)), mask=~np.logical_or.reduce(some))
                return column.take(rows)
    return column


def _contiguous_column(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _find_differences(one: pa.Array, other: pa.Array) -> Mask:
    """Tell for each row whether the values differ; NaN and null are like themselves."""
    if one.equals(other):
        return np.zeros(len(one), bool)
    if pa.types.is_nested(one.type):  # Arrow compares no lists, maps and rows
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.array([before != after for before, after in pairs], bool)
    one, other = to_comparable_column(one), to_comparable_column(other)
    different = pc.fill_null(pc.not_equal(one, other), False)
    found = pc.or_(different, pc.xor(one.is_null(), other.is_null()))
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask


def _compute_sum_delta(name: str, before: pa.Array, after: pa.Array, updated: Mask) -> pa.Array:
    """Return what makes ``after`` of a sum that is ``before``; of a deleted row its value."""
    known = pa.array(updated & before.is_valid().to_numpy(zero_copy_only=False))
    try:
        difference = pc.subtract_checked(after, before).cast(after.type)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"column {name!r} is a sum: the difference of the new and the old value does not fit its type {after.type}"
        ) from error
    return pc.if_else(known, difference, after)


def _check_merge_result(schema: TableSchema, old: pa.Table, new: pa.Table, given: pa.Table) -> None:
    """Merge what is to be written with the old rows, and refuse it unless that gives the new rows."""
    engine, count = create_merge_engine(schema), old.num_rows
    kinds = pa.repeat(pa.scalar(0, pa.int8()), count)
    stored = pa.table({VALUE_KIND.name: kinds, **{name: old.column(name) for name in schema.names}})
    numbers = pa.array(np.arange(2 * count))
    rows = pa.concat_tables([stored, given]).add_column(0, SEQUENCE_NUMBER.name, numbers)
    step = engine.prepare(build_sorted_batch(rows, schema.primary_keys, engine.sequence))
    merged = engine.merge(step)
    found = step.order[step.starts] % count  # the rows of the result, which is sorted
    wanted = new.take(pa.array(found))
    deleted = is_retract(wanted.column(VALUE_KIND.name))
    stay = is_retract(merged.column(VALUE_KIND.name)) != deleted
    if stay.any():
        row = int(np.flatnonzero(stay)[0])
        raise _refusal_error(
            engine,
            step,
            wanted=wanted,
            row=row,
            reason="the row would not be deleted, or be deleted",
        )
    for name in schema.names:
        got, asked = _contiguous_column(merged, name), _contiguous_column(wanted, name)
        wrong = _find_differences(got, asked) & ~deleted
        if find_aggregate_function(schema, name) == "sum" and pa.types.is_floating(got.type):
            wrong &= ~np.isclose(
                got.fill_null(np.nan), asked.fill_null(np.nan), _FLOAT_TOLERANCE, 0
            )
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            reason = (
                f"column {name!r} would be {got[row].as_py()!r}, not {asked[row].as_py()!r}: "
                f"{_explain_rule(schema, name)}"
            )
            raise _refusal_error(engine, step, wanted=wanted, row=row, reason=reason)


def _explain_rule(schema: TableSchema, name: str) -> str:
    options = schema.typed_options
    for group in parse_sequence_groups(schema) if options.merge_engine == "partial-update" else ():
        if name in group.fields:
            return (
                f"it changes with its sequence group ({', '.join(group.sequence)}) alone, which must not be null and "
                "not be lowered"
            )
    function = _aggregate_functions(schema).get(name)
    if function == "last_non_null_value":
        return "a null does not overwrite a value there"
    return (
        f"that is what its aggregate function {function!r} makes of the old value and any new one"
    )


def _refusal_error(
    engine: MergeEngine, step: MergeBatch, wanted: pa.Table, row: int, reason: str
) -> InputError:
    """Return the error of a row that would not become what was asked for."""
    options, names = engine.schema.typed_options, engine.schema.primary_keys
    key = ", ".join(f"{name} = {wanted.column(name)[row].as_py()!r}" for name in names)
    if engine.sequence.names and _is_old_row_newest(step)[row]:
        order = "lower" if not engine.sequence.descending else "higher"
        reason = (
            f"the old row would win, as the new one's 'sequence.field' ({', '.join(engine.sequence.names)}) is "
            f"{order} or null; set it to no {'less' if order == 'lower' else 'more'} than it was"
        )
    return InputError(
        f"the row {key} of a table with 'merge-engine' = {options.merge_engine!r} cannot become what was asked for: "
        f"{reason}. Nothing was changed."
    )


def _is_old_row_newest(step: MergeBatch) -> Mask:
    """Tell for each key whether its old row comes last; the old rows are the first half."""
    found: Mask = step.newest_row_per_key < step.rows.num_rows // 2
    return found
