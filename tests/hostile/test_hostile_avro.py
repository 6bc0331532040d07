"""Avro files that a few bytes make endless, huge or deep are refused by an own error."""

from __future__ import annotations

import io
import json
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.limited_process import refuse, run_limited
from support.tables import new_table

from paimon_orch.decode_limits import LIMIT_FACTOR_VARIABLE
from paimon_orch.errors import InputError, wrap_decode_errors
from paimon_orch.files.avro_reader import AvroFileReader
from paimon_orch.format.manifest import avro_container as avro
from paimon_orch.format.manifest.avro_batch_decoder import (
    AVRO_PADDING,
    AvroBatchDecoder,
    UnexpectedAvroError,
)
from paimon_orch.format.manifest.columnar_manifest import open_manifest
from paimon_orch.format.types.data_types import parse_columns

FILE = "db.db/t/manifest/manifest-1"
MANY = 1 << 40
SYNC = b"s" * 16


def long(number: int) -> bytes:
    """Return a number as Avro stores it."""
    raw, out = number << 1 ^ number >> 63, bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def container(schema: Any, *blocks: tuple[int, bytes], codec: str = "null") -> bytes:
    """Return a file with these record counts and stored bytes."""
    text = (schema if isinstance(schema, str) else json.dumps(schema)).encode()
    meta = {b"avro.schema": text, b"avro.codec": codec.encode()}
    head = b"Obj\1" + long(len(meta))
    head += b"".join(long(len(k)) + k + long(len(v)) + v for k, v in meta.items()) + b"\0" + SYNC
    return head + b"".join(long(n) + long(len(data)) + data + SYNC for n, data in blocks)


def record(*fields: tuple[str, Any], name: str = "r") -> dict[str, Any]:
    """Return the schema of a record."""
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def decode_data_file(data: bytes) -> None:
    """Read all rows of a data file of one column."""
    with wrap_decode_errors(FILE):
        reader = AvroFileReader(io.BytesIO(data), parse_columns("a ARRAY<ROW<x INT>>"))
        for _ in reader.batches(["a"], 1000):
            pass


DECODERS = {
    "manifest": lambda data: open_manifest(data + b"", FILE),
    "manifest list": lambda data: avro.decode_avro_file(data, FILE, {"a": None}),
    "raw": lambda data: avro.decode_raw_avro_file(data, FILE),
    "search": lambda data: avro.avro_file_contains(data, FILE, [b"x"]),
    "data file": decode_data_file,
}
NODE = record(("a", ["null", "r"]))
EMPTY = record(name="e")
LEVELS = '{"type": "array", "items": ' * 300 + '"int"' + "}" * 300
TOO_DEEP = json.dumps(record(("a", "LEVELS"))).replace('"LEVELS"', LEVELS)
DOUBLED: Any = record(("x", "null"), name="n0")
for number in range(1, 60):
    DOUBLED = record(("x", DOUBLED), ("y", f"n{number - 1}"), name=f"n{number}")

