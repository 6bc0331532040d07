"""Aggregate functions over tables in a column: ``nested_update``, ``nested_partial_update``.

See docs/format/aggregate-functions.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_orch.errors import InputError
from paimon_orch.format.bytes.murmur3 import hash_bytes
from paimon_orch.format.java_hash import compute_hash_map_order
from paimon_orch.format.row.binary_row import encode_row
from paimon_orch.format.types.data_types import DataType
from paimon_orch.merge.aggregate.python_aggregator import Element
from paimon_orch.merge.sort.key_order import to_comparable_value

NestedRow = Mapping[str, Any]
NestedRows = list[NestedRow | None] | None
CodedRows = list[Element] | None
_SequenceKey = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class NestedAppend:
    """``nested_update`` without a key: rows up to a limit; a retract removes equal rows."""

    limit: int

    def add(self, old: CodedRows, new: CodedRows) -> CodedRows:
        """Append rows up to the limit; null rows are not appended, but existing null rows count."""
        if new is None or (old is not None and len(old) >= self.limit):
            return old
        room = max(0, self.limit - len(old or ()))
        return [*_drop_null_rows(old), *_drop_null_rows(new)[:room]]

    def take_back(self, old: CodedRows, new: CodedRows) -> CodedRows:
        """Remove every row that equals a retracted row."""
        if old is None or new is None:
            return old
        retracted = dict(new)
        return [(code, row) for code, row in _drop_null_rows(old) if code not in retracted]


def _drop_null_rows(rows: CodedRows) -> list[Element]:
    return [(code, row) for code, row in rows or () if row is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedTable:
    """Rows with distinct keys, in the order of Java's hash table."""

    column: str
    key: Mapping[str, DataType]
    null_key_strategy: str
    """``merge``, ``ignore`` or ``error``."""
    sequence: Mapping[str, DataType]
    """Fields that order rows with equal keys; an older row does not replace a newer one."""
    limit: int

    def add(self, old: NestedRows, new: NestedRows) -> NestedRows:
        """Replace existing rows unless they are newer, and add other rows up to the limit."""
        if new is None:
            return old
        rows: dict[bytes, NestedRow] = {}
        for row, is_new in [(r, False) for r in _non_null_rows(old)] + [
            (r, True) for r in _non_null_rows(new)
        ]:
            key = self._encode_key(row)
            if key is None:
                continue
            if key in rows:
                if self._sequence_key(row) >= self._sequence_key(rows[key]):
                    rows[key] = row
            elif not is_new or len(rows) < self.limit:
                rows[key] = row
        return self._list_rows(rows)

    def update_fields(self, old: NestedRows, new: NestedRows) -> NestedRows:
        """``nested_partial_update``: non-null values overwrite fields of existing rows."""
        if new is None:
            return old
        rows: dict[bytes, NestedRow] = {}
        for row in (*_non_null_rows(old), *_non_null_rows(new)):
            key = self._encode_key(row)
            if key is not None:
                current = rows.get(key, row)
                rows[key] = {
                    name: current[name] if value is None else value for name, value in row.items()
                }
        return self._list_rows(rows, computed=True)

    def take_back(self, old: NestedRows, new: NestedRows) -> NestedRows:
        """Remove the rows with the retracted keys."""
        if old is None or new is None:
            return old
        retracted = {self._encode_key(row) for row in _non_null_rows(new)}
        keyed_rows = [(self._encode_key(row), row) for row in _non_null_rows(old)]
        return self._list_rows(
            {key: row for key, row in keyed_rows if key is not None and key not in retracted}
        )

    def _encode_key(self, row: NestedRow) -> bytes | None:
        """Return the key as the bytes that Java compares, or None for an ignored row."""
        key = tuple(row[name] for name in self.key)
        if None not in key or self.null_key_strategy == "merge":
            return encode_row(key, list(self.key.values()))
        if self.null_key_strategy == "ignore":
            return None
        raise InputError(
            f"column {self.column!r}: a row has no {', '.join(self.key)}, which is its nested key; "
            f"set 'fields.{self.column}.nested-key-null-strategy' = 'ignore' to drop these rows"
        )

    def _sequence_key(self, row: NestedRow) -> _SequenceKey:
        return tuple(to_comparable_value(row[name], kind) for name, kind in self.sequence.items())

    def _list_rows(self, rows: Mapping[bytes, NestedRow], *, computed: bool = False) -> NestedRows:
        values, hashes = list(rows.values()), [hash_bytes(key) for key in rows]
        return [values[index] for index in compute_hash_map_order(hashes, computed=computed)]


def _non_null_rows(rows: Sequence[NestedRow | None] | None) -> list[NestedRow]:
    return [row for row in rows or () if row is not None]
