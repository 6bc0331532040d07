"""Values of columns as bounds and as partition values of Iceberg metadata.

Values are internal, as :mod:`paimon_orch.format.row.binary_row` describes them.

See docs/format/iceberg-metadata.md#column-bounds.
"""

import struct
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.row.binary_row import encode_minimal_int, to_unscaled_int
from paimon_orch.format.text import decode_text, encode_text, is_utf8
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot, type_to_sql

_BOOLEAN, _INT, _LONG = struct.Struct("<?"), struct.Struct("<i"), struct.Struct("<q")
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_STRUCTS = {
    TypeRoot.BOOLEAN: _BOOLEAN,
    TypeRoot.TINYINT: _INT,
    TypeRoot.SMALLINT: _INT,
    TypeRoot.INT: _INT,
    TypeRoot.DATE: _INT,
    TypeRoot.BIGINT: _LONG,
    TypeRoot.FLOAT: _FLOAT,
    TypeRoot.DOUBLE: _DOUBLE,
}
_NARROWER_STRUCTS = {TypeRoot.BIGINT: _INT, TypeRoot.DOUBLE: _FLOAT}
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BINARIES = (TypeRoot.BINARY, TypeRoot.VARBINARY)


def encode_single_value(value: Any, data_type: DataType) -> bytes:
    """Encode a value that is not null in the single-value form of bounds."""
    return get_value_encoder(data_type)(value)


def get_value_encoder(data_type: DataType) -> Callable[[Any], bytes]:
    """Return :func:`encode_single_value` for one type, for many values.

    Raises :class:`UnsupportedError` for types without this form.
    """
    name, params = _check_atomic(data_type)
    if name in _STRUCTS:
        return _STRUCTS[name].pack
    if name in _TEXTS:
        return encode_text
    if name in _BINARIES:
        return bytes
    if name == TypeRoot.DECIMAL:
        return lambda value: encode_minimal_int(to_unscaled_int(value, params[1]))
    if _micros_per_unit(name, params) == 1:
        return _LONG.pack
    return lambda value: _LONG.pack(value * 1_000)


def decode_single_value(data: bytes, data_type: DataType) -> Any:
    """Decode a bound; the inverse of :func:`encode_single_value`.

    A bound of a column that was INT or FLOAT and is now BIGINT or DOUBLE is shorter than others.
    Raises ``struct.error`` or ``ValueError`` for other sizes.
    """
    name, params = _check_atomic(data_type)
    if name in _STRUCTS:
        narrower = _NARROWER_STRUCTS.get(name)
        is_narrower = narrower is not None and len(data) == narrower.size
        return (narrower if narrower and is_narrower else _STRUCTS[name]).unpack(data)[0]
    if name in _TEXTS:
        return decode_text(data)
    if name in _BINARIES:
        return data
    if name == TypeRoot.DECIMAL:
        if not data:
            raise ValueError("a decimal must have at least one byte")
        with localcontext(prec=76):
            return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-params[1])
    return _LONG.unpack(data)[0] // _micros_per_unit(name, params)


def encode_partition_value(value: Any, data_type: DataType) -> Any:
    """Return a value of a partition column as the Avro writer takes it.

    DATE is the number of days, TIMESTAMP of microseconds: the writer stores them unchanged in
    fields with a logical type.

    Raises :class:`UnsupportedError` for text that is not valid UTF-8, because Avro has no other.
    """
    if value is None:
        return None
    name, params = _check_atomic(data_type)
    if name == TypeRoot.TIMESTAMP:
        return value * _micros_per_unit(name, params)
    if name in _TEXTS and not is_utf8(value):
        raise UnsupportedError(
            f"partition value {encode_text(value)!r} is not valid UTF-8, which Iceberg metadata "
            "requires; write its rows to a partition with another value, and drop this one"
        )
    return value


def decode_partition_value(value: Any, data_type: DataType) -> Any:
    """Return the value of a partition column; the inverse of :func:`encode_partition_value`."""
    if value is None:
        return None
    name, params = _check_atomic(data_type)
    if name == TypeRoot.TIMESTAMP:
        return value // _micros_per_unit(name, params)
    return value


def _check_atomic(data_type: DataType) -> tuple[TypeRoot, tuple[int, ...]]:
    if not isinstance(data_type, AtomicType):
        raise UnsupportedError(f"values of type {type_to_sql(data_type)} have no bounds in Iceberg")
    return data_type.name, data_type.params


def _micros_per_unit(name: TypeRoot, params: tuple[int, ...]) -> int:
    """Return the microseconds of one unit of an internal TIME or TIMESTAMP value."""
    if name == TypeRoot.TIME or params[0] <= 3:
        return 1_000
    if params[0] <= 6:
        return 1
    raise UnsupportedError(
        f"{name}({params[0]}) has nanoseconds, but Iceberg timestamps have microseconds"
    )
