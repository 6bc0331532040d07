"""The times of a test run, by folder, and its CPU time beside a budget."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import PurePosixPath

import pytest

OPTION = "--cpu-budget"


def add_option(parser: pytest.Parser) -> None:
    """Add the option that prints the times."""
    text = "print the times of the folders, and the CPU time of all processes beside this budget"
    parser.addoption(OPTION, type=int, metavar="SECONDS", help=text)


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
        used, budget = sum(os.times()[:4]), config.getoption(OPTION)
        terminalreporter.write_line(f"{used:8,.0f}s CPU time of a budget of {budget:,}s")
