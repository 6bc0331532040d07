"""Builds small Parquet files that need much memory, page by page: no writer writes such pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from paimon_orch.files.parquet.footer import PARQUET_MAGIC
from paimon_orch.files.parquet.thrift_compact import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    encode_integer,
    encode_list,
    encode_struct,
    encode_text,
)
from paimon_orch.format.bytes.varint import encode_varint

BYTE_ARRAY, FIXED, INT32 = 6, 7, 1
PLAIN, RLE, DELTA_LENGTHS, DELTA_TEXTS, INDICES = 0, 3, 6, 7, 8
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
ZSTD = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page; its content is compressed here, with the sizes that it has unless stated."""

    values: int
    content: bytes
    encoding: int = PLAIN
    is_dictionary: bool = False
    declared: int | None = None
    """The decompressed size in the header."""
    stated: Mapping[int, int] = field(default_factory=dict)
    """Other fields of the header."""
    stated_values: int | None = None
    """The number of values in the header."""

    def encode(self) -> bytes:
        """Return the header and the compressed content."""
        body: bytes = pa.compress(self.content, codec="zstd", asbytes=True)
        kind, head_field = (2, 7) if self.is_dictionary else (0, 5)
        values = self.values if self.stated_values is None else self.stated_values
        head = numbers({1: values, 2: self.encoding})
        if not self.is_dictionary:
            head |= numbers({3: RLE, 4: RLE})
        size = len(self.content) if self.declared is None else self.declared
        header = numbers({1: kind, 2: size, 3: len(body), **self.stated})
        return encode_struct(header | {head_field: (STRUCT, encode_struct(head))}) + body


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of one row group, at the top level or the elements of a list."""

    name: str
    pages: tuple[Page, ...]
    physical: int = BYTE_ARRAY
    length: int | None = None
    is_list: bool = False


def build_file(rows: int, columns: list[Column]) -> bytes:
    """Return a file with one row group, whose footer states small sizes."""
    data, chunks, elements = bytearray(PARQUET_MAGIC), [], []
    for column in columns:
        start = len(data)
        for page in column.pages:
            data += page.encode()
        chunks.append(_encode_chunk(column, start, len(data)))
        elements += _encode_elements(column)
    size = I64, encode_integer(len(data))
    count = I64, encode_integer(rows)
    group = encode_struct({1: (LIST, encode_list(chunks)), 2: size, 3: count})
    root = encode_struct({4: (BINARY, encode_text("root")), **numbers({5: len(columns)})})
    footer = encode_struct(
        {
            **numbers({1: 1}),
            2: (LIST, encode_list([root, *elements])),
            3: count,
            4: (LIST, encode_list([group])),
        }
    )
    return bytes(data) + footer + len(footer).to_bytes(4, "little") + PARQUET_MAGIC


def _encode_elements(column: Column) -> list[bytes]:
    """Return the part of the schema: a column, or a list with its group and its element."""
    kind = {1: column.physical} | ({} if column.length is None else {2: column.length})
    utf8 = {} if column.physical != BYTE_ARRAY else {6: 0}
    if not column.is_list:
        return [build_element(column.name, {**kind, 3: REQUIRED}, utf8)]
    return [
        build_element(column.name, {3: REQUIRED}, {5: 1, 6: 3}),
        build_element("list", {3: REPEATED}, {5: 1}),
        build_element("element", {**kind, 3: OPTIONAL}, utf8),
    ]


def build_element(name: str, first: dict[int, int], last: dict[int, int]) -> bytes:
    """Return an element of a schema, with the fields before and after its name."""
    return encode_struct({**numbers(first), 4: (BINARY, encode_text(name)), **numbers(last)})


def _encode_chunk(column: Column, start: int, end: int) -> bytes:
    path = [column.name, "list", "element"] if column.is_list else [column.name]
    values = sum(page.values for page in column.pages if not page.is_dictionary)
    long = {5: values, 6: end - start, 7: end - start, 9: start}
    metadata = encode_struct(
        {
            **numbers({1: column.physical, 4: ZSTD}),
            2: (LIST, encode_list([encode_integer(PLAIN)], I32)),
            3: (LIST, encode_list(list(map(encode_text, path)), BINARY)),
            **{number: (I64, encode_integer(value)) for number, value in long.items()},
        }
    )
    return encode_struct({2: (I64, encode_integer(0)), 3: (STRUCT, metadata)})


def numbers(fields: dict[int, int]) -> dict[int, tuple[int, bytes]]:
    """Return 32-bit fields of a Thrift struct."""
    return {number: (I32, encode_integer(value)) for number, value in fields.items()}


def encode_run(count: int, value: int, width: int = 1) -> bytes:
    """Return a run of equal indices or levels of the hybrid encoding."""
    return encode_varint(count << 1) + value.to_bytes((width + 7) // 8, "little")


def encode_levels(*runs: bytes) -> bytes:
    """Return the levels of a page with their length."""
    content = b"".join(runs)
    return len(content).to_bytes(4, "little") + content


def encode_deltas(first: int, count: int, difference: int = 0) -> bytes:
    """Return numbers with equal differences: one block of one miniblock of any length."""
    block = -(-max(count, 128) // 128) * 128
    head = b"".join(map(encode_varint, (block, 1, count)))
    return head + encode_integer(first) + encode_integer(difference) + b"\0"


def plain(*texts: bytes) -> bytes:
    """Return plain texts."""
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def indices(count: int) -> bytes:
    """Return a page of indices of the first text of a dictionary."""
    return bytes([1]) + encode_run(count, 0)
