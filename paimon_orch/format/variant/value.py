"""Reads and writes single VARIANT values: a binary value, and a dictionary of the names in it.

All functions check the bytes, which may be of any origin, and raise ``ValueError`` for damage.

See docs/format/variant.md.
"""

import base64
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import Any, NoReturn
from uuid import UUID

import numpy as np

from paimon_orch.decode_limits import build_limit_error, check_names, get_max_decompressed_bytes
from paimon_orch.format.partition_path import format_java_double

VERSION = 1
MAX_SHORT_TEXT = 63
MAX_DEPTH = 200
MAX_PRECISION = 38
_MAX_BYTES = 128 << 20
_MAX_CACHED_BYTES = 1 << 16
_EXACT = Context(prec=2 * MAX_PRECISION)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_U32 = struct.Struct("<I")


class BasicType(IntEnum):
    """The lower two bits of the first byte of a value."""

    PRIMITIVE = 0
    SHORT_TEXT = 1
    OBJECT = 2
    ARRAY = 3


class Primitive(IntEnum):
    """The upper six bits of the first byte of a primitive value."""

    NULL = 0
    TRUE = 1
    FALSE = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    INT64 = 6
    DOUBLE = 7
    DECIMAL4 = 8
    DECIMAL8 = 9
    DECIMAL16 = 10
    DATE = 11
    TIMESTAMP = 12
    TIMESTAMP_NTZ = 13
    FLOAT = 14
    BINARY = 15
    TEXT = 16
    UUID = 20


_INTEGER_WIDTHS = {
    Primitive.INT8: 1,
    Primitive.INT16: 2,
    Primitive.INT32: 4,
    Primitive.INT64: 8,
    Primitive.DATE: 4,
    Primitive.TIMESTAMP: 8,
    Primitive.TIMESTAMP_NTZ: 8,
}
_DECIMAL_WIDTHS = {Primitive.DECIMAL4: 4, Primitive.DECIMAL8: 8, Primitive.DECIMAL16: 16}


