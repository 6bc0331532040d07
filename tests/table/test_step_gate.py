"""Options that are not implemented block every affected step; the table is unchanged."""

import hashlib
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from support.damage import add_schema
from support.steps import run_units

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.options.blocking_options import Allowances
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.steps import ingest
from paimon_orch.steps.cleanup import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.expiration import expire_changelogs, expire_snapshots, expire_tags
from paimon_orch.steps.inspection import check_table, inspect
from paimon_orch.steps.maintenance import analyze, compact_manifests, rescale, rewrite_file_index
from paimon_orch.steps.repairs import remove_unexisting_files
from paimon_orch.table.table import Table

ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})
ICEBERG = ("metadata.iceberg-compatible", "true")


def _table(tmp_path: Path, **options: str) -> Table:
    """Return a table with two commits and options that another writer stored."""
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "id BIGINT NOT NULL, v STRING", primary_key=["id"], options={"bucket": "1"}
    )
    table.upsert(ROWS)
    table.upsert(ROWS)
    _store_options(table, options)
    return table


def _store_options(table: Table, options: dict[str, str]) -> None:
    path = Path(table.stores.schemas.path(table.load().schema.id))
    schema = json.loads(path.read_bytes())
    schema["options"] |= options
    path.write_text(json.dumps(schema))


def _digest(table: Table) -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(table.paths.root).rglob("*")):
        digest.update(str(path).encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


CHANGES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(ROWS),
    "overwrite": lambda table: table.overwrite(ROWS),
    "delete": lambda table: table.delete(ROWS.select(["id"])),
    "truncate": lambda table: table.truncate(),
    "compact": lambda table: compact.compact(table, InProcessExecutor(), strategy="full"),
    "plan of compaction": lambda table: compact.plan(table, compact.CompactRequest()),
    "compact manifests": compact_manifests.compact_manifests,
    "analyze": lambda table: analyze.analyze(table, InProcessExecutor()),
    "rewrite file index": lambda table: rewrite_file_index.rewrite_file_index(
        table, InProcessExecutor()
    ),
    "rescale": lambda table: rescale.rescale(table, 2, InProcessExecutor()),
    "expire snapshots": lambda table: expire_snapshots.expire_snapshots(table, retain_max=1),
    "plan of expiration": lambda table: expire_snapshots.plan(
        table, expire_snapshots.ExpireSnapshotsRequest(retain_max=1)
    ),
    "expire changelogs": expire_changelogs.expire_changelogs,
    "expire tags": expire_tags.expire_tags,
    "remove orphan files": remove_orphan_files.remove_orphan_files,
    "remove unexisting files": remove_unexisting_files.remove_unexisting_files,
    "create tag": lambda table: table.tags.create("now"),
    "create branch": lambda table: table.branches.create("dev"),
    "rollback": lambda table: table.rollback(1),
    "rename": lambda table: Catalog(str(Path(table.paths.root).parents[1])).rename_table(
        "db.t", "db.u"
    ),
    "drop": lambda table: Catalog(str(Path(table.paths.root).parents[1])).drop_table("db.t"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_refused_while_iceberg_metadata_would_become_stale(
    name: str, tmp_path: Path
) -> None:
    table = _table(tmp_path, **dict([ICEBERG]))
    before = _digest(table)
    with pytest.raises(
        UnsupportedError, match=r"metadata\.iceberg-compatible.*allow-stale-external"
    ):
        CHANGES[name](table)
    assert _digest(table) == before


@pytest.mark.parametrize("name", sorted(set(CHANGES) - {"rename", "drop"}))
def test_every_change_runs_when_stale_iceberg_metadata_is_allowed(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = _table(tmp_path, **dict([ICEBERG])).allow(stale_external=True)
    # Each case has a new table name, because a warning is logged only once per table.
    table = Table(f"db.{name}", table.io, table.paths, table.allowances)
    with caplog.at_level(logging.WARNING):
        CHANGES[name](table)
    assert "stale after this run: option 'metadata.iceberg-compatible'" in caplog.text
    assert table.stale_external_options() == ["metadata.iceberg-compatible=true"]


@pytest.mark.parametrize("name", sorted(set(CHANGES) - {"drop"}))
def test_every_change_is_refused_if_the_table_has_an_option_of_a_newer_release(
    name: str, tmp_path: Path
) -> None:
    table = _table(tmp_path, **{"merge-engin": "aggregation"})
    before = _digest(table)
    with pytest.raises(UnsupportedError, match=r"'merge-engin'.*did you mean 'merge-engine'"):
        CHANGES[name](table)
    assert _digest(table) == before


def test_unknown_options_can_be_allowed_for_one_run(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"sequence.of-tomorrow": "1"})
    allowed = table.allow(unknown_options=True)
    assert compact.compact(allowed, InProcessExecutor(), strategy="full").snapshot_id == 3


def test_a_custom_property_does_not_block_steps(tmp_path: Path) -> None:
    table = _table(tmp_path, owner="alice", **{"my-team.cost-centre": "17"})
    assert compact.compact(table, InProcessExecutor(), strategy="full").snapshot_id == 3


def test_a_reader_warns_once_about_an_unknown_option(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = _table(tmp_path, **{"scan.of-tomorrow": "1"})
    with caplog.at_level(logging.WARNING):
        assert table.scan().to_arrow().num_rows == 2
        assert table.scan().to_arrow().num_rows == 2
    assert caplog.text.count("scan.of-tomorrow") == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("type", "format-table"),
        ("query-auth.enabled", "true"),
        ("batch-scan-mode", "compact"),
        ("fields.v.map.storage-layout", "shared-shredding"),
    ],
)
def test_a_reader_that_would_return_other_rows_is_refused(
    key: str, value: str, tmp_path: Path
) -> None:
    table = _table(tmp_path, **{key: value})
    with pytest.raises(UnsupportedError, match=key):
        table.scan()
    with pytest.raises(UnsupportedError, match=key):
        table.allow(stale_external=True, unknown_options=True).scan()


def test_a_stored_time_travel_is_refused_unless_the_caller_names_a_snapshot(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"scan.snapshot-id": "1"})
    with pytest.raises(UnsupportedError, match=r"scan\.snapshot-id.*Name a snapshot"):
        table.scan()
    assert table.scan(snapshot_id=2).to_arrow().num_rows == 2
    assert compact.compact(table, InProcessExecutor(), strategy="full").snapshot_id == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("metadata.iceberg.storage", "DISABLED"),
        ("chain-table.enabled", "False"),
        ("type", "TABLE"),
        ("commit.callbacks", ""),
    ],
)
def test_a_default_value_in_any_spelling_does_not_block_steps(
    key: str, value: str, tmp_path: Path
) -> None:
    table = _table(tmp_path, **{key: value})
    assert compact.compact(table, InProcessExecutor(), strategy="full").snapshot_id == 3


