"""The commands ``describe``, ``history`` and ``count``."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Run
from support.tables import table_of

from paimon_orch import Catalog
from paimon_orch.table.table import Table


@pytest.fixture
def described(run: Run, tmp_path: Path) -> Path:
    answer = run(
        "create", tmp_path, "db.t", "--columns", "id BIGINT COMMENT 'the id', dt STRING",
        "--primary-key", "dt,id", "--partition-by", "dt", "--option", "bucket=2",
        "--option", "metadata.iceberg.rest.token=hidden-text", "--comment", "it's\x1b[2J",
    )  # fmt: skip
    assert answer.status == 0, answer.error
    return tmp_path


def test_describe_shows_columns_keys_partitions_options_and_comment(
    run: Run, described: Path
) -> None:
    lines = run("describe", described, "db.t").out.splitlines()

    assert "comment         it's\\x1b[2J" in lines
    assert "primary key     dt, id" in lines
    assert "partitioned by  dt" in lines
    assert "id      BIGINT NOT NULL  primary key             the id" in lines
    assert "dt      STRING NOT NULL  primary key, partition" in lines
    assert [line.split() for line in lines[-2:]] == [
        ["bucket", "2"],
        ["metadata.iceberg.rest.token", "***"],
    ]


def test_describe_prints_one_document(run: Run, described: Path) -> None:
    values = run("describe", described, "db.t", "--json").json

    assert values["columns"][1] == {
        "name": "dt",
        "type": "STRING",
        "nullable": False,
        "default": None,
        "comment": None,
    }
    assert (values["primary_key"], values["partition_by"]) == (["dt", "id"], ["dt"])
    assert values["options"]["metadata.iceberg.rest.token"] == "***"
    assert values["location"] == str(described / "db.db" / "t")


def test_describe_prints_a_create_statement(run: Run, described: Path) -> None:
    plain = run("describe", described, "db.t", "--ddl")
    document = run("describe", described, "db.t", "--ddl", "--json").json

    assert plain.out.startswith("CREATE TABLE `db`.`t` (\n  `id` BIGINT NOT NULL COMMENT 'the id',")
    assert "hidden-text" not in plain.out
    assert document == {"table": "db.t", "ddl": plain.out.rstrip("\n")}


def test_history_shows_the_newest_snapshots_first(
    run: Run, old_table: Table, tmp_path: Path
) -> None:
    plain = run("history", tmp_path, "db.t", "--limit", "2").out.splitlines()
    document = run("history", tmp_path, "db.t", "--json").json

    assert plain[0].split() == ["snapshot", "time", "kind", "records", "change", "schema", "user"]
    assert [line.split()[0] for line in plain[1:3]] == ["4", "3"]
    assert plain[3:] == ["and older snapshots; --limit shows more"]
    assert [entry["snapshot_id"] for entry in document] == [4, 3, 2, 1]
    snapshot = old_table.snapshot()
    assert snapshot is not None
    assert document[0] | {"watermark": None} == {
        "snapshot_id": 4,
        "time_millis": snapshot.time_millis,
        "kind": "APPEND",
        "total_record_count": 4,
        "delta_record_count": 1,
        "schema_id": 0,
        "user": snapshot.commit_user,
        "commit_identifier": snapshot.commit_identifier,
        "watermark": None,
    }


def test_history_of_a_table_without_snapshots_is_empty(run: Run, tmp_path: Path) -> None:
    Catalog(str(tmp_path)).create_table("db.t", "id INT")

    assert run("history", tmp_path, "db.t").out == "the table is empty: it has no snapshot\n"
    assert run("history", tmp_path, "db.t", "--json").json == []


def test_count_prints_the_number_of_rows(run: Run, table: Table, warehouse: Path) -> None:
    table.upsert(table_of("id v price", [(1, "b", None), (4, "b", None)]))

    assert run("count", warehouse, "db.t").out == "4\n"
    assert run("count", warehouse, "db.t", "--snapshot", 1).out == "3\n"
    assert run("count", warehouse, "db.t$snapshots").out == "2\n"
    assert run("count", warehouse, "sys.tables").out == "1\n"
    filtered = run("count", warehouse, "db.t", "--where", "v = 'b'", "--json")
    assert filtered.json == {"table": "db.t", "rows": 2}
