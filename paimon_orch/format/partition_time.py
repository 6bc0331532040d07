"""Reads times from partition values, by a pattern of columns and a date format of Java.

See docs/format/partition-expiration.md.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    PARTITION_TIMESTAMP_FORMATTER,
    PARTITION_TIMESTAMP_PATTERN,
)
from paimon_orch.format.partition_path import format_partition_value
from paimon_orch.format.types.data_types import Field

_DEFAULT_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?)?"
)
_STRPTIME_DIRECTIVES = {"y": "%Y", "u": "%Y", "M": "%m", "d": "%d", "H": "%H", "m": "%M", "s": "%S", "S": "%f"}  # fmt: skip
_DATE_LETTERS = ({"y", "u"}, {"M"}, {"d"})
_MAX_DIGITS = 6  # of a number with any number of digits; strptime accepts fewer
_MAX_TEXT_LENGTH = 1_000
_JAVA_FORMAT_TOKEN = re.compile(r"'([^']*)'|(([A-Za-z])\3*)|([^A-Za-z'])")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTimes:
    """Reads the time of partitions from the values of some partition columns."""

    fields: Sequence[Field]
    pattern: str
    """The text of a time, with ``$column`` for the value of a column."""
    strptime_format: str
    shape: re.Pattern[str] | None
    """The digit counts of the date format; None for the default formats."""

    @classmethod
    def of(cls, fields: Sequence[Field], options: Options) -> "PartitionTimes":
        """Return the reader for ``partition.timestamp-pattern`` and ``-formatter``.

        Raises :class:`InputError` for a formatter without a date or with unknown letters.
        """
        java = options.get(PARTITION_TIMESTAMP_FORMATTER) or ""
        return cls(
            fields=tuple(fields),
            pattern=options.get(PARTITION_TIMESTAMP_PATTERN) or f"${fields[0].name}",
            strptime_format=_to_strptime_format(java),
            shape=_compile_java_format(java) if java else None,
        )

    def read_values(self, values: Sequence[object]) -> datetime | None:
        """Return the time of values of the columns, or None if they are not a time."""
        text = self.format_values(values)
        if text is None or not (self.shape is None or self.shape.fullmatch(text)):
            return None
        return _parse_partition_time(text, self.strptime_format)

    def format_values(self, values: Sequence[object]) -> str | None:
        """Return the pattern with the values of columns.

        Returns None if one of them is null, and for a text that is too long for a time.
        """
        text, texts = self.pattern, self.format_columns(values)
        for name in sorted(texts, key=len, reverse=True):
            if f"${name}" in text:
                value = texts[name]
                if value is None:
                    return None
                if len(text) + text.count(f"${name}") * len(value) > _MAX_TEXT_LENGTH:
                    return None
                text = text.replace(f"${name}", value)
        return text

    def format_columns(self, values: Sequence[object]) -> Mapping[str, str | None]:
        """Return the text of each column, None for null."""
        return {
            field.name: None
            if value is None
            else format_partition_value(value, field, legacy=False)
            for field, value in zip(self.fields, values, strict=True)
        }


def _parse_partition_time(text: str, formatter: str) -> datetime | None:
    try:
        if formatter:
            return datetime.strptime(text, formatter)  # noqa: DTZ007 - local wall clock
        match = _DEFAULT_TIMESTAMP.fullmatch(text.strip())
        if match is None:
            return None
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
        micros = int((match.group(7) or "0").ljust(9, "0")[:6])
        return datetime(year, month, day, hour, minute, second, micros)
    except ValueError:
        return None


def _to_strptime_format(java: str) -> str:
    """Convert a Java date format to Python's: ``yyyy-MM-dd'T'HH`` to ``%Y-%m-%dT%H``."""

    def directive(match: re.Match[str]) -> str:
        quoted, letters, _, other = match.groups()
        if letters is None:
            return (quoted or other or "'").replace("%", "%%")
        if letters[0] not in _STRPTIME_DIRECTIVES:
            raise InputError(f"'partition.timestamp-formatter' = {java!r}: {letters} is unknown")
        return _STRPTIME_DIRECTIVES[letters[0]]

    python = _JAVA_FORMAT_TOKEN.sub(directive, java)
    letters = [match[3] for match in _JAVA_FORMAT_TOKEN.finditer(java) if match[3]]
    directives = [_STRPTIME_DIRECTIVES[letter] for letter in letters]
    if len(set(directives)) < len(directives):
        raise InputError(
            f"'partition.timestamp-formatter' = {java!r} must not contain a part of a time twice"
        )
    if java and not all(names.intersection(letters) for names in _DATE_LETTERS):
        raise InputError(
            f"'partition.timestamp-formatter' = {java!r} must have year, month and day"
        )
    return python


def _compile_java_format(java: str) -> re.Pattern[str]:
    """Return a pattern with the digit counts of a Java format; Python also accepts fewer digits."""

    def digits(match: re.Match[str]) -> str:
        quoted, letters, _, other = match.groups()
        if letters is None:
            return re.escape(quoted or other or "'")
        count = f"{len(letters)}" if len(letters) > 1 else f"1,{_MAX_DIGITS}"
        return rf"\d{{{count}}}"

    return re.compile(_JAVA_FORMAT_TOKEN.sub(digits, java))
