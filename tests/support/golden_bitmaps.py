"""The column of 64-bit bitmaps in a golden table.

The order of the containers in Java's bitmaps depends on the order in which values were inserted;
ours ascends. Tests compare the bitmaps in one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paimon_orch.format.bytes.roaring_union import union_bitmaps_64

COLUMN = "rb64"
_EMPTY = b"\0"


def order_bitmaps(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> list[list[Any]]:
    """Return rows whose bitmaps have ascending containers."""
    return [list(order_bitmap(dict(zip(columns, row, strict=True))).values()) for row in rows]


def order_bitmap(record: dict[str, Any]) -> dict[str, Any]:
    """Return a row, by column, whose bitmap has ascending containers."""
    bitmap = record.get(COLUMN)
    if bitmap is None:
        return record
    return {**record, COLUMN: union_bitmaps_64(bytes.fromhex(bitmap), _EMPTY).hex()}
