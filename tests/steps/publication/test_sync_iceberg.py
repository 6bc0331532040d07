"""The step publishes what commits could not publish, and refuses tables without the option."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_orch import Catalog, Table
from paimon_orch.errors import InputError, PaimonError, UnsupportedError
from paimon_orch.steps.common.step import EmptyRequest
from paimon_orch.steps.publication.sync_iceberg import plan, sync_iceberg
from paimon_orch.table.iceberg.publish import IcebergPublisher
from paimon_orch.table.schema_change.schema_changes import SetOption

KEY = "metadata.iceberg.storage"
STORAGE = {KEY: "table-location"}


def metadata_dir(table: Table) -> Path:
    return Path(table.paths.root) / "metadata"


def append(table: Table, number: int) -> None:
    table.append(pa.table({"id": pa.array([number], pa.int32())}))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Catalog(str(tmp_path)).create_table("db.t", "id INT", options=STORAGE)
    append(table, 1)
    return table


def commit_unpublished(table: Table, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Commit as a writer that publishes no Iceberg metadata."""
    with monkeypatch.context() as patch:
        patch.setattr(IcebergPublisher, "publish", lambda _: None)
        for number in numbers:
            append(table, number)


def test_nothing_is_published_twice(table: Table) -> None:
    before = {path: path.stat().st_mtime_ns for path in metadata_dir(table).iterdir()}

    planned = plan(table, EmptyRequest())
    result = sync_iceberg(table)

    assert not planned
    assert result.published_snapshots == 0
    assert result.status.published_id == 1
    assert {path: path.stat().st_mtime_ns for path in metadata_dir(table).iterdir()} == before


def test_missing_snapshots_are_published_each(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_unpublished(table, monkeypatch, 2, 3)

    planned = plan(table, EmptyRequest())
    result = sync_iceberg(table)

    assert planned
    assert planned.to_dict() == {
        "iceberg_snapshot_id": 1,
        "latest_snapshot_id": 3,
        "missing_snapshots": 2,
        "metadata_path": str(metadata_dir(table) / "v1.metadata.json"),
        "is_current": False,
        "problem": "Iceberg readers see snapshot 1, and LATEST is 3",
    }
    assert result.to_dict() == {
        "iceberg_snapshot_id": 3,
        "latest_snapshot_id": 3,
        "missing_snapshots": 0,
        "metadata_path": str(metadata_dir(table) / "v3.metadata.json"),
        "is_current": True,
        "problem": None,
        "published_snapshots": 2,
    }
    metadata = json.loads((metadata_dir(table) / "v3.metadata.json").read_text())
    assert [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]] == [1, 2, 3]


def test_lost_metadata_is_rebuilt_from_the_newest_snapshot(table: Table) -> None:
    append(table, 2)
    for path in metadata_dir(table).iterdir():
        path.unlink()

    result = sync_iceberg(table)

    assert result.plan.status.published_id is None
    assert (result.status.published_id, result.published_snapshots) == (2, 1)
    assert result.status.is_current


def test_a_table_without_snapshots_has_nothing_to_publish(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", "id INT", options=STORAGE)

    assert not plan(table, EmptyRequest())
    assert sync_iceberg(table).status.latest_id is None


def test_an_error_of_the_publication_is_raised(table: Table) -> None:
    for path in metadata_dir(table).iterdir():
        path.unlink()
    metadata_dir(table).rmdir()
    metadata_dir(table).write_text("not a directory")

    with pytest.raises((PaimonError, OSError), match="metadata"):
        sync_iceberg(table)


def test_a_table_without_the_option_is_refused_with_advice(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", "id INT")

    with pytest.raises(InputError, match=f"alter {tmp_path} db.t --set {KEY}=table-location"):
        sync_iceberg(table)


def test_a_branch_is_refused(tmp_path: Path, table: Table) -> None:
    table.tags.create("start")
    table.branches.create("dev", tag="start")

    with pytest.raises(InputError, match="branches are not published"):
        sync_iceberg(Catalog(str(tmp_path)).table("db.t$branch_dev"))


def test_rows_that_deletion_vectors_delete_are_never_published_as_live(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.t", "id INT", options={"deletion-vectors.enabled": "true"})
    append(table, 1)
    catalog.alter_table("db.t", [SetOption(KEY, "table-location")])
    assert not metadata_dir(table).exists()

    append(table.allow(stale_external=True), 2)
    assert not metadata_dir(table).exists()
    for allowed in (table, table.allow(stale_external=True)):
        with pytest.raises(UnsupportedError, match="deletion vectors of append tables"):
            sync_iceberg(allowed)
    assert not metadata_dir(table).exists()
