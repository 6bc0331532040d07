"""The commands compact, rescale, materialize-deletion-vectors and compact-manifests."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.commands import Run, assert_fails, invoke
from support.tables import levels_of, new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.table.metadata import manifest_io
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_dry_run_changes_nothing(run: Run, table: Table, warehouse: Path) -> None:
    table.upsert(table_of("id v price", [(1, "z", "1")]))
    before = stored_files(table)

    planned = run("compact", warehouse, "db.t", "--strategy", "full", "--dry-run", "--json").json
    shown = run("compact", warehouse, "db.t", "--strategy", "full", "--dry-run").out

    assert planned["snapshot_id"] == 2
    assert planned["files"] == len(levels_of(table))
    assert "nothing was changed" in shown
    assert stored_files(table) == before
    [decision] = planned["decisions"]
    assert decision["compact"] == "not now"
    assert f"the table: not now: {decision['reason']}" in shown


def test_a_simulation_measures_a_sample_and_changes_nothing(
    run: Run, table: Table, warehouse: Path
) -> None:
    table.upsert(table_of("id v price", [(1, "z", "1")]))
    before = stored_files(table)
    command = ("compact", warehouse, "db.t", "--simulate")

    shown = run(*command, "--strategy", "full").out
    values = run(*command, "--strategy", "full", "--json").json

    assert re.match(r"Measured on \d of \d buckets?, .* A scan of them now: .* nothing was", shown)
    assert values["before"]["files"] > values["after"]["files"]
    assert stored_files(table) == before
    assert run(*command).out.startswith("nothing to compact by the table's options; with")
    for option in (["--dry-run"], ["--order-by", "id"]):
        assert_fails(run(*command, *option), "cannot be combined")


def test_only_the_named_buckets_are_compacted(run: Run, tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="4")
    for value in "ab":
        table.upsert(table_of("k v", [(number, value) for number in range(40)]))
    command = ("compact", tmp_path, "db.t", "--strategy", "full", "--buckets")

    assert run(*command, "0,2-3", "--json").json["buckets"] == 3

    assert {split.bucket for split in table.files() if len(split.files) > 1} == {1}
    assert_fails(run(*command, "many"), "'many' is not a list of buckets")


def test_an_unknown_form_of_master_is_refused_at_once(run: Run, warehouse: Path) -> None:
    answer = run("compact", warehouse, "db.t", "--dry-run", "--master", "foo")

    assert_fails(answer, "'foo' is not a Spark master; use local[*] or")


def test_compact_without_work_succeeds_and_commits_nothing(
    run: Run, table: Table, warehouse: Path
) -> None:
    before = stored_files(table)

    answer, json_answer = (
        run("compact", warehouse, "db.t"),
        run("compact", warehouse, "db.t", "--json"),
    )

    assert answer.status == 0
    assert re.fullmatch(
        r"nothing to compact by the table's options; with --strategy full, 2 files of [\d.]+ kB "
        r"would be rewritten, and a scan would need as many requests\n",
        answer.out,
    )
    assert (json_answer.json["snapshot_id"], json_answer.json["files_before"]) == (None, 0)
    assert stored_files(table) == before


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the start of Spark fail."""

    def fail(_master: str | None) -> None:
        raise AssertionError("this command must not start Spark")

    monkeypatch.setattr("paimon_orch.cli.common.start_spark", fail)


