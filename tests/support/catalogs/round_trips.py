"""Counts the requests to catalogs and the operations on local files."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa

from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.metastore.hive_client import HiveClient
from paimon_orch.storage import LocalFileIO

_FILE_OPERATIONS = [
    name
    for name in vars(LocalFileIO)
    if not name.startswith("_") and name != "confine" and callable(getattr(LocalFileIO, name))
]


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """What was sent while it was counted."""

    requests: list[str] = field(default_factory=list)
    """HTTP requests (`GET t/snapshot`), Thrift methods, or SQL statements by their first word."""
    files: list[str] = field(default_factory=list)
    """Operations on files (`exists snapshot-1`)."""


class _Depth(threading.local):
    """How many operations on files call each other."""

    files = 0


@contextmanager
def count_round_trips() -> Iterator[RoundTrips]:
    """Count in all threads of this process."""
    trips, depth = RoundTrips(), _Depth()

    def note_statement(*arguments: Any) -> None:
        trips.requests.append(arguments[2].split()[0])

    def note_http(_: object, request: Any, __: object) -> None:
        name = request.path.partition("/tables/")[2] or request.path
        trips.requests.append(f"{request.method} {name}")

    def note_call(_: object, method: str, __: object) -> None:
        trips.requests.append(method)

    with pytest.MonkeyPatch.context() as patch:
        _wrap(patch, RestClient, "_send", note_http)
        _wrap(patch, HiveClient, "_call", note_call)
        for operation in _FILE_OPERATIONS:

            def note_file(_: object, path: str, *__: object, name: str = operation) -> None:
                if not depth.files:
                    trips.files.append(f"{name} {path.rpartition('/')[2]}")
                depth.files += 1

            def note_end() -> None:
                depth.files -= 1

            _wrap(patch, LocalFileIO, operation, note_file, note_end)
        sa.event.listen(sa.Engine, "before_cursor_execute", note_statement)
        try:
            yield trips
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", note_statement)


def watch_requests(note: Callable[[], None]) -> None:
    """Call a function before and after each request of this process, until it ends."""

    def note_event(*_: object) -> None:
        note()

    patch = pytest.MonkeyPatch()
    for owner, name in ((RestClient, "_send"), (HiveClient, "_call")):
        _wrap(patch, owner, name, note_event, note_event)
    sa.event.listen(sa.Engine, "before_cursor_execute", note_event)
    sa.event.listen(sa.Engine, "after_cursor_execute", note_event)


def _wrap(
    patch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    note: Callable[..., None],
    note_end: Callable[[], None] = lambda: None,
) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        note(*arguments, *named.values())
        try:
            return original(*arguments, **named)
        finally:
            note_end()

    patch.setattr(owner, name, wrapper)
