"""Extracts values of VARIANT columns by their path.

The casts are those of Java Paimon, see docs/format/variant.md#typed-access.
"""

import re
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.schema_evolution.cast import cast
from paimon_orch.format.arrays import Indices, Int64Array, Mask, UInt8Array
from paimon_orch.format.bytes.binary_batch import BinaryBatch
from paimon_orch.format.types.arrow import VARIANT_TYPE, to_arrow_type
from paimon_orch.format.types.data_types import (
    MAX_LENGTH,
    AtomicType,
    TypeRoot,
    VariantType,
    parse_type,
    type_to_sql,
)
from paimon_orch.format.variant.shredding import (
    ContainerHeads,
    NameDictionaries,
    assemble_variants,
    read_integers,
    slice_bytes,
)
from paimon_orch.format.variant.value import BasicType, Primitive, raise_malformed, to_json_text

_SEGMENT = re.compile(r"""\.([^.\[]+)|\['([^']+)'\]|\["([^"]+)"\]|\[(\d+)\]""")
_TEXT = AtomicType(name=TypeRoot.VARCHAR, params=(MAX_LENGTH,))
_NUMBERS = {
    Primitive.INT8: ("i1", TypeRoot.BIGINT),
    Primitive.INT16: ("<i2", TypeRoot.BIGINT),
    Primitive.INT32: ("<i4", TypeRoot.BIGINT),
    Primitive.INT64: ("<i8", TypeRoot.BIGINT),
    Primitive.DOUBLE: ("<f8", TypeRoot.DOUBLE),
    Primitive.FLOAT: ("<f4", TypeRoot.FLOAT),
    Primitive.DATE: ("<i4", TypeRoot.DATE),
}
_DECIMAL_BYTES = {Primitive.DECIMAL4: 6, Primitive.DECIMAL8: 10, Primitive.DECIMAL16: 18}


def variant_get(column: pa.Array | pa.ChunkedArray, path: str, type: str) -> pa.ChunkedArray:
    """Return the values at a path of a VARIANT column as a type, as ``variant_get`` in Spark.

    A path is for example ``$.user.name``, ``$.items[0]['unit price']`` or ``$``. Missing values and
    the null of JSON become null. Objects and arrays can be read as STRING, which is their JSON
    text, and as VARIANT. Raises :class:`InputError` for values that cannot be cast.
    """
    target = parse_type(type)
    if not isinstance(target, AtomicType | VariantType):
        raise InputError(f"variant_get: {type!r} is nested; read it as VARIANT or STRING")
    segments, arrow = parse_path(path), to_arrow_type(target)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    try:
        parts = [_extract(assemble_variants(chunk), segments, target) for chunk in chunks]
    except ValueError as error:
        raise InputError(f"variant_get(column, {path!r}, {type!r}): {error}") from error
    return pa.chunked_array(parts, arrow)


def parse_path(path: str) -> list[str | int]:
    """Return the names and indexes of a path."""
    segments: list[str | int] = []
    position = 1
    while path[:1] == "$" and position < len(path):
        match = _SEGMENT.match(path, position)
        if match is None:
            break
        *names, index = match.groups()
        segments.append(next(filter(None, names), "") if index is None else int(index))
        position = match.end()
    if path[:1] != "$" or position < len(path):
        raise InputError(f"the path {path!r} is not of the form $.name, $['name'] or $[0]")
    return segments


@dataclass(frozen=True, slots=True)
class _Values:
    """Encoded values of some rows, in ascending order."""

    data: UInt8Array
    rows: Indices
    starts: Indices
    limits: Indices

    def select(self, mask: Mask | Indices) -> "_Values":
        return replace(
            self, rows=self.rows[mask], starts=self.starts[mask], limits=self.limits[mask]
        )

    def read(self, offset: int, width: int) -> UInt8Array:
        """Return ``width`` bytes of each value, from ``offset``."""
        if (self.starts + offset + width > self.limits).any():
            raise_malformed("a value exceeds its bytes")
        found: UInt8Array = self.data[self.starts[:, None] + np.arange(offset, offset + width)]
        return found

    def slice(self, starts: Indices, lengths: Int64Array) -> pa.Array:
        if (starts + lengths > self.limits).any():
            raise_malformed("a value exceeds its bytes")
        return slice_bytes(self.data, starts, starts + lengths)

    @property
    def first(self) -> Int64Array:
        return self.read(0, 1)[:, 0].astype(np.int64)


