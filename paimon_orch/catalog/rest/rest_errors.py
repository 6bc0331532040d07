"""The errors of requests to a REST catalog. Their messages contain no credentials."""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from paimon_orch.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CatalogUnavailableError,
    CorruptFileError,
    InputError,
    NotFoundError,
    PaimonError,
    StorageError,
    UnsupportedError,
)

MAX_RETRY_AFTER = 60.0
"""The longest wait that a server may ask for, in seconds."""
_MAX_MESSAGE = 500
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_UNKNOWN_OUTCOME = frozenset({408, 500, 502, 503, 504})
_ADVICE = {
    400: "the server refuses the request as invalid",
    401: "check the catalog options 'token' or 'dlf.*': the server does not accept them",
    403: "the user of these credentials needs a permission",
    405: "the server does not implement this request",
    429: "the server is overloaded; retry later",
    501: "the server does not implement this request",
}


class RestError(PaimonError):
    """A failed request to a REST catalog; also an instance of a type of :mod:`paimon_orch.errors`.

    :ivar status: the code of the error in the answer, or None without an answer
    :ivar resource_type: what does not exist, exists or is refused: ``TABLE``, ``SNAPSHOT``, ...
    :ivar resource_name: its name, as the server writes it
    :ivar outcome_unknown: whether the server may have carried out the request
    :ivar retry_after: how long the server asks to wait before a retry, in seconds
    """

    status: int | None = None
    resource_type: str | None = None
    resource_name: str | None = None
    outcome_unknown: bool = False
    retry_after: float = 0.0


class RestNotFoundError(RestError, NotFoundError):
    """A resource does not exist (404)."""


class RestAccessDeniedError(RestError, AccessDeniedError):
    """The server refuses the credentials (401) or the action (403)."""


class RestAlreadyExistsError(RestError, AlreadyExistsError):
    """A resource exists already, or has changed (409)."""


class RestInputError(RestError, InputError):
    """The server refuses the request, or it cannot be sent with these options."""


class RestUnsupportedError(RestError, UnsupportedError):
    """The server does not implement the request (501, 405)."""


class RestUnavailableError(RestError, CatalogUnavailableError):
    """The server cannot be reached or is overloaded; it did not carry out the request."""


class RestServerError(RestError, StorageError):
    """The server failed or did not answer; it may have carried out the request."""


class RestAnswerError(RestError, CorruptFileError):
    """The answer of the server violates the protocol."""

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.reason), dict(self.__dict__)


@dataclass(frozen=True, slots=True)
class RequestLine:
    """What was asked, for messages."""

    method: str
    url: str
    """The URL without its query."""

    def __str__(self) -> str:
        return f"{self.method} {self.url}"

    @property
    def is_read(self) -> bool:
        """Return whether the request changes nothing."""
        return self.method == "GET"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAnswer:
    """The answer to a request that failed."""

    status: int
    headers: Mapping[str, str]
    """Header names are in lower case."""
    body: bytes


def build_status_error(
    request: RequestLine, answer: FailedAnswer, redact: Callable[[str], str]
) -> RestError:
    """Return the error of an answer whose status is not a success."""
    fields = _parse_error_body(answer.body)
    code = fields.get("code")
    status = code if type(code) is int and 400 <= code <= 599 else answer.status
    error = _find_type(status)(_describe(request, answer, status, fields, redact))
    error.status = status
    error.resource_type = _read_name(fields, "resourceType", redact)
    error.resource_name = _read_name(fields, "resourceName", redact)
    error.outcome_unknown = not request.is_read and isinstance(error, RestServerError)
    error.retry_after = parse_retry_after(answer.headers.get("retry-after", ""))
    return error


def _find_type(status: int) -> type[RestError]:
    exact: dict[int, type[RestError]] = {
        401: RestAccessDeniedError,
        403: RestAccessDeniedError,
        404: RestNotFoundError,
        405: RestUnsupportedError,
        409: RestAlreadyExistsError,
        429: RestUnavailableError,
        501: RestUnsupportedError,
    }
    if status in exact:
        return exact[status]
    if status >= 500 or status in _UNKNOWN_OUTCOME:
        return RestServerError
    return RestInputError


def _parse_error_body(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _describe(
    request: RequestLine,
    answer: FailedAnswer,
    status: int,
    fields: Mapping[str, Any],
    redact: Callable[[str], str],
) -> str:
    details = [f"status {status}"]
    others = (value for name, value in answer.headers.items() if "request-id" in name)
    request_id = answer.headers.get("x-request-id") or next(others, None)
    if request_id:
        details.append(f"request id {clean_text(redact(request_id), 100)}")
    message = fields.get("message")
    said = f": {clean_text(redact(message))}" if isinstance(message, str) and message else ""
    advice = _ADVICE.get(status)
    if 300 <= status < 400:
        advice = "the server redirects this request; redirects are not followed, change 'uri'"
    elif status >= 500 and advice is None and not request.is_read:
        advice = "the server may have carried out the request"
    return f"{request} failed ({', '.join(details)}){said}{f'; {advice}' if advice else ''}"


def _read_name(fields: Mapping[str, Any], name: str, redact: Callable[[str], str]) -> str | None:
    value = fields.get(name)
    return clean_text(redact(value)) if isinstance(value, str) else None


@contextmanager
def refuse_unserved(action: str) -> Iterator[None]:
    """Raise :class:`UnsupportedError` if the server does not know the path of a request.

    Its answer is then 404, as for a missing table, but names no resource.
    """
    try:
        yield
    except RestNotFoundError as error:
        if error.resource_type is not None:
            raise
        raise UnsupportedError(f"the server does not serve {action} ({error})") from None


def clean_text(text: str, limit: int = _MAX_MESSAGE) -> str:
    """Return the text of a server for messages: on one line, and shortened."""
    line = _CONTROL_CHARACTERS.sub(" ", text[: 4 * limit]).strip()
    return line if len(line) <= limit else f"{line[:limit]}..."


def parse_retry_after(text: str) -> float:
    """Return the seconds of a ``Retry-After`` header, at most :data:`MAX_RETRY_AFTER`."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), MAX_RETRY_AFTER)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError, IndexError):
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)
