"""Replaces functions of the module `time` for one module instead of for all threads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest


def replace_time(monkeypatch: pytest.MonkeyPatch, module: str, **functions: object) -> None:
    """Replace `functions` of `time` in `module`.

    A replaced `time.sleep` would also be called by other threads, such as those of py4j.
    """
    replaced = SimpleNamespace(**{**vars(time), **functions})
    monkeypatch.setattr(sys.modules[module], "time", replaced)


def replace_waits(monkeypatch: pytest.MonkeyPatch, wait: Callable[[float], object]) -> None:
    """Call `wait` with the seconds instead of waiting before an operation is repeated."""
    replace_time(monkeypatch, "tenacity.nap", sleep=wait)
