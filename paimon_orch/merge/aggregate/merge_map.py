"""The aggregate functions ``merge_map`` and ``merge_map_with_keytime``.

See docs/format/aggregate-functions.md.
"""

from typing import Any

from paimon_orch.merge.aggregate.python_aggregator import CombineFunction


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
    """Return the union of two maps of rows: the row with the later ``time`` wins.

    A null row removes its key.
    """

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