def _extract(
    column: pa.StructArray, segments: list[str | int], target: AtomicType | VariantType
) -> pa.Array:
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    present = column.drop_null() if column.null_count else column
    batch = BinaryBatch.from_arrow(present.field("value"))
    dictionaries = NameDictionaries.of(present.field("metadata"))
    limits = batch.starts + batch.lengths
    values = _Values(batch.data, np.arange(len(rows)), batch.starts, limits)
    for segment in segments:
        values = _step(values, segment, dictionaries)
    if isinstance(target, VariantType):
        encoded = values.slice(values.starts, _compute_sizes(values))
        metadata = present.field("metadata").take(pa.array(values.rows))
        parts = [
            (values, pa.StructArray.from_arrays([encoded, metadata], fields=list(VARIANT_TYPE)))
        ]
    else:
        parts = _cast_values(values, present.field("metadata"), target)
    arrow = to_arrow_type(target)
    order = np.full(len(column), -1, np.int64)
    position = 0
    for part, array in parts:
        order[rows[part.rows]] = np.arange(position, position + len(array))
        position += len(array)
    found = pa.concat_arrays([array for _, array in parts]) if parts else pa.nulls(0, arrow)
    return found.take(pa.array(order, mask=order < 0))


def _step(values: _Values, segment: str | int, dictionaries: NameDictionaries) -> _Values:
    """Return the values of a field of objects, or of an element of arrays."""
    kind = BasicType.OBJECT if isinstance(segment, str) else BasicType.ARRAY
    inside = values.select(values.first & 3 == kind)
    heads = ContainerHeads.decode(inside.data, inside.starts, inside.limits)
    if isinstance(segment, int):
        items = np.flatnonzero(heads.counts > segment)
        numbers = np.full(len(items), segment)
    else:
        items, numbers = heads.list_values()
        wanted = dictionaries.look_up(segment)[dictionaries.codes[inside.rows]]
        matches = np.flatnonzero(heads.read_ids(items, numbers) == wanted[items])
        items, numbers = items[matches], numbers[matches]
        if (np.diff(items) == 0).any():
            raise_malformed("an object has a field twice")
    starts = heads.data_at[items] + heads.read_offsets(items, numbers)
    limits = heads.data_at[items] + heads.lengths[items]
    return replace(inside, rows=inside.rows[items], starts=starts, limits=limits)


def _text_places(values: _Values) -> tuple[Indices, Int64Array]:
    """Return the starts and lengths of the bytes of texts or binaries."""
    first = values.first
    is_short = first & 3 == BasicType.SHORT_TEXT
    widths = np.where(is_short, 0, 4)
    if (values.starts + 1 + widths > values.limits).any():
        raise_malformed("a value exceeds its bytes")
    lengths = np.where(is_short, first >> 2, read_integers(values.data, values.starts + 1, widths))
    return values.starts + 1 + widths, lengths


def _compute_sizes(values: _Values) -> Int64Array:
    """Return the number of bytes of each value."""
    first = values.first
    sizes = np.ones(len(first), np.int64)
    is_container = (first & 3 == BasicType.OBJECT) | (first & 3 == BasicType.ARRAY)
    inside = values.select(is_container)
    heads = ContainerHeads.decode(inside.data, inside.starts, inside.limits)
    sizes[is_container] = heads.data_at + heads.lengths - inside.starts
    has_length = (first & 3 == BasicType.SHORT_TEXT) | np.isin(
        first, [kind << 2 for kind in (Primitive.TEXT, Primitive.BINARY)]
    )
    texts = values.select(has_length)
    starts, lengths = _text_places(texts)
    sizes[has_length] = starts + lengths - texts.starts
    widths = {kind: 1 + np.dtype(dtype).itemsize for kind, (dtype, _) in _NUMBERS.items()}
    widths |= {Primitive.TIMESTAMP: 9, Primitive.TIMESTAMP_NTZ: 9, Primitive.UUID: 17}
    known = {kind << 2: size for kind, size in (widths | _DECIMAL_BYTES).items()}
    for head in np.unique(first[~is_container & ~has_length]).tolist():
        if head not in known and head >> 2 > Primitive.FALSE:
            raise_malformed(f"the type {head >> 2} is unknown")
        sizes[first == head] = known.get(head, 1)
    return sizes


