"""A store that sends only the beginning of a metadata file leaves no copy of that beginning."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CorruptFileError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache
from paimon_orch.table.table import Table

OPERATIONS: dict[str, Callable[[Table], object]] = {
    "create a tag": lambda table: table.tags.create("new"),
    "replace a tag": lambda table: table.tags.replace("kept", 2),
    "rename a tag": lambda table: table.tags.rename("kept", "renamed"),
    "create a branch": lambda table: table.branches.create("new"),
    "create a branch of a tag": lambda table: table.branches.create("new", "kept"),
    "roll back to a tag": lambda table: table.rollback(tag="kept"),
    "retain changelogs": lambda table: expire_snapshots(
        table, InProcessExecutor(), retain_max=1, retain_min=1, older_than=0
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_truncated_read_is_not_copied(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = new_table(
        tmp_path / "first", changelog_producer="input", changelog__num_retained__max="10",
        changelog__num_retained__min="10",
    )  # fmt: skip
    for key in range(3):
        source.upsert(table_of("k v", [(key, "x")]))
    source.tags.create("kept", 1)
    original = LocalFileIO.read_bytes

    for number in itertools.count(1):
        shutil.copytree(tmp_path / "first", tmp_path / str(number))
        table, reads = Catalog(str(tmp_path / str(number))).table("db.t"), list[str]()

        def cut(
            self: LocalFileIO, path: str, number: int = number, reads: list[str] = reads
        ) -> bytes:
            data = original(self, path)
            reads.append(path)
            return data[: len(data) // 2] if len(reads) == number else data

        clear_metadata_cache()
        with monkeypatch.context() as patch, suppress(CorruptFileError):
            patch.setattr(LocalFileIO, "read_bytes", cut)
            OPERATIONS[operation](table)

        clear_metadata_cache()
        assert check(table).findings == (), f"read {number}: {reads[number - 1]}"
        if len(reads) < number:
            assert number > 2
            return
