"""Encodes and decodes the records of manifests in Avro, ORC and Parquet files.

The first bytes identify the format of a file. Java Paimon reads all manifests of a table by the
option ``manifest.format``, so the option must not change.
"""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from paimon_orch.decode_limits import check_decoded_bytes
from paimon_orch.errors import InputError, UnsupportedError, wrap_decode_errors
from paimon_orch.format.manifest import avro_container as avro
from paimon_orch.format.manifest.additional_fields import KnownFields, find_unknown_fields
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import MANIFEST_COMPRESSION, MANIFEST_FORMAT
from paimon_orch.format.orc.orc_metadata import OrcTail, check_postscript
from paimon_orch.format.orc.orc_streams import OrcStreamCheck

_PARQUET_MAGIC = b"PAR1"
_ORC_MAGIC = b"ORC"


MAGIC_BYTES = 4
"""The number of first bytes that :func:`find_format` needs."""


def find_format(head: bytes) -> str:
    """Return the value of ``manifest.format`` for a file with these first bytes."""
    if head.startswith(_PARQUET_MAGIC):
        return "parquet"
    return "orc" if head.startswith(_ORC_MAGIC) else "avro"


AVRO_CODECS = ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")
"""The compressions of Avro files of metadata."""
_ARROW_NAMES = ("null", "uncompressed", "deflate", "gzip", "snappy", "lz4", "zstandard")
_CODECS = {
    "avro": AVRO_CODECS,
    "orc": (*_ARROW_NAMES, "zlib"),
    "parquet": (*_ARROW_NAMES, "lz4_raw", "brotli"),
}


@dataclass(frozen=True, slots=True)
class ManifestEncoding:
    """How manifests are written."""

    format: str = "avro"
    """``avro``, ``orc`` or ``parquet``."""

    codec: str = "zstandard"
    """The Avro name of the compression."""

    level: int = 1

    @classmethod
    def of(cls, options: Options) -> "ManifestEncoding":
        """Return the encoding that the options of a table name.

        Raises :class:`InputError` for a compression that the format does not have.
        """
        encoding = cls(options.get(MANIFEST_FORMAT), options.manifest_codec, options.zstd_level)
        codecs = _CODECS[encoding.format]
        if encoding.codec not in codecs:
            raise InputError(
                f"the compression {encoding.codec!r} of '{MANIFEST_COMPRESSION.key}' or 'avro.codec' "
                f"must be one of {', '.join(codecs)} for manifests in the format {encoding.format}"
            )
        return encoding


AVRO_ENCODING = ManifestEncoding()
"""The default of tables."""


def encode_records(
    schema: Any, records: Iterable[dict[str, Any]], encoding: ManifestEncoding
) -> bytes:
    """Return a manifest, manifest list or index manifest; ``schema`` is its Avro schema.

    Raises :class:`UnsupportedError` for numbers that its type cannot store.
    """
    try:
        return _encode_records(schema, records, encoding)
    except OverflowError as error:
        raise UnsupportedError(
            f"the metadata cannot be written, because a number is too large ({error}); it follows "
            "from a number in the table, such as the largest sequence number. Nothing was committed"
        ) from error


def _encode_records(
    schema: Any, records: Iterable[dict[str, Any]], encoding: ManifestEncoding
) -> bytes:
    if encoding.format == "avro":
        return avro.encode_avro_file(schema, records, encoding.codec, encoding.level)
    root = _to_arrow_type(schema, {})
    table = pa.Table.from_pylist([*records], pa.schema([*root]))
    sink = io.BytesIO()
    name = _ARROW_CODECS.get(encoding.codec, encoding.codec)
    if encoding.format == "parquet":
        import pyarrow.parquet as pq

        level = encoding.level if name == "zstd" else None
        pq.write_table(table, sink, compression=name, compression_level=level, store_schema=False)
    else:
        from pyarrow import orc

        orc.write_table(table, sink, compression=_ORC_CODECS.get(name, name))
    return sink.getvalue()


