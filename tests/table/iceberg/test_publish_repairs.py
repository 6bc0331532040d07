"""Publications repair what other writers and lost files leave, and never publish wrong rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import fastavro
import pytest
from support.iceberg_histories import EXECUTOR, History, build_rows, open_iceberg_table
from support.iceberg_metadata import DATA, IcebergTable
from support.iceberg_rewrites import rewrite_as_java, rewrite_paths, rewrite_version
from support.tables import new_table

from paimon_orch import Catalog
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.table.schema_change.schema_changes import AddColumn, DropColumn, SetOption
from paimon_orch.table.table_stores import TableStores


def without_publication(action: Callable[[], object]) -> None:
    """Do something as a writer without Iceberg metadata does it."""
    with (
        patch.object(TableStores, "publish_iceberg_metadata", lambda _: None),
        patch.object(TableStores, "prepare_deletion", lambda _: None),
    ):
        action()


def test_metadata_of_an_abandoned_timeline_is_not_extended(tmp_path: Path) -> None:
    model = History(tmp_path, "append")
    for number in (0, 1, 2):
        model.apply("write", number)

    def replace_timeline() -> None:
        model.table.rollback(1)
        for number in (3, 4, 5):
            model.table.append(build_rows(model.table.load().schema, number, 50 + number))
        model._find_action("expire", 1)()  # snapshot 2 of both timelines is gone

    without_publication(replace_timeline)
    model.apply("write", 0)


def test_snapshots_that_java_paimon_adds_to_an_abandoned_timeline_are_not_extended(
    tmp_path: Path,
) -> None:
    """Java 2.0 keeps the versions of removed snapshots, and a later commit extends them."""
    model = History(tmp_path, "append")
    for number in (0, 1, 2):
        model.apply("write", number)

    def replace_timeline() -> None:
        model.table.rollback(1)
        for number in (3, 4):
            model.table.append(build_rows(model.table.load().schema, number, 50 + number))

    without_publication(replace_timeline)
    path = Path(model.table.paths.root) / "metadata" / "v3.metadata.json"
    metadata = json.loads(path.read_text())
    for snapshot in metadata["snapshots"]:
        snapshot["summary"] = {
            key: value for key, value in snapshot["summary"].items() if "paimon" not in key
        }
    latest = model.table.snapshot()
    assert latest is not None
    metadata["snapshots"][-1]["timestamp-ms"] = latest.time_millis  # as if made from this snapshot
    path.write_text(json.dumps(metadata))

    model.apply("write", 0)
    model.check_time_travel()


def test_manifests_of_an_abandoned_timeline_that_older_snapshots_need_are_kept(
    tmp_path: Path,
) -> None:
    options = {"metadata__iceberg__previous_versions_max": "9"}
    options["metadata__iceberg__compaction__min__file_num"] = "50"
    model = History(tmp_path, "append", **options)
    for number in range(4):
        model.apply("write", number)

    def replace_timeline() -> None:
        model.table.rollback(2)
        model.table.overwrite(
            build_rows(model.table.load().schema, 0, 50)
        )  # drops the first manifests

    without_publication(replace_timeline)
    model.apply("write", 5)
    assert [s["snapshot-id"] for s in open_iceberg_table(model.table).metadata["snapshots"]] == [
        *(1, 2, 3, 4)
    ]
    model.check_time_travel()
    for version in open_iceberg_table(model.table).versions():
        IcebergTable(Path(model.table.paths.root) / "metadata", version).check_listed()


def test_manifest_lists_get_the_names_of_a_changed_option_at_once(tmp_path: Path) -> None:
    """Java Paimon fails on manifest lists with the other names of counts."""
    model = History(tmp_path, "append", metadata__iceberg__previous_versions_max="9")
    for number in (0, 1):
        model.apply("write", number)
    legacy = SetOption("metadata.iceberg.manifest-legacy-version", "true")
    model.catalog.alter_table("db.t", [legacy])

    iceberg = open_iceberg_table(model.table)
    assert [snapshot["snapshot-id"] for snapshot in iceberg.metadata["snapshots"]] == [2]
    assert iceberg.versions() == [2]
    model.table.append(build_rows(model.table.load().schema, 2, 2))
    for snapshot in open_iceberg_table(model.table).metadata["snapshots"]:
        with Path(snapshot["manifest-list"]).open("rb") as file:
            manifests = [str(record) for record in fastavro.reader(file)]
        assert all("added_data_files_count" in manifest for manifest in manifests)


@pytest.mark.parametrize("commits", [0, 1])
def test_schemas_that_a_branch_replaces_are_published_again(tmp_path: Path, commits: int) -> None:
    model = History(tmp_path, "append")
    model.apply("write", 0)
    model.apply("tag", 0)
    model.table.branches.create("dev", "t0")
    model.catalog.alter_table("db.t", [AddColumn(column="a", type="INT")])
    branch = model.catalog.table("db.t$branch_dev")
    model.catalog.alter_table(branch.identifier, [AddColumn(column="b", type="STRING")])
    for number in range(commits):
        branch.append(build_rows(branch.load().schema, number, 60))
        model.catalog.alter_table(branch.identifier, [AddColumn(column="c", type="INT")])

    model.table.branches.fast_forward("dev")

    model.check()
    model.check_time_travel()
    names = [
        [f["name"] for f in s["fields"]]
        for s in open_iceberg_table(model.table).metadata["schemas"]
    ]
    assert names[1] == ["p", "k", "n", "v", "b"]


def test_column_ids_do_not_fall_below_those_of_older_schemas(tmp_path: Path) -> None:
    model = History(tmp_path, "append")
    model.apply("write", 0)
    catalog = model.catalog
    catalog.alter_table("db.t", [AddColumn(column="c", type="INT")])
    catalog.alter_table("db.t", [DropColumn("c")])
    for path in open_iceberg_table(model.table).directory.iterdir():
        path.unlink()
    model.is_stale = True
    model.apply("write", 1)


def test_versions_with_lost_manifest_lists_are_deleted(tmp_path: Path) -> None:
    model = History(tmp_path, "append", metadata__iceberg__previous_versions_max="5")
    for number in (0, 1, 2):
        model.apply("write", number)
    oldest = open_iceberg_table(model.table).metadata["snapshots"][0]
    Path(oldest["manifest-list"]).unlink()
    model.apply("write", 3)


def test_a_table_that_iceberg_cannot_read_is_not_published_by_an_allowed_step(
    tmp_path: Path,
) -> None:
    model = History(tmp_path, "append", deletion_vectors__modifiable="true")
    model.apply("write", 0)
    table = model.table.allow(stale_external=True)
    model.catalog.alter_table("db.t", [SetOption("deletion-vectors.enabled", "true")])

    delete(table, EXECUTOR, "k = 1")

    iceberg = open_iceberg_table(table)
    assert iceberg.hint == 1, "the deleted row would be visible again in a newer version"


def test_delete_manifests_do_not_accumulate(tmp_path: Path) -> None:
    model = History(tmp_path, "append with vectors")
    model.apply("write", 0)
    for number in range(4):
        model.apply("delete", number)
        model.apply("write", number)
    iceberg = open_iceberg_table(model.table)
    for manifest in iceberg.manifests(iceberg.current):
        newest = manifest.entry["added_snapshot_id"] == iceberg.hint
        assert manifest.live or newest, "the manifest has no live file"


def test_row_ids_are_not_reused_after_a_writer_without_row_lineage(tmp_path: Path) -> None:
    model = History(tmp_path, "append", metadata__iceberg__format_version="3")
    for number in (0, 1, 2):
        model.apply("write", number)
    model.apply("delete", 2)  # the entries of the rewritten manifest have explicit row ids
    rewrite_as_java(open_iceberg_table(model.table))
    model.apply("write", 1)


def test_metadata_without_row_lineage_is_not_current(tmp_path: Path) -> None:
    model = History(tmp_path, "append", metadata__iceberg__format_version="3")
    model.apply("write", 0)
    rewrite_as_java(open_iceberg_table(model.table))
    model.table.stores.iceberg.publish()
    model.check()
    assert "next-row-id" in open_iceberg_table(model.table).metadata


@pytest.mark.parametrize("storage", ["table-location", "hadoop-catalog"])
def test_a_renamed_table_keeps_its_identity(tmp_path: Path, storage: str) -> None:
    options = {"metadata.iceberg.storage": storage, "metadata.iceberg.format-version": "3"}
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.t", "k BIGINT", options=options)
    table.append(build_rows(table.load().schema, 0, 0))
    before = find_iceberg_table(tmp_path, "t", storage).metadata
    renamed = catalog.rename_table("db.t", "db.u")
    renamed.append(build_rows(renamed.load().schema, 1, 1))

    iceberg = find_iceberg_table(tmp_path, "u", storage)
    iceberg.check()
    assert iceberg.read_rows() == sorted((k,) for k in (0, 1, 2, 3, 1, 2, 3, 4))
    if storage == "table-location":  # in a Hadoop catalog, another directory is another table
        assert iceberg.metadata["table-uuid"] == before["table-uuid"]
        assert iceberg.current["first-row-id"] >= before["next-row-id"]
    assert not (tmp_path / "iceberg" / "db" / "t" / "metadata").exists()
    assert iceberg.unreferenced_files() == set()


def find_iceberg_table(warehouse: Path, name: str, storage: str) -> IcebergTable:
    if storage == "table-location":
        return IcebergTable(warehouse / "db.db" / name / "metadata")
    return IcebergTable(warehouse / "iceberg" / "db" / name / "metadata")


@pytest.mark.parametrize("snapshots", [1, 3])
def test_a_table_that_replaces_a_dropped_one_has_another_identity(
    tmp_path: Path, snapshots: int
) -> None:
    options = {"metadata__iceberg__storage": "hadoop-catalog"}
    table = new_table(tmp_path, key=(), **options, bucket="-1")
    for number in range(2):
        table.append(build_rows(table.load().schema, number, number))
    before = find_iceberg_table(tmp_path, "t", "hadoop-catalog").metadata
    table.io.delete_dir(table.paths.root)  # Java Paimon leaves the metadata

    table = new_table(tmp_path, key=(), **options, bucket="-1")
    for number in range(snapshots):
        table.append(build_rows(table.load().schema, number, number))

    iceberg = find_iceberg_table(tmp_path, "t", "hadoop-catalog")
    iceberg.check()
    assert iceberg.metadata["table-uuid"] != before["table-uuid"]
    assert len(iceberg.read_rows()) == 4 * snapshots


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["append", "append with vectors", "primary key with vectors"])
def test_files_are_found_whatever_the_spelling_of_their_paths(tmp_path: Path, kind: str) -> None:
    model = History(tmp_path, kind)
    for action, number in (("write", 0), ("full", 0), ("delete", 1), ("minor", 0)):
        model.apply(action, number)
    rewrite_paths(open_iceberg_table(model.table), "file:")

    for action, number in (("delete", 2), ("minor", 0), ("overwrite", 0), ("full", 0)):
        model.apply(action, number)

    iceberg = open_iceberg_table(model.table)
    assert iceberg.metadata["location"] == f"file:{model.table.paths.root}"
    manifests = iceberg.manifests(iceberg.current)
    assert all(manifest.entry["manifest_path"].startswith("file:") for manifest in manifests)
    entries = [entry for manifest in manifests for entry in manifest.live]
    assert all(entry["data_file"]["file_path"].startswith("file:") for entry in entries)


def test_totals_do_not_continue_wrong_ones(tmp_path: Path) -> None:
    model = History(tmp_path, "append")
    model.apply("write", 0)
    iceberg = open_iceberg_table(model.table)
    iceberg.current["summary"] |= {"total-data-files": "7", "total-files-size": "7"}
    rewrite_version(iceberg, iceberg.metadata)
    model.table.append(build_rows(model.table.load().schema, 1, 1))
    open_iceberg_table(model.table).check_current()


def test_a_file_that_only_changes_its_level_keeps_its_entry(tmp_path: Path) -> None:
    model = History(
        tmp_path,
        "primary key with vectors",
        target_file_size="1 b",  # a file that is large enough is moved, not rewritten
        num_sorted_run__compaction_trigger="5",
        compaction__max_size_amplification_percent="100000",
        compaction__size_ratio="0",
    )
    for start in (0, 10, 20):
        model.table.upsert(build_rows(model.table.load().schema, start, start))
        compact(model.table, EXECUTOR)
    before = [file for split in model.table.files() for file in split.files]
    entries = list_data_entries(model)
    compact(model.table, EXECUTOR, strategy="full")

    after = [file for split in model.table.files() for file in split.files]
    assert {file.file_name for file in before} == {file.file_name for file in after}
    assert sorted(file.level for file in before) < sorted(file.level for file in after)
    model.check()
    assert list_data_entries(model) == entries


def list_data_entries(model: History) -> list[tuple[str, int]]:
    """Return the live data files with their sequence numbers."""
    iceberg = open_iceberg_table(model.table)
    return sorted(
        (entry["data_file"]["file_path"], entry["sequence_number"])
        for manifest in iceberg.manifests(iceberg.current)
        for entry in manifest.live
        if entry["data_file"]["content"] == DATA
    )
