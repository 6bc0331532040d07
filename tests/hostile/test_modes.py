"""New files have the modes of the warehouse, and no names that another user could guess."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tables import new_table, table_of

from paimon_orch.errors import InputError
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.storage.local import LocalFileIO
from paimon_orch.user_cache import make_cache_folder


@pytest.fixture(params=[0o022, 0o077, 0])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    previous = os.umask(request.param)
    yield
    os.umask(previous)


def read_modes(root: Path) -> set[tuple[bool, int]]:
    """Return whether an entry is a directory, and its mode, of all entries."""
    return {
        (path.is_dir(), stat.S_IMODE(path.lstat().st_mode))
        for path in root.rglob("*")
        if not path.is_symlink()
    }


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o770, 0o755, 0o2770])
@pytest.mark.usefixtures("_umask")
def test_files_and_directories_have_the_modes_of_the_warehouse(tmp_path: Path, mode: int) -> None:
    warehouse = tmp_path / "wh"
    warehouse.mkdir()
    warehouse.chmod(mode)
    table = new_table(warehouse, "k BIGINT, dt STRING", key=["dt", "k"], partition_by=["dt"])
    table.upsert(table_of("k dt", [(1, "a")]))
    table.tags.create("t")
    table.branches.create("b", "t")
    table.truncate()
    orphan = Path(table.paths.manifest_dir, "manifest-orphan")
    orphan.write_bytes(b"")
    os.utime(orphan, (0, 0))
    remove_orphan_files(table, older_than=int(time.time() * 1000), quarantine=True)

    quarantined = list(Path(table.paths.root, ".quarantine").rglob("manifest-orphan"))
    assert len(quarantined) == 1
    quarantined[0].unlink()  # it keeps the mode that its writer gave it
    assert read_modes(warehouse) == {(True, mode), (False, mode & 0o666)}


def test_the_umask_counts_in_directories_that_strangers_share(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    previous = os.umask(0o027)
    try:
        LocalFileIO().write(f"{shared}/wh/db.db/file", b"x")
    finally:
        os.umask(previous)
    assert read_modes(shared) == {(True, 0o750), (False, 0o640)}


def test_names_of_temporary_files_cannot_be_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    link = os.link

    def note(source: str, target: str, **arguments: object) -> None:
        names.append(Path(source).name)
        link(source, target, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", note)
    for number in (1, 2):
        LocalFileIO().create(f"{tmp_path}/f{number}", b"x")
    assert len({name.split(".")[2] for name in names}) == 2
    assert all(len(name) > len(".f1..tmp") + 30 for name in names)


@pytest.mark.usefixtures("_umask")
def test_the_cache_of_the_user_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "home/cache"
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _name: cache)
    program = make_cache_folder("java", "bin")
    assert program == cache / "java/bin"
    assert stat.S_IMODE(cache.parent.stat().st_mode) == 0o700
    for folder in (cache, program.parent, program):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for mode in (0o770, 0o707):
            folder.chmod(mode)
            with pytest.raises(InputError, match=f"^{folder} .* others may write to it"):
                make_cache_folder("java", "bin")
        folder.chmod(0o755)
