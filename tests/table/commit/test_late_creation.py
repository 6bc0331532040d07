"""A commit whose snapshot id was committed and expired meanwhile is repeated, not lost."""

from __future__ import annotations

import errno
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.tables import assert_healthy, new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import AccessDeniedError, CommitConflictError, CommitOutcomeUnknownError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.maintenance.analyze import analyze
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.storage import FileInfo, LocalFileIO
from paimon_orch.table.commit.commit import TableCommit
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
INSTANT = {"commit__min_retry_wait": "0 ms"}
MERGED = {**INSTANT, "manifest__merge_min_count": "2"}
OTHERS = ("write", "compact", "expire", "tag", "delete")
Rows = list[tuple[int, str]]
programs = st.lists(st.sampled_from(OTHERS), max_size=6)


class Others:
    """What other processes do to the table, with rows of their own."""

    def __init__(self, table: Table) -> None:
        self.table = Catalog(str(Path(table.paths.root).parent.parent)).table("db.t")
        self.rows = set[tuple[int, str]]()
        self.number = 1_000

    def run(self, program: Sequence[str]) -> None:
        for name in program:
            self.number += 1
            getattr(self, name)()

    def write(self) -> None:
        row = (self.number, "other")
        self.table.append(table_of("k v", [row]))
        self.rows.add(row)

    def delete(self) -> None:
        if self.rows:
            row = min(self.rows)
            delete(self.table, EXECUTOR, f"k = {row[0]}")
            self.rows.remove(row)

    def compact(self) -> None:
        compact(self.table, EXECUTOR, strategy="full")

    def expire(self) -> None:
        expire_snapshots(self.table, EXECUTOR, retain_max=1, retain_min=1, older_than=0)

    def tag(self) -> None:
        self.table.tags.create(f"t{self.number}")


@contextmanager
def acting_at_creation(
    others: Others, before: Sequence[str], after: Sequence[str]
) -> Iterator[None]:
    """Let others act before and after the creation of the next snapshot."""
    original, pending = LocalFileIO.create, [True]

    def create(self: LocalFileIO, path: str, data: bytes) -> bool:
        if "/snapshot-" not in path or not pending:
            return original(self, path, data)
        pending.clear()
        others.run(before)
        is_created = original(self, path, data)
        others.run(after)
        return is_created

    with mock.patch.object(LocalFileIO, "create", create):
        yield


def open_table(root: str, key: Sequence[str], options: dict[str, str]) -> tuple[Table, Others]:
    table = new_table(Path(root), key=key, **({} if key else {"bucket": "-1"}), **options)
    table.append(table_of("k v", [(1, "old"), (2, "old")]))
    return table, Others(table)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(before=programs, after=programs, is_keyed=st.booleans(), is_merged=st.booleans())
@example(before=["write", "write", "expire"], after=[], is_keyed=True, is_merged=False)
@example(before=["write", "write", "expire"], after=[], is_keyed=False, is_merged=True)
@example(before=["write"] * 4 + ["expire"], after=["write"], is_keyed=False, is_merged=True)
@example(before=[], after=["write", "compact", "expire", "write"], is_keyed=False, is_merged=True)
@example(before=[], after=["write", "tag", "compact", "expire"], is_keyed=False, is_merged=False)
def test_rows_that_are_written_beside_commits_and_expirations_are_kept_once(
    before: Sequence[str], after: Sequence[str], is_keyed: bool, is_merged: bool
) -> None:
    with tempfile.TemporaryDirectory() as root:
        options = MERGED if is_merged else INSTANT
        table, others = open_table(root, ("k",) if is_keyed else (), options)

        with acting_at_creation(others, before, after):
            is_told = append(table)

        assert is_told or after
        mine = {(3, "mine")}
        rows = {(1, "old"), (2, "old"), *others.rows}
        assert rows_of(table) in [sorted(rows | mine)] + [sorted(rows)] * (not is_told)
        assert_healthy(table)


def append(table: Table) -> bool:
    """Append a row; return False if it is unknown whether that happened."""
    try:
        assert table.append(table_of("k v", [(3, "mine")])) is not None
    except CommitOutcomeUnknownError:
        return False
    return True


