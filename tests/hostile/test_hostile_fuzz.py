"""A small fuzz with a fixed seed: mutated bytes end in a value or an own error, within limits."""

from __future__ import annotations

import random
from collections.abc import Callable
from struct import pack, unpack
from zlib import crc32

import pyarrow as pa
import pytest
from support.decoder_samples import DECODERS
from support.limited_process import run_limited

from paimon_orch.errors import PaimonError, wrap_decode_errors
from paimon_orch.files.parquet.thrift_compact import STRUCT, ValueSpan, find_values
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
from paimon_orch.format.global_index.key_ranges import KeyRange
from paimon_orch.format.global_index.sorted_column import sort_column
from paimon_orch.format.row.binary_row import deserialize_row, serialize_row
from paimon_orch.format.types.data_types import AtomicType, TypeRoot, parse_columns
from paimon_orch.format.types.predicate import Leaf, Operator
from paimon_orch.format.variant.value import parse_json, to_json_text

SEED, MUTATIONS = 20261127, 400
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
            checksum = pack("<I", crc32(data[offset : offset + size + 1]))
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
    """Read a variant; the first bytes are its metadata."""
    with wrap_decode_errors(FILE):
        return to_json_text(data[len(METADATA) :], data[: len(METADATA)])


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


THRIFT = b"\x15\x04\x19\x3c\x48\x04root\x15\x02\x00\x15\x02\x18\x01k\x00\x15\x04\x18\x01v\x00\x16\x64\x00"
VECTOR = DeletionVector.of([1, 5, 70_000, *range(100_000, 150_000)])
SAMPLES: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    **DECODERS,
    "deletion vector": (VECTOR.encode_payload(bitmap64=False), read_vector),
    "deletion vector of 64 bits": (VECTOR.encode_payload(bitmap64=True), read_vector),
    "file indexes": (build_container(), query_container),
    "btree": (encode_btree(KEYS, 200), read_btree),
    "bitmaps": (encode_bitmaps(KEYS, 200), read_bitmaps),
    "variant": (METADATA + VALUE, read_variant),
    "row": (serialize_row((1, "a long text", None, None, b"123456789", 1.5), ROW_TYPES), read_row),
    "thrift": (THRIFT, read_thrift),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_mutated_bytes_end_in_a_value_or_an_own_error(name: str) -> None:
    sample, decode = SAMPLES[name]
    decode(sample)

    def fuzz() -> int:
        source = random.Random(SEED)  # noqa: S311 - repeatable damage
        for _ in range(MUTATIONS):
            data = mutate(sample, source)
            try:
                decode(data)
            except PaimonError:
                continue
            except Exception as error:
                raise RuntimeError(f"{data!r}: {error!r}") from error
        return MUTATIONS

    assert run_limited(fuzz, seconds=100) == MUTATIONS