def _to_arrow_type(avro_type: Any, named: dict[str, pa.DataType], name: str = "") -> pa.DataType:
    """Return the type of ORC and Parquet files for a type of Avro, as Java Paimon writes it."""
    if isinstance(avro_type, list):
        avro_type = next(each for each in avro_type if each != "null")
    if isinstance(avro_type, str):
        if name in _TINYINT_FIELDS:
            return pa.int8()
        return _ARROW_TYPES.get(avro_type) or named[avro_type]
    kind = avro_type["type"]
    if kind == "record":
        fields = [
            pa.field(
                field["name"],
                _to_arrow_type(field["type"], named, field["name"]),
                nullable=isinstance(field["type"], list),
            )
            for field in avro_type["fields"]
        ]
        names = {field.name for field in fields}
        further = _FURTHER_FIELDS.get(avro_type["name"], ())
        fields += [field for field in further if field.name not in names]
        named[avro_type["name"]] = pa.struct(fields)
        return named[avro_type["name"]]
    if kind == "array":
        items = avro_type["items"]
        is_nullable = isinstance(items, list)
        return pa.list_(pa.field("element", _to_arrow_type(items, named), nullable=is_nullable))
    if avro_type.get("logicalType") is not None:
        return pa.timestamp("ms")
    return _to_arrow_type(kind, named, name)


_TINYINT_FIELDS = ("_KIND", "_FILE_SOURCE")
_FURTHER_FIELDS = {"record__GLOBAL_INDEX": [pa.field("_SOURCE_META", pa.binary())]}
"""Fields that Avro manifests have only if they are used; Java requires them in Parquet."""

_BATCH_ROWS = 1_024
_ROW_BYTES = 2_000
"""The memory of a record and its fields as Python objects."""

_ARROW_TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
}
_ARROW_CODECS = {
    "zstandard": "zstd",
    "null": "none",
    "uncompressed": "none",
    "deflate": "gzip",
}
_ORC_CODECS = {"none": "uncompressed", "gzip": "zlib"}


def decode_records(data: bytes, path: str, known_fields: KnownFields) -> avro.DecodedRecords:
    """Return all records of a manifest, manifest list or index manifest.

    Error messages contain ``path``.

    Records also include unknown fields, whose definitions are returned separately.
    """
    with wrap_decode_errors(path):
        if data.startswith(_PARQUET_MAGIC):
            from paimon_orch.files.parquet import Footer, read_batches

            schema = Footer(io.BytesIO(data)).metadata.schema.to_arrow_schema()
            batches = read_batches(io.BytesIO(data), _BATCH_ROWS)
            table = _read_batches(batches, schema, len(data))
        elif data.startswith(_ORC_MAGIC):
            from pyarrow import orc

            check_postscript(io.BytesIO(data))
            file = orc.ORCFile(io.BytesIO(data))
            check_decoded_bytes(
                _ROW_BYTES * file.nrows, len(data), f"the file declares {file.nrows} records"
            )
            _check_stripes(data, file)
            batches = (file.read_stripe(number) for number in range(file.nstripes))
            table = _read_batches(batches, file.schema, len(data))
        else:
            return avro.decode_avro_file(data, path, known_fields)
        return avro.DecodedRecords(
            table.to_pylist(), find_unknown_fields(known_fields, _to_avro_structure(table.schema))
        )


def _check_stripes(data: bytes, file: Any) -> None:
    """Raise ``ValueError`` for stripes of an open ORC file that need too much memory."""
    source, tail = io.BytesIO(data), OrcTail(file.reader.serialized_file_tail())
    tail.check_types()
    check = OrcStreamCheck(source, tail, tail.find_columns(set(file.schema.names)), len(data))
    for stripe in tail.stripes:
        longest = check.check(stripe, tail.read_footer(source, stripe))
        content = f"{stripe.rows} records can have texts of {longest} bytes each"
        check_decoded_bytes(longest * stripe.rows, len(data), content)


def _read_batches(
    batches: "Iterable[pa.RecordBatch]", schema: "pa.Schema", stored_bytes: int
) -> "pa.Table":
    """Return the records; a few bytes can encode any number of equal ones."""
    read, needed = list[pa.RecordBatch](), 0
    for batch in batches:
        needed += batch.nbytes + _ROW_BYTES * batch.num_rows
        check_decoded_bytes(needed, stored_bytes, f"{needed} bytes of records were decoded")
        read.append(batch)
    return pa.Table.from_batches(read, schema)


def _to_avro_structure(columns: "pa.Schema | pa.DataType") -> Any:
    """Return the fields as an Avro schema; a type that cannot be preserved is None."""
    if isinstance(columns, pa.Schema | pa.StructType):
        fields = [{"name": field.name, "type": _to_avro_structure(field.type)} for field in columns]
        return {"type": "record", "name": "", "fields": fields}
    if isinstance(columns, pa.ListType):
        return {"type": "array", "items": _to_avro_structure(columns.value_type)}
    simple = {kind: name for name, kind in _ARROW_TYPES.items()}
    name = "int" if columns == pa.int8() else simple.get(columns)
    return None if name is None else avro.union_with_null(name)
