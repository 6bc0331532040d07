"""A purge leaves an empty table that can be used again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import invoke, run_command
from support.histories import backdate_files
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.steps.cleanup.purge_files import purge_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with snapshots, changelogs, a tag, a branch, a consumer and an orphan."""
    table = new_table(tmp_path, changelog_producer="input", changelog__num_retained__max="50")
    for number in range(4):
        table.upsert(table_of("k v", [(number, "a")]))
    compact(table, InProcessExecutor(), strategy="full")
    expire_snapshots(table, retain_max=3, retain_min=1)
    table.tags.create("keep")
    table.branches.create("dev", tag="keep")
    table.stores.open_consumers().record("app", 4)
    (Path(table.paths.root) / "bucket-0" / "data-orphan.parquet").write_bytes(b"x")
    backdate_files(table)
    return table


def test_only_the_schema_and_the_last_snapshot_are_left(table: Table) -> None:
    assert any("/changelog/" in path for path in stored_files(table))
    result = purge_files(table)

    assert result.plan.branches == ("dev",)
    assert rows_of(table) == []
    assert (table.tags.names(), table.branches.names()) == ([], [])
    assert table.stores.open_consumers().read_all() == {}
    assert len(table.stores.snapshots.ids()) == 1
    left = {path.removeprefix(table.paths.root).split("/")[1] for path in stored_files(table)}
    assert left == {"schema", "snapshot", "manifest"}
    assert check(table, deep=True).findings == ()

    table.upsert(table_of("k v", [(7, "b")]))
    assert rows_of(table) == [(7, "b")]
    assert not purge_files(table).plan.tags


def test_a_refused_purge_deletes_nothing(table: Table, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    with pytest.raises(InputError, match="is a branch"):
        purge_files(catalog.table("db.t$branch_dev"))
    catalog.alter_table("db.t", [SetOption("scan.fallback-branch", "dev")])
    before = stored_files(table)
    with pytest.raises((InputError, UnsupportedError)):
        purge_files(table)
    assert stored_files(table) == before


def test_an_empty_table_can_be_purged(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert purge_files(table).files == 0
    assert table.stores.snapshots.ids() == []


def test_the_command_asks_before_it_deletes(table: Table, tmp_path: Path) -> None:
    before = stored_files(table)
    shown = run_command("purge-files", str(tmp_path), "db.t", "--dry-run")
    assert shown.startswith(
        "would delete 4 rows, 3 snapshots, 1 tag (keep), 1 branch (dev) and 1 consumer"
    )
    with pytest.raises(InputError, match="nothing was changed"):
        invoke("purge-files", str(tmp_path), "db.t", answer="n\n")
    assert stored_files(table) == before
    output = run_command("purge-files", str(tmp_path), "db.t", "--yes", "--json")
    assert json.loads(output)["tags"] == ["keep"]
    assert rows_of(table) == []
