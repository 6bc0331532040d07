"""``ingest --merge-schema`` adds the columns that only the files have."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import invoke, run_command
from support.tables import new_table, rows_of

from paimon_orch.errors import InputError
from paimon_orch.format.types.data_types import type_to_sql
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return new_table(tmp_path)


def ingest(tmp_path: Path, name: str, *options: str) -> str:
    path = str(tmp_path / name)
    return run_command("ingest", str(tmp_path), "db.t", "--from", path, "--merge-schema", *options)


def columns_of(table: Table) -> list[str]:
    return [f"{field.name} {type_to_sql(field.type)}" for field in table.load().schema.fields]


def test_columns_of_parquet_files_are_added_with_their_types(table: Table, tmp_path: Path) -> None:
    rows = pa.table(
        {"k": [1], "n": pa.array([2], pa.int32()), "m": pa.array(["1.5"]).cast(pa.decimal128(9, 2))}
    )
    pq.write_table(rows, tmp_path / "f.parquet")

    output = ingest(tmp_path, "f.parquet")

    assert output.splitlines()[0] == "added columns n INT, m DECIMAL(9, 2)"
    assert columns_of(table)[2:] == ["n INT", "m DECIMAL(9, 2)"]
    assert rows_of(table) == [(1, None, 2, Decimal("1.50"))]


def test_columns_of_text_files_are_added_as_strings(table: Table, tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text('{"k": 1, "v": "a"}\n{"k": 2, "n": 5}\n')

    ingest(tmp_path, "f.jsonl")

    assert columns_of(table)[2:] == ["n STRING"]
    assert rows_of(table) == [(1, "a", None), (2, None, "5")]
    assert "added columns" not in ingest(tmp_path, "f.jsonl")


def test_a_dry_run_adds_no_columns(table: Table, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("k,n\n1,2\n")

    assert ingest(tmp_path, "f.csv", "--dry-run").splitlines() == [
        "would add column n STRING",
        "the files lack v; null or the default value is written",
        "would load 1 row into db.t; nothing was changed",
    ]
    assert table.load().schema.id == 0


@pytest.mark.parametrize(
    ("header", "message"),
    [("k,V", "differs from the column 'v' of the table only in its case"), ("n", "missing k")],
)
def test_no_column_is_added_if_the_files_cannot_be_loaded(
    table: Table, tmp_path: Path, header: str, message: str
) -> None:
    (tmp_path / "f.csv").write_text(f"{header}\n")

    with pytest.raises(InputError, match=message):
        ingest(tmp_path, "f.csv")

    assert table.load().schema.id == 0


def test_types_without_an_equivalent_are_refused(table: Table, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1], "n": pa.array([2], pa.uint64())}), tmp_path / "f.parquet")

    with pytest.raises(InputError, match="column 'n': Arrow type uint64 has no Paimon type"):
        ingest(tmp_path, "f.parquet")

    assert table.load().schema.id == 0


def test_unknown_columns_are_refused_without_the_option(table: Table, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("k,n\n1,2\n")

    with pytest.raises(InputError, match="missing v; unknown n"):
        invoke("ingest", str(tmp_path), "db.t", "--from", str(tmp_path / "f.csv"))
