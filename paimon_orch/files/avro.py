"""Avro data files (format section 8.5): fastavro decodes blocks, columns are made of whole blocks."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import IO, Any

import fastavro
import fastavro.write
import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.nested import flat_values, map_types
from paimon_orch.format.arrow import arrow_type
from paimon_orch.format.types import (
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
    type_to_sql,
)

_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_DECIMAL_BYTES = 16
_ROOT = "org.apache.paimon.avro.generated.record"
_BLOCK_BYTES = 64_000  # as in Java
_WRITTEN_ROWS = 4_096  # turned into Python values at a time
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
_ATOMS: dict[str, Any] = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "CHAR": "string",
    "VARCHAR": "string",
    "BINARY": "bytes",
    "VARBINARY": "bytes",
    "DATE": {"type": "int", "logicalType": "date"},
}


class AvroFileReader:
    """One open Avro file. The number of rows is not known before all blocks were read."""

    num_rows: int | None = None

    def __init__(self, source: IO[bytes], fields: Sequence[Field]) -> None:
        self._blocks = fastavro.block_reader(source)  # type: ignore[arg-type]
        self._schema = json.loads(self._blocks.metadata["avro.schema"])
        self._columns = {field["name"]: field["type"] for field in _record(self._schema)["fields"]}
        self._types = {field.name: field.type for field in fields}
        self.names: Sequence[str] = list(self._columns)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the named columns in file order; it can be done once."""
        for rows in _regrouped(self._rows(columns), batch_rows):
            arrays = [
                build([row[name] for row in rows], self._types[name], self._columns[name])
                for name in columns
            ]
            yield _batch(arrays, columns, len(rows))

    def _rows(self, columns: Sequence[str]) -> Iterator[list[Mapping[str, Any]]]:
        """Decode block by block: a block is read as one array of records, values as they are stored."""
        written = _plain(self._schema)
        record = _record(written)
        wanted = {**record, "fields": [f for f in record["fields"] if f["name"] in set(columns)]}
        read = ["null", wanted] if isinstance(written, list) else wanted
        schemas = [fastavro.parse_schema({"type": "array", "items": s}) for s in (written, read)]
        for block in self._blocks:
            data = b"".join((_varint(block.num_records), block.bytes_.getvalue(), b"\0"))
            yield fastavro.schemaless_reader(io.BytesIO(data), *schemas)  # type: ignore[assignment]


def _batch(arrays: Sequence[pa.Array], names: Sequence[str], rows: int) -> pa.RecordBatch:
    if arrays:
        return pa.RecordBatch.from_arrays(list(arrays), list(names))
    empty = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(empty)


def _regrouped(
    blocks: Iterable[list[Mapping[str, Any]]], batch_rows: int
) -> Iterator[list[Mapping[str, Any]]]:
    held: list[Mapping[str, Any]] = []
    for block in blocks:
        held.extend(block)
        while len(held) >= batch_rows:
            yield held[:batch_rows]
            held = held[batch_rows:]
    if held:
        yield held


