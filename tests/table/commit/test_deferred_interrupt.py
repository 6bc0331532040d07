"""Interrupts during a commit: it happens or not, and the interrupt says which."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch.storage import LocalFileIO
from paimon_orch.table.commit.commit import TableCommit
from paimon_orch.table.commit.deferred_interrupt import defer_interrupts
from paimon_orch.table.table import Table


def interrupt(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


def run_interrupted(steps: list[str], *, times: int) -> None:
    with defer_interrupts():
        for _ in range(times):
            interrupt()
        steps.append("end of the block")


def test_an_interrupt_is_raised_after_the_block() -> None:
    steps, handler = list[str](), signal.getsignal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_interrupted(steps, times=1)

    assert steps == ["end of the block"]
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_second_interrupt_is_raised_at_once() -> None:
    steps = list[str]()

    with pytest.raises(KeyboardInterrupt):
        run_interrupted(steps, times=2)

    assert steps == []


def test_the_handler_of_the_program_is_called_after_the_block() -> None:
    calls: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: calls.append(number))
    try:
        with defer_interrupts():
            interrupt(signal.SIGTERM)
            assert calls == []
        assert calls == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_an_ignored_signal_stays_ignored() -> None:
    previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with defer_interrupts():
            interrupt(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_a_block_in_another_thread_changes_no_handler() -> None:
    handlers, handler = [], signal.getsignal(signal.SIGINT)

    def work() -> None:
        with defer_interrupts():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert handlers == [handler]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    return table


def interrupt_create(monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    """Interrupt the process while the file of a snapshot is created."""
    original = LocalFileIO.create

    def create(self: LocalFileIO, path: str, data: bytes) -> bool:
        if "/snapshot-" in path:
            for _ in range(times):
                interrupt()
        return original(self, path, data)

    monkeypatch.setattr(LocalFileIO, "create", create)


def test_a_commit_that_is_interrupted_while_it_happens_is_complete(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_create(monkeypatch, times=1)

    with pytest.raises(KeyboardInterrupt) as caught:
        table.upsert(table_of("k v", [(2, "b")]))

    assert caught.value.__notes__ == [f"snapshot 2 of {table.paths.root} is committed"]
    assert rows_of(table) == [(1, "a"), (2, "b")]


def test_a_commit_that_is_interrupted_twice_has_an_unknown_outcome(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_create(monkeypatch, times=2)

    with pytest.raises(KeyboardInterrupt) as caught:
        table.upsert(table_of("k v", [(2, "b")]))

    [note] = caught.value.__notes__
    assert note.startswith(f"it is not known whether snapshot 2 of {table.paths.root} is committed")


def test_a_commit_that_is_interrupted_before_it_happens_commits_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableCommit, "_attempt", lambda *_: interrupt())

    with pytest.raises(KeyboardInterrupt) as caught:
        table.upsert(table_of("k v", [(2, "b")]))

    assert caught.value.__notes__ == [f"no snapshot of {table.paths.root} was committed"]
    assert rows_of(table) == [(1, "a")]


def test_a_commit_that_is_interrupted_after_it_happened_says_so(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableCommit, "_update_hint", lambda *_: interrupt())

    with pytest.raises(KeyboardInterrupt) as caught:
        table.upsert(table_of("k v", [(2, "b")]))

    assert caught.value.__notes__ == [f"snapshot 2 of {table.paths.root} is committed"]
