"""The aggregate functions ``merge_map`` and ``merge_map_with_keytime``.

See docs/format/aggregate-functions.md.
"""

from paimon_orch.merge.aggregate.python_aggregator import CombineFunction, Element

Entries = list[Element]


def merge_map(old: Entries | None, new: Entries | None) -> Entries | None:
    """Return the union of two maps; the later value of a key wins."""
    if old is None or new is None:
        return old if new is None else new
    return list({**dict(old), **dict(new)}.items())


def retract_map(old: Entries | None, new: Entries | None) -> Entries | None:
    """Remove the retracted keys."""
    if old is None or new is None:
        return old
    retracted = dict(new)
    return [(code, entry) for code, entry in old if code not in retracted]


def merge_map_with_keytime(time: str) -> CombineFunction:
    """Return the union of two maps of rows: the row with the later ``time`` wins.

    A null row removes its key.
    """

    def combine(old: Entries | None, new: Entries | None) -> Entries | None:
        if old is None or new is None:
            return old if new is None else new
        merged = dict(old)
        for code, (key, row) in new:
            if row is None:
                merged.pop(code, None)
            elif row[time] is not None:
                _, current = merged.get(code, (key, None))
                if current is None or current[time] is None or _is_later(row[time], current[time]):
                    merged[code] = key, row
        return list(merged.items())

    return combine


def _is_later(new: bytes, old: bytes) -> bool:
    """Compare as Java does, by UTF-16 code units."""
    units = (text.decode(errors="replace").encode("utf-16-be") for text in (new, old))
    return next(units) > next(units)
