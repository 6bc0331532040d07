"""Deletion vectors, indexes and variants whose few bytes stand for many rows or values."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap
from support.damage import edit_index
from support.limited_process import refuse, run_limited
from support.tables import new_table, rows_of, table_of
from support.tables_with_deletion_vectors import EXECUTOR

from paimon_orch.decode_limits import DecodeBudget, check_row_count
from paimon_orch.errors import CorruptFileError, DecodeLimitError, wrap_decode_errors
from paimon_orch.files.parquet.thrift_compact import STRUCT, ValueSpan, find_values
from paimon_orch.format.bytes.roaring_union import union_bitmaps_32
from paimon_orch.format.bytes.varint import encode_varint
from paimon_orch.format.deletion_vector import (
    MAGIC_32,
    DeletionVector,
    decode_deletion_vector_file,
    decode_deletion_vector_payload,
    encode_deletion_vector_file,
)
from paimon_orch.format.file_index.batch_evaluation import evaluate_batch
from paimon_orch.format.file_index.bitmap import BitmapIndex
from paimon_orch.format.file_index.container import ByteSource, encode_container
from paimon_orch.format.file_index.index_keys import encode_column
from paimon_orch.format.file_index.index_query import IndexFilter, StoredColumn
from paimon_orch.format.file_index.range_bitmap import encode_range_bitmap_index
from paimon_orch.format.global_index.bitmap_file import BITMAP_MAGIC
from paimon_orch.format.global_index.bitmap_reader import BitmapReader
from paimon_orch.format.global_index.btree_file import BTREE_MAGIC
from paimon_orch.format.global_index.btree_reader import BTreeReader
from paimon_orch.format.global_index.index_blocks import (
    decode_bitmap64,
    encode_bitmap64,
    read_block,
)
from paimon_orch.format.global_index.key_ranges import KeyRange
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.orc.orc_metadata import OrcStripe, OrcTail
from paimon_orch.format.types.data_types import AtomicType, TypeRoot
from paimon_orch.format.types.predicate import Leaf, Operator
from paimon_orch.format.variant.shredding import TYPED_VALUE, assemble_variants
from paimon_orch.format.variant.value import decode_value, to_json_text
from paimon_orch.steps import check, compact, delete
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

FILE = "t/index/index-1"
BIGINT = AtomicType(True, TypeRoot.BIGINT)


def table_with_vector(root: Path, vector: DeletionVector) -> Table:
    """Create a table of three rows whose deletion vector is replaced."""
    table = new_table(
        root,
        key=(),
        bucket="-1",
        deletion_vectors__enabled="true",
        deletion_vectors__bitmap64="true",
    )
    table.append(table_of("k v", [(1, "a"), (2, "b"), (3, "c")]))
    delete(table, EXECUTOR, where="k = 1")

    def change(entries: list[IndexManifestEntry]) -> Sequence[IndexManifestEntry]:
        [entry] = entries
        [stored] = entry.ranges or ()
        data, ranges = encode_deletion_vector_file({stored.data_file: vector}, bitmap64=True)
        Path(table.paths.index_file(table.load().schema, entry)).write_bytes(data)
        return [replace(entry, file_size=len(data), ranges=ranges)]

    edit_index(table, 2, change)
    return table


FULL = BitMap(range(0))
FULL.add_range(0, 1 << 32)
VECTORS = {
    "a row after the last one": DeletionVector.of([3]),
    "all rows of 32 bits": DeletionVector({0: FULL}),
    "full bitmaps": DeletionVector(dict.fromkeys(range(5), FULL)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VECTORS)
def test_a_deletion_vector_of_more_rows_than_the_file_is_refused(tmp_path: Path, name: str) -> None:
    table = table_with_vector(tmp_path, VECTORS[name])
    for action in (
        lambda: rows_of(table),
        lambda: compact(table, EXECUTOR),
        lambda: delete(table, EXECUTOR, where="k = 2"),
    ):
        assert "but its deletion vector deletes" in refuse(action)
    findings = run_limited(lambda: [f.text for f in check(table, deep=True).findings])
    assert isinstance(findings, list)
    assert any("deletes row" in text for text in findings)


def test_containers_of_bitmaps_are_not_counted_one_by_one() -> None:
    """A full bitmap has 65,536 containers, and compresses well."""
    full = FULL.copy()
    full.run_optimize()
    data = bytes(full.serialize())
    vector = struct.pack(">I", MAGIC_32) + data

    start = time.process_time()
    for _ in range(20):
        assert union_bitmaps_32(data, data) == data
        assert decode_deletion_vector_payload(vector, FILE).cardinality == 1 << 32

    assert time.process_time() - start < 2.5


@pytest.mark.parametrize("size", range(40))
def test_truncated_bitmaps_are_refused(size: int) -> None:
    data = bytes(BitMap(range(0, 1 << 20, 50_000)).serialize())

    with pytest.raises(ValueError, match=r"bitmap|deserializ|buffer"):
        union_bitmaps_32(data[:size], data)
    with pytest.raises(CorruptFileError):
        decode_deletion_vector_payload(struct.pack(">I", MAGIC_32) + data[:size], FILE)


def test_more_deleted_rows_than_rows_are_not_counted(tmp_path: Path) -> None:
    table = table_with_vector(tmp_path, VECTORS["all rows of 32 bits"])
    for count in (lambda: table.scan().count(), lambda: inspect(table).deleted_rows):
        assert "deletes 4294967296 rows" in refuse(count)
    findings = run_limited(lambda: [f.text for f in check(table).findings])
    assert isinstance(findings, list)
    assert any("4294967296 deleted rows" in text for text in findings)


def decode_bitmap(data: bytes, limit: int) -> int:
    """Return the number of positions of a 64-bit bitmap."""
    with wrap_decode_errors(FILE):
        return len(decode_bitmap64(data, limit, DecodeBudget(len(data))))


@pytest.mark.slow
def test_a_bitmap_of_a_global_index_is_not_expanded_to_any_size() -> None:
    data = bytes(FULL.serialize())
    small = data[:4] + data[4:]
    bitmap = struct.pack("<q", 3) + b"".join(struct.pack("<I", word) + small for word in range(3))
    assert "bytes of memory" in refuse(lambda: decode_bitmap(bitmap, 1 << 60))


def test_a_block_of_a_global_index_is_not_decompressed_to_any_size() -> None:
    declared = b"\xff\xff\xff\xff\x7f"  # 2^35 - 1 bytes
    block = declared + bytes(pa.compress(bytes(1 << 20), codec="zstd", asbytes=True))
    data = block + b"\1" + struct.pack("<I", zlib.crc32(block + b"\1"))

    def read() -> int:
        with wrap_decode_errors(FILE):
            return len(read_block(ByteSource.of(data), 0, len(block), DecodeBudget(len(data))))

    assert "declares 34359738367 bytes" in refuse(read)


def build_block(content: bytes) -> bytes:
    """Return a compressed block with its trailer."""
    block = encode_varint(len(content)) + bytes(pa.compress(content, codec="zstd", asbytes=True))
    return block + b"\1" + struct.pack("<I", zlib.crc32(block + b"\1"))


def build_repeated_entries() -> bytes:
    """Return a bitmap file of 16 KB whose directory has 170 million entries."""
    size = 500 << 20
    block = build_block(encode_varint(size // 3) + bytes(size))
    return block + struct.pack(">qiqiqiiii", *[0] * 5, len(block) - 5, 1, 1, BITMAP_MAGIC)


def build_short_entries() -> bytes:
    """Return a btree file of 16 KB whose index has 500 million entries of one byte."""
    block = build_block(bytes(500 << 20) + struct.pack("<iB", 1, 0))
    return block + struct.pack("<qiqqiqiii", *[0] * 4, len(block) - 5, 0, 0, 1, BTREE_MAGIC)


def build_repeated_rows() -> bytes:
    """Return a bitmap file of 900 KB in which each of 200 keys has 20 million rows."""
    keys, rows = 200, encode_bitmap64(np.arange(20_000_000))
    entries = encode_varint(keys) + b"".join(
        encode_varint(8) + struct.pack("<q", key) + encode_varint(key * len(rows))
        + encode_varint(len(rows))
        for key in range(keys)
    )  # fmt: skip
    block, offset = build_block(entries), keys * len(rows)
    places = encode_varint(offset) + encode_varint(len(block) - 5)
    directory = build_block(encode_varint(1) + encode_varint(8) + bytes(8) + places)
    footer = (0, len(rows), 0, 0, offset + len(block), len(directory) - 5, keys, 1, BITMAP_MAGIC)
    return rows * keys + block + directory + struct.pack(">qiqiqiiii", *footer)


INDEX_BOMBS: dict[str, tuple[Callable[[], bytes], type[BitmapReader | BTreeReader], str]] = {
    "repeated entries": (build_repeated_entries, BitmapReader, "declares 524288004 bytes"),
    "short entries": (build_short_entries, BTreeReader, "declares 524288005 bytes"),
    "repeated rows": (build_repeated_rows, BitmapReader, "a bitmap has 20000000 rows"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INDEX_BOMBS)
@pytest.mark.parametrize("is_query", [True, False])
def test_a_small_index_of_gigabytes_is_refused(name: str, *, is_query: bool) -> None:
    build, open_index, message = INDEX_BOMBS[name]
    data = build()
    assert len(data) < 1 << 20

    def read() -> None:
        with wrap_decode_errors(FILE):
            reader = open_index(ByteSource.of(data), BIGINT, 1 << 40)
            if is_query:
                reader.find_rows([KeyRange(low=0)])
            else:
                reader.read_column()

    assert message in refuse(read)


def test_an_index_file_has_one_entry(tmp_path: Path) -> None:
    table = table_with_vector(tmp_path, DeletionVector.of([1]))

    def repeat(entries: list[IndexManifestEntry]) -> Sequence[IndexManifestEntry]:
        [entry] = entries
        [stored] = entry.ranges or ()
        others = (replace(stored, data_file=f"data-{number}.parquet") for number in range(3_000))
        return [entry, *(replace(entry, ranges=(other,)) for other in others)]

    edit_index(table, 2, repeat)
    for action in (lambda: rows_of(table), lambda: compact(table, EXECUTOR)):
        with pytest.raises(CorruptFileError, match="has different entries in the index manifest"):
            action()


def test_data_files_do_not_share_the_bytes_of_a_deletion_vector() -> None:
    data, [stored] = encode_deletion_vector_file({"a": DeletionVector.of(range(0, 9_000, 2))})
    ranges = [replace(stored, data_file=str(number)) for number in range(3)]
    with pytest.raises(CorruptFileError, match="has 3 deletion vectors of"):
        decode_deletion_vector_file(data, ranges, FILE)


def test_a_negative_length_of_a_text_in_a_range_bitmap_excludes_no_file() -> None:
    text, column = AtomicType(True, TypeRoot.VARCHAR, (9,)), pa.array(["a", "b", "c"])
    index = encode_range_bitmap_index(encode_column([column], text), text)
    damaged = index.replace(struct.pack(">i", 1) + b"b", struct.pack(">i", -4) + b"b")
    assert damaged != index
    equal = IndexFilter(Leaf("c", Operator.EQUAL, (pa.scalar("bb"),)))
    columns = {"c": StoredColumn("c", text)}

    for blob, is_excluded in ((index, True), (damaged, False)):
        container = encode_container([("c", [("range-bitmap", blob)])])
        answer = evaluate_batch(equal, [container], columns.get, np.array([3]))
        assert answer.excluded.tolist() == [is_excluded]


def test_a_key_that_a_bitmap_block_repeats_is_found_in_linear_time() -> None:
    text = AtomicType(True, TypeRoot.VARCHAR, (9,))
    entries = 400_000
    block = struct.pack(">i", entries) + struct.pack(">iii", 0, 0, 0) * entries
    index = struct.pack(">Biib", 2, entries, entries, 0)
    index += struct.pack(">ii", 1, 0) + struct.pack(">ii", 0, len(block)) + block

    def query() -> str:
        with wrap_decode_errors(FILE):
            return str(BitmapIndex(ByteSource.of(index), text).query(Operator.EQUAL, [b"\0\0\0"]))

    run_limited(query)


def array_of(value: bytes, count: int) -> bytes:
    """Return a variant array whose elements are all the same bytes."""
    head = bytes([3 | 3 << 2 | 1 << 4]) + struct.pack("<I", count)
    return head + struct.pack("<I", 0) * count + struct.pack("<I", len(value)) + value


METADATA = bytes([1, 0, 0])


def test_elements_of_a_variant_do_not_share_a_long_text() -> None:
    text = bytes([16 << 2]) + struct.pack("<I", 1 << 20) + bytes(1 << 20)
    value = array_of(text, 200_000)

    def decode() -> int:
        with wrap_decode_errors(FILE):
            return len(decode_value(value, METADATA))

    assert "longer than its bytes" in refuse(decode)


@pytest.mark.slow
def test_members_of_a_variant_do_not_repeat_a_long_name_without_limit() -> None:
    name = b"n" * (1 << 20)
    metadata = bytes([1 | 3 << 6]) + struct.pack("<III", 1, 0, len(name)) + name
    member = bytes([2, 1, 0, 0, 1, 0])  # {name: null}
    value = bytes([3 | 3 << 2 | 1 << 4]) + struct.pack("<I", 20_000)
    starts = struct.pack("<20001I", *range(0, 6 * 20_001, 6))

    def decode() -> int:
        with wrap_decode_errors(FILE):
            return len(to_json_text(value + starts + member * 20_000, metadata))

    assert "characters of JSON" in refuse(decode)


def encode_empty_names(count: int, number: int) -> bytes:
    """Return metadata whose names are empty, and whose last bytes differ by ``number``."""
    return b"\xc1" + struct.pack("<I", count) + bytes(4 * (count + 1)) + struct.pack("<I", number)


@pytest.mark.parametrize(("count", "rows"), [(1 << 23, 1), (30_000, 280)])
def test_names_of_variants_are_limited_although_they_have_no_bytes(count: int, rows: int) -> None:
    typed = pa.array([1] * rows, pa.int64())
    metadata = pa.array([encode_empty_names(count + 1, number) for number in range(rows)])
    column = pa.StructArray.from_arrays([metadata, typed], ["metadata", TYPED_VALUE])

    def assemble() -> int:
        with wrap_decode_errors(FILE):
            return len(assemble_variants(column))

    assert "names, but at most 8388608 are decoded" in refuse(assemble)


def test_names_of_a_single_variant_are_limited() -> None:
    with pytest.raises(DecodeLimitError, match="has 8388609 names"):
        decode_value(b"\0", encode_empty_names((1 << 23) + 1, 0))


def field(number: int, value: bytes | int) -> bytes:
    """Return a field of protobuf."""
    if isinstance(value, int):
        return bytes([number << 3]) + _varint(value)
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_orc_types_that_contain_themselves_are_refused() -> None:
    types = field(4, field(1, 12) + field(2, 1) + field(3, b"m")) + field(
        4, field(1, 10) + field(2, 1)
    )
    tail = OrcTail(field(1, b"") + field(2, types))

    def find() -> int:
        with wrap_decode_errors(FILE):
            return len(tail.find_columns(["m"]))

    assert "contains itself" in refuse(find)


@pytest.mark.parametrize("scale", [39, (1 << 32) - 1, 1 << 40])
def test_an_orc_decimal_whose_scale_takes_hours_is_refused(scale: int) -> None:
    tail = OrcTail(
        field(1, b"") + field(2, field(4, field(1, 14) + field(5, 20) + field(6, scale)))
    )
    with pytest.raises(ValueError, match=f"the scale {scale} of column 0 is above 38"):
        tail.check_types()


def test_a_stripe_footer_of_orc_is_not_decompressed_to_any_size(tmp_path: Path) -> None:
    compressor = zlib.compressobj(9, wbits=-15)
    part = compressor.compress(bytes(1 << 20)) + compressor.flush(zlib.Z_FULL_FLUSH)
    block = part * 4_000
    data = (len(block) << 1).to_bytes(3, "little") + block
    path = tmp_path / "stripe"
    path.write_bytes(data)
    tail = OrcTail(field(1, field(2, 1) + field(3, 1 << 18)) + field(2, b""))

    def read() -> str:
        with wrap_decode_errors(FILE), path.open("rb") as source:
            return str(tail.read_footer(source, OrcStripe(1, 0, 0, 0, len(data))))

    assert "decompressed bytes or more" in refuse(read)


def test_deep_thrift_values_are_refused() -> None:
    data = b"\x1c" * 300 + b"\x18" + b"\x80\x80\x40" + bytes(1 << 20) + b"\0" * 301

    def find() -> int:
        with wrap_decode_errors(FILE):
            return sum(1 for _ in find_values(data, ValueSpan(STRUCT, 0, len(data))))

    assert "nested" in refuse(find)


def test_row_counts_of_metadata_are_limited_by_the_size_of_the_file() -> None:
    check_row_count(20_000_000, 100, FILE)
    with pytest.raises(CorruptFileError, match="states 1099511627776 rows"):
        check_row_count(1 << 40, 100, FILE)
    with pytest.raises(CorruptFileError, match="states -1 rows"):
        check_row_count(-1, 100, FILE)
