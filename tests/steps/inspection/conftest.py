"""Fixtures of the tests of inspections."""

import pytest
from support.commands import Run, build_runner


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command as the entry point does, in this process."""
    return build_runner(monkeypatch, capsys)
