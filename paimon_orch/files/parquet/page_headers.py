"""Reads the headers of the pages of a column chunk, which declare how much memory a page needs.

The footer declares such sizes too, but Arrow does not compare them with the pages.

See docs/storage.md#limits-of-decoders.
"""

import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import IO

from paimon_orch.files.parquet.byte_ranges import ByteRange
from paimon_orch.files.parquet.thrift_compact import (
    FALSE,
    I32,
    STRUCT,
    ThriftFields,
    decode_integer,
    skip_struct,
    split_struct,
)

_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_DATA_PAGES = (_DATA_PAGE, _DATA_PAGE_V2)
_HEADS = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}
"""The field of a page header by the type of the page."""
_ENCODING_FIELDS = {_DATA_PAGE: 2, _DICTIONARY_PAGE: 2, _DATA_PAGE_V2: 4}
_DICTIONARY_ENCODINGS = (2, 8)
DELTA_LENGTHS, DELTA_TEXTS = 6, 7
"""Encodings of texts by their lengths, or by what they share with the previous text."""
_LEVEL_FIELDS, _IS_COMPRESSED = (5, 6), 7  # of the second version of data pages
_TYPE, _DECOMPRESSED, _COMPRESSED = 1, 2, 3
_VALUES = 1
_FIRST_BYTES = 160  # most headers are shorter
_MAX_HEADER_BYTES = 16 << 20  # as in Arrow
_LIMIT = 1 << 31

