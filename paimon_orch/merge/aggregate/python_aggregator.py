"""Aggregates a column value by value in Python, for values that have no vectorized form."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from paimon_orch.format.arrays import Indices, to_arrow_array
from paimon_orch.format.java_equality import build_value_codes, slice_children
from paimon_orch.merge.aggregate.field_aggregator import ColumnOfGroups, ComputingAggregator

CombineFunction = Callable[[Any, Any], Any]
Element = tuple[int, Any]
"""The code of an element or map key, which is equal for values that are equal as in Java."""


class PythonAggregator(ComputingAggregator):
    """Aggregates by a function of (accumulated value, row's value); both can be None."""

    def __init__(
        self,
        name: str,
        column: ColumnOfGroups,
        groups: int,
        *,
        combine: CombineFunction,
        take_back: CombineFunction | None = None,
        commutes: bool = False,
    ) -> None:
        super().__init__(name, column, groups)
        self._target = column.values.type
        self._column = column.values.view(to_internal_type(self._target))
        self._combine, self._take_back, self._is_commutative = combine, take_back, commutes
        self._state: list[Any] = [None] * groups

    def _values(self, groups: Indices, rows: Indices) -> Iterator[tuple[int, Any]]:
        return zip(
            groups.tolist(), self._column.take(to_arrow_array(rows)).to_pylist(), strict=True
        )

    def add(self, groups: Indices, rows: Indices) -> None:
        """Combine with the row's value."""
        for group, value in self._values(groups, rows):
            self._state[group] = self._combine(self._state[group], value)

    def add_older(self, groups: Indices, rows: Indices) -> None:
        """Combine with an older row's value."""
        # Java Paimon passes the accumulated value first here too, except with 'ignore-retract'
        if self._is_commutative and not self.ignores_retract:
            self.add(groups, rows)
            return
        for group, value in self._values(groups, rows):
            self._state[group] = self._combine(value, self._state[group])

    def retract(self, groups: Indices, rows: Indices) -> None:
        """Retract the row's value."""
        if self._take_back is None:
            super().retract(groups, rows)
            return
        for group, value in self._values(groups, rows):
            self._state[group] = self._take_back(self._state[group], value)

    def reset(self, groups: Indices, rows: Indices) -> None:
        """Reset to a row's value."""
        for group, value in self._values(groups, rows):
            self._state[group] = value

    def clear(self, groups: Indices) -> None:
        """Reset to null."""
        for group in groups.tolist():
            self._state[group] = None

    def result(self) -> pa.Array:
        """Return the values."""
        return pa.array(self._list_results(), self._column.type).view(self._target)

    def _list_results(self) -> list[Any]:
        return self._state


class ElementAggregator(PythonAggregator):
    """Aggregates arrays or maps; the function gets and returns lists of codes and elements.

    The elements of a map are its entries, and the codes are those of their keys.
    """

    def __init__(self, name: str, column: ColumnOfGroups, groups: int, **functions: Any) -> None:
        super().__init__(name, column, groups, **functions)
        lists = self._column
        values = lists.keys if isinstance(lists, pa.MapArray) else lists.values
        self._offsets, (elements,) = slice_children(lists, values)
        self._codes = build_value_codes(elements.type).learn(elements)

    def _values(self, groups: Indices, rows: Indices) -> Iterator[tuple[int, Any]]:
        starts, ends = self._offsets[rows].tolist(), self._offsets[rows + 1].tolist()
        for (group, value), start, end in zip(
            super()._values(groups, rows), starts, ends, strict=True
        ):
            codes = self._codes[start:end].tolist()
            yield group, None if value is None else [*zip(codes, value, strict=True)]

    def _list_results(self) -> list[Any]:
        return [
            None if state is None else [element for _, element in state] for state in self._state
        ]


def to_internal_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of internal values, which are bytes of text and numbers of times.

    Text may be invalid UTF-8, and times may be in years that Python does not have.
    """
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if isinstance(kind, pa.ListType):
        return pa.list_(kind.value_field.with_type(to_internal_type(kind.value_type)))
    if isinstance(kind, pa.MapType):
        return pa.map_(
            kind.key_field.with_type(to_internal_type(kind.key_type)),
            kind.item_field.with_type(to_internal_type(kind.item_type)),
        )
    if isinstance(kind, pa.StructType):
        return pa.struct([field.with_type(to_internal_type(field.type)) for field in kind])
    return kind
