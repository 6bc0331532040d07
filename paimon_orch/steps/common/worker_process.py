"""Starts and stops worker processes, and exchanges messages with them through sockets.

The process pools of the standard library are not used for three reasons: their workers import the
main module of the caller, which is all of Dagster in a Dagster run; they survive a caller that is
killed; and all units fail if one worker is killed.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_connections
from multiprocessing.spawn import get_executable
from pathlib import Path

from paimon_orch.errors import PaimonError
from paimon_orch.steps.common.local_worker import FUNCTION, UNIT, decode_outcome
from paimon_orch.steps.common.machine import count_cores
from paimon_orch.steps.common.unit_outcome import UnitOutcome, encode_error

_START_WORKER = "from paimon_orch.steps.common.local_worker import main; main()"
_STOP_SECONDS = 3.0


@dataclass(slots=True, kw_only=True)
class WorkerProcess:
    """A worker process, which runs one unit at a time."""

    process: subprocess.Popen[bytes]
    connection: Connection
    unit: int | None = None
    """The number of the unit that was sent and not answered."""

    def send_function(self, function: bytes) -> None:
        """Send the pickled function of all further units."""
        self._send(FUNCTION + function)

    def send_unit(self, number: int, unit: bytes) -> None:
        """Send a pickled unit; an error of the process is its outcome."""
        self.unit = number
        self._send(UNIT + unit)

    def receive_outcome(self, label: str) -> UnitOutcome:
        """Return the outcome of the unit; if the process has ended, this is an error."""
        self.unit = None
        try:
            return decode_outcome(self.connection.recv_bytes())
        except (EOFError, ConnectionError):
            return UnitOutcome(error=encode_error(PaimonError(f"{label}: {self._describe_exit()}")))

    def _send(self, message: bytes) -> None:
        # if the process has ended, receive_outcome returns the error
        with suppress(ConnectionError):
            self.connection.send_bytes(message)

    def _describe_exit(self) -> str:
        self.stop(time.monotonic() + _STOP_SECONDS)
        status = self.process.returncode
        if status == -signal.SIGKILL:
            return (
                "a worker process was killed, usually because the machine was out of memory. "
                "Nothing was committed. Free memory, or use Spark with more memory (--executor "
                "spark)"
            )
        end = f"exited with status {status}"
        if status < 0:
            end = f"was ended by {signal.Signals(-status).name}"
        return f"a worker process {end}; its standard error may show why. Nothing was committed"

    def stop(self, deadline: float) -> None:
        """Wait for the end of the process until ``deadline``, then kill it."""
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def start_workers(count: int) -> Iterator[list[WorkerProcess]]:
    """Start processes, and end them at the end of the ``with`` block."""
    threads = max(1, count_cores() // count)
    workers = list[WorkerProcess]()
    try:
        workers.extend(_start_worker(threads) for _ in range(count))
        yield workers
    finally:
        for worker in workers:
            worker.process.kill()  # it is idle, or stop_workers was called
        for worker in workers:
            worker.process.wait()
            worker.connection.close()
            assert worker.process.stdin is not None
            worker.process.stdin.close()


def stop_workers(workers: Sequence[WorkerProcess]) -> None:
    """Interrupt the units, so that they delete their unfinished files; end the processes."""
    deadline = time.monotonic() + _STOP_SECONDS
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.stop(deadline)


def wait_for_answers(workers: Sequence[WorkerProcess], timeout: float) -> list[WorkerProcess]:
    """Return the workers that have answered, or ended; an empty list after the timeout."""
    ready = wait_for_connections([worker.connection for worker in workers], timeout)
    return [worker for worker in workers if worker.connection in ready]


def _start_worker(arrow_threads: int) -> WorkerProcess:
    ours, theirs = multiprocessing.Pipe()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "OMP_NUM_THREADS": str(arrow_threads),  # Arrow uses this for its threads
    }
    try:
        process = subprocess.Popen(  # noqa: S603 - runs this interpreter
            # -P: the working directory is only searched for modules if sys.path has it
            [get_executable(), "-P", "-c", _START_WORKER, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=environment,
            process_group=0,  # Ctrl-C interrupts only this process, which then stops the others
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return WorkerProcess(process=process, connection=ours)
