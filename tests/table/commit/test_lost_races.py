"""A commit that loses races ends as one that starts after the commits that were faster."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.clocks import replace_waits
from support.damage import data_files
from support.data_evolution import RowChanges, rows_by_id
from support.histories import drop_partition, unreferenced_files
from support.tables import catalog_of, new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, InputError, StorageError
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.compact.bucket_compaction import BucketCompaction, BucketCompactionResult
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.compaction.plan import CompactionResult
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.analyze import analyze
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.commit.commit import TableCommit
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.metadata.manifest_merge import ManifestMerger
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption
from paimon_orch.table.table import Table

Action = tuple[str, int]
Create = Callable[[LocalFileIO, str, bytes], bool]
EXECUTOR = InProcessExecutor()
INSTANT = {"commit__min_retry_wait": "0 ms"}
FAST = {**INSTANT, "manifest__merge_min_count": "3"}
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


def update_row(table: Table, number: int, text: str) -> list[int]:
    ids = sorted(rows_by_id(table))
    if ids:
        RowChanges(updated={ids[number % len(ids)]: {"v": text}}).commit(table)
    return ids


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


@pytest.mark.slow
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


@pytest.fixture
def partitioned(tmp_path: Path) -> Table:
    """A table with three files of each of two partitions, in one manifest per file."""
    table = new_table(
        tmp_path, "p INT, k BIGINT, v STRING", key=("p", "k"), partition_by=("p",), **INSTANT
    )
    for number in range(6):
        table.upsert(table_of("p k v", [(number % 2, number, "a")]))
    return table


def upsert_into(table: Table, partition: int) -> None:
    table.upsert(table_of("p k v", [(partition, 9, "other")]))


def compact_first(table: Table) -> CompactionResult:
    return compact(table, EXECUTOR, partitions=["p=0"], strategy="full")


@contextmanager
def note_calls(patch: pytest.MonkeyPatch, name: str) -> Iterator[list[str]]:
    """Note the metadata files for which a method of the storage is called, without hints."""
    paths, original = list[str](), getattr(LocalFileIO, name)

    def note(self: LocalFileIO, path: str, *arguments: Any) -> Any:
        if "/manifest/" in path or "/snapshot/snapshot-" in path:
            paths.append(Path(path).name)
        return original(self, path, *arguments)

    with patch.context() as inner:
        inner.setattr(LocalFileIO, name, note)
        yield paths


def test_an_attempt_after_a_lost_race_reads_only_what_the_others_changed(
    partitioned: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_other() -> None:
        upsert_into(partitioned, 1)
        clear_metadata_cache()
        reads.clear()
        writes.clear()

    with (
        faster_commits([commit_other]),
        note_calls(monkeypatch, "read_bytes") as reads,
        note_calls(monkeypatch, "open_output") as writes,
    ):
        result = compact_first(partitioned)

    assert (result.attempts, result.snapshot_id) == (1, 8)
    other, mine = (partitioned.stores.snapshots.get(number) for number in (7, 8))
    expected = {"snapshot-6", "snapshot-7", other.base_manifest_list, other.delta_manifest_list}
    missing = {"snapshot-8", "snapshot-9"}
    assert set(reads) - missing == expected
    assert writes == [mine.base_manifest_list]
    assert unreferenced_files(partitioned) & {str(p) for p in manifest_files(partitioned)} == set()


def manifest_files(table: Table) -> list[Path]:
    return list(Path(table.paths.manifest_dir).iterdir())


def test_merged_manifests_stand_after_a_lost_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, manifest__merge_min_count="4", **INSTANT)
    for number in range(4):
        table.upsert(table_of("k v", [(number, "a")]))
    merges, original = list[int](), ManifestMerger.run

    def run(self: ManifestMerger, manifests: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        merges.append(len(manifests))
        return original(self, manifests)

    def commit_other() -> None:
        changes = CommitChanges(kind=CommitKind.ANALYZE)
        with monkeypatch.context() as patch:
            patch.setattr(ManifestMerger, "run", lambda _, manifests: list(manifests))
            table.stores.new_commit(StepKind.METADATA).commit(changes)
            table.upsert(table_of("k v", [(8, "other")]))

    monkeypatch.setattr(ManifestMerger, "run", run)
    with faster_commits([commit_other]):
        snapshot = table.upsert(table_of("k v", [(9, "mine")]))

    assert snapshot is not None
    assert (snapshot.id, merges) == (7, [4])
    metas = table.stores.manifests.manifests(snapshot)
    assert [meta.num_added_files for meta in metas] == [4, 1, 1]
    assert unreferenced_files(table) & {str(p) for p in manifest_files(table)} == set()
    assert rows_of(table) == [*((n, "a") for n in range(4)), (8, "other"), (9, "mine")]


def test_a_compaction_that_only_loses_races_does_its_work_once(
    partitioned: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has as many attempts as with the plans that a real conflict would need."""
    catalog_of(partitioned).alter_table("db.t", [SetOption("commit.max-retries", "1")])
    works, original = list[BucketCompaction](), BucketCompaction.run

    def run(self: BucketCompaction) -> BucketCompactionResult:
        works.append(self)
        return original(self)

    monkeypatch.setattr(BucketCompaction, "run", run)
    before = data_files(partitioned)
    others = [partial(upsert_into, partitioned, 1)] * 6

    with faster_commits(others), pytest.raises(CommitConflictError, match="attempts: 6"):
        compact_first(partitioned)

    assert len(works) == 1
    assert set(before) <= set(data_files(partitioned))
    assert len(data_files(partitioned)) == len(before) + 6
    assert not [path for path in unreferenced_files(partitioned) if "/bucket-0/" in path]
    with faster_commits(others[:5]):
        assert compact_first(partitioned).attempts == 1
    assert len(works) == 2


