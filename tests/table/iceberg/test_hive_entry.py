"""Options of a table in a Hive metastore, and its entry; `tests/peers` has real metastores."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pymetastore.hive_metastore import ttypes
from support.catalogs.memory_metastore import MemoryMetastore, run_memory_metastore

from paimon_orch import Catalog, Table
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.types.data_types import Field, parse_type
from paimon_orch.table.iceberg.hive_entry import HiveEntry, _shorten_comment
from paimon_orch.table.iceberg.open_catalog_entry import find_entry_names, open_catalog_entry
from paimon_orch.table.iceberg.status import read_iceberg_status

URI = {"metadata.iceberg.uri": "thrift://one:9000"}


@pytest.fixture(autouse=True)
def _allowed_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_ALLOWED_HOSTS", "one,site,127.0.0.1")
    monkeypatch.setenv("PAIMON_ALLOWED_EXTERNAL_PATHS", f"/missing/*,{tmp_path}/*")


def create(tmp_path: Path, **options: str) -> Table:
    storage = {"metadata.iceberg.storage": "hive-catalog"}
    return Catalog(str(tmp_path)).create_table("db.t", "id INT", options=storage | options)


def open_entry(table: Table) -> HiveEntry:
    entry = open_catalog_entry(table.identifier, table.load().schema, table.paths)
    assert isinstance(entry, HiveEntry)
    return entry


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "needs the option 'metadata.iceberg.uri'"),
        ({"metadata.iceberg.uri": "http://one"}, "'metadata.iceberg.uri' must be thrift://"),
        (URI | {"metadata.iceberg.hive-client-class": "a.B"}, "'a.B' is not supported"),
        (
            URI | {"hive.metastore.sasl.enabled": "true"},
            "'hive.metastore.sasl.enabled' is not read from a table; set it in hive-site.xml",
        ),
        (
            URI | {"hive.metastore.use.SSL": "false"},
            "'hive.metastore.use.SSL' is not read from a table",
        ),
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
    assert find_entry_names("shop.orders", table.load().schema, table.paths) == [("shop", "orders")]
    assert find_entry_names("orders", table.load().schema, table.paths) == [("db", "t")]

    named = {"metadata.iceberg.database": "a; b", "metadata.iceberg.table": "c"}
    other = create(tmp_path / "other", **URI, **named)
    assert find_entry_names("db.t", other.load().schema, other.paths) == [("a", "c"), ("b", "c")]
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


@pytest.fixture
def metastore() -> Iterator[MemoryMetastore]:
    with run_memory_metastore() as metastore:
        yield metastore


@pytest.fixture
def published(metastore: MemoryMetastore, tmp_path: Path) -> Table:
    """A table with a snapshot and an entry that shows it."""
    table = create(tmp_path, **{"metadata.iceberg.uri": metastore.uri})
    append(table)
    return table


def append(table: Table) -> None:
    table.append(pa.table({"id": pa.array([1], pa.int32())}))


def find_problem(table: Table) -> str:
    status = read_iceberg_status(table.stores.iceberg)
    assert status is not None
    return status.problem or ""


def test_the_entry_follows_the_newest_metadata(
    published: Table, metastore: MemoryMetastore
) -> None:
    append(published)

    parameters = metastore.tables["db", "t"].parameters
    assert parameters["metadata_location"].endswith("/metadata/v2.metadata.json")
    assert parameters["previous_metadata_location"].endswith("/metadata/v1.metadata.json")
    assert find_problem(published) == ""


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"table_type": "HUDI"}, "is not an Iceberg table"),
        ({"metadata_location": None}, "is not an Iceberg table"),
        ({"metadata_location": "/elsewhere/v1.metadata.json"}, "points to /elsewhere/v1"),
    ],
)
def test_an_entry_that_shows_something_else_is_a_problem(
    published: Table,
    metastore: MemoryMetastore,
    parameters: dict[str, str | None],
    problem: str,
) -> None:
    entry = metastore.tables["db", "t"]
    changed = entry.parameters | parameters
    entry.parameters = {name: value for name, value in changed.items() if value is not None}

    assert problem in find_problem(published)


def test_other_columns_and_a_missing_entry_are_problems(
    published: Table, metastore: MemoryMetastore
) -> None:
    metastore.tables["db", "t"].sd.cols[0].type = "string"
    assert "has other columns" in find_problem(published)
    metastore.tables.clear()
    assert "does not exist" in find_problem(published)


def test_a_refusal_of_the_metastore_is_reported(
    published: Table, metastore: MemoryMetastore, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = ttypes.MetaException(message="the disk is full")
    metastore.refusals["alter_table_with_environment_context"] = refusal

    append(published)

    assert "the disk is full" in caplog.text
    assert "points to" in find_problem(published)
