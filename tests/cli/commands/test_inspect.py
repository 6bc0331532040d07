"""The command ``inspect``."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from support.commands import Run, assert_fails
from support.damage import edit_files
from support.tables import levels_of

from paimon_orch import Catalog
from paimon_orch.table.table import Table


def test_inspect_prints_snapshot_and_totals(run: Run, table: Table, warehouse: Path) -> None:
    document = run("inspect", warehouse, "db.t", "--json").json
    shown = run("inspect", warehouse, "db.t")

    assert document["table"] == "db.t"
    assert document["snapshot"]["id"] == 1
    assert document["totals"]["physical_rows"] == 3
    assert document["totals"]["level0_files"] == len(levels_of(table))
    assert document["totals"]["deleted_rows"] == 0
    assert "snapshot 1 (APPEND)" in shown.out
    assert_fails(run("inspect", warehouse, "db.t", "--snapshot", 5), "has no snapshot 5")


def test_inspect_reports_a_table_without_snapshots(run: Run, tmp_path: Path) -> None:
    Catalog(str(tmp_path)).create_table("db.t", "id INT")

    assert "it has no snapshot" in run("inspect", tmp_path, "db.t").out
    assert run("inspect", tmp_path, "db.t", "--json").json["snapshot"] is None


def test_inspect_reports_overlapping_files_of_a_level(run: Run, tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "id INT NOT NULL", primary_key=["id"], options={"bucket": "1"}
    )
    for number in (1, 2):
        table.upsert(pa.table({"id": pa.array([1, 2], pa.int32())}))
        edit_files(table, number, level=5)

    plain, as_json = run("inspect", tmp_path, "db.t"), run("inspect", tmp_path, "db.t", "--json")

    assert plain.status == as_json.status == 1
    assert "L5:2" in plain.out
    assert "its keys overlap those of" in plain.error
    assert "its keys overlap those of" in as_json.json["problem"]
    assert as_json.json["totals"]["files"] == 2
