"""Aggregate functions over text and nested values: ``listagg``, ``collect``, ``merge_map``.

Their values have no vectorized form, so these columns are aggregated value by value in Python.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from paimon_orch.format.arrays import Indices
from paimon_orch.format.bucket.java_hash import (
    compute_hash_map_order,
    compute_java_hash_code,
    encode_double_bits,
)
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot
from paimon_orch.merge.aggregate.field_aggregator import FieldAggregator

CombineFunction = Callable[[Any, Any], Any]
_NON_BREAKING_SPACES = "\x85\xa0\u2007\u202f"


class PythonAggregator(FieldAggregator):
    """Aggregates by a function of (accumulated value, row's value); both can be None."""

    def __init__(
        self,
        name: str,
        column: pa.Array,
        groups: int,
        *,
        combine: CombineFunction,
        take_back: CombineFunction | None = None,
        commutes: bool = False,
    ) -> None:
        # as bytes, because nested text that Java stored can be invalid UTF-8
        super().__init__(name, column.view(replace_text_by_binary(column.type)), groups)
        self._target = column.type
        self._combine, self._take_back, self._is_commutative = combine, take_back, commutes
        self._state: list[Any] = [None] * groups

    def _values(self, groups: Indices, rows: Indices) -> Iterator[tuple[int, Any]]:
        return zip(groups.tolist(), self.column.take(pa.array(rows)).to_pylist(), strict=True)

    def add(self, groups: Indices, rows: Indices) -> None:
        """Combine with the row's value."""
        for group, value in self._values(groups, rows):
            self._state[group] = self._combine(self._state[group], value)

    def add_older(self, groups: Indices, rows: Indices) -> None:
        """Combine with an older row's value."""
        if self._is_commutative and not self.ignores_retract:  # Java Paimon swaps the arguments
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
        return pa.array(self._state, self.column.type).view(self._target)


def replace_text_by_binary(kind: pa.DataType) -> pa.DataType:
    """Return the type with binary instead of text at any depth; the bytes are not decoded."""
    if pa.types.is_string(kind):
        return pa.binary()
    if isinstance(kind, pa.ListType):
        return pa.list_(kind.value_field.with_type(replace_text_by_binary(kind.value_type)))
    if isinstance(kind, pa.MapType):
        return pa.map_(
            kind.key_field.with_type(replace_text_by_binary(kind.key_type)),
            kind.item_field.with_type(replace_text_by_binary(kind.item_type)),
        )
    if isinstance(kind, pa.StructType):
        return pa.struct([field.with_type(replace_text_by_binary(field.type)) for field in kind])
    return kind


def listagg(separator: str, *, distinct: bool) -> CombineFunction:
    """Return the function that concatenates UTF-8 texts; blank texts are skipped."""
    delimiter = separator.encode()
    split_at = delimiter or b" "

    def combine(old: bytes | None, new: bytes | None) -> bytes | None:
        if new is None or _is_blank(new):
            return old
        if old is None or _is_blank(old):
            return new
        if not distinct:
            return old + delimiter + new
        tokens = old.split(split_at)
        for token in new.split(split_at):
            if not _is_blank(token) and token not in tokens:
                tokens.append(token)
                old += delimiter + token
        return old

    return combine


def _is_blank(text: bytes) -> bool:
    """Return whether a text is blank for Java, where non-breaking spaces are not white space."""
    if text and b"!" <= text[:1] <= b"~":  # the first byte is usually visible ASCII
        return False
    return all(c.isspace() and c not in _NON_BREAKING_SPACES for c in text.decode(errors="replace"))


def collect(element: DataType, *, distinct: bool) -> CombineFunction:
    """Return the function that concatenates arrays, with ``distinct`` their distinct elements."""

    def combine(old: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
        if (old is None or new is None) and (old is new or not distinct):
            return old if new is None else new
        if distinct:
            return _distinct_elements(old or [], new or [], element)
        return [*(old or ()), *(new or ())]

    return combine


def _distinct_elements(old: list[Any], new: list[Any], element: DataType) -> list[Any]:
    """Return the distinct elements, in the order of Java's hash set if they have a hash code.

    Elements without one are compared with each other; elements of ``old`` are not compared again.
    """
    if not isinstance(element, AtomicType) or element.name in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        added = [
            item for index, item in enumerate(new) if item not in old and item not in new[:index]
        ]
        return [*old, *added]
    items = dict[Any, Any]()
    for item in (*old, *new):
        items.setdefault(_equality_key(item), item)
    distinct = list(items.values())
    hashes = [
        code for item in distinct if (code := compute_java_hash_code(item, element)) is not None
    ]
    if len(hashes) < len(distinct):
        return distinct
    return [distinct[index] for index in compute_hash_map_order(hashes)]


def _equality_key(item: Any) -> Any:
    """Return a key that is equal for values that are equal in Java."""
    return encode_double_bits(item) if isinstance(item, float) else item


def retract_collect(old: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
    """Remove one occurrence of every retracted element."""
    if old is None or new is None:
        return old
    remaining = list(old)
    for item in new:
        if item in remaining:
            remaining.remove(item)
    return remaining


def merge_map(old: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
    """Return the union of two maps (lists of pairs); the later value of a key wins."""
    if old is None or new is None:
        return old if new is None else new
    return list({**dict(old), **dict(new)}.items())


def retract_map(old: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
    """Remove the retracted keys."""
    if old is None or new is None:
        return old
    retracted = dict(new)
    return [(key, value) for key, value in old if key not in retracted]


def merge_map_with_keytime(time: str) -> CombineFunction:
    """Return the union of two maps of rows: the row with the later ``time`` wins, null removes."""

    def combine(old: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
        if old is None or new is None:
            return old if new is None else new
        merged = dict(old)
        for key, row in new:
            if row is None:
                merged.pop(key, None)
            elif row[time] is not None:
                current = merged.get(key)
                if current is None or current[time] is None or _is_later(row[time], current[time]):
                    merged[key] = row
        return list(merged.items())

    return combine


def _is_later(new: bytes, old: bytes) -> bool:
    """Compare as Java does, by UTF-16 code units."""
    units = (text.decode(errors="replace").encode("utf-16-be") for text in (new, old))
    return next(units) > next(units)
