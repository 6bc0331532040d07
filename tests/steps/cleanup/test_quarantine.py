"""Quarantined orphan files are restored, or deleted after their retention time."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest
from support.histories import create_orphan_files
from support.tables import stored_files

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table


def test_quarantined_files_can_be_restored(table: Table, tmp_path: Path) -> None:
    orphans = create_orphan_files(table)
    before = stored_files(table)
    quarantine = Quarantine(table.io, table.paths.root)

    result = remove_orphan_files(table, quarantine=True)

    assert quarantine.list_folders() == [result.quarantine]
    assert not any(path.exists() for path in orphans)
    assert len([path for path in stored_files(table) if ".quarantine" in path]) == 9
    assert remove_orphan_files(table).files == 0, "quarantined files are not orphans"
    assert check(table, deep=True)

    assert quarantine.restore() == 9
    assert stored_files(table) == before
    assert quarantine.list_folders() == []


def test_a_restore_overwrites_no_new_file(table: Table) -> None:
    orphans = create_orphan_files(table)
    remove_orphan_files(table, quarantine=True)
    orphans[0].write_bytes(b"newer")
    quarantine = Quarantine(table.io, table.paths.root)

    assert quarantine.restore() == 8
    assert orphans[0].read_bytes() == b"newer"
    assert len(quarantine.list_folders()) == 1


def test_quarantine_folders_are_deleted_after_their_retention_time(table: Table) -> None:
    create_orphan_files(table)
    now = time.time()
    quarantine = Quarantine(table.io, table.paths.root)
    remove_orphan_files(table, quarantine=True)
    later = Quarantine(table.io, table.paths.root, lambda: now + 8 * 24 * 3600)

    assert quarantine.empty(timedelta(days=7)) == 0
    assert later.empty(timedelta(days=7)) == 9
    assert not Path(quarantine.path).exists()
    with pytest.raises(NotFoundError, match="no folder"):
        quarantine.restore("20260101T000000000000")


def test_links_are_not_followed_by_quarantine_and_restore(table: Table, tmp_path: Path) -> None:
    [orphan] = [path for path in create_orphan_files(table) if "/p=0/bucket-0/data-" in str(path)][
        :1
    ]
    remove_orphan_files(table, quarantine=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    bucket = orphan.parent
    bucket.rename(tmp_path / "bucket")
    bucket.symlink_to(outside)
    quarantine = Quarantine(table.io, table.paths.root)

    quarantine.restore()
    assert list(outside.iterdir()) == []
    assert len(quarantine.list_folders()) == 1

    folder = Path(quarantine.path)
    folder.rename(outside / "moved")
    folder.symlink_to(outside / "moved")
    outside_files = sorted(outside.rglob("*"))
    for use in (
        quarantine.list_folders,
        quarantine.restore,
        lambda: quarantine.empty(timedelta(0)),
    ):
        with pytest.raises(InputError, match="is a symbolic link"):
            use()
    assert sorted(outside.rglob("*")) == outside_files


def test_a_folder_without_a_time_as_name_is_ignored(table: Table) -> None:
    quarantine = Quarantine(table.io, table.paths.root)
    (Path(quarantine.path) / "20261399T000000000000").mkdir(parents=True)

    assert quarantine.list_folders() == []
    assert quarantine.empty(timedelta(0)) == 0
