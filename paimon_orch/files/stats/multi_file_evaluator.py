"""What statistics say of a predicate for many files at once: :mod:`paimon_orch.files.stats.evaluator`, a column a step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.files.stats.evaluator import LIKE_WILDCARDS
from paimon_orch.format.arrays import AnyArray, Indices, Mask
from paimon_orch.format.bytes.binary_batch import to_object_array
from paimon_orch.format.row.binary_row_columns import FieldColumn
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.types.data_types import AtomicType, TypeRoot
from paimon_orch.format.types.predicate import And, Leaf, Not, Operator, Predicate

_UNKNOWN_COUNT = -1
_CUT_SUFFIXES = ("?", "\ufffd")  # how a bound may end that was cut too low


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnBounds:
    """Bounds of one column as internal values: ``has_low`` and ``has_high`` tell where they are known.

    ``nulls`` is -1 where their number is not known. Arrays have one item a file, or one for all.
    """

    low: AnyArray
    has_low: Mask
    high: AnyArray
    has_high: Mask
    nulls: Indices

    @classmethod
    def of(cls, stats: Sequence[ColumnStats]) -> "ColumnBounds":
        """Return the statistics of files, one by one."""
        low, high = ([column.min for column in stats], [column.max for column in stats])
        known = [np.array([bound is not None for bound in bounds], bool) for bounds in (low, high)]
        nulls = encode_null_counts([column.null_count for column in stats])
        return cls(
            low=to_object_array(low),
            has_low=known[0],
            high=to_object_array(high),
            has_high=known[1],
            nulls=nulls,
        )

    @classmethod
    def unknown(cls, nulls: Indices | None = None) -> "ColumnBounds":
        """Return that there are no bounds, and how many nulls there are."""
        none, nothing = np.zeros(1, bool), np.zeros(1, object)
        known = np.full(1, _UNKNOWN_COUNT) if nulls is None else nulls
        return cls(low=nothing, has_low=none, high=nothing, has_high=none, nulls=known)

    @classmethod
    def from_fields(
        cls, low: FieldColumn, high: FieldColumn, nulls: Indices, data_type: AtomicType
    ) -> "ColumnBounds":
        """Return bounds without those that :func:`paimon_orch.files.stats.evaluator.drop_untrusted_bounds` would not trust.

        Rows that have another arity than the column's file should have tell nothing.
        """
        alike = low.rows & high.rows
        lows, highs, has_low, has_high = (
            low.values,
            high.values,
            low.known & alike,
            high.known & alike,
        )
        if data_type.name in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
            nan = has_low & np.isnan(lows) | has_high & np.isnan(highs)
            has_low, has_high = has_low & ~nan, has_high & ~nan
        if data_type.name == TypeRoot.VARCHAR:
            cut = [
                known and text.endswith(_CUT_SUFFIXES)
                for text, known in zip(highs, has_high, strict=True)
            ]
            has_high = has_high & ~np.array(cut, bool)
        return cls(
            low=lows,
            has_low=has_low,
            high=highs,
            has_high=has_high,
            nulls=np.where(alike, nulls, _UNKNOWN_COUNT),
        )

    def take(self, rows: Indices) -> "ColumnBounds":
        """Return the bounds of some files, in any order."""
        return ColumnBounds(
            low=self.low[rows],
            has_low=self.has_low[rows],
            high=self.high[rows],
            has_high=self.has_high[rows],
            nulls=self.nulls[rows],
        )


def encode_null_counts(numbers: Sequence[int | None]) -> Indices:
    """Return numbers of nulls, which may be unknown."""
    return np.array([_UNKNOWN_COUNT if number is None else number for number in numbers], np.int64)


class _PossibleOutcomes(NamedTuple):
    """What a predicate may be for some row of each file."""

    true: Mask
    false: Mask


_UNDECIDED = _PossibleOutcomes(np.ones(1, bool), np.ones(1, bool))
BoundsOf = Callable[[str], ColumnBounds]


def may_match_many(predicate: Predicate, bounds_of: BoundsOf, rows: Indices) -> Mask:
    """Tell which files, of so many rows and with these statistics, may have one that satisfies a bound predicate."""
    return np.broadcast_to(_evaluate(predicate, bounds_of, rows).true, rows.shape)


def _evaluate(predicate: Predicate, bounds_of: BoundsOf, rows: Indices) -> _PossibleOutcomes:
    match predicate:
        case Leaf(key=None):
            return _evaluate_leaf(predicate, bounds_of(predicate.column), rows)
        case Leaf():  # statistics tell nothing of the keys of a map
            return _UNDECIDED
        case Not(child=child):
            return _PossibleOutcomes(*reversed(_evaluate(child, bounds_of, rows)))
    parts = [_evaluate(child, bounds_of, rows) for child in predicate.children]
    true, false = parts[0]
    for part in parts[1:]:
        if isinstance(predicate, And):
            true, false = true & part.true, false | part.false
        else:
            true, false = true | part.true, false & part.false
    return _PossibleOutcomes(true, false)


def _evaluate_leaf(leaf: Leaf, bounds: ColumnBounds, rows: Indices) -> _PossibleOutcomes:
    unknown = bounds.nulls == _UNKNOWN_COUNT
    if leaf.op == Operator.IS_NULL:
        return _PossibleOutcomes(unknown | (bounds.nulls > 0), unknown | (bounds.nulls < rows))
    some = unknown | (bounds.nulls < rows)  # without a value the test is unknown for every row
    values = [_as_operand(to_internal_value(value)) for value in leaf.values]
    if any((value != value).any() for value in values):  # noqa: PLR0124 - NaN
        return _PossibleOutcomes(some, some)
    interval = _Interval(bounds)
    found = (
        interval.like(leaf.values[0].as_py())
        if leaf.op == Operator.LIKE
        else interval.compare(leaf.op, values)
    )
    if pa.types.is_floating(leaf.values[0].type):
        # a NaN, which the bounds tell nothing of, fails every test but <>
        found = _PossibleOutcomes(found.true | (leaf.op == Operator.NOT_EQUAL), np.ones(1, bool))
    return _PossibleOutcomes(found.true & some, found.false & some)


def _as_operand(value: object) -> AnyArray:
    """Return a value that columns are compared with: of the form that their bounds have."""
    return np.array([value]) if isinstance(value, int | float) else to_object_array([value])


class _Interval:
    """All values lie between two bounds, each of which may be unknown."""

    def __init__(self, bounds: ColumnBounds) -> None:
        self._bounds = bounds

    def _low(self, test: Callable[[AnyArray], AnyArray], *, unknown: bool) -> Mask:
        return _test_bounds(self._bounds.low, self._bounds.has_low, test, unknown=unknown)

    def _high(self, test: Callable[[AnyArray], AnyArray], *, unknown: bool) -> Mask:
        return _test_bounds(self._bounds.high, self._bounds.has_high, test, unknown=unknown)

    def _below(self, value: AnyArray, *, equal: bool) -> Mask:
        """Tell where a row may have less than the value."""
        return self._low(lambda low: low <= value if equal else low < value, unknown=True)

    def _above(self, value: AnyArray, *, equal: bool) -> Mask:
        return self._high(lambda high: high >= value if equal else high > value, unknown=True)

    def _may_contain(self, value: AnyArray) -> Mask:
        return self._below(value, equal=True) & self._above(value, equal=True)

    def _is(self, value: AnyArray) -> Mask:
        """Tell where all rows have this value."""
        low = self._low(lambda bound: bound == value, unknown=False)
        return low & self._high(lambda bound: bound == value, unknown=False)

    def compare(self, op: Operator, values: Sequence[AnyArray]) -> _PossibleOutcomes:
        value = values[0]
        match op:
            case Operator.IN:
                has = np.logical_or.reduce([self._may_contain(item) for item in values])
                return _PossibleOutcomes(
                    has, ~np.logical_or.reduce([self._is(item) for item in values])
                )
            case Operator.EQUAL:
                return _PossibleOutcomes(self._may_contain(value), ~self._is(value))
            case Operator.NOT_EQUAL:
                return _PossibleOutcomes(~self._is(value), self._may_contain(value))
            case Operator.LESS:
                return _PossibleOutcomes(
                    self._below(value, equal=False), self._above(value, equal=True)
                )
            case Operator.LESS_OR_EQUAL:
                return _PossibleOutcomes(
                    self._below(value, equal=True), self._above(value, equal=False)
                )
            case Operator.GREATER:
                return _PossibleOutcomes(
                    self._above(value, equal=False), self._below(value, equal=True)
                )
            case Operator.GREATER_OR_EQUAL:
                return _PossibleOutcomes(
                    self._above(value, equal=True), self._below(value, equal=False)
                )
        return _UNDECIDED

    def like(self, pattern: str) -> _PossibleOutcomes:
        """Judge by the text in front of the first wildcard."""
        end = next((at for at, char in enumerate(pattern) if char in LIKE_WILDCARDS), len(pattern))
        if end == len(pattern):
            return self.compare(Operator.EQUAL, [to_object_array([pattern])])
        prefix = to_object_array([pattern[:end]])

        def cut(bounds: AnyArray) -> AnyArray:
            return to_object_array([bound[:end] for bound in bounds])

        may_start = self._low(lambda low: cut(low) <= prefix, unknown=True)
        all_start = self._low(lambda low: cut(low) == prefix, unknown=False)
        all_start &= self._high(lambda high: cut(high) == prefix, unknown=False)
        is_prefix = pattern[end:] == "%"
        return _PossibleOutcomes(
            may_start & self._above(prefix, equal=True), ~(all_start & is_prefix)
        )


def _test_bounds(
    values: AnyArray, known: Mask, test: Callable[[AnyArray], AnyArray], *, unknown: bool
) -> Mask:
    """Return the outcome of a test of bounds, and ``unknown`` where there is no bound."""
    found = np.full(len(values), unknown)
    found[known] = test(values[known])
    return found
