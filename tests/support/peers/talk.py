"""How tests talk to a peer that stays open: one command a line of JSON, one answer a line, behind a mark.

The scripts that run inside the peers' own environments import this module too: it needs the standard library alone.
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
    """A peer failed at what it was asked; the text holds its own words."""


def serve(commands: Mapping[str, Callable[..., Any]]) -> None:
    """Answer commands until the input ends; runs in the peer."""
    # What libraries print goes to the error output.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        do = asked.pop("do")
        try:
            answer = {"ok": commands[do](**asked)} if do in commands else {"error": f"cannot {do}"}
        except BaseException:  # noqa: BLE001 - a panic of Rust is no Exception
            answer = {"error": traceback.format_exc()}
        answers.write(_ANSWER_PREFIX + json.dumps(answer) + "\n")
        answers.flush()


class PeerProcess:
    """A running peer. One that died is started again by the next command."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed below

    @property
    def pid(self) -> int | None:
        """The process that answered last, if it still runs."""
        return None if self._process is None else self._process.pid

    def ask(self, do: str, **arguments: Any) -> tuple[Any, list[str]]:
        """Return the answer to a command, and the lines that it printed before."""
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
            raise PeerError(f"the peer died at {do}: {self._end_and_read_errors()}")
        answer = json.loads(line[len(_ANSWER_PREFIX) :])
        if "error" in answer:
            raise PeerError(answer["error"][-_MAX_ERROR_CHARACTERS:])
        return answer["ok"], printed

    def close(self) -> None:
        """End the peer."""
        if self._process is not None:
            try:
                self._process.communicate(timeout=_SECONDS_TO_END)  # closes its input
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
