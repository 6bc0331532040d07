"""Runs work units in worker processes of this machine; needs neither Spark nor Java."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import cloudpickle

from paimon_orch.retry_policy import LOCAL_UNIT
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.common.executor import SMALL_WORK_BYTES, Join, Progress, Undo
from paimon_orch.steps.common.machine import count_cores, read_available_memory
from paimon_orch.steps.common.unit_outcome import (
    UnitOutcome,
    build_cancelled_error,
    decode_error,
    decode_traceback,
    run_unit,
)
from paimon_orch.steps.common.worker_process import (
    WorkerProcess,
    start_workers,
    stop_workers,
    wait_for_answers,
)

logger = get_logger(__name__)

U = TypeVar("U")
_Piece = tuple[int, int, int]
"""A piece of a shuffle: the number of its file, its offset and its length."""

_WORKER_MEMORY = 512 << 20  # more than a task of any size needs; see benchmarks/README.md
_POLL_SECONDS = 0.1


class LocalExecutor:
    """Runs work units in processes of this machine; implements :class:`Executor`.

    There is one process per core, but not more than there are units, and not more than fit into the
    available memory. The processes are started for each call, and end with it or with this process.

    If the units read few bytes, they run in the calling thread. Ctrl-C interrupts it, but
    :meth:`cancel` only takes effect between two units.

    :meth:`cancel` may be called from any thread. A cancelled executor cannot be used again.
    """

    def __init__(self, *, workers: int | None = None) -> None:
        """Create an executor.

        :param workers: the maximum number of processes; by default, it depends on the machine. 0
            runs all units in the calling thread
        """
        self._max_workers = workers
        self._cancelled = threading.Event()

    def map(
        self,
        run: Callable[[U], bytes],
        units: Sequence[U],
        *,
        label: str,
        progress: Progress | None = None,
        undo: Undo | None = None,
        work_bytes: int | None = None,
    ) -> list[bytes]:
        """Return ``run(unit)`` for each unit, in the order of the units.

        Units are run again after transient errors. After another error, no more units are started.
        An ``OSError`` is raised as ``StorageError``, and other unexpected errors as
        ``PaimonError``. ``undo`` is also called after a cancellation.

        :raises PaimonError: the error of the first unit that fails, or of a process that is killed
        :raises CancelledError: after :meth:`cancel` or Ctrl-C
        """
        if not units:
            return []
        with self._start_workers(len(units), work_bytes) as workers:
            return self._map(workers, run, units, label=label, progress=progress, undo=undo)

    def shuffle(
        self,
        split: Callable[[U], Iterable[tuple[int, bytes]]],
        units: Sequence[U],
        join: Join,
        *,
        parts: int,
        label: str,
        progress: Progress | None = None,
        work_bytes: int | None = None,
    ) -> list[bytes]:
        """Call ``join`` on the pieces of each part, and return the results.

        The processes exchange the pieces in temporary files. Raises the same errors as :meth:`map`.
        """
        if not units:
            return []
        with (
            TemporaryDirectory(prefix="paimon-orch-") as folder,
            self._start_workers(max(len(units), parts), work_bytes) as workers,
        ):
            spill = partial(_spill_pieces, split, folder)
            numbered = list(enumerate(units))
            spilled = self._map(workers, spill, numbered, label=label, progress=progress)
            pieces: dict[int, list[_Piece]] = {}
            for places in spilled:
                for part, piece in cloudpickle.loads(places):
                    pieces.setdefault(part, []).append(piece)
            join_part = partial(_join_pieces, join, folder)
            return self._map(workers, join_part, [pieces[p] for p in sorted(pieces)], label=label)

    def cancel(self) -> None:
        """Stop the processes, and refuse further units."""
        self._cancelled.set()

    def _start_workers(
        self, unit_count: int, work_bytes: int | None
    ) -> AbstractContextManager[list[WorkerProcess]]:
        """Start the processes for a number of units; none for small work."""
        is_small = work_bytes is not None and work_bytes <= SMALL_WORK_BYTES
        if is_small or self._max_workers == 0 or self._cancelled.is_set():
            return nullcontext([])
        max_workers = count_cores() if self._max_workers is None else self._max_workers
        workers = min(unit_count, max_workers)
        memory = read_available_memory()
        if memory is not None:
            workers = min(workers, memory // _WORKER_MEMORY)
        return start_workers(max(1, workers))

    def _map(
        self,
        workers: Sequence[WorkerProcess],
        run: Callable[[U], bytes],
        units: Sequence[U],
        *,
        label: str,
        progress: Progress | None = None,
        undo: Undo | None = None,
    ) -> list[bytes]:
        """Run the units in processes, or in the calling thread if there are none."""
        job = _Job(label=label, unit_count=len(units), progress=progress, cancelled=self._cancelled)
        try:
            if workers:
                job.run_in_workers(workers, run, units)
            else:
                job.run_here(run, units)
        except BaseException as error:
            if undo is not None:
                undo(job.results())
            if isinstance(error, KeyboardInterrupt):
                raise build_cancelled_error(label) from error
            raise
        return job.results()


@dataclass(slots=True, kw_only=True)
class _Job:
    """The units of one call and their outcomes."""

    label: str
    unit_count: int
    progress: Progress | None
    cancelled: threading.Event
    outcomes: dict[int, UnitOutcome] = field(default_factory=dict)
    """The outcomes of the finished units, by the number of the unit."""
    errors: dict[int, str] = field(default_factory=dict)
    """The errors of the units that failed, by the number of the unit."""

    def results(self) -> list[bytes]:
        """Return the results of the units that did not fail, in the order of the units."""
        outcomes = (self.outcomes[number] for number in sorted(self.outcomes))
        return [outcome.result for outcome in outcomes if outcome.result is not None]

    def run_here(self, run: Callable[[U], bytes], units: Sequence[U]) -> None:
        """Run the units in the calling thread, until one fails."""
        for number, unit in enumerate(units):
            self._raise_if_cancelled()
            self._add(number, run_unit(partial(run, unit), attempts=LOCAL_UNIT))
            self._raise_failure()

    def run_in_workers(
        self, workers: Sequence[WorkerProcess], run: Callable[[U], bytes], units: Sequence[U]
    ) -> None:
        """Run the units in processes; after a failure, wait for the units that run already.

        Units are started in their order, so the first failing unit is the same in each run.
        """
        self._raise_if_cancelled()
        remaining, function = iter(enumerate(units)), cloudpickle.dumps(run)
        try:
            for worker in workers[: len(units)]:
                worker.send_function(function)
                self._start_next_unit(worker, remaining)
            while busy := [worker for worker in workers if worker.unit is not None]:
                self._raise_if_cancelled()
                for worker in wait_for_answers(busy, _POLL_SECONDS):
                    assert worker.unit is not None
                    self._add(worker.unit, worker.receive_outcome(self.label))
                    self._start_next_unit(worker, remaining)
        except BaseException:
            self._stop(workers)
            raise
        self._raise_failure()

    def _start_next_unit(
        self, worker: WorkerProcess, remaining: Iterator[tuple[int, object]]
    ) -> None:
        """Send the next unit, unless a unit has failed; a dead worker gets no unit."""
        if self.errors:
            return
        for number, unit in remaining:
            worker.send_unit(number, cloudpickle.dumps(unit))
            return

    def _stop(self, workers: Sequence[WorkerProcess]) -> None:
        """Stop the processes; keep the results that they have already sent."""
        stop_workers(workers)
        for worker in workers:
            if worker.unit is not None:
                number = worker.unit
                self.outcomes[number] = worker.receive_outcome(self.label)

    def _add(self, number: int, outcome: UnitOutcome) -> None:
        self.outcomes[number] = outcome
        if outcome.error is not None:
            self.errors[number] = outcome.error
        elif self.progress is not None:
            self.progress(len(self.outcomes), self.unit_count)

    def _raise_failure(self) -> None:
        """Raise the error of the first unit that failed, if any."""
        if self.errors:
            first = self.errors[min(self.errors)]
            error = decode_error(first)
            error.add_note(f"{self.label}: {len(self.errors)} of {self.unit_count} tasks failed")
            logger.debug("%s: %s", self.label, decode_traceback(first))
            raise error

    def _raise_if_cancelled(self) -> None:
        if self.cancelled.is_set():
            raise build_cancelled_error(self.label)


def _spill_pieces(
    split: Callable[[U], Iterable[tuple[int, bytes]]], folder: str, unit: tuple[int, U]
) -> bytes:
    """Write the pieces of a unit to one file; return their parts and places."""
    number, content = unit
    places: list[tuple[int, _Piece]] = []
    with (Path(folder) / str(number)).open("wb") as file:
        for part, piece in split(content):
            places.append((part, (number, file.tell(), len(piece))))
            file.write(piece)
    result: bytes = cloudpickle.dumps(places)
    return result


def _join_pieces(join: Join, folder: str, places: Sequence[_Piece]) -> bytes:
    pieces = []
    for number, offset, length in places:
        with (Path(folder) / str(number)).open("rb") as file:
            file.seek(offset)
            pieces.append(file.read(length))
    return join(pieces)