def header(primitive: Primitive) -> int:
    """Return the first byte of a primitive value."""
    return primitive << 2 | BasicType.PRIMITIVE


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Microseconds since 1970, with or without time zone."""

    micros: int
    has_zone: bool


def raise_malformed(reason: str) -> NoReturn:
    """Raise ``ValueError`` for bytes that are no variant."""
    raise ValueError(f"malformed variant: {reason}")


def read_unsigned(data: bytes, position: int, width: int) -> int:
    """Return an unsigned little-endian integer within ``data``."""
    if position < 0 or position + width > len(data):
        raise_malformed(f"{width} bytes at {position} are outside of {len(data)} bytes")
    return int.from_bytes(data[position : position + width], "little")


def decode_names(metadata: bytes) -> tuple[str, ...]:
    """Return the names of a metadata dictionary, by id."""
    if len(metadata) > _MAX_CACHED_BYTES:
        return _decode_long_names(metadata)
    return _decode_short_names(metadata)


def count_names(metadata: bytes) -> int:
    """Return the number of names that a metadata dictionary declares."""
    if not metadata or metadata[0] & 0x0F != VERSION:
        raise_malformed("the metadata has no version 1")
    return read_unsigned(metadata, 1, (metadata[0] >> 6) + 1)


def _decode_names(metadata: bytes) -> tuple[str, ...]:
    count, width = count_names(metadata), (metadata[0] >> 6) + 1
    check_names(count)
    start = 1 + width * (count + 2)
    if start > len(metadata):
        raise_malformed(f"the metadata has {len(metadata)} bytes for {count} names")
    stored = np.frombuffer(metadata, np.uint8, width * (count + 1), 1 + width)
    widened = np.zeros((count + 1, 8), np.uint8)
    widened[:, :width] = stored.reshape(-1, width)
    ends = widened.view("<i8")[:, 0]
    if (ends[1:] < ends[:-1]).any() or ends[-1] > len(metadata) - start:
        raise_malformed("the names of the metadata are outside of its bytes")
    return tuple(
        metadata[first:last].decode(errors="surrogateescape")
        for first, last in pairwise((start + ends).tolist())
    )


_decode_short_names = lru_cache(maxsize=1024)(_decode_names)
_decode_long_names = lru_cache(maxsize=1)(_decode_names)  # many values can share long metadata


@dataclass(slots=True)
class Container:
    """The header of an object or array: the ids of the names, and the places of the values."""

    ids: list[int]
    """Empty for arrays."""
    starts: list[int]
    """The position of each value in the bytes."""
    end: int


def decode_container(value: bytes, position: int) -> Container:
    """Decode the header of an object or array."""
    first = read_unsigned(value, position, 1)
    info, is_object = first >> 2, first & 3 == BasicType.OBJECT
    offset_width = (info & 3) + 1
    id_width = (info >> 2 & 3) + 1 if is_object else 0
    is_large = info >> (4 if is_object else 2) & 1
    size_width = 4 if is_large else 1
    count = read_unsigned(value, position + 1, size_width)
    ids_start = position + 1 + size_width
    offsets_start = ids_start + id_width * count
    data_start = offsets_start + offset_width * (count + 1)
    if data_start > len(value):
        raise_malformed(f"a container of {count} values at {position} exceeds the bytes")
    ids = [
        read_unsigned(value, ids_start + id_width * index, id_width)
        for index in range(count if is_object else 0)
    ]
    offsets = [
        read_unsigned(value, offsets_start + offset_width * index, offset_width)
        for index in range(count + 1)
    ]
    if data_start + offsets[-1] > len(value):
        raise_malformed(f"the values of the container at {position} exceed the bytes")
    if any(offset >= offsets[-1] for offset in offsets[:-1]):
        raise_malformed(f"the container at {position} has a value outside of its bytes")
    return Container(
        ids, [data_start + offset for offset in offsets[:-1]], data_start + offsets[-1]
    )


def decode_value(value: bytes, metadata: bytes) -> Any:
    """Return a variant as Python values: dict, list, str, int, float, Decimal, date and so on."""
    return _Reader(value, decode_names(metadata)).read(0, 0)


@dataclass(slots=True)
class _Reader:
    value: bytes
    names: Sequence[str]
    budget: int = field(init=False)
    """The number of values and of their bytes that may follow.

    Damaged offsets can name the same bytes repeatedly.
    """

    def __post_init__(self) -> None:
        self.budget = len(self.value) + 1

    def read(self, position: int, depth: int) -> Any:
        first = read_unsigned(self.value, position, 1)
        basic, info = first & 3, first >> 2
        self.budget -= 1
        if depth > MAX_DEPTH:
            raise_malformed(f"it is nested more than {MAX_DEPTH} times")
        if self.budget < 0:
            raise_malformed("it has more values than bytes")
        if basic == BasicType.PRIMITIVE:
            return self.read_primitive(info, position + 1)
        if basic == BasicType.SHORT_TEXT:
            return self.slice(position + 1, info).decode(errors="surrogateescape")
        container = decode_container(self.value, position)
        values = [self.read(start, depth + 1) for start in container.starts]
        if basic == BasicType.ARRAY:
            return values
        return dict(zip(map(self.name, container.ids), values, strict=True))

    def name(self, number: int) -> str:
        if number >= len(self.names):
            raise_malformed(f"name {number} is not among the {len(self.names)} names")
        return self.names[number]

    def slice(self, position: int, length: int) -> bytes:
        if position + length > len(self.value):
            raise_malformed(f"{length} bytes at {position} exceed the bytes")
        self.budget -= length
        if self.budget < 0:
            raise_malformed("its values are longer than its bytes")
        return self.value[position : position + length]

    def read_primitive(self, info: int, position: int) -> Any:
        try:
            kind = Primitive(info)
        except ValueError:
            raise_malformed(f"the type {info} is unknown")
        if kind in _INTEGER_WIDTHS:
            data = self.slice(position, _INTEGER_WIDTHS[kind])
            return _convert_integer(kind, int.from_bytes(data, "little", signed=True))
        if kind in _DECIMAL_WIDTHS:
            return self.read_decimal(kind, position)
        match kind:
            case Primitive.NULL:
                return None
            case Primitive.TRUE | Primitive.FALSE:
                return kind is Primitive.TRUE
            case Primitive.DOUBLE:
                return struct.unpack("<d", self.slice(position, 8))[0]
            case Primitive.FLOAT:
                return Single(struct.unpack("<f", self.slice(position, 4))[0])
            case Primitive.UUID:
                return UUID(bytes=self.slice(position, 16))
        data = self.slice(position + 4, read_unsigned(self.value, position, 4))
        return data if kind is Primitive.BINARY else data.decode(errors="surrogateescape")

    def read_decimal(self, kind: Primitive, position: int) -> Decimal:
        scale = read_unsigned(self.value, position, 1)
        data = self.slice(position + 1, _DECIMAL_WIDTHS[kind])
        unscaled = int.from_bytes(data, "little", signed=True)
        if scale > MAX_PRECISION or abs(unscaled) >= 10**MAX_PRECISION:
            raise_malformed("a decimal has more than 38 digits")
        digits = tuple(map(int, str(abs(unscaled))))
        return Decimal((int(unscaled < 0), digits, -scale))


class Single(float):
    """A FLOAT, whose text has fewer digits than that of a DOUBLE."""

    __slots__ = ()


def _convert_integer(kind: Primitive, number: int) -> Any:
    if kind is Primitive.DATE:
        try:
            return date.fromordinal(date(1970, 1, 1).toordinal() + number)
        except (ValueError, OverflowError):
            raise_malformed(f"the date {number} is out of range")
    if kind in (Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ):
        return Timestamp(number, kind is Primitive.TIMESTAMP)
    return number


def to_json_text(value: bytes, metadata: bytes) -> str:
    """Return a variant as JSON text, as Java Paimon writes it; timestamps are in UTC."""
    parts: list[str] = []
    size, stored = 0, len(value) + len(metadata)
    limit = get_max_decompressed_bytes(stored)

    def append(part: str) -> None:
        nonlocal size
        size += len(part)
        if size > limit:  # a long name can be used by each value
            text = f"a variant has {size} characters of JSON or more"
            raise build_limit_error(text, limit, stored)
        parts.append(part)

    _append_json(decode_value(value, metadata), append)
    # text that is not UTF-8 gets replacement characters, as in Java
    return "".join(parts).encode(errors="surrogateescape").decode(errors="replace")


def _append_json(value: Any, append: Callable[[str], None]) -> None:
    match value:
        case dict():
            append("{")
            for index, (name, item) in enumerate(value.items()):
                append(("," if index else "") + json.dumps(name, ensure_ascii=False) + ":")
                _append_json(item, append)
            append("}")
        case list():
            append("[")
            for index, item in enumerate(value):
                append("," if index else "")
                _append_json(item, append)
            append("]")
        case _:
            append(_format_scalar(value))


def _format_scalar(value: Any) -> str:
    match value:
        case None | bool() | int() | str():
            return json.dumps(value, ensure_ascii=False)
        case float():
            text = format_java_double(value, single=isinstance(value, Single))
            return text if text[-1].isdigit() else f'"{text}"'
        case Decimal():
            return format(_EXACT.normalize(value), "f")
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case Timestamp():
            return f'"{format_timestamp(value)}"'
    return f'"{value}"'


def format_timestamp(value: Timestamp) -> str:
    """Return the ISO text of a timestamp, with a blank between date and time."""
    try:
        moment = _EPOCH + timedelta(microseconds=value.micros)
    except OverflowError:
        raise_malformed(f"the timestamp {value.micros} is out of range")
    text = f"{moment:%H:%M:%S}" + (f".{moment:%f}".rstrip("0") if moment.microsecond else "")
    return f"{moment.date()} {text}" + ("+00:00" if value.has_zone else "")


def parse_json(text: str) -> tuple[bytes, bytes]:
    """Return the value and the metadata of a JSON text, by the rules of Java Paimon.

    Numbers with a fraction are decimals of up to 38 digits; numbers with an exponent, and longer
    ones, are doubles. Raises ``ValueError`` for other text and for repeated names.
    """
    try:
        parsed = json.loads(
            text,
            parse_int=_parse_integer,
            parse_float=_parse_fraction,
            parse_constant=_refuse_constant,
            object_pairs_hook=_Pairs,
        )
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    return encode_value(parsed)


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object, which may repeat names."""


