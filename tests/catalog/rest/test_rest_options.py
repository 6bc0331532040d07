"""Options of the REST catalog."""

from typing import Any

import pytest

from paimon_orch.catalog.rest.authentication import open_authentication
from paimon_orch.catalog.rest.rest_options import parse_rest_options, parse_server_uri
from paimon_orch.errors import InputError

SECRET = "s3cr3t"  # noqa: S105


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("catalog:8080/", "http://catalog:8080"),
        ("https://catalog.example.com/api//", "https://catalog.example.com/api"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_the_uri_is_completed(uri: str, expected: str) -> None:
    assert parse_server_uri({"uri": uri}) == expected


@pytest.mark.parametrize(
    "uri",
    [
        f"http://user:{SECRET}@host",
        f"http://host/?token={SECRET}",
        f"http://host/#{SECRET}",
        f"ftp://{SECRET}",
        f"http://host:{SECRET}",
        f"http://ho st/{SECRET}",
        f"http://host/\n{SECRET}",
        "http://",
        "",
    ],
)
def test_a_uri_that_cannot_be_used_is_not_shown(uri: str) -> None:
    with pytest.raises(InputError, match="'uri'") as caught:
        parse_server_uri({"uri": uri})
    assert SECRET not in str(caught.value)


def test_values_become_texts_except_those_of_the_store() -> None:
    options = {"uri": "u", "data-token.enabled": True, "prefix": None, "storage.x": {"a": 1}}

    assert parse_rest_options(options) == {
        "uri": "u",
        "data-token.enabled": "true",
        "storage.x": {"a": 1},
    }


@pytest.mark.parametrize(
    "options",
    [
        {"tokn": SECRET},
        {"token.provider": SECRET},
        {"header.Authorization": SECRET},
        {"header.host": SECRET},
        {"header.X": f"a\r\n{SECRET}"},
        {"header.X Y": SECRET},
        {"dlf.signing-algorithm": SECRET},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        parse_rest_options({"metastore": "rest", **options})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{}, {"token.provider": "bear"}, {"token": f"a\n{SECRET}"}, {"token": f"\u00e4{SECRET}"}],
)
def test_credentials_are_needed(options: dict[str, str]) -> None:
    with pytest.raises(InputError, match="token") as caught:
        open_authentication(options, "http://host")
    assert SECRET not in str(caught.value)
