"""The client against a server that fails in all ways."""

import gzip
import json
import logging
import pickle
import threading
import traceback
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.clocks import replace_waits
from support.faulty_server import Answer, FaultyServer, Handler, Request

from paimon_orch.catalog.rest import resource_paths, rest_client
from paimon_orch.catalog.rest.authentication import BearerToken
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.catalog.rest.rest_errors import (
    RestAccessDeniedError,
    RestAlreadyExistsError,
    RestAnswerError,
    RestError,
    RestInputError,
    RestNotFoundError,
    RestServerError,
    RestUnavailableError,
    RestUnsupportedError,
)
from paimon_orch.catalog.rest.signer import Signer
from paimon_orch.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CatalogUnavailableError,
    CorruptFileError,
    InputError,
    NotFoundError,
    StorageError,
    TransientError,
    UnsupportedError,
)
from paimon_orch.retry_policy import RetryPolicy

SECRET = "s3cr3t-token-of-the-user"  # noqa: S105
GZIPPED = gzip.compress(b" " * 1_000_000)


def connect(server: FaultyServer, **options: Any) -> RestClient:
    return RestClient.connect(
        {"metastore": "rest", "uri": server.uri, "warehouse": "w h", "token": SECRET, **options}
    )


def fail(client: RestClient, method: str) -> RestError:
    with pytest.raises(RestError) as caught:
        client.post("x", {}) if method == "POST" else getattr(client, method.lower())("x")
    return caught.value


def test_the_handshake_merges_options_and_is_cached(server: FaultyServer) -> None:
    server.config = {
        "defaults": {"data-token.enabled": True, "warehouse": "server", "n": None},
        "overrides": {"prefix": "my catalog", "header.X-Tenant": "t", "uri": "http://other"},
        "unknown": 1,
    }
    server.answers = [Answer(body={"name": "db"})]

    client = connect(server, **{"header.X-User": "u"})
    again = connect(server, **{"header.X-User": "u"})

    assert [request.path for request in server.handshakes] == ["/v1/config?warehouse=w+h"]
    assert server.handshakes[0].headers["Authorization"] == f"Bearer {SECRET}"
    assert server.handshakes[0].headers["X-User"] == "u"
    assert again == client
    assert hash(again) == hash(client)
    assert (client.options["data-token.enabled"], client.options["warehouse"]) == ("true", "w h")
    assert "n" not in client.options
    assert client.get(resource_paths.database("d~b x")) == {"name": "db"}
    request = server.requests[0]
    assert request.path == "/v1/my%20catalog/databases/d%7Eb%20x"
    assert (request.headers["X-User"], request.headers["X-Tenant"]) == ("u", "t")