STEPS: dict[str, Callable[[Table], object]] = {
    "compact": lambda table: compact(table, EXECUTOR, strategy="full"),
    "delete": lambda table: delete(table, EXECUTOR, "k = 1"),
    "analyze": lambda table: analyze(table, EXECUTOR),
}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    step=st.sampled_from(sorted(STEPS)),
    before=programs,
    after=programs,
    kind=st.sampled_from(("key", "append", "deletion vectors")),
)
@example(step="delete", before=["write"] * 2 + ["expire"], after=[], kind="append")
@example(step="delete", before=["write"] * 3 + ["expire"], after=[], kind="deletion vectors")
@example(step="compact", before=["write"] * 3 + ["expire"], after=[], kind="key")
@example(step="analyze", before=["write"] * 2 + ["expire"], after=[], kind="key")
def test_steps_beside_commits_and_expirations_lose_no_row(
    step: str, before: Sequence[str], after: Sequence[str], kind: str
) -> None:
    options, is_keyed = MERGED, kind == "key"
    if kind == "deletion vectors":
        options = options | {"deletion_vectors__enabled": "true"}
    with tempfile.TemporaryDirectory() as root:
        table, others = open_table(root, ("k",) if is_keyed else (), options)
        table.append(table_of("k v", [(2, "old")] if is_keyed else []))
        is_told = True

        with acting_at_creation(others, before, after):
            try:
                STEPS[step](table)
            except (CommitConflictError, CommitOutcomeUnknownError):
                is_told = False

        rows = {(2, "old"), *others.rows} | ({(1, "old")} if step != "delete" else set())
        found = set(rows_of(table))
        assert found == rows or (not is_told and found == rows | {(1, "old")})
        assert_healthy(table)


def test_files_that_a_late_compaction_moves_to_a_level_do_not_hide_other_commits(
    tmp_path: Path,
) -> None:
    table, others = open_table(str(tmp_path), ("k",), INSTANT)

    with acting_at_creation(others, ["write", "write", "write", "expire"], []):
        compact(table, EXECUTOR, strategy="full")

    assert rows_of(table) == sorted({(1, "old"), (2, "old"), *others.rows})
    assert_healthy(table)


@pytest.mark.parametrize("writes", [2, 3])
def test_rows_that_a_late_deletion_vector_deletes_stay_deleted(tmp_path: Path, writes: int) -> None:
    options = {**INSTANT, "deletion_vectors__enabled": "true"}
    table, others = open_table(str(tmp_path), (), options)

    with acting_at_creation(others, [*["write"] * writes, "expire"], []):
        delete(table, EXECUTOR, "k = 1")

    assert rows_of(table) == sorted({(2, "old"), *others.rows})
    assert_healthy(table)


def test_the_times_of_snapshots_decide_where_files_have_the_time_of_the_same_second(
    tmp_path: Path,
) -> None:
    table, others = open_table(str(tmp_path), (), {**INSTANT, "deletion_vectors__enabled": "true"})
    build, list_dir, pending = TableCommit._build, LocalFileIO.list_dir, [True]

    def build_late(self: TableCommit, *args: Any) -> Any:
        if pending:
            pending.clear()
            others.run(["write", "write", "write", "expire"])
        return build(self, *args)

    def list_seconds(self: LocalFileIO, path: str) -> Iterator[FileInfo]:
        return (replace(info, modified=1_000.0) for info in list_dir(self, path))

    with (
        mock.patch.object(TableCommit, "_build", build_late),
        mock.patch.object(LocalFileIO, "list_dir", list_seconds),
    ):
        delete(table, EXECUTOR, "k = 1")

    assert rows_of(table) == sorted({(2, "old"), *others.rows})
    assert_healthy(table)


@pytest.mark.parametrize("writes", [2, 3])
def test_late_statistics_are_written_again(tmp_path: Path, writes: int) -> None:
    table, others = open_table(str(tmp_path), ("k",), INSTANT)

    with acting_at_creation(others, [*["write"] * writes, "expire"], []):
        analyze(table, EXECUTOR)

    newest = table.snapshot()
    assert newest is not None
    assert newest.statistics is not None


class PartitionedOthers(Others):
    """Others that write to a table with the partition field ``p``, and retain two snapshots."""

    def write(self) -> None:
        self.table.append(table_of("k v p", [(self.number, "other", 40)]))

    def expire(self) -> None:
        expire_snapshots(self.table, EXECUTOR, retain_max=2, retain_min=1, older_than=0)


def test_deletes_of_files_are_kept_if_the_next_commit_merges_their_manifest(
    tmp_path: Path,
) -> None:
    options = {**MERGED, "manifest__target_file_size": "3 kb", "bucket": "-1"}
    table = new_table(tmp_path, "k BIGINT, v STRING, p INT", key=(), partition_by=["p"], **options)
    table.append(table_of("k v p", [(n, "old", n) for n in range(40)]))
    others = PartitionedOthers(table)
    others.run(["write"])

    with acting_at_creation(others, [], ["write", "expire"]), suppress(CommitOutcomeUnknownError):
        delete(table, EXECUTOR, "p = 1")

    assert table.stores.snapshots.ids() == [3, 4]
    assert (1, "old", 1) not in rows_of(table)
    assert_healthy(table)


