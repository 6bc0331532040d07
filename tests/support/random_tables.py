"""Tables of random columns and values: every type of the format, nested ones too."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    parse_type,
)

ATOMS = [
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE"),
    *("DECIMAL(9, 2)", "DECIMAL(18, 0)", "DECIMAL(28, 5)", "DECIMAL(38, 38)"),
    *(
        "CHAR(5)",
        "VARCHAR(20)",
        "STRING",
        "BINARY(4)",
        "VARBINARY(9)",
        "BYTES",
        "TIME(0)",
        "TIME(3)",
    ),
    *(f"TIMESTAMP({precision})" for precision in (0, 3, 6, 9)),
    *(f"TIMESTAMP({precision}) WITH LOCAL TIME ZONE" for precision in (3, 6, 9)),
]
KEYS = ["INT", "STRING", "DATE", "DECIMAL(12, 3)", "TIMESTAMP(3)"]
NANOS = (-(2**62), 2**62)
PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def is_writable(kind: str, data_type: DataType) -> bool:
    match data_type:
        case AtomicType(name=TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ, params=(precision,)):
            return kind != "avro" or precision <= 6
        case ArrayType(element=element):
            return is_writable(kind, element)
        case MultisetType(element=element):
            return kind != "orc" and is_writable(kind, element)
        case MapType(value=value):
            return is_writable(kind, value)
        case RowType(fields=fields):
            return all(is_writable(kind, field.type) for field in fields)
    return True


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> DataType:
    nullable = draw(st.booleans())
    shape = draw(st.sampled_from(["atom"] * 3 + ["array", "map", "multiset", "row"]))
    if depth == 0 or shape == "atom":
        return parse_type(draw(st.sampled_from(ATOMS))).with_nullable(nullable)
    inner = types(depth=depth - 1)
    key = parse_type(draw(st.sampled_from(KEYS))).with_nullable(False)
    if shape == "array":
        return ArrayType(nullable, draw(inner))
    if shape == "map":
        return MapType(nullable, key, draw(inner))
    if shape == "multiset":
        return MultisetType(nullable, key)
    children = draw(st.lists(inner, min_size=1, max_size=3))
    return RowType(
        nullable, tuple(Field(id=10 + i, name=f"f{i}", type=t) for i, t in enumerate(children))
    )


def values(kind: str, data_type: DataType) -> st.SearchStrategy[Any]:
    strategy = _values(kind, data_type)
    return st.none() | strategy if data_type.nullable else strategy


def _values(kind: str, data_type: DataType) -> st.SearchStrategy[Any]:
    match data_type:
        case AtomicType():
            return _atoms(kind, data_type)
        case ArrayType(element=element):
            return st.lists(values(kind, element), max_size=3)
        case MapType(key=key, value=value):
            return _pairs(_values(kind, key), values(kind, value))
        case MultisetType(element=element):
            return _pairs(_values(kind, element), st.integers(1, 9))
        case RowType(fields=fields):
            return st.fixed_dictionaries({f.name: values(kind, f.type) for f in fields})
    raise TypeError(data_type)


def _pairs(keys: st.SearchStrategy[Any], items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(keys, items, max_size=3).map(
        lambda items_by_key: list(items_by_key.items())
    )


def _atoms(kind: str, data_type: AtomicType) -> st.SearchStrategy[Any]:
    name, params = data_type.name, data_type.params
    match name:
        case "BOOLEAN":
            return st.booleans()
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            bits = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}[name]
            return st.integers(-(1 << bits), (1 << bits) - 1)
        case "FLOAT" | "DOUBLE":
            return st.floats(width=32 if name == "FLOAT" else 64)
        case "DECIMAL":
            largest, scale = 10 ** params[0] - 1, params[1]
            return st.integers(-largest, largest).map(
                lambda number: Decimal(number).scaleb(-scale, Context(prec=50))
            )
        case "CHAR" | "VARCHAR":
            text = st.text(st.characters(codec="utf-8"), max_size=min(params[0], 12))
            return text.map(lambda drawn: drawn.rstrip(" ")) if name == "CHAR" else text
        case "BINARY" | "VARBINARY":
            return st.binary(max_size=min(params[0], 12))
    return _times(kind, name, params)


def _times(kind: str, name: str, params: tuple[int, ...]) -> st.SearchStrategy[int]:
    if name == "DATE":
        return st.integers(-719162, 2932896)
    (precision,) = params
    if name == "TIME":
        return st.integers(0, 86_399_999)
    unit = "ms" if precision <= 3 else "us" if precision <= 6 else "ns"
    divisor = 10**9 // PER_SECOND[unit]
    low, high = NANOS
    numbers = st.integers(low // divisor, high // divisor)
    # Times before 1970 must be whole seconds in ORC files: see paimon_orch.files.orc.
    if kind == "orc":
        second = PER_SECOND[unit]
        return numbers.map(lambda n: n if n >= 0 else n // second * second)
    return numbers


@st.composite
def tables(draw: st.DrawFn, kind: str) -> tuple[list[Field], pa.Table]:
    columns = draw(st.lists(types().filter(lambda t: is_writable(kind, t)), min_size=1, max_size=4))
    fields = [Field(id=i, name=f"c{i}", type=column) for i, column in enumerate(columns)]
    size = draw(st.integers(0, 20))
    schema = to_arrow_schema(fields)
    arrays = [
        pa.array(draw(st.lists(values(kind, f.type), min_size=size, max_size=size)), target)
        for f, target in zip(fields, schema.types, strict=True)
    ]
    return fields, pa.table(arrays, schema=schema)