def _parse_integer(text: str) -> int | Decimal | float:
    if len(text) > MAX_PRECISION + 1:
        return float(text)
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else _parse_fraction(text)


def _parse_fraction(text: str) -> Decimal | float:
    if "e" in text or "E" in text:
        return float(text)
    try:
        number = Decimal(text)
    except InvalidOperation:
        return float(text)
    _, digits, exponent = number.as_tuple()
    is_short = len(digits) <= MAX_PRECISION and -int(exponent) <= MAX_PRECISION
    return number if is_short else float(text)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not valid JSON")


def encode_value(value: Any) -> tuple[bytes, bytes]:
    """Return the value and the metadata of Python values of the kinds of :func:`decode_value`."""
    writer = _Writer()
    encoded = writer.encode(value, 0)
    metadata = encode_names(list(writer.ids))
    if max(len(encoded), len(metadata)) > _MAX_BYTES:
        raise ValueError(f"a variant has more than {_MAX_BYTES} bytes")
    return encoded, metadata


def encode_names(names: Sequence[str]) -> bytes:
    """Return the metadata dictionary of names."""
    encoded = [name.encode(errors="surrogateescape") for name in names]
    total = sum(map(len, encoded))
    width = integer_width(max(total, len(names)))
    ends = [0]
    for name in encoded:
        ends.append(ends[-1] + len(name))
    head = bytes([VERSION | (width - 1) << 6]) + len(names).to_bytes(width, "little")
    return head + b"".join(end.to_bytes(width, "little") for end in ends) + b"".join(encoded)


