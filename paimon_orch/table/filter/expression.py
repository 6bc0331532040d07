"""Filters as expressions: ``(col("status") == "OPEN") & col("id").is_in([1, 2])``."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.types.literals import to_exact_scalar
from paimon_orch.format.types.predicate import And, Leaf, Not, Operator, Predicate, VariantValue


def col(name: str) -> "ColumnExpression":
    """Return a column for building filters, such as ``scan(filter=...)``.

    >>> (col("id") >= 10) & ~col("status").is_null() | (col("name").like("a%"))
    """
    return ColumnExpression(name)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnExpression:
    """A column by name; its methods return predicates, which ``&``, ``|`` and ``~`` combine.

    ``col("tags")["color"]`` is the value of a map for a key, or null if the key is missing.
    ``col("v").variant_get("$.age", "INT")`` is the value at a path of a VARIANT column.
    """

    name: str
    key: str | None = None
    variant: VariantValue | None = None

    def __getitem__(self, key: str) -> "ColumnExpression":
        if self.key is not None or self.variant is not None or not isinstance(key, str):
            raise InputError(f"{self.name!r}[{key!r}]: use one key of a map, as a string")
        return ColumnExpression(self.name, key)

    def variant_get(self, path: str, type: str) -> "ColumnExpression":
        """Return the value at a path of a VARIANT column, as :func:`paimon_orch.variant_get`."""
        if self.key is not None or self.variant is not None:
            raise InputError(f"{self.name!r}.variant_get({path!r}, {type!r}): use one path")
        return ColumnExpression(self.name, variant=VariantValue(path, type))

    def __eq__(self, value: object) -> Leaf:  # type: ignore[override]  # builds a predicate
        return self._compare(Operator.EQUAL, value)

    def __ne__(self, value: object) -> Leaf:  # type: ignore[override]
        return self._compare(Operator.NOT_EQUAL, value)

    def __lt__(self, value: object) -> Leaf:
        return self._compare(Operator.LESS, value)

    def __le__(self, value: object) -> Leaf:
        return self._compare(Operator.LESS_OR_EQUAL, value)

    def __gt__(self, value: object) -> Leaf:
        return self._compare(Operator.GREATER, value)

    def __ge__(self, value: object) -> Leaf:
        return self._compare(Operator.GREATER_OR_EQUAL, value)

    def __hash__(self) -> int:
        return hash((self.name, self.key, self.variant))

    def is_in(self, values: Iterable[object]) -> Leaf:
        """Test whether the value is one of ``values``."""
        if isinstance(values, str | bytes):
            raise InputError(f"is_in of column {self.name!r} takes a list of values, not one value")
        if hasattr(values, "__arrow_c_stream__"):  # Polars iterates without nanoseconds
            values = pa.chunked_array(values)
        return self._build_leaf(Operator.IN, tuple(map(self._to_scalar, values)))

    def not_in(self, values: Iterable[object]) -> Predicate:
        """Test whether the value is not one of ``values``. As in SQL, null does not pass."""
        return Not(self.is_in(values))

    def between(self, low: object, high: object) -> Predicate:
        """Test whether the value is between two values, both inclusive."""
        return And(
            (
                self._compare(Operator.GREATER_OR_EQUAL, low),
                self._compare(Operator.LESS_OR_EQUAL, high),
            )
        )

    def like(self, pattern: str) -> Leaf:
        """Test text against a pattern: ``%`` matches any text, ``_`` any character."""
        return self._compare(Operator.LIKE, pattern)

    def is_null(self) -> Leaf:
        """Test for null."""
        return self._build_leaf(Operator.IS_NULL)

    def is_nan(self) -> Leaf:
        """Test for NaN, which no comparison finds."""
        return self._build_leaf(Operator.IS_NAN)

    def is_not_null(self) -> Predicate:
        """Test for a value other than null."""
        return Not(self.is_null())

    def _compare(self, op: Operator, value: object) -> Leaf:
        return self._build_leaf(op, (self._to_scalar(value),))

    def _build_leaf(self, op: Operator, values: tuple["pa.Scalar[pa.DataType]", ...] = ()) -> Leaf:
        return Leaf(self.name, op, values, self.key, self.variant)

    def _to_scalar(self, value: object) -> "pa.Scalar[pa.DataType]":
        if value is None:
            raise InputError(f"no value equals None; use col({self.name!r}).is_null()")
        try:
            return to_exact_scalar(value)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise InputError(
                f"column {self.name!r} cannot be compared with {value!r}: it is not a constant"
            ) from error
