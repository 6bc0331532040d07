"""An S3 store inside s3fs, and a clock of requests: without sockets, delays or chance.

Each request takes one tick. Calls that the library starts at the same time run one after the other,
but on the clock they begin together, so the clock tells which requests waited for which.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from email.utils import formatdate
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Self
from unittest import mock
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.httpsession import AIOHTTPSession
from support.request_chains import read_chain
from support.request_log import Request
from support.s3_proxy import describe

from paimon_orch.storage import concurrency
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache

OPTIONS: dict[str, Any] = {"key": "any", "secret": "any", "endpoint_url": "http://memory.invalid"}
_PASSES = 20
"""Of the event loop, in which requests that asyncio starts together arrive."""


@dataclass(slots=True)
class Clock:
    """Counts requests that waited for each other."""

    now: int = 0
    free: list[int] = field(default_factory=list)
    """A heap: when each worker of the pool is free."""

    def reset(self) -> None:
        """Begin again."""
        self.now, self.free = 0, [0] * concurrency.read_concurrency()


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class MemoryS3:
    """The objects of all buckets, and the requests for them."""

    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    page: int = 1_000
    """The largest number of names in one answer."""

    def copy_directory(self, source: Path, bucket_and_prefix: str) -> str:
        """Add the files of a directory; return their URI."""
        for path in source.rglob("*"):
            if path.is_file():
                name = f"{bucket_and_prefix}/{path.relative_to(source)}"
                self.objects[name] = path.read_bytes()
        return f"s3://{bucket_and_prefix}"

    def forget_metadata(self) -> None:
        """Forget what this process has read of it, as a new process knows nothing."""
        clear_metadata_cache()

    async def send(self, _: AIOHTTPSession, request: Any) -> AioAWSResponse:
        """Answer a request of botocore."""
        body = request.body or b""
        body = body if isinstance(body, bytes) else body.read()
        headers = Message()
        for name, value in request.headers.items():
            headers[name] = value if isinstance(value, str) else value.decode()
        path = request.url.partition(OPTIONS["endpoint_url"])[2]
        start = self.clock.now
        answer = self._answer(request.method, path, headers, body)
        for _ in range(_PASSES):
            await asyncio.sleep(0)
        kind, key, part = describe(request.method, path, headers, hashlib.sha256(body).hexdigest())
        self.requests.append(
            Request(
                kind=kind,
                key=key,
                part=part,
                status=answer.status,
                start=start,
                end=start + 1,
                chain=read_chain(headers),
            )
        )
        self.clock.now = max(self.clock.now, start + 1)
        return _build_response(request, answer)

    def _answer(self, method: str, path: str, headers: Message, body: bytes) -> Answer:
        parsed = urlsplit(path)
        query = dict(parse_qsl(parsed.query, keep_blank_values=True))
        key = unquote(parsed.path).removeprefix("/")
        if query.keys() & {"delete", "list-type"}:
            key = key.rstrip("/")  # of a bucket
        if method == "POST" and "delete" in query:
            return self._delete_many(key, body)
        if method == "PUT":
            return self._put(key, headers, body)
        if method == "DELETE":
            self.objects.pop(key, None)
            return Answer(204)
        if method == "GET" and "list-type" in query:
            return self._list(key, query)
        if method in {"GET", "HEAD"} and not (query.keys() - {"x-id"}):
            return self._get(key, headers)
        raise NotImplementedError(f"{method} {path}")

    def _get(self, key: str, headers: Message) -> Answer:
        if key not in self.objects:
            return _refuse(404, "NoSuchKey")
        data = self.objects[key]
        described = _describe_object(data)
        if "Range" not in headers:
            return Answer(200, data, described)
        first, _, last = headers["Range"].removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(data) - int(last))
        end = min(int(last) + 1, len(data)) if first and last else len(data)
        if start >= len(data):
            return _refuse(416, "InvalidRange")
        described["content-range"] = f"bytes {start}-{end - 1}/{len(data)}"
        return Answer(206, data[start:end], described)

    def _put(self, key: str, headers: Message, body: bytes) -> Answer:
        if "If-None-Match" in headers and key in self.objects:
            return _refuse(412, "PreconditionFailed")
        source = headers.get("x-amz-copy-source")
        if source is not None:
            body = self.objects[unquote(source).lstrip("/")]
        self.objects[key] = _decode_chunks(body) if _is_chunked(headers) else body
        described = _describe_object(self.objects[key])
        if source is None:
            return Answer(200, b"", {"etag": described["etag"]})
        result = f"<CopyObjectResult><ETag>{described['etag']}</ETag></CopyObjectResult>"
        return Answer(200, result.encode())

    def _delete_many(self, bucket: str, body: bytes) -> Answer:
        for element in ET.fromstring(body).iter():  # noqa: S314 - botocore wrote it
            if element.tag.endswith("Key"):
                self.objects.pop(f"{bucket}/{element.text}", None)
        return Answer(200, b"<DeleteResult></DeleteResult>")

    def _list(self, bucket: str, query: dict[str, str]) -> Answer:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        base = f"{bucket}/{prefix}"
        limit = min(int(query.get("max-keys", self.page)), self.page)
        after = query.get("continuation-token") or query.get("start-after", "")
        is_encoded = query.get("encoding-type") == "url"
        found: dict[str, str] = {}
        for name in sorted(self.objects):
            if not name.startswith(base):
                continue
            key = name.removeprefix(f"{bucket}/")
            rest, found_delimiter, _ = key[len(prefix) :].partition(delimiter or "\0")
            entry = f"{prefix}{rest}{delimiter}" if found_delimiter else key
            if entry > after and entry not in found:
                encoded = quote(entry) if is_encoded else escape(entry)
                found[entry] = (
                    f"<CommonPrefixes><Prefix>{encoded}</Prefix></CommonPrefixes>"
                    if found_delimiter
                    else _describe_entry(encoded, self.objects[name])
                )
        names = list(found)[:limit]
        is_truncated = len(found) > limit
        return Answer(
            200,
            "".join(
                (
                    '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">',
                    f"<IsTruncated>{str(is_truncated).lower()}</IsTruncated>",
                    f"<KeyCount>{len(names)}</KeyCount>",
                    "<EncodingType>url</EncodingType>" if is_encoded else "",
                    *(
                        f"<NextContinuationToken>{escape(name)}</NextContinuationToken>"
                        for name in names[-1:]
                        if is_truncated
                    ),
                    *(found[name] for name in names),
                    "</ListBucketResult>",
                )
            ).encode(),
        )


class _Body:
    """The body of an answer, as aiohttp has it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.content = self
        self.raw_headers = ()

    async def read(self, size: int = -1) -> bytes:
        end = len(self._data) if size < 0 else size
        data, self._data = self._data[:end], self._data[end:]
        return data

    def at_eof(self) -> bool:
        return not self._data

    def close(self) -> None:
        self._data = b""

    def release(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class _VirtualFuture(Future[Any]):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.end = clock.now

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end of the call on the clock."""
        self._clock.now = max(self._clock.now, self.end)
        return super().result(timeout)


class VirtualPool:
    """Runs each call where it is submitted; on the clock, calls run at the same time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Run a call that begins now, or as soon as a worker is free."""
        clock, now = self._clock, self._clock.now
        clock.now = max(now, heappop(clock.free))
        future = _VirtualFuture(clock)
        try:
            with mock.patch.object(concurrency._thread, "is_worker", new=True, create=True):
                future.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - the caller of result() gets it
            future.set_exception(error)
        future.end = clock.now
        heappush(clock.free, clock.now)
        clock.now = now
        return future


@contextmanager
def run_memory_s3() -> Iterator[MemoryS3]:
    """Send all requests of s3fs in this process to memory, and run the library's calls on a clock."""
    store = MemoryS3()

    async def send(session: AIOHTTPSession, request: Any) -> AioAWSResponse:
        return await store.send(session, request)

    store.clock.reset()
    with (
        mock.patch.object(AIOHTTPSession, "send", send),
        mock.patch.object(concurrency._pool, "executor", VirtualPool(store.clock)),
    ):
        yield store


def _build_response(request: Any, answer: Answer) -> AioAWSResponse:
    body = b"" if request.method == "HEAD" else answer.body
    headers = {"content-length": str(len(answer.body)), **answer.headers}
    response = AioAWSResponse(request.url, answer.status, headers, _Body(body))
    if not request.stream_output:
        response._content = body
    return response


def _refuse(status: int, code: str) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    return Answer(status, body, {"content-type": "application/xml"})


def _describe_object(data: bytes) -> dict[str, str]:
    return {
        "etag": _compute_etag(data),
        "last-modified": formatdate(usegmt=True),
        "content-type": "binary/octet-stream",
    }


def _describe_entry(encoded_key: str, data: bytes) -> str:
    return (
        f"<Contents><Key>{encoded_key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>{escape(_compute_etag(data))}</ETag><Size>{len(data)}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
    )


def _compute_etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _is_chunked(headers: Message) -> bool:
    return "aws-chunked" in headers.get("Content-Encoding", "")


def _decode_chunks(body: bytes) -> bytes:
    """Return the data of a body with lengths and trailers between it."""
    data = bytearray()
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        if not length:
            break
        data += body[:length]
        body = body[length + 2 :]
    return bytes(data)
