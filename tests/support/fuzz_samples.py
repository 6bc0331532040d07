"""A sample for each decoder of stored bytes, and the reads that an attacker can reach with it."""

from __future__ import annotations

import io
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from struct import pack, unpack

import numpy as np
import pyarrow as pa
from support.decoder_samples import DECODERS, INDEXES
from support.golden import GOLDEN

from paimon_orch.errors import wrap_decode_errors
from paimon_orch.files.blob.blob_descriptor import BlobDescriptor, encode_descriptors
from paimon_orch.files.blob.blob_file import MAGIC, RECORD_BYTES, VERSION
from paimon_orch.files.blob.blob_writer import encode_lengths
from paimon_orch.files.file_format import open_reader, open_writer
from paimon_orch.files.parquet.parquet import ParquetFileReader
from paimon_orch.files.parquet.thrift_compact import STRUCT, ValueSpan, find_values
from paimon_orch.files.row_selection import read_file_rows, read_parquet_rows
from paimon_orch.files.variant_access import variant_get
from paimon_orch.format.bucket.hash_index import decode_hash_index, encode_hash_index
from paimon_orch.format.deleted_row_mask import DeletedRowMask
from paimon_orch.format.deletion_vector import DeletionVector, decode_deletion_vector_payload
from paimon_orch.format.file_index.build import FileIndexBuilder
from paimon_orch.format.file_index.container import ByteSource, decode_container
from paimon_orch.format.file_index.evaluation import evaluate_rows
from paimon_orch.format.file_index.index_options import parse_index_specs
from paimon_orch.format.file_index.index_query import IndexFilter, StoredColumn
from paimon_orch.format.global_index.bitmap_file import encode_bitmaps
from paimon_orch.format.global_index.bitmap_reader import BitmapReader
from paimon_orch.format.global_index.btree_file import encode_btree
from paimon_orch.format.global_index.btree_reader import BTreeReader
from paimon_orch.format.global_index.key_ranges import KeyRange, decode_key
from paimon_orch.format.global_index.sorted_column import decode_key_bounds, sort_column
from paimon_orch.format.iceberg import iceberg_manifest, iceberg_manifest_list
from paimon_orch.format.manifest.additional_fields import AdditionalFields
from paimon_orch.format.manifest.columnar_manifest import ColumnarManifest
from paimon_orch.format.manifest.index_manifest import SOURCE_META
from paimon_orch.format.manifest.index_source import (
    IndexSource,
    decode_index_source,
    decode_source_snapshot,
)
from paimon_orch.format.manifest.manifest_entry import decode_manifest
from paimon_orch.format.options import Options
from paimon_orch.format.row.binary_row import deserialize_row, serialize_row
from paimon_orch.format.table_statistics import TableStatistics
from paimon_orch.format.types.arrow import VARIANT_TYPE
from paimon_orch.format.types.data_types import AtomicType, TypeRoot, parse_columns
from paimon_orch.format.types.predicate import Leaf, Operator
from paimon_orch.format.variant.value import parse_json, to_json_text

