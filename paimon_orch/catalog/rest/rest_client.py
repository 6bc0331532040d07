"""The HTTP client of a REST catalog: authentication, retries, limits and errors."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from types import MappingProxyType
from typing import Any, NoReturn
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from paimon_orch.catalog.catalog_options import WAREHOUSE
from paimon_orch.catalog.rest.answer_fields import read_list, read_optional_text, read_options
from paimon_orch.catalog.rest.authentication import open_authentication
from paimon_orch.catalog.rest.resource_paths import build_path, build_query
from paimon_orch.catalog.rest.rest_errors import (
    FailedAnswer,
    RequestLine,
    RestAccessDeniedError,
    RestAnswerError,
    RestError,
    RestNotFoundError,
    RestServerError,
    RestUnavailableError,
    build_status_error,
)
from paimon_orch.catalog.rest.rest_options import (
    PREFIX,
    extract_headers,
    find_secrets,
    parse_rest_options,
    parse_server_uri,
)
from paimon_orch.catalog.rest.served_options import select_served_options
from paimon_orch.catalog.rest.signer import Authentication, SignableRequest, Signer
from paimon_orch.catalog.rest.transport_errors import build_transport_error
from paimon_orch.errors import InputError, TransientError
from paimon_orch.http_answers import limit_session
from paimon_orch.retry_policy import CATALOG_REQUEST
from paimon_orch.safe_text import get_logger, mask_values, note_secrets

logger = get_logger(__name__)

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 180.0
"""The longest wait for a whole answer, in seconds."""
MAX_ANSWER_BYTES = 64 << 20
MAX_PAGES = 100_000
CONFIG_MAX_AGE = 300.0
_MAX_CONFIGS = 64
_CHUNK_BYTES = 1 << 16
_MAX_ERROR_BYTES = 1 << 20
_SUCCESS = (200, 202, 204)
_NO_PARAMS: Mapping[str, str | int] = MappingProxyType({})

_configs: dict[bytes, tuple[float, dict[str, Any]]] = {}
_local = threading.local()


@dataclass(frozen=True, slots=True, repr=False)
class RestClient:
    """Sends requests to one server with the credentials of one user.

    It can be pickled: sessions belong to the process and thread that use them.
    """

    options: Mapping[str, Any]
    """The options after the handshake: defaults of the server, the user's, overrides."""
    uri: str
    """The URL of the server, without credentials."""
    authentication: Authentication

    @classmethod
    def connect(cls, options: Mapping[str, Any]) -> "RestClient":
        """Check the options of the user, and merge them with those of the server."""
        own = parse_rest_options(options)
        note_secrets(find_secrets(own))
        uri = parse_server_uri(own)
        client = cls(own, uri, open_authentication(own, uri))
        config = client._load_config()
        where = f"{uri}/v1/config"
        defaults, overrides = (
            select_served_options(read_options(config, field, where), own, uri)
            for field in ("defaults", "overrides")
        )
        merged = {**defaults, **own, **overrides}
        try:
            extract_headers(merged)
        except InputError as error:
            raise RestAnswerError(where, str(error)) from None
        return cls(merged, uri, client.authentication)

    def __repr__(self) -> str:
        return f"RestClient({self.uri!r})"

    def __hash__(self) -> int:
        return hash((self.uri, self.authentication))

    def get(self, path: str, params: Mapping[str, str | int] = _NO_PARAMS) -> dict[str, Any]:
        """Return the answer to a read; it must be a JSON object."""
        return self._call("GET", self._add_prefix(path), params=params)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a change; return the answer, {} if it is empty.

        It is repeated only if the server certainly did not carry it out. If that is unknown, the
        error has ``outcome_unknown``.
        """
        return self._call("POST", self._add_prefix(path), body=body)

    def delete(self, path: str) -> dict[str, Any]:
        """Delete a resource; return the answer, {} if it is empty."""
        return self._call("DELETE", self._add_prefix(path))

    def get_pages(
        self, path: str, key: str, params: Mapping[str, str | int] = _NO_PARAMS
    ) -> Iterator[Any]:
        """Yield the items of all pages of a listing; ``key`` is the field that holds them."""
        where = f"{self.uri}{self._add_prefix(path)}"
        token: str | None = None
        tokens = set[str]()
        for _ in range(MAX_PAGES):
            page = self.get(path, params if token is None else {**params, "pageToken": token})
            items = read_list(page, key, where)
            yield from items
            token = read_optional_text(page, "nextPageToken", where)
            if not token or not items:
                return
            if token in tokens:
                raise RestAnswerError(where, "the server sends the same nextPageToken twice")
            tokens.add(token)
        raise RestAnswerError(where, f"the listing has more than {MAX_PAGES} pages")

    def redact(self, text: str) -> str:
        """Return the text without credentials."""
        return mask_values(text, find_secrets(self.options))

    def _load_config(self) -> dict[str, Any]:
        warehouse = self.options.get(WAREHOUSE.key)
        options = sorted((name, str(value)) for name, value in self.options.items())
        key = hashlib.sha256(json.dumps(options).encode()).digest()
        loaded_at, config = _configs.get(key, (0.0, {}))
        if config and time.monotonic() - loaded_at < CONFIG_MAX_AGE:
            return config
        params = {"warehouse": warehouse} if warehouse else {}
        config = {"defaults": None, **self._call("GET", "/v1/config", params=params)}
        if len(_configs) >= _MAX_CONFIGS:
            _configs.clear()
        _configs[key] = time.monotonic(), config
        return config

    def _add_prefix(self, path: str) -> str:
        prefix = self.options.get(PREFIX.key)
        return f"/v1/{build_path(prefix)}/{path}" if prefix else f"/v1/{path}"

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] = _NO_PARAMS,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send a request, and repeat it if that is safe and may help."""
        text = ""
        if body is not None:
            text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        signable = SignableRequest(
            method=method,
            path=path,
            params={name: str(value) for name, value in params.items()},
            body=text.encode(),
            host=urlsplit(self.uri).netloc,
        )
        failures, start = list[RestError](), time.monotonic()

        def note_failure(attempt: int, error: BaseException) -> None:
            assert isinstance(error, RestError)
            failures.append(error)
            logger.warning("attempt %d: %s; it is repeated", attempt, error)

        try:
            return CATALOG_REQUEST.call(
                partial(self._send_authenticated, signable),
                retry_on=partial(_is_retryable, method),
                before_retry=note_failure,
                wait_at_least=lambda e: e.retry_after if isinstance(e, RestError) else 0.0,
            )
        except TransientError as error:
            error.retry_seconds = time.monotonic() - start
            raise
        except RestNotFoundError:
            if method == "DELETE" and any(failure.outcome_unknown for failure in failures):
                return {}  # an attempt whose answer was lost deleted it
            raise

    def _send_authenticated(self, request: SignableRequest) -> dict[str, Any]:
        signer = self.authentication.load_signer()
        try:
            return self._send(request, signer)
        except RestAccessDeniedError as error:
            if error.status != 401:
                raise
            renewed = self.authentication.load_signer(rejected=signer)
            if renewed == signer:
                raise
        return self._send(request, renewed)

    def _send(self, request: SignableRequest, signer: Signer) -> dict[str, Any]:
        line = RequestLine(request.method, f"{self.uri}{request.path}")
        note_secrets(signer.secrets)  # the server may answer with them
        try:
            with _send_http(self._prepare(request, signer)) as response:
                status, body = response.status_code, _read_body(line, response)
                headers = {name.lower(): value for name, value in response.headers.items()}
                failure = None
        except requests.RequestException as error:
            failure = build_transport_error(line, error)
        if failure is not None:
            raise failure  # outside the except block: the cause may show a URL with credentials
        if status not in _SUCCESS:
            secrets = (*find_secrets(self.options), *signer.secrets)
            redact = partial(mask_values, secrets=secrets)
            answer = FailedAnswer(status=status, headers=headers, body=body)
            raise build_status_error(line, answer, redact)
        return _parse_answer(line, body)

    def _prepare(self, request: SignableRequest, signer: Signer) -> requests.PreparedRequest:
        headers = {"Accept": "application/json", **extract_headers(self.options)}
        if request.body:
            headers["Content-Type"] = "application/json"
        signature = signer.sign(request)

        def authenticate(prepared: requests.PreparedRequest) -> requests.PreparedRequest:
            prepared.headers.update(signature)
            return prepared

        # Without auth, requests would replace the header Authorization by entries of ~/.netrc.
        unprepared = requests.Request(
            request.method, self.uri, headers, data=request.body or None, auth=authenticate
        )
        prepared = _get_session().prepare_request(unprepared)
        query = build_query(request.params)
        # requests would decode %7E, and the signature would not match.
        prepared.url = f"{self.uri}{request.path}{'?' if query else ''}{query}"
        return prepared


