"""The aggregate function ``collect``, which concatenates the arrays of a key.

See docs/format/aggregate-functions.md.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from paimon_orch.format.java_hash import compute_hash_map_order, compute_java_hash_code
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot
from paimon_orch.merge.aggregate.python_aggregator import CombineFunction, Element

Elements = list[Element]


def collect(element: DataType, *, distinct: bool) -> CombineFunction:
    """Return the function that concatenates arrays; ``distinct`` drops repeated elements."""

    def combine(old: Elements | None, new: Elements | None) -> Elements | None:
        if (old is None or new is None) and (old is new or not distinct):
            return old if new is None else new
        if distinct:
            return _distinct_elements(old or [], new or [], element)
        return [*(old or ()), *(new or ())]

    return combine


def _distinct_elements(old: Elements, new: Elements, element: DataType) -> Elements:
    """Return the distinct elements, in the order of Java's hash set if they have a hash code.

    Elements without one are compared with each other; elements of ``old`` are not compared again.
    """
    if not isinstance(element, AtomicType) or element.name in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        old_codes = {code for code, _ in old}
        return [*old, *_find_distinct(item for item in new if item[0] not in old_codes)]
    distinct = _find_distinct((*old, *new))
    hashes = [
        code for _, item in distinct if (code := compute_java_hash_code(item, element)) is not None
    ]
    if len(hashes) < len(distinct):
        return distinct
    return [distinct[index] for index in compute_hash_map_order(hashes)]


def _find_distinct(elements: Iterable[Element]) -> Elements:
    """Return the first element of each code."""
    distinct = dict[int, Any]()
    for code, item in elements:
        distinct.setdefault(code, item)
    return list(distinct.items())


def retract_collect(old: Elements | None, new: Elements | None) -> Elements | None:
    """Remove one occurrence of every retracted element."""
    if old is None or new is None:
        return old
    retracted = Counter(code for code, _ in new)
    remaining = []
    for code, item in old:
        if retracted[code]:
            retracted[code] -= 1
        else:
            remaining.append((code, item))
    return remaining