_USUAL_INDICES = (b"\x04", b"\x10")  # the same numbers as they are stored
_VARINT = rb"([\x80-\xff]{0,4}[\x00-\x7f])"
# The header of a data page without checksum, up to its statistics; decoding all fields takes longer.
# Its encodings are those of numbers, plain texts and indices.
_USUAL_HEADER = re.compile(
    rb"\x15\x00\x15" + _VARINT + rb"\x15" + _VARINT + rb"\x2c\x15" + _VARINT
    + rb"\x15([\x00\x04\x06\x0a\x10])\x15[\x00-\x7f]\x15[\x00-\x7f]([\x00\x1c])",
    re.DOTALL,
)  # fmt: skip
_USUAL_DICTIONARY = re.compile(
    rb"\x15\x04\x15" + _VARINT + rb"\x15" + _VARINT + rb"\x4c\x15" + _VARINT
    + rb"\x15[\x00\x04][\x11\x12]?\x00\x00",
    re.DOTALL,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PageHeader:
    """What the header of a page declares; sizes are in bytes."""

    page_type: int
    decompressed: int
    compressed: int
    values: int
    encoding: int
    level_bytes: int | None = None
    """The size of the levels before the compressed content; None if they are part of it."""
    is_compressed: bool = True


@dataclass(slots=True)
class DeclaredPages:
    """What the headers of the pages of a column chunk declare."""

    page_bytes: int = 0
    """The largest decompressed size of a data page."""
    dictionary: ByteRange | None = None
    """The range of the content of the dictionary page in the file."""
    dictionary_bytes: int = 0
    dictionary_values: int = 0
    values: int = 0
    indices: int = 0
    """The number of values that are stored as indices of the dictionary."""
    deltas: list[tuple[PageHeader, int]] = field(default_factory=list)
    """The pages of texts that are stored as differences, with the starts of their content."""

    def add(self, page: PageHeader, start: int) -> None:
        """Add a page whose content begins at ``start``."""
        if page.page_type == _DICTIONARY_PAGE:
            self.dictionary = (start, start + page.compressed)
            self.dictionary_bytes = max(self.dictionary_bytes, page.decompressed)
            self.dictionary_values = page.values
        elif page.page_type in _DATA_PAGES:
            self.page_bytes = max(self.page_bytes, page.decompressed)
            self.values += page.values
            if page.encoding in _DICTIONARY_ENCODINGS:
                self.indices += page.values
            elif page.encoding in (DELTA_LENGTHS, DELTA_TEXTS):
                self.deltas.append((page, start))


def read_declared_pages(source: IO[bytes], chunk: ByteRange, values: int) -> DeclaredPages:
    """Read the headers of the pages of a column chunk of ``values`` values, as Arrow does.

    Raises ``ValueError`` or ``IndexError`` for damaged headers.
    """
    declared, (position, end) = DeclaredPages(), chunk
    read_at, match = _find_reader(source), _USUAL_HEADER.match
    read_values = indices = page_bytes = 0
    while position < end and declared.values + read_values < values:
        data = read_at(_FIRST_BYTES, position)
        usual = match(data)
        length = 0 if usual is None else _find_usual_end(data, usual)
        if usual is not None and length and length <= end - position:
            # inlined, because this is the loop that costs time
            decompressed, compressed, count, encoding, _ = usual.groups()
            number = _decode_short(compressed)
            if number > end - position - length:
                raise _build_size_error(position, number)
            position += length + number
            number = _decode_short(count)
            read_values += number
            if encoding in _USUAL_INDICES:
                indices += number
            number = _decode_short(decompressed)
            page_bytes = max(page_bytes, number)
        else:
            page, start = _read_header(source, position, end)
            if page.compressed > end - start:
                raise _build_size_error(position, page.compressed)
            declared.add(page, start)
            position = start + page.compressed
    declared.values += read_values
    declared.indices += indices
    declared.page_bytes = max(declared.page_bytes, page_bytes)
    if declared.values < values:  # Arrow would return fewer rows
        raise ValueError(f"the pages of {values} values have only {declared.values}")
    return declared


def _build_size_error(position: int, size: int) -> ValueError:
    return ValueError(f"the page at {position} of {size} bytes is not inside its column chunk")


def _find_reader(source: IO[bytes]) -> Callable[[int, int], bytes]:
    """Return a function that reads a number of bytes at a position."""
    if isinstance(source, io.BufferedReader) and isinstance(source.raw, io.FileIO):
        return partial(os.pread, source.fileno())  # a buffer would read more

    def read_at(size: int, position: int) -> bytes:
        source.seek(position)
        return source.read(size)

    return read_at


def _find_usual_end(data: bytes, usual: "re.Match[bytes]") -> int:
    """Return the length of a usual header, or 0 if it has other fields or is longer than the data."""
    end = usual.end()
    try:
        if data[end - 1]:
            end = skip_struct(data, end) + 1
        return end + 1 if data[end - 1 : end + 1] == b"\0\0" else 0
    except (IndexError, ValueError):
        return 0


@lru_cache(maxsize=1024)  # the numbers of values and the sizes of pages recur
def _decode_short(encoded: bytes) -> int:
    """Return a number of at most five bytes that is not negative."""
    raw = int.from_bytes(encoded, "little")
    if raw & 1:
        raise ValueError("a page declares a negative size")
    number = (
        raw >> 1 & 0x3F
        | raw >> 2 & 0x1FC0
        | raw >> 3 & 0xFE000
        | raw >> 4 & 0x7F00000
        | raw >> 5 & 0x3F8000000
    )
    return _check_number(number)


def _read_header(source: IO[bytes], position: int, end: int) -> tuple[PageHeader, int]:
    """Return the header at a position, and where the content of the page begins."""
    for size in _iterate_sizes(end - position):
        source.seek(position)
        data = source.read(size)
        try:
            page, length = _decode_header(data)
        except IndexError:  # the header is longer
            continue
        if page.decompressed < 0 or page.compressed < 0 or page.values < 0:
            raise ValueError(f"the page at {position} declares a negative size")
        return page, position + length
    raise ValueError(f"the header of the page at {position} does not end")


def _iterate_sizes(remaining: int) -> Iterator[int]:
    size = _FIRST_BYTES
    while size < remaining and size < _MAX_HEADER_BYTES:
        yield size
        size *= 16
    yield min(remaining, _MAX_HEADER_BYTES)


def _decode_header(data: bytes) -> tuple[PageHeader, int]:
    """Return a page header and its length; raises ``IndexError`` if it is longer than the data."""
    usual = _USUAL_DICTIONARY.match(data)
    if usual is not None:
        decompressed, compressed, values = map(_decode_short, usual.groups())
        return PageHeader(_DICTIONARY_PAGE, decompressed, compressed, values, 0), usual.end()
    length = skip_struct(data, 0)
    fields = split_struct(data)
    page_type = _decode_number(fields, _TYPE)
    sizes = _decode_number(fields, _DECOMPRESSED), _decode_number(fields, _COMPRESSED)
    if page_type not in _HEADS:
        return PageHeader(page_type, *sizes, 0, 0), length
    kind, encoded = fields[_HEADS[page_type]]
    if kind != STRUCT:
        raise ValueError("a page header has a field of an unknown type")
    head = split_struct(encoded)
    values = _decode_number(head, _VALUES)
    encoding = _decode_number(head, _ENCODING_FIELDS[page_type])
    if page_type != _DATA_PAGE_V2:
        return PageHeader(page_type, *sizes, values, encoding), length
    levels = [_decode_number(head, number) for number in _LEVEL_FIELDS]
    level_bytes = sum(levels)
    if min(levels) < 0 or level_bytes > min(sizes):
        raise ValueError("the levels of a page are longer than the page")
    is_compressed = head.get(_IS_COMPRESSED, (0, b""))[0] != FALSE
    return PageHeader(page_type, *sizes, values, encoding, level_bytes, is_compressed), length


def _decode_number(fields: ThriftFields, number: int) -> int:
    """Return a number, whose type Arrow checks: it would use an earlier field of the right type."""
    kind, encoded = fields[number]
    if kind != I32:
        raise ValueError("a page header has a field of an unknown type")
    return _check_number(decode_integer(encoded, 0))


def _check_number(number: int) -> int:
    """Raise ``ValueError`` for a number of which Arrow would use the low 32 bits."""
    if not -_LIMIT <= number < _LIMIT:
        raise ValueError(f"a page header has the number {number}, which has more than 32 bits")
    return number
