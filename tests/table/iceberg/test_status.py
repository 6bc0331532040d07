"""The status compares what Iceberg readers see with the newest snapshot of the table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_orch import Catalog, Table
from paimon_orch.table.iceberg import status as status_module
from paimon_orch.table.iceberg.publication_input import read_publication_input
from paimon_orch.table.iceberg.publish import IcebergPublisher
from paimon_orch.table.iceberg.status import IcebergStatus, read_iceberg_status
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import SnapshotStore

STORAGE = {"metadata.iceberg.storage": "table-location"}


def metadata_dir(table: Table) -> Path:
    return Path(table.paths.root) / "metadata"


def status_of(table: Table) -> IcebergStatus:
    status = read_iceberg_status(table.stores.iceberg)
    assert status is not None
    return status


def append(table: Table, number: int) -> None:
    table.append(pa.table({"id": pa.array([number], pa.int32())}))


def commit_unpublished(table: Table, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Commit as a writer that publishes no Iceberg metadata."""
    with monkeypatch.context() as patch:
        patch.setattr(IcebergPublisher, "publish", lambda _: None)
        append(table, number)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Catalog(str(tmp_path)).create_table("db.t", "id INT", options=STORAGE)
    append(table, 1)
    append(table, 2)
    return table


def test_a_published_snapshot_is_current(table: Table) -> None:
    status = status_of(table)

    assert (status.published_id, status.latest_id, status.missing_snapshots) == (2, 2, 0)
    assert status.metadata_path == str(metadata_dir(table) / "v2.metadata.json")
    assert status.is_current
    assert status.problem is None


def test_a_table_without_the_option_and_a_branch_have_no_status(
    tmp_path: Path, table: Table
) -> None:
    catalog = Catalog(str(tmp_path))
    table.tags.create("start")
    table.branches.create("dev", tag="start")
    others = [
        catalog.create_table("db.plain", "id INT"),
        catalog.table("db.t$branch_dev"),
    ]

    assert [read_iceberg_status(other.stores.iceberg) for other in others] == [None] * 2


def test_a_table_without_snapshots_is_current(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", "id INT", options=STORAGE)

    assert status_of(table) == IcebergStatus(is_current=True)


def test_unpublished_commits_are_counted(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (3, 4, 5):
        commit_unpublished(table, monkeypatch, number)

    status = status_of(table)

    assert (status.published_id, status.latest_id, status.missing_snapshots) == (2, 5, 3)
    assert not status.is_current
    assert status.problem == "Iceberg readers see snapshot 2, and LATEST is 5"


def remove_all(table: Table) -> None:
    shutil.rmtree(metadata_dir(table))


def replace_by_a_file(table: Table) -> None:
    remove_all(table)
    metadata_dir(table).write_text("not a directory")


def remove_hint(table: Table) -> None:
    (metadata_dir(table) / "version-hint.text").unlink()


def remove_version(table: Table) -> None:
    (metadata_dir(table) / "v2.metadata.json").unlink()


def damage_version(table: Table) -> None:
    (metadata_dir(table) / "v2.metadata.json").write_text("{")


def remove_manifest(table: Table) -> None:
    next(metadata_dir(table).glob("*-m*.avro")).unlink()


def remove_manifest_list(table: Table) -> None:
    next(metadata_dir(table).glob("snap-*")).unlink()


def add_newer_version(table: Table) -> None:
    path = metadata_dir(table) / "v2.metadata.json"
    shutil.copy(path, path.with_name("v3.metadata.json"))


def change_identity(table: Table) -> None:
    path = metadata_dir(table) / "v2.metadata.json"
    metadata: dict[str, Any] = json.loads(path.read_text())
    metadata["snapshots"][-1]["summary"]["paimon-commit-identity"] = "another"
    path.write_text(json.dumps(metadata))


def change_metadata(table: Table, **values: object) -> None:
    """Change keys of the newest version; in names of keys ``_`` is a dash."""
    path = metadata_dir(table) / "v2.metadata.json"
    metadata: dict[str, Any] = json.loads(path.read_text())
    named = {name.replace("_", "-"): value for name, value in values.items()}
    path.write_text(json.dumps(metadata | named))


def change_schema(table: Table) -> None:
    change_metadata(table, current_schema_id=7)


def remove_schemas(table: Table) -> None:
    change_metadata(table, schemas=[])


def change_location(table: Table) -> None:
    change_metadata(table, location="/elsewhere")


DAMAGES: dict[str, tuple[Callable[[Table], None], str, int | None]] = {
    "all files are missing": (remove_all, "has no Iceberg metadata", None),
    "a file is at the place of the directory": (replace_by_a_file, "has no Iceberg metadata", None),
    "the hint is missing": (remove_hint, "version-hint.text is missing", 2),
    "the version is missing": (remove_version, "v2.metadata.json does not exist", None),
    "the version is damaged": (damage_version, "v2.metadata.json", None),
    "a manifest is missing": (remove_manifest, "are missing or damaged", 2),
    "a manifest list is missing": (remove_manifest_list, "are missing or damaged", 2),
    "a newer version exists": (add_newer_version, "v3.metadata.json is newer than LATEST 2", 2),
    "the commit is another one": (change_identity, "another commit as snapshot 2", 2),
    "the schema is another one": (change_schema, "see schema 7, and the newest schema is 0", 2),
    "the schema is missing": (remove_schemas, "see other columns as schema 0", 2),
    "the table was at another place": (change_location, "/elsewhere", 2),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_damaged_metadata_is_not_current_until_it_is_published_again(
    table: Table, damage: str
) -> None:
    destroy, problem, published_id = DAMAGES[damage]
    destroy(table)

    status = status_of(table)

    assert not status.is_current
    assert problem in (status.problem or "")
    assert status.published_id == published_id
    if destroy is replace_by_a_file:
        metadata_dir(table).unlink()
    table.stores.iceberg.publish()
    assert status_of(table).is_current
    assert status_of(table).problem is None


def test_a_rollback_without_publication_is_not_current(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(IcebergPublisher, "publish", lambda _: None)
        table.rollback(1)

    status = status_of(table)

    assert (status.published_id, status.latest_id, status.missing_snapshots) == (2, 1, None)
    assert status.problem == "Iceberg readers see snapshot 2, and LATEST is 1"
    commit_unpublished(table, monkeypatch, 3)
    assert (status_of(table).missing_snapshots, status_of(table).is_current) == (None, False)


def test_other_tags_are_a_problem_but_readers_see_the_newest_snapshot(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(IcebergPublisher, "publish", lambda _: None)
        table.tags.create("month-end")

    status = status_of(table)

    assert status.is_current
    assert status.problem == "Iceberg readers see other tags: month-end"


def test_expired_snapshots_in_the_metadata_are_a_problem_but_readers_see_the_newest_snapshot(
    table: Table,
) -> None:
    table.io.delete(table.stores.snapshots.path(1))

    status = status_of(table)

    assert status.is_current
    assert status.problem == "the Iceberg metadata lists snapshots that have expired"


def test_a_commit_while_the_status_is_read_is_not_reported_as_a_problem(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def read_and_commit(schemas: SchemaStore, snapshots: SnapshotStore, *schema: Any) -> Any:
        state = read_publication_input(schemas, snapshots, *schema)
        calls.append(1)
        if len(calls) == 1:
            append(table, 3)
        return state

    monkeypatch.setattr(status_module, "read_publication_input", read_and_commit)

    status = status_of(table)

    assert (status.published_id, status.is_current) == (3, True)
