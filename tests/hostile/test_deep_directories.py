"""Directories in each other that are too many for a recursive function, and for open files."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from support.limited_process import refuse, run_limited
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.steps import Quarantine
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.table import Table

DEPTH = 3_000
FOLDER = ".quarantine/20260101T000000000000"


def make_deep(path: Path) -> None:
    """Create directories in each other, and a file in the innermost one."""
    path.mkdir(parents=True)
    directory = os.open(path, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=directory)
        outer, directory = directory, os.open("d", os.O_RDONLY, dir_fd=directory)
        os.close(outer)
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=directory))
    os.close(directory)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path / "w")
    table.upsert(table_of("k v", [(1, "a")]))
    table.tags.create("t")
    table.branches.create("dev", "t")
    return table


DELETIONS: dict[str, tuple[str, Callable[[Table], object]]] = {
    "table": (
        "x",
        lambda table: Catalog(str(Path(table.paths.root).parents[1])).drop_table("db.t"),
    ),
    "branch": ("branch/branch-dev/tag/x", lambda table: table.branches.delete("dev")),
    "database": (
        "bucket-0/x",
        lambda table: Catalog(str(Path(table.paths.root).parents[1])).drop_database(
            "db", cascade=True
        ),
    ),
}


@pytest.mark.parametrize("name", DELETIONS)
def test_a_deep_directory_does_not_prevent_a_deletion(table: Table, name: str) -> None:
    path, delete = DELETIONS[name]
    make_deep(Path(table.paths.root) / path)

    def attack() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        delete(table)

    run_limited(attack)
    assert not (Path(table.paths.root) / path).exists()


QUARANTINE: dict[str, Callable[[Quarantine], object]] = {
    "restore": lambda quarantine: quarantine.restore(),
    "empty": lambda quarantine: quarantine.empty(timedelta(0)),
    "count": lambda quarantine: quarantine.count(quarantine.list_folders()),
}


@pytest.mark.parametrize("call", QUARANTINE)
def test_a_deep_quarantine_is_refused(table: Table, call: str) -> None:
    make_deep(Path(table.paths.root) / FOLDER)
    message = refuse(lambda: QUARANTINE[call](Quarantine.of(table)))
    assert "more than 128 directories in each other" in message
    LocalFileIO().delete_dir(f"{table.paths.root}/.quarantine")


def test_a_deletion_of_a_directory_follows_no_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "file").write_bytes(b"precious")
    inner = tmp_path / "root" / "a" / "b" / "c"
    inner.mkdir(parents=True)
    for directory in (tmp_path / "root", inner, inner.parent):
        (directory / "link").symlink_to(outside)
        (directory / "file").symlink_to(outside / "file")
    (tmp_path / "linked").symlink_to(outside)

    LocalFileIO().delete_dir(str(tmp_path / "root"))
    with pytest.raises(OSError, match=r"Not a directory|symbolic link"):
        LocalFileIO().delete_dir(str(tmp_path / "linked"))

    assert not (tmp_path / "root").exists()
    assert (outside / "file").read_bytes() == b"precious"
    assert (outside / "inner").is_dir()
