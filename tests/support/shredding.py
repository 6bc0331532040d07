"""Shreds Python values into VARIANT columns by the rules of the specification."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from paimon_orch.format.variant.value import _Writer, encode_names

MISSING = object()
SCALAR_TYPES = {
    int: pa.int64(),
    str: pa.string(),
    bool: pa.bool_(),
    float: pa.float64(),
    bytes: pa.binary(),
    Decimal: pa.decimal128(20, 3),
    date: pa.date32(),
}
LEAVES = st.sampled_from(list(SCALAR_TYPES)) | st.none()
SHAPES = st.recursive(
    LEAVES,
    lambda inner: (
        st.dictionaries(st.sampled_from("abcdé"), inner, min_size=1, max_size=3)
        | st.lists(inner, min_size=1, max_size=1)
    ),
    max_leaves=6,
)
"""A shape of shredded columns: a type, None for no typed column, fields, or an element."""
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.integers(-200, 200)
    | st.text(max_size=70)
    | st.floats(allow_nan=False)
    | st.binary(max_size=5)
    | st.dates()
    | st.decimals(-(10**16), 10**16, places=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcdéz"), inner, max_size=5)
    ),
    max_leaves=12,
)


class Shredder:
    """Shreds Python values by the rules of the specification, one value at a time."""

    def __init__(self) -> None:
        self.writer = _Writer()

    def shred(self, value: Any, shape: Any) -> dict[str, Any]:
        if value is MISSING:
            return {"value": None} if shape is None else {"value": None, "typed_value": None}
        if shape is None:
            return {"value": self.writer.encode(value, 0)}
        if isinstance(shape, dict) and isinstance(value, dict):
            for name in value:
                self.writer.ids.setdefault(name, len(self.writer.ids))
            rest = {name: item for name, item in value.items() if name not in shape}
            typed = {name: self.shred(value.get(name, MISSING), shape[name]) for name in shape}
            return {"value": self.writer.encode(rest, 0) if rest else None, "typed_value": typed}
        if isinstance(shape, list) and isinstance(value, list):
            return {"value": None, "typed_value": [self.shred(item, shape[0]) for item in value]}
        if type(value) is shape:
            return {"value": None, "typed_value": value}
        return {"value": self.writer.encode(value, 0), "typed_value": None}


def arrow_type(shape: Any) -> pa.DataType:
    value = pa.field("value", pa.binary())
    if shape is None:
        return pa.struct([value])
    if isinstance(shape, dict):
        typed = pa.struct([(name, arrow_type(child)) for name, child in shape.items()])
    elif isinstance(shape, list):
        typed = pa.list_(pa.field("element", arrow_type(shape[0])))
    else:
        typed = SCALAR_TYPES[shape]
    return pa.struct([value, pa.field("typed_value", typed)])


def shred(values: list[Any], shape: Any, *, names: list[str] | None = None) -> pa.StructArray:
    """Return a column; null values are null rows."""
    rows: list[dict[str, Any] | None] = []
    for value in values:
        if value is MISSING:
            rows.append(None)
            continue
        shredder = Shredder()
        shredder.writer.ids.update({name: number for number, name in enumerate(names or ())})
        node = shredder.shred(value, shape)
        stored = list(shredder.writer.ids) if names is None else names
        rows.append({"metadata": encode_names(stored), **node})
    fields = [pa.field("metadata", pa.binary()), *arrow_type(shape)]
    return pa.array(rows, pa.struct(fields))
