"""What statistics say of a predicate: whether it can hold for a row, or fail.

A column's bounds enclose all its values but null and NaN. Each test is judged by what it *may* be for some row, true
or false; where nothing is known both are possible. Combining the judgements keeps this: a predicate that may not be
true is true for no row, so that skipping the rows changes no answer.

See docs/format/statistics.md#use-on-read.
"""

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot
from paimon_orch.format.types.predicate import And, Leaf, Not, Operator, Predicate

StatsOf = Callable[[str], ColumnStats]
UNKNOWN_STATS = ColumnStats()
_ALL_ROWS = 2**63 - 1
LIKE_WILDCARDS = "%_\\"
_INTEGER_TYPES = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_PYTHON_TYPES = {
    TypeRoot.BOOLEAN: bool,
    TypeRoot.FLOAT: float,
    TypeRoot.DOUBLE: float,
    TypeRoot.DECIMAL: Decimal,
    TypeRoot.CHAR: str,
    TypeRoot.VARCHAR: str,
    TypeRoot.BINARY: bytes,
    TypeRoot.VARBINARY: bytes,
    TypeRoot.DATE: date,
    TypeRoot.TIME: time,
    TypeRoot.TIMESTAMP: datetime,
    TypeRoot.TIMESTAMP_LTZ: datetime,
}
_UNITS_PER_MILLI = {0: 1, 1: 1_000, 2: 1_000_000}  # of a millisecond, by the unit of the precision


class PossibleOutcome(NamedTuple):
    """What a predicate may be for some row."""

    true: bool
    false: bool


_Evaluator = Callable[[StatsOf, int], PossibleOutcome]
_UNDECIDED = PossibleOutcome(True, True)


def may_match(predicate: Predicate, stats_of: StatsOf, rows: int) -> bool:
    """Tell whether one of ``rows`` rows with these statistics may satisfy a bound predicate."""
    return build_matcher(predicate)(stats_of, rows)


def build_matcher(predicate: Predicate) -> Callable[[StatsOf, int], bool]:
    """Return :func:`may_match` of one predicate, for many files."""
    judge = _build_evaluator(predicate)
    return lambda stats_of, rows: judge(stats_of, rows).true


def _build_evaluator(predicate: Predicate) -> _Evaluator:
    match predicate:
        case Leaf():
            return _build_leaf_evaluator(predicate)
        case Not(child=child):
            negated = _build_evaluator(child)
            return lambda stats_of, rows: PossibleOutcome(*reversed(negated(stats_of, rows)))
    parts = [_build_evaluator(child) for child in predicate.children]
    of_true, of_false = (all, any) if isinstance(predicate, And) else (any, all)

    def judge(stats_of: StatsOf, rows: int) -> PossibleOutcome:
        found = [part(stats_of, rows) for part in parts]
        return PossibleOutcome(of_true(o.true for o in found), of_false(o.false for o in found))

    return judge


def _build_leaf_evaluator(leaf: Leaf) -> _Evaluator:
    if leaf.key is not None:  # statistics tell nothing of the keys of a map
        return lambda _stats_of, _rows: _UNDECIDED
    if leaf.op == Operator.IS_NULL:
        return lambda stats_of, rows: _evaluate_is_null(stats_of(leaf.column).null_count, rows)
    values = [to_internal_value(value) for value in leaf.values]
    is_float = pa.types.is_floating(leaf.values[0].type)
    with_nan = any(value != value for value in values)  # noqa: PLR0124 - NaN

    def judge(stats_of: StatsOf, rows: int) -> PossibleOutcome:
        stats = stats_of(leaf.column)
        if stats.null_count is not None and stats.null_count >= rows:
            return PossibleOutcome(False, False)  # unknown for every row
        if with_nan:
            return _UNDECIDED
        interval = _Interval(stats.min, stats.max)
        if leaf.op == Operator.LIKE:
            return interval.like(values[0])
        judged = interval.compare(leaf.op, values)
        # a NaN, which the bounds tell nothing of, fails every test but <>
        return (
            PossibleOutcome(judged.true or leaf.op == Operator.NOT_EQUAL, True)
            if is_float
            else judged
        )

    return judge


def _evaluate_is_null(nulls: int | None, rows: int) -> PossibleOutcome:
    return PossibleOutcome(nulls is None or nulls > 0, nulls is None or nulls < rows)


