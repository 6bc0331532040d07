import dagster as dg
import pytest

from paimon_orch.dagster import names
from paimon_orch.errors import InputError


def test_the_asset_keys_of_a_table_have_a_common_prefix() -> None:
    assert names.table_asset_key("lake.orders", ["prod"]) == dg.AssetKey(["prod", "lake", "orders"])
    assert names.compaction_asset_key("lake.orders") == dg.AssetKey(
        ["lake", "orders", "orders_compaction"]
    )


def test_the_pool_name_contains_the_table() -> None:
    assert names.pool_name("lake.orders") == "paimon/lake.orders"


def test_names_contain_only_characters_that_dagster_allows() -> None:
    assert (
        names.definition_name("latest_snapshot", "lake.my-orders")
        == "latest_snapshot__lake__my_orders"
    )
    assert names.group_name("my-lake.orders") == "my_lake"


@pytest.mark.parametrize("table", ["orders", "a.b.c", ".b", "a.", ""])
def test_a_table_name_without_a_database_is_refused(table: str) -> None:
    with pytest.raises(InputError, match=r"database\.table"):
        names.table_asset_key(table)