@pytest.mark.parametrize("arguments", [(), ("--executor", "local")])
def test_a_table_is_compacted_without_spark(
    run: Run, table: Table, warehouse: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    without_spark(monkeypatch)
    table.upsert(table_of("id v price", [(1, "z", "1")]))
    rows = rows_of(table)

    answer = run("compact", warehouse, "db.t", "--strategy", "full", "--json", *arguments)

    assert answer.json["snapshot_id"] == 3
    assert set(levels_of(table)) == {5}
    assert rows_of(table) == rows
    assert not answer.error.strip()


def test_large_tables_are_compacted_on_spark(
    run: Run, table: Table, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    monkeypatch.setattr("paimon_orch.steps.common.executor_choice.MAX_LOCAL_BYTES", 100)
    answer = run("compact", warehouse, "db.t", "--strategy", "full")
    assert "this command must not start Spark" in answer.error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--master", "local[2]"], "cannot be combined with a Spark master"),
        (["--order-by", "id"], "cannot be used with --executor local"),
    ],
)
def test_the_local_executor_is_refused_for_work_of_spark(
    run: Run, table: Table, warehouse: Path, arguments: list[str], message: str
) -> None:
    answer = run("compact", warehouse, "db.t", "--executor", "local", *arguments)
    assert answer.status == 1
    assert message in answer.error


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "arguments", [("--executor", "spark"), ("--master", "local[2]")], ids=["executor", "master"]
)
def test_a_table_is_compacted_on_spark(
    run: Run, spark: SparkSession, table: Table, warehouse: Path, arguments: list[str]
) -> None:
    table.upsert(table_of("id v price", [(1, "z", "1")]))
    rows = rows_of(table)

    answer = run("compact", warehouse, "db.t", "--strategy", "full", "--json", *arguments)

    assert answer.json["snapshot_id"] == 3
    assert answer.json["level0_after"] == 0
    assert set(levels_of(table)) == {5}
    assert rows_of(table) == rows
    assert "Spark" in answer.error


def test_manifests_are_merged(tmp_path: Path, old_table: Table) -> None:
    command = ("compact-manifests", str(tmp_path), "db.t")

    assert "4 manifests" in invoke(*command, "--dry-run").stdout
    assert old_table.stores.snapshots.latest_id() == 4
    assert json.loads(invoke(*command, "--json").stdout)["snapshot_id"] == 5
    assert invoke(*command).stdout.startswith("nothing to merge: 1 manifest")


def test_buckets_are_rescaled(tmp_path: Path, old_table: Table) -> None:
    command = ("rescale", str(tmp_path), "db.t", "--bucket-num", "3")

    assert "nothing was changed" in invoke(*command, "--dry-run").stdout
    assert json.loads(invoke(*command, "--yes", "--json").stdout)["snapshot_id"] == 5
    assert rows_of(old_table) == [(1, "d")]
    assert invoke(*command).stdout == "nothing to do: all partitions have 3 buckets\n"


def test_a_dry_run_of_partitions_reads_each_manifest_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitioned = new_table(
        tmp_path, "p STRING, k INT, v STRING", key=("p", "k"), partition_by=["p"]
    )
    for partition in ("a", "b"):
        partitioned.upsert(table_of("p k v", [(partition, 1, "x")]))
    opened = []
    open_manifest = manifest_io._open_manifest

    def record(meta: ManifestFileMeta, *arguments: Any) -> Manifest:
        opened.append(meta.file_name)
        return open_manifest(meta, *arguments)

    monkeypatch.setattr(manifest_io, "_open_manifest", record)

    answer = run("compact", tmp_path, "db.t", "--dry-run", "--json", "--partitions", "p=a")

    assert [decision["partition"] for decision in answer.json["decisions"]] == ["p=a"]
    assert len(opened) == len(set(opened)) == 1
    assert_fails(run("compact", tmp_path, "db.t", "--partitions", "p=c"), "has no partition p=c")


def test_a_partition_that_a_filter_excludes_exists(run: Run, tmp_path: Path) -> None:
    partitioned = new_table(
        tmp_path, "p STRING, k INT, v STRING", key=("p", "k"), partition_by=["p"]
    )
    partitioned.upsert(table_of("p k v", [("a", 1, "x")]))

    answer = run("compact", tmp_path, "db.t", "--partitions", "p=a", "--where", "p = 'b'")

    assert (answer.status, answer.out) == (0, "nothing to compact\n")


