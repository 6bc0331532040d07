"""``sum`` and ``product``: numbers combined one row after the other, as Java computes them.

Integers and decimals are exact: whole numbers that must stay within the column's type (an integer that leaves it is an
error, a decimal becomes null). Machine integers are used where no sum can overflow, Python's otherwise.
"""

from abc import abstractmethod
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.merge.fold import Fold, Mask
from paimon_orch.merge.keys import Indices

Numbers = npt.NDArray[Any]


class Numeric(Fold):
    """A number for each group, null until the first one came."""

    def __init__(self, name: str, column: pa.Array, groups: int) -> None:
        super().__init__(name, column, groups)
        self.numbers = self.load(column)
        self.value: Numbers = np.zeros(groups, self.numbers.dtype)
        self.known: Mask = np.zeros(groups, bool)

    @abstractmethod
    def load(self, column: pa.Array) -> Numbers:
        """Return the column as numbers to compute with; what stands for null does not matter."""

    @abstractmethod
    def combine(self, old: Numbers, new: Numbers) -> Numbers:
        """Return the result of adding a row."""

    @abstractmethod
    def take_back(self, old: Numbers, new: Numbers) -> Numbers:
        """Return the result of retracting a row."""

    def first_retract(self, new: Numbers) -> Numbers:
        """Return what a retract stands for when nothing came before."""
        return new

    def add(self, groups: Indices, rows: Indices) -> None:
        """Combine with the row's number; nulls are left out."""
        groups, new, known = self._split(groups, rows)
        self.value[groups[~known]] = new[~known]
        self.value[groups[known]] = self.combine(self.value[groups[known]], new[known])
        self.known[groups] = True

    def retract(self, groups: Indices, rows: Indices) -> None:
        """Take the row's number back; nulls are left out."""
        groups, new, known = self._split(groups, rows)
        self.value[groups[~known]] = self.first_retract(new[~known])
        self.value[groups[known]] = self.take_back(self.value[groups[known]], new[known])
        self.known[groups] = True

    def _split(self, groups: Indices, rows: Indices) -> tuple[Indices, Numbers, Mask]:
        some = self.valid[rows]
        groups = groups[some]
        return groups, self.numbers[rows[some]], self.known[groups]

    def reset(self, groups: Indices, rows: Indices) -> None:
        """Start again from a row's number."""
        self.value[groups], self.known[groups] = self.numbers[rows], self.valid[rows]

    def clear(self, groups: Indices) -> None:
        """Make the number null."""
        self.known[groups] = False

    def result(self) -> pa.Array:
        """Return the numbers in the column's type."""
        kind = self.column.type
        if isinstance(kind, pa.Decimal128Type):
            return decimals_of_unscaled(self.value, self.known, kind)
        try:
            return pa.array(self.value, mask=~self.known).cast(kind)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise InputError(
                f"column {self.name!r}: a result does not fit {kind}: {error}"
            ) from error


class Sum(Numeric):
    """``sum``; a retract subtracts."""

    def load(self, column: pa.Array) -> Numbers:
        """Return floats as they are, integers and unscaled decimals in 64 bits where they suffice."""
        if pa.types.is_floating(column.type):
            return column.fill_null(0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
        if isinstance(column.type, pa.Decimal128Type):
            column = unscaled(column)
        numbers = column.fill_null(0)
        bounds = pc.min_max(numbers).as_py()
        largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
        if pa.types.is_integer(numbers.type) and largest * max(1, len(column)) < 2**63:
            return numbers.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]
        return np.array([int(number) for number in numbers.to_pylist()], object)

    def combine(self, old: Numbers, new: Numbers) -> Numbers:
        """Add."""
        return old + new

    def take_back(self, old: Numbers, new: Numbers) -> Numbers:
        """Subtract."""
        return old - new

    def first_retract(self, new: Numbers) -> Numbers:
        """Negate."""
        return -new


class Product(Numeric):
    """``product``; a retract divides, whole numbers cut towards zero."""

    def load(self, column: pa.Array) -> Numbers:
        """Return floats as they are, all else as Python numbers: products grow fast."""
        if pa.types.is_floating(column.type):
            return column.fill_null(1).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
        return np.array(column.fill_null(1).to_pylist(), object)

    def combine(self, old: Numbers, new: Numbers) -> Numbers:
        """Multiply; decimals are rounded to the column's scale each time."""
        with localcontext(prec=80):
            return self._rounded(old * new)

    def take_back(self, old: Numbers, new: Numbers) -> Numbers:
        """Divide."""
        if not pa.types.is_integer(self.column.type):
            with localcontext(prec=80):
                return self._rounded(old / new)
        quotients = [
            abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            for a, b in zip(old, new, strict=True)
        ]
        return np.array(quotients, object)

    def _rounded(self, numbers: Numbers) -> Numbers:
        kind = self.column.type
        if not isinstance(kind, pa.Decimal128Type):
            return numbers
        unit = Decimal(1).scaleb(-kind.scale)
        return np.array([number.quantize(unit, ROUND_HALF_UP) for number in numbers], object)

    def result(self) -> pa.Array:
        """Return the numbers in the column's type."""
        kind = self.column.type
        if isinstance(kind, pa.Decimal128Type):
            with localcontext(prec=80):
                scaled = [int(Decimal(number).scaleb(kind.scale)) for number in self.value]
            return decimals_of_unscaled(np.array(scaled, object), self.known, kind)
        return super().result()


def unscaled(column: pa.Array) -> pa.Array:
    """Return decimals of at most 18 digits as 64-bit integers, longer ones as decimals without scale."""
    kind = column.type
    if kind.precision > 18:
        with localcontext(prec=80):
            numbers = [None if v is None else v.scaleb(kind.scale) for v in column.to_pylist()]
        return pa.array(numbers, pa.decimal128(38, 0))
    words = np.frombuffer(column.buffers()[1], np.int64)[::2]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(words[column.offset : column.offset + len(column)], mask=~valid)


def decimals_of_unscaled(values: Numbers, known: Mask, kind: pa.Decimal128Type) -> pa.Array:
    """Return decimals; what has more digits than the type is null."""
    fits = known & (np.abs(values) < 10**kind.precision)
    if values.dtype != object:
        words = np.empty((len(values), 2), np.int64)
        words[:, 0], words[:, 1] = values, values >> 63
        data = pa.py_buffer(words.tobytes())
    else:
        data = pa.py_buffer(
            b"".join(
                int(v if f else 0).to_bytes(16, "little", signed=True)
                for v, f in zip(values, fits, strict=True)
            )
        )
    bits = pa.py_buffer(np.packbits(fits, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(values), [bits, data])
