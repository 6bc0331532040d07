"""What callers see of an Iceberg REST catalog that answers, refuses, or is not reached."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from threading import Event

import pytest
from support.faulty_server import Answer, FaultyServer, run_faulty_server

from paimon_orch.errors import (
    AccessDeniedError,
    CatalogUnavailableError,
    CommitOutcomeUnknownError,
    PaimonError,
    UnsupportedError,
)
from paimon_orch.table.iceberg import confined_rest_catalog
from paimon_orch.table.iceberg.iceberg_rest_client import open_rest_catalog

pytest.importorskip("pyiceberg")


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with run_faulty_server() as running:
        yield running


@pytest.mark.parametrize("error", [UnsupportedError("another table"), KeyboardInterrupt()])
def test_an_error_of_the_caller_is_raised_unchanged(
    server: FaultyServer, error: BaseException
) -> None:
    with pytest.raises(type(error)) as caught, open_rest_catalog({"uri": server.uri}):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, AccessDeniedError),
        (403, AccessDeniedError),
        (400, CatalogUnavailableError),
        (503, CatalogUnavailableError),
    ],
)
def test_an_error_of_the_server_is_translated_without_credentials(
    server: FaultyServer, status: int, expected: type[PaimonError]
) -> None:
    message = {"error": {"message": "no secret-token\nstack", "type": "Any", "code": status}}
    server.answers = [Answer(status=status, body=message)]
    properties = {"uri": server.uri, "token": "secret-token"}

    with (
        pytest.raises(expected, match=rf"{server.uri}: \w+: .*no \*\*\*$") as caught,
        open_rest_catalog(properties) as catalog,
    ):
        catalog.load_table(("db", "t"))
    assert "secret-token" not in "".join(traceback.format_exception(caught.value))


def test_a_commit_without_an_answer_has_an_unknown_outcome(server: FaultyServer) -> None:
    from pyiceberg.exceptions import CommitStateUnknownException

    with pytest.raises(CommitOutcomeUnknownError), open_rest_catalog({"uri": server.uri}):
        raise CommitStateUnknownException("no answer")


def test_a_catalog_that_is_not_reached_is_unavailable() -> None:
    with (
        pytest.raises(CatalogUnavailableError, match=r"http://127\.0\.0\.1:1: ConnectionError"),
        open_rest_catalog({"uri": "http://127.0.0.1:1"}),
    ):
        pytest.fail("the context was entered")


def test_a_catalog_that_does_not_answer_is_unavailable(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_rest_catalog, "_READ_TIMEOUT", 0.1)
    may_answer = Event()
    server.answers = [Answer(delay=may_answer)]
    try:
        with (
            pytest.raises(CatalogUnavailableError, match="ReadTimeout"),
            open_rest_catalog({"uri": server.uri}) as catalog,
        ):
            catalog.load_table(("db", "t"))
    finally:
        may_answer.set()
