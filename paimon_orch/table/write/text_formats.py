"""Converts text of files before it is cast to the types of columns: nulls, dates and timestamps.

All executors convert text here, so that they agree.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot

_TOKEN = re.compile(r"'([^']*)'|(([A-Za-z])\3*)|([^A-Za-z'])")
_WIDTHS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys("yu", (4,)),
    **dict.fromkeys("MdHms", (1, 2)),
    "S": tuple(range(1, 10)),
}
"""The supported numbers of each letter of a Java date format."""
_DATE_LETTERS = "yMd"
_TIME_LETTERS = "Hms"


@dataclass(frozen=True, slots=True)
class TextFormats:
    """The formats of text in files; the default formats are empty text and ISO 8601."""

    null: str | None = None
    """Text that means null."""
    date: str | None = None
    """The format of text for DATE columns, in the letters of Java, such as ``dd.MM.yyyy``."""
    timestamp: str | None = None
    """The format of text for TIMESTAMP columns, such as ``dd.MM.yyyy HH:mm:ss.SSS``."""

    def __post_init__(self) -> None:
        for option, text in (("--date-format", self.date), ("--timestamp-format", self.timestamp)):
            if text is not None:
                _compile_format(option, text)

    def apply(self, rows: pa.Table, schema: TableSchema) -> pa.Table:
        """Return rows with nulls, and with dates and timestamps in ISO 8601.

        Only columns of text are changed. Raises :class:`InputError` for text in other formats.
        """
        for number, name in enumerate(rows.column_names):
            column = rows.column(number)
            is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
            if is_text and name in schema.names:
                converted = self._convert(column.cast(pa.string()), schema.field(name))
                rows = rows.set_column(number, name, converted)
        return rows

    def _convert(self, column: pa.ChunkedArray, field: Field) -> pa.ChunkedArray:
        if self.null is not None:
            is_null = pc.equal(column, self.null)
            column = pc.if_else(is_null, pa.scalar(None, pa.string()), column)
        root = field.type.name if isinstance(field.type, AtomicType) else None
        if self.date is not None and root == TypeRoot.DATE:
            return _format_iso(column, field.name, "--date-format", self.date)
        is_timestamp = root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
        if self.timestamp is not None and is_timestamp:
            return _format_iso(column, field.name, "--timestamp-format", self.timestamp)
        return column


@cache
def _compile_format(option: str, java: str) -> str:
    """Return a regular expression with a group for each letter of a Java date format."""
    letters = list[str]()

    def convert(match: re.Match[str]) -> str:
        quoted, run, letter, other = match.groups()
        if letter is None:
            return re.escape(quoted or other or "'")
        if len(run) not in _WIDTHS.get(letter, ()):
            raise InputError(
                f"{option} {java!r}: {run!r} is not supported; use yyyy, MM or M, dd or d, HH or "
                "H, mm, ss and S, and put other letters into single quotes"
            )
        name = "y" if letter == "u" else letter
        letters.append(name)
        width = "{1,2}" if len(run) == 1 and letter != "S" else f"{{{len(run)}}}"
        return f"(?P<{name}>[0-9]{width})"

    pattern = _TOKEN.sub(convert, java)
    if len(set(letters)) < len(letters) or not set(_DATE_LETTERS) <= set(letters):
        raise InputError(f"{option} {java!r} must have year, month and day, each once")
    return f"^{pattern}$"


def _format_iso(column: pa.ChunkedArray, name: str, option: str, java: str) -> pa.ChunkedArray:
    """Return text in ISO 8601; a later cast refuses days and hours that do not exist."""
    pattern = _compile_format(option, java)
    parts = pc.extract_regex(column, pattern)
    wrong = pc.and_(pc.is_valid(column), pc.is_null(parts))
    if pc.any(wrong).as_py():
        value = column.filter(wrong)[0].as_py()
        raise InputError(
            f"column {name!r} has {value!r}, which does not have the format {java!r} of {option}; "
            "nothing was written"
        )
    digits = {
        letter: pc.struct_field(parts, letter) for letter in re.findall(r"\?P<(\w)>", pattern)
    }
    year, month, day = (pc.utf8_lpad(digits[letter], 2, "0") for letter in _DATE_LETTERS)
    text = pc.binary_join_element_wise(year, month, day, "-")
    if digits.keys() - set(_DATE_LETTERS):
        times = [pc.utf8_lpad(digits[x], 2, "0") if x in digits else "00" for x in _TIME_LETTERS]
        text = pc.binary_join_element_wise(text, pc.binary_join_element_wise(*times, ":"), "T")
    if "S" in digits:
        text = pc.binary_join_element_wise(text, digits["S"], ".")
    return pc.if_else(pc.is_valid(column), text, pa.scalar(None, pa.string()))