def _cast_values(
    values: _Values, metadata: pa.Array, target: AtomicType
) -> list[tuple[_Values, pa.Array]]:
    """Return the values by their types, each cast to ``target``; JSON nulls are left out."""
    first = values.first
    parts: list[tuple[_Values, pa.Array, AtomicType]] = []
    is_text = (first & 3 == BasicType.SHORT_TEXT) | (first == Primitive.TEXT << 2)
    is_boolean = (first == Primitive.TRUE << 2) | (first == Primitive.FALSE << 2)
    is_other = ~is_text & ~is_boolean & (first != Primitive.NULL << 2)
    texts, booleans = values.select(is_text), values.select(is_boolean)
    parts.append((texts, texts.slice(*_text_places(texts)).cast(pa.string()), _TEXT))
    flags = pa.array(first[is_boolean] == Primitive.TRUE << 2)
    parts.append((booleans, flags, AtomicType(name=TypeRoot.BOOLEAN)))
    for kind, (dtype, root) in _NUMBERS.items():
        is_kind = first == kind << 2
        is_other &= ~is_kind
        selected = values.select(is_kind)
        width = np.dtype(dtype).itemsize
        numbers = np.ascontiguousarray(selected.read(1, width)).view(dtype).ravel()
        storage = numbers.astype(np.int64) if root is TypeRoot.BIGINT else numbers
        data_type = AtomicType(name=root)
        array = pa.array(storage)
        array = array.view(pa.date32()) if root is TypeRoot.DATE else array
        parts.append((selected, array, data_type))
    parts += _decode_others(values.select(is_other), metadata, target)
    return [
        (selected, _cast_part(array, source, target))
        for selected, array, source in parts
        if len(array)
    ]


def _cast_part(array: pa.Array, source: AtomicType, target: AtomicType) -> pa.Array:
    if source == target:
        return array
    try:
        return cast(array, source, target)
    except (InputError, UnsupportedError) as error:
        reason = error.__cause__ or "there is no such cast"
        raise ValueError(
            f"a value of type {type_to_sql(source)} cannot be read as {type_to_sql(target)}: "
            f"{reason}"
        ) from error


def _decode_others(
    values: _Values, metadata: pa.Array, target: AtomicType
) -> list[tuple[_Values, pa.Array, AtomicType]]:
    """Return decimals as decimals, and objects and arrays as JSON text."""
    first = values.first
    is_decimal = np.isin(first, [kind << 2 for kind in _DECIMAL_BYTES])
    is_container = (first & 3 == BasicType.OBJECT) | (first & 3 == BasicType.ARRAY)
    if not (is_decimal | is_container).all():
        raise ValueError(
            "timestamps, binary and UUIDs inside a variant can only be read as VARIANT"
        )
    if is_container.any() and target.name not in (TypeRoot.VARCHAR, TypeRoot.CHAR):
        raise ValueError(f"an object or array cannot be read as {type_to_sql(target)}")
    encoded = values.slice(values.starts, _compute_sizes(values))
    pairs = list(
        zip(encoded.to_pylist(), metadata.take(pa.array(values.rows)).to_pylist(), strict=True)
    )
    texts = [to_json_text(*pairs[index]) for index in np.flatnonzero(is_container)]
    parts = [(values.select(is_container), pa.array(texts, pa.string()), _TEXT)]
    # the text has no trailing zeros, which Java removes, too
    numbers = [Decimal(to_json_text(*pairs[index])) for index in np.flatnonzero(is_decimal)]
    scales = np.array([-int(number.as_tuple().exponent) for number in numbers], np.int64)
    decimal_values = values.select(is_decimal)
    for scale in np.unique(scales).tolist():
        of_scale = np.flatnonzero(scales == scale)
        kind = AtomicType(name=TypeRoot.DECIMAL, params=(38, scale))
        array = pa.array([numbers[index] for index in of_scale], pa.decimal128(38, scale))
        parts.append((decimal_values.select(of_scale), array, kind))
    return parts
