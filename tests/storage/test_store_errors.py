"""Errors of object stores: what they say, and whether the same call may succeed later."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from support.azurite import build_options
from support.local_server import find_free_port

from paimon_orch.errors import InputError, StorageError, is_temporary
from paimon_orch.retry_policy import RetryPolicy
from paimon_orch.storage import (
    FileIO,
    client_retries,
    object_store,
    resolve_warehouse,
    store_operation,
)
from paimon_orch.storage.error_advice import describe_store_error
from paimon_orch.storage.lost_requests import ignore_unsent_requests

PACKAGES: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "s3": ("s3fs", lambda url: {"key": "any", "secret": "any", "endpoint_url": url}),
    "gs": ("gcsfs", lambda url: {"token": "anon", "endpoint_url": url, "project": "any"}),
    "abfs": ("adlfs", build_options),
}


class NoCredentialsError(Exception):
    """Like that of botocore."""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            NoCredentialsError("Unable to locate credentials"),
            (
                "NoCredentialsError: Unable to locate credentials; give the credentials as storage "
                "options, or where the package looks for them"
            ),
        ),
        (
            PermissionError("Access Denied."),
            "PermissionError: Access Denied; check the credentials, and what they permit",
        ),
        (
            OSError(
                "Forbidden: b/bucket/o/file\nreader@example.iam does not have "
                "storage.objects.create access to the object."
            ),
            (
                "OSError: Forbidden: b/bucket/o/file: reader@example.iam does not have "
                "storage.objects.create access to the object; check the credentials, and what they "
                "permit"
            ),
        ),
        (
            TimeoutError(),
            "TimeoutError; check the address of the store, the network, and that the store runs",
        ),
        (OSError(16, "Slow down"), "OSError: [Errno 16] Slow down; try again later"),
        (ValueError("Validation failed:\nno name\nmore"), "ValueError: Validation failed: no name"),
        (KeyError("x"), "KeyError: 'x'"),
    ],
)
def test_an_error_is_one_sentence_with_what_to_do(error: Exception, text: str) -> None:
    assert describe_store_error(error) == text


def test_an_option_that_the_package_does_not_have_is_named() -> None:
    pytest.importorskip("s3fs")
    io, root = resolve_warehouse("s3://bucket/wh", {"acces_key": "any"})
    with pytest.raises(InputError, match="the package of the store has no option 'acces_key'"):
        io.read_bytes(f"{root}/file")


def test_an_address_without_a_scheme_is_that_of_https() -> None:
    pytest.importorskip("s3fs")
    io, _ = resolve_warehouse("s3://bucket/wh", {"endpoint_url": "store.invalid:9000"})
    assert io._fs.endpoint_url == "https://store.invalid:9000"  # type: ignore[attr-defined]


def test_a_warehouse_without_a_bucket_is_refused() -> None:
    pytest.importorskip("s3fs")
    with pytest.raises(InputError, match="must look like s3://bucket/path"):
        resolve_warehouse("s3:///warehouse")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", PACKAGES)
@pytest.mark.parametrize("answers", [True, False], ids=["refuses", "is silent"])
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda io, path: io.read_bytes(path), id="read"),
        pytest.param(lambda io, path: io.write(path, b"1"), id="write"),
        pytest.param(lambda io, path: io.write(path, bytes(12 << 20)), id="large write"),
    ],
)
def test_a_store_that_does_not_answer_is_unavailable_after_a_limited_time(
    scheme: str,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[FileIO, str], object],
    *,
    answers: bool,
) -> None:
    package, build = PACKAGES[scheme]
    pytest.importorskip(package)
    monkeypatch.setattr(client_retries, "STORE_ANSWER_SECONDS", 0.4)
    monkeypatch.setattr(client_retries, "_UPLOAD_BYTES_PER_SECOND", 12 << 20)
    policy = RetryPolicy(attempts=2, min_wait=0.01)
    monkeypatch.setattr(store_operation, "STORE_CALL", policy)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = find_free_port() if answers else silent.getsockname()[1]
        io, root = resolve_warehouse(f"{scheme}://bucket/wh", build(f"http://127.0.0.1:{port}"))
        assert io.store is not None, "the package is imported and the store is opened"
        start = time.monotonic()
        with pytest.raises(StorageError, match="check the address of the store") as caught:
            call(io, f"{root}/file")

    assert time.monotonic() - start < 10
    assert caught.value.is_unavailable
    assert is_temporary(caught.value)


def test_only_errors_of_unsent_requests_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    class ClientRequest:  # like that of aiohttp
        async def write_bytes(self) -> None:
            raise ConnectionResetError("Cannot write to closing transport")

    ClientRequest.write_bytes.__qualname__ = "ClientRequest.write_bytes"

    async def fail() -> None:
        raise ConnectionResetError("of another task")

    async def run() -> None:
        ignore_unsent_requests(asyncio.get_running_loop())
        for coroutine in (ClientRequest().write_bytes(), fail()):
            task = asyncio.create_task(coroutine)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            del task

    with caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.run(run())

    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "of another task"
    ]


def test_the_event_loop_of_a_store_does_not_log_unsent_requests() -> None:
    pytest.importorskip("s3fs")
    io, _ = resolve_warehouse("s3://bucket/wh", {"key": "any", "secret": "any"})
    assert isinstance(io, object_store.FsspecFileIO)
    assert io._fs.loop.get_exception_handler() is not None


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_write_to_a_missing_bucket_is_an_error_of_the_store(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, build = PACKAGES[scheme]
    module = pytest.importorskip(package)
    cls = module.S3FileSystem if scheme == "s3" else module.core.GCSFileSystem

    def refuse(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("The specified bucket does not exist")

    monkeypatch.setattr(cls, "pipe_file", refuse)
    io, root = resolve_warehouse(f"{scheme}://{uuid4()}/wh", build("http://127.0.0.1:1"))
    for write in (io.write, io.create):
        with pytest.raises(StorageError, match="check that the bucket or container exists"):
            write(f"{root}/file", b"content")
