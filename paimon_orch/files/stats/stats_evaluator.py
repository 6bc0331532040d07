"""Finds the files that may have a row that satisfies a predicate, using column statistics.

The bounds of a column enclose all its values except null and NaN. For each file, the evaluator
computes whether a predicate may be true for some row, and whether it may be false for some row.
Without statistics, both are possible. A file for which the predicate cannot be true has no matching
row. All files of a batch
are evaluated together; a single file is a batch of one.

See docs/format/statistics.md#use-on-read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.files.stats.column_bounds import UNKNOWN_COUNT, ColumnBounds
from paimon_orch.format.arrays import AnyArray, Indices, Mask
from paimon_orch.format.bytes.binary_batch import to_object_array
from paimon_orch.format.types.predicate import And, Leaf, Not, Operator, Predicate

BoundsOf = Callable[[str], ColumnBounds]
"""Returns the statistics of a column in the files of a batch."""

_LIKE_WILDCARDS = "%_\\"
_MAX_COMPARED_VALUES = 64  # more values are sorted
_MAX_CACHED_LEAVES = 4
_MAX_COMPARISONS = 65_536  # limit of values times files per step


class _PossibleOutcomes(NamedTuple):
    """Whether a predicate may be true, and may be false, for some row of each file."""

    true: Mask
    false: Mask


_UNDECIDED = _PossibleOutcomes(np.ones(1, bool), np.ones(1, bool))


def may_match(predicate: Predicate, bounds_of: BoundsOf, row_counts: Indices) -> Mask:
    """Return which files may have a row that satisfies a bound predicate."""
    return np.broadcast_to(_evaluate(predicate, bounds_of, row_counts).true, row_counts.shape)


def may_contain(
    rows: Mapping[str, Sequence[object]], bounds_of: BoundsOf, row_counts: Indices
) -> Mask:
    """Return which files may have one of ``rows``.

    Rows are internal values by column; None stands for any value.
    """
    columns = {name: (to_object_array(values), bounds_of(name)) for name, values in rows.items()}
    count = len(next(iter(rows.values())))
    matches = np.zeros(len(row_counts), bool)
    for part in _split_values(count, len(row_counts)):
        contains = np.ones((part.stop - part.start, len(row_counts)), bool)
        for values, bounds in columns.values():
            is_tested = np.array([value is not None for value in values[part]], bool)
            may_have_value = _Interval(bounds).may_contain(values[part][is_tested, None])
            contains[is_tested] &= may_have_value & _may_have_values(bounds, row_counts)
        matches |= contains.any(axis=0)
    return matches


def _split_values(values: int, files: int) -> Iterator[slice]:
    step = max(1, _MAX_COMPARISONS // max(1, files))
    for start in range(0, values, step):
        yield slice(start, min(start + step, values))


def _evaluate(predicate: Predicate, bounds_of: BoundsOf, row_counts: Indices) -> _PossibleOutcomes:
    match predicate:
        case Leaf(key=None):
            return _evaluate_leaf(predicate, bounds_of(predicate.name), row_counts)
        case Leaf():  # map keys have no statistics
            return _UNDECIDED
        case Not(child=child):
            return _PossibleOutcomes(*reversed(_evaluate(child, bounds_of, row_counts)))
    parts = [_evaluate(child, bounds_of, row_counts) for child in predicate.children]
    true, false = parts[0]
    for part in parts[1:]:
        if isinstance(predicate, And):
            true, false = true & part.true, false | part.false
        else:
            true, false = true | part.true, false & part.false
    return _PossibleOutcomes(true, false)


def _evaluate_leaf(leaf: Leaf, bounds: ColumnBounds, row_counts: Indices) -> _PossibleOutcomes:
    has_values = _may_have_values(bounds, row_counts)
    if leaf.op == Operator.IS_NULL:
        is_unknown = bounds.null_counts == UNKNOWN_COUNT
        return _PossibleOutcomes(is_unknown | (bounds.null_counts > 0), has_values)
    if leaf.op == Operator.IS_NAN:  # statistics do not tell whether a column has NaN
        return _PossibleOutcomes(has_values, has_values)
    operands = _load_operands(leaf)
    is_float = pa.types.is_floating(leaf.values[0].type)
    if is_float and np.isnan(operands).any():  # of partitions; filters have no NaN
        return _PossibleOutcomes(has_values, has_values)
    interval = _Interval(bounds)
    if leaf.op == Operator.LIKE:
        outcomes = interval.like(leaf.values[0].as_py())
    else:
        outcomes = interval.compare(leaf.op, operands)
    if is_float:  # a NaN is outside the bounds and fails every test except <>
        outcomes = _PossibleOutcomes(
            outcomes.true | (leaf.op == Operator.NOT_EQUAL), np.ones(1, bool)
        )
    return _PossibleOutcomes(outcomes.true & has_values, outcomes.false & has_values)


def _may_have_values(bounds: ColumnBounds, row_counts: Indices) -> Mask:
    """Return which files may have a value that is not null; comparisons with null are unknown."""
    mask: Mask = (bounds.null_counts == UNKNOWN_COUNT) | (bounds.null_counts < row_counts)
    return mask


_operands: dict[int, tuple[object, AnyArray]] = {}
"""The operands of the newest leaves with many values, by the identity of the values."""


def _load_operands(leaf: Leaf) -> AnyArray:
    """Return the values of a leaf, which are converted once for all batches of files."""
    values = leaf.values
    if len(values) <= _MAX_COMPARED_VALUES:
        return _to_operands([to_internal_value(value) for value in values])
    cached = _operands.get(id(values))
    if cached is not None and cached[0] is values:
        return cached[1]
    operands = _to_operands([to_internal_value(value) for value in values])
    if len(_operands) >= _MAX_CACHED_LEAVES:
        _operands.clear()
    _operands[id(values)] = values, operands
    return operands


def _to_operands(values: Sequence[object]) -> AnyArray:
    """Return values as a numpy array of numbers or of objects, for comparison with bounds."""
    is_number = all(isinstance(value, int | float) for value in values)
    return np.array(values) if is_number else to_object_array(values)


class _Interval:
    """The range of a column's values in each file; either end may be unknown.

    An operand is one value for all files, or a column of values. For a column of values, results
    have one row per value.
    """

    def __init__(self, bounds: ColumnBounds) -> None:
        self._bounds = bounds

    def _test_low(self, test: Callable[[AnyArray], Mask], *, unknown: bool) -> Mask:
        return _test_bounds(self._bounds.low, self._bounds.has_low, test, unknown=unknown)

    def _test_high(self, test: Callable[[AnyArray], Mask], *, unknown: bool) -> Mask:
        return _test_bounds(self._bounds.high, self._bounds.has_high, test, unknown=unknown)

    def _may_be_below(self, value: AnyArray, *, or_equal: bool) -> Mask:
        return self._test_low(lambda low: low <= value if or_equal else low < value, unknown=True)

    def _may_be_above(self, value: AnyArray, *, or_equal: bool) -> Mask:
        return self._test_high(
            lambda high: high >= value if or_equal else high > value, unknown=True
        )

    def may_contain(self, value: AnyArray) -> Mask:
        return self._may_be_below(value, or_equal=True) & self._may_be_above(value, or_equal=True)

    def _is_constant(self, value: AnyArray) -> Mask:
        """Return in which files all values are equal to ``value``."""
        is_low = self._test_low(lambda low: low == value, unknown=False)
        return is_low & self._test_high(lambda high: high == value, unknown=False)

    def compare(self, op: Operator, operands: AnyArray) -> _PossibleOutcomes:
        if op == Operator.IN:
            return self._is_in(operands)
        value = operands[:1]
        below, above = self._may_be_below, self._may_be_above
        match op:
            case Operator.EQUAL:
                return _PossibleOutcomes(self.may_contain(value), ~self._is_constant(value))
            case Operator.NOT_EQUAL:
                return _PossibleOutcomes(~self._is_constant(value), self.may_contain(value))
            case Operator.LESS:
                return _PossibleOutcomes(below(value, or_equal=False), above(value, or_equal=True))
            case Operator.LESS_OR_EQUAL:
                return _PossibleOutcomes(below(value, or_equal=True), above(value, or_equal=False))
            case Operator.GREATER:
                return _PossibleOutcomes(above(value, or_equal=False), below(value, or_equal=True))
            case Operator.GREATER_OR_EQUAL:
                return _PossibleOutcomes(above(value, or_equal=True), below(value, or_equal=False))
        return _UNDECIDED

    def _is_in(self, operands: AnyArray) -> _PossibleOutcomes:
        if len(operands) > _MAX_COMPARED_VALUES and operands.dtype.kind in "iO":
            return self._is_in_sorted(np.sort(operands))
        contains = is_constant = np.zeros(1, bool)
        for part in _split_values(len(operands), len(self._bounds.low)):
            values = operands[part, None]
            contains = contains | self.may_contain(values).any(axis=0)
            is_constant = is_constant | self._is_constant(values).any(axis=0)
        return _PossibleOutcomes(contains, ~is_constant)

    def _is_in_sorted(self, operands: AnyArray) -> _PossibleOutcomes:
        """Return the outcomes for many values, by a binary search for the bounds of each file."""
        bounds, count = self._bounds, len(operands)
        first, end = np.zeros(len(bounds.low), np.int64), np.full(len(bounds.low), count)
        first[bounds.has_low] = np.searchsorted(operands, bounds.low[bounds.has_low], "left")
        end[bounds.has_high] = np.searchsorted(operands, bounds.high[bounds.has_high], "right")
        contains = first < end
        is_constant = contains & bounds.has_low & bounds.has_high
        is_constant[is_constant] = bounds.low[is_constant] == bounds.high[is_constant]
        return _PossibleOutcomes(contains, ~is_constant)

    def like(self, pattern: str) -> _PossibleOutcomes:
        """Compare the text before the first wildcard."""
        length = next((i for i, char in enumerate(pattern) if char in _LIKE_WILDCARDS), None)
        if length is None:
            return self.compare(Operator.EQUAL, to_object_array([pattern]))
        prefix = to_object_array([pattern[:length]])

        def truncate(strings: AnyArray) -> AnyArray:
            return to_object_array([string[:length] for string in strings])

        may_start = self._test_low(lambda low: truncate(low) <= prefix, unknown=True)
        all_start = self._test_low(lambda low: truncate(low) == prefix, unknown=False)
        all_start &= self._test_high(lambda high: truncate(high) == prefix, unknown=False)
        may_match_prefix = may_start & self._may_be_above(prefix, or_equal=True)
        return _PossibleOutcomes(may_match_prefix, ~(all_start & (pattern[length:] == "%")))


def _test_bounds(
    bounds: AnyArray, exists: Mask, test: Callable[[AnyArray], Mask], *, unknown: bool
) -> Mask:
    """Return the result of a test of bounds, and ``unknown`` where there is no bound."""
    if exists.all():
        return test(bounds)
    passed = test(bounds[exists])
    mask = np.full((*passed.shape[:-1], len(bounds)), unknown)
    mask[..., exists] = passed
    return mask
