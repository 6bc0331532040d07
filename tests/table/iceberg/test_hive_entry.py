"""Which options a table in a Hive metastore takes; what it stores is tested in `tests/peers`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paimon_orch import Catalog, Table
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.types.data_types import Field, parse_type
from paimon_orch.table.iceberg.hive_entry import HiveEntry, _shorten_comment
from paimon_orch.table.iceberg.open_catalog_entry import find_entry_names, open_catalog_entry

URI = {"metadata.iceberg.uri": "thrift://one:9000"}


def create(tmp_path: Path, **options: str) -> Table:
    storage = {"metadata.iceberg.storage": "hive-catalog"}
    return Catalog(str(tmp_path)).create_table("db.t", "id INT", options=storage | options)


def open_entry(table: Table) -> HiveEntry:
    entry = open_catalog_entry(table.identifier, table.schema, table.paths)
    assert isinstance(entry, HiveEntry)
    return entry


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "needs the option 'metadata.iceberg.uri'"),
        ({"metadata.iceberg.uri": "http://one"}, "'metadata.iceberg.uri' must be thrift://"),
        (URI | {"metadata.iceberg.hive-client-class": "a.B"}, "'a.B' is not supported"),
        (URI | {"hive.metastore.sasl.enabled": "true"}, "sasl.enabled = true is not supported"),
        (
            URI | {"metadata.iceberg.hive-conf-dir": "/missing"},
            "'metadata.iceberg.hive-conf-dir': /missing/hive-site.xml does not exist",
        ),
    ],
)
def test_options_that_do_not_reach_a_metastore_stop_a_commit(
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
    monkeypatch.setitem(sys.modules, "pymetastore", None)

    with pytest.raises(UnsupportedError, match=r"pip install 'paimon-orch\[hive\]'"):
        table.truncate()


def test_the_address_is_in_hive_site_too(tmp_path: Path) -> None:
    (tmp_path / "hive-site.xml").write_text(
        "<configuration><property><name>hive.metastore.uris</name>"
        "<value>thrift://site:1</value></property></configuration>"
    )
    configured = {"metadata.iceberg.hive-conf-dir": str(tmp_path)}
    timeout = {"hive.metastore.client.socket.timeout": "5 s"}

    address = open_entry(create(tmp_path / "lake", **configured, **timeout)).client.address

    assert (str(address), address.socket_timeout) == ("thrift://site:1", 5)


def test_names_are_those_of_the_options_of_the_identifier_or_of_the_path(tmp_path: Path) -> None:
    table = create(tmp_path, **URI)
    assert find_entry_names("shop.orders", table.schema, table.paths) == [("shop", "orders")]
    assert find_entry_names("orders", table.schema, table.paths) == [("db", "t")]

    named = {"metadata.iceberg.database": "a; b", "metadata.iceberg.table": "c"}
    other = create(tmp_path / "other", **URI, **named)
    assert find_entry_names("db.t", other.schema, other.paths) == [("a", "c"), ("b", "c")]
    assert open_entry(other).databases == ("a", "b")


def test_comments_are_one_short_line() -> None:
    def shorten(text: str | None) -> str | None:
        return _shorten_comment(Field(id=0, name="a", type=parse_type("INT"), description=text))

    assert shorten(None) is None
    assert shorten("a\r\nb") == "a  b"
    assert shorten("x" * 255) == "x" * 255
    assert shorten("x" * 256) == "x" * 252 + "..."


def test_an_address_with_a_password_is_refused_without_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be thrift"):
        open_entry(create(tmp_path, **{"metadata.iceberg.uri": "thrift://user:secret@one"}))
