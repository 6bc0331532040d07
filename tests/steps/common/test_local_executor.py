"""Worker processes of this machine: parallel units, cancellation, and what kills cannot break.

The common contract is in ``test_executor_contract``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_orch import errors
from paimon_orch.steps.common import local_executor, worker_process
from paimon_orch.steps.common.executor import SMALL_WORK_BYTES
from paimon_orch.steps.common.local_executor import LocalExecutor


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, at most a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def report_and_wait(folder: Path) -> Callable[[int], bytes]:
    """A unit that writes its process id to a file and waits for a file; unit 0 returns at once."""

    def run(unit: int) -> bytes:
        import os
        import time

        if not unit:
            return b"0"
        partial_file = folder / f"unfinished-{unit}"
        partial_file.touch()
        try:
            path = folder / f"pid-{unit}.tmp"
            path.write_text(str(os.getpid()))
            path.rename(folder / f"pid-{unit}")
            while not (folder / "go on").exists():
                time.sleep(0.02)
        finally:
            partial_file.unlink()
        return b"%d" % unit

    return run


def read_pid(path: Path) -> int:
    """Return the process id that a unit wrote."""
    wait_until(path.exists)
    return int(path.read_text())


def in_thread(action: Callable[[], object]) -> threading.Thread:
    """Start a thread."""
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_units_run_in_parallel_in_other_processes_and_these_end_with_the_job(
    tmp_path: Path,
) -> None:
    def go_on() -> None:
        pids = [read_pid(tmp_path / f"pid-{unit}") for unit in (1, 2)]
        assert len({*pids, os.getpid()}) == 3
        (tmp_path / "go on").touch()

    thread = in_thread(go_on)
    assert LocalExecutor(workers=2).map(report_and_wait(tmp_path), [1, 2], label="x") == [
        b"1",
        b"2",
    ]
    thread.join()
    assert not any(is_running(read_pid(tmp_path / f"pid-{unit}")) for unit in (1, 2))


def test_the_first_failing_unit_is_reported_although_a_later_one_fails_earlier(
    tmp_path: Path,
) -> None:
    def run(unit: int) -> bytes:
        import time

        if unit == 0:
            while not (tmp_path / "1 has failed").exists():
                time.sleep(0.02)
        if unit == 1:
            (tmp_path / "1 has failed").touch()
        if unit == 2:
            (tmp_path / "2 was started").touch()
        raise errors.InputError(f"unit {unit}")

    with pytest.raises(errors.InputError, match="unit 0") as caught:
        LocalExecutor(workers=2).map(run, [0, 1, 2], label="compact")

    assert caught.value.__notes__ == ["compact: 2 of 3 tasks failed"]
    assert not (tmp_path / "2 was started").exists()


def test_a_function_that_workers_cannot_load_is_an_error(tmp_path: Path) -> None:
    class Unit:
        def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
            return __import__, ("no_such_module",)

    with pytest.raises(errors.PaimonError, match="No module named 'no_such_module'"):
        LocalExecutor(workers=1).map(lambda _: b"", [Unit()], label="compact")


def test_a_worker_that_cannot_be_started_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "get_executable", lambda: str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError, match="missing"):
        LocalExecutor(workers=1).map(lambda _: b"", [0], label="compact")


def test_a_killed_worker_is_an_error_and_the_results_of_others_are_undone(tmp_path: Path) -> None:
    def kill() -> None:
        os.kill(read_pid(tmp_path / "pid-1"), signal.SIGKILL)

    thread, undone = in_thread(kill), list[bytes]()
    with pytest.raises(errors.PaimonError) as caught:
        LocalExecutor(workers=1).map(
            report_and_wait(tmp_path), [0, 1, 2], label="compact db.t", undo=undone.extend
        )
    thread.join()

    assert str(caught.value).startswith(
        "compact db.t: a worker process was killed, usually because the machine was out of memory. "
    )
    assert type(caught.value) is errors.PaimonError
    assert undone == [b"0"]


@pytest.mark.parametrize("way", ["cancel", "interrupt"])
def test_a_cancellation_ends_the_workers_and_their_unfinished_files_and_undoes_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr("paimon_orch.steps.common.worker_process._STOP_SECONDS", 60.0)
    executor, undone, pids = LocalExecutor(workers=1), list[bytes](), list[int]()

    def cancel() -> None:
        pids.append(read_pid(tmp_path / "pid-1"))
        if way == "cancel":
            executor.cancel()
        else:
            os.kill(os.getpid(), signal.SIGINT)

    thread = in_thread(cancel)
    with pytest.raises(errors.CancelledError) as caught:
        executor.map(report_and_wait(tmp_path), [0, 1], label="compact", undo=undone.extend)
    thread.join()

    assert str(caught.value) == "compact: canceled before it finished; nothing was committed."
    assert undone == [b"0"]
    assert not is_running(pids[0])
    assert not (tmp_path / "unfinished-1").exists()
    if way == "cancel":
        with pytest.raises(errors.CancelledError):
            executor.map(lambda _: b"", [1], label="next")


def test_a_worker_that_ignores_the_cancellation_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paimon_orch.steps.common.worker_process._STOP_SECONDS", 0.1)
    executor = LocalExecutor(workers=1)

    def run(_: int) -> bytes:
        import os
        import signal
        import time

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / "pid.tmp").write_text(str(os.getpid()))
        (tmp_path / "pid.tmp").rename(tmp_path / "pid")
        time.sleep(300)
        return b""

    pids = list[int]()

    def cancel() -> None:
        pids.append(read_pid(tmp_path / "pid"))
        executor.cancel()

    thread = in_thread(cancel)
    with pytest.raises(errors.CancelledError):
        executor.map(run, [1], label="compact")
    thread.join()
    assert not is_running(pids[0])


SCRIPT = """
import sys
from pathlib import Path
from paimon_orch.steps.common.local_executor import LocalExecutor