def test_a_dry_run_shows_the_postponed_rows_that_a_run_moves(run: Run, tmp_path: Path) -> None:
    options = {"postpone__batch_write_fixed_bucket": "false"}
    table = new_table(tmp_path, "k INT, v STRING", bucket="-2", **options)
    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))
    command = ("compact", tmp_path, "db.t")

    shown = run(*command, "--dry-run").out

    assert "would move 2 rows of 1 partition of db.t; nothing was changed" in shown
    assert run(*command, "--dry-run", "--json").json["postponed"]["rows"] == 2
    shown = run("compact-database", tmp_path, "--dry-run").out
    assert "db.t: would move 2 rows from postpone buckets\n" in shown
    moved = run(*command).out
    assert moved == "moved 2 rows from postpone buckets; nothing to compact\n"
    assert rows_of(table) == [(1, "a"), (2, "b")]
    table.upsert(table_of("k v", [(3, "c")]))
    moved = run("compact-database", tmp_path).out
    assert "db.t: moved 1 row from postpone buckets\n" in moved
    table.upsert(table_of("k v", [(4, "d")]))
    assert run(*command, "--json").json["moved_rows"] == 1


def test_sorted_runs_up_to_a_level_are_merged(run: Run, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for value in "ab":
        table.upsert(table_of("k v", [(1, value)]))
    command = ("compact", tmp_path, "db.t", "--up-to-level", 0)

    assert run(*command, "--json").json["files_before"] == 2

    assert len(levels_of(table)) == 1
    assert_fails(run(*command, "--strategy", "full"), "by the strategy minor")


def test_deleted_rows_are_removed_from_tables_with_data_evolution(run: Run, tmp_path: Path) -> None:
    options = {"row_tracking__enabled": "true", "data_evolution__enabled": "true"}
    table = new_table(tmp_path, key=(), bucket="-1", deletion_vectors__enabled="true", **options)
    table.append(table_of("k v", [(1, "a"), (2, "b")]))
    run("delete", tmp_path, "db.t", "--where", "k = 1", "--executor", "local")
    command = ("materialize-deletion-vectors", tmp_path, "db.t", "--executor", "local")

    shown = run(*command, "--dry-run").out
    answer = run(*command, "--json").json
    again = run(*command)

    assert "would rewrite 1 file of 1 bucket of db.t; nothing was changed" in shown
    assert (answer["files_before"], answer["rows_written"], answer["deleted_rows"]) == (1, 1, 0)
    assert rows_of(table, columns=["k", "_ROW_ID"]) == [(2, 2)]
    assert (again.status, again.out) == (0, "nothing to compact\n")


def test_rows_of_partitions_get_consecutive_ids(run: Run, tmp_path: Path) -> None:
    options = {"row_tracking__enabled": "true", "data_evolution__enabled": "true"}
    table = new_table(tmp_path, "p INT, k INT", key=(), partition_by=["p"], bucket="-1", **options)
    for _ in range(2):
        table.append(table_of("p k", [(0, 1), (1, 2)]))

    shown = run("reassign-row-ids", tmp_path, "db.t", "--dry-run").out
    answer = run("reassign-row-ids", tmp_path, "db.t", "--json").json
    again = run("reassign-row-ids", tmp_path, "db.t")

    assert (
        shown == "would give new row ids to 4 rows of 2 partitions of db.t; nothing was changed\n"
    )
    assert (answer["snapshot_id"], answer["first_row_id"], answer["next_row_id"]) == (3, 4, 8)
    assert rows_of(table, columns=["p", "_ROW_ID"]) == [(0, 4), (0, 5), (1, 6), (1, 7)]
    assert (again.status, again.out) == (0, "0 rows of 0 partitions; nothing was changed\n")


@pytest.fixture
def databases(tmp_path: Path) -> Catalog:
    """Return a catalog with tables that need a compaction, and one that cannot be compacted."""
    catalog = Catalog(str(tmp_path))
    for name in ("a.one", "a.two", "b.one"):
        table = catalog.create_table(name, "k INT", primary_key=["k"], options={"bucket": "1"})
        for number in range(2):
            table.upsert(table_of("k", [(number,)]))
    catalog.create_table("b.idle", "k INT")
    return catalog


def test_the_tables_of_databases_are_compacted(
    run: Run, databases: Catalog, tmp_path: Path
) -> None:
    options = ("--strategy", "full", "--executor", "local")
    patterns = ("--including-databases", "a|b", "--excluding-tables", r".*\.two")
    shown = run("compact-database", tmp_path, *options, *patterns, "--dry-run")
    assert shown.out.splitlines() == [
        "a.one: would compact 2 files of 1 bucket",
        "b.idle: nothing to compact",
        "b.one: would compact 2 files of 1 bucket",
        "3 tables, 0 failed; nothing was changed",
    ]
    assert databases.table("a.one").stores.snapshots.latest_id() == 2

    tables = ("--including-tables", r"a\..*|b\.idle")
    answer = run("compact-database", tmp_path, *options, *tables)

    assert answer.out.splitlines() == [
        "a.one: snapshot 3, 2 files to 1",
        "a.two: snapshot 3, 2 files to 1",
        "b.idle: nothing to compact",
        "3 tables, 0 failed",
    ]
    assert databases.table("b.one").stores.snapshots.latest_id() == 2
    again = run("compact-database", tmp_path, *options, *tables).out
    assert again.splitlines()[0] == "a.one: nothing to compact"
    refused = run("compact-database", tmp_path, "--including-tables", "(")
    assert_fails(refused, "'(' is not a regular expression")


def test_a_table_that_fails_does_not_stop_the_others(
    run: Run, databases: Catalog, tmp_path: Path
) -> None:
    broken = databases.table("a.one")
    Path(broken.stores.snapshots.path(2)).write_text("{}")

    answer = run("compact-database", tmp_path, "--strategy", "full", "--json")

    tables = json.loads(answer.out)["tables"]
    assert answer.status == 1
    assert "snapshot-2" in tables["a.one"]["error"]
    assert tables["a.two"]["snapshot_id"] == tables["b.one"]["snapshot_id"] == 3
    text = run("compact-database", tmp_path, "--including-databases", "a")
    assert (text.status, text.out.splitlines()[-1]) == (1, "2 tables, 1 failed")


def test_a_missing_warehouse_is_not_an_empty_one(run: Run, tmp_path: Path) -> None:
    assert_fails(run("compact-database", tmp_path / "gone"), "gone")


def test_compact_builds_missing_indexes(run: Run, tmp_path: Path) -> None:
    options = {"deletion_vectors__enabled": "true"}
    table = new_table(tmp_path, "k INT, v STRING", **options)
    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))
    table.upsert(table_of("k v", [(2, "c")]))
    assert run("compact", tmp_path, "db.t", "--strategy", "full").status == 0
    before = table.stores.snapshots.latest_id()
    Catalog(str(tmp_path)).alter_table("db.t", [SetOption("pk-btree.index.columns", "v")])

    answer = run("compact", tmp_path, "db.t")

    assert (answer.status, answer.out) == (0, "nothing to compact\n")
    entries = table.stores.manifests.read_index_entries(table.stores.snapshots.latest())
    assert [entry.index_type for entry in entries if entry.global_index] == ["btree"]
    assert table.stores.snapshots.latest_id() == (before or 0) + 1


def test_idle_partitions_of_clustered_tables_are_sorted_as_a_whole(
    run: Run, tmp_path: Path
) -> None:
    options = {"clustering__incremental": "true", "clustering__columns": "k"}
    table = new_table(tmp_path, key=(), bucket="-1", **options)
    table.append(table_of("k v", [(2, "b"), (1, "a")]))
    command = ("compact", tmp_path, "db.t", "--executor", "local")
    time.sleep(0.01)

    assert run(*command, "--cluster-idle-for", "1 h").out.startswith("nothing to compact")
    assert_fails(run(*command, "--cluster-idle-for", "long"), "--cluster-idle-for")
    assert "no new files for long" in run(*command, "--cluster-idle-for", "1 ms", "--dry-run").out
    run(*command, "--cluster-idle-for", "1 ms")

    assert levels_of(table) == [5]
    assert rows_of(table) == [(1, "a"), (2, "b")]
