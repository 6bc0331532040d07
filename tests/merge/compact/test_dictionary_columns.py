"""Compactions merge columns with few distinct values as dictionary arrays, with the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_orch import Catalog
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.format.row.simple_stats import ColumnStats, SimpleStats
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact

ROWS = 3_000
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "first-row": {},
    "partial-update": {"partial-update.remove-record-on-delete": "true"},
    "aggregation": {
        "fields.default-aggregate-function": "last_non_null_value",
        "fields.state.aggregate-function": "max",
        "aggregation.remove-record-on-delete": "true",
    },
}


def _make_rows(seed: int, keys: np.ndarray, *, distinct: int, deletes: bool) -> pa.Table:
    random = np.random.default_rng(seed)
    texts = np.array([f"text {number}" for number in range(distinct)])

    def choose() -> pa.Array:
        return pa.array(
            texts[random.integers(0, distinct, len(keys))], mask=random.random(len(keys)) < 0.2
        )

    kinds = np.where(random.random(len(keys)) < (0.1 if deletes else 0), "-D", "+I")
    return pa.table({"id": keys, "state": choose(), "word": choose(), "kind": kinds})


def _merge(engine: str, old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any] | None:
    if engine == "first-row":
        return old or new
    if new["kind"] == "-D":
        return None
    if engine == "deduplicate" or old is None:
        return new
    merged = {name: old[name] if new[name] is None else new[name] for name in new}
    if engine == "aggregation":
        states = [state for state in (old["state"], new["state"]) if state is not None]
        merged["state"] = max(states, default=None)
    return merged


@pytest.mark.parametrize("engine", ENGINES)
def test_merged_dictionary_columns_have_the_rows_of_a_merge_row_by_row(
    engine: str, tmp_path: Path
) -> None:
    options = {"bucket": "1", "merge-engine": engine, "num-sorted-run.compaction-trigger": "99"}
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        "id BIGINT, state STRING, word STRING",
        primary_key=["id"],
        options={**options, **ENGINES[engine]},
    )
    expected: dict[int, dict[str, Any]] = {}
    batches = [(ROWS, 4), (500, 3), (300, 300), (1, 1)]  # the third batch has no dictionaries
    for seed, (count, distinct) in enumerate(batches):
        keys = np.sort(np.random.default_rng(seed).choice(ROWS + 50, count, replace=False))
        deletes = engine != "first-row" and seed == 2
        rows = _make_rows(seed, keys, distinct=distinct, deletes=deletes)
        table.upsert(rows, row_kind="kind")
        if seed == 0:
            compact.compact(table, InProcessExecutor(), strategy="full")
        for row in rows.to_pylist():
            merged = _merge(engine, expected.pop(row["id"], None), row)
            if merged is not None:
                expected[row["id"]] = merged
    compact.compact(table, InProcessExecutor(), strategy="full")
    [split] = table.files()
    [file] = split.files
    reader: FileReader = table.stores.reader()
    bucket_file = BucketFile(split.partition, split.bucket, file)
    assert "state" in reader.find_dictionary_columns(bucket_file)
    path = reader.path(bucket_file)
    stored = pq.read_table(path).sort_by("id").to_pylist()
    names = ("id", "state", "word")
    assert [{name: row[name] for name in names} for row in stored] == [
        {name: expected[key][name] for name in names} for key in sorted(expected)
    ]
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(4)
    assert (chunk.path_in_schema, chunk.has_dictionary_page) == ("state", True)
    types = [field.type for field in table.load().schema.fields]
    columns = [[row[name] for row in expected.values()] for name in names]
    stats = [ColumnStats(*_bounds(values)) for values in columns]
    assert file.value_stats == SimpleStats.of(stats, types)


def _bounds(values: list[Any]) -> tuple[Any, Any, int]:
    known = [value for value in values if value is not None]
    return min(known), max(known), len(values) - len(known)
