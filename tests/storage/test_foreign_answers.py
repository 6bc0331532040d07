"""Answers that no store gives: pages of gateways, and listings that never end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.faulty_server import Answer, FaultyServer, run_faulty_server

from paimon_orch.errors import StorageError
from paimon_orch.storage import FileIO, resolve_warehouse

PAGE = Answer(
    body=b"<html><body>Sign in to use this network</body></html>",
    headers={"Content-Type": "text/html"},
)
S3_LISTING = b"""<?xml version="1.0"?><ListBucketResult><Name>bucket</Name>
<IsTruncated>true</IsTruncated><NextContinuationToken>next</NextContinuationToken>
<Contents><Key>wh/d/file</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified>
<ETag>"1"</ETag></Contents></ListBucketResult>"""
GCS_LISTING = {
    "kind": "storage#objects",
    "nextPageToken": "next",
    "items": [{"name": "wh/d/file", "bucket": "bucket", "size": "1"}],
}


NO_BUCKET = Answer(
    status=404,
    body=b"<Error><Code>NoSuchBucket</Code><Message>none</Message></Error>",
    headers={"Content-Type": "application/xml"},
)


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with run_faulty_server() as server:
        yield server


def open_s3(server: FaultyServer) -> tuple[FileIO, str]:
    pytest.importorskip("s3fs")
    options = {"key": "any", "secret": "any", "endpoint_url": server.uri}
    return resolve_warehouse("s3://bucket/wh", options)


@pytest.mark.parametrize(
    "call",
    [
        lambda io, root: list(io.list_dir(f"{root}/d")),
        lambda io, root: io.list_tree(f"{root}/d"),
        lambda io, root: io.list_few(f"{root}/d", 10),
        lambda io, root: io.read_bytes(f"{root}/file"),
        lambda io, root: io.size(f"{root}/file"),
        lambda io, root: io.write(f"{root}/file", b"content"),
        lambda io, root: io.create(f"{root}/file", b"content"),
    ],
    ids=["list", "list all", "list few", "read", "look up", "write", "create"],
)
def test_a_page_of_a_gateway_is_no_answer_of_s3(
    server: FaultyServer, call: Callable[[FileIO, str], Any]
) -> None:
    io, root = open_s3(server)
    server.answers = [PAGE]

    with pytest.raises(StorageError, match="not that of an S3 store; check endpoint_url"):
        call(io, root)


def test_a_bucket_that_does_not_exist_has_no_files(server: FaultyServer) -> None:
    io, root = open_s3(server)
    server.answers = [NO_BUCKET]

    assert list(io.list_dir(f"{root}/d")) == []
    assert io.list_few(f"{root}/d", 10) == []


@pytest.mark.parametrize("lists_all", [False, True])
def test_a_listing_that_returns_the_same_page_again_ends_in_s3(
    server: FaultyServer, *, lists_all: bool
) -> None:
    io, root = open_s3(server)
    server.answers = [Answer(body=S3_LISTING, headers={"Content-Type": "application/xml"})]

    with pytest.raises(StorageError, match="the same page of a listing again"):
        io.list_tree(f"{root}/d") if lists_all else list(io.list_dir(f"{root}/d"))

    assert len(server.requests) <= 4


@pytest.mark.slow
def test_a_listing_that_returns_the_same_page_again_ends_in_gcs(server: FaultyServer) -> None:
    pytest.importorskip("gcsfs")
    options = {"token": "anon", "project": "any", "endpoint_url": server.uri}
    io, root = resolve_warehouse("gs://bucket/wh", options)
    server.answers = [Answer(body=GCS_LISTING)]

    with pytest.raises(StorageError, match="the same page of a listing again"):
        io.list_tree(f"{root}/d")

    assert len(server.requests) <= 4
