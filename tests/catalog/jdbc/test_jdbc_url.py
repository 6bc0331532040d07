"""Addresses in the form of JDBC, and what they become for drivers of Python."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_orch.catalog.jdbc import jdbc_url
from paimon_orch.catalog.jdbc.jdbc_url import parse_jdbc_url
from paimon_orch.errors import InputError, MissingPackageError


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("jdbc:sqlite:/data/c.db", "/data/c.db"),
        ("jdbc:sqlite:file:/data/c.db", "/data/c.db"),
        (" jdbc:sqlite:/data/a b.db\n", "/data/a b.db"),
    ],
)
def test_sqlite_files(uri: str, path: str) -> None:
    address = parse_jdbc_url(uri, {})
    assert (address.kind, address.url.database) == ("sqlite", path)


def test_a_relative_path_does_not_depend_on_the_process_that_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_jdbc_url("jdbc:sqlite:c.db", {}).url.database == f"{tmp_path}/c.db"


@pytest.mark.parametrize(
    ("uri", "host", "port", "database"),
    [
        ("jdbc:postgresql://db.example.com/lake", "db.example.com", "5432", "lake"),
        ("jdbc:postgresql://db:6543/my%20lake", "db", "6543", "my lake"),
        ("jdbc:postgresql:lake", "localhost", "5432", "lake"),
        ("jdbc:postgresql:///lake", "localhost", "5432", "lake"),
        ("jdbc:postgresql://a:1,b/lake", "a,b", "1,5432", "lake"),
        ("jdbc:postgresql://[::1]:1/lake", "::1", "1", "lake"),
        ("jdbc:postgresql://h/", "h", "5432", "me"),
    ],
)
def test_postgresql_hosts(uri: str, host: str, port: str, database: str) -> None:
    address = parse_jdbc_url(uri, {"user": "me"})
    arguments = address.connect_arguments
    assert (arguments["host"], arguments["port"]) == (host, port)
    assert (address.url.database, address.url.username) == (database, "me")


def test_parameters_of_the_uri_take_precedence_over_properties() -> None:
    uri = "jdbc:postgresql://h/d?user=a&password=p%26q&sslmode=require&prepareThreshold=0"
    address = parse_jdbc_url(uri, {"user": "b", "sslmode": "disable", "connectTimeout": "7"})

    assert (address.url.username, address.url.password) == ("a", "p&q")
    assert address.connect_arguments["sslmode"] == "require"
    assert address.connect_arguments["connect_timeout"] == "7"
    assert address.description == "jdbc:postgresql://h/d"


def test_ssl_verifies_the_server_as_in_java() -> None:
    arguments = parse_jdbc_url("jdbc:postgresql://h/d?ssl=true", {}).connect_arguments
    assert arguments["sslmode"] == "verify-full"


def test_sessions_of_postgresql_have_the_time_zone_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    uri = "jdbc:postgresql://h/d?currentSchema=my schema"
    options = parse_jdbc_url(uri, {}).connect_arguments["options"]
    assert options == "-c timezone=Asia/Tokyo -c search_path=my\\ schema"


def test_mysql_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jdbc_url, "require_package", lambda *_, **__: None)
    uri = "jdbc:mysql://h:3307/lake?useSSL=false&serverTimezone=UTC&connectTimeout=2500"
    address = parse_jdbc_url(uri, {"user": "me", "password": "p"})
    assert address.url.render_as_string(hide_password=False) == ("mysql+pymysql://me:p@h:3307/lake")
    assert address.connect_arguments == {"connect_timeout": 2}


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("sqlite:/c.db", "must begin with 'jdbc:'"),
        ("jdbc:oracle:thin", "'oracle' must be one of sqlite, postgresql, mysql"),
        ("jdbc:mariadb://h/d", "'mariadb' must be one of"),
        ("jdbc:sqlite::memory:", "needs the path of a file"),
        ("jdbc:sqlite:", "needs the path of a file"),
        ("jdbc:sqlite:/c.db?cache=shared", "does not support the parameter 'cache'"),
        ("jdbc:postgresql://h/d?magic=1", "does not support the parameter 'magic'"),
        ("jdbc:postgresql://me:pw@h/d", "cannot contain a user before the host"),
        ("jdbc:postgresql://h:x/d", "must be host or host:port"),
        ("jdbc:mysql://a,b/d", "needs one host and a database"),
        ("jdbc:mysql://h/d?connectTimeout=soon", "'connectTimeout' must be a whole number"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(uri: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_jdbc_url(uri, {})
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "module", "package", "extra"),
    [
        ("jdbc:postgresql:d", "psycopg2", "psycopg2-binary", "jdbc-postgres"),
        ("jdbc:mysql://h/d", "pymysql", "pymysql", "jdbc-mysql"),
    ],
)
def test_a_missing_driver_is_named(
    monkeypatch: pytest.MonkeyPatch, uri: str, module: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    message = f"needs the package {package}, .*pip install 'paimon-orch\\[{extra}\\]'"
    with pytest.raises(MissingPackageError, match=message):
        parse_jdbc_url(uri, {})


def test_passwords_are_not_in_the_representation() -> None:
    uri = "jdbc:postgresql://h/d?password=hush&sslpassword=quiet"
    address = parse_jdbc_url(uri, {"user": "me"})
    assert address.secrets == ("hush", "quiet")
    for text in (repr(address), str(address), repr(replace(address))):
        assert "hush" not in text
        assert "quiet" not in text
