"""``sum`` and ``product``: numbers combined row by row, as Java computes them.

Integers and decimals are exact. A result that does not fit the column's type is an error for
integers, and null for decimals. Decimals are computed as unscaled integers. Machine integers are
used if every overflow is detected, otherwise Python's integers.
"""

from abc import abstractmethod
from collections.abc import Callable
from decimal import localcontext

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import AnyArray, Indices, Mask, to_arrow_array, to_numpy
from paimon_orch.merge.aggregate.field_aggregator import ColumnOfGroups, ComputingAggregator

_OVERFLOW_CHECK_ABOVE = 2.0**62


class NumericAggregator(ComputingAggregator):
    """A number for each group, null until the first number."""

    def __init__(self, name: str, column: ColumnOfGroups, groups: int) -> None:
        super().__init__(name, column, groups)
        self.type = column.values.type
        self.bounds = _type_bounds(self.type)
        self.numbers = self.load(column.values)
        self.value: AnyArray = np.zeros(groups, self.numbers.dtype)
        self.has_value: Mask = np.zeros(groups, bool)

    @property
    def is_decimal(self) -> bool:
        """Return whether the numbers are unscaled decimals."""
        return isinstance(self.type, pa.Decimal128Type)

    @abstractmethod
    def load(self, column: pa.Array) -> AnyArray:
        """Return the column as numbers to compute with; the number for null is undefined."""

    @abstractmethod
    def combine(self, old: AnyArray, new: AnyArray) -> AnyArray:
        """Return the result of adding a row."""

    @abstractmethod
    def uncombine(self, old: AnyArray, new: AnyArray) -> AnyArray:
        """Return the result of retracting a row."""

    @abstractmethod
    def retract_first(self, groups: Indices, new: AnyArray) -> None:
        """Retract a number from a group that has no number."""

    def add(self, groups: Indices, rows: Indices) -> None:
        """Combine with the row's number; nulls are ignored."""
        self._update(groups, rows, self._store, self.combine)

    def retract(self, groups: Indices, rows: Indices) -> None:
        """Retract the row's number; nulls are ignored."""
        self._update(groups, rows, self.retract_first, self.uncombine)

    def _update(
        self,
        groups: Indices,
        rows: Indices,
        begin: Callable[[Indices, AnyArray], None],
        combine: Callable[[AnyArray, AnyArray], AnyArray],
    ) -> None:
        some = self.valid[rows]
        groups, new = groups[some], self.numbers[rows[some]]
        has_value = self.has_value[groups]
        begin(groups[~has_value], new[~has_value])
        groups, new = groups[has_value], new[has_value]
        with np.errstate(all="ignore"):
            self._store(groups, combine(self.value[groups], new))

    def _store(self, groups: Indices, numbers: AnyArray) -> None:
        """Store results; a result out of range is an error, or null for decimals."""
        in_range: Mask = np.ones(len(numbers), bool)
        if self.bounds is not None:
            in_range = (numbers >= self.bounds[0]) & (numbers <= self.bounds[1])
            if not in_range.all() and not self.is_decimal:
                raise self.overflow_error()
        self.value[groups], self.has_value[groups] = numbers, in_range

    def overflow_error(self) -> InputError:
        """Return the error for an integer that is out of range."""
        return InputError(f"column {self.name!r}: a result does not fit {self.type}")

    def reset(self, groups: Indices, rows: Indices) -> None:
        """Reset to a row's number."""
        self.value[groups], self.has_value[groups] = self.numbers[rows], self.valid[rows]

    def clear(self, groups: Indices) -> None:
        """Reset to null."""
        self.has_value[groups] = False

    def result(self) -> pa.Array:
        """Return the numbers in the column's type."""
        if self.is_decimal:
            return _build_decimals(self.value, self.has_value, self.type)
        # the number that represents null can be out of range for the column
        numbers = np.where(self.has_value, self.value, 0)
        build = pa.array if numbers.dtype == np.object_ else to_arrow_array
        return build(numbers, mask=~self.has_value).cast(self.type)


class Sum(NumericAggregator):
    """``sum``; a retract subtracts."""

    def load(self, column: pa.Array) -> AnyArray:
        """Return floats unchanged, integers and decimals in 64 bits if no sum can overflow."""
        if self.bounds is None:
            return to_numpy(column)
        numbers = _to_unscaled(column) if self.is_decimal else column
        extremes = pc.min_max(numbers).as_py()
        largest = max(abs(int(extremes["min"] or 0)), abs(int(extremes["max"] or 0)))
        largest *= max(1, len(column))
        if largest <= self.bounds[1]:
            self.bounds = None
        return _to_integers(numbers, null=0, machine=largest < 2**63)

    def combine(self, old: AnyArray, new: AnyArray) -> AnyArray:
        """Add."""
        return old + new

    def uncombine(self, old: AnyArray, new: AnyArray) -> AnyArray:
        """Subtract."""
        return old - new

    def retract_first(self, groups: Indices, new: AnyArray) -> None:
        """Negate."""
        self._store(groups, -new)


