"""Types of numpy arrays, named by content or by element type, and their Arrow form."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_orch.decode_limits import check_nulls

Positions: TypeAlias = npt.NDArray[np.int64]
"""0-based row positions in a data file or batch; ascending unless stated otherwise."""

Indices: TypeAlias = npt.NDArray[np.int64]
"""Indices into arrays or columns."""

Mask: TypeAlias = npt.NDArray[np.bool_]
"""One boolean per row or item."""

UInt8Array: TypeAlias = npt.NDArray[np.uint8]
Int8Array: TypeAlias = npt.NDArray[np.int8]
Int16Array: TypeAlias = npt.NDArray[np.int16]
Int32Array: TypeAlias = npt.NDArray[np.int32]
UInt32Array: TypeAlias = npt.NDArray[np.uint32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
UInt64Array: TypeAlias = npt.NDArray[np.uint64]
Float64Array: TypeAlias = npt.NDArray[np.float64]
SignedIntArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]
AnyArray: TypeAlias = npt.NDArray[Any]

_NUMPY_TYPES: dict[pa.DataType, type[np.generic]] = {
    pa.from_numpy_dtype(kind): kind
    for kind in (
        *(np.int8, np.int16, np.int32, np.int64),
        *(np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64),
    )
}

# pyarrow.array, Array.to_numpy and Array.fill_null import pandas, which takes as long as all other
# imports of a small compaction.


def to_arrow_array(values: AnyArray, mask: Mask | None = None) -> pa.Array:
    """Return numbers or booleans as an Arrow array, without a copy of contiguous numbers.

    ``mask`` is true for nulls. Does not import pandas, unlike ``pyarrow.array``.
    """
    native = values.dtype.newbyteorder("=")
    data = _pack_bits(values) if native == np.bool_ else np.ascontiguousarray(values, native)
    validity = None if mask is None else pa.py_buffer(_pack_bits(~mask))
    data_type = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(data_type, len(values), [validity, pa.py_buffer(data)])


def to_numpy(values: pa.Array | pa.ChunkedArray, null: float = 0) -> AnyArray:
    """Return numbers or booleans as a numpy array, in which ``null`` replaces nulls.

    Numbers of one chunk without nulls are not copied, and are read-only. Does not import pandas,
    unlike ``Array.to_numpy``.
    """
    if isinstance(values, pa.ChunkedArray):
        if values.num_chunks != 1:
            values = pa.concat_arrays(values.chunks or [pa.nulls(0, values.type)])
        else:
            values = values.chunk(0)
    validity, data = values.buffers()
    numbers: AnyArray
    if pa.types.is_boolean(values.type):
        numbers = _unpack_bits(data, values)
    else:
        kind = np.dtype(_NUMPY_TYPES[values.type])
        numbers = np.frombuffer(data or b"", kind)[values.offset : values.offset + len(values)]
    if values.null_count:
        numbers = np.where(_unpack_bits(validity, values), numbers, numbers.dtype.type(null))
    return numbers


def _pack_bits(mask: Mask) -> UInt8Array:
    return np.packbits(mask, bitorder="little")


def _unpack_bits(data: pa.Buffer | None, values: pa.Array) -> Mask:
    """Return a bitmap of an array as a mask."""
    first, end = values.offset, values.offset + len(values)
    words = np.frombuffer(data or b"", np.uint8)[first // 8 : -(-end // 8)]
    return np.unpackbits(words, bitorder="little")[first % 8 :][: len(values)].view(bool)


def to_one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; raise :class:`pyarrow.ArrowInvalid` if it is too large."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # it has no chunks, or one array is too small for it
        column = pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])
    return column


def build_nulls(length: int, target: pa.DataType) -> pa.Array:
    """Return nulls; raises ``ValueError`` if the type is so wide that they need too much memory."""
    check_nulls(length, measure_value(target))
    return pa.nulls(length, target)


def measure_value(target: pa.DataType) -> int:
    """Return the bytes of a value that do not depend on its content."""
    if isinstance(target, pa.FixedSizeListType):
        return int(target.list_size) * measure_value(target.value_type)
    if isinstance(target, pa.StructType):
        return sum(measure_value(field.type) for field in target)
    try:
        return int(-(-target.bit_width // 8))
    except ValueError:  # values of variable size
        return 0
