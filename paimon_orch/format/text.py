"""Text of rows that may not be valid UTF-8: Java and C++ writers do not check it, and files keep the bytes.

Internal values of text are ``str``. Bytes that are not UTF-8 become lone surrogates, as Python does
it for names of files (``surrogateescape``), and compare as the bytes do.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, SupportsIndex

import pyarrow as pa

_ERRORS = "surrogateescape"
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def parse_json_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object that a metadata file holds. Raises ``ValueError`` for anything else."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("the content is not a JSON object")  # noqa: TRY004 - damage, not a bug
    return value


def parse_integer(value: object, name: str) -> int:
    """Return a number of a JSON file, which may be written as text. Raises ``ValueError`` for another type."""
    if not isinstance(value, int | float | str):
        raise ValueError(f"{name} is {value!r}, not an integer")  # noqa: TRY004 - damage, not a bug
    return int(value)


class RawText(str):
    """Text whose bytes are not UTF-8; it is ordered among other text by the bytes."""

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
    """Return bytes as text that :func:`encode_text` turns into the same bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return RawText(data.decode(errors=_ERRORS))


def encode_text(text: str) -> bytes:
    """Return the bytes of a text."""
    return text.encode(errors=_ERRORS)


def to_readable_text(text: str) -> str:
    """Return text with U+FFFD for bytes that are not UTF-8, as Java shows it."""
    return decode_readable_text(encode_text(text)) if isinstance(text, RawText) else text


def decode_readable_text(data: bytes) -> str:
    """Return bytes as text, with as many U+FFFD as Java puts for those that are not UTF-8.

    An encoded surrogate, whole or cut off, is one U+FFFD in Java, and one a byte in Python.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub("\ufffd".encode(), data).decode(errors="replace")


def replace_surrogates(text: str) -> str:
    """Return text with U+FFFD for lone surrogates, which JSON may hold and UTF-8 may not."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encode_json(value: Mapping[str, Any]) -> bytes:
    """Return a metadata file; lone surrogates, which UTF-8 has no bytes for, are escaped as other writers do it."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=2).encode()


def is_utf8(text: str) -> bool:
    """Return whether a text has bytes in UTF-8: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_python_value(scalar: "pa.Scalar[Any]") -> Any:
    """Return the Python value of a scalar, text as :func:`decode_text` returns it."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        if isinstance(scalar, pa.StringScalar):
            return decode_text(scalar.as_buffer().to_pybytes())
        raise


def to_readable_value(scalar: "pa.Scalar[Any]") -> Any:
    """Return the Python value of a scalar, text as :func:`to_readable_text` returns it."""
    value = to_python_value(scalar)
    return to_readable_text(value) if isinstance(value, str) else value
