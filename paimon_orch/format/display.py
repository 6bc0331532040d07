"""Counts as text, and objects in interactive Python: one line as ``repr``, a table in notebooks."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any, cast

from paimon_orch.safe_text import clean_line, mask_secrets

_MAX_ITEMS = 10
_MAX_ROWS = 50
_MAX_TEXT = 200
_SIZE_UNITS = ("kB", "MB", "GB", "TB", "PB")
_UNIT_RATIO = 1000


def format_count(count: object, noun: str, plural: str | None = None) -> str:
    """Return an integer, perhaps of a JSON document, with a noun: ``1 file``, ``3 indexes``."""
    assert isinstance(count, int)
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {plural or noun + ('es' if noun.endswith('x') else 's')}"


def format_size(size: int) -> str:
    """Return a number of bytes in a decimal unit: ``999 B``, ``1.2 kB``, ``20.5 GB``."""
    if size < _UNIT_RATIO:
        return f"{size} B"
    value, units = size / _UNIT_RATIO, list(_SIZE_UNITS)
    while round(value, 1) >= _UNIT_RATIO and len(units) > 1:
        value, units = value / _UNIT_RATIO, units[1:]
    return f"{value:,.1f} {units[0]}"


class Displayable:
    """Base class of plans, results and scans, whose fields may be too large to be shown.

    Shows the values of ``to_dict``, or else the fields of a dataclass.
    """

    __slots__ = ()

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__repr__" not in cls.__dict__:  # otherwise a dataclass defines it
            cls.__repr__ = Displayable.__repr__  # type: ignore[method-assign]

    def list_values(self) -> Mapping[str, object]:
        """Return the values to show."""
        to_dict = getattr(self, "to_dict", None)
        if to_dict is not None:
            return cast("Mapping[str, object]", to_dict())
        return {field.name: getattr(self, field.name) for field in fields(cast("Any", self))}

    def __repr__(self) -> str:
        """Return the values on one line; long texts and lists are shortened."""
        values = (f"{key}={_shorten(value)}" for key, value in self.list_values().items())
        return f"{type(self).__name__}({', '.join(values)})"

    def _repr_html_(self) -> str:
        """Return the values as an HTML table, which notebooks show."""
        return format_html(type(self).__name__, self.list_values())


def format_html(title: str, values: Mapping[str, object]) -> str:
    """Return values as an HTML table with a title; all texts are escaped."""
    return f"<table><caption>{_show(title)}</caption>{_format_pairs(values)}</table>"


def _show(text: str) -> str:
    """Return a text from storage as HTML of one line."""
    return escape(clean_line(text))


def _format_pairs(values: Mapping[str, object]) -> str:
    return "".join(
        f"<tr><th>{_show(str(key))}</th><td>{_format_cell(value)}</td></tr>"
        for key, value in values.items()
    )


def _format_cell(value: object) -> str:
    """Return a mapping or a list of mappings as a table, and any other value as text."""
    if isinstance(value, Mapping) and 0 < len(value) <= _MAX_ROWS:
        return f"<table>{_format_pairs(value)}</table>"
    if isinstance(value, list) and value and all(isinstance(x, Mapping) for x in value[:_MAX_ROWS]):
        return _format_list(value)
    return _show(_format_text(value))


def _format_list(items: Sequence[Mapping[str, object]]) -> str:
    """Return a table of the first mappings, with the keys of the first one."""
    names = list(items[0])
    header = "".join(f"<th>{_show(str(name))}</th>" for name in names)
    lines = [
        "".join(f"<td>{_show(_format_text(item.get(name)))}</td>" for name in names)
        for item in items[:_MAX_ROWS]
    ]
    rows = "".join(f"<tr>{line}</tr>" for line in (header, *lines))
    more = len(items) - len(lines)
    return f"<table>{rows}</table>" + (f"and {more:,} more" if more else "")


def _format_text(value: object) -> str:
    if value is None:
        return ""
    return _cut(value) if isinstance(value, str) else _shorten(value)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def _shorten(value: object) -> str:
    if isinstance(value, str):
        return repr(_cut(mask_secrets(value)))
    if isinstance(value, Mapping | Sequence) and not isinstance(value, bytes):
        items = value.values() if isinstance(value, Mapping) else value
        if len(value) > _MAX_ITEMS or any(isinstance(x, Mapping | list | tuple) for x in items):
            return f"<{len(value):,} item{'' if len(value) == 1 else 's'}>"
    return repr(value)
