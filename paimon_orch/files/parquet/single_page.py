"""Decodes the dictionary page of a text column, for which pyarrow has no function."""

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_orch.files.parquet.footer import PARQUET_MAGIC
from paimon_orch.files.parquet.page_headers import DeclaredPages
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

_REQUIRED, _BYTE_ARRAY, _DATA_PAGE, _PLAIN, _RLE = 0, 6, 0, 0, 3
_NAME = encode_text("text")


def read_dictionary(content: bytes, codec: int, pages: DeclaredPages) -> pa.ChunkedArray:
    """Return the texts of a dictionary page with the compressed ``content``.

    Its values have the encoding of a data page of a required column, so a file with this page as
    its only data page is decoded.
    """
    file = _build_file(content, codec, pages)
    return pq.ParquetFile(pa.BufferReader(file)).read(use_threads=False).column(0)


def _build_file(content: bytes, codec: int, pages: DeclaredPages) -> bytes:
    head = encode_struct(_numbers({1: pages.dictionary_values, 2: _PLAIN, 3: _RLE, 4: _RLE}))
    page_header = encode_struct(
        _numbers({1: _DATA_PAGE, 2: pages.dictionary_bytes, 3: len(content)}) | {5: (STRUCT, head)}
    )
    page = page_header + content
    long = {
        number: (I64, encode_integer(value))
        for number, value in {
            5: pages.dictionary_values,
            6: len(page_header) + pages.dictionary_bytes,
            7: len(page),
            9: len(PARQUET_MAGIC),
        }.items()
    }
    metadata = encode_struct(
        _numbers({1: _BYTE_ARRAY, 4: codec})
        | {
            2: (LIST, encode_list([encode_integer(_PLAIN)], I32)),
            3: (LIST, encode_list([_NAME], BINARY)),
        }
        | long
    )
    chunk = encode_struct({2: (I64, encode_integer(0)), 3: (STRUCT, metadata)})
    rows = (I64, encode_integer(pages.dictionary_values))
    group = encode_struct({1: (LIST, encode_list([chunk])), 2: long[6], 3: rows})
    root = encode_struct({4: (BINARY, _NAME), **_numbers({5: 1})})
    column = encode_struct({**_numbers({1: _BYTE_ARRAY, 3: _REQUIRED}), 4: (BINARY, _NAME)})
    footer = encode_struct(
        {
            **_numbers({1: 1}),
            2: (LIST, encode_list([root, column])),
            3: rows,
            4: (LIST, encode_list([group])),
        }
    )
    tail = len(footer).to_bytes(4, "little") + PARQUET_MAGIC
    return PARQUET_MAGIC + page + footer + tail


def _numbers(fields: dict[int, int]) -> dict[int, tuple[int, bytes]]:
    return {number: (I32, encode_integer(value)) for number, value in fields.items()}
