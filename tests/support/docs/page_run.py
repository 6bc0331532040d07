"""Runs the commands and programs of documentation pages in this process, in their order.

Blocks of ``sh`` and ``console`` have commands. A block of ``python`` continues the program of the
blocks before. A command of ``console`` begins with ``$``, and the lines below it are compared with
what it prints; numbers may differ. Blocks of other languages are not run.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.commands import Run

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DIRECTORY = re.compile(r"(?<![/\w])/(lake|checkpoints)\b")
_NUMBER = re.compile(r"\d[\d,.]*(?: [kMG]?B\b)?")


@dataclass(kw_only=True)
class PageRun:
    """Runs pages in a folder, whose directory ``lake`` replaces ``/lake`` of the pages."""

    folder: Path
    run_command: Run
    monkeypatch: pytest.MonkeyPatch
    skipped: Mapping[str, str]
    """Parts of commands and programs that do not run, with the reason."""
    names: dict[str, Any] = field(default_factory=dict)
    """Names that the programs use and define."""
    printed: str = ""
    """What all commands have printed."""
    unused_skips: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.unused_skips = set(self.skipped)

    def run(self, page: str) -> None:
        """Run the blocks of a page."""
        for language, block in BLOCK.findall(page):
            if language == "python":
                self._run_program(self._localize(block))
            elif language == "sh":
                for line in filter(None, block.replace("\\\n", "").splitlines()):
                    self._run_line(line)
            elif language == "console":
                for command, text in _split_console(block):
                    printed, expected = self._run_line(command), self._localize(text)
                    lake = str(self.folder / "lake")
                    printed = printed.replace(shlex.quote(lake), lake)
                    if expected:
                        assert _NUMBER.sub("#", printed) == _NUMBER.sub("#", expected), printed

    def _localize(self, text: str) -> str:
        """Replace the directories of the pages."""
        return _DIRECTORY.sub(lambda match: str(self.folder / match[1]), text)

    def _run_program(self, code: str) -> None:
        if not self._is_skipped(code):
            with redirect_stdout(io.StringIO()):
                program = compile(code, "page", "exec", dont_inherit=True)
                exec(program, self.names)  # noqa: S102 - a page of ours

    def _run_line(self, line: str) -> str:
        if self._is_skipped(line):
            return ""
        words = [self._localize(word) for word in shlex.split(line, comments=True)]
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.monkeypatch.setenv(name, value)
            return ""
        assert words[0] == "paimon-orch", line
        answer = self.run_command(*words[1:])
        findings = words[1] == "doctor" and answer.error == ""
        assert answer.status == 0 or findings, f"{line}\n{answer.error}"
        self.printed += answer.out
        return answer.out

    def _is_skipped(self, code: str) -> bool:
        matches = {part for part in self.skipped if part in code}
        self.unused_skips -= matches
        return bool(matches)


def _split_console(block: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block with the lines that they print."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected
