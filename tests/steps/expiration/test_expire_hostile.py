"""Wrong or malicious metadata: expiration deletes nothing outside the table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.damage import edit_files, edit_index
from support.histories import make_snapshots, make_table
from support.tables import stored_files, table_of

from paimon_orch.errors import CorruptFileError, MissingFileError, StorageError
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.delete_tag import delete_tag
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.storage.local import LocalFileIO
from paimon_orch.table.table import Table


def hostile(table: Table, **changes: Any) -> None:
    """Change the path of the file that snapshot 1 added and snapshot 2 deletes."""
    table.truncate()
    table.upsert(table_of("k v", [(1, "1")]))
    edit_files(table, 1, **changes)
    edit_files(table, 2, **changes)


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_file_outside_the_table_is_never_deleted(tmp_path: Path, prefix: str) -> None:
    table = make_snapshots(tmp_path / "w", 1)
    outside = tmp_path / "precious" / "bucket-0" / "data.parquet"
    outside.parent.mkdir(parents=True)
    outside.write_bytes(b"precious")
    hostile(table, external_path=f"{prefix}{outside}", file_name="data.parquet")

    result = expire_snapshots(table, retain_max=1)

    assert result.refused == (str(outside),)
    assert (result.data_files, result.bytes) == (0, 0)
    assert outside.read_bytes() == b"precious"


@pytest.mark.parametrize("allowed", [True, False])
def test_a_file_below_an_external_path_is_deleted_if_the_operator_allows_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    outside = tmp_path / "external" / "bucket-0" / "data.parquet"
    if allowed:
        monkeypatch.setenv("PAIMON_ALLOWED_EXTERNAL_PATHS", f"file:{tmp_path}/external/*")
    table = make_snapshots(
        tmp_path / "w", 1, data_file__external_paths=f"file://{tmp_path}/external"
    )
    outside.parent.mkdir(parents=True)
    outside.write_bytes(b"old")
    hostile(table, external_path=f"file://{outside}", file_name="data.parquet")

    result = expire_snapshots(table, retain_max=1)

    assert result.refused == (() if allowed else (str(outside),))
    assert outside.exists() is not allowed


@pytest.mark.parametrize("path", ["/a/../data.parquet", "relative/data.parquet", "/a/other.parquet", "//etc/data.parquet"])  # fmt: skip
def test_unsafe_external_paths_are_refused(tmp_path: Path, path: str) -> None:
    table = make_snapshots(tmp_path, 1)
    hostile(table, external_path=path, file_name="data.parquet")
    before = stored_files(table)

    try:
        result = expire_snapshots(table, retain_max=1)
    except CorruptFileError:
        assert stored_files(table) == before
    else:
        assert result.refused == (path,)


@pytest.mark.parametrize("name", ["../snapshot/snapshot-3", "a/b", "..", ""])
def test_names_outside_their_folder_are_refused(tmp_path: Path, name: str) -> None:
    table = make_snapshots(tmp_path, 1)
    hostile(table, extra_files=(name,))
    before = stored_files(table)

    with pytest.raises(CorruptFileError, match="outside its directory"):
        expire_snapshots(table, retain_max=1)
    assert stored_files(table) == before


def test_an_index_file_outside_the_table_is_never_deleted(tmp_path: Path) -> None:
    table = make_table(tmp_path / "w", "vectors", [("full", 0), ("upsert", 0), ("minor", 0)])
    outside = tmp_path / "precious"
    outside.write_bytes(b"precious")
    newest = table.stores.snapshots.latest_id()
    assert newest is not None
    # This compaction removes all rows that the deletion vectors delete.
    compact(table, InProcessExecutor(), strategy="full")
    edit_index(
        table, newest, lambda items: [replace(item, external_path=str(outside)) for item in items]
    )
    table.upsert(table_of("p k v", [(0, 0, "x")]))

    result = expire_snapshots(table, retain_max=1)

    assert result.refused == (str(outside),)
    assert outside.read_bytes() == b"precious"


@pytest.mark.parametrize("name", ["../schema/schema-0", "/etc/passwd", "..", ""])
@pytest.mark.parametrize("key", ["baseManifestList", "indexManifest", "statistics"])
def test_a_tag_that_references_files_elsewhere_stops_the_expiration(
    tmp_path: Path, key: str, name: str
) -> None:
    table = make_snapshots(tmp_path, 3)
    table.tags.create("bad", 1)
    path = Path(table.tags.path("bad"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: name}))
    before = stored_files(table)

    for run in (lambda: expire_snapshots(table, retain_max=1), lambda: remove_orphan_files(table)):
        with pytest.raises(CorruptFileError, match="outside its directory"):
            run()
    assert stored_files(table) == before


def test_no_file_is_deleted_through_a_symbolic_link(tmp_path: Path) -> None:
    table = make_snapshots(tmp_path / "w", 1)
    table.truncate()
    table.upsert(table_of("k v", [(1, "1")]))
    bucket = next(Path(table.paths.root).glob("bucket-*"))
    elsewhere = tmp_path / "elsewhere"
    bucket.rename(elsewhere)
    bucket.symlink_to(elsewhere)
    before = sorted(elsewhere.iterdir())

    result = expire_snapshots(table, retain_max=1)

    assert len(result.refused) == 1
    assert sorted(elsewhere.iterdir()) == before


def test_a_retained_snapshot_without_its_manifest_stops_the_expiration(tmp_path: Path) -> None:
    table = make_snapshots(tmp_path, 4)
    newest = table.stores.snapshots.get(4)
    (Path(table.paths.manifest_dir) / newest.base_manifest_list).unlink()
    before = stored_files(table)

    with pytest.raises(MissingFileError, match=newest.base_manifest_list):
        expire_snapshots(table, retain_max=2)
    assert stored_files(table) == before


def test_a_tag_keeps_its_files_when_its_manifests_are_unreadable(tmp_path: Path) -> None:
    """Files of an unreadable tag are not deleted (apache/paimon#5237, #6479)."""
    table = make_table(tmp_path, "plain", [("tag", 0), ("upsert", 1), ("full", 0), ("upsert", 1)])
    before = stored_files(table)
    tagged = table.tags.get("t0")
    path = Path(table.paths.manifest_dir) / tagged.delta_manifest_list
    content = path.read_bytes()
    for damage in (path.unlink, lambda: path.write_bytes(b"no avro")):
        damage()

        with pytest.raises(CorruptFileError, match=tagged.delta_manifest_list):
            expire_snapshots(table, retain_max=1)

        path.write_bytes(content)
        assert stored_files(table) == before


@pytest.mark.parametrize("linked", [False, True])
def test_deleting_a_tag_deletes_no_file_outside_the_table(tmp_path: Path, linked: bool) -> None:
    outside = tmp_path / "elsewhere" / "data.parquet"
    outside.parent.mkdir()
    outside.write_bytes(b"precious")
    table = make_snapshots(tmp_path / "w", 3)
    path = outside
    if linked:
        link = Path(table.paths.root) / "link"
        link.symlink_to(outside.parent)
        path = link / outside.name
    edit_files(table, 1, external_path=str(path), file_name="data.parquet")
    table.tags.create("t", 1)
    table.overwrite(table_of("k v", [(9, "new")]))
    expire_snapshots(table, retain_max=1)

    garbage = delete_tag(table, "t")

    assert str(path) not in garbage.data, "it is reported as deleted"
    assert outside.read_bytes() == b"precious"


def test_a_file_without_delete_permission_is_reported_as_an_error(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that reference it are also kept. The next run deletes it."""

    def denied(_: object, path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    ids = table.stores.snapshots.ids()
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileIO, "delete", denied)
        with pytest.raises(StorageError, match=r"cannot be removed \(Permission denied\)"):
            expire_snapshots(table, retain_max=1)

    assert table.stores.snapshots.ids() == ids
    assert expire_snapshots(table, retain_max=1).snapshots == len(ids) - 1
