"""Commits are atomic, also with concurrent committers and failures."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.damage import edit_snapshot
from support.tables import assert_healthy, new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog, CommitId
from paimon_orch.errors import (
    AccessDeniedError,
    CatalogUnavailableError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    InputError,
    PaimonError,
    StorageError,
)
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps import ingest
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.commit.commit import TableCommit
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.commit_id import create_commit_user
from paimon_orch.table.table import Table
from paimon_orch.table.write.table_write import write_rows

PROCESSES, COMMITS = 4, 5
Create = Callable[[LocalFileIO, str, bytes], bool]


def append_rows(root: str, process: int) -> None:
    """Commit several snapshots; runs in a separate process."""
    table = Catalog(root).table("db.t")
    for number in range(COMMITS):
        table.append(table_of("k v", [(process * 100 + number, f"process {process}")]))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("key", [("k",), ()], ids=["primary key", "append"])
def test_concurrent_committers_lose_no_row_and_skip_no_snapshot(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    table = new_table(tmp_path, key=key, bucket="1" if key else "-1", commit__max_retries="100")
    context = multiprocessing.get_context("forkserver")
    # The package is imported once for all processes.
    context.set_forkserver_preload(["paimon_orch"])
    processes = [
        context.Process(target=append_rows, args=(str(tmp_path), number))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0] * PROCESSES
    total = PROCESSES * COMMITS
    assert table.stores.snapshots.ids() == list(range(1, total + 1))
    assert [row[0] for row in rows_of(table)] == sorted(
        process * 100 + number for process in range(PROCESSES) for number in range(COMMITS)
    )
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.total_record_count == total
    assert_healthy(table)
    assert not [path for path in stored_files(table) if path.endswith(".tmp")]
    assert_no_stray_manifests(table)


def assert_no_stray_manifests(table: Table) -> None:
    """Assert that a snapshot references every manifest and manifest list on disk."""
    referenced = set()
    for snapshot_id in table.stores.snapshots.ids():
        snapshot = table.stores.snapshots.get(snapshot_id)
        lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
        referenced |= {*lists, snapshot.index_manifest, snapshot.changelog_manifest_list}
        referenced |= {meta.file_name for meta in table.stores.manifests.manifests(snapshot)}
    assert {path.name for path in Path(table.paths.manifest_dir).iterdir()} <= referenced


def replace_create(monkeypatch: pytest.MonkeyPatch, create: Callable[[Create], Create]) -> None:
    """Replace the creation of snapshots, but not of schemas."""
    original = LocalFileIO.create

    def replaced(self: LocalFileIO, path: str, data: bytes) -> bool:
        function = create(original) if "/snapshot-" in path else original
        return function(self, path, data)

    monkeypatch.setattr(LocalFileIO, "create", replaced)


def test_a_commit_that_loses_a_race_uses_the_next_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, raced = new_table(tmp_path), list[str]()

    def racing(original: Create) -> Create:
        def create(self: LocalFileIO, path: str, data: bytes) -> bool:
            if not raced:
                raced.append(path)
                table.upsert(table_of("k v", [(2, "other")]))
            return original(self, path, data)

        return create

    replace_create(monkeypatch, racing)
    snapshot = table.upsert(table_of("k v", [(1, "mine")]))

    assert snapshot is not None
    assert snapshot.id == 2
    assert rows_of(table) == [(1, "mine"), (2, "other")]
    assert_healthy(table)
    assert_no_stray_manifests(table)


def lose_each_race(monkeypatch: pytest.MonkeyPatch, table: Table) -> list[str]:
    """Let another commit be first in each attempt; return the paths of its snapshots."""
    paths = list[str]()

    def losing(original: Create) -> Create:
        def create(self: LocalFileIO, path: str, data: bytes) -> bool:
            latest = table.snapshot()
            assert latest is not None
            other = replace(latest, id=latest.id + 1, commit_user="another")
            paths.append(path)
            assert original(self, path, other.to_json())
            return original(self, path, data)

        return create

    replace_create(monkeypatch, losing)
    return paths


def test_a_commit_that_always_loses_the_race_fails_and_deletes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, commit__max_retries="2", commit__min_retry_wait="1 ms")
    table.upsert(table_of("k v", [(1, "a")]))
    before = stored_files(table)
    others = lose_each_race(monkeypatch, table)

    with pytest.raises(CommitConflictError, match=r"attempts: 3\); .*commit\.max-retries"):
        table.upsert(table_of("k v", [(2, "b")]))

    assert [Path(path).name for path in others] == ["snapshot-2", "snapshot-3", "snapshot-4"]
    for path in others:
        Path(path).unlink()
    assert stored_files(table) == before


def test_a_commit_fails_after_its_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path, commit__timeout="0 ms")
    Path(table.paths.snapshot_dir).mkdir()
    replace_create(
        monkeypatch, lambda _: lambda _self, path, _data: bool(Path(path).write_bytes(b""))
    )

    with pytest.raises(CommitConflictError, match=r"attempts: 1\); .*commit\.timeout"):
        table.upsert(table_of("k v", [(2, "b")]))


@pytest.mark.parametrize("forced", ["true", "false"])
def test_a_commit_without_rows_creates_a_snapshot_only_on_request(
    tmp_path: Path, forced: str
) -> None:
    table = new_table(tmp_path, commit__force_create_snapshot=forced)

    snapshot = table.upsert(table_of("k v", [(1, "a")]).slice(1))

    assert (snapshot is None) == (forced == "false")
    assert table.stores.snapshots.ids() == ([] if snapshot is None else [1])


def test_an_error_after_the_snapshot_was_written_does_not_fail_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)

    def written_but(original: Create) -> Create:
        def create(self: LocalFileIO, path: str, data: bytes) -> bool:
            original(self, path, data)
            raise StorageError("the connection broke")

        return create

    replace_create(monkeypatch, written_but)
    snapshot = table.upsert(table_of("k v", [(1, "a")]))

    assert snapshot is not None
    assert snapshot.id == 1
    assert rows_of(table) == [(1, "a")]
    assert table.stores.snapshots.hint("LATEST") == 1


def test_a_retried_create_that_finds_its_own_snapshot_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that repeats a request finds the file that its first request created."""
    table = new_table(tmp_path)

    def sent_twice(original: Create) -> Create:
        def create(self: LocalFileIO, path: str, data: bytes) -> bool:
            original(self, path, data)
            return original(self, path, data)

        return create

    replace_create(monkeypatch, sent_twice)
    table.upsert(table_of("k v", [(1, "a")]))

    assert table.stores.snapshots.ids() == [1]
    assert rows_of(table) == [(1, "a")]