class Product(NumericAggregator):
    """``product``; a retract divides: integers are truncated, decimals rounded to their scale."""

    def load(self, column: pa.Array) -> AnyArray:
        """Return floats and integers unchanged, decimals as Python's integers."""
        if self.is_decimal:
            return _to_integers(_to_unscaled(column), null=1, machine=False)
        if self.bounds is None:
            return to_numpy(column, null=1)
        return _to_integers(column, null=1, machine=True)

    def combine(self, old: AnyArray, new: AnyArray) -> AnyArray:
        """Multiply."""
        if self.is_decimal:
            return _divide_rounded(old * new, self._scale_factor)
        product = old * new
        if self.bounds is not None:
            self._check_int64_overflow(old, new)
        return product

    def retract_first(self, groups: Indices, new: AnyArray) -> None:
        """Keep null."""

    @property
    def _scale_factor(self) -> int:
        return int(10**self.type.scale)

    def _check_int64_overflow(self, old: AnyArray, new: AnyArray) -> None:
        """Refuse products that do not fit 64 bits."""
        wide = np.flatnonzero(np.abs(old.astype(float) * new.astype(float)) > _OVERFLOW_CHECK_ABOVE)
        for factor, other_factor in zip(old[wide].tolist(), new[wide].tolist(), strict=True):
            if not -(2**63) <= factor * other_factor < 2**63:
                raise self.overflow_error()

    def uncombine(self, old: AnyArray, new: AnyArray) -> AnyArray:
        """Divide."""
        if self.bounds is None:
            quotient: AnyArray = old / new
            return quotient
        if (new == 0).any():
            raise InputError(f"column {self.name!r}: a product cannot retract a factor of 0")
        if self.is_decimal:
            return _divide_rounded(old * self._scale_factor, new)
        if ((old == self.bounds[0]) & (new == -1)).any():
            raise self.overflow_error()
        floored: AnyArray = old // new
        truncated: AnyArray = floored + ((floored * new != old) & ((old < 0) != (new < 0)))
        return truncated


def _type_bounds(kind: pa.DataType) -> tuple[int, int] | None:
    """Return the smallest and largest integer of a type, or None for floats."""
    if pa.types.is_floating(kind):
        return None
    if isinstance(kind, pa.Decimal128Type):
        return 1 - 10**kind.precision, 10**kind.precision - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def _to_integers(column: pa.Array, *, null: int, machine: bool) -> AnyArray:
    if machine and pa.types.is_integer(column.type):
        return to_numpy(column.cast(pa.int64()), null)
    return np.array([int(number) for number in column.fill_null(null).to_pylist()], object)


def _divide_rounded(numbers: AnyArray, divisor: AnyArray | int) -> AnyArray:
    """Return quotients of Python integers, rounded half away from zero."""
    size = np.abs(divisor)
    rounded = (2 * np.abs(numbers) + size) // (2 * size)
    signed: AnyArray = np.where((numbers < 0) == (np.asarray(divisor) < 0), rounded, -rounded)
    return signed


def _to_unscaled(column: pa.Array) -> pa.Array:
    """Return decimals of at most 18 digits as 64-bit integers, and others as unscaled decimals."""
    kind = column.type
    if kind.precision > 18:
        with localcontext(prec=80):
            numbers = [None if v is None else v.scaleb(kind.scale) for v in column.to_pylist()]
        return pa.array(numbers, pa.decimal128(38, 0))
    words = np.frombuffer(column.buffers()[1], np.int64)[::2]
    valid = to_numpy(column.is_valid())
    return to_arrow_array(words[column.offset : column.offset + len(column)], mask=~valid)


def _build_decimals(values: AnyArray, valid: Mask, kind: pa.Decimal128Type) -> pa.Array:
    """Return whole numbers as decimals of a type."""
    if values.dtype != object:
        words = np.empty((len(values), 2), np.int64)
        words[:, 0], words[:, 1] = values, values >> 63
        data = pa.py_buffer(words.tobytes())
    else:
        data = pa.py_buffer(
            b"".join(
                int(value if is_valid else 0).to_bytes(16, "little", signed=True)
                for value, is_valid in zip(values, valid, strict=True)
            )
        )
    bits = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(values), [bits, data])
