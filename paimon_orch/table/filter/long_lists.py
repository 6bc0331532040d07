"""Takes long lists of constants out of SQL text: the parser needs 15 seconds for 200,000 of them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from paimon_orch.errors import InputError

_MIN_LIST_CHARACTERS = 1_000
_MAX_CHARACTERS = 50_000
_MAX_SHOWN_CHARACTERS = 500
_NUMBER, _TEXT = r"[+-]?\d+(?:\.\d+)?", r"'[^'\\]*'"
_LIST = rf"\bin\s*\(\s*({_NUMBER}(?:\s*,\s*{_NUMBER})+|{_TEXT}(?:\s*,\s*{_TEXT})+)\s*\)"
_STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`"
_COMMENT = r"--[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(rf"{_STRING}|{_COMMENT}|{_LIST}", re.IGNORECASE | re.DOTALL)
_ITEM = re.compile(r"'([^']*)'|\+?(-?[\d.]+)")


@dataclass(frozen=True, slots=True)
class LongList:
    """Constants of one kind."""

    texts: list[str]
    is_text: bool
    """Whether they are texts, and not numbers."""

    def build_nodes(self) -> Iterator[exp.Expr]:
        """Yield the constants as the parser does."""
        for text in self.texts:
            if self.is_text:
                yield exp.Literal.string(text)
            elif text.startswith("-"):
                yield exp.Neg(this=exp.Literal.number(text[1:]))
            else:
                yield exp.Literal.number(text)


def extract_long_lists(text: str) -> tuple[str, Mapping[str, LongList]]:
    """Return a condition in which long lists of ``IN`` are one text, and the constants by this text.

    Only lists of numbers, and lists of text without quotes and backslashes, are taken out.
    """
    lists: dict[str, LongList] = {}

    def replace(match: re.Match[str]) -> str:
        items = match[1]
        if items is None or len(items) < _MIN_LIST_CHARACTERS:
            return match[0]
        name = f"list {len(lists) + 1} of {len(text)} characters"
        if name in text or "''" in items:  # adjacent texts are one text
            return match[0]
        lists[name] = LongList(
            [item[1] or item[2] or "" for item in _ITEM.finditer(items)], items.startswith("'")
        )
        return f"in ('{name}')"

    return _TOKEN.sub(replace, text), lists


def check_length(text: str) -> None:
    """Raise :class:`InputError` for text whose tree would be too deep for the parser, in C."""
    if len(text) > _MAX_CHARACTERS:
        raise InputError(
            f"filter {shorten(text)!r} is longer than {_MAX_CHARACTERS} characters, not counting "
            "lists of constants; test many values of a column with IN"
        )


def shorten(text: str) -> str:
    """Return the beginning of a text for a message."""
    if len(text) <= _MAX_SHOWN_CHARACTERS:
        return text
    return f"{text[:_MAX_SHOWN_CHARACTERS]}... ({len(text)} characters)"