class _Interval:
    """All values lie between two bounds, each of which may be unknown."""

    def __init__(self, low: Any, high: Any) -> None:
        self._low, self._high = low, high

    def _below(self, value: Any, *, equal: bool) -> bool:
        """Tell whether a row may have less than the value."""
        low = self._low
        return low is None or bool(low < value or (equal and low == value))

    def _above(self, value: Any, *, equal: bool) -> bool:
        high = self._high
        return high is None or bool(high > value or (equal and high == value))

    def _may_contain(self, value: Any) -> bool:
        return self._below(value, equal=True) and self._above(value, equal=True)

    def _is(self, value: Any) -> bool:
        """Tell whether all rows have this value."""
        return self._low is not None and bool(self._low == value and self._high == value)

    def compare(self, op: Operator, values: list[Any]) -> PossibleOutcome:
        value = values[0]
        match op:
            case Operator.IN:
                return PossibleOutcome(
                    any(map(self._may_contain, values)), not any(map(self._is, values))
                )
            case Operator.EQUAL:
                return PossibleOutcome(self._may_contain(value), not self._is(value))
            case Operator.NOT_EQUAL:
                return PossibleOutcome(not self._is(value), self._may_contain(value))
            case Operator.LESS:
                return PossibleOutcome(
                    self._below(value, equal=False), self._above(value, equal=True)
                )
            case Operator.LESS_OR_EQUAL:
                return PossibleOutcome(
                    self._below(value, equal=True), self._above(value, equal=False)
                )
            case Operator.GREATER:
                return PossibleOutcome(
                    self._above(value, equal=False), self._below(value, equal=True)
                )
            case Operator.GREATER_OR_EQUAL:
                return PossibleOutcome(
                    self._above(value, equal=True), self._below(value, equal=False)
                )
        return _UNDECIDED

    def like(self, pattern: str) -> PossibleOutcome:
        """Judge by the text in front of the first wildcard."""
        end = next((at for at, char in enumerate(pattern) if char in LIKE_WILDCARDS), len(pattern))
        if end == len(pattern):
            return self.compare(Operator.EQUAL, [pattern])
        prefix = pattern[:end]
        may_start = (self._low is None or self._low[:end] <= prefix) and self._above(
            prefix, equal=True
        )
        bounds = (self._low, self._high)
        all_start = all(bound is not None and bound[:end] == prefix for bound in bounds)
        return PossibleOutcome(may_start, not (all_start and pattern[end:] == "%"))


def drop_untrusted_bounds(stats: ColumnStats, *, is_orc: bool, data_type: DataType) -> ColumnStats:
    """Return statistics without the bounds that cannot be trusted to enclose all values."""
    low, high = stats.min, stats.max
    if isinstance(low, float) and low != low or isinstance(high, float) and high != high:  # noqa: PLR0124, RUF021
        return ColumnStats(None, None, stats.null_count)
    if is_orc and isinstance(data_type, AtomicType) and data_type.name == TypeRoot.CHAR:
        return ColumnStats(None, None, stats.null_count)  # padded in one place, not in the other
    if isinstance(high, str) and high.endswith(("?", "\ufffd")):
        high = None  # Java's truncation makes a question mark of what must become U+E000
    return ColumnStats(low, high, stats.null_count)


def evolve_stats(stats: ColumnStats, old: DataType, new: DataType) -> ColumnStats:
    """Return the statistics of a column after its values were cast; unknown unless the cast keeps their order."""
    if old.with_nullable(True) == new.with_nullable(True):
        return stats
    if not isinstance(old, AtomicType) or not isinstance(new, AtomicType):
        return UNKNOWN_STATS
    if TypeRoot.TIMESTAMP in old.name and old.name == new.name and old.params[0] <= new.params[0]:
        factor = _units_per_milli(new) // _units_per_milli(old)
        low, high = (
            None if bound is None else bound * factor if isinstance(bound, int) else None
            for bound in (stats.min, stats.max)
        )
        return ColumnStats(low, high, stats.null_count)
    return stats if _is_value_preserving(old, new) else UNKNOWN_STATS


def _units_per_milli(data_type: AtomicType) -> int:
    return _UNITS_PER_MILLI[max(0, data_type.params[0] - 1) // 3]


def _is_value_preserving(old: AtomicType, new: AtomicType) -> bool:
    """Tell whether a cast leaves every value what it is, in the internal form of either type."""
    if old.name in _INTEGER_TYPES and new.name in _INTEGER_TYPES:
        return _INTEGER_TYPES.index(old.name) <= _INTEGER_TYPES.index(new.name)
    if (old.name, new.name) in (
        (TypeRoot.FLOAT, TypeRoot.DOUBLE),
        (TypeRoot.VARBINARY, TypeRoot.VARBINARY),
    ):
        return new.name == TypeRoot.DOUBLE or old.params[0] <= new.params[0]
    if (old.name, new.name) == (TypeRoot.VARCHAR, TypeRoot.VARCHAR):
        return old.params[0] <= new.params[0]
    if old.name == new.name == TypeRoot.DECIMAL:
        (precision, scale), (wider, finer) = old.params, new.params
        return scale <= finer and precision - scale <= wider - finer
    return False


def build_constant_stats(value: object, data_type: DataType) -> ColumnStats:
    """Return the statistics of a column that has one internal value in all rows, however many."""
    stats = ColumnStats(value, value, _ALL_ROWS if value is None else 0)
    return drop_untrusted_bounds(stats, is_orc=False, data_type=data_type)


def convert_footer_stats(
    found: "pq.Statistics | None", stored: DataType, read: DataType
) -> ColumnStats:
    """Return what a Parquet footer says of a column of one row group, as the type it is read as."""
    if found is None:
        return UNKNOWN_STATS
    nulls = found.null_count if found.has_null_count else None
    try:
        low, high = (found.min, found.max) if found.has_min_max else (None, None)
    except UnicodeDecodeError:  # text that is not UTF-8
        low, high = None, None
    low, high = _convert_footer_value(low, stored), _convert_footer_value(high, stored)
    known = drop_untrusted_bounds(ColumnStats(low, high, nulls), is_orc=False, data_type=stored)
    return evolve_stats(known, stored, read)


def _convert_footer_value(value: Any, data_type: DataType) -> object:
    """Return a value of a footer as an internal one; None unless it surely is of the column's type."""
    if not isinstance(data_type, AtomicType) or type(value) is not _PYTHON_TYPES.get(
        data_type.name, int
    ):
        return None
    try:
        return to_internal_value(pa.scalar(value, to_arrow_type(data_type)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
