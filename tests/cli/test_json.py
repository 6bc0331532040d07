"""``--json`` prints one JSON document, with the same keys for runs with and without changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import invoke, option_names, walk_commands
from support.tables import new_table, table_of

NEEDS_SPARK = {"ingest", "merge-into"}  # tests of their documents are in test_input_files.py

# The commands in the order of execution, their arguments, and keys of the JSON that they print.
STEPS: list[tuple[str, list[str], set[str]]] = [
    ("inspect", [], {"table", "snapshot", "totals"}),
    ("describe", [], {"columns", "options"}),
    ("count", [], {"rows"}),
    ("check", [], {"findings"}),
    ("compact", ["--dry-run"], {"files", "decisions"}),
    ("delete", ["--where", "k = 1", "--dry-run"], {"files", "rows"}),
    ("update", ["--set", "v = 'x'", "--dry-run"], {"files", "rows"}),
    ("analyze", ["--dry-run"], {"columns", "buckets_to_read"}),
    ("rewrite-file-index", ["--dry-run"], {"files", "snapshots"}),
    ("alter", ["--add", "n INT", "--dry-run"], {"previous_schema_id", "schema_id", "added"}),
    ("alter", ["--add", "n INT"], {"previous_schema_id", "schema_id", "removed", "added"}),
    ("tag create", ["t1"], {"tag", "snapshot_id"}),
    ("tag rename", ["t1", "t2"], {"tag", "previous_name"}),
    ("branch create", ["old", "--tag", "t2"], {"branch", "tag"}),
    ("branch rename", ["old", "dev"], {"branch", "previous_name"}),
    ("consumer reset", ["app", "--next-snapshot", "1"], {"consumer", "next_snapshot_id"}),
    ("repair-earliest-snapshot", ["--snapshot", "1"], {"snapshot_id", "previous_snapshot_id"}),
    (
        "branch fast-forward",
        ["dev", "--dry-run"],
        {"branch", "snapshot_id", "previous_snapshot_id"},
    ),
    ("branch fast-forward", ["dev", "--yes"], {"branch", "snapshot_id", "previous_snapshot_id"}),
    ("branch delete", ["dev", "--dry-run"], {"branch", "snapshots", "tags"}),
    ("branch delete", ["dev", "--yes"], {"branch"}),
    ("tag delete", ["t2", "--dry-run"], {"tag", "files"}),
    ("tag delete", ["t2", "--yes"], {"tag", "files"}),
    ("mark-done", ["--partitions", "p=20200101", "--dry-run"], {"partitions", "actions"}),
    ("mark-done", ["--partitions", "p=20200101"], {"partitions", "actions"}),
    ("drop-partitions", ["--partitions", "p=20200101", "--dry-run"], {"buckets", "rows"}),
    ("drop-partitions", ["--partitions", "p=20200101", "--yes"], {"snapshot_id", "rows"}),
    ("truncate", ["--dry-run"], {"buckets", "rows"}),
    ("truncate", ["--yes"], {"snapshot_id", "rows"}),
    ("rollback", ["--snapshot", "2", "--dry-run"], {"snapshot_id", "previous_snapshot_id"}),
    ("undo", ["--dry-run"], {"undone_snapshot_id", "commit_kind", "delta_record_count"}),
    ("rollback", ["--snapshot", "2", "--yes"], {"snapshot_id", "previous_snapshot_id"}),
    ("rescale", ["--bucket-num", "2", "--yes"], {"snapshot_id", "buckets"}),
    ("compact-manifests", [], {"snapshot_id"}),
    ("alter", ["--set", "metadata.iceberg.storage=table-location"], {"schema_id"}),
    ("sync-iceberg", ["--dry-run"], {"iceberg_snapshot_id", "problem"}),
    ("sync-iceberg", [], {"iceberg_snapshot_id", "published_snapshots"}),
    ("expire-snapshots", ["--retain-max", "1", "--retain-min", "1", "--yes"], {"snapshots"}),
    ("expire-changelogs", [], {"changelogs"}),
    (
        "expire-partitions",
        ["--expiration-time", "30 d", "--timestamp-formatter", "yyyyMMdd", "--dry-run"],
        {"partitions", "rows"},
    ),
    ("expire-tags", [], {"tags"}),
    ("remove-unexisting-files", [], {"files", "rows"}),
    ("remove-unexisting-manifests", [], {"manifests", "added_files", "deleted_files"}),
    ("remove-orphan-files", [], {"files", "bytes", "skipped_external_paths"}),
    ("quarantine restore", ["--dry-run"], {"files"}),
    ("quarantine restore", [], {"files", "remaining_files"}),
    ("quarantine empty", ["--dry-run"], {"files"}),
    ("quarantine empty", [], {"files"}),
    ("trigger-tag-automatic-creation", [], {"created_tags", "deleted_tags"}),
    ("consumer clear", ["--yes"], {"consumers"}),
    ("purge-files", ["--yes"], {"rows", "snapshots", "tags", "branches", "files"}),
    ("rename", ["db.t2"], {"table", "previous_name"}),
]
LISTS = ["tag list", "branch list", "quarantine list"]
LISTS += ["consumer list"]
CATALOG_STEPS: list[tuple[list[str], set[str]]] = [
    (["database", "create", "W", "other"], {"database"}),
    (["create", "W", "other.a", "--columns", "id INT"], {"table", "location", "schema_id"}),
    (["drop", "W", "other.a", "--dry-run"], {"table", "deleted", "snapshots", "files", "bytes"}),
    (["drop", "W", "other.a", "--yes"], {"table", "deleted"}),
    (["drop", "W", "other.a", "--yes", "--if-exists"], {"table", "deleted"}),
    (["create", "W", "other.b", "--columns", "id INT"], {"table"}),
    (["database", "drop", "W", "other", "--cascade", "--dry-run"], {"database", "tables"}),
    (["database", "drop", "W", "other", "--cascade", "--yes"], {"database", "tables"}),
]


def document(*arguments: str) -> Any:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def root(tmp_path: Path) -> str:
    table = new_table(
        tmp_path, "p INT, k BIGINT, v STRING", key=("p", "k"), partition_by=("p",), bucket="1"
    )
    for text in "ab":
        table.upsert(table_of("p k v", [(20200101, 1, text), (29990101, 2, text)]))
    return str(tmp_path)


def test_each_command_on_a_table_prints_one_document(root: str) -> None:
    for name in LISTS:
        assert document(*name.split(), root, "db.t") == []
    for name, arguments, keys in STEPS:
        values = document(*name.split(), root, "db.t", *arguments)
        assert keys <= values.keys(), (name, values)


def test_move_postponed_prints_one_document(tmp_path: Path) -> None:
    new_table(tmp_path, bucket="-2")

    assert document("move-postponed", str(tmp_path), "db.t") == {
        "snapshot_id": None,
        "rows": 0,
        "units": [],
    }


def test_each_command_on_a_catalog_prints_one_document(root: str) -> None:
    assert document("tables", root) == ["db.t"]
    assert document("database", "list", root) == ["db"]
    for arguments, keys in CATALOG_STEPS:
        values = document(*(root if argument == "W" else argument for argument in arguments))
        assert keys <= values.keys(), (arguments, values)


def test_every_command_with_json_is_tested_here() -> None:
    tested = {name for name, *_ in STEPS} | set(LISTS) | NEEDS_SPARK
    tested |= {" ".join(arguments[: arguments.index("W")]) for arguments, _ in CATALOG_STEPS}
    tested |= {"tables", "database list", "move-postponed"}
    tested |= {"catalogs", "sync-partitions"}  # test_catalogs.py; needs a metastore
    # test_compact.py; these need data evolution
    tested |= {"materialize-deletion-vectors", "reassign-row-ids"}
    tested |= {"compact-database"}  # test_compact.py; has no table
    tested |= {"history"}  # test_describe.py; prints a list
    tested |= {"autopilot", "maintenance-history"}  # test_autopilot.py; have no table
    tested |= {"doctor", "repair"}  # test_doctor.py
    tested |= {"why"}  # test_verdict.py
    tested |= {"demo"}  # test_app.py; loads flights
    tested |= {"read", "sql"}  # test_read.py, test_sql.py; print a list
    tested |= {"create-global-index", "drop-global-index"}  # test_global_index.py
    assert tested == {
        name for name, command in walk_commands() if "--json" in option_names(command)
    }