print("main module", flush=True)
folder = Path(sys.argv[1])


def run(unit):
    import os, time
    (folder / "pid.tmp").write_text(str(os.getpid()))
    (folder / "pid.tmp").rename(folder / "pid")
    print("the output of a unit")
    while not (folder / "go on").exists():
        time.sleep(0.02)
    return b"done"


print(LocalExecutor(workers=1).map(run, [1], label="x"))
"""


def start_script(folder: Path, *, from_file: bool) -> subprocess.Popen[str]:
    """Start a script without a guard for ``__main__``, from a file or from standard input."""
    path = folder / "script.py"
    path.write_text(SCRIPT)
    with path.open() as script:
        return subprocess.Popen(
            [sys.executable, str(path) if from_file else "-", str(folder)],
            stdin=None if from_file else script,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )


@pytest.mark.parametrize("from_file", [True, False], ids=["script", "standard input"])
def test_workers_do_not_import_the_main_module_and_do_not_write_to_standard_output(
    tmp_path: Path, *, from_file: bool
) -> None:
    (tmp_path / "go on").touch()
    output, _ = start_script(tmp_path, from_file=from_file).communicate()
    assert output == "main module\n[b'done']\n"


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = start_script(tmp_path, from_file=True)
    pid = read_pid(tmp_path / "pid")
    script.kill()
    script.communicate()
    wait_until(lambda: not is_running(pid))


def test_small_work_starts_no_process() -> None:
    def run(_: int) -> bytes:
        return b"%d" % os.getpid()

    here = [b"%d" % os.getpid()]
    local, small = LocalExecutor(), SMALL_WORK_BYTES
    assert local.map(run, [1], label="x", work_bytes=small) == here
    assert local.map(run, [1], label="x", work_bytes=small + 1) != here


@pytest.mark.parametrize(
    ("units", "memory", "workers"),
    [(9, None, 4), (3, None, 3), (9, 1100 << 20, 2), (9, 0, 1), (1, 1 << 40, 1)],
)
def test_units_cores_and_memory_limit_the_number_of_processes(
    monkeypatch: pytest.MonkeyPatch, units: int, memory: int | None, workers: int
) -> None:
    started = list[int]()
    monkeypatch.setattr(local_executor, "count_cores", lambda: 4)
    monkeypatch.setattr(local_executor, "read_available_memory", lambda: memory)
    monkeypatch.setattr(local_executor, "start_workers", started.append)
    LocalExecutor()._start_workers(units, None)
    assert started == [workers]


def test_ctrl_c_in_small_work_undoes_the_finished_units() -> None:
    def run(unit: int) -> bytes:
        if unit:
            raise KeyboardInterrupt
        return b"0"

    undone: list[bytes] = []
    with pytest.raises(errors.CancelledError):
        LocalExecutor().map(run, [0, 1], label="x", undo=undone.extend, work_bytes=1)
    assert undone == [b"0"]