def integer_width(value: int) -> int:
    """Return the number of bytes, up to 4, of an unsigned integer."""
    return max(1, (value.bit_length() + 7) // 8)


def name_order(name: str) -> bytes:
    """Return the sort key of the names in an object: UTF-16 code units, as in Java."""
    return name.encode("utf-16-be", errors="surrogatepass")


@dataclass(slots=True)
class _Writer:
    ids: dict[str, int] = field(default_factory=dict)

    def encode(self, value: Any, depth: int) -> bytes:
        if depth > MAX_DEPTH:
            raise ValueError(f"a variant is nested more than {MAX_DEPTH} times")
        match value:
            case dict() | _Pairs():
                return self.encode_object(value, depth)
            case list() | tuple():
                items = [self.encode(item, depth + 1) for item in value]
                return encode_array(items)
        return encode_scalar(value)

    def encode_object(self, value: dict[str, Any] | _Pairs, depth: int) -> bytes:
        pairs = value if isinstance(value, list) else list(value.items())
        entries, data = [], bytearray()
        for name, item in pairs:
            number = self.ids.setdefault(name, len(self.ids))
            entries.append((name, number, len(data)))
            data += self.encode(item, depth + 1)
        if len({name for name, _, _ in entries}) < len(entries):
            raise ValueError("a JSON object repeats a name")
        entries.sort(key=lambda entry: name_order(entry[0]))
        id_width = integer_width(max((number for _, number, _ in entries), default=0))
        offset_width = integer_width(len(data))
        is_large = len(entries) > 0xFF
        info = is_large << 4 | (id_width - 1) << 2 | (offset_width - 1)
        head = bytearray([info << 2 | BasicType.OBJECT])
        head += len(entries).to_bytes(4 if is_large else 1, "little")
        for _, number, _ in entries:
            head += number.to_bytes(id_width, "little")
        for offset in (*(offset for _, _, offset in entries), len(data)):
            head += offset.to_bytes(offset_width, "little")
        return bytes(head + data)


def encode_array(items: Sequence[bytes]) -> bytes:
    """Return the array of encoded values."""
    total = sum(map(len, items))
    width, is_large = integer_width(total), len(items) > 0xFF
    head = bytearray([(is_large << 2 | (width - 1)) << 2 | BasicType.ARRAY])
    head += len(items).to_bytes(4 if is_large else 1, "little")
    for offset in _iterate_offsets(items):
        head += offset.to_bytes(width, "little")
    return bytes(head) + b"".join(items)


def _iterate_offsets(items: Sequence[bytes]) -> Iterator[int]:
    end = 0
    yield end
    for item in items:
        end += len(item)
        yield end


def encode_scalar(value: Any) -> bytes:
    """Return the bytes of a value that is no object and no array."""
    for kind, encode in _SCALAR_ENCODERS:
        if isinstance(value, kind):
            return encode(value)
    raise TypeError(f"{type(value).__name__} has no form in a variant")


def _encode_primitive(kind: Primitive, data: bytes = b"") -> bytes:
    return bytes([header(kind)]) + data


def _encode_text(value: str) -> bytes:
    data = value.encode(errors="surrogateescape")
    if len(data) <= MAX_SHORT_TEXT:
        return bytes([len(data) << 2 | BasicType.SHORT_TEXT]) + data
    return _encode_primitive(Primitive.TEXT, _U32.pack(len(data)) + data)


def _encode_timestamp(value: Timestamp) -> bytes:
    kind = Primitive.TIMESTAMP if value.has_zone else Primitive.TIMESTAMP_NTZ
    return _encode_primitive(kind, value.micros.to_bytes(8, "little", signed=True))


def _encode_date(value: date) -> bytes:
    days = value.toordinal() - date(1970, 1, 1).toordinal()
    return _encode_primitive(Primitive.DATE, days.to_bytes(4, "little", signed=True))


def _encode_integer(value: int) -> bytes:
    for kind in (Primitive.INT8, Primitive.INT16, Primitive.INT32, Primitive.INT64):
        width = _INTEGER_WIDTHS[kind]
        if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
            return bytes([header(kind)]) + value.to_bytes(width, "little", signed=True)
    raise ValueError(f"{value} does not fit into 64 bits")


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent > 0:
        raise ValueError(f"{value} is no decimal of a fixed scale")
    size = max(len(digits), -exponent)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    for kind, limit in (
        (Primitive.DECIMAL4, 9),
        (Primitive.DECIMAL8, 18),
        (Primitive.DECIMAL16, 38),
    ):
        if size <= limit:
            data = unscaled.to_bytes(_DECIMAL_WIDTHS[kind], "little", signed=True)
            return bytes([header(kind), -exponent]) + data
    raise ValueError(f"{value} has more than {MAX_PRECISION} digits")


_SCALAR_ENCODERS: Sequence[tuple[type, Callable[[Any], bytes]]] = (
    (type(None), lambda _: _encode_primitive(Primitive.NULL)),
    (bool, lambda value: _encode_primitive(Primitive.TRUE if value else Primitive.FALSE)),
    (int, _encode_integer),
    (Single, lambda value: _encode_primitive(Primitive.FLOAT, struct.pack("<f", value))),
    (float, lambda value: _encode_primitive(Primitive.DOUBLE, struct.pack("<d", value))),
    (Decimal, _encode_decimal),
    (str, _encode_text),
    (bytes, lambda value: _encode_primitive(Primitive.BINARY, _U32.pack(len(value)) + value)),
    (UUID, lambda value: _encode_primitive(Primitive.UUID, value.bytes)),
    (Timestamp, _encode_timestamp),
    (date, _encode_date),
)
