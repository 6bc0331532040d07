"""A commit that loses races ends as one that starts after the commits that were faster."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.data_evolution import RowChanges, rows_by_id
from support.histories import drop_partition, unreferenced_files
from support.tables import catalog_of, new_table, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, InputError
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.analyze import analyze
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.commit.commit import TableCommit
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table

Action = tuple[str, int]
Create = Callable[[LocalFileIO, str, bytes], bool]
EXECUTOR = InProcessExecutor()
FAST = {"commit__min_retry_wait": "0 ms", "manifest__merge_min_count": "3"}
ROW_TRACKING = {"bucket": "-1", "row_tracking__enabled": "true"}
VECTORS = {"deletion_vectors__enabled": "true"}
KEYED: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "vectors": VECTORS,
    "lookup": {"changelog_producer": "lookup"},
    "dynamic": {"bucket": "-1"},
}
APPENDED: Mapping[str, Mapping[str, str]] = {
    "append": {"bucket": "-1"},
    "append with vectors": {"bucket": "-1", **VECTORS},
    "row tracking": ROW_TRACKING,
    "data evolution": {**ROW_TRACKING, **VECTORS, "data_evolution__enabled": "true"},
}
ACTIONS = ("write", "write", "delete", "update", "minor", "full", "overwrite", "drop", "alter", "manifests", "analyze")  # fmt: skip
actions = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3))


def act(table: Table, action: Action, text: str) -> None:
    """Apply an action to a table, if it is possible."""
    name, number = action
    rows = partial(build_rows, table, number, text)
    is_evolving = table.load().schema.options.get("data-evolution.enabled") == "true"
    possible: dict[str, Callable[[], object]] = {
        "write": lambda: table.append(rows()),
        "delete": lambda: delete(table, EXECUTOR, f"k = {number}"),
        "update": lambda: is_evolving and update_row(table, number, text),
        "minor": lambda: compact(table, EXECUTOR),
        "full": lambda: compact(table, EXECUTOR, strategy="full"),
        "overwrite": lambda: table.overwrite(rows()),
        "drop": lambda: drop_partition(table, {"p": number % 2}),
        "alter": lambda: add_column(table, text).append(rows()),
        "manifests": lambda: compact_manifests(table),
        "analyze": lambda: analyze(table, EXECUTOR),
    }  # fmt: skip
    possible[name]()


def build_rows(table: Table, number: int, text: str) -> pa.Table:
    rows = table_of("p k v", [(k % 2, k, f"{text}-{k}") for k in range(number, number + 2)])
    for name in table.load().schema.names[3:]:
        rows = rows.append_column(name, pa.nulls(len(rows), pa.int32()))
    return rows


def add_column(table: Table, text: str) -> Table:
    catalog_of(table).alter_table("db.t", [AddColumn(column=f"c_{text}", type="INT")])
    return table


def update_row(table: Table, number: int, text: str) -> None:
    ids = sorted(rows_by_id(table))
    if ids:
        RowChanges(updated={ids[number % len(ids)]: {"v": text}}).commit(table)


def make_table(root: Path, kind: str, history: list[Action]) -> Table:
    """Create a table and apply a history, after two writes."""
    key = ("p", "k") if kind in KEYED else ()
    options = {**FAST, "compaction__min__file_num": "2", **{**KEYED, **APPENDED}[kind]}
    table = new_table(root, "p INT, k BIGINT, v STRING", key=key, partition_by=("p",), **options)
    for number, action in enumerate([("write", 0), ("write", 1), *history]):
        act(table, action, f"h{number}")
    return table


class PreparedError(BaseException):
    """Ends a step before its commit; its data files remain."""


def prepare(work: Callable[[], object]) -> CommitChanges | None:
    """Return the changes that a step would commit, or None if there are none."""
    prepared = list[CommitChanges]()

    def note(_: TableCommit, changes: CommitChanges) -> Snapshot:
        prepared.append(changes)
        raise PreparedError

    with pytest.MonkeyPatch.context() as patch, suppress(PreparedError, InputError):
        patch.setattr(TableCommit, "commit", note)
        work()
    return prepared[0] if prepared else None


@contextmanager
def faster_commits(
    others: Sequence[Callable[[], object]], before_last: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Let others commit before each attempt to create a snapshot, until all have committed."""
    original, remaining, is_nested = LocalFileIO.create, list(others), False

    def create(self: LocalFileIO, path: str, data: bytes) -> bool:
        nonlocal is_nested
        if "/snapshot-" not in path or is_nested:
            return original(self, path, data)
        is_nested = True
        try:
            while remaining and not Path(path).exists():
                remaining.pop(0)()
            if not Path(path).exists():
                before_last()
        finally:
            is_nested = False
        return original(self, path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalFileIO, "create", create)
        yield


