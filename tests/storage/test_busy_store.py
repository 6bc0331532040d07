"""A store that refuses each request for the moment: an operation ends within one time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.azurite import build_options
from support.busy_store import CONTENT, run_busy_store
from support.stalling_proxy import run_stalling_proxy

from paimon_orch.errors import StorageError
from paimon_orch.retry_policy import STORE_CALL, STORE_RETRY_SECONDS
from paimon_orch.storage import (
    FileIO,
    client_retries,
    exclusive_create,
    resolve_warehouse,
    store_operation,
)

SECONDS = 1.0
"""The time of an operation in these tests."""
OPTIONS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "s3": ("s3fs", lambda url: {"key": "any", "secret": "any", "endpoint_url": url}),
    "gs": ("gcsfs", lambda url: {"token": "anon", "endpoint_url": url, "project": "any"}),
    "abfs": ("adlfs", build_options),
}
OPERATIONS: dict[str, Callable[[FileIO, str], object]] = {
    "cannot be read": lambda io, path: io.read_bytes(path),
    "cannot be listed": lambda io, path: list(io.list_dir(path)),
    "cannot be written": lambda io, path: io.write(path, b"content"),
    "cannot be deleted": lambda io, path: io.delete(path),
    "is unknown whether the object was created": lambda io, path: io.create(path, b"content"),
}


@pytest.fixture
def impatient_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = replace(STORE_CALL, timeout=SECONDS)
    monkeypatch.setattr(store_operation, "STORE_CALL", policy)
    monkeypatch.setattr(exclusive_create, "STORE_CALL", policy)
    # The probe of the bucket would be refused before the creation.
    monkeypatch.setattr(exclusive_create.ExclusiveCreator, "_verify_store", lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize("action", OPERATIONS)
@pytest.mark.parametrize("scheme", OPTIONS)
def test_an_operation_on_a_busy_store_ends_after_one_time_of_retries(
    scheme: str, action: str, impatient_policy: None
) -> None:
    package, build = OPTIONS[scheme]
    pytest.importorskip(package)
    with run_busy_store() as (url, requests):
        io, root = resolve_warehouse(f"{scheme}://bucket/wh", build(url))
        assert io.store is not None, "the package is imported and the store is opened"
        with pytest.raises(StorageError, match=action) as caught:
            OPERATIONS[action](io, f"{root}/file")

    # Waits of 0.1, 0.2, 0.4 and 0.3 seconds, and one request to find out what a creation did.
    assert 2 <= len(requests) <= 6, requests
    assert caught.value.retry_seconds >= SECONDS, "a unit is not run again"
    assert str(caught.value).count("\n") <= 5


@pytest.mark.slow
@pytest.mark.parametrize("scheme", OPTIONS)
def test_a_store_that_is_busy_for_a_moment_is_read(scheme: str) -> None:
    package, build = OPTIONS[scheme]
    pytest.importorskip(package)
    with run_busy_store(refusals=3) as (url, requests):
        io, root = resolve_warehouse(f"{scheme}://bucket/wh", build(url))
        assert io.read_bytes(f"{root}/file") == CONTENT
    assert len(requests) == 4


@pytest.mark.slow
@pytest.mark.parametrize("scheme", OPTIONS)
def test_an_answer_that_stops_in_its_middle_is_requested_once_more(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, build = OPTIONS[scheme]
    pytest.importorskip(package)
    monkeypatch.setattr("support.busy_store.CONTENT", bytes(100_000))
    monkeypatch.setattr(client_retries, "STORE_ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(store_operation, "STORE_RETRY_SECONDS", 0.4)
    monkeypatch.setattr(store_operation, "STORE_CALL", replace(STORE_CALL, timeout=0.4))
    with (
        run_busy_store(refusals=0) as (url, requests),
        run_stalling_proxy(int(url.rpartition(":")[2])) as proxy,
    ):
        io, root = resolve_warehouse(f"{scheme}://bucket/wh", build(f"http://{proxy.address}"))
        assert io.store is not None
        proxy.stall_after(50_000)
        with pytest.raises(StorageError, match=r"cannot be read: .*; check the address"):
            io.read_bytes(f"{root}/file")

    of_package = scheme == "abfs"  # adlfs requests the rest of an answer itself
    assert len(requests) == 2 + of_package


def test_after_one_call_gave_up_no_other_call_of_the_operation_is_repeated() -> None:
    with store_operation.begin_operation():
        assert store_operation.FailedRequest().draw_wait() is not None
        with store_operation.begin_operation():
            store_operation.give_up()
        assert store_operation.FailedRequest().draw_wait() is None
    assert store_operation.may_repeat()


def test_the_calls_of_an_operation_share_one_time_limit() -> None:
    assert store_operation.limit_call(60) == 60
    with store_operation.begin_operation():
        operation = store_operation._current.get()
        assert operation is not None
        operation.start -= 45
        assert store_operation.limit_call(60) == pytest.approx(15, abs=1)
        operation.start -= 10
        assert store_operation.limit_call(60) == STORE_RETRY_SECONDS
    with store_operation.begin_operation():
        store_operation.give_up()
        assert store_operation.limit_call(60) == STORE_RETRY_SECONDS
        assert store_operation.limit_call(5) == 5


def test_the_packages_of_object_stores_repeat_requests_until_a_unit_is_not_run_again() -> None:
    waits = list[float]()
    while (wait := STORE_CALL.draw_wait(len(waits) + 1, sum(waits))) is not None:
        waits.append(wait)

    assert sum(waits) == pytest.approx(STORE_RETRY_SECONDS)
    assert len(waits) < STORE_CALL.attempts, "the time ends them, not their number"
