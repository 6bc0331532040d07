"""The options of authentication, and renewed credentials in the middle of the work."""

import json
import pickle
import traceback
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from support.faulty_server import Answer, FaultyServer, Request

from paimon_orch.catalog.rest import dlf_tokens, resource_paths
from paimon_orch.catalog.rest.authentication import DlfAuthentication, open_authentication
from paimon_orch.catalog.rest.dlf_signature import SigningAlgorithm, sign_for_dlf, sign_for_openapi
from paimon_orch.catalog.rest.dlf_tokens import DlfToken, EcsToken, FixedToken, TokenFile
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.catalog.rest.rest_errors import RestAccessDeniedError, RestNotFoundError
from paimon_orch.catalog.rest.signer import SignableRequest
from paimon_orch.errors import InputError

SECRET = "s3cr3t"  # noqa: S105
DLF = {"token.provider": "dlf"}
KEYS = {"dlf.access-key-id": "id-of-key", "dlf.access-key-secret": SECRET}


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlf_tokens, "_loaded", {})


def open_dlf(uri: str, options: Mapping[str, str]) -> DlfAuthentication:
    authentication = open_authentication({**DLF, **options}, uri)
    assert isinstance(authentication, DlfAuthentication)
    return authentication


@pytest.mark.parametrize(
    ("uri", "options", "algorithm", "region"),
    [
        ("http://cn-hangzhou-vpc.dlf.aliyuncs.com", {}, "default", "cn-hangzhou"),
        ("https://dlfnext.cn-beijing.aliyuncs.com", {}, "openapi", "cn-beijing"),
        ("https://dlfnext.ap-southeast-1.aliyuncs.com", {}, "openapi", "ap-southeast-1"),
        ("http://pre-cn-hangzhou.dlf", {}, "default", "cn-hangzhou"),
        ("http://host", {"dlf.region": "r"}, "default", "r"),
        ("http://DLFNEXT", {"dlf.region": "r"}, "openapi", "r"),
        (
            "http://dlfnext",
            {"dlf.region": "r", "dlf.signing-algorithm": "default"},
            "default",
            "r",
        ),
    ],
)
def test_algorithm_and_region(
    uri: str, options: dict[str, str], algorithm: str, region: str
) -> None:
    authentication = open_dlf(uri, {**KEYS, **options})

    assert authentication.algorithm is SigningAlgorithm(algorithm)
    assert authentication.region == region


def test_the_precedence_of_token_sources() -> None:
    uri, file, loader = "http://a-b", {"dlf.token-path": "/p"}, "dlf.token-loader"

    assert isinstance(open_dlf(uri, KEYS).source, FixedToken)
    assert open_dlf(uri, {**KEYS, **file}).source == TokenFile("/p")
    assert open_dlf(uri, {**file, loader: "local_file"}).source == TokenFile("/p")
    default = "http://100.100.100.200/latest/meta-data/Ram/security-credentials/"
    assert open_dlf(uri, {**KEYS, **file, loader: "ecs"}).source == EcsToken(default, None)