def test_the_next_attempt_finds_a_commit_with_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot appears after the response was lost; it is not committed a second time."""
    table, late = new_table(tmp_path, commit__min_retry_wait="1 ms"), list[tuple[str, bytes]]()

    def delayed(original: Create) -> Create:
        def create(self: LocalFileIO, path: str, data: bytes) -> bool:
            if not late:
                late.append((path, data))
                raise StorageError("the connection broke")
            assert original(self, *late[0])  # the first request arrives before the second
            return original(self, path, data)

        return create

    replace_create(monkeypatch, delayed)
    snapshot = table.append(table_of("k v", [(1, "a")]))

    assert snapshot is not None
    assert table.stores.snapshots.ids() == [1]
    assert rows_of(table) == [(1, "a")]
    assert snapshot.to_json() == late[0][1]


def test_a_lost_request_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, lost_requests = new_table(tmp_path, commit__min_retry_wait="1 ms"), list[str]()

    def losing(original: Create) -> Create:
        def create(self: LocalFileIO, path: str, data: bytes) -> bool:
            if not lost_requests:
                lost_requests.append(path)
                raise OSError(104, "connection reset by peer")
            return original(self, path, data)

        return create

    replace_create(monkeypatch, losing)
    table.append(table_of("k v", [(1, "a")]))

    assert table.stores.snapshots.ids() == [1]
    assert rows_of(table) == [(1, "a")]
    assert_healthy(table)


@pytest.mark.parametrize("key", [("k",), ()], ids=["primary key", "append"])
def test_a_commit_id_is_committed_once(tmp_path: Path, key: tuple[str, ...]) -> None:
    table = new_table(tmp_path, key=key, bucket="1" if key else "-1")
    first = table.append(table_of("k v", [(1, "a")]), commit_id=CommitId("load", 7))
    table.append(table_of("k v", [(2, "b")]))
    before = stored_files(table)

    again = table.append(table_of("k v", [(1, "a")]), commit_id=CommitId("load", 7))
    older = table.overwrite(table_of("k v", [(5, "e")]), commit_id=CommitId("load", 6))

    assert first is not None
    assert (first.commit_user, first.commit_identifier) == ("load", 7)
    assert again == older == first
    assert stored_files(table) == before
    table.append(table_of("k v", [(3, "c")]), commit_id=CommitId("load", 8))
    table.append(table_of("k v", [(4, "d")]), commit_id=CommitId("another", 7))
    assert [row[0] for row in rows_of(table)] == [1, 2, 3, 4]


def test_the_newest_snapshot_of_a_commit_id_is_found(tmp_path: Path) -> None:
    """Java commits the rows of a checkpoint and their compaction with one identifier."""
    table, checkpoint = new_table(tmp_path, key=(), bucket="-1"), CommitId("load", 7)
    table.append(table_of("k v", [(1, "a")]), commit_id=checkpoint)
    table.append(table_of("k v", [(2, "b")]))
    edit_snapshot(table, 2, commit_user="load", commit_identifier=7)

    again = table.append(table_of("k v", [(1, "a")]), commit_id=checkpoint)

    assert again is not None
    assert (again.id, table.stores.snapshots.latest_id()) == (2, 2)


def test_two_simultaneous_calls_with_one_commit_id_commit_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both calls write files; the later one finds the other's snapshot and deletes its files."""
    table, twice = new_table(tmp_path, key=(), bucket="-1"), CommitId("load", 1)

    def racing(original: Create) -> Create:
        def create(self: LocalFileIO, path: str, data: bytes) -> bool:
            monkeypatch.undo()
            table.append(table_of("k v", [(1, "a")]), commit_id=twice)
            return original(self, path, data)

        return create

    replace_create(monkeypatch, racing)
    table.append(table_of("k v", [(1, "a")]), commit_id=twice)

    assert rows_of(table) == [(1, "a")]
    assert len([path for path in stored_files(table) if "/bucket-0/" in path]) == 1
    assert_no_stray_manifests(table)


