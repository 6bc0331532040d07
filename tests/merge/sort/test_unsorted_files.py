"""Files whose rows are not in key order are refused with their names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.golden import GOLDEN, copy_warehouse
from support.tables import new_table
from support.tables_with_deletion_vectors import EXECUTOR

from paimon_orch import Catalog
from paimon_orch.errors import CorruptFileError
from paimon_orch.files.data_file_reader import ROW_POSITION
from paimon_orch.merge.sort.key_order import KeyOrderChecker
from paimon_orch.merge.sort.late_materialization import RowGroupValues
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

COLUMNS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "int": (st.integers(-3, 3), pa.int32()),
    "text": (st.sampled_from(["", "a", "b", "ba", "b" * 70, "\0"]), pa.string()),
    "time": (st.integers(-2, 2), pa.timestamp("us")),
    "float": (st.sampled_from([-1.0, 0.0, 2.5]), pa.float64()),
    "nullable": (st.none() | st.integers(0, 2), pa.int64()),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("names", [["int"], ["text"], ["float"], ["text", "int"], ["time", "text", "nullable"], ["nullable", "int"]])  # fmt: skip
def test_batches_in_key_order_are_accepted(names: list[str]) -> None:
    rows = st.tuples(*(COLUMNS[name][0] for name in names))

    @given(st.lists(st.lists(rows, max_size=5), max_size=3), st.booleans())
    def check(batches: list[list[tuple[Any, ...]]], in_order: bool) -> None:
        def order(row: tuple[Any, ...]) -> Any:
            return [(value is not None, value) for value in row]

        rows = [row for batch in batches for row in batch]
        if in_order:
            rows = sorted(rows, key=order)
            sizes = np.cumsum([0, *map(len, batches)]).tolist()
            batches = [rows[start:end] for start, end in pairwise(sizes)]
        checked = KeyOrderChecker(names)
        tables = [
            pa.record_batch(
                [pa.array([row[column] for row in batch], COLUMNS[name][1]) for column, name in enumerate(names)],
                names,
            )
            for batch in batches
        ]  # fmt: skip
        if rows == sorted(rows, key=order):
            check_all(checked, tables)
        else:
            with pytest.raises(CorruptFileError, match="f: its rows are not sorted"):
                check_all(checked, tables)

    check()


def check_all(order: KeyOrderChecker, batches: Sequence[pa.RecordBatch]) -> None:
    for batch in batches:
        order.check("f", batch)


def batches(*positions: list[int]) -> Iterator[pa.RecordBatch]:
    for numbers in positions:
        yield pa.record_batch([pa.array(numbers, pa.int64())], [ROW_POSITION])


def find_all(values: RowGroupValues, searched: Sequence[Sequence[int]]) -> None:
    for positions in searched:
        list(values.find(np.array(positions)))


@pytest.mark.parametrize(
    "positions", [[[3, 1]], [[3], [1]], [[2, 2]], [[-1]], [[5]], [[9]], [[4, 0], [8]]]
)
def test_a_missing_row_position_is_an_error(positions: list[list[int]]) -> None:
    values = RowGroupValues("f.parquet", batches([2, 3, 4], [6, 8]))

    with pytest.raises(CorruptFileError, match=r"f\.parquet"):
        find_all(values, positions)


@pytest.mark.parametrize("folder", ["pk_clustering", "pk_clustering_overlap"])
@pytest.mark.parametrize("name", ["t_dv", "t_many"])
def test_a_table_without_its_clustering_option_is_refused_with_the_file_name(
    folder: str, name: str, tmp_path: Path
) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / folder, tmp_path / "w")
    schema = warehouse / "db.db" / name / "schema" / "schema-0"
    content = json.loads(schema.read_text())
    del content["options"]["pk-clustering-override"]
    content["options"]["deletion-vectors.merge-on-read"] = "true"
    schema.write_text(json.dumps(content))
    table = Catalog(str(warehouse)).table(f"db.{name}")
    before = table.snapshot()

    for _ in range(2):
        with pytest.raises(CorruptFileError, match=r"data-.*(sorted by the primary key|overlap)"):
            compact_and_read(table)
    assert table.snapshot() == before


def compact_and_read(table: Table) -> None:
    if any(f.level == 0 for split in table.files() for f in split.files):
        table.scan().to_arrow()
    compact(table, EXECUTOR, strategy="full")


@pytest.mark.parametrize(
    ("columns", "clusters"),
    [
        ("k STRING, c BIGINT", "c"),
        ("k BIGINT, c STRING", "c"),
        ("k STRING, c BIGINT, d STRING", "c,d"),
    ],
)
def test_key_bounds_of_other_columns_are_refused_with_the_file_name(
    columns: str, clusters: str, tmp_path: Path
) -> None:
    options = {"pk_clustering_override": "true", "deletion_vectors__enabled": "true"}
    table = new_table(tmp_path, columns, clustering__columns=clusters, **options)
    kinds = table.scan().arrow_schema
    for turn in range(2):
        numbers = pa.array([(n * 7919 + turn) % 1000 * 10**12 for n in range(40)])
        rows = pa.table([numbers.cast(field.type) for field in kinds], kinds.names)
        table.upsert(rows)
        if not turn:
            compact(table, EXECUTOR)
    schema = Path(table.paths.root, "schema", "schema-0")
    content = json.loads(schema.read_text())
    del content["options"]["pk-clustering-override"]
    schema.write_text(json.dumps(content))
    table = Catalog(str(tmp_path)).table("db.t")

    with pytest.raises(CorruptFileError, match="data-"):
        table.scan(merge_level_0=True).to_arrow()
    assert {finding.rule for finding in check(table, deep=True).findings} >= {"keys"}
