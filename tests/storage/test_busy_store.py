"""A store that refuses each request for the moment: an operation ends after a few requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fsspec
import pytest
from support.azurite import build_options
from support.busy_store import run_busy_store

from paimon_orch.errors import StorageError
from paimon_orch.retry_policy import STORE_RETRY_SECONDS
from paimon_orch.storage import FileIO, resolve_warehouse
from paimon_orch.storage.client_retries import limit_retries

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
def test_an_operation_on_a_busy_store_ends_after_a_few_requests(scheme: str, action: str) -> None:
    package, build, attempts = OPTIONS[scheme]
    pytest.importorskip(package)
    with run_busy_store() as (url, requests):
        io, root = resolve_warehouse(f"{scheme}://bucket/wh", build(url))
        assert io.store is not None, "the package is imported and the store is opened"
        with pytest.raises(StorageError, match=f"{root}/file cannot be {action}: ") as caught:
            OPERATIONS[action](io, f"{root}/file")

    assert len(requests) == attempts
    assert str(caught.value).count("\n") <= 5


def test_the_client_of_azure_waits_no_longer_than_an_operation() -> None:
    pytest.importorskip("adlfs")
    store: Any = fsspec.filesystem("abfs", **build_options("http://127.0.0.1:9"))
    limit_retries(store)
    policy = store.service_client._config.retry_policy
    waits = [policy.get_backoff_time({"count": count}) for count in range(policy.total_retries)]

    assert sum(waits) < STORE_RETRY_SECONDS + policy.random_jitter_range * len(waits)
