"""A plugin of pytest that measures how long tests take, or runs the tests of a list in its order."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from pathlib import Path

import pytest

DURATIONS = "FAULTS_DURATIONS"
SELECTED = "FAULTS_SELECTED"
_GROUP = re.compile(r"@\w+$")  # xdist adds the name of the group


class SelectedTests:
    """Add the durations to one file, and take the selection from another."""

    def __init__(self) -> None:
        self.durations: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep the selected tests, in the order of the list."""
        if file := os.environ.get(SELECTED):
            _check_package(config.rootpath)
            by_name = {item.nodeid: item for item in items}
            names = json.loads(Path(file).read_text(encoding="utf-8"))
            items[:] = [by_name[name] for name in names if name in by_name]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of a phase."""
        self.durations[_GROUP.sub("", report.nodeid)] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the durations, if this is the main process."""
        if (name := os.environ.get(DURATIONS)) and not hasattr(session.config, "workerinput"):
            file = Path(name)
            old = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            file.write_text(json.dumps(old | self.durations), encoding="utf-8")


def _check_package(root: Path) -> None:
    import paimon_orch

    if root not in Path(paimon_orch.__file__).parents:
        message = f"tests of {root} import {paimon_orch.__file__}"
        raise pytest.UsageError(message)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    config.pluginmanager.register(SelectedTests())
