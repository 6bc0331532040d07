"""Sparse files have any size for free: holes raise no limit, and are not read into memory."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc
from support.limited_process import refuse
from support.parquet_bombs import INDICES, Column, Page, build_file, indices, plain

from paimon_orch.decode_limits import measure_stored_bytes
from paimon_orch.errors import CorruptFileError, wrap_decode_errors
from paimon_orch.files.file_format import open_reader
from paimon_orch.files.global_index_reader import open_global_index
from paimon_orch.format.bytes.varint import encode_varint
from paimon_orch.format.file_index.container import ByteSource
from paimon_orch.format.global_index.btree_file import BTREE_MAGIC
from paimon_orch.format.global_index.key_ranges import KeyRange
from paimon_orch.format.manifest.index_manifest import GlobalIndexMeta, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.types.data_types import AtomicType, TypeRoot, parse_columns
from paimon_orch.storage import LocalFileIO

HOLE = 5 << 30
MIB = 1 << 20
Part = bytes | int
"""Bytes of a file, or the length of a hole."""


def write_parts(path: Path, parts: Sequence[Part]) -> int:
    """Write a file, and return its size."""
    with path.open("wb") as sink:
        for part in parts:
            if isinstance(part, int):
                sink.seek(part, io.SEEK_CUR)
            else:
                sink.write(part)
        return sink.tell()


def split_at(data: bytes, length: int) -> list[Part]:
    """Return a file with a hole before its last bytes."""
    return [data[:-length], HOLE, data[-length:]]


def build_parquet() -> list[Part]:
    text = Page(values=1, content=plain(b"x" * MIB), is_dictionary=True)
    used = Page(values=1000, content=indices(1000), encoding=INDICES)
    data = build_file(1000, [Column(name="a", pages=(text, used))])
    return split_at(data, int.from_bytes(data[-8:-4], "little") + 8)


def build_orc() -> list[Part]:
    sink, rows = io.BytesIO(), pa.table({"a": ["x" * MIB] * 700})
    orc.write_table(rows, sink, compression="zstd", dictionary_key_size_threshold=1.0)
    data = sink.getvalue()
    tail = orc.ORCFile(io.BytesIO(data)).file_postscript_length + 1
    return split_at(data, tail + orc.ORCFile(io.BytesIO(data)).file_footer_length)


def build_avro_header() -> bytes:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}
    meta = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": b"deflate"}
    pairs = b"".join(long(len(k)) + k + long(len(v)) + v for k, v in meta.items())
    return b"Obj\1" + long(len(meta)) + pairs + b"\0" + b"s" * 16


def long(number: int) -> bytes:
    return encode_varint(2 * number)


def build_avro() -> list[Part]:
    """Return a block that has a hole behind the end of its compressed data."""
    packer = zlib.compressobj(9, wbits=-15)
    block, hole = packer.compress(bytes(400 * MIB)) + packer.flush(), 512 * MIB
    head = build_avro_header() + long(1) + long(len(block) + hole)
    return [head, block, hole, b"s" * 16]


FILES: dict[str, tuple[Callable[[], Sequence[Part]], str]] = {
    "bomb.parquet": (build_parquet, "rows have"),
    "bomb.orc": (build_orc, "rows have"),
    "bomb.avro": (build_avro, "decompressed bytes"),
    "footer.parquet": (
        lambda: [b"PAR1", HOLE, struct.pack("<I", HOLE // 2) + b"PAR1"], "a footer has",
    ),
    "footer.orc": (
        lambda: [b"ORC", HOLE + 9, b"\x08" + encode_varint(HOLE) + b"\x10\0\x08"],
        "a part of an ORC file has 5368709120 bytes",
    ),
    "header.avro": (
        lambda: [b"Obj\1" + long(1) + long(HOLE), HOLE, b"\0"],
        "a part of an Avro file has 5368709120 bytes",
    ),
    "block.avro": (
        lambda: [build_avro_header() + long(1) + long(HOLE), HOLE, b"s" * 16],
        "a part of an Avro file has 5368709120 bytes",
    ),
    "index.blob": (lambda: [HOLE, struct.pack("<i", MIB << 6) + b"\1"], "an index has 67108864 bytes"),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FILES)
def test_holes_of_a_data_file_raise_no_limit(tmp_path: Path, name: str) -> None:
    build, message = FILES[name]
    path = tmp_path / name
    write_parts(path, build())
    fields = parse_columns("a BLOB" if name.endswith("blob") else "a STRING")

    def read() -> None:
        with wrap_decode_errors(name), path.open("rb") as source:
            for _ in open_reader(source, name, fields).batches(["a"], 65_536):
                pass

    assert message in refuse(read)


def write_index(path: Path, parts: Sequence[Part]) -> IndexManifestEntry:
    return IndexManifestEntry(
        kind=FileKind.ADD,
        partition=b"",
        bucket=0,
        index_type="btree",
        file_name=path.name,
        file_size=write_parts(path, parts),
        row_count=9,
        global_index=GlobalIndexMeta(
            row_range_start=0,
            row_range_end=8,
            index_field_id=0,
            extra_field_ids=None,
            index_meta=None,
        ),
    )


def build_btree(block: bytes, hole: int) -> list[Part]:
    """Return a btree file with a hole before its index block."""
    stored = block + struct.pack("<I", zlib.crc32(block))
    footer = struct.pack("<qiqqiqiii", 0, 0, 0, hole, len(block) - 1, 0, 0, 1, BTREE_MAGIC)
    return [hole, stored, footer]


def build_index_bomb() -> bytes:
    content = bytes(500 * MIB) + struct.pack("<iB", 1, 0)
    return encode_varint(len(content)) + bytes(pa.compress(content, "zstd", asbytes=True)) + b"\1"


def build_index_of_a_hole() -> bytes:
    place = b"\0" + encode_varint(HOLE)
    return b"\0" + encode_varint(len(place)) + place + struct.pack("<iiB", 0, 1, 1) + b"\0"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (build_index_bomb, "declares 524288005 bytes"),
        (build_index_of_a_hole, "a part of an index has 5368709125 bytes"),
    ],
)
def test_holes_of_an_index_raise_no_limit(
    tmp_path: Path, build: Callable[[], bytes], message: str
) -> None:
    path = tmp_path / "index"
    entry = write_index(path, build_btree(build(), HOLE + 9))

    def read() -> None:
        text = AtomicType(True, TypeRoot.VARCHAR, (9,))
        with open_global_index(LocalFileIO(), str(path), entry, text) as index:
            index.find_rows((KeyRange(b"", b""),))

    assert message in refuse(read)


def test_a_sparse_metadata_file_is_refused(tmp_path: Path) -> None:
    write_parts(tmp_path / "sparse", [b"{", MIB, b"}"])
    (tmp_path / "zeros").write_bytes(bytes(MIB))

    with pytest.raises(CorruptFileError, match="sparse: is sparse"):
        LocalFileIO().read_bytes(str(tmp_path / "sparse"))
    assert len(LocalFileIO().read_bytes(str(tmp_path / "zeros"))) == MIB


def test_the_stored_bytes_of_a_file_are_measured_without_a_change_of_its_position(
    tmp_path: Path,
) -> None:
    size = write_parts(tmp_path / "file", [bytes(MIB), MIB, bytes(MIB)])
    with (tmp_path / "file").open("rb") as source:
        source.seek(7)
        assert 2 * MIB <= measure_stored_bytes(source, size) < 3 * MIB
        assert source.tell() == 7
        assert source.read(1) == b"\0"
    assert measure_stored_bytes(io.BytesIO(b"abc"), 3) == 3
    assert ByteSource.of(b"abc").stored_bytes == 3
