from collections.abc import Mapping
from typing import Any

import dagster as dg
import pytest

from paimon_orch.dagster import PaimonDatabaseComponent, PaimonTableComponent
from paimon_orch.errors import InputError

TABLE = dg.AssetKey(["lake", "orders"])
COMPACTION = dg.AssetKey(["lake", "orders", "orders_compaction"])


def load(translation: Any) -> Mapping[dg.AssetKey, dg.AssetSpec]:
    component = PaimonTableComponent.from_attributes_dict(
        attributes={"table": "lake.orders", "warehouse": "/lake", "translation": translation}
    )
    definitions = component.definitions()
    dg.Definitions.validate_loadable(definitions)
    return {spec.key: spec for spec in definitions.resolve_all_asset_specs()}


def test_the_translation_changes_the_assets_of_a_table() -> None:
    specs = load(
        {
            "group_name": "{{ database }}_tables",
            "tags": {"table": "{{ name }}"},
            "owners": ["team:lake"],
            "description": "Of {{ table }}.",
        }
    )

    assert set(specs) == {TABLE, COMPACTION}
    for spec in specs.values():
        assert spec.group_name == "lake_tables"
        assert spec.tags["table"] == "orders"
        assert spec.owners == ["team:lake"]
        assert spec.description == "Of lake.orders."
        assert spec.kinds >= {"paimon"}
    assert [dep.asset_key for dep in specs[COMPACTION].deps] == [TABLE]


def test_the_translation_of_one_asset_depends_on_its_spec() -> None:
    specs = load({"description": "{{ spec.key.path[-1] }} of {{ name }}"})

    assert specs[COMPACTION].description == "orders_compaction of orders"


def test_each_table_of_a_database_has_its_own_translation() -> None:
    component = PaimonDatabaseComponent.from_attributes_dict(
        attributes={
            "database": "lake",
            "warehouse": "/lake",
            "translation": {"group_name": "{{ name }}"},
        }
    )

    specs = component.definitions({"orders": ["dt"], "items": []}).resolve_all_asset_specs()

    assert {spec.key.path[1]: spec.group_name for spec in specs} == {
        "orders": "orders",
        "items": "items",
    }


@pytest.mark.parametrize(
    ("translation", "message"),
    [
        ({"key": "other"}, "the key lake/orders cannot be changed to other"),
        ({"key_prefix": "prod"}, "set key_prefix of the component instead"),
        ({"deps": ["other"]}, "deps of lake/orders/orders_compaction must include lake/orders"),
    ],
)
def test_a_translation_cannot_change_what_other_definitions_refer_to(
    translation: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(translation)