ATTACKS = {
    "a type that contains itself": (
        container(NODE, (1, b"\2" * 100_000)), "uses the type r inside of itself",
    ),
    "a mutual recursion": (
        container(
            record(("a", ["null", record(("b", ["null", "r"]), name="s")])), (1, b"\2" * 10_000)
        ),
        "inside of itself",
    ),
    "items of a named type without bytes": (
        container(
            record(("e", EMPTY), ("a", {"type": "array", "items": "e"})),
            (1, long(MANY) + b"\0"),
        ),
        "zero-length array item",
    ),
    "items of a fixed type without bytes": (
        container(
            record(("a", {"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}})),
            (1, long(MANY) + b"\0"),
        ),
        "zero-length array item",
    ),
    "records of a named type without bytes": (
        container(record(("x", EMPTY), ("a", "e")), (MANY, b"")), "zero-length record",
    ),
    "nested arrays": (container(TOO_DEEP, (0, b"")), "nested"),
    "values that double at each level": (
        container(record(("a", ["null", DOUBLED])), (1, b"\2")), "bytes of memory that are allowed",
    ),
    "more records than bytes": (
        container(record(("a", "boolean")), (MANY, b"\1")), "can contain at most 1",
    ),
    "a negative number of records": (
        container(record(("a", "boolean")), (-5, b"\1")), "declares -5 records",
    ),
    "a block that is longer than the file": (
        container(record(("a", "boolean"))) + long(1) + long(MANY), "but the file has",
    ),
    "an unknown codec": (container(record(("a", "int")), (1, b"\2"), codec="lz5"), "codec 'lz5'"),
}  # fmt: skip


@pytest.mark.sampled(20)
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_file_is_refused_by_each_decoder(attack: str, decoder: str) -> None:
    data, reason = ATTACKS[attack]
    message = refuse(partial(DECODERS[decoder], data))
    assert reason in message
    assert FILE in message


def deflate_zeros(count: int) -> bytes:
    """Return zeros in raw deflate, from one part that can be repeated."""
    compressor = zlib.compressobj(9, wbits=-15)
    part = compressor.compress(bytes(1 << 20)) + compressor.flush(zlib.Z_FULL_FLUSH)
    return part * (count >> 20) + compressor.flush()


def snappy_zeros(count: int) -> bytes:
    """Return the header of snappy for zeros, and a checksum."""
    raw, out = count, bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw, 0, 0]) + struct.pack(">I", 0)


def zstd_zeros(count: int) -> bytes:
    """Return zeros in frames of zstd."""
    frame = pa.compress(bytes(1 << 20), codec="zstd", asbytes=True)
    return bytes(frame) * (count >> 20)


BOMBS = {"deflate": deflate_zeros, "zstandard": zstd_zeros, "snappy": snappy_zeros}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("decoder", ["raw", "data file"])
@pytest.mark.parametrize("codec", BOMBS)
def test_a_block_that_decompresses_to_gigabytes_is_refused(codec: str, decoder: str) -> None:
    schema = record(("a", {"type": "array", "items": record(("x", "int"), name="s")}))
    data = container(schema, (1, BOMBS[codec](2 << 30)), codec=codec)
    assert len(data) < 8 << 20
    refuse(partial(DECODERS[decoder], data), seconds=60.0)


def test_many_small_values_of_a_bomb_are_refused_before_they_are_built() -> None:
    schema = record(("a", {"type": "array", "items": record(("x", "int"), name="s")}))
    body = long(30 << 20) + bytes(30 << 20) + b"\0"
    compressor = zlib.compressobj(9, wbits=-15)
    data = container(schema, (1, compressor.compress(body) + compressor.flush()), codec="deflate")
    message = refuse(partial(DECODERS["raw"], data))
    assert f"set the environment variable {LIMIT_FACTOR_VARIABLE}" in message


@pytest.mark.slow
def test_the_limit_is_raised_by_the_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 270 << 20
    head = bytes(pa.compress(long(size), codec="zstd", asbytes=True))
    data = container(record(("a", "bytes")), (1, head + zstd_zeros(size)), codec="zstandard")
    assert "decompressed bytes" in refuse(partial(_count_rows, data))
    monkeypatch.setenv(LIMIT_FACTOR_VARIABLE, "2")
    assert run_limited(partial(_count_rows, data), memory=4 << 30) == 1


@pytest.mark.parametrize("factor", ["four", "", "0.5", "nan", "inf"])
def test_an_invalid_factor_of_the_limits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: str
) -> None:
    table = new_table(tmp_path)
    monkeypatch.setenv(LIMIT_FACTOR_VARIABLE, factor)
    with pytest.raises(InputError, match=f"{LIMIT_FACTOR_VARIABLE} is '{factor}', but must be"):
        table.scan().to_arrow()


def _count_rows(data: bytes) -> int:
    return len(avro.decode_raw_avro_file(data, FILE))


def test_overlapping_candidates_of_the_columnar_decoder_are_given_up() -> None:
    """Each position looks like an entry with a long array, so all lanes share the same items."""
    content = long(40_000) + bytes(40_000)
    data = content * 4 + AVRO_PADDING
    decoder = AvroBatchDecoder(data)
    starts = np.arange(0, 30_000)
    schema = record(("a", {"type": "array", "items": "long"}))
    with pytest.raises(UnexpectedAvroError, match="too many items"):
        decoder.walk(schema, np.repeat(0, len(starts)))
