"""Credentials of DLF from files and the ECS metadata service."""

import json
import os
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.clocks import replace_time
from support.faulty_server import Answer, FaultyServer, Request

from paimon_orch.catalog.rest import dlf_tokens
from paimon_orch.catalog.rest.dlf_tokens import DlfToken, EcsToken, TokenFile, load_token
from paimon_orch.catalog.rest.rest_errors import RestUnavailableError
from paimon_orch.errors import InputError
from paimon_orch.retry_policy import RetryPolicy

SECRET = "s3cr3t-key"  # noqa: S105


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlf_tokens, "TOKEN_FILE_READ", RetryPolicy(attempts=2))
    monkeypatch.setattr(dlf_tokens, "_loaded", {})


def token_json(key: str, lifetime: timedelta | None = None) -> dict[str, Any]:
    token = {"AccessKeyId": key, "AccessKeySecret": SECRET, "SecurityToken": "st", "Other": 1}
    if lifetime is not None:
        token["Expiration"] = (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
    return token


def write(path: Path, key: str, lifetime: timedelta | None = None) -> TokenFile:
    path.write_text(json.dumps(token_json(key, lifetime)))
    return TokenFile(str(path))


def test_a_file_is_read_once_until_the_token_is_rejected(tmp_path: Path) -> None:
    source = write(tmp_path / "token", "k1")
    first = load_token(source)
    write(tmp_path / "token", "k2")

    assert first == DlfToken("k1", SECRET, "st")
    assert load_token(source) == first
    assert load_token(source, rejected=first) == DlfToken("k2", SECRET, "st")
    assert load_token(source, rejected=first) == DlfToken("k2", SECRET, "st")


def test_a_token_is_renewed_before_it_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "token", "k1", timedelta(minutes=59))
    assert load_token(source).access_key_id == "k1"
    write(tmp_path / "token", "k2", timedelta(hours=2))

    assert load_token(source).access_key_id == "k1"  # it is still valid, and was just loaded
    monkeypatch.setattr(dlf_tokens, "RELOAD_INTERVAL", 0.0)
    assert load_token(source).access_key_id == "k2"
    write(tmp_path / "token", "k3", timedelta(hours=2))
    assert load_token(source).access_key_id == "k2"


def test_an_expired_token_is_loaded_at_once(tmp_path: Path) -> None:
    source = write(tmp_path / "token", "k1", timedelta(seconds=-1))
    load_token(source)
    write(tmp_path / "token", "k2")

    assert load_token(source).access_key_id == "k2"


def test_a_valid_token_is_kept_if_the_renewal_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dlf_tokens, "RELOAD_INTERVAL", 0.0)
    source = write(tmp_path / "token", "k1", timedelta(minutes=5))
    first = load_token(source)
    (tmp_path / "token").unlink()

    assert load_token(source) == first
    assert "were not renewed" in caplog.text
    with pytest.raises(InputError, match=r"dlf\.token-path: .* No such file"):
        load_token(source, rejected=first)
    replace_time(monkeypatch, dlf_tokens.__name__, time=lambda: 9e9)
    with pytest.raises(InputError, match="No such file"):
        load_token(source)


@pytest.mark.parametrize(
    "content",
    [
        SECRET,
        f'["{SECRET}"]',
        f'{{"AccessKeySecret": "{SECRET}"}}',
        f'{{"AccessKeyId": 1, "AccessKeySecret": "{SECRET}"}}',
        f'{{"AccessKeyId": "a", "AccessKeySecret": "{SECRET}", "Expiration": "{SECRET}"}}',
        f'{{"AccessKeyId": "a", "AccessKeySecret": "{SECRET}\\n"}}',
        f'{{"AccessKeyId": "a", "AccessKeySecret": "{SECRET}", "SecurityToken": "\\u00e4"}}',
    ],
)
def test_a_wrong_file_is_refused_without_its_content(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)

    with pytest.raises(InputError, match="cannot be used") as caught:
        TokenFile(str(tmp_path / "token")).load()

    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_file_that_is_being_replaced_is_read_again(tmp_path: Path) -> None:
    reads, path = list[int](), tmp_path / "token"
    os.mkfifo(path)

    class Replaced(TokenFile):
        def _read(self) -> DlfToken:
            reads.append(1)
            if len(reads) == 2:
                path.unlink()
                write(path, "k2")
                return super()._read()
            raise InputError("half a file")

    assert Replaced(str(path)).load().access_key_id == "k2"


def test_the_ecs_service_names_the_role_and_its_credentials(server: FaultyServer) -> None:
    def answer(request: Request) -> Answer:
        return Answer(body=b"my-role\n" if request.path == "/r/" else token_json("k1"))

    server.answers = [answer]

    assert EcsToken(f"{server.uri}/r", None).load().access_key_id == "k1"
    assert EcsToken(f"{server.uri}/r/", "other").load().access_key_id == "k1"
    paths = [request.path for request in server.requests]
    assert paths == ["/r/", "/r/my-role", "/r/other"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(status=404), "status 404"),
        (Answer(status=302, headers={"Location": "/x"}), "status 302"),
        (Answer(body=b"../role"), "no valid role"),
        (Answer(body=b""), "no valid role"),
        (Answer(body=SECRET.encode()), "is not a JSON object"),
    ],
)
def test_wrong_answers_of_the_ecs_service(
    server: FaultyServer, answer: Answer, reason: str
) -> None:
    server.answers = [answer]

    with pytest.raises(RestUnavailableError, match=reason):
        EcsToken(server.uri, None).load()
