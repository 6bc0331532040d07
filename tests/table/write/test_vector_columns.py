"""VECTOR columns: lists of a fixed length without null elements.

See docs/format/data-types.md#nested-types.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.golden import GOLDEN, copy_warehouse

from paimon_orch import Catalog
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.types.cast_rules import can_cast
from paimon_orch.format.types.data_types import parse_type, type_from_json, type_to_json
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

EMBEDDING = pa.list_(pa.field("element", pa.float32()), 2)
ROWS = pa.table({"k": [1, 2, 3], "v": pa.array([[1.5, -2.0], None, [0.25, 3.0]], EMBEDDING)})


def create(path: Path, file_format: str = "parquet", **keys: Any) -> Table:
    columns = "k BIGINT NOT NULL, v VECTOR<FLOAT, 2>"
    options = {"file.format": file_format, "bucket": "1" if keys else "-1"}
    return Catalog(str(path)).create_table("db.t", columns, options=options, **keys)


def read(table: Table) -> list[dict[str, object]]:
    rows = table.scan().to_arrow()
    assert rows.schema.field("v").type == EMBEDDING
    result: list[dict[str, object]] = rows.sort_by("k").to_pylist()
    return result


def test_a_type_of_java_is_read_and_written_without_change() -> None:
    stored = {"type": "VECTOR NOT NULL", "element": "FLOAT NOT NULL", "length": 4}

    assert type_to_json(type_from_json(stored)) == stored
    assert type_from_json(stored) == parse_type("VECTOR<FLOAT NOT NULL, 4> NOT NULL")


@pytest.mark.parametrize(
    "text", ["VECTOR<STRING, 2>", "VECTOR<ARRAY<INT>, 2>", "VECTOR<INT, 0>", "VECTOR<INT>"]
)
def test_a_type_that_java_refuses_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_type(text)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("file_format", ["parquet", "avro"])
@pytest.mark.parametrize("keys", [{}, {"primary_key": ["k"]}], ids=["append", "keyed"])
def test_written_vectors_are_read_before_and_after_a_compaction(
    tmp_path: Path, file_format: str, keys: dict[str, Any]
) -> None:
    table = create(tmp_path, file_format, **keys)
    write = table.upsert if keys else table.append
    write(ROWS)
    write(pa.table({"k": [4], "v": [[7.0, 8.0]]}))
    expected = [*ROWS.to_pylist(), {"k": 4, "v": [7.0, 8.0]}]
    assert read(table) == expected

    compact(table, InProcessExecutor(), strategy="full")

    assert read(table) == expected
    assert check(table, deep=True).findings == ()


@pytest.mark.parametrize("vector", [[1.0], [1.0, 2.0, 3.0], [1.0, None]])
def test_vectors_of_another_length_or_with_null_are_refused(
    tmp_path: Path, vector: list[float | None]
) -> None:
    table = create(tmp_path)

    with pytest.raises(InputError, match="'v'"):
        table.append(pa.table({"k": [1, 2], "v": [[1.0, 2.0], vector]}))
    assert table.stores.snapshots.latest_id() is None


def test_orc_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"'v' of type VECTOR<FLOAT, 2>.*ORC"):
        create(tmp_path, "orc").append(ROWS)


@pytest.mark.parametrize("keys", [{"primary_key": ["v"]}, {"partition_by": ["v"]}])
def test_a_vector_is_no_key(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="'v' must have a simple type"):
        Catalog(str(tmp_path)).create_table("db.t", "k BIGINT, v VECTOR<FLOAT, 2>", **keys)


@pytest.mark.parametrize("new", ["STRING", "ARRAY<FLOAT>", "VECTOR<FLOAT, 3>", "VECTOR<DOUBLE, 2>"])
def test_a_vector_has_no_casts(new: str) -> None:
    assert not can_cast(parse_type("VECTOR<FLOAT, 2>"), parse_type(new))
    assert can_cast(parse_type("VECTOR<FLOAT, 2>"), parse_type("VECTOR<FLOAT, 2> NOT NULL"))


def test_a_table_from_an_arrow_schema_has_vectors(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", ROWS.schema)

    assert table.load().schema.field("v").type == parse_type("VECTOR<FLOAT, 2>")


def test_vectors_keep_slices_and_nulls(tmp_path: Path) -> None:
    table = create(tmp_path)
    values = [None if n % 3 == 0 else [float(n), -float(n)] for n in range(1000)]
    rows = pa.table({"k": range(1000), "v": pa.array(values, EMBEDDING)})

    table.append(rows.slice(401, 97))

    assert read(table) == rows.slice(401, 97).to_pylist()


def test_vector_files_of_java_are_read_and_changes_are_refused_by_name(tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "vector", tmp_path / "w")
    table = Catalog(str(warehouse)).table("db.t_store")
    lines = [
        json.loads(line)["emb"]
        for file in warehouse.glob("**/*.vector.json")
        for line in file.read_text().splitlines()
    ]

    vectors = table.scan(columns=["emb"]).to_arrow()["emb"].to_pylist()

    expected = [None if line is None else np.float32(line).tolist() for line in lines]
    assert sorted(map(str, vectors)) == sorted(map(str, expected))
    with pytest.raises(UnsupportedError, match=r"vector\.file\.format"):
        table.append(pa.table({"id": [1]}))
    assert table.stores.snapshots.latest_id() == 2
