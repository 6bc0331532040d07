"""Blocks one Spark task at the opening of a file or the listing of a directory, for tests.

The workers' Python imports this module. Python calls audit hooks before each file is opened. The
first task of all processes that reaches the requested place writes the process id of its executor,
and waits there until it is killed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

CONTROL = Path(__file__).with_name("control")
ASKED, TAKEN, HELD = (CONTROL / name for name in ("asked", "taken", "held"))
_POLL_SECONDS = 0.02

_busy = False
_asked = ""
_seen = 0
_installed = False


def ask(event: str, pattern: str, count: int) -> None:
    """Request that a task is blocked at the n-th matching file or directory; called by the test.

    The pattern is searched in the path, which is followed by the mode for opened files: ``/a/b x``.
    """
    for old in (ASKED, TAKEN, HELD):
        old.unlink(missing_ok=True)
    new = ASKED.with_suffix(".new")
    new.write_text(json.dumps([event, pattern, count, time.time_ns()]))
    new.replace(ASKED)


def install() -> None:
    """Add the audit hook; called when the workers' Python starts, maybe more than once."""
    global _installed  # noqa: PLW0603 - a hook cannot be removed
    if not _installed:
        _installed = True
        sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    global _busy  # noqa: PLW0603 - a hook has no other memory
    if _busy or event not in ("open", "os.scandir") or not os.path.exists(ASKED):  # noqa: PTH110
        return
    _busy = True
    try:
        place, *mode = arguments[:2]
        if isinstance(place, int):  # a directory that is open
            place = os.readlink(f"/proc/self/fd/{place}")  # noqa: PTH115
        if _matches_request(event, " ".join(map(str, (place, *mode)))):
            _hold()
    finally:
        _busy = False


def _matches_request(event: str, path: str) -> bool:
    global _asked, _seen  # noqa: PLW0603
    try:
        text = ASKED.read_text()
    except FileNotFoundError:  # another task was faster
        return False
    if text != _asked:  # a new request resets the count
        _asked, _seen = text, 0
    request_id, pattern, count, _ = json.loads(text)
    _seen += event == request_id and re.search(pattern, path) is not None
    return bool(_seen >= count)


def _hold() -> None:
    try:
        ASKED.rename(TAKEN)
    except FileNotFoundError:
        return
    # A worker is a child of Spark's daemon, which is a child of the executor.
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    new = HELD.with_suffix(".new")
    new.write_text(daemon.rpartition(")")[2].split()[1])
    new.replace(HELD)
    while True:
        time.sleep(_POLL_SECONDS)
