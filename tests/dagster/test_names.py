import dagster as dg
import pytest

from paimon_orch.dagster import names
from paimon_orch.errors import InputError


def test_a_tables_assets_share_a_path() -> None:
    assert names.table_asset_key("lake.orders", ["prod"]) == dg.AssetKey(["prod", "lake", "orders"])
    assert names.compaction_asset_key("lake.orders") == dg.AssetKey(
        ["lake", "orders", "compaction"]
    )


def test_one_pool_holds_all_that_commits_to_a_table() -> None:
    assert names.pool_name("lake.orders") == "paimon/lake.orders"


def test_names_hold_only_what_dagster_allows() -> None:
    assert (
        names.definition_name("latest_snapshot", "lake.my-orders")
        == "latest_snapshot__lake__my_orders"
    )
    assert names.group_name("my-lake.orders") == "my_lake"


@pytest.mark.parametrize("table", ["orders", "a.b.c", ".b", "a.", ""])
def test_a_table_is_named_with_its_database(table: str) -> None:
    with pytest.raises(InputError, match=r"database\.table"):
        names.table_asset_key(table)