@dataclass(frozen=True)
class Outcome:
    """How a commit ended."""

    error: str | None
    snapshot: Snapshot | None
    live: tuple[str, ...]
    index: tuple[str, ...]


def try_commit(table: Table, changes: CommitChanges) -> Outcome:
    """Commit changes; return the end, without what differs between two commits."""
    error, snapshot = None, None
    try:
        snapshot = table.stores.new_commit(StepKind.COMPACT, "me").commit(changes)
    except CommitConflictError as conflict:
        error = str(conflict).replace(table.paths.root, "")
    latest = table.snapshot()
    live = table.stores.manifests.read_live_entries(latest) if latest else []
    index = table.stores.manifests.read_index_entries(latest)
    if snapshot is not None:
        snapshot = replace(
            snapshot,
            base_manifest_list="",
            base_manifest_list_size=None,
            delta_manifest_list="",
            delta_manifest_list_size=None,
            changelog_manifest_list=None,
            changelog_manifest_list_size=None,
            index_manifest=None,
            time_millis=0,
        )
    return Outcome(error, snapshot, tuple(sorted(map(repr, live))), tuple(sorted(map(repr, index))))


def compare_with_a_fresh_commit(
    kind: str, history: list[Action], mine: Action, others: list[Action]
) -> str | None:
    """Check that a commit beside others ends as one after them; return its error."""
    with tempfile.TemporaryDirectory() as folder:
        table = make_table(Path(folder) / "one", kind, history)
        changes = prepare(lambda: act(table, mine, "mine"))
        if changes is None or changes.expected_latest is not None:
            return None
        copy = Path(folder) / "copy"

        def copy_table() -> None:
            shutil.copytree(Path(folder) / "one", copy)

        works = [partial(act, table, other, f"o{n}") for n, other in enumerate(others)]
        with faster_commits(works, copy_table):
            outcome = try_commit(table, changes)
        if not copy.exists():
            copy_table()
        again = Catalog(str(copy)).table("db.t")
        for path in set(unreferenced_files(again)):
            if "/manifest/" in path:
                Path(path).unlink()  # the attempts before the last one wrote them
        assert try_commit(again, changes) == outcome
        stray = [path for path in unreferenced_files(table) if "/manifest/" in path]
        assert stray == []
        assert check(table).findings == ()
        return outcome.error


FEW = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(st.sampled_from(sorted({**KEYED, **APPENDED})), st.lists(actions, max_size=3), actions, st.lists(actions, min_size=1, max_size=3))  # fmt: skip
def test_a_commit_that_lost_races_ends_as_one_that_starts_after_the_others(
    kind: str, history: list[Action], mine: Action, others: list[Action]
) -> None:
    compare_with_a_fresh_commit(kind, history, mine, others)


@pytest.mark.slow
@settings(FEW, max_examples=150)
@given(st.sampled_from(sorted({**KEYED, **APPENDED})), st.lists(actions, max_size=4), actions, st.lists(actions, min_size=1, max_size=5))  # fmt: skip
def test_many_commits_that_lost_races_end_as_those_that_start_after_the_others(
    kind: str, history: list[Action], mine: Action, others: list[Action]
) -> None:
    compare_with_a_fresh_commit(kind, history, mine, others)
