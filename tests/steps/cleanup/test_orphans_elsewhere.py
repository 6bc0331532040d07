"""Orphan cleanup only lists the table and its own external paths, and follows no links."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from support.histories import backdate_files
from support.tables import catalog_of, new_table, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CorruptFileError, NotAllowedError
from paimon_orch.steps.cleanup import remove_orphan_files as step
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table


@pytest.fixture(autouse=True)
def _allowed_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_ALLOWED_EXTERNAL_PATHS", f"{tmp_path}/*")


def test_files_outside_the_table_are_never_deleted(table: Table) -> None:
    root = Path(table.paths.root)
    names = [
        "README", "p=0/_SUCCESS", "p=0/bucket-0/data-x.managed.blob", "p=0/bucket-0/folder/data-0.parquet", "other/bucket-0/data.parquet",
        "q=1/bucket-0/data.parquet", "service/service-x", "schema/note", "tag/note",
        "consumer/consumer-x", "snapshot/snapshot-0.backup", "manifest/folder/manifest-0",
    ]  # fmt: skip
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"mine")
    backdate_files(table)
    before = stored_files(table)

    assert remove_orphan_files(table).files == 0
    assert stored_files(table) == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize("link", ["p=0/bucket-0/data-link.parquet", "manifest/manifest-link", "p=8/bucket-0", "p=8", "index/link"])  # fmt: skip
def test_symbolic_links_are_neither_followed_nor_removed(
    table: Table, tmp_path: Path, link: str
) -> None:
    outside = tmp_path / "precious"
    (outside / "bucket-0").mkdir(parents=True)
    (outside / "bucket-0" / "data.parquet").write_bytes(b"precious")
    target = outside / "bucket-0" / "data.parquet" if "-link" in link else outside
    path = Path(table.paths.root) / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    for file in outside.rglob("*"):
        os.utime(file, (1, 1))
    os.utime(path, (1, 1), follow_symlinks=False)

    remove_orphan_files(table)

    assert path.is_symlink()
    assert (outside / "bucket-0" / "data.parquet").read_bytes() == b"precious"


@pytest.mark.parametrize("folder", ["../elsewhere", "a/../../elsewhere"])
def test_a_data_folder_outside_the_table_is_refused(tmp_path: Path, folder: str) -> None:
    table = new_table(tmp_path / "w", data_file__path_directory="data")
    table.upsert(table_of("k v", [(1, "a")]))
    schema = Path(table.paths.schema_dir) / "schema-0"
    schema.write_text(schema.read_text().replace('"data"', f'"{folder}"'))

    with pytest.raises(CorruptFileError, match="is refused"):
        remove_orphan_files(table, older_than=int(time.time() * 1000))


def test_tables_with_a_data_folder_are_cleaned(tmp_path: Path) -> None:
    table = new_table(tmp_path, data_file__path_directory="data")
    table.upsert(table_of("k v", [(1, "a")]))
    orphan = Path(table.paths.root) / "data" / "bucket-0" / "data-0.parquet"
    orphan.write_bytes(b"x")
    backdate_files(table)

    assert [file.path for file in step.plan(table, step.RemoveOrphanFilesRequest()).files] == [
        str(orphan)
    ]


def with_external_path(table: Table, path: Path, strategy: str = "round-robin") -> Table:
    catalog = Catalog(str(Path(table.paths.root).parents[1]))
    catalog.alter_table(
        table.identifier,
        [
            SetOption("data-file.external-paths", f"file://{path}"),
            SetOption("data-file.external-paths.strategy", strategy),
        ],
    )
    return table


def external_files(root: Path, *names: str) -> list[Path]:
    paths = [root / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"orphan")
        os.utime(path, (1, 1))
    return paths


def test_external_paths_are_cleaned_only_in_the_folder_of_the_table(
    table: Table, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere" / "db.db" / "t"
    orphan, lonely, other, linked = external_files(
        folder, "p=0/bucket-0/data-0.parquet", "p=9/bucket-1/data-1.parquet", "p=0/note", "precious"
    )
    (folder / "p=8").symlink_to(tmp_path)
    (folder / "p=0" / "bucket-0" / "data-2.parquet").symlink_to(linked)
    used = next(Path(file) for file in stored_files(table) if "/p=1/bucket-0/data-" in file)
    kept_file = external_files(folder, f"p=1/bucket-0/{used.name}")
    with_external_path(table, folder)

    planned = step.plan(table, step.RemoveOrphanFilesRequest())
    result = remove_orphan_files(table, quarantine=True)

    assert {file.path for file in planned.files} == {str(orphan), str(lonely)}
    assert (result.files, planned.skipped_external_paths) == (2, ())
    assert all(path.exists() for path in (other, linked, *kept_file))
    assert not (folder / "p=9").exists()
    assert Quarantine.of(table).restore() == 2
    assert orphan.read_bytes() == b"orphan"
    assert remove_orphan_files(table).files == 2
    assert not orphan.exists()
    assert (folder / "p=0" / "bucket-0" / "data-2.parquet").is_symlink()


@pytest.mark.parametrize("allowed", ["{folder}", "{folder}/p=0"])
def test_an_external_path_is_cleaned_if_exactly_this_directory_is_allowed(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    folder = tmp_path / "elsewhere" / "t"
    [orphan] = external_files(folder, "p=0/bucket-0/data-0.parquet")
    with_external_path(table, folder)
    monkeypatch.setenv("PAIMON_ALLOWED_EXTERNAL_PATHS", f"{allowed.format(folder=folder)}/*")
    table = catalog_of(table).table(table.identifier)

    if allowed == "{folder}":
        assert remove_orphan_files(table).files == 1
    else:
        with pytest.raises(NotAllowedError, match=r"'data-file\.external-paths' asks for"):
            remove_orphan_files(table)
    assert orphan.exists() is (allowed != "{folder}")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("shared", "does not end with the table's directory name"),
        ("w", "it contains the table's directory"),
        ("w/db.db/t", "it contains the table's directory"),
        ("w/db.db/t/ext/t", "it contains the table's directory"),
        ("x/../t", "is not in the table's store"),
        ("link/t", "is a symbolic link"),
        ("other/t", "contains another table"),
    ],
)
def test_external_paths_that_others_may_use_are_skipped_and_reported(
    table: Table, tmp_path: Path, place: str, reason: str
) -> None:
    folder = tmp_path / place
    if place == "link/t":
        (tmp_path / "real" / "t").mkdir(parents=True)
        (tmp_path / "link").mkdir()
        folder.symlink_to(tmp_path / "real" / "t")
    if place == "other/t":
        external_files(folder, "snapshot/snapshot-1")
    [orphan] = external_files(folder, "p=0/bucket-0/data-0.parquet")
    with_external_path(table, folder)

    planned = step.plan(table, step.RemoveOrphanFilesRequest())
    remove_orphan_files(table)

    [named] = planned.skipped_external_paths
    assert named.startswith(f"{folder}: ")
    assert reason in named
    assert orphan.exists() == (place != "w/db.db/t"), (
        "a file in the directory of the table is an orphan"
    )


def test_external_paths_that_no_writer_uses_are_not_listed(table: Table, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "t"
    [orphan] = external_files(folder, "p=0/bucket-0/data-0.parquet")
    with_external_path(table, folder, strategy="none")

    assert remove_orphan_files(table).files == 0
    assert orphan.exists()


def test_a_table_in_a_partition_directory_is_skipped(table: Table, tmp_path: Path) -> None:
    inner = new_table(tmp_path / "other")
    inner.upsert(table_of("k v", [(1, "a")]))
    shutil.move(inner.paths.root, f"{table.paths.root}/p=9")
    for path in Path(table.paths.root).rglob("*"):
        os.utime(path, (1, 1))
    before = stored_files(table)

    assert remove_orphan_files(table).files == 0
    assert stored_files(table) == before


def test_an_external_path_of_two_databases_is_skipped(table: Table, tmp_path: Path) -> None:
    """Each database does not know the files of the other one."""
    folder = tmp_path / "elsewhere" / "t"
    [orphan] = external_files(folder, "p=0/bucket-0/data-0.parquet")
    with_external_path(table, folder)
    warehouse = Path(table.paths.root).parents[1]
    options = {"bucket": "-1", "data-file.external-paths": f"file://{folder}/"}
    Catalog(str(warehouse)).create_table("prod.t", "k INT", options=options)

    planned = step.plan(table, step.RemoveOrphanFilesRequest())

    assert not planned
    assert planned.skipped_external_paths == (f"{folder}: the table {warehouse}/prod.db/t may have files there too",)  # fmt: skip
    assert orphan.exists()
