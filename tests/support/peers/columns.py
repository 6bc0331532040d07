"""Columns of every type, values that readers or writers got wrong, and limits by implementation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from support.peers.limits import PeerAction, PeerLimit

FORMATS = ("parquet", "orc", "avro")

_BEFORE_EPOCH = "1969-12-31T23:59:59.999999999"
_LATEST_TIMESTAMP = "2200-12-31T23:59:59.999999999"

COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "boolean": ("BOOLEAN", [True, None, False]),
    "tinyint": ("TINYINT", [-128, None, 127]),
    "smallint": ("SMALLINT", [-(2**15), None, 2**15 - 1]),
    "int": ("INT", [-(2**31), None, 2**31 - 1]),
    "bigint": ("BIGINT", [-(2**63), None, 2**63 - 1]),
    "float": ("FLOAT", ["NaN", None, 0.1]),
    "double": ("DOUBLE", ["-Infinity", None, 1e-300]),
    "short_decimal": ("DECIMAL(9, 2)", ["-9999999.99", None, "0.01"]),
    "decimal": ("DECIMAL(18, 4)", ["12345678901234.5678", None, "-0.0001"]),
    "long_decimal": ("DECIMAL(20, 2)", ["12.34", None, "-999999999999999999.99"]),
    "longest_decimal": ("DECIMAL(38, 10)", ["9" * 28 + "." + "9" * 10, None, "-0.0000000001"]),
    "char": ("CHAR(3)", ["abc", None, "äöü"]),
    "varchar": ("VARCHAR(10)", ["", None, "x\ty"]),
    "string": ("STRING", ["é" * 100, None, "\U0001f600"]),
    "binary": ("BINARY(3)", ["00ff10", None, "000000"]),
    "varbinary": ("VARBINARY(5)", ["", None, "ff"]),
    "bytes": ("BYTES", ["00" * 50, None, ""]),
    "date": ("DATE", ["0001-01-01", None, "9999-12-31"]),
    "time": ("TIME(3)", ["23:59:59.999", None, "00:00:00.000"]),
    "seconds": ("TIMESTAMP(0)", ["1969-12-31T23:59:59.000000000", None, "2200-12-31T00:00:00.000000000"]),
    "millis": ("TIMESTAMP(3)", ["1969-12-31T23:59:59.999000000", None, "2200-12-31T00:00:00.001000000"]),
    "micros": ("TIMESTAMP(6)", ["1969-12-31T23:59:59.999999000", None, "2200-12-31T00:00:00.000001000"]),
    "nanos": ("TIMESTAMP(9)", [_BEFORE_EPOCH, None, _LATEST_TIMESTAMP]),
    "instant": ("TIMESTAMP(3) WITH LOCAL TIME ZONE", ["2020-06-01T00:00:00.001000000Z", None, "1969-12-31T23:59:59.999000000Z"]),
    "exact_instant": ("TIMESTAMP(6) WITH LOCAL TIME ZONE", ["2020-06-01T00:00:00.000001000Z", None, "1969-12-31T23:59:59.999999000Z"]),
    "recent_millis": ("TIMESTAMP(3)", ["1970-01-01T00:00:00.001000000", None, "2200-12-31T00:00:00.999000000"]),
    "recent_micros": ("TIMESTAMP(6)", ["1970-01-01T00:00:00.000001000", None, "2200-12-31T00:00:00.999999000"]),
    "recent_nanos": ("TIMESTAMP(9)", ["1970-01-01T00:00:00.000000001", None, _LATEST_TIMESTAMP]),
    "recent_instant": ("TIMESTAMP(6) WITH LOCAL TIME ZONE", ["1970-01-01T00:00:00.000001000Z", None, "2200-12-31T23:59:59.999999000Z"]),
    "array": ("ARRAY<INT>", [[1, None], [], None]),
    "array_not_null": ("ARRAY<INT NOT NULL>", [[1, 2], [], None]),
    "array_of_nanos": ("ARRAY<TIMESTAMP(9)>", [[_BEFORE_EPOCH, None], [], None]),
    "array_of_times": ("ARRAY<TIME(3)>", [["23:59:59.999", None], [], None]),
    "array_of_decimals": ("ARRAY<DECIMAL(20, 2)>", [["1.23", None], [], None]),
    "array_of_instants": ("ARRAY<TIMESTAMP(6) WITH LOCAL TIME ZONE>", [["2020-01-01T00:00:00.123456000Z"], [], None]),
    "map": ("MAP<STRING, INT>", [[["a", 1], ["b", None]], [], None]),
    "map_of_rows": ("MAP<STRING, ROW<x DATE>>", [[["k", {"x": "2020-02-29"}], ["l", None]], [], None]),
    "map_of_moments": ("MAP<INT, TIMESTAMP(3)>", [[[1, "2020-01-01T00:00:00.123000000"], [2, None]], [], None]),
    "row": ("ROW<x INT, y STRING>", [{"x": 1, "y": None}, {"x": None, "y": "b"}, None]),
    "row_not_null": ("ROW<x INT NOT NULL, y ARRAY<STRING>>", [{"x": 1, "y": ["a", None]}, {"x": 2, "y": None}, None]),
    "row_of_rows": ("ROW<p ROW<q INT>, s STRING>", [{"p": {"q": 1}, "s": "x"}, {"p": None, "s": "y"}, None]),
    "multiset": ("MULTISET<STRING>", [[["a", 1], ["b", 2]], [], None]),
    "multiset_of_numbers": ("MULTISET<INT>", [[[1, 1], [3, 2]], [], None]),
}  # fmt: skip


_TIMES = ["array_of_times"]
_MULTISETS = ["multiset", "multiset_of_numbers"]
_NANOS = ["nanos", "recent_nanos", "array_of_nanos"]
# These columns have values in the last second of 1969.
_BEFORE_EPOCH_COLUMNS = ["millis", "micros", "nanos", "instant", "exact_instant", "array_of_nanos"]
_NESTED = [name for name, (text, _) in COLUMNS.items() if text.startswith(("ARRAY", "MAP", "ROW"))]


def _column_limits() -> Iterator[tuple[str, PeerAction, str, PeerLimit, list[str]]]:
    early = PeerLimit(
        "fractions of seconds before 1970 are refused, as pyarrow writes them wrongly",
        "before 1970",
    )
    yield "us", "writes", "orc", early, _BEFORE_EPOCH_COLUMNS
    micros = PeerLimit("Avro timestamps have at most 6 digits", "up to 6 fractional digits")
    yield "us", "writes", "avro", micros, _NANOS

    unknown = PeerLimit("does not know the type", "Unsupported data type: MULTISET")
    for kind in FORMATS:
        yield "pypaimon", "reads", kind, unknown, _MULTISETS
        yield "pypaimon", "writes", kind, unknown, _MULTISETS
    inside = PeerLimit(
        "does not read NOT NULL fields of rows", "cannot cast nullable field to non-nullable"
    )
    yield "pypaimon", "reads", "orc", inside, ["row_not_null"]
    clock = PeerLimit("pyarrow's ORC writer has no TIME in arrays", "time32")
    yield "pypaimon", "writes", "orc", clock, _TIMES
    digits = PeerLimit("Avro timestamps have at most 6 digits", "timestamp with unit ns")
    yield "pypaimon", "writes", "avro", digits, _NANOS
    nulls = PeerLimit("cannot write null items of arrays", "None.* do not match")
    holding = ["array", "array_of_times", "array_of_decimals", "row_not_null"]
    yield "pypaimon", "writes", "avro", nulls, holding
    maps = PeerLimit("writes no MAP in Avro files", "Unsupported pyarrow type for Avro")
    yield "pypaimon", "writes", "avro", maps, ["map", "map_of_rows", "map_of_moments"]

    for kind in FORMATS:
        clock = PeerLimit("its SQL has no TIME", "Unsupported SQL data type: TIME")
        yield "pypaimon-rust", "writes", kind, clock, ["time", *_TIMES]
        sets = PeerLimit("its SQL has no MULTISET", "has no type MULTISET")
        yield "pypaimon-rust", "writes", kind, sets, _MULTISETS
    few = PeerLimit("its ORC writer does not know the type", "ORC writer does not support")
    numbers = [name for name, (text, _) in COLUMNS.items() if text.startswith("DECIMAL")]
    nested = [name for name in _NESTED if name not in _TIMES]
    moments = [name for name, (text, _) in COLUMNS.items() if text.startswith("TIMESTAMP")]
    yield "pypaimon-rust", "writes", "orc", few, ["date", *moments, *numbers, *nested]
    rust = PeerLimit("Avro timestamps have at most 6 digits", "Avro writer does not support")
    yield "pypaimon-rust", "writes", "avro", rust, _NANOS

    outer = PeerLimit("its reader fails for null rows that contain rows", "ArrayIndexOutOfBounds")
    yield "java-0.9", "reads", "parquet", outer, ["row_of_rows"]
    for java in ("java-0.9", "java-1.4", "java-2.0"):
        second = PeerLimit("writes the last second of 1969 a second late", "missing")
        yield java, "writes", "orc", second, _BEFORE_EPOCH_COLUMNS
        digits = PeerLimit("Avro timestamps have at most 6 digits", "precision less than 6")
        yield java, "writes", "avro", digits, _NANOS
        keys = PeerLimit(
            "treats keys other than strings as an array", "MultisetType cannot be cast"
        )
        yield java, "writes", "avro", keys, ["multiset_of_numbers"]
        yield java, "reads", "avro", keys, ["multiset_of_numbers"]


COLUMN_LIMITS = {
    (who, does, kind, column): limit
    for who, does, kind, limit, columns in _column_limits()
    for column in columns
}

# For these columns, neither success nor failure can be asserted.
UNSETTLED: dict[tuple[str, PeerAction, str, str], str] = {
    ("pypaimon-rust", "reads", "avro", "map_of_rows"): (
        "loses the values of rows in maps with some orders of its hash table, and keeps them with others"
    )
}
