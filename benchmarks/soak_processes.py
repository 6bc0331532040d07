"""The processes of soak.py: threads that give each of them its commands, and count the answers."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import support.golden  # noqa: F401 - unpacks files that the peers import
from support.peers.environments import PeerCommand
from support.peers.protocol import PeerError, PeerProcess
from support.soak_tables import SoakTable, TableHistory

_TRIES = 3
_ERROR_CHARACTERS = 300
_MAINTENANCE_PAUSE = 1.0


class SoakProcess(threading.Thread):
    """Gives a process commands until the soak stops; a killed process is started again."""

    def __init__(self, name: str, start: PeerCommand, stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._process = PeerProcess(start.command, start.environment)
        self._stop_soak = stop
        self.kills = 0
        self._is_killed = False
        self.conflicts = 0
        self.errors: Counter[str] = Counter()

    def run(self) -> None:
        """Take turns until the soak stops."""
        while not self._stop_soak.is_set():
            self.take_turn()
        self._process.close()

    def take_turn(self) -> None:
        """Give one command."""
        raise NotImplementedError

    def kill(self) -> bool:
        """Kill the process, also during a command; return whether there was one."""
        pid = self._process.pid
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills += 1
            self._is_killed = True
            return True
        return False

    def ask(self, do: str, **arguments: Any) -> Any:
        """Return the answer of the process, or None if the command failed or the process ended."""
        try:
            answer, _ = self._process.ask(do, **arguments)
        except PeerError as error:
            self.count_error(str(error))
            return None
        return answer or {}

    def count_error(self, text: str, prefix: str = "") -> None:
        """Count an error as the end of the process, as a conflict, or by its text."""
        if self._is_killed and "the peer exited" in text:
            self._is_killed = False
            return
        if "onflict" in text:
            self.conflicts += 1
        else:
            self.errors[prefix + _shorten(text)] += 1


def _shorten(text: str) -> str:
    """Return the line of an error that names its reason."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return "no message"
    # Python's tracebacks end with the error, and the reports of the Java peer begin with it
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return line[:_ERROR_CHARACTERS]


class Writer(SoakProcess):
    """Writes to random tables, and remembers which operations were acknowledged."""

    def __init__(  # noqa: PLR0913 - all but the first three are keywords
        self,
        name: str,
        start: PeerCommand,
        stop: threading.Event,
        *,
        number: int,
        warehouse: Mapping[str, str],
        tables: Sequence[SoakTable],
        seed: int,
        deletes: bool,
    ) -> None:
        super().__init__(name, start, stop)
        self._rng = random.Random(f"{seed} {name}")  # noqa: S311 - no secret
        self._warehouse, self._deletes = warehouse, deletes
        self._next = 1
        self.histories = {table.name: TableHistory(table=table, writer=number) for table in tables}
        self.refused: dict[str, str] = {}
        self._failures: Counter[str] = Counter()

    def take_turn(self) -> None:
        """Write to a random table that did not refuse its first operations."""
        names = [name for name in self.histories if name not in self.refused]
        if not names:
            self._stop_soak.wait(1)
            return
        history = self.histories[self._rng.choice(names)]
        operation = history.make_operation(self._next, self._rng, deletes=self._deletes)
        self._next += 1
        known = self.errors.copy()
        answer = self.ask(
            operation.do,
            warehouse=self._warehouse,
            table=history.table.identifier,
            rows=operation.rows,
        )
        if answer is not None:
            history.acknowledge(operation)
        elif new := self.errors - known:
            self._count_failure(history, next(iter(new)))

    def _count_failure(self, history: TableHistory, text: str) -> None:
        """Leave a table that this writer cannot write."""
        name = history.table.name
        self._failures[name] += 1
        if self._failures[name] >= _TRIES and not any(
            each.is_acknowledged for each in history.operations
        ):
            self.refused[name] = text


class Maintainer(SoakProcess):
    """Maintains all tables again and again."""

    def __init__(self, name: str, start: PeerCommand, stop: threading.Event) -> None:
        super().__init__(name, start, stop)
        self.turns = 0
        self.finished = 0
        self.actions = 0

    def take_turn(self) -> None:
        """Run one round of the maintenance."""
        answer = self.ask("maintain", turn=self.turns)
        self.turns += 1
        if answer is not None:
            self.finished += 1
            self.actions += answer["actions"]
            for text in answer["errors"]:
                table, _, reason = text.partition(": ")
                self.count_error(reason, f"{table}: ")
        self._stop_soak.wait(_MAINTENANCE_PAUSE)


def kill_at_random(
    processes: Sequence[SoakProcess], stop: threading.Event, *, every: float, seed: int
) -> None:
    """Kill a random process again and again, until the soak stops."""
    rng = random.Random(f"{seed} kills")  # noqa: S311 - no secret
    # a maintainer starts slowly and works for long, so it is killed less often
    weights = [1 if isinstance(process, Maintainer) else 3 for process in processes]
    while not stop.wait(rng.expovariate(1 / every)):
        rng.choices(processes, weights)[0].kill()


def wait_until(deadline: float, stop: threading.Event) -> None:
    """Wait for a moment of the monotonic clock, and then stop the soak, also after Ctrl-C."""
    try:
        while time.monotonic() < deadline:
            time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))
    finally:
        stop.set()
