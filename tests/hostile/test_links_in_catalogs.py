"""A link in place of a table or a database leads no catalog, of any kind, to another table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hostile.test_links import ATTEMPTS, fill, read_all
from support.catalogs.jdbc_databases import create_sqlite_database
from support.catalogs.memory_metastore import run_memory_metastore
from support.faulty_server import Answer, run_faulty_server
from support.tables import rows_of

from paimon_orch import Catalog
from paimon_orch.catalog.rest import rest_client
from paimon_orch.errors import NotAllowedError, PaimonError
from paimon_orch.table.table import Table

COLUMNS = "k BIGINT, v STRING"
KINDS = ["file system", "jdbc", "hive"]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    (tmp_path / "real").mkdir()
    (tmp_path / "w").symlink_to(tmp_path / "real")
    return tmp_path / "w"


@pytest.fixture
def open_catalog(
    request: pytest.FixtureRequest, warehouse: Path
) -> Iterator[Callable[[str], Catalog]]:
    """Return a function that opens a catalog with some spelling of the warehouse."""
    if request.param == "hive":
        with run_memory_metastore() as metastore:
            uri = metastore.uri
            yield lambda path: Catalog(**_options("hive", uri, path))
    elif request.param == "jdbc":
        uri = create_sqlite_database(warehouse.parent / "catalog.db").uri
        yield lambda path: Catalog(**_options("jdbc", uri, path))
    else:
        yield Catalog


def _options(metastore: str, uri: str, path: str) -> dict[str, Any]:
    return {"metastore": metastore, "uri": uri, "warehouse": path}


def create_tables(catalog: Catalog) -> Path:
    """Create the table of an attacker and another one, whose directory is returned."""
    options = {"bucket": "1"}
    for name in ("db.t", "other.t"):
        fill(catalog.create_table(name, COLUMNS, primary_key=["k"], options=options))
    return Path(catalog.table("other.t").paths.root)


def link(path: Path, target: Path) -> None:
    """Replace a directory by a link."""
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.rename(path.with_name("moved"))
    path.symlink_to(target)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("spelling", ["{}", "{}/", "file:{}", "{}/../real"])
@pytest.mark.parametrize("open_catalog", KINDS, indirect=True)
def test_a_link_in_place_of_a_table_leads_no_step_to_another_table(
    open_catalog: Callable[[str], Catalog], warehouse: Path, spelling: str
) -> None:
    catalog = open_catalog(spelling.format(warehouse))
    victim = create_tables(catalog)
    path = victim.parents[1] / "db.db" / "t"
    link(path, victim)
    before = read_all(victim)

    attempts: dict[str, Callable[[Table], object]] = {**ATTEMPTS, "rows": rows_of}
    del attempts["check"]  # reports the link
    for attempt in attempts.values():
        with pytest.raises(NotAllowedError, match="symbolic link"):
            attempt(catalog.table("db.t"))
    with pytest.raises(NotAllowedError, match="symbolic link"):
        catalog.drop_table("db.t")

    assert path.is_symlink()
    assert read_all(victim) == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize("folder", ["", "bucket-0", "manifest", "branch/branch-dev"])
@pytest.mark.parametrize("open_catalog", KINDS, indirect=True)
def test_no_table_is_created_in_or_renamed_into_a_directory_of_another_one(
    open_catalog: Callable[[str], Catalog], warehouse: Path, folder: str
) -> None:
    catalog = open_catalog(str(warehouse))
    victim = create_tables(catalog)
    catalog.create_table("linked.first", COLUMNS)
    for path in ("db.db/n", "db.db/s/schema"):
        (warehouse / path).parent.mkdir(exist_ok=True)
        link(warehouse / path, victim / folder)
    link(warehouse / "linked.db", victim / folder)
    before = read_all(victim)

    for name in ("db.n", "db.s", "linked.n"):
        with suppress(PaimonError):
            catalog.create_table(name, COLUMNS)
    with suppress(PaimonError):
        catalog.rename_table("db.t", "linked.t")

    assert read_all(victim) == before
    assert len(rows_of(catalog.rename_table("other.t", "db.renamed"))) == 2


@pytest.mark.parametrize("is_external", [False, True])
def test_a_link_in_place_of_the_table_of_a_rest_server_is_not_followed(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, *, is_external: bool
) -> None:
    monkeypatch.setattr(rest_client, "_configs", {})
    victim = create_tables(Catalog(str(warehouse)))
    link(warehouse / "db.db" / "t", victim)
    before = read_all(victim)
    options: dict[str, Any] = {
        "token": "t",
        "allowed_external_paths": [f"{warehouse.parent}/real"],
    }
    with run_faulty_server() as server:
        for base in (warehouse, warehouse.parent / "real"):
            path = f"file:{base}/db.db/t"
            answer = Answer(
                body={
                    "path": path,
                    "id": "1",
                    "schemaId": 0,
                    "schema": {},
                    "isExternal": is_external,
                }
            )
            for attempt in (rows_of, ATTEMPTS["orphans"], ATTEMPTS["purge"]):
                server.answers = [answer]
                catalog = Catalog(**_options("rest", server.uri, str(warehouse)), **options)
                with pytest.raises(NotAllowedError, match="symbolic link"):
                    attempt(catalog.table("db.t"))

    assert read_all(victim) == before
