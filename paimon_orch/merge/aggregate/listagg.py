"""The aggregate function ``listagg``, which concatenates the strings of a key.

See docs/format/aggregate-functions.md.
"""

from paimon_orch.format.text import is_blank
from paimon_orch.merge.aggregate.python_aggregator import CombineFunction


def listagg(delimiter: bytes, *, distinct: bool) -> CombineFunction:
    """Return the function that concatenates UTF-8 strings and skips blank strings."""
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
    """Return whether Java treats a string as blank."""
    if text and b"!" <= text[:1] <= b"~":  # a fast check that is true for most strings
        return False
    return is_blank(text.decode(errors="replace"))
