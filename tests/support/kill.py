"""Kills a step with SIGKILL before each of its file-system changes, in a forked child.

A forked child has all modules imported, so hundreds of kills take seconds. The child counts Python's
audit events of changes below the table: files that are opened for writing, renamed, linked and
removed, and directories that are created and removed.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.histories import backdate_files, unreferenced_files
from support.storage_state import read_storage_state

from paimon_orch import Catalog
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

MARKS = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
]

_CHANGES = {"os.link", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate"}
_DIRECTORY_ARGUMENT = {"os.link": 2, "os.remove": 1, "os.rename": 2, "os.rmdir": 1, "os.mkdir": 2}
"""The position of the descriptor of the directory in the arguments of an event."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_FAILED = 3


def kill_at_each_change(
    template: Table, root: Path, action: Callable[[Table], object]
) -> Iterator[Table]:
    """Yield copies of a table in which an action was killed before its first, second, ... change.

    A copy is left out if its storage state equals that of the copy before it, because the change
    between them had no effect. In the last copy the action ran to its end. ``template`` is not
    changed.
    """
    warehouse = Path(template.paths.root).parents[1]
    state: list[tuple[str, str]] = []
    for number in count(1):
        target = root / f"killed-{number}"
        shutil.copytree(warehouse, target, copy_function=shutil.copy2)
        table = Catalog(str(target)).table(template.identifier)
        ended = run_killed(lambda table=table: action(table), number, str(target))  # type: ignore[misc]
        previous, state = state, read_storage_state(target)
        if ended or state != previous:
            yield table
        shutil.rmtree(target)
        if ended:
            assert number > 2, "the action made too few changes"
            return


def remove_orphans_of_killed(table: Table) -> None:
    """Remove the orphans of killed processes, and check that no unreferenced file remains."""
    backdate_files(table)
    remove_orphan_files(table)
    assert unreferenced_files(table) == set()
    assert check(table, deep=True).findings == ()


def run_killed(
    action: Callable[[], object],
    number: int,
    below: str,
    watch: Callable[[Callable[[], None]], None] = lambda _: None,
) -> bool:
    """Run an action in a child that is killed before its n-th change; return if it finished.

    ``watch`` gets a function that it calls at each further moment that counts as a change.
    """
    with warnings.catch_warnings():
        # fork() warns because Arrow has idle threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _run_child(action, number, below, watch)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, (
        "the action failed without being killed; see its traceback above"
    )
    return True


def _run_child(
    action: Callable[[], object],
    number: int,
    below: str,
    watch: Callable[[Callable[[], None]], None],
) -> None:
    # Without this, the first garbage collection would copy the whole memory of the test process.
    gc.freeze()
    remaining = number

    def count_down() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        changes = event in _CHANGES or (event == "open" and _is_writing(arguments))
        if changes and _find_path(event, arguments, below).startswith(below):
            count_down()

    try:
        watch(count_down)
        sys.addaudithook(hook)
        action()
    except BaseException:  # noqa: BLE001 - no exception may reach the test runner
        traceback.print_exc()
        os._exit(_FAILED)
    os._exit(0)


def _find_path(event: str, arguments: tuple[Any, ...], below: str) -> str:
    """Return the path of a change, also if it is relative to an open directory."""
    path = str(arguments[0])
    if Path(path).is_absolute():
        return path
    if event == "open":  # without a descriptor; only the storage of tables opens names this way
        return f"{below}/{path}"
    descriptor = arguments[_DIRECTORY_ARGUMENT[event]]
    if descriptor < 0:
        return path
    return f"{Path(f'/proc/self/fd/{descriptor}').readlink()}/{path}"


def _is_writing(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & _WRITING)