def test_the_handshake_is_repeated_for_other_credentials_and_when_it_is_old(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(server)
    connect(server, token="other-token")  # noqa: S106
    assert len(server.handshakes) == 2

    monkeypatch.setattr(rest_client, "CONFIG_MAX_AGE", -1.0)
    connect(server)
    assert len(server.handshakes) == 3


def test_a_failed_handshake_is_not_cached(server: FaultyServer) -> None:
    server.config = {"defaults": "wrong"}
    for _ in range(2):
        with pytest.raises(RestAnswerError, match="'defaults' is of the type str"):
            connect(server)
    server.config = {"overrides": {"header.Host": "elsewhere"}}
    with pytest.raises(RestAnswerError, match=r"header\.Host"):
        connect(server, warehouse="other")


def test_no_prefix_and_an_unencoded_query(server: FaultyServer) -> None:
    server.answers = [Answer(body={})]

    connect(server).get("databases", {"databaseNamePattern": "a%", "maxResults": 5})

    assert server.requests[0].path == "/v1/databases?databaseNamePattern=a%25&maxResults=5"


def test_a_post_sends_json_and_accepts_an_empty_answer(server: FaultyServer) -> None:
    server.answers = [Answer(), Answer(status=204), Answer(body={"success": True})]
    client = connect(server)

    assert client.post("x", {"name": "\u00e4"}) == {}
    assert client.post("x", {}) == {}
    assert client.post("x", {}) == {"success": True}

    assert server.requests[0].headers["Content-Type"] == "application/json"
    assert json.loads(server.requests[0].body) == {"name": "\u00e4"}


@pytest.mark.parametrize(
    ("status", "kind", "public", "unknown"),
    [
        (400, RestInputError, InputError, False),
        (401, RestAccessDeniedError, AccessDeniedError, False),
        (403, RestAccessDeniedError, AccessDeniedError, False),
        (404, RestNotFoundError, NotFoundError, False),
        (405, RestUnsupportedError, UnsupportedError, False),
        (409, RestAlreadyExistsError, AlreadyExistsError, False),
        (418, RestInputError, InputError, False),
        (429, RestUnavailableError, CatalogUnavailableError, False),
        (500, RestServerError, StorageError, True),
        (501, RestUnsupportedError, UnsupportedError, False),
        (502, RestServerError, StorageError, True),
        (503, RestServerError, StorageError, True),
        (504, RestServerError, StorageError, True),
    ],
)
def test_the_status_decides_on_the_error(
    server: FaultyServer, status: int, kind: type, public: type, unknown: bool
) -> None:
    body = {"message": "no\x1b[31m\nway", "resourceType": "TABLE", "resourceName": "t"}
    server.answers = [Answer(status=status, body=body, headers={"X-Request-Id": "id-7"})]

    error = fail(connect(server), "POST")

    assert type(error) is kind
    assert isinstance(error, public)
    assert error.outcome_unknown is unknown
    assert (error.status, error.resource_type, error.resource_name) == (status, "TABLE", "t")
    assert f"POST {server.uri}/v1/x failed (status {status}, request id id-7)" in str(error)
    assert "no [31m way" in str(error)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is kind
    assert (str(copy), copy.status, copy.outcome_unknown) == (str(error), status, unknown)


@dataclass(frozen=True)
class RenewedAuthentication:
    """Has another token, or the same, after the server refused the first one."""

    second: str
    renewals: list[Signer | None] = field(default_factory=list, hash=False)

    def load_signer(self, rejected: Signer | None = None) -> Signer:
        if rejected is None:
            return BearerToken("first")
        self.renewals.append(rejected)
        return BearerToken(self.second)


@pytest.mark.parametrize(
    ("status", "second", "requests", "renewals"),
    [(401, "second", 2, 1), (401, "first", 1, 1), (403, "second", 1, 0)],
)
def test_credentials_are_renewed_once_if_they_are_not_valid_and_not_if_they_lack_a_right(
    server: FaultyServer, status: int, second: str, requests: int, renewals: int
) -> None:
    server.answers = [Answer(status=status)]
    authentication = RenewedAuthentication(second)

    error = fail(replace(connect(server), authentication=authentication), "GET")

    assert isinstance(error, AccessDeniedError)
    tokens = [request.headers["Authorization"] for request in server.requests]
    assert tokens == ["Bearer first", "Bearer second"][:requests]
    assert len(authentication.renewals) == renewals


def test_the_code_of_the_body_takes_precedence(server: FaultyServer) -> None:
    server.answers = [Answer(status=404, body={"message": "external", "code": 501})]
    assert isinstance(fail(connect(server), "GET"), RestUnsupportedError)

    server.answers = [Answer(status=404, body={"code": "501", "message": 7, "resourceType": []})]
    error = fail(connect(server), "GET")
    assert isinstance(error, RestNotFoundError)
    assert error.resource_type is None


@pytest.mark.parametrize("body", [b"<html>secret page</html>", b"[" * 100_000, b"\xff", b"[1]"])
def test_an_error_whose_body_is_not_json_shows_only_the_status(
    server: FaultyServer, body: bytes
) -> None:
    server.answers = [Answer(status=404, body=body)]

    error = fail(connect(server), "GET")

    assert isinstance(error, RestNotFoundError)
    assert str(error) == f"GET {server.uri}/v1/x failed (status 404)"


@pytest.mark.parametrize(
    ("method", "answer", "attempts"),
    [
        ("GET", Answer(status=429), 3),
        ("GET", Answer(status=500), 1),
        ("GET", Answer(status=503), 3),
        ("GET", Answer(cut=True), 3),
        ("GET", Answer(body={"name": "x" * 100}, cut=True), 3),
        ("GET", Answer(body=b"{"), 1),
        ("GET", Answer(body=b""), 1),
        ("GET", Answer(body=b'{"a": NaN}'), 1),
        ("DELETE", Answer(status=502), 3),
        ("DELETE", Answer(cut=True), 3),
        ("POST", Answer(status=429), 3),
        ("POST", Answer(status=503), 1),
        ("POST", Answer(cut=True), 1),
        ("POST", Answer(body={"success": True}, cut=True), 1),
        ("POST", Answer(body=b"[]"), 1),
    ],
)
def test_only_safe_requests_are_repeated(
    server: FaultyServer, method: str, answer: Answer, attempts: int
) -> None:
    server.answers = [answer]

    error = fail(connect(server), method)

    assert len(server.requests) == attempts
    assert error.outcome_unknown is (method != "GET" and answer.status != 429)


@pytest.mark.parametrize("status", [429, 503])
def test_the_error_of_the_last_attempt_says_how_long_all_attempts_took(
    server: FaultyServer, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers that repeat the call stop after this time."""
    policy = RetryPolicy(attempts=3, min_wait=0.05, max_wait=0.05)
    monkeypatch.setattr(rest_client, "CATALOG_REQUEST", policy)
    server.answers = [Answer(status=status)]

    error = fail(connect(server), "GET")

    assert isinstance(error, TransientError)
    assert error.retry_seconds >= 0.1


def test_a_repeated_request_succeeds(server: FaultyServer) -> None:
    server.answers = [Answer(status=503), Answer(cut=True), Answer(body={"a": 1})]

    assert connect(server).get("x") == {"a": 1}


def test_a_connection_that_the_server_closed_while_it_was_idle_is_replaced(
    server: FaultyServer,
) -> None:
    server.answers = [Answer(body={}, announce_close=False)]
    client = connect(server)
    assert server.closed.acquire(timeout=60), "the connection of the handshake"

    for _ in range(3):
        assert client.post("x", {}) == {}
        assert server.closed.acquire(timeout=60)

    assert len(server.requests) == 3


def test_a_server_that_does_not_speak_tls(server: FaultyServer) -> None:
    client = connect(server)
    secure = RestClient(
        client.options, server.uri.replace("http:", "https:"), client.authentication
    )

    assert "does the server use https" in str(fail(secure, "GET"))


def test_a_delete_whose_answer_was_lost_may_find_nothing_left(server: FaultyServer) -> None:
    server.answers = [Answer(cut=True), Answer(status=404)]
    assert connect(server).delete("x") == {}

    server.answers = [Answer(status=404)]
    assert isinstance(fail(connect(server), "DELETE"), RestNotFoundError)
    server.answers = [Answer(status=429), Answer(status=404)]
    assert isinstance(fail(connect(server), "DELETE"), RestNotFoundError)


def test_retry_after_is_waited_for(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = list[float]()
    replace_waits(monkeypatch, waits.append)
    monkeypatch.setattr(rest_client, "CATALOG_REQUEST", RetryPolicy(attempts=4))
    server.answers = [
        Answer(status=429, headers={"Retry-After": "7"}),
        Answer(status=429, headers={"Retry-After": "99999"}),
        Answer(status=429, headers={"Retry-After": "garbage"}),
        Answer(body={}),
    ]

    connect(server).get("x")

    assert waits == [7.0, 60.0, 0.0]


def test_a_refused_connection_is_repeated_and_certain(server: FaultyServer) -> None:
    client = connect(server)
    unreachable = RestClient(client.options, "http://127.0.0.1:9", client.authentication)

    error = fail(unreachable, "POST")

    assert isinstance(error, RestUnavailableError)
    assert not error.outcome_unknown
    assert "http://127.0.0.1:9/v1/x was not sent: Connection refused" in str(error)


def test_an_unknown_host_is_named(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    client = connect(server)
    unreachable = RestClient(client.options, "http://catalog.invalid", client.authentication)

    assert "cannot be resolved" in str(fail(unreachable, "GET"))


def test_a_slow_server_times_out(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    client, release = connect(server), threading.Event()
    monkeypatch.setattr(rest_client, "READ_TIMEOUT", 0.1)
    server.answers = [Answer(delay=release)]

    error = fail(client, "POST")
    release.set()

    assert isinstance(error, RestServerError)
    assert error.outcome_unknown
    assert "did not answer in time" in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b" " * 2000),
        Answer(body=GZIPPED, headers={"Content-Encoding": "gzip"}),
    ],
    ids=["plain", "gzip"],
)
def test_a_huge_answer_is_refused(
    server: FaultyServer, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(server)
    monkeypatch.setattr(rest_client, "MAX_ANSWER_BYTES", 1000)
    server.answers = [answer]

    error = fail(client, "GET")

    assert isinstance(error, CorruptFileError)
    assert "is larger than 1000 bytes" in str(error)
    assert pickle.loads(pickle.dumps(error)).path == f"GET {server.uri}/v1/x"  # noqa: S301


def test_compressed_answers(server: FaultyServer) -> None:
    headers = {"Content-Encoding": "gzip"}
    server.answers = [
        Answer(body=gzip.compress(b'{"a": 1}'), headers=headers),
        Answer(body=b"no gzip", headers=headers),
    ]
    client = connect(server)

    assert client.get("x") == {"a": 1}
    assert "cannot be decompressed" in str(fail(client, "GET"))


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(server: FaultyServer, status: int) -> None:
    headers = {"Location": f"{server.uri}/v1/other"}
    server.answers = [Answer(status=status, headers=headers, body=b"x" * 10_000)]

    error = fail(connect(server), "GET")

    assert isinstance(error, InputError)
    assert "redirects are not followed" in str(error)
    assert len(server.requests) == 1


def test_cookies_are_not_kept(server: FaultyServer) -> None:
    server.answers = [Answer(body={}, headers={"Set-Cookie": "session=1"}), Answer(body={})]
    client = connect(server)

    client.get("x")
    client.get("x")

    assert "Cookie" not in server.requests[1].headers


def test_pages_are_followed(server: FaultyServer) -> None:
    server.answers = [
        Answer(body={"tables": ["a"], "nextPageToken": "p&1"}),
        Answer(body={"tables": ["b"], "nextPageToken": "p2"}),
        Answer(body={"tables": [], "nextPageToken": "p3"}),
    ]

    assert list(connect(server).get_pages("t", "tables", {"maxResults": 1})) == ["a", "b"]

    assert [request.path for request in server.requests] == [
        "/v1/t?maxResults=1",
        "/v1/t?maxResults=1&pageToken=p%261",
        "/v1/t?maxResults=1&pageToken=p2",
    ]


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ({"tables": ["a"], "nextPageToken": "p"}, "the same nextPageToken twice"),
        ({"tables": ["a"], "nextPageToken": 5}, "'nextPageToken' is of the type int"),
        ({"tables": {"a": 1}}, "'tables' is of the type dict"),
    ],
)
def test_wrong_pages_are_refused(server: FaultyServer, page: object, reason: str) -> None:
    server.answers = [Answer(body=page)]

    with pytest.raises(RestAnswerError, match=reason):
        list(connect(server).get_pages("t", "tables"))


def test_a_pickled_client_works_without_another_handshake(server: FaultyServer) -> None:
    server.answers = [Answer(body={"a": 1})]

    client = pickle.loads(pickle.dumps(connect(server)))  # noqa: S301

    assert client.get("x") == {"a": 1}
    assert len(server.handshakes) == 1


def test_netrc_does_not_replace_the_token(
    server: FaultyServer, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    server.answers = [Answer(body={})]

    connect(server).get("x")

    assert server.requests[0].headers["Authorization"] == f"Bearer {SECRET}"


def echo_secrets(request: Request) -> Answer:
    message = f"{request.headers['Authorization']} {request.headers['X-Key']} refused"
    return Answer(
        status=403,
        body={"message": message, "resourceName": SECRET},
        headers={"x-request-id": SECRET},
    )


def test_no_error_log_or_repr_shows_a_secret(
    server: FaultyServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    header = "another-secret"
    client = connect(server, **{"header.X-Key": header})
    shown = [repr(client), repr(client.authentication), repr(client.authentication.load_signer())]
    faults: list[Answer | Handler] = [
        echo_secrets,
        Answer(status=503),
        Answer(cut=True),
        Answer(body=SECRET.encode()),
        Answer(status=302, headers={"Location": f"http://u:{SECRET}@other/"}),
    ]

    for fault in faults:
        server.answers = [fault]
        for method in ("GET", "POST"):
            error = fail(client, method)
            assert error.__cause__ is None
            shown += [repr(error), str(vars(error)), *traceback.format_exception(error)]

    shown += [record.getMessage() for record in caplog.records]
    assert "*** *** refused" in "".join(shown).replace("Bearer ", "")
    assert "it is repeated" in "".join(shown)
    for secret in (SECRET, header):
        assert secret not in "".join(shown)


def test_the_password_of_a_proxy_is_not_shown(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(server)
    monkeypatch.setenv("http_proxy", f"http://user:{SECRET}@127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")

    error = fail(client, "GET")

    assert isinstance(error, RestUnavailableError)
    assert SECRET not in "".join(traceback.format_exception(error))


def test_a_forked_or_new_thread_has_its_own_session(server: FaultyServer) -> None:
    sessions = [rest_client._get_session(), rest_client._get_session()]
    thread = threading.Thread(target=lambda: sessions.append(rest_client._get_session()))
    thread.start()
    thread.join()
    rest_client._local.process = -1  # as after a fork

    sessions.append(rest_client._get_session())

    assert sessions[0] is sessions[1]
    assert len({id(session) for session in sessions}) == 3
    for session in sessions:
        session.close()