def test_an_ingest_with_a_commit_id_is_committed_once(tmp_path: Path) -> None:
    table, once = new_table(tmp_path), CommitId("load", 1)
    for _ in range(2):
        planned = ingest.plan(table, ingest.IngestRequest(columns=["k", "v"], commit_id=once))
        written = write_rows(planned, planned.prepare(table_of("k v", [(1, "a")]).to_batches()))
        assert ingest.commit(table, planned, [written]).snapshot_id == 1

    assert table.stores.snapshots.ids() == [1]
    assert len([path for path in stored_files(table) if "/bucket-0/" in path]) == 1


def append_once(root: str) -> None:
    """Commit the same commit ids as other processes; runs in a separate process."""
    Catalog(root).table("db.t").append(table_of("k v", [(1, "a")]), commit_id=CommitId("load", 7))


@pytest.mark.slow
def test_many_processes_with_one_commit_id_commit_once(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1", commit__max_retries="100")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["paimon_orch"])
    processes = [
        context.Process(target=append_once, args=(str(tmp_path),)) for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0] * PROCESSES
    assert table.stores.snapshots.ids() == [1]
    assert rows_of(table) == [(1, "a")]
    assert len([path for path in stored_files(table) if "/bucket-0/" in path]) == 1
    assert_no_stray_manifests(table)


OUTCOMES = ["done", "lost", "answer lost", "late", "raced"]


@pytest.mark.slow
@settings(max_examples=60)
@given(plans=st.lists(st.lists(st.sampled_from(OUTCOMES), max_size=4), min_size=1, max_size=3))
@example(plans=[["raced", "lost", "lost", "lost"]])
def test_each_load_is_committed_once_although_requests_are_lost(plans: list[list[str]]) -> None:
    """A caller repeats each load until it succeeds; the store loses requests and responses."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        table = new_table(Path(folder), key=(), bucket="-1", commit__min_retry_wait="0 ms")
        outcomes, late, other_ids = list[str](), list[tuple[str, bytes]](), list[int]()

        def unreliable(original: Create) -> Create:
            def create(self: LocalFileIO, path: str, data: bytes) -> bool:
                for request in late:  # apply the delayed requests before this one
                    original(self, *request)
                late.clear()
                match outcomes.pop(0) if outcomes else "done":
                    case "lost":
                        raise StorageError("the request was lost")
                    case "answer lost":
                        original(self, path, data)
                        raise StorageError("the answer was lost")
                    case "late":
                        late.append((path, data))
                        raise StorageError("no answer yet")
                    case "raced":
                        other_ids.append(-len(other_ids) - 1)
                        later = outcomes.copy()
                        outcomes.clear()  # the other load succeeds
                        table.append(table_of("k v", [(other_ids[-1], "other")]))
                        outcomes[:] = later
                return original(self, path, data)

            return create

        replace_create(patch, unreliable)
        for number, plan in enumerate(plans):
            outcomes[:] = plan
            for _ in range(5):
                with suppress(StorageError):
                    once = CommitId("load", number)
                    table.append(table_of("k v", [(number, "load")]), commit_id=once)
                    break

        assert sorted(row[0] for row in rows_of(table)) == [*sorted(other_ids), *range(len(plans))]
        assert_healthy(table)


@pytest.mark.parametrize(("user", "identifier"), [(" ", 1), ("a", -1), ("a", 2**63 - 1)])
def test_an_invalid_commit_id_is_refused(user: str, identifier: int) -> None:
    with pytest.raises(InputError, match="commit"):
        CommitId(user, identifier)


def failing_create(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Create) -> Create:
        def create(self: LocalFileIO, path: str, data: bytes) -> bool:
            raise StorageError("the connection broke")

        return create

    replace_create(monkeypatch, failing)


def test_an_unknown_outcome_is_raised_and_no_file_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request may still be in progress, so the files of its snapshot must remain."""
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    before = stored_files(table)
    with monkeypatch.context() as patch:
        failing_create(patch)
        with pytest.raises(
            CommitOutcomeUnknownError, match="not known whether the commit happened"
        ):
            table.upsert(table_of("k v", [(2, "b")]))

    kinds = sorted(Path(path).name.split("-")[0] for path in stored_files(table) - before)
    assert kinds == ["data", *["manifest"] * 9]  # each of three attempts writes three manifests
    assert rows_of(table) == [(1, "a")]
    table.upsert(table_of("k v", [(3, "c")]))
    assert rows_of(table) == [(1, "a"), (3, "c")]


@pytest.mark.parametrize("is_created", [True, False])
def test_an_unknown_outcome_of_the_last_attempt_is_not_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_created: bool
) -> None:
    """A conflict would delete the data files, which the snapshot may reference."""
    table = new_table(tmp_path, commit__max_retries="0")

    def lose_answer(original: Create) -> Create:
        def create(self: LocalFileIO, path: str, data: bytes) -> bool:
            if is_created:
                original(self, path, data)
                patch.setattr(LocalFileIO, "read_bytes", fail)
            raise StorageError("the connection broke")

        return create

    def fail(_: LocalFileIO, path: str) -> bytes:
        raise StorageError(f"{path}: no answer")

    with monkeypatch.context() as patch:
        replace_create(patch, lose_answer)
        with pytest.raises(CommitOutcomeUnknownError, match="all attempts were used"):
            table.append(table_of("k v", [(1, "a")]))

    assert rows_of(table) == ([(1, "a")] if is_created else [])