Decode = Callable[[bytes], object]
FILE = "db.db/t/some/file"
ROWS = 1_000
FIELDS = parse_columns("k BIGINT, v STRING")
BIGINT = AtomicType(True, TypeRoot.BIGINT)
EXTREMES = [
    b"\xff" * 8,
    b"\xff" * 7 + b"\x7f",
    b"\x7f" + b"\xff" * 7,
    b"\0" * 8,
    b"\x80" * 9 + b"\1",
]


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return the bytes with some changes."""
    changed = bytearray(data)
    for _ in range(source.choice([1, 1, 2, 4])):
        place = source.randrange(len(changed) + 1)
        match source.randrange(5):
            case 0 if place < len(changed):
                changed[place] ^= 1 << source.randrange(8)
            case 1:
                extreme = source.choice(EXTREMES)
                changed[place : place + len(extreme)] = extreme
            case 2:
                del changed[place : place + source.randrange(1, 9)]
            case 3:
                changed[place:place] = source.randbytes(source.randrange(1, 9))
            case _:
                other = source.randrange(len(changed) + 1)
                size = source.randrange(1, 40)
                changed[place : place + size] = changed[other : other + size]
    return bytes(changed)


def read_vector(data: bytes) -> object:
    """Read the positions and the mask of a deletion vector."""
    vector = decode_deletion_vector_payload(data, FILE)
    vector.check_rows(200_000, FILE)
    return vector.positions(), DeletedRowMask.of(vector).build_live_mask(0, 200_000)


def build_container() -> bytes:
    """Return the file indexes of two columns."""
    options = {f"file-index.{kind}.columns": "k,v" for kind in ("bloom-filter", "bitmap")}
    options |= {f"file-index.{kind}.columns": "k" for kind in ("bsi", "range-bitmap")}
    options |= {"file-index.bloom-filter.k.items": "100", "file-index.bloom-filter.v.items": "100"}
    builder = FileIndexBuilder(parse_index_specs(options), FIELDS)
    values = pa.array([n % 50 if n % 7 else None for n in range(ROWS)], pa.int64())
    builder.add(pa.table({"k": values, "v": values.cast(pa.string())}))
    return builder.finish()


def query_container(data: bytes) -> object:
    """Query all file indexes."""
    types = {field.name: field.type for field in FIELDS}
    columns = {n: StoredColumn(n, t) for n, t in types.items() if isinstance(t, AtomicType)}
    constants = {"k": pa.scalar(5, pa.int64()), "v": pa.scalar("5")}
    with wrap_decode_errors(FILE):
        indexes = decode_container(ByteSource.of(data))
        return [
            evaluate_rows(
                IndexFilter(Leaf(name, op, (constants[name],))), indexes, columns.get, ROWS
            )
            for name in columns
            for op in (Operator.EQUAL, Operator.NOT_EQUAL, Operator.GREATER)
        ]


KEYS = sort_column([pa.array([n % 90 if n % 8 else None for n in range(ROWS)], pa.int64())], BIGINT)


def repair_checksums(data: bytes) -> bytes:
    """Return a btree file with a right checksum of the index block, if its place is inside."""
    if len(data) > 52:
        offset, size = unpack("<qi", data[-32:-20])
        if 0 <= offset < offset + size + 5 <= len(data):
            checksum = pack("<I", zlib.crc32(data[offset : offset + size + 1]))
            return data[: offset + size + 1] + checksum + data[offset + size + 5 :]
    return data


def read_btree(data: bytes) -> object:
    """Read a btree file."""
    with wrap_decode_errors(FILE):
        reader = BTreeReader(ByteSource.of(repair_checksums(data)), BIGINT, ROWS)
        return reader.find_rows([KeyRange(3, 7)]), reader.find_null_rows(), reader.read_column()


def read_bitmaps(data: bytes) -> object:
    """Read a bitmap file."""
    with wrap_decode_errors(FILE):
        reader = BitmapReader(ByteSource.of(data), BIGINT, ROWS)
        return reader.find_rows([KeyRange(3, 7)]), reader.find_null_rows(), reader.read_column()


VALUE, METADATA = parse_json(
    '{"a": [1, 2.5, "text", {"b": null}], "c": {"a": true}, "long": "%s"}' % ("x" * 99)
)


def read_variant(data: bytes) -> object:
    """Read a variant and its values; the first bytes are its metadata."""
    value, metadata = data[len(METADATA) :], data[: len(METADATA)]
    column = pa.array([{"value": value, "metadata": metadata}], VARIANT_TYPE)
    with wrap_decode_errors(FILE):
        text = to_json_text(value, metadata)
        return text, [variant_get(column, path, "STRING") for path in ("$.a[1]", "$.c.a", "$.long")]


ROW_TYPES = [field.type for field in parse_columns(
    "a INT, b STRING, c DECIMAL(30, 2), d TIMESTAMP(9), e BYTES, f DOUBLE"
)]  # fmt: skip


def read_row(data: bytes) -> object:
    """Read a binary row."""
    with wrap_decode_errors(FILE):
        return deserialize_row(data, ROW_TYPES)


def read_thrift(data: bytes) -> object:
    """Read all values of a Thrift struct."""
    with wrap_decode_errors(FILE):
        return list(find_values(data, ValueSpan(STRUCT, 0, len(data))))


DATA_FIELDS = parse_columns(
    "k BIGINT, v STRING, l ARRAY<INT>, m MAP<STRING, DOUBLE>, s ROW<a DECIMAL(20, 2), "
    "b TIMESTAMP(3)>, c BOOLEAN, d BYTES"
)
DATA_ROWS = 300
DATA_TABLE = pa.table(
    {
        "k": pa.array(range(DATA_ROWS), pa.int64()),
        "v": pa.array([None if n % 7 == 0 else f"text {n % 20}" for n in range(DATA_ROWS)]),
        "l": pa.array([list(range(n % 4)) for n in range(DATA_ROWS)], pa.list_(pa.int32())),
        "m": pa.array(
            [[("x", n / 3)] if n % 3 else None for n in range(DATA_ROWS)],
            pa.map_(pa.string(), pa.float64()),
        ),
        "s": pa.array(
            [{"a": Decimal(n), "b": 1_700_000_000_000 + n} for n in range(DATA_ROWS)],
            pa.struct({"a": pa.decimal128(20, 2), "b": pa.timestamp("ms")}),
        ),
        "c": pa.array([n % 5 == 0 for n in range(DATA_ROWS)]),
        "d": pa.array([bytes([n % 256]) * (n % 9) for n in range(DATA_ROWS)], pa.binary()),
    }
)
SELECTED = np.array([3, 4, 250])


def build_data_file(kind: str, codec: str, *, small_pages: bool = False) -> bytes:
    """Return a data file of two row groups, blocks or stripes."""
    sink = io.BytesIO()
    options = Options({"file.compression": codec})
    writer = open_writer(sink, kind, DATA_FIELDS, options, 0, 1 << 20, small_pages=small_pages)
    writer.write(DATA_TABLE.slice(0, 200))
    writer.write(DATA_TABLE.slice(200))
    writer.close()
    return sink.getvalue()


def read_data_file(kind: str) -> Decode:
    """Return a function that reads all rows of a data file, and some rows."""

    def read(data: bytes) -> object:
        path, rows = f"{FILE}.{kind}", 0
        with wrap_decode_errors(path):
            reader = open_reader(io.BytesIO(data), path, DATA_FIELDS)
            names = [name for name in DATA_TABLE.column_names if name in reader.names]
            for batch in reader.batches(names, 128):
                batch.validate(full=True)
                rows += batch.num_rows
            reader = open_reader(io.BytesIO(data), path, DATA_FIELDS)
            if isinstance(reader, ParquetFileReader):
                groups = range(reader.num_row_groups)
                reader.find_dictionary_columns()
                for group in groups:
                    reader.row_group_statistics(group, "k")
                selection = read_parquet_rows(
                    reader,
                    path,
                    columns=names,
                    batch_rows=128,
                    groups=groups,
                    selected=SELECTED,
                )
            else:
                selection = read_file_rows(reader, names, 128, SELECTED)
            return rows, sum(batch.num_rows for _, batch in selection)

    return read


def build_blob_file() -> bytes:
    """Return a BLOB file of three values, a null and a placeholder."""
    records, lengths = b"", []
    for content in (b"a", b"", b"long" * 50):
        length = RECORD_BYTES + len(content)
        body = MAGIC + content + length.to_bytes(8, "little")
        records += body + zlib.crc32(body).to_bytes(4, "little")
        lengths.append(length)
    index = encode_lengths(np.array([*lengths, -1, -2]))
    return records + index + len(index).to_bytes(4, "little") + bytes([VERSION])


def read_blob_file(data: bytes) -> object:
    """Read all values of a BLOB file."""
    path = f"{FILE}.blob"
    with wrap_decode_errors(path):
        reader = open_reader(io.BytesIO(data), path, parse_columns("b BLOB"))
        return [batch.num_rows for batch in reader.batches(["b"], 2)]


def read_json_vectors(data: bytes) -> object:
    """Read a JSON file of vectors."""
    path = f"{FILE}.vector.json"
    with wrap_decode_errors(path):
        reader = open_reader(io.BytesIO(data), path, parse_columns("x VECTOR<FLOAT, 2>"))
        return [batch.num_rows for batch in reader.batches(["x"], 2)]


def read_descriptor(data: bytes) -> object:
    """Decode a descriptor of a BLOB."""
    with wrap_decode_errors(FILE):
        return BlobDescriptor.decode(data)


def read_columnar_manifest(data: bytes) -> object:
    """Compare the two decoders of manifests."""
    columns = ColumnarManifest.decode(data, FILE)
    if columns is not None:
        assert columns.entries() == decode_manifest(data, FILE)
    return columns


def read_golden_iceberg(pattern: str) -> bytes:
    """Return a file of Iceberg metadata that Java Paimon wrote."""
    return min(GOLDEN.glob(f"java-2.0/iceberg_*/warehouse/*/*/metadata/{pattern}")).read_bytes()


def read_key_bounds(data: bytes) -> object:
    """Decode the bounds of an index of a column."""
    with wrap_decode_errors(FILE):
        bounds = decode_key_bounds(data)
        return [decode_key(key, BIGINT) for key in (bounds.first, bounds.last) if key is not None]


def read_index_source(data: bytes) -> object:
    """Decode the data files of an index of a primary-key table."""
    entry = replace(INDEXES[0], additional=AdditionalFields({}, {SOURCE_META: data}))
    return decode_index_source(entry), decode_source_snapshot(entry)


SOURCE = IndexSource(level=5, files=(("data-1.parquet", 3), ("data-2.parquet", 4)))
STATISTICS = TableStatistics(snapshot_id=3, schema_id=0, row_count=5, size=9)
DESCRIPTOR = encode_descriptors("some/file.blob", np.array([4]), np.array([9]))[0].as_py()
THRIFT = b"\x15\x04\x19\x3c\x48\x04root\x15\x02\x00\x15\x02\x18\x01k\x00\x15\x04\x18\x01v\x00\x16\x64\x00"
VECTOR = DeletionVector.of([1, 5, 70_000, *range(100_000, 150_000)])
MANIFEST = DECODERS["manifest"][0]
KEY_BOUNDS = pack("<iqiqBBB", 8, 1, 8, 9, 1, 1, 0)
DATA_FILES: dict[str, tuple[bytes, Decode]] = {
    "Parquet file": (build_data_file("parquet", "zstd"), read_data_file("parquet")),
    "Parquet file with small pages": (
        build_data_file("parquet", "none", small_pages=True),
        read_data_file("parquet"),
    ),
    "ORC file": (build_data_file("orc", "none"), read_data_file("orc")),
    "compressed ORC file": (build_data_file("orc", "zstd"), read_data_file("orc")),
    "Avro file": (build_data_file("avro", "none"), read_data_file("avro")),
}
SAMPLES: dict[str, tuple[bytes, Decode]] = {
    **DECODERS,
    **DATA_FILES,
    "columnar manifest": (MANIFEST, read_columnar_manifest),
    "hash index": (
        encode_hash_index(np.array([1, -5, 70_000], np.int32)),
        lambda data: decode_hash_index(data, FILE),
    ),
    "statistics": (STATISTICS.to_json(), lambda data: TableStatistics.from_json(data, FILE)),
    "Iceberg manifest": (
        read_golden_iceberg("*-m*.avro"),
        lambda data: iceberg_manifest.decode_manifest(data, FILE),
    ),
    "Iceberg manifest list": (
        read_golden_iceberg("snap-*.avro"),
        lambda data: iceberg_manifest_list.decode_manifest_list(data, FILE),
    ),
    "deletion vector": (VECTOR.encode_payload(bitmap64=False), read_vector),
    "deletion vector of 64 bits": (VECTOR.encode_payload(bitmap64=True), read_vector),
    "file indexes": (build_container(), query_container),
    "btree": (encode_btree(KEYS, 200), read_btree),
    "bitmaps": (encode_bitmaps(KEYS, 200), read_bitmaps),
    "key bounds": (KEY_BOUNDS, read_key_bounds),
    "index source": (SOURCE.to_additional_fields().values[SOURCE_META], read_index_source),
    "variant": (METADATA + VALUE, read_variant),
    "row": (serialize_row((1, "a long text", None, None, b"123456789", 1.5), ROW_TYPES), read_row),
    "thrift": (THRIFT, read_thrift),
    "BLOB file": (build_blob_file(), read_blob_file),
    "JSON vectors": (b'{"x":["1.5","2"]}\n{"x":null}\n', read_json_vectors),
    "BLOB descriptor": (DESCRIPTOR, read_descriptor),
}
