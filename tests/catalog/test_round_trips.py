"""The number of requests that a step sends to its catalog."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.catalogs.kinds import HIVE, POSTGRESQL, ROOT, CatalogUnderTest
from support.catalogs.rest_server import JAVA_2_0
from support.catalogs.round_trips import count_round_trips
from support.tables import new_table, table_of

from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.table import Table

ROWS = table_of("k v", [(1, "a"), (2, "b")])
LOCK = {JAVA_2_0: [], HIVE: ["lock", "unlock"], POSTGRESQL: ["INSERT", "DELETE"]}
COMMIT = ["GET t/snapshot", "POST t/commit"]
only = pytest.mark.parametrize("catalog_under_test", LOCK, indirect=True)


@pytest.fixture
def table(catalog_under_test: CatalogUnderTest) -> Table:
    table = new_table(ROOT)
    table.upsert(ROWS)
    return catalog_under_test.open().table("db.t")


@only
def test_a_table_is_loaded_with_one_request(
    catalog_under_test: CatalogUnderTest, table: Table
) -> None:
    with count_round_trips() as trips:
        catalog_under_test.open().table(table.identifier)
    kind = {JAVA_2_0: ["GET t"], HIVE: ["get_table_req"], POSTGRESQL: ["SELECT"]}
    assert trips.requests == kind[catalog_under_test.kind]


@only
def test_a_write_asks_for_the_newest_snapshot_once_to_plan_and_once_to_commit(
    catalog_under_test: CatalogUnderTest, table: Table
) -> None:
    with count_round_trips() as trips:
        table.upsert(ROWS)
    rest = ["GET t/snapshot", *COMMIT] if catalog_under_test.is_rest else []
    assert trips.requests == rest + LOCK[catalog_under_test.kind]


@only
def test_a_compaction_asks_for_the_newest_snapshot_once_to_plan_and_once_to_commit(
    catalog_under_test: CatalogUnderTest, table: Table
) -> None:
    with count_round_trips() as trips:
        assert compact(table, InProcessExecutor(), strategy="full").snapshot_id == 2
    rest = ["GET t/snapshot", *COMMIT] if catalog_under_test.is_rest else []
    assert trips.requests == rest + LOCK[catalog_under_test.kind]


def test_a_write_and_a_compaction_list_the_schemas_once(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(ROWS)
    with count_round_trips() as trips:
        table.upsert(ROWS)
    assert trips.files.count("list_dir schema") == 1
    assert len(trips.files) <= 17
    with count_round_trips() as trips:
        compact(table, InProcessExecutor(), strategy="full")
    assert trips.files.count("list_dir schema") == 1
