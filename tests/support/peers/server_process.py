"""Servers in Java: processes that print a line when they are ready, and end with their input."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from support.peers.environments import PeerCommand

_START_SECONDS = 120


class ServerProcess:
    """A server whose working directory is a folder, in which its errors are written to ``log``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def start(self, command: PeerCommand, arguments: Sequence[str]) -> str:
        """Start the process, and return its first line."""
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [*command.command, *arguments],
                env=command.environment,
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                start_new_session=True,
            )
        late = threading.Timer(_START_SECONDS, self._process.kill)
        late.start()
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        late.cancel()
        if not answer:
            self.kill()
            raise AssertionError(self._read_log())
        return answer

    def ask(self, command: str) -> str:
        """Write a line to the process, and return its answer of one line."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(command + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, self._read_log()
        return answer

    def kill(self) -> None:
        """Kill the process; it can be started again."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def _read_log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-3000:]
