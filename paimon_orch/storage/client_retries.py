"""Lets the packages of object stores repeat their requests by ``STORE_CALL``.

The library sees only the last answer, and an upload in parts can be repeated only part by part. So
the packages repeat requests, but the waits and the time are those of the operation. With their
defaults, botocore repeats a request for 10 seconds, gcsfs for 34 and azure-storage-blob for 83. For
a server that does not answer, gcsfs would wait without end, and azure-storage-blob for 60 seconds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from paimon_orch.retry_policy import STORE_ANSWER_SECONDS, STORE_CALL, STORE_CONNECT_SECONDS
from paimon_orch.storage.s3_answers import check_answers
from paimon_orch.storage.store_operation import FailedRequest, give_up

T = TypeVar("T")

NO_BOTOCORE_RETRIES = {"mode": "standard", "total_max_attempts": 1}
"""The setting `retries` of botocore with which :func:`limit_retries` decides on repetitions.

The mode `legacy` would raise the first error before the others that decide are asked.
"""
_UPLOAD_BYTES_PER_SECOND = 128 << 10
_FAILED_REQUEST, _WAIT = "paimon_orch_failed_request", "paimon_orch_wait"
_BUSY_STATUS = frozenset({429, 500, 502, 503, 504, 509})
_BUSY_CODES = frozenset(
    {
        "BandwidthLimitExceeded",
        "InternalError",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)


def add_time_limits(package: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a package with limits of a connection and of an answer, if it has any.

    An answer that has begun may take any time, as long as some of it arrives.
    """
    if package == "s3fs":
        config = options.get("config_kwargs") or {}
        if not isinstance(config, Mapping):  # s3fs refuses it
            return dict(options)
        limits = {"connect_timeout": STORE_CONNECT_SECONDS, "read_timeout": STORE_ANSWER_SECONDS}
        return {**options, "config_kwargs": limits | dict(config)}
    if package == "gcsfs":
        from aiohttp import ClientTimeout

        timeout = ClientTimeout(
            total=None, sock_connect=STORE_CONNECT_SECONDS, sock_read=STORE_ANSWER_SECONDS
        )
        return {"requests_timeout": timeout} | dict(options)  # the default is none
    return dict(options)


async def _limit_upload(sending: Awaitable[T], size: int) -> T:
    """Wait for a request that sends a number of bytes; raise ``TimeoutError``, and do not repeat it.

    aiohttp, which all packages use, limits the time of an answer only when all bytes are sent.
    """
    seconds = 2 * STORE_ANSWER_SECONDS + size / _UPLOAD_BYTES_PER_SECOND
    try:
        return await asyncio.wait_for(sending, seconds)
    except TimeoutError:
        give_up()
        raise


def limit_retries(fs: Any) -> None:
    """Let the client of an opened store repeat requests by the policy."""
    package = type(fs).__module__.partition(".")[0]
    if package == "s3fs":
        _limit_s3(fs)
    elif package == "adlfs":
        # adlfs has no options for all requests; all clients of blobs share these parts of this one
        policy = getattr(getattr(fs.service_client, "_config", None), "retry_policy", None)
        if policy is not None:
            _limit_azure(policy)
        transport = getattr(getattr(fs.service_client, "_pipeline", None), "_transport", None)
        if (limits := getattr(transport, "connection_config", None)) is not None:
            limits.timeout, limits.read_timeout = STORE_CONNECT_SECONDS, STORE_ANSWER_SECONDS
            _limit_azure_uploads(transport)


