"""Nanosecond timestamps in Parquet as INT96, as in Java Paimon; other timestamps are INT64.

pyarrow writes either all timestamps of a file as INT96 or none. This module therefore writes the
values as FIXED_LEN_BYTE_ARRAY(12), whose pages have the same bytes as INT96 pages, and changes the
type in the footer to INT96.

See docs/format/data-files.md#parquet.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from paimon_orch.files.nested_arrays import child_fields
from paimon_orch.files.parquet.thrift_compact import (
    ValueSpan,
    decode_integer,
    decode_list,
    decode_struct,
)

INT96_BYTES_TYPE = pa.binary(12)
_INT96_DTYPE = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_NANOS_PER_DAY = 86_400 * 10**9
_JULIAN_EPOCH = 2_440_588

_FIXED_LEN_BYTE_ARRAY, _INT96 = 7, 3


def is_nanosecond_timestamp(arrow_type: pa.DataType) -> bool:
    """Return whether a type is stored as INT96."""
    return isinstance(arrow_type, pa.TimestampType) and arrow_type.unit == "ns"


def int96_storage_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type that pyarrow writes: nanoseconds as twelve bytes, also in nested types.

    Elements of lists and values of maps are optional, even if they are NOT NULL, because
    Java Paimon 0.9 loses required values.
    """
    if is_nanosecond_timestamp(arrow_type):
        return INT96_BYTES_TYPE
    children = [
        field.with_type(int96_storage_type(field.type)) for field in child_fields(arrow_type)
    ]
    if isinstance(arrow_type, pa.MapType):
        return pa.map_(children[0], children[1].with_nullable(True))
    if isinstance(arrow_type, pa.ListType):
        return pa.list_(children[0].with_nullable(True))
    if isinstance(arrow_type, pa.FixedSizeListType):
        return pa.list_(children[0].with_nullable(True), arrow_type.list_size)
    return pa.struct(children) if isinstance(arrow_type, pa.StructType) else arrow_type


def encode_int96(array: pa.Array) -> pa.Array:
    """Return nanosecond timestamps as the twelve bytes of INT96, days rounded down."""
    nanos = array.view(pa.int64()).fill_null(0).to_numpy()
    parts = np.empty(len(array), _INT96_DTYPE)
    days = nanos // _NANOS_PER_DAY
    parts["nanos"], parts["day"] = nanos - days * _NANOS_PER_DAY, days + _JULIAN_EPOCH
    validity = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(
        INT96_BYTES_TYPE, len(array), [validity, pa.py_buffer(parts.tobytes())]
    )


def patch_int96_types(footer: bytes) -> bytes:
    """Return a footer whose columns of twelve bytes are INT96."""
    patched = bytearray(footer)
    for offset in _find_int96_types(footer):
        patched[offset] = _INT96 << 1
    return bytes(patched)


def _find_int96_types(footer: bytes) -> Iterator[int]:
    """Yield the offsets of the types of columns of twelve bytes without another logical type."""
    metadata, _ = decode_struct(footer)
    leaves = []
    for element in _decode_structs(footer, metadata[2]):
        if 1 in element:  # the element is a column, because only columns have a type
            has_no_logical_type = 6 not in element and 10 not in element
            is_fixed = decode_integer(footer, element[1].start) == _FIXED_LEN_BYTE_ARRAY
            is_long = (
                2 in element
                and decode_integer(footer, element[2].start) == INT96_BYTES_TYPE.byte_width
            )
            leaves.append(has_no_logical_type and is_fixed and is_long)
            if leaves[-1]:
                yield element[1].start
    for row_group in _decode_structs(footer, metadata[4]):
        for leaf, chunk in zip(leaves, _decode_structs(footer, row_group[1]), strict=True):
            if leaf:
                yield decode_struct(footer, chunk[3].start)[0][1].start


def _decode_structs(data: bytes, value: ValueSpan) -> Iterator[dict[int, ValueSpan]]:
    return (decode_struct(data, element.start)[0] for element in decode_list(data, value.start))
