"""Kills appends to a table in HDFS with SIGKILL before one of their calls.

A process that has used HDFS cannot fork one that uses it. So this module is also a program, which
imports the library once and forks a child for each line of its standard input.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pyarrow as pa

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.storage.concurrency import CONCURRENCY_VARIABLE
from paimon_orch.storage.hdfs_client import HdfsClient

AppendUntil = Callable[[int], bool]


@contextmanager
def watch_calls(act: Callable[[list[str]], None] = lambda _: None) -> Iterator[list[str]]:
    """Return the paths of the calls of this process; ``act`` gets them before each call."""
    calls, original = list[str](), HdfsClient.call

    def call(self: HdfsClient, path: str, make: Callable[[Any], Any]) -> Any:
        act(calls)
        calls.append(path)
        return original(self, path, make)

    HdfsClient.call = call  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        HdfsClient.call = original  # type: ignore[method-assign]


@contextmanager
def run_killed_appends(root: str) -> Iterator[AppendUntil]:
    """Return a function from a number of calls to whether an append was killed after them.

    It appends a row with this number to `db.t`. Calls count from that which creates the data file,
    because those before it only read.
    """
    source = str(Path(__file__).parents[2])
    search = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        [sys.executable, __file__, root],
        env={**os.environ, "PYTHONPATH": search, CONCURRENCY_VARIABLE: "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def append(calls: int) -> bool:
            requests.write(f"{calls}\n")
            requests.flush()
            status = int(answers.readline())
            assert status in {0, -signal.SIGKILL}
            return status != 0

        yield append


def _append(root: str, moment: int) -> None:
    def kill(calls: list[str]) -> None:
        changes = list(dropwhile(lambda path: "/bucket-" not in path, calls))
        if len(changes) > moment:
            os.kill(os.getpid(), signal.SIGKILL)

    table = Catalog(root).table("db.t")
    with watch_calls(kill):
        table.append(pa.table({"number": [moment]}))


def _fork(root: str, moment: int) -> int:
    """Append in a child; return its exit status, or the negative signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            _append(root, moment)
        except BaseException:  # noqa: BLE001 - the child must not answer
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    for line in sys.stdin:
        print(_fork(sys.argv[1], int(line)), flush=True)  # noqa: T201
