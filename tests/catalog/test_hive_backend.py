"""A Hive catalog when requests fail, with a small metastore; `test_hive_faults.py` has real ones."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pymetastore.hive_metastore import ttypes
from support.catalogs.cutting_proxy import CuttingProxy, run_cutting_proxy
from support.catalogs.memory_metastore import MemoryMetastore, run_memory_metastore
from support.tables import rows_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitOutcomeUnknownError, InputError, NotFoundError
from paimon_orch.table.schema_change.schema_changes import AddColumn

ROWS = pa.table({"k": pa.array([1], pa.int32())})


@pytest.fixture
def metastore() -> Iterator[MemoryMetastore]:
    with run_memory_metastore() as metastore:
        yield metastore


@pytest.fixture
def proxy(metastore: MemoryMetastore) -> Iterator[CuttingProxy]:
    with run_cutting_proxy(metastore.uri) as proxy:
        yield proxy


def open_catalog(uri: str, warehouse: Path, **more: str) -> Catalog:
    options: dict[str, Any] = {"metastore": "hive", "uri": uri, "warehouse": str(warehouse), **more}
    return Catalog(**options)


def test_a_cut_creation_is_looked_up(proxy: CuttingProxy, tmp_path: Path) -> None:
    catalog = open_catalog(proxy.uri, tmp_path)
    proxy.cut("create_table", after=True)
    catalog.create_table("db.t", "k INT").append(ROWS)
    proxy.cut("create_table", after=False)
    with pytest.raises(CommitOutcomeUnknownError, match="create_table"):
        catalog.create_table("db.u", "k INT")
    assert catalog.tables("db") == ["t"]


def test_cut_renames_and_drops_are_looked_up(proxy: CuttingProxy, tmp_path: Path) -> None:
    catalog = open_catalog(proxy.uri, tmp_path)
    catalog.create_table("db.t", "k INT").append(ROWS)
    proxy.cut("alter_table", after=False)
    with pytest.raises(CommitOutcomeUnknownError, match="alter_table"):
        catalog.rename_table("db.t", "db.u")
    proxy.cut("alter_table", after=True)
    renamed = catalog.rename_table("db.t", "db.u")
    assert rows_of(renamed) == [(1,)]
    proxy.cut("drop_table_with_environment_context", after=False)
    with pytest.raises(CommitOutcomeUnknownError, match="drop_table"):
        catalog.drop_table("db.u")
    assert rows_of(renamed) == [(1,)]
    proxy.cut("drop_table_with_environment_context", after=True)
    catalog.drop_table("db.u")
    assert catalog.tables("db") == []
    assert not Path(renamed.paths.root).exists()


def test_a_cut_change_keeps_its_schema_file_and_a_refused_one_does_not(
    proxy: CuttingProxy, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    catalog = open_catalog(proxy.uri, tmp_path)
    table = catalog.create_table("db.t", "k INT")
    metastore.refusals["alter_table_with_environment_context"] = ttypes.InvalidOperationException(
        message="no such type"
    )
    with pytest.raises(InputError, match="no such type"):
        catalog.alter_table("db.t", [AddColumn(column="v", type="INT")])
    assert table.stores.schemas.ids() == [0]
    proxy.cut("alter_table_with_environment_context", after=True)
    with pytest.raises(CommitOutcomeUnknownError, match="alter_table"):
        catalog.alter_table("db.t", [AddColumn(column="v", type="INT")])
    assert table.stores.schemas.ids() == [0, 1]


def test_a_refused_table_leaves_no_files(metastore: MemoryMetastore, tmp_path: Path) -> None:
    catalog = open_catalog(metastore.uri, tmp_path)
    metastore.refusals["create_table"] = ttypes.InvalidObjectException(message="no such type")
    with pytest.raises(InputError, match="no such type"):
        catalog.create_table("db.t", "k INT")
    assert list(tmp_path.rglob("*schema*")) == []
    assert catalog.tables("db") == []
    with pytest.raises(NotFoundError):
        catalog.table("db.t")


def test_addresses_are_tried_in_turn(metastore: MemoryMetastore, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    catalog = open_catalog(f"thrift://127.0.0.1:{closed},{metastore.uri}", tmp_path)
    catalog.create_database("db")
    assert catalog.databases() == ["db"]


def test_locations_can_be_properties_instead_of_fields(
    metastore: MemoryMetastore, tmp_path: Path
) -> None:
    catalog = open_catalog(metastore.uri, tmp_path, **{"location-in-properties": "true"})
    table = catalog.create_table("db.t", "k INT")
    table.append(ROWS)

    database, entry = metastore.databases["db"], metastore.tables["db", "t"]
    assert (database.locationUri, entry.sd.location) == (None, None)
    assert database.parameters == {"paimon_location": f"{tmp_path}/db.db"}
    assert entry.parameters["paimon_location"] == table.paths.root == f"{tmp_path}/db.db/t"
    assert rows_of(catalog.table("db.t")) == [(1,)]
