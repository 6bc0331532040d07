"""Reads Avro data files: fastavro decodes blocks, which are converted to columns.

See docs/format/data-files.md#orc-and-avro.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import IO, Any

import numpy as np
import pyarrow as pa

from paimon_orch.files.nested_arrays import map_key_value_types
from paimon_orch.format.arrays import Positions
from paimon_orch.format.manifest.avro_blocks import AvroContainer, BlockDecoder
from paimon_orch.format.text import encode_text
from paimon_orch.format.types.arrow import NumberedBatch, build_record_batch, to_arrow_type
from paimon_orch.format.types.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    VectorType,
    type_to_sql,
)

AvroRows = list[Mapping[str, Any]]

_ARROW_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
DECIMAL_BYTES = 16


class AvroFileReader:
    """One open Avro file. The number of rows is unknown until all blocks are read."""

    num_rows: int | None = None

    def __init__(self, source: IO[bytes], fields: Sequence[Field]) -> None:
        self._container = AvroContainer(source)
        self._schema = self._container.written_schema
        self._columns = {
            field["name"]: field["type"] for field in _find_record_schema(self._schema)["fields"]
        }
        self._types = {field.name: field.type for field in fields}
        self.names: Sequence[str] = list(self._columns)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the named columns in file order. A reader can be used once."""
        return self._build_batches(self._decode_blocks(columns, None), columns, batch_rows)

    def read_selected(
        self, columns: Sequence[str], batch_rows: int, selected: Positions
    ) -> Iterator[NumberedBatch]:
        """Yield the selected rows with their positions; blocks without them are not decoded.

        A reader can be used once.
        """
        for batch in self._build_batches(
            self._decode_blocks(columns, selected), columns, batch_rows
        ):
            yield selected[: batch.num_rows], batch
            selected = selected[batch.num_rows :]

    def _build_batches(
        self, blocks: Iterable[AvroRows], columns: Sequence[str], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        for rows in _rebatch(blocks, batch_rows):
            arrays = [
                build_array([row[name] for row in rows], self._types[name], self._columns[name])
                for name in columns
            ]
            yield build_record_batch(arrays, columns, len(rows))

    def _decode_blocks(
        self, columns: Sequence[str], selected: Positions | None
    ) -> Iterator[AvroRows]:
        """Yield the records of each block, without conversion of logical types."""
        written = _strip_logical_types(self._schema)
        record = _find_record_schema(written)
        projected = {**record, "fields": [f for f in record["fields"] if f["name"] in set(columns)]}
        read = ["null", projected] if isinstance(written, list) else projected
        decoder = BlockDecoder(written, read, handle_unicode_errors="surrogateescape")
        end = 0
        for block in self._container.read_blocks(together=False):
            first, end = end, end + block.num_records
            if selected is not None:
                low, high = np.searchsorted(selected, (first, end))
                if low == high:
                    continue
            records = decoder.decode(block)
            yield (
                records
                if selected is None
                else [records[row - first] for row in selected[low:high]]
            )
            if selected is not None and selected[-1] < end:
                return


def _rebatch(blocks: Iterable[AvroRows], batch_rows: int) -> Iterator[AvroRows]:
    pending: AvroRows = []
    for block in blocks:
        pending.extend(block)
        while len(pending) >= batch_rows:
            yield pending[:batch_rows]
            pending = pending[batch_rows:]
    if pending:
        yield pending


def _strip_logical_types(schema: Any) -> Any:
    """Return a schema without logical types, so that fastavro returns stored values."""
    if isinstance(schema, list):
        return [_strip_logical_types(part) for part in schema]
    if isinstance(schema, dict):
        return {
            key: _strip_logical_types(part) for key, part in schema.items() if key != "logicalType"
        }
    return schema


def _find_non_null_branch(schema: Any) -> Any:
    """Return the branch of a nullable union that is not null."""
    if isinstance(schema, list):
        return next(branch for branch in schema if branch != "null")
    return schema


def _find_record_schema(schema: Any) -> dict[str, Any]:
    record = _find_non_null_branch(schema)
    if not isinstance(record, dict) or record.get("type") != "record":
        raise ValueError("the root of the schema is not a record")
    return record


def build_array(values: Sequence[Any], data_type: DataType, schema: Any) -> pa.Array:
    """Return stored Avro values as a column; ``schema`` is their schema in the file."""
    schema = _find_non_null_branch(schema)
    if not isinstance(data_type, AtomicType) and not isinstance(schema, dict):
        raise ValueError(  # noqa: TRY004 - damage, not a bug
            f"the Avro type {schema!r} cannot hold values of {type_to_sql(data_type)}"
        )
    target = to_arrow_type(data_type)
    match data_type:
        case AtomicType():
            return _build_atoms(values, data_type, schema)
        case RowType(fields=fields):
            stored_types = {field["name"]: field["type"] for field in schema["fields"]}
            children = [
                build_array(
                    [None if v is None else v[f.name] for v in values], f.type, stored_types[f.name]
                )
                if f.name in stored_types
                else pa.nulls(len(values), to_arrow_type(f.type))
                for f in fields
            ]
            mask = pa.array([value is None for value in values], pa.bool_())
            return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
        case ArrayType(element=element):
            items = build_array(_flatten(values), element, schema["items"])
            return pa.ListArray.from_arrays(_build_offsets(values), items, type=target)
        case VectorType(element=element, length=length):
            items = build_array(_flatten(values), element, schema["items"])
            lists = pa.ListArray.from_arrays(_build_offsets(values), items)
            return lists.cast(pa.list_(lists.type.value_field, length)).cast(target)
        case MapType() | MultisetType():
            keys, items = _build_entries(values, data_type, schema)
            return pa.MapArray.from_arrays(_build_offsets(values), keys, items, type=target)
    raise TypeError(data_type)


def _build_entries(
    values: Sequence[Any], data_type: MapType | MultisetType, schema: Any
) -> tuple[pa.Array, pa.Array]:
    key_type, value_type = map_key_value_types(data_type)
    if schema["type"] == "map":
        keys = _flatten(values)
        items = list(chain.from_iterable(value.values() for value in values if value is not None))
        return build_array(keys, key_type, "string"), build_array(
            items, value_type, schema["values"]
        )
    entries = _flatten(values)
    types = {
        field["name"]: field["type"] for field in _find_record_schema(schema["items"])["fields"]
    }
    return (
        build_array([entry["key"] for entry in entries], key_type, types["key"]),
        build_array([entry["value"] for entry in entries], value_type, types["value"]),
    )


def _flatten(values: Sequence[Any]) -> list[Any]:
    return list(chain.from_iterable(value for value in values if value is not None))


def _build_offsets(values: Sequence[Any]) -> pa.Array:
    """Return the offset of each value; the offset of a null value is null."""
    ends = list(accumulate((len(value) if value is not None else 0 for value in values), initial=0))
    is_null = [value is None for value in values]
    return pa.array(ends, pa.int32(), mask=np.array([*is_null, False]))


def _build_atoms(values: Sequence[Any], data_type: AtomicType, schema: Any) -> pa.Array:
    target = to_arrow_type(data_type)
    match data_type.name:
        case TypeRoot.DECIMAL:
            return build_decimals(values, target)
        case TypeRoot.DATE | TypeRoot.TIME:
            return pa.array(values, pa.int32()).view(target)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            assert isinstance(target, pa.TimestampType)
            logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
            unit = _ARROW_UNITS.get(logical.rpartition("-")[2], target.unit)
            return pa.array(values, pa.int64()).view(pa.timestamp(unit, tz=target.tz))
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return _build_text(values)
    return pa.array(values, target)


def _build_text(values: Sequence[str | None]) -> pa.Array:
    """Return strings with the same bytes as in the file, which may not be UTF-8."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        encoded = [None if value is None else encode_text(value) for value in values]
        return pa.array(encoded, pa.binary()).view(pa.string())


def build_decimals(values: Sequence[bytes | None], target: pa.DataType) -> pa.Array:
    """Return big-endian unscaled numbers of any length as decimals."""
    unscaled = pa.array(values, pa.binary())
    validity, offsets_buffer, data_buffer = unscaled.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(unscaled) + 1)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.zeros(0, np.uint8)
    ends, lengths = offsets[1:], np.diff(offsets)
    if len(lengths) and lengths.max() > DECIMAL_BYTES:
        raise ValueError(
            f"a decimal has {lengths.max()} bytes; the maximum is {DECIMAL_BYTES} bytes"
        )
    little = np.zeros((len(unscaled), DECIMAL_BYTES), np.uint8)
    is_present = lengths > 0
    little[is_present] = np.where(data[offsets[:-1][is_present]] >= 0x80, 0xFF, 0)[:, None]
    for byte in range(DECIMAL_BYTES):
        has_byte = lengths > byte
        little[has_byte, byte] = data[ends[has_byte] - 1 - byte]
    return pa.Array.from_buffers(
        target, len(unscaled), [validity, pa.py_buffer(little)], unscaled.null_count
    )
