"""Btree and bitmap index files: bytes of Java Paimon, and any number of keys and blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.btree_files import Content, read_bitmaps, read_btree
from support.golden import GOLDEN

from paimon_orch import Catalog
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.format.global_index.bitmap_file import encode_bitmaps
from paimon_orch.format.global_index.btree_file import encode_btree
from paimon_orch.format.global_index.byte_strings import encode_varints
from paimon_orch.format.global_index.sorted_column import SortedColumn, can_be_indexed, sort_column
from paimon_orch.format.manifest.index_source import decode_index_source
from paimon_orch.format.types.data_types import AtomicType, parse_type


def atomic(text: str) -> AtomicType:
    kind = parse_type(text)
    assert isinstance(kind, AtomicType)
    return kind


def without_order(content: Content) -> Content:
    return {key: sorted(rows) for key, rows in content.items()}


@pytest.mark.parametrize("snapshot_id", [4, 6])
def test_files_of_java_have_the_same_content(snapshot_id: int) -> None:
    table = Catalog(str(GOLDEN / "java-2.0" / "pk_indexes" / "warehouse")).table("db.t")
    snapshot, reader = table.stores.snapshots.get(snapshot_id), table.stores.reader()
    live = {e.file.file_name: e for e in table.stores.manifests.read_live_entries(snapshot)}
    types = set()
    for entry in table.stores.manifests.read_index_entries(snapshot):
        source, meta = decode_index_source(entry), entry.global_index
        if source is None or meta is None:
            continue
        [field] = [field for field in table.load().schema.fields if field.id == meta.index_field_id]
        files = [live[name] for name, _ in source.files]
        chunks = [
            batch.column(0)
            for item in files
            for batch in reader.read(BucketFile(*item.partition_bucket, item.file), [field])
        ]
        column = sort_column(chunks, atomic(str(field.type.name)))  # type: ignore[attr-defined]
        java = Path(table.paths.index_file(table.load().schema, entry)).read_bytes()
        assert column.encode_meta() == meta.index_meta
        assert column.row_count == entry.row_count
        if entry.index_type == "bitmap":
            assert encode_bitmaps(column) == java
        else:  # Java writes the rows of a key in any order
            ours = encode_btree(column)
            assert len(ours) == len(java)
            assert without_order(read_btree(java)[0]) == read_btree(ours)[0]
        types.add(entry.index_type)
    assert types == {"btree", "bitmap"}


def group(values: list[bytes | None]) -> Content:
    content: Content = {}
    for row, value in enumerate(values):
        content.setdefault(value, []).append(row)
    return content


def sort_texts(values: list[bytes | None], chunk: int = 7) -> SortedColumn:
    array = pa.array([None if value is None else value.decode() for value in values], pa.string())
    chunks = [array.slice(start, chunk) for start in range(0, max(len(array), 1), chunk)]
    return sort_column(chunks, atomic("STRING"))


TEXTS = st.one_of(st.none(), st.text(max_size=5).map(str.encode))


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXTS, max_size=60), st.integers(6, 200))
def test_readers_find_the_rows_of_each_value(values: list[bytes | None], block: int) -> None:
    column, expected = sort_texts(values), group(values)
    for read, data in (
        (read_btree, encode_btree(column, block)),
        (read_bitmaps, encode_bitmaps(column, block)),
    ):
        content, blocks = read(data)
        assert content == expected
        keys = [key for key in content if key is not None]
        assert keys == sorted(keys)
        assert blocks <= max(1, len(keys))


def test_large_files_have_several_blocks() -> None:
    random = np.random.default_rng(3)
    numbers = random.integers(-(2**31), 2**31, 30_000)
    numbers[:10_000] = random.integers(0, 50, 10_000)
    column = sort_column([pa.array(numbers, pa.int32())], atomic("INT"))
    expected = {
        int(key).to_bytes(4, "little", signed=True): np.flatnonzero(numbers == key).tolist()
        for key in np.unique(numbers)[::97]
    }
    for (content, blocks), least in (
        (read_btree(encode_btree(column)), 4),
        (read_bitmaps(encode_bitmaps(column)), 10),
    ):
        assert blocks >= least
        assert sum(map(len, content.values())) == len(numbers)
        assert {key: content[key] for key in expected} == expected


def test_keys_are_little_endian_and_sorted_by_value() -> None:
    floats = pa.array([float("nan"), 0.0, -0.0, None, -1.5], pa.float32())
    column = sort_column([floats], atomic("FLOAT"))
    assert [key.hex() for key in column.keys.to_pylist()] == [
        "0000c0bf",
        "00000080",
        "00000000",
        "0000c07f",
    ]
    assert column.positions.tolist() == [4, 2, 1, 0]
    times = pa.array([-1, 1_000_001], pa.timestamp("us"))
    column = sort_column([times], atomic("TIMESTAMP(6)"))
    negative = (-1).to_bytes(8, "little", signed=True) + bytes.fromhex("d8fc3c")  # 999,000 ns
    assert column.keys.to_pylist() == [negative, (1000).to_bytes(8, "little") + b"\xe8\x07"]


def test_types_whose_keys_are_not_implemented_have_no_index() -> None:
    assert can_be_indexed(parse_type("DECIMAL(18, 2)"))
    for text in ("DECIMAL(19, 2)", "TIMESTAMP(9)", "BYTES", "ARRAY<INT>"):
        assert not can_be_indexed(parse_type(text))


def test_numbers_have_seven_bits_per_byte() -> None:
    numbers = [0, 127, 128, 2**35, 2**63 - 1]
    encoded = encode_varints(np.array(numbers)).to_pylist()
    assert encoded[:3] == [b"\0", b"\x7f", b"\x80\x01"]
    assert [len(item) for item in encoded] == [1, 1, 2, 6, 9]