def test_an_ingest_with_an_unknown_outcome_keeps_its_data_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)
    planned = ingest.plan(table, ingest.IngestRequest(columns=["k", "v"]))
    written = write_rows(planned, planned.prepare(table_of("k v", [(1, "a")]).to_batches()))
    failing_create(monkeypatch)

    with pytest.raises(CommitOutcomeUnknownError, match="not known"):
        ingest.commit(table, planned, [written])

    assert [path for path in stored_files(table) if "/bucket-0/" in path]


def test_a_failure_before_the_snapshot_leaves_no_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    before = {path for path in stored_files(table) if "/manifest/" in path}

    def full(*_: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(
        "paimon_orch.table.commit.snapshot_builder.SnapshotBuilder._resolve_statistics", full
    )
    with pytest.raises(StorageError, match="the disk is full"):
        table.upsert(table_of("k v", [(2, "b")]))

    assert {path for path in stored_files(table) if "/manifest/" in path} == before
    assert table.stores.snapshots.ids() == [1]


@pytest.mark.parametrize(
    "error",
    [AccessDeniedError("no"), CatalogUnavailableError("no"), TypeError("bug"), KeyboardInterrupt()],
)
@pytest.mark.parametrize("place", ["_attempt", "_create_snapshot"])
def test_an_error_without_a_snapshot_is_raised_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: BaseException
) -> None:
    """The data files of a refused commit are deleted."""
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    before = stored_files(table)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(TableCommit, place, fail)
    with pytest.raises(type(error)) as caught:
        table.upsert(table_of("k v", [(2, "b")]))

    assert caught.value is error
    if isinstance(error, PaimonError):
        assert stored_files(table) == before
    elif isinstance(error, KeyboardInterrupt):
        assert f"no snapshot of {table.paths.root} was committed" in error.__notes__


