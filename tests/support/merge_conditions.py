"""A table and a source with floating-point numbers, and the rows for which conditions are true."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from support.tables import new_table

from paimon_orch.table.table import Table

NAN = float("nan")
_X = [NAN, -0.0, NAN, 1.0, None, 0.1, 0.1]
SOURCE = pa.table(
    {
        "id": range(7),
        "y": pa.array([NAN, 0.0, 1.5, NAN, 1.005, None, 0.1]),
        "big": pa.array([0, 0, 2, 1, 3, 2**53 + 1, None]),
    }
)
CONDITIONS = {
    "x = y": [0, 1, 6],
    "x <> y": [2, 3],
    "x < y": [3],
    "x <= y": [0, 1, 3, 6],
    "x > y": [2],
    "x >= y": [0, 1, 2, 6],
    "not (x = y)": [2, 3],
    "not (x < y)": [0, 1, 2, 6],
    "x > 1": [0, 2],
    "x >= 0.0": [0, 1, 2, 3, 5, 6],
    "not (x <= 0.5)": [0, 2, 3],
    "x between 0 and 1": [1, 3, 5, 6],
    "m['a'] > 1": [0, 2],
    "m['a'] = 0.1": [],
    "isnan(x)": [0, 2],
    "not isnan(x)": [1, 3, 4, 5, 6],
    "not isnan(y)": [1, 2, 4, 5, 6],
    "f = 0.1": [],
    "f > 0.1": [0, 2, 3, 5, 6],
    "f in (0.1, 0)": [1],
    "f not in (0.1, 1)": [0, 1, 2, 5, 6],
    "f = x": [0, 1, 2, 3],
    "f < y": [3],
    "f = 16777217": [],
    "c < x": [0, 2],
    "c = y": [1, 4, 6],
    "n < f": [0, 2],
    "n = 16777217.0": [4],
    "big = x": [1, 3],
    "big < y": [0, 3],
    "big <> f": [0, 2, 5],
}
"""The keys of the rows for which Spark finds a condition true."""


def create_numbers(root: Path) -> Table:
    """Create a table of floating-point numbers, whose keys are those of the source."""
    columns = "k BIGINT, x DOUBLE, f FLOAT, m MAP<STRING, FLOAT>, c DECIMAL(4, 3), n INT"
    table = new_table(root, columns, key=(), bucket="-1")
    maps = pa.array([[("a", x)] for x in _X], pa.map_(pa.string(), pa.float32()))
    numbers = {"x": pa.array(_X), "f": pa.array(_X, pa.float32()), "m": maps}
    decimals = pa.array(["0.100", "0.000", "1.000", "1.500", "1.005", None, "0.100"])
    integers = pa.array([0, 0, 2, 1, 16777217, 1, None], pa.int32())
    table.append(pa.table({"k": range(7), **numbers, "c": decimals, "n": integers}))
    return table
