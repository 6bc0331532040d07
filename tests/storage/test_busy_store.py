"""A store that refuses each request for the moment: an operation ends soon, with one sentence."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from support.azurite import build_options
from support.busy_store import run_busy_store

from paimon_orch.errors import StorageError
from paimon_orch.retry_policy import STORE_RETRY_SECONDS
from paimon_orch.storage import FileIO, resolve_warehouse

_SECONDS_OF_A_SLOW_MACHINE = 5
OPTIONS: dict[str, tuple[str, Callable[[str], dict[str, Any]], int]] = {
    "s3": ("s3fs", lambda url: {"key": "any", "secret": "any", "endpoint_url": url}, 5),
    "gs": ("gcsfs", lambda url: {"token": "anon", "endpoint_url": url, "project": "any"}, 4),
    "abfs": ("adlfs", build_options, 4),
}
OPERATIONS: dict[str, Callable[[FileIO, str], object]] = {
    "read": lambda io, path: io.read_bytes(path),
    "written": lambda io, path: io.write(path, b"content"),
    "deleted": lambda io, path: io.delete(path),
}


@pytest.mark.slow
@pytest.mark.parametrize("action", OPERATIONS)
@pytest.mark.parametrize("scheme", OPTIONS)
def test_an_operation_on_a_busy_store_ends_with_one_sentence(scheme: str, action: str) -> None:
    package, build, attempts = OPTIONS[scheme]
    pytest.importorskip(package)
    with run_busy_store() as (url, requests):
        io, root = resolve_warehouse(f"{scheme}://bucket/wh", build(url))
        assert io.store is not None, "the package is imported and the store is opened"
        start = time.monotonic()
        with pytest.raises(StorageError, match=f"{root}/file cannot be {action}: ") as caught:
            OPERATIONS[action](io, f"{root}/file")
        seconds = time.monotonic() - start

    assert len(requests) == attempts
    assert seconds < STORE_RETRY_SECONDS + _SECONDS_OF_A_SLOW_MACHINE
    assert str(caught.value).count("\n") <= 5
