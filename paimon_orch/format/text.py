"""Text values that may not be valid UTF-8, because Java and C++ writers do not check it.

Internal text values are ``str``. Invalid bytes become lone surrogates (``surrogateescape``), and
text is ordered by its bytes.
"""

import json
import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, SupportsIndex

import pyarrow as pa

from paimon_orch.decode_limits import MAX_NESTING, check_nesting
from paimon_orch.errors import InputError

_ERRORS = "surrogateescape"
_NOT_BLANK_IN_JAVA = "\x85\xa0\u2007\u202f"
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def parse_json_object(data: bytes) -> dict[str, Any]:
    """Parse a metadata file. Raises ``ValueError`` if it is not a JSON object."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("the content is not a JSON object")  # noqa: TRY004 - damage, not a bug
    if data.count(b"[") + data.count(b"{") > MAX_NESTING:  # rare, and cheap to exclude
        _check_json_nesting(value)
    return value


def _check_json_nesting(value: object) -> None:
    """Check the levels of objects and lists; the encoder of JSON fails for very deep ones."""
    level, depth = [value], 0
    while level:
        check_nesting(depth)
        children = (
            part.values() if isinstance(part, dict) else part
            for part in level
            if isinstance(part, dict | list)
        )
        level, depth = list(chain.from_iterable(children)), depth + 1


def select_names(
    names: Iterable[str], including: str | None = None, excluding: str | None = None
) -> list[str]:
    """Return the names that match one regular expression and do not match another.

    The expressions must match the whole name; by default, the first matches all and the second
    none. Raises :class:`InputError` for an invalid expression.
    """
    included, excluded = _compile_pattern(including or ".*"), _compile_pattern(excluding or "")
    return [
        name
        for name in names
        if included.fullmatch(name) and not (excluding and excluded.fullmatch(name))
    ]


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.DOTALL)  # a name may have a line break
    except re.error as error:
        raise InputError(f"{pattern!r} is not a regular expression: {error}") from error


def parse_integer(value: object, name: str) -> int:
    """Return an integer from a JSON number or text. Raises ``ValueError`` for other values."""
    if not isinstance(value, int | float | str):
        raise ValueError(f"{name} is {value!r}, not an integer")  # noqa: TRY004 - damage, not a bug
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{name} is {number}, which is out of range")
    return number


class RawText(str):
    """Text with invalid UTF-8; comparisons use the bytes."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return encode_text(self) < encode_text(other)

    def __le__(self, other: str) -> bool:
        return encode_text(self) <= encode_text(other)

    def __gt__(self, other: str) -> bool:
        return encode_text(self) > encode_text(other)

    def __ge__(self, other: str) -> bool:
        return encode_text(self) >= encode_text(other)

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        return RawText(super().__getitem__(key))


def decode_text(data: bytes) -> str:
    """Decode bytes so that :func:`encode_text` returns the same bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return RawText(data.decode(errors=_ERRORS))


def encode_text(text: str) -> bytes:
    """Encode a string so that :func:`decode_text` returns the same string."""
    return text.encode(errors=_ERRORS)


def to_readable_text(text: str) -> str:
    """Return text with U+FFFD for invalid bytes, as Java shows it."""
    return decode_readable_text(encode_text(text)) if isinstance(text, RawText) else text


def decode_readable_text(data: bytes) -> str:
    """Decode bytes with the same number of U+FFFD for invalid bytes as Java.

    An encoded surrogate, complete or truncated, is one U+FFFD in Java, and one per byte in Python.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub("\ufffd".encode(), data).decode(errors="replace")


def replace_surrogates(text: str) -> str:
    """Return text with U+FFFD for lone surrogates, which JSON allows but UTF-8 does not."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encode_json(value: Mapping[str, Any]) -> bytes:
    """Encode a metadata file; lone surrogates are escaped, as other writers do."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=2).encode()


def is_utf8(text: str) -> bool:
    """Return whether text can be encoded as UTF-8: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_python_value(scalar: "pa.Scalar[Any]") -> Any:
    """Return the Python value of a scalar; text is decoded by :func:`decode_text`."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        if isinstance(scalar, pa.StringScalar):
            return decode_text(scalar.as_buffer().to_pybytes())
        raise


def to_readable_value(scalar: "pa.Scalar[Any]") -> Any:
    """Return the Python value of a scalar; text is converted by :func:`to_readable_text`."""
    value = to_python_value(scalar)
    return to_readable_text(value) if isinstance(value, str) else value


def is_blank(text: str) -> bool:
    """Return whether a string is empty or has only white space as defined by Java.

    A non-breaking space is not white space.
    """
    return all(char.isspace() and char not in _NOT_BLANK_IN_JAVA for char in text)
