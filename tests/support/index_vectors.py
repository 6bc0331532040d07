"""The test vectors of file indexes in `tests/data/vectors`, written by Java Paimon."""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.packed_data import data_file

from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, parse_type

Vector = dict[str, Any]


@functools.cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(data_file("vectors/file_index.json"))
    return document


def vectors(kind: str, index: str | None = None) -> list[Vector]:
    """Return all vectors of a kind and, if given, an index type."""
    listed = _document()["vectors"]
    return [v for v in listed if v["kind"] == kind and index in (None, v.get("index"))]


def group_vectors(vectors: Iterable[Vector]) -> list[Any]:
    """Return parameters of tests, each with all vectors of an index type and a column type."""
    groups: dict[str, list[Vector]] = {}
    for vector in vectors:
        groups.setdefault(f"{vector['index']}-{vector['type']}", []).append(vector)
    return [pytest.param(group, id=name) for name, group in groups.items()]


@contextmanager
def naming(vector: Vector) -> Iterator[None]:
    """Add the name of a vector to an error."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"vector {vector['id']}")
        raise


def vector_rows(vector: Vector) -> list[Any]:
    """Return the rows of a vector, which may be those of a shared data set."""
    if "rows" in vector:
        return list(vector["rows"])
    dataset = _document()["datasets"][vector["rows_ref"]]
    if "rows" in dataset:
        return list(dataset["rows"])
    return [value for value, count in dataset["rows_rle"] for _ in range(count)]


def java_bytes(vector: Vector) -> bytes:
    """Return the bytes that Java wrote."""
    if "hex" in vector:
        return bytes.fromhex(vector["hex"])
    import base64

    return base64.b64decode(vector["base64"])


def parse_atomic_type(text: str) -> AtomicType:
    """Parse the type of a column."""
    data_type = parse_type(text)
    assert isinstance(data_type, AtomicType)
    return data_type


def to_column(values: Iterable[Any], data_type: AtomicType) -> pa.Array:
    """Return a column of values in the notation of the vectors."""
    target = to_arrow_type(data_type)
    rows = list(values)
    missing = np.array([value is None for value in rows], bool)
    match data_type.name:
        case "FLOAT" | "DOUBLE":
            dtype = np.dtype("<i4" if data_type.name == "FLOAT" else "<i8")
            bits = np.array([_bits(value or 0.0, dtype.itemsize) for value in rows], dtype)
            return pa.array(bits, mask=missing).view(target)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            assert isinstance(target, pa.TimestampType)
            unit = {"ms": 1_000_000, "us": 1_000, "ns": 1}[target.unit]
            ticks = [0 if v is None else (v[0] * 1_000_000 + v[1]) // unit for v in rows]
            return pa.array(np.array(ticks, np.int64), mask=missing).view(target)
        case "DATE" | "TIME":
            numbers = np.array([value or 0 for value in rows], np.int32)
            return pa.array(numbers, mask=missing).view(target)
        case "DECIMAL":
            return pa.array([None if v is None else Decimal(v) for v in rows], target)
        case "BINARY" | "VARBINARY":
            texts = [None if v is None else bytes.fromhex(v.removeprefix("hex:")) for v in rows]
            return pa.array(texts, target)
    return pa.array(rows, target)


def _bits(value: Any, size: int) -> int:
    if isinstance(value, str) and value.startswith("bits:"):
        return int.from_bytes(bytes.fromhex(value[5:]), "big", signed=True)
    number = float(value)
    if number != number:  # noqa: PLR0124 - NaN as Java has it
        return 0x7FC00000 if size == 4 else 0x7FF8 << 48
    return int.from_bytes(
        np.float32(number).tobytes() if size == 4 else struct.pack("<d", number),
        "little",
        signed=True,
    )


def row_set(ranges: Iterable[Iterable[int]]) -> set[int]:
    """Return the row positions of inclusive ranges."""
    return {row for low, high in ranges for row in range(low, high + 1)}
