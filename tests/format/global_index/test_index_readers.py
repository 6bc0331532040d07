"""Queries of btree and bitmap files find the rows of keys; damaged files are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from struct import pack
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap
from support.btree_files import read_bitmaps, read_btree
from support.golden import GOLDEN

from paimon_orch import Catalog
from paimon_orch.decode_limits import DecodeBudget
from paimon_orch.errors import CorruptFileError, UnsupportedError
from paimon_orch.files.global_index_reader import open_global_index
from paimon_orch.format.file_index.container import ByteSource
from paimon_orch.format.file_index.index_keys import Key, encode_key
from paimon_orch.format.global_index.bitmap_file import encode_bitmaps
from paimon_orch.format.global_index.bitmap_reader import BitmapReader
from paimon_orch.format.global_index.btree_file import encode_btree
from paimon_orch.format.global_index.btree_reader import BTreeReader
from paimon_orch.format.global_index.index_blocks import decode_bitmap64, read_block
from paimon_orch.format.global_index.key_ranges import KeyRange, decode_key
from paimon_orch.format.global_index.sorted_column import decode_key_bounds, sort_column
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, parse_type
from paimon_orch.storage import LocalFileIO


def atomic(text: str) -> AtomicType:
    kind = parse_type(text)
    assert isinstance(kind, AtomicType)
    return kind


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.integers(-30, 30),
    "STRING": st.text("abé", max_size=4),
    "DOUBLE": st.sampled_from([-0.0, 0.0, 1.5, -3.25, float("inf"), float("-inf"), float("nan")]),
    "TIMESTAMP(6)": st.integers(-5000, 5000),
    "BOOLEAN": st.booleans(),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("type_text", VALUES)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), block=st.sampled_from([20, 60, 300, 65536]))
def test_readers_find_the_rows_of_ranges_of_keys(
    type_text: str, data: st.DataObject, block: int
) -> None:
    kind, values = atomic(type_text), VALUES[type_text]
    column = pa.array(data.draw(st.lists(st.none() | values, max_size=60)), to_arrow_type(kind))
    keys = [encode_key(value, kind) if value.is_valid else None for value in column]
    low, high = (
        None if value is None else encode_key(pa.scalar(value, column.type), kind)
        for value in (data.draw(st.none() | values), data.draw(values))
    )
    wanted = KeyRange(low, high, data.draw(st.booleans()), data.draw(st.booleans()))
    content = sort_column([column], kind)
    for reader in (
        BTreeReader(ByteSource.of(encode_btree(content, block)), kind, len(column)),
        BitmapReader(ByteSource.of(encode_bitmaps(content, block)), kind, len(column)),
    ):
        rows = reader.find_rows([wanted])
        expected = [n for n, key in enumerate(keys) if key is not None and is_within(wanted, key)]
        assert rows is None or rows.tolist() == expected
        assert reader.find_null_rows().tolist() == [n for n, key in enumerate(keys) if key is None]
        assert reader.find_rows([KeyRange()]) is None


def is_within(keys: KeyRange, key: Any) -> bool:
    low, high = keys.low, keys.high
    above = low is None or key > low or (key == low and not keys.excludes_low)
    return above and (high is None or key < high or (key == high and not keys.excludes_high))


@pytest.mark.parametrize(("type_text", "stored"), [("FLOAT", "<f"), ("DOUBLE", "<d")])
def test_stored_floats_have_the_total_order_of_java(type_text: str, stored: str) -> None:
    values = [float("-inf"), -3.25, -1e-40, -0.0, 0.0, 1.5, float("inf"), float("nan")]
    keys = [decode_key(pack(stored, value), atomic(type_text)) for value in values]

    assert sorted(set(keys)) == keys
    assert decode_key(pack(stored, -float("nan")), atomic(type_text)) == keys[-1]


@pytest.mark.parametrize("name", ["global_index", "pk_indexes"])
def test_each_key_of_files_of_java_is_found(name: str) -> None:
    table = Catalog(str(GOLDEN / "java-2.0" / name / "warehouse")).table("db.t")
    fields = {field.id: field for field in table.load().schema.fields}
    entries = table.stores.manifests.read_index_entries(table.stores.snapshots.latest())
    for entry in (entry for entry in entries if entry.global_index is not None):
        assert entry.global_index is not None
        kind = fields[entry.global_index.index_field_id].type
        assert isinstance(kind, AtomicType)
        path = table.paths.index_file(table.load().schema, entry)
        read = read_btree if entry.index_type == "btree" else read_bitmaps
        content, _ = read(Path(path).read_bytes())
        nulls = sorted(content.pop(None, []))
        with open_global_index(table.io, path, entry, kind) as index:
            assert index.find_null_rows().tolist() == nulls
            for stored, rows in content.items():
                key = decode_key(stored or b"", kind)
                found = index.find_rows((KeyRange(key, key),))
                assert found is not None
                assert found.tolist() == sorted(rows)
        bounds = decode_key_bounds(entry.global_index.index_meta or b"")
        by_key: dict[Key, bytes | None] = {decode_key(k or b"", kind): k for k in content}
        ordered = [by_key[key] for key in sorted(by_key)]
        assert (bounds.first, bounds.last) == (ordered[0], ordered[-1])
        assert bounds.has_nulls == bool(nulls)


def test_bounds_of_files_without_keys_are_unknown() -> None:
    empty = sort_column([pa.array([None], pa.int32())], atomic("INT")).encode_meta()
    for meta in (empty, empty[:-2]):  # old files end before the version
        bounds = decode_key_bounds(meta)
        assert (bounds.first, bounds.last, bounds.has_nulls) == (None, None, True)
    with pytest.raises(ValueError, match="out of range"):
        decode_key_bounds(pack("<i", -1) + bytes(20))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("encode", [encode_btree, encode_bitmaps])
def test_damaged_files_are_refused_or_have_the_same_rows(encode: Any, tmp_path: Path) -> None:
    golden = Catalog(str(GOLDEN / "java-2.0" / "global_index" / "warehouse")).table("db.t")
    [entry, *_] = golden.stores.manifests.read_index_entries(golden.stores.snapshots.latest())
    assert entry.global_index is not None
    kind, chance = atomic("INT"), np.random.default_rng(5)
    column = sort_column([pa.array([*(n % 20 for n in range(59)), None], pa.int32())], kind)
    data = encode(column)
    index_type = "btree" if encode is encode_btree else "bitmap"
    path, refused = tmp_path / "index", 0
    for _ in range(300):
        damaged = bytearray(data)
        position = int(chance.integers(len(data)))
        damaged[position] ^= 1 << int(chance.integers(8))
        path.write_bytes(damaged)
        changed = replace(entry, index_type=index_type, file_size=len(data))
        try:
            with open_global_index(LocalFileIO(), str(path), changed, kind) as index:
                rows = index.find_rows((KeyRange(3, 4),))
                index.find_null_rows()
        except (CorruptFileError, UnsupportedError):
            refused += 1
        else:  # bitmaps have no checksum
            assert rows is None or (len(rows) == 0 or rows.max() < 60)
    assert refused > 50
    path.write_bytes(data[:-1])
    with (
        pytest.raises(CorruptFileError, match="bytes, but its manifest entry states"),
        open_global_index(LocalFileIO(), str(path), changed, kind),
    ):
        pass


def test_compressed_blocks_are_read() -> None:
    content = b"keys " * 50
    compressed = bytes((250 & 0x7F | 0x80, 1)) + pa.compress(content, "zstd", asbytes=True)
    block = compressed + b"\x01"

    budget, source = DecodeBudget(1), ByteSource.of(block + pack("<I", crc32(block)))
    assert read_block(source, 0, len(block) - 1, budget) == content
    unknown = compressed + b"\x03"
    source = ByteSource.of(unknown + pack("<I", crc32(unknown)))
    with pytest.raises(UnsupportedError, match="compression 3"):
        read_block(source, 0, len(compressed), budget)


def test_bitmaps_with_more_rows_than_the_index_are_refused() -> None:
    content = sort_column([pa.array([None] * 5, pa.int32())], atomic("INT"))
    reader = BitmapReader(ByteSource.of(encode_bitmaps(content)), atomic("INT"), 4)

    with pytest.raises(ValueError, match="contains position 4"):
        reader.find_null_rows()
    with pytest.raises(ValueError, match="high bits 1"):
        decode_bitmap64(pack("<qi", 1, 1) + BitMap([0]).serialize(), 10, DecodeBudget(1))
