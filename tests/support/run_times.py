"""The times of a test run, by folder, its CPU time beside a budget, and its time limit."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from pathlib import PurePosixPath

import pytest

_BUDGET, _LIMIT = "--cpu-budget", "--skip-after"


def add_options(parser: pytest.Parser) -> None:
    """Add the options that print the times, and that limit the time."""
    text = "print the times of the folders, and the CPU time of all processes beside this budget"
    parser.addoption(_BUDGET, type=int, metavar="SECONDS", help=text)
    text = "skip the tests that have not begun after this time"
    parser.addoption(_LIMIT, type=int, metavar="SECONDS", help=text)


def register_plugins(config: pytest.Config) -> None:
    """Register what the options of a run ask for."""
    if config.getoption(_BUDGET) is not None:
        config.pluginmanager.register(RunTimes())
    if (seconds := config.getoption(_LIMIT)) is not None:
        config.pluginmanager.register(TimeLimit(seconds))


class TimeLimit:
    """A plugin that skips the tests that begin after a time, so that a run ends on a slow machine."""

    def __init__(self, seconds: int) -> None:
        self._end = time.monotonic() + seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Skip a test, before its fixtures, once the time is over."""
        if time.monotonic() >= self._end:
            pytest.skip(f"not run: the time of {_LIMIT} was over")


class RunTimes:
    """A plugin that prints the times after the durations of the slowest tests."""

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """Print the sums; a run does not fail if it exceeds its budget."""
        reports = [
            report
            for reports in terminalreporter.stats.values()
            for report in reports
            if isinstance(report, pytest.TestReport)
        ]
        seconds: defaultdict[str, float] = defaultdict(float)
        tests: Counter[str] = Counter()
        for report in reports:
            folder = str(PurePosixPath(report.nodeid.partition("::")[0]).parent)
            seconds[folder] += report.duration
            tests[folder] += report.when == "call"
        terminalreporter.section("times of folders")
        for folder, duration in sorted(seconds.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"{duration:8.1f}s {tests[folder]:6,} tests  {folder}")
        used, budget = sum(os.times()[:4]), config.getoption(_BUDGET)
        terminalreporter.write_line(f"{used:8,.0f}s CPU time of a budget of {budget:,}s")
