"""Commits are published as Iceberg metadata, and later calls repair what an earlier one missed."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.golden import GOLDEN, copy_warehouse, table_name

from paimon_orch import Catalog, Table
from paimon_orch.errors import StorageError, UnsupportedError
from paimon_orch.steps import (
    compact,
    delete_tag,
    expire_snapshots,
    remove_orphan_files,
    rollback_as_latest,
)
from paimon_orch.steps.expiration.expire_snapshots import (
    ExpireSnapshotsRequest,
    plan,
    run_expiration,
)
from paimon_orch.table.commit.commit import TableCommit
from paimon_orch.table.iceberg.publication_input import PublicationInput
from paimon_orch.table.iceberg.publish import IcebergPublisher
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SetOption,
    UpdateType,
)
from paimon_orch.table.table_stores import TableStores

STORAGE = {"metadata.iceberg.storage": "table-location"}
VECTORS = {
    "deletion-vectors.enabled": "true",
    "deletion-vectors.bitmap64": "true",
    "metadata.iceberg.format-version": "3",
}
AVRO_KEYS = {"schema", "schema-id", "partition-spec", "partition-spec-id", "format-version"}
Metadata = Mapping[str, Any]


def metadata_dir(table: Table) -> Path:
    return Path(table.paths.root) / "metadata"


def read_metadata(table: Table) -> dict[str, Any]:
    version = (metadata_dir(table) / "version-hint.text").read_text()
    metadata = json.loads((metadata_dir(table) / f"v{version}.metadata.json").read_text())
    assert metadata["current-snapshot-id"] == int(version) == table.stores.snapshots.latest_id()
    return dict(metadata)


def read_avro(path: str) -> list[dict[str, Any]]:
    with Path(path).open("rb") as source:
        return [dict(record) for record in fastavro.reader(source)]  # type: ignore[arg-type]


def live_files(metadata: Metadata, snapshot_id: int | None = None) -> list[dict[str, Any]]:
    wanted = snapshot_id or metadata["current-snapshot-id"]
    (snapshot,) = (s for s in metadata["snapshots"] if s["snapshot-id"] == wanted)
    return [
        entry["data_file"]
        for manifest in read_avro(snapshot["manifest-list"])
        for entry in read_avro(manifest["manifest_path"])
        if entry["status"] != 2
    ]


def read_ids(metadata: Metadata, snapshot_id: int | None = None) -> list[int]:
    """Return the values of the column ``id`` in all data files of a snapshot."""
    return sorted(
        number
        for file in live_files(metadata, snapshot_id)
        if file["content"] == 0
        for number in pq.read_table(file["file_path"], partitioning=None)["id"].to_pylist()
    )


def create(
    warehouse: Path,
    *,
    key: tuple[str, ...] = (),
    partition_by: tuple[str, ...] = (),
    options: Mapping[str, str] | None = None,
) -> Table:
    buckets = {"bucket": "1"} if key else {}
    return Catalog(str(warehouse)).create_table(
        "db.t",
        "id INT, dt STRING, v DOUBLE",
        primary_key=key,
        partition_by=partition_by,
        options={**STORAGE, **buckets, **(options or {})},
    )


def rows(*ids: int, dt: str = "a") -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int32()), "dt": [dt] * len(ids), "v": [float(i) for i in ids]}
    )


@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_rollback_as_latest_is_an_iceberg_snapshot(tmp_path: Path, key: tuple[str, ...]) -> None:
    table = create(tmp_path, key=key)
    table.append(rows(1, 2))
    compact(table, strategy="full")
    table.overwrite(rows(3))
    compact(table, strategy="full")
    first = 2 if key else 1
    result = rollback_as_latest(table, first)

    metadata = read_metadata(table)
    assert metadata["current-snapshot-id"] == result.snapshot.id
    assert read_ids(metadata) == [1, 2]
    assert read_ids(metadata, result.snapshot.id - 1) == [3]


def test_each_commit_of_an_append_table_is_an_iceberg_snapshot(tmp_path: Path) -> None:
    table = create(tmp_path, partition_by=("dt",))
    table.append(rows(1, 2))
    table.append(rows(3, dt="b"))
    table.overwrite(rows(4))

    metadata = read_metadata(table)
    assert [s["snapshot-id"] for s in metadata["snapshots"]] == [1, 2, 3]
    assert [s.get("parent-snapshot-id") for s in metadata["snapshots"]] == [None, 1, 2]
    assert [s["summary"]["operation"] for s in metadata["snapshots"]] == [
        "append",
        "append",
        "overwrite",
    ]
    assert [s["summary"]["total-records"] for s in metadata["snapshots"]] == ["2", "3", "2"]
    assert [read_ids(metadata, number) for number in (1, 2, 3)] == [[1, 2], [1, 2, 3], [3, 4]]
    assert {file["partition"]["dt"] for file in live_files(metadata)} == {"a", "b"}


def test_a_primary_key_table_shows_the_result_of_full_compactions(tmp_path: Path) -> None:
    table = create(tmp_path, key=("id",))
    table.upsert(rows(1, 2))
    assert read_ids(read_metadata(table)) == []
    compact(table, strategy="full")
    table.upsert(rows(2, 3))
    assert read_ids(read_metadata(table)) == [1, 2]
    compact(table, strategy="full")

    metadata = read_metadata(table)
    assert read_ids(metadata) == [1, 2, 3]
    assert metadata["snapshots"][-1]["summary"]["operation"] == "replace"


def test_deletion_vectors_are_published_with_the_ranges_of_our_index_files(tmp_path: Path) -> None:
    table = create(tmp_path, key=("id",), options=VECTORS)
    for ids in ((1, 2, 3), (2, 4)):
        table.upsert(rows(*ids))
        compact(table)

    metadata = read_metadata(table)
    files = live_files(metadata)
    (vector,) = (file for file in files if file["content"] == 1)
    assert vector["file_format"] == "puffin"
    assert vector["record_count"] == 1
    assert vector["referenced_data_file"] in {f["file_path"] for f in files if f["content"] == 0}
    blob = Path(vector["file_path"]).read_bytes()[vector["content_offset"] :]
    assert int.from_bytes(blob[:4], "big") == vector["content_size_in_bytes"] - 8
    assert blob[4:8] == bytes.fromhex("d1d33964")
    first_row_ids = [s["first-row-id"] + s["added-rows"] for s in metadata["snapshots"]]
    assert metadata["next-row-id"] == max(first_row_ids)


@pytest.mark.parametrize("damage", ["metadata", "list", "manifest", "hint", "directory"])
def test_the_next_commit_repairs_lost_files(tmp_path: Path, damage: str) -> None:
    table = create(tmp_path)
    for number in (1, 2):
        table.append(rows(number))
    before = read_metadata(table)
    folder = metadata_dir(table)
    pattern = {
        "metadata": "v*.json",
        "list": "snap-*",
        "manifest": "*-m*.avro",
        "hint": "version-hint.text",
        "directory": "*",
    }[damage]
    for path in folder.glob(pattern):
        path.unlink()

    table.append(rows(3))

    metadata = read_metadata(table)
    assert read_ids(metadata) == [1, 2, 3]
    keeps_uuid = damage in {"list", "manifest", "hint"}
    assert (metadata["table-uuid"] == before["table-uuid"]) == keeps_uuid


def test_commits_without_publication_are_replayed_with_their_own_snapshots(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.append(rows(1))
    kept = {path: path.read_bytes() for path in metadata_dir(table).iterdir()}
    for number in (2, 3):
        table.append(rows(number))
    for path in metadata_dir(table).iterdir():
        path.unlink()
    for path, data in kept.items():
        path.write_bytes(data)

    table.append(rows(4))

    metadata = read_metadata(table)
    assert [read_ids(metadata, number) for number in (1, 2, 3, 4)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 3, 4],
    ]


def test_a_failed_publication_is_logged_and_the_commit_succeeds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(tmp_path)
    metadata_dir(table).write_text("a file at the place of the directory")

    with caplog.at_level(logging.WARNING):
        table.append(rows(1))

    assert "the Iceberg metadata is stale" in caplog.text
    assert table.scan().to_arrow().num_rows == 1
    metadata_dir(table).unlink()
    table.append(rows(2))
    assert read_ids(read_metadata(table)) == [1, 2]


def test_a_commit_during_a_publication_is_published_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path)
    table.append(rows(1))
    publish, commits = IcebergPublisher._publish, [2]

    def publish_then_commit(self: IcebergPublisher, state: PublicationInput) -> bool:
        is_published = publish(self, state)
        if commits:
            table.append(rows(commits.pop()))
        return is_published

    monkeypatch.setattr(IcebergPublisher, "_publish", publish_then_commit)
    monkeypatch.setattr(TableCommit, "_report", lambda *_: None)
    assert table.stores.iceberg.publish() == 2
    assert read_ids(read_metadata(table)) == [1, 2]


def test_a_rollback_publishes_the_target_and_later_commits_reuse_its_ids(tmp_path: Path) -> None:
    table = create(tmp_path, options={"metadata.iceberg.previous-versions-max": "5"})
    for number in (1, 2, 3):
        table.append(rows(number))

    table.rollback(1)
    assert read_ids(read_metadata(table)) == [1]
    assert {path.name for path in metadata_dir(table).glob("v*.json")} == {"v1.metadata.json"}
    table.append(rows(7))
    assert read_ids(read_metadata(table)) == [1, 7]


def test_an_expiration_first_removes_the_snapshots_from_the_metadata(tmp_path: Path) -> None:
    table = create(tmp_path, partition_by=("dt",))
    for number in range(1, 5):
        table.overwrite(rows(number))
    table.tags.create("kept", snapshot_id=2)

    expire_snapshots(table, retain_max=1, retain_min=1)

    metadata = read_metadata(table)
    assert [s["snapshot-id"] for s in metadata["snapshots"]] == [2, 4]
    assert {name: ref["snapshot-id"] for name, ref in metadata["refs"].items()} == {"kept": 2}
    assert read_ids(metadata, 2) == [2]
    delete_tag(table, "kept")
    metadata = read_metadata(table)
    assert [s["snapshot-id"] for s in metadata["snapshots"]] == [4]
    assert metadata["refs"] == {}


@pytest.mark.parametrize("is_replaced", [False, True], ids=["the same table", "created again"])
def test_an_expiration_publishes_if_iceberg_was_enabled_after_its_plan(
    tmp_path: Path, is_replaced: bool
) -> None:
    no_iceberg = {"metadata.iceberg.storage": "disabled"}
    table = create(tmp_path, options=no_iceberg)
    for number in (1, 2, 3):
        table.overwrite(rows(number))
    planned = plan(table, ExpireSnapshotsRequest(retain_max=1, retain_min=1))
    if is_replaced:
        Catalog(str(tmp_path)).drop_table("db.t")
        table = create(tmp_path)
        for number in (4, 5, 6):
            table.overwrite(rows(number))
        shutil.rmtree(metadata_dir(table))  # it must be written again, not only be left
    else:
        Catalog(str(tmp_path)).alter_table(
            "db.t", [SetOption("metadata.iceberg.storage", "table-location")]
        )

    result = run_expiration(table, planned)

    assert (result.snapshots, result.attempts) == (2, 2 if is_replaced else 1)
    metadata = read_metadata(table)
    assert [each["snapshot-id"] for each in metadata["snapshots"]] == [3]
    assert read_ids(metadata) == [6 if is_replaced else 3]


def test_files_are_not_deleted_while_the_metadata_cannot_be_written(tmp_path: Path) -> None:
    table = create(tmp_path)
    for number in (1, 2, 3):
        table.append(rows(number))
    folder = metadata_dir(table)
    folder.rename(folder.with_name("saved"))
    folder.write_text("a file at the place of the directory")
    files = sorted(Path(table.paths.root).rglob("*.parquet"))

    with pytest.raises(UnsupportedError, match="Iceberg readers may still need the files"):
        expire_snapshots(table, retain_max=1, retain_min=1)

    assert sorted(Path(table.paths.root).rglob("*.parquet")) == files
    assert table.stores.snapshots.exists(1)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [(errno.EIO, StorageError), (errno.ESTALE, StorageError), (errno.EACCES, UnsupportedError)],
)
def test_an_expiration_may_be_repeated_after_a_temporary_error_of_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int, expected: type[Exception]
) -> None:
    table = create(tmp_path)
    for number in (1, 2, 3):
        table.append(rows(number))
    files = sorted(Path(table.paths.root).rglob("*.parquet"))

    def fail(_: TableStores) -> NoReturn:
        raise StorageError("cannot be written") from OSError(failure, os.strerror(failure))

    with monkeypatch.context() as failing:
        failing.setattr(TableStores, "_publish_if_enabled", fail)
        with pytest.raises(expected, match="no file was deleted"):
            expire_snapshots(table, retain_max=1, retain_min=1)

    assert sorted(Path(table.paths.root).rglob("*.parquet")) == files
    expire_snapshots(table, retain_max=1, retain_min=1)
    assert table.stores.snapshots.ids() == [3]


def test_several_tags_of_a_snapshot_are_all_published(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.append(rows(1))
    table.tags.create("a")
    table.tags.create("b")
    table.tags.rename("b", "c")

    assert set(read_metadata(table)["refs"]) == {"a", "c"}


def test_schema_changes_are_published_at_once_by_field_ids(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.append(rows(1))
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [RenameColumn("v", "w"), AddColumn(column="n", type="BIGINT")])
    catalog.alter_table("db.t", [UpdateType("id", "BIGINT"), DropColumn("n")])

    metadata = read_metadata(table)
    assert metadata["current-schema-id"] == 2
    assert [[f["name"] for f in s["fields"]] for s in metadata["schemas"]] == [
        ["id", "dt", "v"],
        ["id", "dt", "w", "n"],
        ["id", "dt", "w"],
    ]
    assert metadata["last-column-id"] == 3


def test_a_type_change_that_iceberg_cannot_read_is_not_published(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(tmp_path)
    table.append(rows(1))
    before = read_metadata(table)

    with caplog.at_level(logging.WARNING):
        Catalog(str(tmp_path)).alter_table("db.t", [UpdateType("id", "STRING")])

    assert "the Iceberg metadata is stale" in caplog.text
    assert "'id'" in caplog.text
    assert read_metadata(table) == before


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("id INT, t TIMESTAMP(9)", {}, "TIMESTAMP"),
        ("id INT, u ARRAY<TIMESTAMP_LTZ(3)>", {"file.format": "avro"}, "'u' .* in Avro files"),
        ("id INT, u TIMESTAMP_LTZ(3)", {"file.format.per.level": "0:avro"}, "in Avro files"),
        ("id INT", {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}, "evolution"),
        ("id INT", {"deletion-vectors.enabled": "true"}, "deletion vectors of append tables"),
        (
            "id INT",
            {"metadata.iceberg.storage": "elsewhere"},
            "implemented: disabled, table-location",
        ),
        ("id INT", {"metadata.iceberg.format-version": "4"}, "4"),
    ],
)
def test_tables_that_iceberg_cannot_read_are_refused_before_the_commit(
    tmp_path: Path, columns: str, options: dict[str, str], reason: str
) -> None:
    catalog = Catalog(str(tmp_path))
    plain = {k: v for k, v in options.items() if "iceberg" not in k}
    table = catalog.create_table("db.t", columns, options=plain)
    for key, value in {**STORAGE, **options}.items():
        schema = table.load().schema
        path = Path(table.paths.schema_dir) / f"schema-{schema.id}"
        stored = json.loads(path.read_text())
        stored["options"][key] = value
        path.write_text(json.dumps(stored))
    row = pa.table({"id": pa.array([1], pa.int32())})
    if "t TIMESTAMP" in columns:
        row = row.append_column("t", pa.array([0], pa.timestamp("ns")))

    with pytest.raises(UnsupportedError, match=reason):
        table.append(row)

    assert table.stores.snapshots.latest_id() is None


def test_many_small_manifests_are_merged(tmp_path: Path) -> None:
    merge_at_10 = {"metadata.iceberg.compaction.max.file-num": "10"}
    table = create(tmp_path, partition_by=("dt",), options=merge_at_10)
    for number in range(12):
        table.append(rows(number, dt="ba"[number % 2]))

    metadata = read_metadata(table)
    manifests = read_avro(metadata["snapshots"][-1]["manifest-list"])
    assert len(manifests) < 10
    assert read_ids(metadata) == list(range(12))
    statuses = {
        (entry["status"], entry["snapshot_id"])
        for manifest in manifests
        for entry in read_avro(manifest["manifest_path"])
    }
    assert (1, 12) in statuses
    assert (0, 1) in statuses


def test_previous_versions_are_kept_with_their_manifest_lists(tmp_path: Path) -> None:
    table = create(tmp_path, options={"metadata.iceberg.previous-versions-max": "2"})
    for number in range(1, 6):
        table.append(rows(number))

    names = sorted(path.name for path in metadata_dir(table).glob("v*.json"))
    assert names == [f"v{number}.metadata.json" for number in (3, 4, 5)]
    old = json.loads((metadata_dir(table) / names[0]).read_text())
    assert read_ids(old) == [1, 2, 3]


@pytest.mark.parametrize("option", ["previous-versions-max=9", "delete-after-commit.enabled=false"])
def test_older_versions_do_not_name_lists_that_java_paimon_deleted(
    tmp_path: Path, option: str
) -> None:
    """A rebuild of Java 2.0 reads all lists of all versions, and fails on a missing one."""
    key, _, value = option.partition("=")
    table = create(tmp_path, options={f"metadata.iceberg.{key}": value})
    for number in range(1, 6):
        table.append(rows(number))
    metadata = read_metadata(table)
    for snapshot in metadata["snapshots"][:2]:
        Path(snapshot["manifest-list"]).unlink()
    del metadata["snapshots"][:2]
    metadata["snapshots"][-1]["summary"] = {"operation": "append"}
    (metadata_dir(table) / "v5.metadata.json").write_text(json.dumps(metadata))
    table.append(rows(6))

    versions = {
        path.name: [s["snapshot-id"] for s in json.loads(path.read_text())["snapshots"]]
        for path in metadata_dir(table).glob("v*.json")
    }
    assert versions == {f"v{n}.metadata.json": list(range(3, n + 1)) for n in range(3, 7)}
    assert existing_files(table) == named_files(table)


def test_the_metadata_of_a_hadoop_catalog_is_next_to_the_databases(tmp_path: Path) -> None:
    table = create(tmp_path, options={"metadata.iceberg.storage": "hadoop-catalog"})
    table.append(rows(1))

    folder = tmp_path / "iceberg" / "db" / "t" / "metadata"
    assert (folder / "version-hint.text").read_text() == "1"
    assert json.loads((folder / "v1.metadata.json").read_text())["location"] == table.paths.root
    Catalog(str(tmp_path)).drop_table("db.t")
    assert not folder.exists()


def test_a_renamed_table_is_published_with_its_new_paths(tmp_path: Path) -> None:
    create(tmp_path).append(rows(1))

    table = Catalog(str(tmp_path)).rename_table("db.t", "db.u")

    metadata = read_metadata(table)
    assert metadata["location"] == table.paths.root
    assert read_ids(metadata) == [1]


def test_format_version_3_extends_the_table_of_version_2(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.append(rows(1))
    before = read_metadata(table)
    Catalog(str(tmp_path)).alter_table("db.t", [SetOption("metadata.iceberg.format-version", "3")])
    table.append(rows(2))

    metadata = read_metadata(table)
    assert (metadata["format-version"], metadata["next-row-id"]) == (3, 2)
    assert metadata["table-uuid"] == before["table-uuid"]
    assert read_ids(metadata) == [1, 2]


def test_branches_are_not_published(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.append(rows(1))
    table.tags.create("start")
    table.branches.create("dev", tag="start")
    before = read_metadata(table)

    Catalog(str(tmp_path)).table("db.t$branch_dev").append(rows(2))

    assert read_metadata(table) == before
    table.branches.fast_forward("dev")
    assert read_ids(read_metadata(table)) == [1, 2]


def test_orphan_removal_deletes_only_metadata_that_no_version_names(tmp_path: Path) -> None:
    table = create(tmp_path, options={"metadata.iceberg.previous-versions-max": "1"})
    for number in (1, 2, 3):
        table.append(rows(number))
    folder = metadata_dir(table)
    orphan = folder / "01234567-89ab-cdef-0123-456789abcdef-m1.avro"
    orphan.write_bytes(b"left by a publication that failed")
    (folder / "notes.txt").write_text("not ours")
    kept = {path.name for path in folder.iterdir()} - {orphan.name}
    for path in folder.iterdir():
        os.utime(path, (0, 0))

    remove_orphan_files(table)

    assert {path.name for path in folder.iterdir()} == kept
    assert read_ids(read_metadata(table)) == [1, 2, 3]


def test_null_partitions_have_bounds_because_java_paimon_needs_them(tmp_path: Path) -> None:
    table = create(tmp_path, partition_by=("dt",))
    table.append(rows(1).set_column(1, "dt", pa.array([None], pa.string())))

    (manifest,) = read_avro(read_metadata(table)["snapshots"][-1]["manifest-list"])
    (summary,) = manifest["partitions"]
    assert summary == {
        "contains_null": True,
        "contains_nan": False,
        "lower_bound": b"",
        "upper_bound": b"",
    }
    table.append(rows(2))
    table.overwrite(rows(3).set_column(1, "dt", pa.array([None], pa.string())))
    assert read_ids(read_metadata(table)) == [2, 3]


def test_a_manifest_larger_than_the_target_size_is_split(tmp_path: Path) -> None:
    table = create(tmp_path, partition_by=("dt",), options={"manifest.target-file-size": "4 kb"})
    table.append(pa.concat_tables([rows(n, dt=f"day {n}") for n in range(200)]))

    metadata = read_metadata(table)
    manifests = read_avro(metadata["snapshots"][-1]["manifest-list"])
    assert len(manifests) > 1
    assert read_ids(metadata) == list(range(200))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [5, 150])
def test_a_commit_rewrites_only_the_manifests_of_removed_files(tmp_path: Path, number: int) -> None:
    options = {"manifest.target-file-size": "4 kb"}
    table = create(tmp_path, partition_by=("dt",), options=options)
    table.append(pa.concat_tables([rows(n, dt=f"day {n:03d}") for n in range(200)]))
    before = {
        m["manifest_path"] for m in read_avro(read_metadata(table)["snapshots"][0]["manifest-list"])
    }

    table.overwrite(rows(1000, dt=f"day {number:03d}"))

    metadata = read_metadata(table)
    after = {m["manifest_path"] for m in read_avro(metadata["snapshots"][-1]["manifest-list"])}
    assert len(before - after) == 1
    assert read_ids(metadata) == sorted({*range(200), 1000} - {number})


GOLDEN_ICEBERG = sorted(GOLDEN.glob("java-2.0/iceberg_*"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("folder", GOLDEN_ICEBERG, ids=lambda folder: folder.name)
def test_tables_of_java_show_the_same_files_after_a_publication_and_all_rows_after_a_compaction(
    folder: Path, tmp_path: Path
) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    catalog = Catalog(str(copy_warehouse(folder, tmp_path / "warehouse")))
    for entry in expected["tables"]:
        table = catalog.table(table_name(entry))
        table.stores.iceberg.publish()
        java = entry["iceberg"]["files_of_snapshots"][-1]
        data = [f for f in live_files(read_metadata(table)) if f["content"] == 0]
        assert {f["file_path"].rpartition("/")[2] for f in data} == {
            f["file"] for f in java["data"]
        }
        vectors = [f for f in live_files(read_metadata(table)) if f["content"] == 1]
        assert sum(f["record_count"] for f in vectors) == java["deleted"]

        compact(table, strategy="full")
        expire_snapshots(table, retain_max=1, retain_min=1)

        files = live_files(read_metadata(table))
        rows_left = sum(f["record_count"] * (1, -1)[f["content"]] for f in files)
        assert rows_left == table.scan().to_arrow().num_rows
        assert all(Path(f["file_path"]).exists() for f in files)


def named_files(table: Table) -> set[str]:
    """Return the manifests and manifest lists that the metadata names."""
    lists = {snapshot["manifest-list"] for snapshot in read_metadata(table)["snapshots"]}
    return lists | {m["manifest_path"] for path in lists for m in read_avro(path)}


def existing_files(table: Table) -> set[str]:
    return {str(path) for path in metadata_dir(table).glob("*.avro")}


def test_snapshots_that_a_replaced_version_drops_leave_no_files(tmp_path: Path) -> None:
    table = create(tmp_path, key=("id",))
    for number in range(3):
        table.upsert(rows(number))
    expire_snapshots(table, retain_max=1)  # replaces the newest version
    assert existing_files(table) == named_files(table)

    Catalog(str(tmp_path)).alter_table("db.t", [SetOption("num-levels", "4")])  # a rebuild
    assert existing_files(table) == named_files(table)


def test_replayed_snapshots_that_have_expired_leave_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
    table = create(tmp_path, options=options)
    table.append(rows(0))
    with monkeypatch.context() as patch:
        patch.setattr(TableStores, "publish_iceberg_metadata", lambda _: None)
        for number in range(1, 5):
            table.append(rows(number))
    table.append(rows(5))
    assert [s["snapshot-id"] for s in read_metadata(table)["snapshots"]] == [5, 6]
    assert existing_files(table) == named_files(table)


def test_manifests_that_a_commit_rewrites_are_merged_and_sorted(tmp_path: Path) -> None:
    table = create(tmp_path, partition_by=("dt",))
    for part in range(4):
        numbers = range(part * 30, part * 30 + 30)
        table.append(pa.concat_tables([rows(n, dt=f"day {n % 30:02d}") for n in numbers]))

    table.overwrite(rows(1000, dt="day 07"))

    metadata = read_metadata(table)
    manifests = read_avro(metadata["snapshots"][-1]["manifest-list"])
    assert len(manifests) == 2
    days = [e["data_file"]["partition"]["dt"] for e in read_avro(manifests[0]["manifest_path"])]
    assert days == sorted(days)
    assert read_ids(metadata) == sorted({*range(120), 1000} - {7, 37, 67, 97})


@pytest.mark.parametrize("column", ["r", ("r", "a")], ids=["column", "nested field"])
@pytest.mark.parametrize("file_format", ["orc", "avro", "parquet"])
def test_renames_are_published_only_for_files_with_field_ids(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    file_format: str,
    column: str | tuple[str, str],
) -> None:
    catalog = Catalog(str(tmp_path))
    options = {**STORAGE, "file.format": file_format}
    table = catalog.create_table("db.t", "id INT, r ROW<a INT>", options=options)
    kind = pa.struct([("a", pa.int32())])
    table.append(pa.table({"id": pa.array([1], pa.int32()), "r": pa.array([{"a": 5}], kind)}))

    with caplog.at_level(logging.WARNING):
        catalog.alter_table("db.t", [RenameColumn(column, "b")])

    refused = "finds their columns by name" in caplog.text
    assert refused == (file_format != "parquet")
    assert read_metadata(table)["current-schema-id"] == (0 if refused else 1)