@pytest.mark.parametrize(
    "options",
    [
        {"token": "t"},
        DLF | KEYS,
        DLF | {"dlf.token-path": "/p"},
        DLF | {"dlf.token-loader": "ecs"},
    ],
)
def test_the_same_options_are_the_same_key_of_a_cache(options: dict[str, str]) -> None:
    one, other = (open_authentication(dict(options), "http://a-b") for _ in range(2))
    assert {one: "known"}[other] == "known"


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("http://host", KEYS),
        ("http://a-b", {}),
        ("http://a-b", {"dlf.access-key-secret": SECRET}),
        ("http://a-b", {**KEYS, "dlf.token-loader": "local_file"}),
        ("http://a-b", {**KEYS, "dlf.security-token": f"{SECRET}\n{SECRET}"}),
        (
            "http://a-b",
            {"dlf.token-loader": "ecs", "dlf.token-ecs-metadata-url": f"http://u:{SECRET}@h"},
        ),
    ],
)
def test_incomplete_options_are_refused(uri: str, options: dict[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        open_dlf(uri, options)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def sign_again(request: Request, algorithm: str) -> str:
    """Return the signature of a request as it arrived."""
    path, _, query = request.path.partition("?")
    signable = SignableRequest(
        method=request.method,
        path=path,
        params=dict(parse_qsl(query, keep_blank_values=True)),
        body=request.body,
        host=request.headers["Host"],
    )
    token = DlfToken(KEYS["dlf.access-key-id"], SECRET, "temporary")
    if algorithm == "openapi":
        now = parsedate_to_datetime(request.headers["Date"])
        nonce = request.headers["x-acs-signature-nonce"]
        return sign_for_openapi(signable, token, now, nonce=nonce)["Authorization"]
    now = datetime.strptime(request.headers["x-dlf-date"], "%Y%m%dT%H%M%S%z")
    return sign_for_dlf(signable, token, now, region="r")["Authorization"]


@pytest.mark.parametrize("algorithm", ["default", "openapi"])
def test_what_is_signed_is_what_is_sent(server: FaultyServer, algorithm: str) -> None:
    server.answers = [Answer(body={})]
    options = {"uri": server.uri, "dlf.region": "r", "dlf.security-token": "temporary"}
    options |= {"dlf.signing-algorithm": algorithm, "header.Accept": "x/y"}

    client = RestClient.connect({**DLF, **KEYS, **options})
    client = pickle.loads(pickle.dumps(client))  # noqa: S301
    client.post(resource_paths.table("a~b", "t$branch_\u00e4/ +%"), {"k": 1})
    client.get("x", {"pageToken": "a/b+c~ %", "empty": "", "maxResults": 5})

    for request in server.requests:
        assert request.headers["Authorization"] == sign_again(request, algorithm)
    headers = server.requests[0].headers
    scheme = "acs id-of-key:" if algorithm == "openapi" else "DLF4-HMAC-SHA256 Credential=id-of-"
    assert headers["Authorization"].startswith(scheme)
    assert headers["Content-MD5"] == "5ZE481GS4yAIi4PSg4jWuw=="  # by openssl
    assert headers["Host"] == server.uri.removeprefix("http://")
    assert SECRET not in repr((client, client.authentication, client.authentication.load_signer()))


def write_token(path: Path, key: str) -> None:
    path.write_text(json.dumps({"AccessKeyId": key, "AccessKeySecret": SECRET}))


def connect(server: FaultyServer, path: Path) -> RestClient:
    options = {"uri": server.uri, "dlf.region": "r", "dlf.token-path": str(path), **DLF}
    return RestClient.connect(options)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_new_credentials_are_loaded_once_after_a_401(
    server: FaultyServer, tmp_path: Path, method: str
) -> None:
    write_token(tmp_path / "token", "k1")
    client = connect(server, tmp_path / "token")

    def refuse_old(request: Request) -> Answer:
        return Answer(body={}) if "=k2/" in request.headers["Authorization"] else Answer(status=401)

    server.answers = [refuse_old]
    write_token(tmp_path / "token", "k2")

    assert (client.get("x") if method == "GET" else client.post("x", {})) == {}
    assert len(server.requests) == 2


def test_unchanged_credentials_are_not_sent_again_after_a_401(
    server: FaultyServer, tmp_path: Path
) -> None:
    write_token(tmp_path / "token", "k1")
    client = connect(server, tmp_path / "token")
    server.answers = [Answer(status=401)]

    with pytest.raises(RestAccessDeniedError):
        client.get("x")
    assert len(server.requests) == 1

    write_token(tmp_path / "token", "k2")
    with pytest.raises(RestAccessDeniedError):
        client.get("x")
    assert len(server.requests) == 3

    write_token(tmp_path / "token", "k3")
    server.answers = [Answer(status=401), Answer(status=404)]
    with pytest.raises(RestNotFoundError) as caught:
        client.get("x")
    assert caught.value.__context__ is None or caught.value.__suppress_context__
