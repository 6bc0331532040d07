"""Writes Avro data files.

The root is a record, not a union with null as in Java Paimon. All readers support both, except that
pypaimon-rust reads the union as nulls.

See docs/format/data-files.md#orc-and-avro.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import IO, Any

import fastavro
import fastavro.write
import pyarrow as pa

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.avro_reader import DECIMAL_BYTES
from paimon_orch.files.nested_arrays import flatten_values, map_key_value_types
from paimon_orch.format.row.binary_row import encode_minimal_int
from paimon_orch.format.types.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    VariantType,
    VectorType,
    type_to_sql,
)

_ROOT = "org.apache.paimon.avro.generated.record"
_BLOCK_BYTES = 64_000  # the block size of Java Paimon
_ROWS_PER_BATCH = 4_096  # rows converted to Python values at a time
_CODECS = {
    "zstd": "zstandard",
    "snappy": "snappy",
    "gzip": "deflate",
    "deflate": "deflate",
    "bzip2": "bzip2",
    "xz": "xz",
    "none": "null",
    "uncompressed": "null",
    "null": "null",
}
_ATOM_TYPES: dict[str, Any] = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.CHAR: "string",
    TypeRoot.VARCHAR: "string",
    TypeRoot.BINARY: "bytes",
    TypeRoot.VARBINARY: "bytes",
    TypeRoot.DATE: {"type": "int", "logicalType": "date"},
}


class AvroFileWriter:
    """Writes one Avro file, with the names and logical types of Java Paimon."""

    def __init__(
        self, sink: IO[bytes], fields: Sequence[Field], codec: str, zstd_level: int
    ) -> None:
        if codec not in _CODECS:
            raise InputError(
                f"'file.compression' = {codec!r}: Avro supports {', '.join(sorted(_CODECS))}"
            )
        self._fields = list(fields)
        self._writer = fastavro.write.Writer(
            sink,
            build_avro_schema(fields),
            codec=_CODECS[codec],
            sync_interval=_BLOCK_BYTES,
            compression_level=zstd_level if codec == "zstd" else None,
        )
        # Text and bytes have the same encoding. Writing bytes is slower, so they are used only for
        # text that is not valid UTF-8.
        self._text_schema = self._writer.schema
        self._bytes_schema = fastavro.parse_schema(
            _replace_text_by_bytes(build_avro_schema(fields), _ROOT)
        )

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        names = [field.name for field in self._fields]
        for batch in table.select(names).to_batches(max_chunksize=_ROWS_PER_BATCH):
            try:
                columns = self._encode_columns(batch, raw=False)
                self._writer.schema = self._text_schema
            except UnicodeDecodeError:
                columns = self._encode_columns(batch, raw=True)
                self._writer.schema = self._bytes_schema
            for values in zip(*columns, strict=True):
                self._writer.write(dict(zip(names, values, strict=True)))

    def _encode_columns(self, batch: pa.RecordBatch, *, raw: bool) -> list[list[Any]]:
        return [
            encode_values(column, field.type, raw=raw)
            for column, field in zip(batch.columns, self._fields, strict=True)
        ]

    def close(self) -> None:
        """Write the last block."""
        self._writer.flush()


def _replace_text_by_bytes(schema: Any, name: str) -> Any:
    """Return a schema of the same encoding, with bytes for text and lists of entries for maps."""
    match schema:
        case "string":
            return "bytes"
        case list():
            return [_replace_text_by_bytes(branch, name) for branch in schema]
        case {"type": "record"}:
            fields = [
                {"name": f["name"], "type": _replace_text_by_bytes(f["type"], f"{name}_{index}")}
                for index, f in enumerate(schema["fields"])
            ]
            return {"type": "record", "name": name, "fields": fields}
        case {"type": "array"}:
            return {"type": "array", "items": _replace_text_by_bytes(schema["items"], name)}
        case {"type": "map"}:
            value = _replace_text_by_bytes(schema["values"], f"{name}_value")
            entry = [{"name": "key", "type": "bytes"}, {"name": "value", "type": value}]
            items = {"type": "record", "name": name, "fields": entry}
            return {"type": "array", "items": items}
        case {"logicalType": _}:
            return schema["type"]
    return schema


def build_avro_schema(fields: Sequence[Field]) -> Any:
    """Return the schema of a data file."""
    return _build_record_type(fields, _ROOT)


def _build_record_type(fields: Sequence[Field], name: str) -> dict[str, Any]:
    encoded = []
    for field in fields:
        entry = {"name": field.name, "type": _build_type(field.type, f"{name}_{field.name}")}
        if field.type.nullable:
            entry["default"] = None
        encoded.append(entry)
    return {"type": "record", "name": name, "fields": encoded}


def _build_type(data_type: DataType, name: str) -> Any:
    match data_type:
        case AtomicType():
            schema = _build_atom_type(data_type, name)
        case VariantType():
            column = name.removeprefix(_ROOT + "_")
            raise UnsupportedError(
                f"column {column!r} of type {type_to_sql(data_type)}: Avro does not support "
                "VARIANT; choose 'file.format' = 'parquet'"
            )
        case RowType(fields=fields):
            schema = _build_record_type(fields, name)
        case ArrayType(element=element) | VectorType(element=element):
            schema = {"type": "array", "items": _build_type(element, name)}
        case MapType() | MultisetType():
            schema = _build_map_type(data_type, name)
        case _:
            raise TypeError(data_type)
    return ["null", schema] if data_type.nullable else schema


def _build_map_type(data_type: MapType | MultisetType, name: str) -> Any:
    key, value = map_key_value_types(data_type)
    if isinstance(data_type, MultisetType):
        # in files of Java Paimon, the type of counts is nullable
        value = value.with_nullable(True)
    if isinstance(key, AtomicType) and key.name in (TypeRoot.CHAR, TypeRoot.VARCHAR):
        return {"type": "map", "values": _build_type(value, name)}
    entry = (
        Field(id=0, name="key", type=key.with_nullable(False)),
        Field(id=1, name="value", type=value),
    )
    return {"type": "array", "logicalType": "map", "items": _build_record_type(entry, name)}


def _build_atom_type(data_type: AtomicType, name: str) -> Any:
    precision = data_type.params[0] if data_type.params else 0
    match data_type.name:
        case TypeRoot.DECIMAL:
            scale = data_type.params[1]
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": precision,
                "scale": scale,
            }
        case TypeRoot.TIME if precision <= 3:
            return {"type": "int", "logicalType": "time-millis"}
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ as kind if precision <= 6:
            # Java Paimon swaps the logical types of timestamps with and without time zone
            prefix = "local-" if kind == TypeRoot.TIMESTAMP_LTZ else ""
            unit = "millis" if precision <= 3 else "micros"
            return {"type": "long", "logicalType": f"{prefix}timestamp-{unit}"}
        case kind if kind in _ATOM_TYPES:
            return _ATOM_TYPES[kind]
    column = name.removeprefix(_ROOT + "_")
    raise UnsupportedError(
        f"column {column!r} of type {type_to_sql(data_type)}: Avro supports TIME with up to 3 and "
        "timestamps with up to 6 fractional digits; choose 'file.format' = 'parquet'"
    )


def encode_values(array: pa.Array, data_type: DataType, *, raw: bool) -> list[Any]:
    """Return a column as the Python values that Avro stores; with ``raw`` text is bytes."""
    match data_type:
        case AtomicType():
            return _encode_atoms(array, data_type, raw=raw)
        case RowType(fields=fields):
            children = [encode_values(array.field(f.name), f.type, raw=raw) for f in fields]
            names = [field.name for field in fields]
            rows: list[Any] = [
                dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)
            ]
            return _with_nulls(rows, array)
        case ArrayType(element=element) | VectorType(element=element):
            flat, starts = flatten_values(array)
            values = encode_values(flat, element, raw=raw)
            return _with_nulls([values[a:b] for a, b in pairwise(starts)], array)
        case MapType() | MultisetType():
            return _encode_maps(array, data_type, raw=raw)
    raise TypeError(data_type)


def _encode_maps(array: pa.Array, data_type: MapType | MultisetType, *, raw: bool) -> list[Any]:
    flat, starts = flatten_values(array)
    kinds = map_key_value_types(data_type)
    keys, items = (
        encode_values(flat.field(index), kind, raw=raw) for index, kind in enumerate(kinds)
    )
    pairs = list(zip(keys, items, strict=True))
    if pa.types.is_string(flat.type.field(0).type) and not raw:
        maps: list[Any] = [dict(pairs[a:b]) for a, b in pairwise(starts)]
    else:
        entries = [{"key": key, "value": item} for key, item in pairs]
        maps = [entries[a:b] for a, b in pairwise(starts)]
    return _with_nulls(maps, array)


def _with_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    if not array.null_count:
        return values
    valid = array.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]


def _encode_atoms(array: pa.Array, data_type: AtomicType, *, raw: bool) -> list[Any]:
    match data_type.name:
        case TypeRoot.DECIMAL:
            return _with_nulls(
                [encode_minimal_int(value) for value in _read_unscaled(array)], array
            )
        case TypeRoot.DATE | TypeRoot.TIME:
            array = array.view(pa.int32())
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            array = array.view(pa.int64())
        case TypeRoot.CHAR | TypeRoot.VARCHAR if raw:
            array = array.view(pa.binary())
    values: list[Any] = array.to_pylist()
    return values


def _read_unscaled(array: pa.Array) -> Iterator[int]:
    data = memoryview(array.buffers()[1] or b"")
    for index in range(array.offset, array.offset + len(array)):
        number = data[index * DECIMAL_BYTES : (index + 1) * DECIMAL_BYTES]
        yield int.from_bytes(number, "little", signed=True)
