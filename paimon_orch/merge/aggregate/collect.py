"""The aggregate function ``collect``, which concatenates the arrays of a key.

See docs/format/aggregate-functions.md.
"""

from typing import Any

from paimon_orch.format.java_hash import (
    compute_hash_map_order,
    compute_java_hash_code,
    encode_double_bits,
)
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot
from paimon_orch.merge.aggregate.python_aggregator import CombineFunction


def collect(element: DataType, *, distinct: bool) -> CombineFunction:
    """Return the function that concatenates arrays; ``distinct`` drops repeated elements."""

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
