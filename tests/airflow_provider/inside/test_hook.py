"""The hook, its connection and the errors of tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow import __version__ as airflow_version
from airflow.providers_manager import ProvidersManager
from airflow.sdk import BaseHook, Connection

from paimon_orch import Catalog, InputError, NotFoundError
from paimon_orch.airflow.catalog_connection import open_connection
from paimon_orch.airflow.hooks import PaimonHook
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table


def test_the_hook_lists_tables_and_describes_one(
    catalog: Catalog, orders: Table, upsert: Callable[..., None]
) -> None:
    upsert(orders, "2026-01-01")
    catalog.alter_table("lake.orders", [SetOption("s3.secret-key", "hidden-key-1")])
    hook = PaimonHook()

    assert hook.list_namespaces() == ["lake"]
    assert hook.list_tables("lake") == ["orders"]
    assert hook.table_exists("lake.orders")
    assert not hook.table_exists("lake.none")
    schema, [snapshot] = hook.get_table_schema("lake.orders"), hook.get_snapshots("lake.orders")
    assert [column["name"] for column in schema["columns"]] == ["dt", "id", "amount"]
    assert schema["partition_keys"] == ["dt"]
    assert schema["options"]["s3.secret-key"] == "***"
    assert snapshot["snapshot_id"] == 1
    assert snapshot["commit_kind"] == "APPEND"
    json.dumps([schema, snapshot])
    with pytest.raises(NotFoundError):
        hook.load_table("lake.none")


@pytest.mark.skipif(airflow_version.startswith("3.1."), reason="Airflow 3.1 builds no such form")
def test_the_form_of_a_connection_has_our_labels() -> None:
    manager = ProvidersManager()
    hook = manager.hooks["paimon"]

    assert hook is not None
    assert hook.hook_name == "Apache Paimon"
    form = manager.field_behaviours["paimon"]
    assert form["relabeling"] == {"host": "Warehouse", "password": "Token"}
    assert form["hidden_fields"] == PaimonHook.get_ui_field_behaviour()["hidden_fields"]


def test_a_connection_knows_its_hook(orders: Table) -> None:
    hook = BaseHook.get_hook("paimon_default")

    assert isinstance(hook, PaimonHook)
    assert hook.list_tables("lake") == ["orders"]


def test_a_connection_is_tested(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PaimonHook().test_connection() == (True, "The catalog has 1 database.")

    monkeypatch.setenv("AIRFLOW_CONN_PAIMON_DEFAULT", json.dumps({"conn_type": "paimon"}))
    is_ok, message = PaimonHook().test_connection()

    assert not is_ok
    assert "set one of catalog" in message


def connect(extra: dict[str, Any], **fields: str) -> Connection:
    return Connection(conn_id="c", conn_type="paimon", extra=json.dumps(extra), **fields)


def test_a_connection_has_options_of_a_metastore(tmp_path: object) -> None:
    extra = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db", "catalog": ""}

    catalog = open_connection(connect(extra, host=f"{tmp_path}/lake"))
    catalog.create_database("lake")

    assert catalog.databases() == ["lake"]
    assert catalog.name is None


def test_an_unknown_extra_field_and_a_contradiction_are_refused() -> None:
    with pytest.raises(InputError, match="unknown extra fields wharehouse"):
        open_connection(connect({"wharehouse": "/lake"}))
    with pytest.raises(InputError, match="must be a JSON object"):
        open_connection(connect({"storage_options": "a=b"}, host="/lake"))
    with pytest.raises(InputError, match="warehouse cannot be set"):
        open_connection(connect({"catalog": "prod"}, host="/lake"))