def test_a_commit_is_refused_when_the_option_is_set_after_planning(tmp_path: Path) -> None:
    table = _table(tmp_path)
    commit = table.stores.new_commit(StepKind.COMPACT)
    planned = compact.plan(table, compact.CompactRequest(strategy="full"))
    messages = run_units(compact.COMPACT, table, planned)
    add_schema(table, **dict([ICEBERG]))
    snapshot = table.snapshot()
    with pytest.raises(UnsupportedError, match="iceberg"):
        compact.commit(table, planned, messages)
    assert table.snapshot() == snapshot
    assert commit.attempts == 0


def test_an_option_that_blocks_steps_can_be_removed_by_alter(tmp_path: Path) -> None:
    from paimon_orch.table.schema_change.schema_changes import ResetOption

    table = _table(tmp_path, **dict([ICEBERG]))
    Catalog(str(tmp_path)).alter_table("db.t", [ResetOption(ICEBERG[0])])
    assert compact.compact(table, InProcessExecutor(), strategy="full").snapshot_id == 3


def test_create_warns_about_options_that_block_steps_and_misspelled_options(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        Catalog(str(tmp_path)).create_table(
            "db.t",
            "id BIGINT",
            options={
                "deletion-vector.enabled": "true",
                "bukcet": "1",
                "metastore.partitioned-table": "true",
                "owner": "alice",
            },
        )
    assert (
        "'deletion-vector.enabled' = 'true' is unknown (did you mean 'deletion-vectors.enabled'?)"
        in caplog.text
    )
    assert "did you mean 'bucket'?" in caplog.text
    assert "a metastore does not get" in caplog.text
    assert "owner" not in caplog.text


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paimon_orch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_error_of_a_command_names_the_flag_that_allows_it(tmp_path: Path) -> None:
    _table(tmp_path, **dict([ICEBERG]))
    refused = _run("compact-manifests", str(tmp_path), "db.t")
    assert refused.returncode == 1
    assert "metadata.iceberg-compatible" in refused.stderr
    assert "--allow-stale-external" in refused.stderr
    assert "Traceback" not in refused.stderr
    allowed = _run("compact-manifests", str(tmp_path), "db.t", "--allow-stale-external")
    assert allowed.returncode == 0
    assert "stale after this run: option 'metadata.iceberg-compatible'" in allowed.stderr
    tag = _run("tag", "create", str(tmp_path), "db.t", "now", "--allow-stale-external")
    assert tag.returncode == 0


@pytest.mark.slow
def test_the_create_command_warns_about_a_misspelled_option(tmp_path: Path) -> None:
    option = ("--option", "deletion-vector.enabled=true")
    created = _run("create", str(tmp_path), "db.t", "--columns", "id BIGINT", *option)
    assert created.returncode == 0
    assert "did you mean 'deletion-vectors.enabled'?" in created.stderr


def test_an_ingest_is_refused_before_any_task_writes(tmp_path: Path) -> None:
    table = _table(tmp_path, **dict([ICEBERG]))
    before = _digest(table)
    with pytest.raises(UnsupportedError, match=r"metadata\.iceberg-compatible"):
        ingest.plan(table, ingest.IngestRequest(columns=ROWS.column_names))
    assert _digest(table) == before


def test_the_tables_of_a_dropped_database_are_checked_as_dropped_tables(tmp_path: Path) -> None:
    table = _table(tmp_path, **dict([ICEBERG]))
    before = _digest(table)
    with pytest.raises(UnsupportedError, match=r"metadata\.iceberg-compatible"):
        Catalog(str(tmp_path)).drop_database("db", cascade=True)
    assert _digest(table) == before
    allowed = Catalog(str(tmp_path), allowances=Allowances(stale_external=True))
    allowed.drop_database("db", cascade=True)
    assert allowed.databases() == []


def test_a_branch_is_not_deleted_with_an_option_of_a_newer_release(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.branches.create("dev")
    _store_options(table, {"scan.branch-of-tomorrow": "dev"})
    before = _digest(table)
    with pytest.raises(UnsupportedError, match=r"scan\.branch-of-tomorrow"):
        table.branches.delete("dev")
    assert _digest(table) == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log.scan", "from-timestamp"),
        ("log.scan.timestamp-millis", "1700000000000"),
        ("scan.version", "1"),
    ],
)
def test_a_time_travel_stored_under_another_key_is_refused(
    key: str, value: str, tmp_path: Path
) -> None:
    table = _table(tmp_path, **{key: value})
    with pytest.raises(UnsupportedError, match=rf"{re.escape(key)}.*Name a snapshot"):
        table.scan()
    assert table.scan(snapshot_id=2).to_arrow().num_rows == 2