def test_a_real_conflict_is_planned_again(partitioned: Table) -> None:
    with faster_commits([partial(compact_first, partitioned)]):
        assert compact_first(partitioned).attempts == 2


def test_a_table_that_was_rolled_back_between_attempts_is_read_again(partitioned: Table) -> None:
    """Other commits then use the ids of the snapshots that the attempt has seen."""

    def roll_back() -> None:
        partitioned.rollback(2)
        for _ in range(5):
            upsert_into(partitioned, 1)

    with faster_commits([roll_back]):
        partitioned.upsert(table_of("p k v", [(0, 7, "mine")]))

    assert partitioned.stores.snapshots.latest_id() == 8
    assert rows_of(partitioned) == [(0, 0, "a"), (0, 7, "mine"), (1, 1, "a"), (1, 9, "other")]
    assert check(partitioned, deep=True).findings == ()


def test_if_a_manifest_cannot_be_written_the_others_are_deleted_after_all_writes(
    partitioned: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, original, ended = set(manifest_files(partitioned)), LocalFileIO.open_output, list[str]()

    def open_output(self: LocalFileIO, path: str) -> IO[bytes]:
        if "/manifest/manifest-list-" not in path:
            return original(self, path)
        if not ended:
            ended.append(path)
            raise StorageError("the disk is full")
        time.sleep(0.1)
        ended.append(path)
        return original(self, path)

    monkeypatch.setattr(LocalFileIO, "open_output", open_output)
    slow = replace(LocalFileIO.capabilities, has_slow_requests=True)
    monkeypatch.setattr(LocalFileIO, "capabilities", slow)
    with pytest.raises(StorageError, match="the disk is full"):
        upsert_into(partitioned, 0)

    assert len(ended) == 2
    assert set(manifest_files(partitioned)) == before
    assert partitioned.stores.snapshots.latest_id() == 6


def test_an_interrupt_between_attempts_leaves_no_manifests(
    partitioned: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog_of(partitioned).alter_table("db.t", [SetOption("commit.min-retry-wait", "1 s")])

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    replace_waits(monkeypatch, interrupt)
    others = [partial(upsert_into, partitioned, 1)]
    with faster_commits(others), pytest.raises(KeyboardInterrupt) as caught:
        upsert_into(partitioned, 0)

    assert f"no snapshot of {partitioned.paths.root} was committed" in caught.value.__notes__
    assert unreferenced_files(partitioned) & {str(p) for p in manifest_files(partitioned)} == set()
