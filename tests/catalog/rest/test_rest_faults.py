"""Names, schemas and credentials through a real server while requests and answers get lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.catalogs.fixtures import StartRestServer
from support.catalogs.rest_proxy import (
    CUT_AFTER,
    CUT_BEFORE,
    Fault,
    ProxiedRequest,
    RestProxy,
    answer_after,
    answer_before,
    run_rest_proxy,
)
from support.catalogs.rest_server import JAVA_2_0, PYPAIMON_1_4, DlfKeys
from support.tables import rows_of, table_of

from paimon_orch import AccessDeniedError, Catalog, StorageError
from paimon_orch.catalog.rest import rest_client
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table

COLUMNS = "k INT NOT NULL, v STRING"


def create_table(proxy: RestProxy, name: str = "db.t") -> Table:
    options = {"bucket": "1"}
    return Catalog(**proxy.options).create_table(name, COLUMNS, primary_key=["k"], options=options)


@pytest.mark.parametrize("served", [JAVA_2_0, PYPAIMON_1_4], indirect=True)
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_all_pages_of_a_listing_are_read(proxy: RestProxy, size: int) -> None:
    names = ["t1", "t2", "t3"]
    for name in names:
        create_table(proxy, f"db.{name}")
    proxy.page_size = size
    catalog = Catalog(**proxy.options)
    with proxy.count() as requests:
        assert catalog.tables("db") == names
    assert requests["GET tables"] >= -(-len(names) // size)
    assert catalog.databases() == ["db"]


@pytest.mark.parametrize("fault", [CUT_BEFORE, CUT_AFTER, answer_before(503), answer_before(429)])
def test_reads_are_repeated(
    proxy: RestProxy, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table(proxy).upsert(table_of("k v", [(1, "a")]))
    monkeypatch.setattr(rest_client, "_configs", {})
    for name in ("config", "databases", "database", "tables", "table", "snapshot"):
        proxy.inject(f"GET {name}", fault, fault)

    catalog = Catalog(**proxy.options)

    assert catalog.databases() == ["db"]
    assert catalog.tables("db") == ["t"]
    assert rows_of(catalog.table("db.t")) == [(1, "a")]


def drop(catalog: Catalog) -> None:
    catalog.drop_table("db.t")


def alter(catalog: Catalog) -> object:
    return catalog.alter_table("db.t", [AddColumn(column="w", type="INT")])


def rename(catalog: Catalog) -> object:
    return catalog.rename_table("db.t", "db.u")


@pytest.mark.parametrize(
    ("change", "request_name"),
    [(alter, "POST table"), (rename, "POST table"), (drop, "DELETE table")],
)
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_change_changes_nothing(
    proxy: RestProxy, change: Callable[[Catalog], object], request_name: str, status: int
) -> None:
    table = create_table(proxy)
    table.upsert(table_of("k v", [(1, "a")]))
    proxy.inject(request_name, answer_before(status))
    catalog = Catalog(**proxy.options)

    with pytest.raises(AccessDeniedError):
        change(catalog)

    assert catalog.tables("db") == ["t"]
    assert rows_of(table) == [(1, "a")]


@pytest.mark.parametrize("fault", [CUT_AFTER, answer_after(503)])
def test_a_change_whose_answer_is_lost_is_not_repeated(proxy: RestProxy, fault: Fault) -> None:
    table = create_table(proxy)
    proxy.inject("POST table", fault)
    with proxy.count() as requests, pytest.raises(StorageError, match="may have carried out"):
        alter(Catalog(**proxy.options))
    assert requests["POST table"] == 1
    assert [field.name for field in table.load().schema.fields] == ["k", "v", "w"]


@pytest.mark.parametrize("fault", [CUT_BEFORE, CUT_AFTER, answer_after(503)])
def test_a_drop_whose_answer_is_lost_is_repeated(proxy: RestProxy, fault: Fault) -> None:
    create_table(proxy)
    proxy.inject("DELETE table", fault)
    catalog = Catalog(**proxy.options)
    drop(catalog)
    assert catalog.tables("db") == []


def test_a_commit_is_signed_again_after_the_token_file_changed(
    start_rest_server: StartRestServer, tmp_path: Path
) -> None:
    keys = DlfKeys()
    file = tmp_path / "token.json"

    def write_token(security_token: str) -> None:
        token = {
            "AccessKeyId": keys.access_key_id,
            "AccessKeySecret": keys.access_key_secret,
            "SecurityToken": security_token,
        }
        file.write_text(json.dumps(token))

    def used_token(request: ProxiedRequest) -> str | None:
        return {k.lower(): v for k, v in request.headers.items()}.get("x-dlf-security-token")

    write_token("first")
    with run_rest_proxy(start_rest_server(JAVA_2_0, keys=keys)) as proxy:
        options: dict[str, Any] = {**proxy.options, "dlf.token-path": str(file)}
        del options["dlf.access-key-id"], options["dlf.access-key-secret"]
        catalog = Catalog(**options)
        columns, key = COLUMNS, ["k"]
        table = catalog.create_table("db.t", columns, primary_key=key, options={"bucket": "1"})
        assert {used_token(request) for request in proxy.requests} == {"first"}
        write_token("second")
        proxy.inject("POST commit", answer_before(401))

        with proxy.count() as requests:
            table.upsert(table_of("k v", [(1, "a")]))

        assert requests["POST commit"] == 2
        commits = [request for request in proxy.requests if request.name == "POST commit"]
        assert [used_token(request) for request in commits] == ["first", "second"]
        assert rows_of(table) == [(1, "a")]