def _limit_s3(fs: Any) -> None:
    """Ask :func:`_decide_on_s3` before botocore, unless the user has set how botocore repeats."""
    if fs.retries == 1:  # the store was opened before
        return
    fs.retries = 1  # s3fs would repeat all attempts of botocore
    repeats_by_policy = (fs.config_kwargs or {}).get("retries") == NO_BOTOCORE_RETRIES

    def ask_before(open_client: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def open_and_register(*args: Any, **kwargs: Any) -> Any:
            client = await open_client(*args, **kwargs)
            if repeats_by_policy:
                client.meta.events.register_first(
                    "needs-retry.s3", _decide_on_s3, unique_id="paimon-orch-retries"
                )
            check_answers(client.meta.events)
            # The server would have no limit of time to ask for the bytes.
            client.meta.events.register(
                "before-call.s3", _send_at_once, unique_id="paimon-orch-send"
            )
            _limit_s3_uploads(client._endpoint.http_session)  # noqa: SLF001
            return client

        return open_and_register

    fs.set_session = ask_before(fs.set_session)
    fs.get_s3 = ask_before(fs.get_s3)  # with cache_regions, there is a client for each region


def _send_at_once(*, params: Any, **_: Any) -> None:
    """Send the bytes of a request without waiting until the server asks for them."""
    params["headers"].pop("Expect", None)


def _limit_s3_uploads(session: Any) -> None:
    async def send_in_time(request: Any) -> Any:
        sending = type(session).send(session, request)
        if not request.body:
            return await sending
        from botocore.exceptions import ReadTimeoutError

        names = ("X-Amz-Decoded-Content-Length", "Content-Length")
        size = next((int(request.headers[name]) for name in names if name in request.headers), 0)
        try:
            return await _limit_upload(sending, size)
        except TimeoutError as error:
            raise ReadTimeoutError(endpoint_url=request.url, error=error) from error

    session.send = send_in_time


def _limit_azure_uploads(transport: Any) -> None:
    async def send_in_time(request: Any, **options: Any) -> Any:
        sending = type(transport).send(transport, request, **options)
        if not request.data:
            return await sending
        from azure.core.exceptions import ServiceResponseTimeoutError

        try:
            size = int(request.headers.get("Content-Length", 0))
            return await _limit_upload(sending, size)
        except TimeoutError as error:
            raise ServiceResponseTimeoutError("Timeout while sending", error=error) from error

    transport.send = send_in_time


def _decide_on_s3(
    *, request_dict: Any, response: Any = None, caught_exception: Any = None, **_: Any
) -> float | bool | None:
    """Return the wait before a request is repeated, False to give up, or None for no opinion.

    A handler of the event `needs-retry` of botocore. Another one follows redirections to a region.
    """
    from botocore.exceptions import ConnectionError as BotoConnectionError
    from botocore.exceptions import HTTPClientError

    if response is None:
        is_busy = isinstance(caught_exception, (BotoConnectionError, HTTPClientError))
    else:
        answer, parsed = response
        code = parsed.get("Error", {}).get("Code") if isinstance(parsed, dict) else None
        is_busy = answer.status_code in _BUSY_STATUS or code in _BUSY_CODES
    if not is_busy:
        return None
    wait = request_dict["context"].setdefault(_FAILED_REQUEST, FailedRequest()).draw_wait()
    return False if wait is None else wait


def _limit_azure(policy: Any) -> None:
    """Replace the waits and counts of a retry policy of azure-storage-blob."""
    if "increment" in vars(policy):  # the store was opened before
        return
    increment = policy.increment

    def count_attempt(settings: dict[str, Any], *args: Any, **kwargs: Any) -> bool:
        wait = settings.setdefault(_FAILED_REQUEST, FailedRequest()).draw_wait()
        settings[_WAIT] = wait
        return wait is not None and increment(settings, *args, **kwargs)

    policy.increment = count_attempt
    policy.get_backoff_time = lambda settings: settings[_WAIT]
    for kind in ("total", "connect", "read", "status"):
        setattr(policy, f"{kind}_retries", STORE_CALL.attempts)


@cache
def find_gcs_class(cls: Any) -> Any:
    """Return the class of gcsfs that uses only the JSON API, and repeats requests by the policy.

    Since 2026.10 the class that gcsfs registers first asks a gRPC service for the kind of a bucket,
    and waits for its answer for up to 60 seconds in each process. The answer matters only for
    directories, which this library does not use, and for zonal buckets, in which it does not write.
    """
    if cls.__module__.partition(".")[0] != "gcsfs":
        return cls
    from gcsfs.core import GCSFileSystem
    from gcsfs.retry import is_retriable

    request = getattr(GCSFileSystem._request, "__wrapped__", None)  # noqa: SLF001
    if request is None:  # another release of gcsfs; it keeps its six attempts
        return GCSFileSystem

    async def repeat_request(self: Any, *args: Any, **kwargs: Any) -> Any:
        failed: FailedRequest | None = None
        while True:
            try:
                data = kwargs.get("data")
                sending = request(self, *args, **kwargs)
                return await (_limit_upload(sending, len(data)) if data else sending)
            except Exception as error:
                failed = failed or FailedRequest()
                wait = failed.draw_wait() if is_retriable(error) else None
                if wait is None:
                    raise
                await asyncio.sleep(wait)

    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = await GCSFileSystem._call(self, *args, **kwargs)  # noqa: SLF001
        token = kwargs.get("pageToken")
        if token is not None and isinstance(answer, dict) and answer.get("nextPageToken") == token:
            raise ConnectionError("the store returned the same page of a listing again")
        return answer

    names = {
        "_request": repeat_request,
        "_call": call,
        "__module__": GCSFileSystem.__module__,
    }
    return type(GCSFileSystem.__name__, (GCSFileSystem,), names)
