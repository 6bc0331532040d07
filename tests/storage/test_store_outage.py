"""A store that becomes unavailable in a write: what cleans up neither waits nor hides the error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import FileNotCreatedError, SnapshotNotCreatedError, StorageError
from paimon_orch.files.uncommitted_files import UncommittedPaths
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.storage import LocalFileIO, StoreCapabilities
from paimon_orch.storage.concurrency import map_concurrently, read_ahead, start_call
from paimon_orch.storage.store_operation import begin_operation, give_up, may_repeat, try_once
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage


def build_outage(call: str) -> StorageError:
    error = (FileNotCreatedError if call.startswith("create") else StorageError)(f"{call}: busy")
    error.is_unavailable = True
    return error


class Outage:
    """Lets the calls of local files fail from a moment on; notes if a call would be repeated."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begins: Callable[[str, str], bool] = lambda _name, _path: False
        self.waited = list[str]()
        self.is_down = False
        for name in ("create", "delete", "list_dir", "open_output", "read_bytes", "write"):
            monkeypatch.setattr(LocalFileIO, name, partial(self._wrap, name)(_get(name)))

    def _wrap(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(io: LocalFileIO, path: str, *arguments: Any) -> Any:
            self.is_down = self.is_down or self.begins(name, path)
            if not self.is_down:
                return original(io, path, *arguments)
            if may_repeat():
                self.waited.append(f"{name} {path}")
            raise build_outage(f"{name} {path}")

        return call


def _get(name: str) -> Callable[..., Any]:
    original: Callable[..., Any] = getattr(LocalFileIO, name)
    return original


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path, bucket="3")
    for value in "ab":
        table.upsert(table_of("k v", [(key, value) for key in range(20)]))
    return table


def begin_at(part: str, number: int) -> Callable[[str, str], bool]:
    """Return when the outage begins: at the n-th creation of a path with a text."""
    numbers = iter(range(1, 1_000))
    return lambda name, path: (
        name in ("create", "open_output") and part in path and next(numbers) == number
    )


@pytest.mark.parametrize(
    ("part", "number"),
    [(".parquet", 1), (".parquet", 3), ("manifest-", 1), ("manifest-list", 2), ("snapshot-", 1)],
)
def test_one_call_of_a_write_waits_for_a_store_and_its_error_is_raised(
    table: Table, outage: Outage, part: str, number: int
) -> None:
    outage.begins = begin_at(part, number)

    with pytest.raises(StorageError, match=f"^(create|open_output) .*{part}"):
        table.upsert(table_of("k v", [(key, "c") for key in range(20)]))

    (call,) = outage.waited
    assert part in call


def test_one_call_of_a_compaction_waits_for_a_store(table: Table, outage: Outage) -> None:
    outage.begins = begin_at(".parquet", 2)

    with pytest.raises(StorageError, match=r"parquet: busy"):
        compact(table, strategy="full")

    assert len(outage.waited) == 1


def test_the_error_of_a_refused_commit_is_raised_if_the_store_is_unavailable(
    table: Table, outage: Outage
) -> None:
    def commit() -> None:
        with discard_files_on_conflict(table, [CommitMessage()]):
            outage.is_down = True
            raise SnapshotNotCreatedError("the first error")

    with pytest.raises(SnapshotNotCreatedError, match="the first error"):
        commit()

    assert outage.waited == []


def test_a_write_says_that_files_may_remain(tmp_path: Path, outage: Outage) -> None:
    with pytest.raises(StorageError) as caught, UncommittedPaths(LocalFileIO()):
        raise build_outage(str(tmp_path))

    (note,) = caught.value.__notes__
    assert note.startswith("nothing of this write was committed; remove-orphan-files deletes")


class Remote(LocalFileIO):
    """Local files whose calls run in the pool of requests."""

    capabilities: StoreCapabilities = replace(LocalFileIO.capabilities, has_slow_requests=True)


def test_calls_in_the_pool_belong_to_the_operation_that_started_them() -> None:
    io = Remote()
    with try_once():
        assert list(map_concurrently(io, lambda _: may_repeat(), range(3))) == [False] * 3
        assert start_call(io, may_repeat)() is False
    with begin_operation():
        start_call(io, give_up)()
        assert not may_repeat()
    assert list(map_concurrently(io, lambda _: may_repeat(), range(3))) == [True] * 3


def test_reading_ahead_raises_the_error_of_a_store_that_is_unavailable() -> None:
    def fail(error: StorageError) -> None:
        raise error

    read_ahead(Remote(), [partial(fail, StorageError("damaged"))])
    with pytest.raises(StorageError, match="busy"):
        read_ahead(Remote(), [partial(fail, build_outage("file"))])


def test_a_table_is_unchanged_after_the_outage(table: Table, outage: Outage) -> None:
    outage.begins = begin_at(".parquet", 2)
    before = rows_of(table)
    with pytest.raises(StorageError):
        compact(table, strategy="full")
    outage.begins, outage.is_down = (lambda _name, _path: False), False

    assert rows_of(table) == before
