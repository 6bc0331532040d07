"""TPC-H's orders and lineitem as primary-key tables under refreshes; data by ``tpchgen-cli`` (pip install it).

The generator makes no refresh streams, so they are made here by the benchmark's rules: a refresh inserts 0.1 % new orders
with keys from the gaps that TPC-H leaves, and deletes 0.1 % of the orders, each with its lines.
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
SHARE, USED_OF_A_BLOCK, BLOCK = 0.001, 8, 32
_TYPES = {
    "int64": "BIGINT",
    "int32": "INT",
    "date32[day]": "DATE",
    "decimal128(15, 2)": "DECIMAL(15, 2)",
}


def is_available() -> bool:
    """Tell whether the generator is installed."""
    return shutil.which("tpchgen-cli") is not None


def generate(folder: Path, scale: float) -> dict[str, pa.Table]:
    """Return the rows of both tables."""
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
    return {name: _plain(pq.read_table(folder / f"{name}.parquet")) for name in KEYS}


def _plain(rows: pa.Table) -> pa.Table:
    """Return text as plain strings."""
    for index, field in enumerate(rows.schema):
        if str(field.type) not in _TYPES:
            rows = rows.set_column(index, field.name, rows.column(index).cast(pa.string()))
    return rows


def make_tables(
    warehouse: Path, generated: dict[str, pa.Table], options: dict[str, str], batches: int
) -> dict[str, Table]:
    """Return both tables, compacted once and refreshed so often since."""
    tables = {}
    random = np.random.default_rng(0)
    orders = generated["orders"].column("o_orderkey").to_numpy()
    for name, rows in generated.items():
        columns = ", ".join(f"{f.name} {_TYPES.get(str(f.type), 'STRING')}" for f in rows.schema)
        tables[name] = Catalog(str(warehouse)).create_table(
            f"db.{name}", columns, primary_key=KEYS[name], options=options
        )
        tables[name].upsert(rows)
        compact.compact(tables[name], InProcessExecutor(), strategy="full")
    for batch in range(batches):
        chosen = random.choice(orders, int(len(orders) * SHARE), replace=False)
        gone = random.choice(orders, int(len(orders) * SHARE), replace=False)
        for name, rows in generated.items():
            key = KEYS[name][0]
            new = rows.filter(pc.is_in(rows.column(key), pa.array(chosen)))
            keys = new.column(key).to_numpy()
            unused = keys + USED_OF_A_BLOCK * (1 + batch % (BLOCK // USED_OF_A_BLOCK - 1))
            new = new.set_column(rows.schema.get_field_index(key), key, pa.array(unused))
            tables[name].upsert(new)
            tables[name].delete(rows.filter(pc.is_in(rows.column(key), pa.array(gone))))
    return tables
