"""A publication that is interrupted at any file operation leaves complete metadata.

The commit is never undone, readers find a complete table at all times, and the next commit brings
the metadata up to date.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from support.iceberg_faults import InterruptedFileIO, Killed, check_readers
from support.iceberg_histories import EXECUTOR, Action, History, build_rows, open_iceberg_table
from support.storage_state import read_storage_state

from paimon_orch.errors import PaimonError, StorageError
from paimon_orch.steps.expiration.delete_tag import delete_tag
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.table.table import Table

# The fifth snapshot expires the first one and merges manifests; a tag keeps the second one.
HISTORY: list[Action] = [
    ("write", 0), ("minor", 0), ("tag", 0), ("write", 2), ("full", 0), ("delete", 2), ("write", 1),
]  # fmt: skip


def raise_error() -> None:
    raise StorageError("the store is busy")


def kill() -> None:
    raise Killed


@pytest.fixture(scope="module", params=["append", "primary key with vectors"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> History:
    created = History(tmp_path_factory.mktemp("crash") / "warehouse", request.param)
    created.run(HISTORY)
    warehouse = Path(created.table.paths.root).parents[1]
    shutil.copytree(warehouse, warehouse.with_name("saved"))
    return created


def write(table: Table) -> object:
    return table.append(build_rows(table.load().schema, 2, 77))


ACTIONS: dict[str, Callable[[Table], object]] = {
    "write": write,
    "overwrite": lambda table: table.overwrite(build_rows(table.load().schema, 2, 77)),
    "tag": lambda table: table.tags.create("new"),
    "delete tag": lambda table: delete_tag(table, "t0"),
    "expire": lambda table: expire_snapshots(table, EXECUTOR, retain_max=1),
    "rollback": lambda table: table.rollback(table.stores.snapshots.ids()[-3]),
}
COMMITS, DELETIONS = ("write", "overwrite"), ("delete tag", "expire")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("interrupt", [kill, raise_error])
def test_an_interrupted_publication_is_completed_by_the_next_commit(
    model: History, action: str, interrupt: Callable[[], None]
) -> None:
    # An operation that fails may have had an effect, as when the response of a store is lost.
    mode = {"only_changes": True} if interrupt is kill else {"after": True}
    states = StateFilter()
    for io in restore_for_each_operation(model, interrupt, **mode):
        table = model.table
        newest = table.stores.snapshots.latest_id() or 0
        try:
            ACTIONS[action](replace(table, io=io))
        except Killed:
            assert interrupt is kill
        except PaimonError:
            assert action in DELETIONS, "only deletions need the metadata"
        check_readers(io.directory)
        if action in COMMITS:
            assert table.stores.snapshots.latest_id() == newest + 1

        if states.is_new(model):
            model.apply("write", 3)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(("write", second) for second in ("overwrite", "expire", "tag")),
        *((first, "write") for first in ("expire", "tag")),
    ],
)
def test_a_publication_does_not_revert_another_one(model: History, first: str, second: str) -> None:
    states = StateFilter()
    for io in restore_for_each_operation(model, lambda: ACTIONS[second](model.table)):
        ACTIONS[first](replace(model.table, io=io))

        model.check()
        if first in COMMITS:
            assert open_iceberg_table(model.table).unreferenced_files() == set()
        if states.is_new(model):
            model.apply("write", 3)


class StateFilter:
    """Leaves out states of the storage after which the next commit was tested already."""

    def __init__(self) -> None:
        self._seen: set[tuple[tuple[str, str], ...]] = set()

    def is_new(self, model: History) -> bool:
        """Return whether the storage state differs from all states before it."""
        state = tuple(read_storage_state(Path(model.table.paths.root)))
        is_new = state not in self._seen
        self._seen.add(state)
        return is_new


def restore_for_each_operation(
    model: History, interrupt: Callable[[], object], **mode: bool
) -> Iterator[InterruptedFileIO]:
    """Restore the table, and yield file operations of which the n-th is interrupted, for each n."""
    warehouse = Path(model.table.paths.root).parents[1]
    for number in count(1):
        shutil.rmtree(warehouse)
        shutil.copytree(warehouse.with_name("saved"), warehouse)
        directory = open_iceberg_table(model.table).directory
        io = InterruptedFileIO(directory, number, interrupt, **mode)
        yield io
        if not io.was_interrupted:
            assert number > 2, "there were too few operations"
            return