def _get_session() -> requests.Session:
    """Return the session of this thread; a forked process makes its own."""
    if getattr(_local, "process", None) != os.getpid():
        session = requests.Session()
        limit_session(session)
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        session.mount("https://", HTTPAdapter(max_retries=0))
        session.mount("http://", HTTPAdapter(max_retries=0))
        _local.session, _local.process = session, os.getpid()
    session = _local.session
    assert isinstance(session, requests.Session)
    return session


def _send_http(prepared: requests.PreparedRequest) -> requests.Response:
    session = _get_session()
    assert prepared.url is not None
    environment = session.merge_environment_settings(prepared.url, {}, True, None, None)
    return session.send(
        prepared,
        timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
        allow_redirects=False,
        **environment,
    )


def _read_body(line: RequestLine, response: requests.Response) -> bytes:
    """Return the body; a server cannot make it larger than the limits."""
    if response.status_code in _SUCCESS:
        body = _read_at_most(response, MAX_ANSWER_BYTES)
        if body is None:
            _refuse_answer(line, f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
        return body
    try:
        return _read_at_most(response, _MAX_ERROR_BYTES) or b""
    except requests.RequestException:
        return b""  # the status is known


def _read_at_most(response: requests.Response, limit: int) -> bytes | None:
    body = bytearray()
    for chunk in response.iter_content(_CHUNK_BYTES):
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


def _parse_answer(line: RequestLine, body: bytes) -> dict[str, Any]:
    if not body.strip():
        if line.is_read:
            _refuse_answer(line, "the answer is empty")
        return {}
    try:
        answer = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        _refuse_answer(line, "the answer is not a JSON object; is 'uri' that of a REST catalog?")
    return answer


def _refuse_answer(line: RequestLine, reason: str) -> NoReturn:
    error = RestAnswerError(str(line), reason)
    error.outcome_unknown = not line.is_read
    raise error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _is_retryable(method: str, error: BaseException) -> bool:
    if isinstance(error, RestUnavailableError):
        return True
    return method != "POST" and isinstance(error, RestServerError) and error.status != 500
