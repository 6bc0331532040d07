"""Assembles shredded VARIANT columns: values whose parts are in typed columns of a Parquet file.

The functions work on whole columns. They check the bytes, which may be of any origin, and raise
``ValueError`` for damage.

See docs/format/variant.md#shredded-columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.decode_limits import check_names
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.arrays import AnyArray, Indices, Int64Array, UInt8Array
from paimon_orch.format.bytes.binary_batch import BinaryBatch
from paimon_orch.format.types.arrow import VARIANT_TYPE
from paimon_orch.format.variant.value import (
    MAX_SHORT_TEXT,
    VERSION,
    BasicType,
    Primitive,
    count_names,
    decode_names,
    encode_names,
    header,
    name_order,
    raise_malformed,
)

TYPED_VALUE = "typed_value"
_MAX_COLUMN_BYTES = (1 << 31) - 1
_INTEGERS = (
    (Primitive.INT8, 1),
    (Primitive.INT16, 2),
    (Primitive.INT32, 4),
    (Primitive.INT64, 8),
)
_WIDTH_LIMITS = np.array([1 << 8, 1 << 16, 1 << 24])
_FIXED_WIDTH = {
    pa.float32(): (Primitive.FLOAT, "<f4"),
    pa.float64(): (Primitive.DOUBLE, "<f8"),
    pa.date32(): (Primitive.DATE, "<i4"),
    pa.timestamp("us"): (Primitive.TIMESTAMP_NTZ, "<i8"),
    pa.timestamp("us", "UTC"): (Primitive.TIMESTAMP, "<i8"),
}


def assemble_variants(column: pa.StructArray) -> pa.StructArray:
    """Return a column of a Parquet file, shredded or not, as the Arrow type of VARIANT."""
    names = [child.name for child in column.type]
    if TYPED_VALUE in names:
        return _assemble_shredded(column)
    if not {"metadata", "value"} <= set(names):
        raise_malformed(f"its columns are {', '.join(names)}")
    parts = [column.field(child.name).cast(pa.binary()) for child in VARIANT_TYPE]
    for part in parts:
        if part.null_count and pc.any(pc.and_(part.is_null(), column.is_valid())).as_py():
            raise_malformed("a value or its metadata is missing")
    # Parquet's writer refuses nulls in required fields, even in null rows
    filled = [pc.fill_null(part, b"") if part.null_count else part for part in parts]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(filled, fields=list(VARIANT_TYPE), mask=mask)


def assemble_partial_variants(column: pa.StructArray) -> pa.StructArray:
    """Return a shredded column of which only some columns were read, as VARIANT.

    Values that were not read are missing in their objects; at the root they become the null of
    JSON.
    """
    return _assemble_shredded(column, missing=bytes([header(Primitive.NULL)]))


def _assemble_shredded(column: pa.StructArray, missing: bytes | None = None) -> pa.StructArray:
    rows = column.drop_null() if column.null_count else column
    metadata = rows.field("metadata").cast(pa.binary())
    if metadata.null_count:
        raise_malformed("a value has no metadata")
    dictionaries = NameDictionaries.of(metadata)
    values = _encode_nodes(rows, dictionaries.codes, dictionaries)
    if values.null_count:
        if missing is None:
            raise_malformed("a value is missing")
        values = pc.fill_null(values, missing)
    parts = [values, dictionaries.encode()]
    assembled = pa.StructArray.from_arrays(parts, fields=list(VARIANT_TYPE))
    return _scatter(assembled, column.is_valid().to_numpy(zero_copy_only=False))


def check_variants(column: pa.StructArray) -> None:
    """Raise ``ValueError`` if values have no bytes, or metadata of another version.

    The other bytes are not decoded, as in Java Paimon.
    """
    rows = column.drop_null() if column.null_count else column
    if pc.any(pc.equal(pc.binary_length(rows.field("value")), 0)).as_py():
        raise_malformed("a value has no bytes")
    heads = pc.binary_slice(rows.field("metadata"), 0, 1)
    for head in pc.unique(heads).to_pylist():
        if not head or head[0] & 0x0F != VERSION:
            raise_malformed("the metadata has no version 1")


@dataclass(slots=True)
class NameDictionaries:
    """The distinct metadata of the rows of a column; names can be added."""

    codes: Int64Array
    """The dictionary of each row."""
    metadata: list[bytes]
    names: list[list[str]]
    _ids: list[dict[str, int]] = field(default_factory=list)

    @classmethod
    def of(cls, metadata: pa.Array) -> "NameDictionaries":
        """Decode the distinct metadata of a column without nulls."""
        encoded = metadata.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        check_names(sum(map(count_names, distinct)))
        names = [list(decode_names(item)) for item in distinct]
        ids = [{name: number for number, name in enumerate(item)} for item in names]
        return cls(encoded.indices.to_numpy().astype(np.int64), distinct, names, ids)

    def find_ids(self, name: str, codes: Int64Array) -> Int64Array:
        """Return the ids of a name in dictionaries; dictionaries without the name get it."""
        ids = np.zeros(len(self.names), np.int64)
        for code in np.unique(codes).tolist():
            number = self._ids[code].setdefault(name, len(self.names[code]))
            if number == len(self.names[code]):
                self.names[code].append(name)
            ids[code] = number
        found: Int64Array = ids[codes]
        return found

    def look_up(self, name: str) -> Int64Array:
        """Return the id of a name in each dictionary, or -1."""
        return np.array([ids.get(name, -1) for ids in self._ids], np.int64)

    def rank(self, ids: Int64Array, codes: Int64Array) -> Int64Array:
        """Return numbers that order the names that are used of each dictionary."""
        counts = np.array([len(names) for names in self.names], np.int64)
        if (ids >= counts[codes]).any():
            raise_malformed("an object has a name that its metadata does not have")
        starts = np.cumsum(counts) - counts
        used, places = np.unique(starts[codes] + ids, return_inverse=True)
        dictionaries = np.searchsorted(starts, used, "right") - 1
        numbers = used - starts[dictionaries]
        names = [self.names[d][n] for d, n in np.stack([dictionaries, numbers], axis=1).tolist()]
        ranks = {name: rank for rank, name in enumerate(sorted(set(names), key=name_order))}
        found: Int64Array = np.array([ranks[name] for name in names], np.int64)[places]
        return found

    def encode(self) -> pa.Array:
        """Return the metadata of the rows, with the added names."""
        distinct = [
            item if count_names(item) == len(names) else encode_names(names)
            for item, names in zip(self.metadata, self.names, strict=True)
        ]
        return pa.array(distinct, pa.binary()).take(pa.array(self.codes))


def _encode_nodes(
    nodes: pa.StructArray, codes: Int64Array, dictionaries: NameDictionaries
) -> pa.Array:
    """Return the bytes of values, or null where a value is missing."""
    parts = dict(zip((child.name for child in nodes.type), nodes.flatten(), strict=True))
    values = parts.get("value", pa.nulls(len(nodes), pa.binary())).cast(pa.binary())
    typed = parts.get(TYPED_VALUE)
    if typed is None or typed.null_count == len(typed):
        return values
    is_typed = typed.is_valid()
    rows = np.flatnonzero(is_typed.to_numpy(zero_copy_only=False))
    present, leftovers = typed.drop_null(), values.filter(is_typed)
    if isinstance(present, pa.StructArray):
        encoded = _encode_objects(present, leftovers, codes[rows], dictionaries)
    elif isinstance(present, pa.ListArray):
        encoded = _encode_arrays(present, codes[rows], dictionaries)
    else:
        encoded = _encode_scalars(present)
    if len(rows) == len(nodes):
        return encoded
    return pc.if_else(is_typed, _scatter(encoded, is_typed.to_numpy(zero_copy_only=False)), values)


def _encode_objects(
    objects: pa.StructArray,
    leftovers: pa.Array,
    codes: Int64Array,
    dictionaries: NameDictionaries,
) -> pa.Array:
    """Return objects of the shredded fields and the fields of ``leftovers``."""
    entries = _decode_leftovers(leftovers)
    rows, ids, values = [entries.rows], [entries.ids], []
    for child, nodes in zip(objects.type, objects.flatten(), strict=True):
        encoded = _encode_nodes(nodes, codes, dictionaries)
        present = np.flatnonzero(encoded.is_valid().to_numpy(zero_copy_only=False))
        rows.append(present)
        ids.append(dictionaries.find_ids(child.name, codes[present]))
        values.append(encoded.drop_null())
    all_values = pa.concat_arrays(values) if values else pa.array([], pa.binary())
    value_rows = np.concatenate([np.zeros(0, np.int64), *rows[1:]])
    # the bytes of leftover fields precede those of the other fields
    order = np.argsort(value_rows, kind="stable")
    lengths = _lengths_of(all_values)
    offsets = np.empty(len(lengths), np.int64)
    counts = np.bincount(value_rows, minlength=len(objects))
    offsets[order] = _offsets_in_rows(lengths[order], counts)
    offsets += entries.data_lengths[value_rows]
    all_rows, all_ids = np.concatenate(rows), np.concatenate(ids)
    ranks = dictionaries.rank(all_ids, codes[all_rows])
    by_name = np.lexsort((ranks, all_rows))
    sorted_rows, sorted_ranks = all_rows[by_name], ranks[by_name]
    if ((sorted_rows[1:] == sorted_rows[:-1]) & (sorted_ranks[1:] == sorted_ranks[:-1])).any():
        raise_malformed("an object has a field twice, shredded and not shredded")
    heads = _encode_heads(
        len(objects),
        sorted_rows,
        ids=all_ids[by_name],
        offsets=np.concatenate([entries.offsets, offsets])[by_name],
        totals=entries.data_lengths
        + np.bincount(value_rows, lengths, minlength=len(objects)).astype(np.int64),
    )
    pieces = [heads, entries.data, all_values]
    return _join(pieces, [np.arange(len(objects)), entries.data_rows, value_rows], len(objects))


def _encode_arrays(
    lists: pa.ListArray, codes: Int64Array, dictionaries: NameDictionaries
) -> pa.Array:
    counts = pc.list_value_length(lists).to_numpy().astype(np.int64)
    encoded = _encode_nodes(lists.flatten(), np.repeat(codes, counts), dictionaries)
    if encoded.null_count:
        raise_malformed("an element of an array is missing")
    rows, lengths = np.repeat(np.arange(len(lists)), counts), _lengths_of(encoded)
    heads = _encode_heads(
        len(lists),
        rows,
        ids=None,
        offsets=_offsets_in_rows(lengths, counts),
        totals=np.bincount(rows, lengths, minlength=len(lists)).astype(np.int64),
    )
    return _join([heads, encoded], [np.arange(len(lists)), rows], len(lists))


@dataclass(frozen=True, slots=True)
class ContainerHeads:
    """The headers of objects, or of arrays: one item for each container."""

    data: UInt8Array
    counts: Indices
    ids_at: Indices
    id_widths: Indices
    offsets_at: Indices
    offset_widths: Indices
    data_at: Indices
    lengths: Int64Array
    """The number of bytes of all values of a container."""

    @classmethod
    def decode(cls, data: UInt8Array, starts: Indices, limits: Indices) -> "ContainerHeads":
        """Decode the headers at ``starts``, which end before ``limits``.

        ``data`` has 8 more bytes than the values. All containers are objects, or all are arrays.
        """
        first = data[starts].astype(np.int64)
        is_object = first & 3 == BasicType.OBJECT
        offset_widths = (first >> 2 & 3) + 1
        id_widths = is_object * ((first >> 4 & 3) + 1)
        size_widths = np.where(first >> np.where(is_object, 6, 4) & 1, 4, 1)
        if (starts + 1 + size_widths > limits).any():
            raise_malformed("a container is shorter than its header")
        counts = read_integers(data, starts + 1, size_widths)
        ids_at = starts + 1 + size_widths
        offsets_at = ids_at + id_widths * counts
        data_at = offsets_at + offset_widths * (counts + 1)
        if (data_at > limits).any():
            raise_malformed("the header of a container exceeds its bytes")
        lengths = read_integers(data, offsets_at + offset_widths * counts, offset_widths)
        if (data_at + lengths > limits).any():
            raise_malformed("the values of a container exceed its bytes")
        return cls(data, counts, ids_at, id_widths, offsets_at, offset_widths, data_at, lengths)

    def list_values(self) -> tuple[Indices, Indices]:
        """Return the container of each value, and the number of the value in it."""
        rows = np.repeat(np.arange(len(self.counts)), self.counts)
        numbers = np.arange(len(rows)) - np.repeat(
            np.cumsum(self.counts) - self.counts, self.counts
        )
        return rows, numbers

    def read_ids(self, rows: Indices, numbers: Indices) -> Int64Array:
        """Return the ids of the names of values of objects."""
        widths = self.id_widths[rows]
        return read_integers(self.data, self.ids_at[rows] + widths * numbers, widths)

    def read_offsets(self, rows: Indices, numbers: Indices) -> Int64Array:
        """Return the places of values after the header of their container."""
        widths = self.offset_widths[rows]
        offsets = read_integers(self.data, self.offsets_at[rows] + widths * numbers, widths)
        if (offsets >= self.lengths[rows]).any():
            raise_malformed("a value of a container is outside of its bytes")
        return offsets


@dataclass(frozen=True, slots=True)
class _Leftovers:
    """The fields of objects that are not shredded, and the bytes of their values."""

    rows: Indices
    ids: Int64Array
    offsets: Int64Array
    data: pa.Array
    data_rows: Indices
    data_lengths: Int64Array
    """The number of bytes of each row."""


def _decode_leftovers(leftovers: pa.Array) -> _Leftovers:
    present = np.flatnonzero(leftovers.is_valid().to_numpy(zero_copy_only=False))
    batch = BinaryBatch.from_arrow(leftovers.drop_null())
    if (batch.lengths < 1).any():
        raise_malformed("a value has no bytes")
    if (batch.data[batch.starts] & 3 != BasicType.OBJECT).any():
        raise_malformed("a partially shredded value is no object")
    heads = ContainerHeads.decode(batch.data, batch.starts, batch.starts + batch.lengths)
    rows, numbers = heads.list_values()
    data_lengths = np.zeros(len(leftovers), np.int64)
    data_lengths[present] = heads.lengths
    data = slice_bytes(batch.data, heads.data_at, heads.data_at + heads.lengths)
    ids, offsets = heads.read_ids(rows, numbers), heads.read_offsets(rows, numbers)
    return _Leftovers(present[rows], ids, offsets, data, present, data_lengths)


def slice_bytes(data: UInt8Array, starts: Indices, ends: Indices) -> pa.Array:
    """Return slices of a buffer that are in ascending order and do not overlap."""
    bounds = np.empty(2 * len(starts) + 1, np.int32)
    bounds[:-1:2], bounds[1::2], bounds[-1] = starts, ends, ends[-1] if len(ends) else 0
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(data))]
    pieces = pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
    return pieces.take(pa.array(np.arange(0, 2 * len(starts), 2)))


def read_integers(data: UInt8Array, starts: Indices, widths: Indices) -> Int64Array:
    """Read unsigned little-endian integers of 1 to 4 bytes."""
    result = np.zeros(len(starts), np.int64)
    for byte in range(4):
        wide = widths > byte
        result[wide] |= data[starts[wide] + byte].astype(np.int64) << 8 * byte
    return result


def _write_integers(data: UInt8Array, starts: Indices, widths: Indices, values: Int64Array) -> None:
    """Write unsigned little-endian integers of 1 to 4 bytes."""
    for byte in range(4):
        wide = widths > byte
        data[starts[wide] + byte] = values[wide] >> 8 * byte & 0xFF


def _integer_widths(values: Int64Array) -> Indices:
    return np.searchsorted(_WIDTH_LIMITS, values, side="right") + 1


def _offsets_in_rows(lengths: Int64Array, counts: Indices) -> Int64Array:
    """Return the offset of each value among the values of its row, which are consecutive."""
    ends = np.cumsum(lengths)
    firsts = np.cumsum(counts) - counts
    row_starts = np.concatenate([[0], ends])[firsts]
    offsets: Int64Array = ends - lengths - np.repeat(row_starts, counts)
    return offsets


def _encode_heads(
    count: int,
    rows: Indices,
    *,
    ids: Int64Array | None,
    offsets: Int64Array,
    totals: Int64Array,
) -> pa.Array:
    """Return the bytes before the values of objects, or of arrays, which have no ``ids``.

    ``rows`` are the ascending rows of the values, and ``totals`` the bytes of all values of a row.
    """
    counts = np.bincount(rows, minlength=count)
    id_widths = np.zeros(count, np.int64)
    if ids is not None:
        largest = np.zeros(count, np.int64)
        np.maximum.at(largest, rows, ids)
        id_widths = _integer_widths(largest)
    offset_widths, is_large = _integer_widths(totals), counts > 0xFF
    size_widths = np.where(is_large, 4, 1)
    lengths = 1 + size_widths + id_widths * counts + offset_widths * (counts + 1)
    ends = np.cumsum(lengths)
    data, starts = np.zeros(int(ends[-1]) if count else 0, np.uint8), ends - lengths
    if ids is None:
        data[starts] = (is_large << 2 | (offset_widths - 1)) << 2 | BasicType.ARRAY
    else:
        info = is_large << 4 | (id_widths - 1) << 2 | (offset_widths - 1)
        data[starts] = info << 2 | BasicType.OBJECT
    _write_integers(data, starts + 1, size_widths, counts)
    ids_at = starts + 1 + size_widths
    numbers = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    if ids is not None:
        places = ids_at[rows] + id_widths[rows] * numbers
        _write_integers(data, places, id_widths[rows], ids)
    offsets_at = ids_at + id_widths * counts
    places = offsets_at[rows] + offset_widths[rows] * numbers
    _write_integers(data, places, offset_widths[rows], offsets)
    _write_integers(data, offsets_at + offset_widths * counts, offset_widths, totals)
    return _build_binary(data, lengths)


def _join(pieces: Sequence[pa.Array], rows: Sequence[Indices], count: int) -> pa.Array:
    """Return the concatenated pieces of each row, in the order given."""
    all_rows = np.concatenate(rows)
    order = np.argsort(all_rows, kind="stable")
    ends = np.cumsum(np.bincount(all_rows, minlength=count))
    lists = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], ends]), pa.int32()),
        pa.concat_arrays(list(pieces)).take(pa.array(order)),
    )
    return pc.binary_join(lists, b"")


def _encode_scalars(array: pa.Array) -> pa.Array:
    """Return the bytes of values without nulls."""
    kind = array.type
    if pa.types.is_boolean(kind):
        codes = np.where(
            array.to_numpy(zero_copy_only=False), header(Primitive.TRUE), header(Primitive.FALSE)
        )
        return _build_binary(codes.astype(np.uint8), np.ones(len(array), np.int64))
    if pa.types.is_signed_integer(kind):
        return _encode_integers(array.to_numpy().astype("<i8"))
    if kind in _FIXED_WIDTH:
        primitive, dtype = _FIXED_WIDTH[kind]
        width = np.dtype(dtype).itemsize
        storage = array if pa.types.is_floating(kind) else array.view(f"int{8 * width}")
        matrix = _build_matrix(storage.to_numpy().astype(dtype), header(primitive))
        return _build_binary(matrix.ravel(), np.full(len(array), 1 + width))
    if isinstance(kind, pa.Decimal128Type):
        return _encode_decimals(array)
    if pa.types.is_string(kind):
        return _encode_texts(array.view(pa.binary()))
    if pa.types.is_binary(kind):
        return _with_length(array, Primitive.BINARY)
    if isinstance(kind, pa.UuidType) or kind == pa.binary(16):
        values = array.cast(pa.binary(16)).cast(pa.binary())
        head = pa.scalar(bytes([header(Primitive.UUID)]), pa.binary())
        return pc.binary_join_element_wise(head, values, b"")
    raise UnsupportedError(f"VARIANT values that are shredded as {kind} are not supported")


def _encode_integers(values: Int64Array) -> pa.Array:
    matrix = _build_matrix(values, header(Primitive.INT64))
    lengths = np.full(len(values), 9)
    for primitive, width in reversed(_INTEGERS[:-1]):
        limit = 1 << 8 * width - 1
        fits = (values >= -limit) & (values < limit)
        matrix[fits, 0], lengths[fits] = header(primitive), 1 + width
    return _build_binary(matrix[np.arange(9) < lengths[:, None]], lengths)


def _encode_decimals(array: pa.Array) -> pa.Array:
    """Return decimals in the fewest bytes that hold their digits and their scale."""
    assert isinstance(array.type, pa.Decimal128Type)
    scale = array.type.scale
    words = np.frombuffer(array.buffers()[1], "<i8").reshape(-1, 2)
    words = words[array.offset : array.offset + len(array)]
    low = words[:, 0]
    matrix = np.empty((len(array), 18), np.uint8)
    matrix[:, 0], matrix[:, 1] = header(Primitive.DECIMAL16), scale
    matrix[:, 2:] = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 16)
    lengths, is_short = np.full(len(array), 18), words[:, 1] == low >> 63
    for primitive, width, digits in ((Primitive.DECIMAL8, 8, 18), (Primitive.DECIMAL4, 4, 9)):
        if scale <= digits:
            fits = is_short & (low > -(10**digits)) & (low < 10**digits)
            matrix[fits, 0], lengths[fits] = header(primitive), 2 + width
    return _build_binary(matrix[np.arange(18) < lengths[:, None]], lengths)


def _encode_texts(array: pa.Array) -> pa.Array:
    lengths = _lengths_of(array)
    is_short = pa.array(lengths <= MAX_SHORT_TEXT)
    heads = (np.minimum(lengths, MAX_SHORT_TEXT) << 2 | BasicType.SHORT_TEXT).astype(np.uint8)
    short = pc.binary_join_element_wise(
        _build_binary(heads, np.ones(len(array), np.int64)), array, b""
    )
    return (
        short
        if pc.all(is_short).as_py() is not False
        else pc.if_else(is_short, short, _with_length(array, Primitive.TEXT))
    )


def _with_length(array: pa.Array, primitive: Primitive) -> pa.Array:
    heads = _build_matrix(_lengths_of(array).astype("<u4"), header(primitive))
    prefix = _build_binary(heads.ravel(), np.full(len(array), 5))
    return pc.binary_join_element_wise(prefix, array, b"")


def _build_matrix(values: AnyArray, first: int) -> UInt8Array:
    """Return a row for each value: the byte ``first`` and the bytes of the value."""
    width = values.dtype.itemsize
    matrix = np.empty((len(values), 1 + width), np.uint8)
    matrix[:, 0] = first
    matrix[:, 1:] = np.ascontiguousarray(values).view(np.uint8).reshape(-1, width)
    return matrix


def _build_binary(data: UInt8Array, lengths: Indices) -> pa.Array:
    """Return consecutive slices of ``data``."""
    ends = np.cumsum(lengths)
    if len(ends) and ends[-1] > _MAX_COLUMN_BYTES:
        raise UnsupportedError("a batch of VARIANT values has more than 2 GB; read fewer rows")
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def _lengths_of(array: pa.Array) -> Int64Array:
    lengths: Int64Array = pc.binary_length(array).to_numpy().astype(np.int64)
    return lengths


def _scatter(values: pa.Array, is_present: AnyArray) -> pa.Array:
    """Return the values at the rows that are present, and null elsewhere."""
    if is_present.all():
        return values
    positions = np.cumsum(is_present) - 1
    return values.take(pa.array(positions, pa.int64(), mask=~is_present))