def test_blob_descriptors_are_refused_under_their_older_key(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"blob.stored-descriptor-fields": "v"})
    with pytest.raises(UnsupportedError, match=r"BLOB descriptors are not implemented"):
        table.scan()
    with pytest.raises(UnsupportedError, match=r"BLOB descriptors are not implemented"):
        compact.plan(table, compact.CompactRequest())


def test_writes_are_refused_if_the_table_has_a_log_system(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"log.system": "kafka", "kafka.topic": "orders"})
    before = _digest(table)
    with pytest.raises(UnsupportedError, match=r"log\.system.*allow-stale-external"):
        table.upsert(ROWS)
    assert _digest(table) == before
    assert compact.compact(table, InProcessExecutor(), strategy="full").snapshot_id == 3


@pytest.mark.parametrize(
    "key",
    [
        "compaction.early-max.file-num",
        "metadata.iceberg.rest.warehouse",
        "metadata.iceberg.table-properties.owner",
    ],
)
def test_options_of_known_releases_are_not_treated_as_newer(key: str, tmp_path: Path) -> None:
    table = _table(tmp_path, **{key: "50"})
    assert compact.compact(table, InProcessExecutor(), strategy="full").snapshot_id == 3


@pytest.mark.parametrize("name", ["", "audit_log", "ro", "row_tracking"])
def test_a_branch_and_its_system_tables_are_refused_by_the_options_of_the_branch(
    name: str, tmp_path: Path
) -> None:
    main = _table(tmp_path)
    main.branches.create("dev")
    branch = Catalog(str(tmp_path)).table("db.t$branch_dev")
    _store_options(branch, {"query-auth.enabled": "true"})
    with pytest.raises(UnsupportedError, match=r"query-auth\.enabled"):
        branch.system(name).scan() if name else branch.scan()
    assert main.scan().to_arrow().num_rows == 2


def test_incremental_reads_are_refused_for_the_same_options_as_scans(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"query-auth.enabled": "TRUE"})
    with pytest.raises(UnsupportedError, match=r"query-auth\.enabled"):
        table.incremental(1, 2)


@pytest.mark.parametrize(
    "options",
    [
        {"type": "format-table"},
        {"merge-engin": "aggregation"},
        {"blob-field": "v", "query-auth.enabled": "true"},
        {"merge-engine": "of-tomorrow", "changelog-producer": "sometimes"},
    ],
)
def test_metadata_of_a_table_that_cannot_be_read_is_shown_and_checked(
    options: dict[str, str], tmp_path: Path
) -> None:
    table = _table(tmp_path, **options)
    assert inspect.inspect(table).snapshot is not None
    assert check_table.check(table, deep=False).findings == ()
    assert table.system("files").scan().to_arrow().num_rows == 2


@pytest.mark.parametrize(("key", "value"), [("upsert-key", "id")])
def test_a_refusal_does_not_advise_to_remove_an_option_that_others_need(
    key: str, value: str, tmp_path: Path
) -> None:
    table = _table(tmp_path, **{key: value})
    before = _digest(table)

    with pytest.raises(
        UnsupportedError, match="files or other writers depend on the option"
    ) as refused:
        table.upsert(ROWS)

    assert "remove the option" not in str(refused.value)
    assert _digest(table) == before
