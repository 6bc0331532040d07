"""The protocol between tests and peer processes: one line of JSON per command and per answer.

A prefix distinguishes answers from other output. Scripts in the environments of the peers import
this module too, so it requires only the standard library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_ANSWER_PREFIX = "\x01"
_ANSWER_SECONDS = 300
_SECONDS_TO_END = 60
_MAX_ERROR_CHARACTERS = 3000


class PeerError(Exception):
    """A command failed in the peer. The message is that of the error in the peer."""


def serve(commands: Mapping[str, Callable[..., Any]]) -> None:
    """Answer commands until the input ends; runs in the peer."""
    # Output of libraries is redirected to stderr.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        arguments = json.loads(line)
        command = arguments.pop("do")
        try:
            answer = (
                {"ok": commands[command](**arguments)}
                if command in commands
                else {"error": f"cannot {command}"}
            )
        except BaseException:  # noqa: BLE001 - a panic of Rust is not an Exception
            answer = {"error": traceback.format_exc()}
        answers.write(_ANSWER_PREFIX + json.dumps(answer) + "\n")
        answers.flush()


class PeerProcess:
    """A peer process; the next command restarts it if it exited."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed below

    @property
    def pid(self) -> int | None:
        """The id of the process, or None before the first command and after a failure."""
        return None if self._process is None else self._process.pid

    def ask(self, do: str, **arguments: Any) -> tuple[Any, list[str]]:
        """Return the answer to a command, and the lines printed before it."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(_ANSWER_SECONDS, process.kill)
        late.start()
        printed = []
        try:
            process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            process.stdin.flush()
            while (line := process.stdout.readline()) and not line.startswith(_ANSWER_PREFIX):
                printed.append(line.rstrip("\n"))
        except BrokenPipeError:
            line = ""
        finally:
            late.cancel()
        if not line:
            raise PeerError(f"the peer exited at {do}: {self._end_and_read_errors()}")
        answer = json.loads(line[len(_ANSWER_PREFIX) :])
        if "error" in answer:
            raise PeerError(answer["error"][-_MAX_ERROR_CHARACTERS:])
        return answer["ok"], printed

    def close(self) -> None:
        """End the peer."""
        if self._process is not None:
            try:
                # The peer ends when its input is closed.
                self._process.communicate(timeout=_SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()
            self._process = None
        self._errors.close()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                encoding="utf-8",
            )
        return self._process

    def _end_and_read_errors(self) -> str:
        assert self._process is not None
        self._process.communicate()
        self._process = None
        self._errors.seek(0)
        return self._errors.read()[-_MAX_ERROR_CHARACTERS:]
