"""TPC-H's orders and lineitem as primary-key tables with refreshes.

``tpchgen-cli`` (a Python package to install) generates the data. It generates no refresh streams,
so this module creates them by the rules of TPC-H: a refresh inserts 0.1 % new orders, with keys
from the unused part of each block of keys, and deletes 0.1 % of the orders with their lines.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.table.table import Table

KEYS = {"orders": ["o_orderkey"], "lineitem": ["l_orderkey", "l_linenumber"]}
REFRESH_SHARE, USED_KEYS_PER_BLOCK, KEYS_PER_BLOCK = 0.001, 8, 32
_TYPES = {
    "int64": "BIGINT",
    "int32": "INT",
    "date32[day]": "DATE",
    "decimal128(15, 2)": "DECIMAL(15, 2)",
}


def is_available() -> bool:
    """Return whether the generator is installed."""
    return shutil.which("tpchgen-cli") is not None


def require_generator() -> str:
    """Return the path of the generator; raise if it is not installed."""
    path = shutil.which("tpchgen-cli")
    if path is None:
        raise RuntimeError("tpchgen-cli is not installed: install the package tpchgen-cli")
    return path


def generate(folder: Path, scale: float) -> dict[str, pa.Table]:
    """Generate the rows of both tables."""
    tables = ",".join(KEYS)
    command = [
        "tpchgen-cli",
        "parquet",
        "-s",
        str(scale),
        f"--tables={tables}",
        f"--output-dir={folder}",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return {name: cast_text(pq.read_table(folder / f"{name}.parquet")) for name in KEYS}


def cast_text(rows: pa.Table) -> pa.Table:
    """Cast string views and other text types to strings."""
    for index, field in enumerate(rows.schema):
        if str(field.type) not in _TYPES:
            rows = rows.set_column(index, field.name, rows.column(index).cast(pa.string()))
    return rows


def column_types(schema: pa.Schema) -> str:
    """Return the columns of a table for rows of this schema, as in CREATE TABLE."""
    return ", ".join(f"{field.name} {_TYPES.get(str(field.type), 'STRING')}" for field in schema)


def create_tables(
    warehouse: Path, generated: dict[str, pa.Table], options: dict[str, str], batches: int
) -> dict[str, Table]:
    """Create both tables, compacted once and then refreshed ``batches`` times."""
    tables = {}
    random = np.random.default_rng(0)
    free_ranges = KEYS_PER_BLOCK // USED_KEYS_PER_BLOCK - 1
    orders = generated["orders"].column("o_orderkey").to_numpy()
    for name, rows in generated.items():
        tables[name] = Catalog(str(warehouse)).create_table(
            f"db.{name}", column_types(rows.schema), primary_key=KEYS[name], options=options
        )
        tables[name].upsert(rows)
        compact.compact(tables[name], InProcessExecutor(), strategy="full")
    for batch in range(batches):
        inserted = random.choice(orders, int(len(orders) * REFRESH_SHARE), replace=False)
        deleted = random.choice(orders, int(len(orders) * REFRESH_SHARE), replace=False)
        for name, rows in generated.items():
            key = KEYS[name][0]
            new = rows.filter(pc.is_in(rows.column(key), pa.array(inserted)))
            keys = new.column(key).to_numpy()
            unused = keys + USED_KEYS_PER_BLOCK * (1 + batch % free_ranges)
            new = new.set_column(rows.schema.get_field_index(key), key, pa.array(unused))
            tables[name].upsert(new)
            tables[name].delete(rows.filter(pc.is_in(rows.column(key), pa.array(deleted))))
    return tables