def test_a_commit_succeeds_if_its_hint_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)

    def refuse(*_: Any) -> None:
        raise OSError(5, "no hints today")

    monkeypatch.setattr(
        "paimon_orch.table.metadata.snapshot_store.SnapshotStore.write_hint", refuse
    )
    table.upsert(table_of("k v", [(1, "a")]))
    table.upsert(table_of("k v", [(2, "b")]))

    assert table.stores.snapshots.ids() == [1, 2]
    assert rows_of(table) == [(1, "a"), (2, "b")]


def test_a_snapshot_has_the_commit_user_kind_and_record_counts(tmp_path: Path) -> None:
    table = new_table(tmp_path, commit__user_prefix="nightly")

    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))
    second = table.upsert(table_of("k v", [(1, "c")]))

    assert second is not None
    assert (second.id, second.commit_kind, second.commit_identifier) == (
        2,
        CommitKind.APPEND,
        9223372036854775807,
    )
    assert second.commit_user.startswith("nightly_")
    assert second.commit_user != create_commit_user(table.load().schema)
    assert (second.delta_record_count, second.total_record_count) == (1, 3)


def test_snapshot_times_never_decrease(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    first = table.upsert(table_of("k v", [(1, "a")]))
    assert first is not None
    commit = table.stores.new_commit(StepKind.WRITE_ROWS)
    commit.clock = lambda: 0.0

    assert commit.commit(CommitChanges(kind=CommitKind.APPEND)).time_millis == first.time_millis


def test_rows_outside_the_overwritten_partition_are_refused_and_deleted(tmp_path: Path) -> None:
    table = new_table(tmp_path, "p INT, k INT", key=("p", "k"), partition_by=["p"])
    table.upsert(table_of("p k", [(1, 1)]))
    before = stored_files(table)

    with pytest.raises(InputError, match="not all rows are in the partition"):
        table.overwrite(table_of("p k", [(1, 2), (2, 2)]), {"p": 1})

    assert stored_files(table) == before


@pytest.mark.parametrize("error", [AccessDeniedError("token"), OSError("disk"), InputError("x")])
def test_an_error_of_a_report_after_the_commit_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    table = new_table(tmp_path)
    commit = table.stores.new_commit(StepKind.WRITE_ROWS)

    def report(_: object) -> None:
        raise error

    commit.on_commit = report
    snapshot = commit.commit(CommitChanges(kind=CommitKind.APPEND))

    assert table.snapshot() == snapshot
    assert (
        f"snapshot 1 is committed, but not reported to all external systems: {error}" in caplog.text
    )
