"""Equality of values as in Java, for whole arrays of any type.

Null equals null, NaN equals NaN, 0.0 is not -0.0, and maps with equal entries are equal in any
order. Merges, changelogs and comparisons of snapshots use it, so that they agree with each other.
"""

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.arrays import Indices, Int32Array, Int64Array, Mask, to_numpy, to_one_array

UNKNOWN_CODE = -1


class ValueCodes(ABC):
    """Assigns a number from 0 to each distinct value of an array."""

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
        return _MapCodes(
            build_value_codes(data_type.key_type), build_value_codes(data_type.item_type)
        )
    if isinstance(data_type, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return _ListCodes(build_value_codes(data_type.value_type))
    return _SimpleCodes()


def find_changed_rows(old: pa.Table, new: pa.Table) -> Mask:
    """Return a mask of the rows of two tables that differ in a column; both have the same size."""
    changed = np.zeros(old.num_rows, bool)
    for before, after in zip(old.columns, new.columns, strict=True):
        changed |= find_differences(to_one_array(before), to_one_array(after))
    return changed


def find_differences(old: pa.Array, new: pa.Array) -> Mask:
    """Return a mask of the positions at which two arrays of one type and length differ."""
    differs: Mask
    if pa.types.is_nested(old.type):
        codes = build_value_codes(old.type)
        differs = codes.learn(old) != codes.encode(new)
        return differs
    one_is_null = pc.xor(old.is_null(), new.is_null())
    differs = to_numpy(pc.not_equal(_compare_by_bits(old), _compare_by_bits(new)))
    return differs | to_numpy(one_is_null)


def _compare_by_bits(values: pa.Array) -> pa.Array:
    """Return floating-point numbers as their bits, with one NaN, and other values unchanged."""
    if not pa.types.is_floating(values.type):
        return values
    nan = pa.scalar(float("nan"), values.type)  # NaN has many bit patterns
    same_nan = pc.if_else(pc.is_nan(values), nan, values)
    return same_nan.view(pa.int64() if values.type == pa.float64() else pa.int32())


class _SimpleCodes(ValueCodes):
    def _build_keys(self, values: pa.Array, *, learn: bool) -> pa.Array:  # noqa: ARG002 - no children
        return _compare_by_bits(values)


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
    """The key of a list is the sequence of the codes of its elements."""

    def __init__(self, child: ValueCodes) -> None:
        super().__init__()
        self._child = child

    def _build_keys(self, values: pa.Array, *, learn: bool) -> pa.Array:
        if isinstance(values, pa.FixedSizeListArray):
            values = values.cast(pa.list_(values.type.value_field))
        offsets, (elements,) = slice_children(values, values.values)
        codes = self._child.learn(elements) if learn else self._child.encode(elements)
        return _build_binary_array(values, codes, offsets)


class _MapCodes(ValueCodes):
    """The key of a map is the sequence of the codes of its entries, in the order of their keys."""

    def __init__(self, key: ValueCodes, item: ValueCodes) -> None:
        super().__init__()
        self._children = key, item

    def _build_keys(self, values: pa.MapArray, *, learn: bool) -> pa.Array:
        offsets, children = slice_children(values, values.keys, values.items)
        codes = np.empty((offsets[-1], 2), np.int32)
        for index, (child, part) in enumerate(zip(self._children, children, strict=True)):
            codes[:, index] = child.learn(part) if learn else child.encode(part)
        rows = np.repeat(np.arange(len(values)), np.diff(offsets))
        order: Indices = np.lexsort((codes[:, 0], rows))
        return _build_binary_array(values, codes[order], 2 * offsets)


def slice_children(
    values: pa.ListArray | pa.MapArray, *children: pa.Array
) -> tuple[Int64Array, list[pa.Array]]:
    """Return the offsets of lists or maps from 0, and the parts of the children that they use."""
    offsets: Int64Array = to_numpy(values.offsets).astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    return offsets - begin, [child.slice(begin, end - begin) for child in children]


def _build_binary_array(values: pa.Array, codes: Int32Array, offsets: Int64Array) -> pa.Array:
    """Return the codes between successive offsets as binary values; null where values are null."""
    buffers = [
        None,
        pa.py_buffer(np.ascontiguousarray(offsets * codes.itemsize)),
        pa.py_buffer(np.ascontiguousarray(codes)),
    ]
    keys = pa.Array.from_buffers(pa.large_binary(), len(values), buffers)
    return keys if not values.null_count else pc.if_else(values.is_valid(), keys, None)