def _varint(count: int) -> bytes:
    """Encode a positive Avro long."""
    value, encoded = count << 1, bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _plain(schema: Any) -> Any:
    """Return a schema without logical types, so that fastavro hands on what is stored."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if isinstance(schema, dict):
        return {key: _plain(part) for key, part in schema.items() if key != "logicalType"}
    return schema


def _branch(schema: Any) -> Any:
    """Return what a nullable union is about."""
    return next(branch for branch in schema if branch != "null") if isinstance(schema, list) else schema


def _record(schema: Any) -> dict[str, Any]:
    record = _branch(schema)
    if not isinstance(record, dict) or record.get("type") != "record":
        raise ValueError("its schema is not a record")
    return record


def build(values: Sequence[Any], data_type: DataType, schema: Any) -> pa.Array:
    """Return stored Avro values as a column; ``schema`` is what the file says of them."""
    schema = _branch(schema)
    target = arrow_type(data_type)
    match data_type:
        case AtomicType():
            return _build_atoms(values, data_type, schema)
        case RowType(fields=fields):
            known = {field["name"]: field["type"] for field in schema["fields"]}
            children = [
                build([None if v is None else v[f.name] for v in values], f.type, known[f.name])
                if f.name in known
                else pa.nulls(len(values), arrow_type(f.type))
                for f in fields
            ]
            mask = pa.array([value is None for value in values], pa.bool_())
            return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
        case ArrayType(element=element):
            items = build(_flat(values), element, schema["items"])
            return pa.ListArray.from_arrays(_offsets(values), items, type=target)
        case MapType() | MultisetType():
            keys, items = _build_entries(values, data_type, schema)
            return pa.MapArray.from_arrays(_offsets(values), keys, items, type=target)
    raise TypeError(data_type)


def _build_entries(
    values: Sequence[Any], data_type: MapType | MultisetType, schema: Any
) -> tuple[pa.Array, pa.Array]:
    key_type, value_type = map_types(data_type)
    if schema["type"] == "map":
        keys = _flat(values)
        items = list(chain.from_iterable(value.values() for value in values if value is not None))
        return build(keys, key_type, "string"), build(items, value_type, schema["values"])
    entries = _flat(values)
    known = {field["name"]: field["type"] for field in _record(schema["items"])["fields"]}
    return (
        build([entry["key"] for entry in entries], key_type, known["key"]),
        build([entry["value"] for entry in entries], value_type, known["value"]),
    )


def _flat(values: Sequence[Any]) -> list[Any]:
    return list(chain.from_iterable(value for value in values if value is not None))


def _offsets(values: Sequence[Any]) -> pa.Array:
    """Return where each value begins; null where it is null."""
    ends = list(accumulate((len(value) if value is not None else 0 for value in values), initial=0))
    missing = [value is None for value in values]
    return pa.array(ends, pa.int32(), mask=np.array([*missing, False]))


def _build_atoms(values: Sequence[Any], data_type: AtomicType, schema: Any) -> pa.Array:
    target = arrow_type(data_type)
    match data_type.name:
        case "DECIMAL":
            return decimals(values, target)
        case "DATE" | "TIME":
            return pa.array(values, pa.int32()).view(target)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            assert isinstance(target, pa.TimestampType)
            logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
            unit = _UNITS.get(logical.rpartition("-")[2], target.unit)
            return pa.array(values, pa.int64()).view(pa.timestamp(unit, tz=target.tz))
    return pa.array(values, target)


def decimals(values: Sequence[bytes | None], target: pa.DataType) -> pa.Array:
    """Return big-endian unscaled numbers of any length as decimals."""
    stored = pa.array(values, pa.binary())
    validity, offsets_buffer, data_buffer = stored.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(stored) + 1)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.zeros(0, np.uint8)
    ends, lengths = offsets[1:], np.diff(offsets)
    if len(lengths) and lengths.max() > _DECIMAL_BYTES:
        raise ValueError(f"a decimal of {lengths.max()} bytes is too long")
    little = np.zeros((len(stored), _DECIMAL_BYTES), np.uint8)
    some = lengths > 0
    little[some] = np.where(data[offsets[:-1][some]] >= 0x80, 0xFF, 0)[:, None]
    for at in range(_DECIMAL_BYTES):
        there = lengths > at
        little[there, at] = data[ends[there] - 1 - at]
    return pa.Array.from_buffers(
        target, len(stored), [validity, pa.py_buffer(little)], stored.null_count
    )


class AvroFileWriter:
    """Writes one Avro file, with the names and logical types of the reference."""

    def __init__(
        self, sink: IO[bytes], fields: Sequence[Field], codec: str, zstd_level: int
    ) -> None:
        if codec not in _CODECS:
            raise InputError(f"'file.compression' = {codec!r}: Avro takes {', '.join(sorted(_CODECS))}")
        self._fields = list(fields)
        self._writer = fastavro.write.Writer(
            sink,
            avro_schema(fields),
            codec=_CODECS[codec],
            sync_interval=_BLOCK_BYTES,
            compression_level=zstd_level if codec == "zstd" else None,
        )

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        names = [field.name for field in self._fields]
        for batch in table.select(names).to_batches(max_chunksize=_WRITTEN_ROWS):
            columns = [
                stored_values(column, field.type)
                for column, field in zip(batch.columns, self._fields, strict=True)
            ]
            for values in zip(*columns, strict=True):
                self._writer.write(dict(zip(names, values, strict=True)))

    def close(self) -> None:
        """Write the last block."""
        self._writer.flush()


def avro_schema(fields: Sequence[Field]) -> Any:
    """Return the schema of a data file."""
    return _record_type(fields, _ROOT)


def _record_type(fields: Sequence[Field], name: str) -> dict[str, Any]:
    encoded = []
    for field in fields:
        entry = {"name": field.name, "type": _avro_type(field.type, f"{name}_{field.name}")}
        if field.type.nullable:
            entry["default"] = None
        encoded.append(entry)
    return {"type": "record", "name": name, "fields": encoded}


def _avro_type(data_type: DataType, name: str) -> Any:
    match data_type:
        case AtomicType():
            schema = _avro_atom(data_type, name)
        case RowType(fields=fields):
            schema = _record_type(fields, name)
        case ArrayType(element=element):
            schema = {"type": "array", "items": _avro_type(element, name)}
        case MapType() | MultisetType():
            schema = _avro_map(data_type, name)
        case _:
            raise TypeError(data_type)
    return ["null", schema] if data_type.nullable else schema


def _avro_map(data_type: MapType | MultisetType, name: str) -> Any:
    key, value = map_types(data_type)
    if isinstance(data_type, MultisetType):
        value = value.with_nullable(True)  # as in the reference, though counts are never null
    if isinstance(key, AtomicType) and key.name in ("CHAR", "VARCHAR"):
        return {"type": "map", "values": _avro_type(value, name)}
    entry = (Field(0, "key", key.with_nullable(False)), Field(1, "value", value))
    return {"type": "array", "logicalType": "map", "items": _record_type(entry, name)}


def _avro_atom(data_type: AtomicType, name: str) -> Any:
    precision = data_type.params[0] if data_type.params else 0
    match data_type.name:
        case "DECIMAL":
            scale = data_type.params[1]
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case "TIME" if precision <= 3:
            return {"type": "int", "logicalType": "time-millis"}
        case "TIMESTAMP" | "TIMESTAMP_LTZ" as kind if precision <= 6:
            prefix = "local-" if kind == "TIMESTAMP_LTZ" else ""  # the reference has them swapped
            unit = "millis" if precision <= 3 else "micros"
            return {"type": "long", "logicalType": f"{prefix}timestamp-{unit}"}
        case kind if kind in _ATOMS:
            return _ATOMS[kind]
    column = name.removeprefix(_ROOT + "_")
    raise UnsupportedError(
        f"column {column!r} of type {type_to_sql(data_type)}: Avro files hold TIME up to 3 and timestamps "
        "up to 6 digits; choose 'file.format' = 'parquet' or 'orc'"
    )


def stored_values(array: pa.Array, data_type: DataType) -> list[Any]:
    """Return a column as the Python values that Avro stores."""
    match data_type:
        case AtomicType():
            return _stored_atoms(array, data_type)
        case RowType(fields=fields):
            children = [stored_values(array.field(f.name), f.type) for f in fields]
            names = [field.name for field in fields]
            rows: list[Any] = [
                dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)
            ]
            return _with_nulls(rows, array)
        case ArrayType(element=element):
            flat, starts = flat_values(array)
            values = stored_values(flat, element)
            return _with_nulls([values[a:b] for a, b in pairwise(starts)], array)
        case MapType() | MultisetType():
            return _stored_maps(array, data_type)
    raise TypeError(data_type)


def _stored_maps(array: pa.Array, data_type: MapType | MultisetType) -> list[Any]:
    flat, starts = flat_values(array)
    kinds = map_types(data_type)
    keys, items = (stored_values(flat.field(at), kind) for at, kind in enumerate(kinds))
    pairs = list(zip(keys, items, strict=True))
    if pa.types.is_string(flat.type.field(0).type):
        maps: list[Any] = [dict(pairs[a:b]) for a, b in pairwise(starts)]
    else:
        entries = [{"key": key, "value": item} for key, item in pairs]
        maps = [entries[a:b] for a, b in pairwise(starts)]
    return _with_nulls(maps, array)


def _with_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    if not array.null_count:
        return values
    valid = array.is_valid().to_pylist()
    return [value if there else None for value, there in zip(values, valid, strict=True)]


def _stored_atoms(array: pa.Array, data_type: AtomicType) -> list[Any]:
    match data_type.name:
        case "DECIMAL":
            values: list[Any] = [unscaled_bytes(value) for value in _unscaled(array)]
            return _with_nulls(values, array)
        case "DATE" | "TIME":
            return array.view(pa.int32()).to_pylist()
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return array.view(pa.int64()).to_pylist()
    return array.to_pylist()


def _unscaled(array: pa.Array) -> Iterator[int]:
    stored = memoryview(array.buffers()[1] or b"")
    for at in range(array.offset, array.offset + len(array)):
        number = stored[at * _DECIMAL_BYTES : (at + 1) * _DECIMAL_BYTES]
        yield int.from_bytes(number, "little", signed=True)


def unscaled_bytes(value: int) -> bytes:
    """Return a whole number in as few bytes as Java takes."""
    bits = value.bit_length() if value >= 0 else (value + 1).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)
