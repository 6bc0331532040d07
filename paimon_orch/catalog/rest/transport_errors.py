"""Errors of requests that got no complete answer, without the texts of the HTTP library."""

import os
import ssl
from collections.abc import Iterator

import requests
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.exceptions import TimeoutError as HttpTimeoutError

from paimon_orch.catalog.rest.rest_errors import (
    RequestLine,
    RestAnswerError,
    RestError,
    RestInputError,
    RestServerError,
    RestUnavailableError,
)

_NOT_SENT = (NewConnectionError, ConnectTimeoutError, requests.ConnectTimeout)
_NOT_SENDABLE = (
    requests.exceptions.InvalidHeader,
    requests.exceptions.InvalidJSONError,
    requests.exceptions.InvalidSchema,
    requests.exceptions.InvalidURL,
    requests.exceptions.MissingSchema,
)


def build_transport_error(request: RequestLine, error: requests.RequestException) -> RestError:
    """Return our error; its message has nothing of the original, which may show credentials."""
    causes = list(_walk_causes(error))
    if any(isinstance(cause, _NOT_SENDABLE) for cause in causes):
        return RestInputError(
            f"{request} cannot be sent: check the catalog options 'uri', "
            "'header.*', and the proxies of the environment"
        )
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return RestInputError(
            f"{request} was not sent: the certificate of the server is not trusted; for an own "
            "certificate authority set the environment variable REQUESTS_CA_BUNDLE to its file"
        )
    if any(isinstance(cause, _NOT_SENT) for cause in causes):
        return RestUnavailableError(
            f"{request} was not sent: {_describe_cause(causes)}; check the catalog option 'uri' "
            "and whether the server runs"
        )
    failure: RestError
    if isinstance(error, requests.exceptions.ContentDecodingError):
        failure = RestAnswerError(str(request), "the answer cannot be decompressed")
    else:
        effect = "" if request.is_read else "; the server may have carried out the request"
        failure = RestServerError(f"{request} failed: {_describe_cause(causes)}{effect}")
    failure.outcome_unknown = not request.is_read
    return failure


def _describe_cause(causes: list[BaseException]) -> str:
    if any(isinstance(cause, NameResolutionError) for cause in causes):
        return "the host name cannot be resolved"
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return "the TLS connection failed; does the server use https, and TLS 1.2 or newer?"
    codes = (cause.errno for cause in causes if isinstance(cause, OSError) and cause.errno)
    code = next(codes, None)
    if code is not None:
        return os.strerror(code)
    # urllib3 derives the error of a refused connection from that of a timeout
    if any(isinstance(cause, (requests.Timeout, HttpTimeoutError)) for cause in causes):
        return "the server did not answer in time"
    return "the connection was closed"


def _walk_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its causes and contexts, and the errors among their arguments."""
    pending: list[BaseException] = [error]
    seen = set[int]()
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        related = (current.__cause__, current.__context__, getattr(current, "reason", None))
        nested = (*related, *current.args)
        pending.extend(cause for cause in nested if isinstance(cause, BaseException))
