"""Encodes rows as numbers: rows have the same number if all their values are equal."""

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.arrays import Int32Array, Int64Array, to_numpy

UNKNOWN_CODE = -1


class ValueCodes(ABC):
    """Assigns a number from 0 to each distinct value of an array.

    Null equals null, NaN equals NaN, and 0.0 is not -0.0.
    """

    def __init__(self) -> None:
        """Create codes without values."""
        self._distinct_keys: pa.Array | None = None

    def learn(self, values: pa.Array) -> Int32Array:
        """Assign a number to each distinct value, and return them; call this only once."""
        encoded = self._build_keys(values, learn=True).dictionary_encode(null_encoding="encode")
        self._distinct_keys = encoded.dictionary
        codes: Int32Array = to_numpy(encoded.indices)
        return codes

    def encode(self, values: pa.Array) -> Int32Array:
        """Return the numbers of values; :data:`UNKNOWN_CODE` for a value that was not learned."""
        keys = self._build_keys(values, learn=False)
        indices = pc.index_in(keys, value_set=self._distinct_keys)
        codes: Int32Array = to_numpy(indices, null=UNKNOWN_CODE)
        return codes

    @abstractmethod
    def _build_keys(self, values: pa.Array, *, learn: bool) -> pa.Array:
        """Return keys, of a type that is not nested, that are equal if the values are equal."""


def build_value_codes(data_type: pa.DataType) -> ValueCodes:
    """Return the codes for values of an Arrow type."""
    if pa.types.is_struct(data_type):
        return _StructCodes([build_value_codes(field.type) for field in data_type])
    if pa.types.is_map(data_type):
        entry = [build_value_codes(data_type.key_type), build_value_codes(data_type.item_type)]
        return _ListCodes(_StructCodes(entry))
    if isinstance(data_type, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return _ListCodes(build_value_codes(data_type.value_type))
    return _SimpleCodes()


class _SimpleCodes(ValueCodes):
    def _build_keys(self, values: pa.Array, *, learn: bool) -> pa.Array:  # noqa: ARG002 - no children
        if not pa.types.is_floating(values.type):
            return values
        nan = pa.scalar(float("nan"), values.type)  # NaN has many bit patterns
        same_nan = pc.if_else(pc.is_nan(values), nan, values)
        return same_nan.view(pa.int64() if values.type == pa.float64() else pa.int32())


class _StructCodes(ValueCodes):
    """The key of a struct is the sequence of the codes of its fields."""

    def __init__(self, children: list[ValueCodes]) -> None:
        super().__init__()
        self._children = children

    def _build_keys(self, values: pa.StructArray, *, learn: bool) -> pa.Array:
        codes = np.empty((len(values), len(self._children)), np.int32)
        for index, child in enumerate(self._children):
            field = values.field(index)
            codes[:, index] = child.learn(field) if learn else child.encode(field)
        return _build_binary_array(values, codes, np.arange(len(values) + 1) * codes.shape[1])


class _ListCodes(ValueCodes):
    """The key of a list or map is the sequence of the codes of its elements."""

    def __init__(self, child: ValueCodes) -> None:
        super().__init__()
        self._child = child

    def _build_keys(self, values: pa.Array, *, learn: bool) -> pa.Array:
        if isinstance(values, pa.FixedSizeListArray):
            values = values.cast(pa.list_(values.type.value_field))
        offsets = to_numpy(values.offsets).astype(np.int64)
        if isinstance(values, pa.MapArray):
            elements = pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])
        else:
            elements = values.values
        elements = elements.slice(offsets[0], offsets[-1] - offsets[0])
        codes = self._child.learn(elements) if learn else self._child.encode(elements)
        return _build_binary_array(values, codes, offsets - offsets[0])


def _build_binary_array(values: pa.Array, codes: Int32Array, offsets: Int64Array) -> pa.Array:
    """Return the codes between successive offsets as binary values; null where values are null."""
    buffers = [
        None,
        pa.py_buffer(np.ascontiguousarray(offsets * codes.itemsize)),
        pa.py_buffer(np.ascontiguousarray(codes)),
    ]
    keys = pa.Array.from_buffers(pa.large_binary(), len(values), buffers)
    return keys if not values.null_count else pc.if_else(values.is_valid(), keys, None)
