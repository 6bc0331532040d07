"""Which options a table in a REST catalog takes; what it shows is tested in `tests/peers`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_orch import Catalog, Table
from paimon_orch.errors import UnsupportedError
from paimon_orch.steps.definition.alter import _format_schema
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.iceberg.iceberg_rest_client import _translate_properties, redact
from paimon_orch.table.iceberg.open_catalog_entry import find_entry_names, open_catalog_entry
from paimon_orch.table.iceberg.rest_entry import RestEntry

PREFIX = "metadata.iceberg.rest."
URI = {f"{PREFIX}uri": "http://127.0.0.1:1"}


@pytest.fixture(autouse=True)
def _allowed_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_ALLOWED_HOSTS", "one,site,127.0.0.1")


def create(tmp_path: Path, **options: str) -> Table:
    storage = {"metadata.iceberg.storage": "rest-catalog"}
    return Catalog(str(tmp_path)).create_table("db.t", "id INT", options=storage | options)


def open_entry(table: Table) -> RestEntry:
    entry = open_catalog_entry(table.identifier, table.load().schema, table.paths)
    assert isinstance(entry, RestEntry)
    return entry


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "needs the option 'metadata.iceberg.rest.uri'"),
        (URI | {f"{PREFIX}rest.auth.type": "google"}, "'google' is not supported"),
    ],
)
def test_options_that_do_not_reach_a_server_stop_a_commit(
    tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    table = create(tmp_path, **options)

    with pytest.raises(UnsupportedError) as error:
        table.truncate()

    assert reason in str(error.value)
    assert "Nothing was changed" in str(error.value)
    assert table.snapshot() is None


def test_a_missing_package_stops_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path, **URI)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)

    with pytest.raises(UnsupportedError, match=r"pip install 'paimon-orch\[iceberg-rest\]'"):
        table.truncate()


def test_the_name_of_the_database_is_not_a_list(tmp_path: Path) -> None:
    named = {"metadata.iceberg.database": "a;b", "metadata.iceberg.table": "c"}
    table = create(tmp_path, **URI, **named)
    assert find_entry_names("db.t", table.load().schema, table.paths) == [("a;b", "c")]


def test_properties_of_the_table_are_those_of_java(tmp_path: Path) -> None:
    prefix = "metadata.iceberg.table-properties."
    given = {f"{prefix}owner": "me", f"{prefix}uuid": "reserved"}
    more = {"metadata.iceberg.previous-versions-max": "3"}

    assert open_entry(create(tmp_path, **URI, **given, **more))._build_properties() == {
        "write.metadata.previous-versions-max": "3",
        "write.metadata.delete-after-commit.enabled": "true",
        "owner": "me",
    }


@pytest.mark.parametrize(
    ("given", "translated"),
    [
        ({"token": "t"}, {"token": "t"}),
        ({"rest.auth.type": "oauth2", "credential": "a:b"}, {"credential": "a:b"}),
        ({"rest.auth.type": "SigV4"}, {"rest.sigv4-enabled": "true"}),
        (
            {
                "rest.auth.type": "basic",
                "rest.auth.basic.username": "u",
                "rest.auth.basic.password": "p",
            },
            {"auth": {"type": "basic", "basic": {"username": "u", "password": "p"}}},
        ),
    ],
)
def test_authentication_of_java_is_translated(
    given: dict[str, str], translated: dict[str, Any]
) -> None:
    assert _translate_properties(given) == translated


def test_no_credentials_are_shown(tmp_path: Path) -> None:
    secrets = {
        "token": "secret-token",
        "credential": "client:secret-part",
        "header.X-Api": "secret-header",
        "client.secret-access-key": "secret-access",
    }
    options = {f"{PREFIX}{key}": text for key, text in secrets.items()}
    entry = open_entry(create(tmp_path, **URI, **options))

    message = "secret-token secret-part secret-header secret-access http://me:pass@host/a"
    assert redact(message, entry.properties) == "*** *** *** *** http://***@host/a"
    assert "secret" not in repr(entry)
    table = create(tmp_path / "other", **URI, **options)
    append = pa.table({"id": pa.array([1], pa.int32())})
    table.append(append)  # a warning: no server listens
    description: Any = inspect(table).to_dict()
    shown = description["schema"]["options"]
    assert (shown[f"{PREFIX}token"], shown[f"{PREFIX}uri"]) == ("***", URI[f"{PREFIX}uri"])
    assert not set(secrets.values()) & set(shown.values())
    line = [f"option {PREFIX}token = ***"]
    assert [
        text for text in _format_schema(table.load().schema) if f"{PREFIX}token" in text
    ] == line
