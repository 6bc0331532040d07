"""Count what the kill tests do: python benchmarks/kills.py [--store].

Runs the tests that kill processes, and counts the kills. ``--store`` writes the figures to
kills.json, from which docs/trust.md is generated.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pendulum
import pytest
import typer

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_name("kills.json")
TESTS = [
    "catalog/test_kill.py",
    "steps/test_kill.py",
    "steps/test_kill_refs.py",
    "steps/test_kill_rewrites.py",
    "steps/test_kill_row_level.py",
]


class KillCounter:
    """Counts the kills of each file of tests."""

    def __init__(self) -> None:
        self.killed = Counter[str]()
        self._file = ""

    def count(self, run_killed: Callable[..., bool]) -> Callable[..., bool]:
        """Return a function that also counts the kills of ``run_killed``."""

        def run_counted(*arguments: Any) -> bool:
            ended = run_killed(*arguments)
            self.killed[self._file] += not ended
            return ended

        return run_counted

    def pytest_sessionstart(self) -> None:
        """Count from now on; tests import the function when they are collected."""
        from support import kill

        kill.run_killed = self.count(kill.run_killed)

    def pytest_runtest_logstart(self, location: tuple[str, int | None, str]) -> None:
        """Note the file of the test that starts."""
        self._file = location[0].removeprefix("tests/")


def main(
    *,
    store: Annotated[
        bool, typer.Option("--store", help="Write the figures to kills.json.")
    ] = False,
) -> None:
    """Run the kill tests and print the figures."""
    counter = KillCounter()
    files = [str(ROOT / "tests" / file) for file in TESTS]
    code = pytest.main(["-q", f"--rootdir={ROOT}", *files], [counter])
    if code:
        sys.exit(code)
    killed = {file: counter.killed[file] for file in TESTS}
    document = {"day": pendulum.now("UTC").to_date_string(), "killed": killed}
    typer.echo(json.dumps(document, indent=2))
    if store:
        RESULTS.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