def test_rows_are_kept_once_if_a_branch_retains_the_file_of_an_expired_snapshot(
    tmp_path: Path,
) -> None:
    table, others = open_table(str(tmp_path), (), MERGED)

    def branch() -> None:
        others.table.tags.create("base")
        others.table.branches.create("other", tag="base")
        others.table.tags.delete("base")

    with (
        mock.patch.object(others, "tag", branch),
        acting_at_creation(others, [], ["tag", "compact", "write", "expire"]),
    ):
        assert append(table)

    assert rows_of(table) == sorted({(1, "old"), (2, "old"), (3, "mine"), *others.rows})
    assert_healthy(table)


def test_an_error_of_the_check_deletes_no_manifest_of_the_snapshot(tmp_path: Path) -> None:
    table, _ = open_table(str(tmp_path), (), INSTANT)
    list_dir, error = LocalFileIO.list_dir, AccessDeniedError("the listing is not allowed")

    def refuse(self: LocalFileIO, path: str) -> Iterator[FileInfo]:
        if path.endswith("/snapshot"):
            raise error
        return list_dir(self, path)

    with (
        mock.patch.object(LocalFileIO, "list_dir", refuse),
        pytest.raises(CommitOutcomeUnknownError, match="is not allowed"),
    ):
        table.append(table_of("k v", [(3, "mine")]))

    assert rows_of(table) == [(1, "old"), (2, "old"), (3, "mine")]
    assert_healthy(table)


def test_an_interrupt_after_a_late_creation_leaves_no_snapshot(tmp_path: Path) -> None:
    table, others = open_table(str(tmp_path), (), INSTANT)

    with (
        mock.patch.object(others, "tag", partial(signal.raise_signal, signal.SIGINT)),
        acting_at_creation(others, ["write", "write", "expire"], ["tag"]),
        pytest.raises(KeyboardInterrupt) as raised,
    ):
        table.append(table_of("k v", [(3, "mine")]))

    assert raised.value.__notes__ == [f"no snapshot of {table.paths.root} was committed"]
    assert table.stores.snapshots.ids() == [3]
    assert_healthy(table)


@contextmanager
def losing_the_answer_to_a_creation() -> Iterator[None]:
    """Let the creation of the next snapshot, and the first read of it, fail."""
    create, read = LocalFileIO.create, LocalFileIO.read_bytes
    started, unreadable = list[str](), list[str]()

    def create_without_answer(self: LocalFileIO, path: str, data: bytes) -> bool:
        if "/snapshot-" not in path or started:
            return create(self, path, data)
        started.append(path)
        create(self, path, data)
        unreadable.append(path)
        raise OSError(errno.EIO, "the answer is lost")

    def fail_once(self: LocalFileIO, path: str) -> bytes:
        if path in unreadable:
            unreadable.remove(path)
            raise OSError(errno.EIO, "the file cannot be read")
        return read(self, path)

    with (
        mock.patch.object(LocalFileIO, "create", create_without_answer),
        mock.patch.object(LocalFileIO, "read_bytes", fail_once),
    ):
        yield


@pytest.mark.parametrize("loses_answer", [False, True])
@pytest.mark.parametrize("commit_id", [None, CommitId("nightly", 7)])
def test_a_late_commit_is_repeated_also_after_a_lost_answer_and_with_an_identifier(
    tmp_path: Path, loses_answer: bool, commit_id: CommitId | None
) -> None:
    table, others = open_table(str(tmp_path), (), INSTANT)
    fault = losing_the_answer_to_a_creation() if loses_answer else nullcontext()

    with acting_at_creation(others, ["write", "write", "expire"], []), fault:
        table.append(table_of("k v", [(3, "mine")]), commit_id=commit_id)

    assert rows_of(table) == sorted({(1, "old"), (2, "old"), (3, "mine"), *others.rows})
    assert_healthy(table)


def test_a_commit_finds_the_commits_that_a_late_snapshot_of_another_writer_hides(
    tmp_path: Path,
) -> None:
    table, others = open_table(str(tmp_path), ("k",), INSTANT)
    others.run(["write", "write", "write", "expire", "write", "write"])
    snapshots = table.stores.snapshots
    oldest, newest = snapshots.ids()[0], snapshots.ids()[-1]
    late = replace(snapshots.get(oldest), id=oldest - 2)
    Path(snapshots.path(late.id)).write_bytes(late.to_json())
    snapshots.write_hint("LATEST", late.id)
    assert table.load().snapshot == late

    snapshot = table.append(table_of("k v", [(3, "mine")]))

    assert snapshot is not None
    assert snapshot.id == newest + 1
    assert set(rows_of(table)) == {(1, "old"), (2, "old"), (3, "mine"), *others.rows}
