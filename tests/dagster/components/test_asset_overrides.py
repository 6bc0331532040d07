"""Subclasses of components change the assets of a table, and what their runs do."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from paimon_orch.dagster import (
    MaintenanceAssetRun,
    PaimonCatalogResource,
    PaimonDatabaseComponent,
    PaimonTableComponent,
    TableAssetKind,
    build_compaction_asset,
    build_file_index_asset,
)
from paimon_orch.dagster.asset_runs.asset_run import CompactionConfig, StrategyChoice
from paimon_orch.dagster.maintenance_assets import build_compaction_spec, build_file_index_spec
from paimon_orch.errors import InputError
from paimon_orch.table.table import Table

TABLE = dg.AssetKey(["lake", "orders"])
COMPACTION = dg.AssetKey(["lake", "orders", "orders_compaction"])
DAY = "2026-01-01"
Results = Iterator[dg.MaterializeResult[Any]]
# Dagster's code that loads YAML causes these warnings.
ignore_dagster_warnings = pytest.mark.filterwarnings(
    "ignore:.parse_obj_as. is deprecated", "ignore::dagster.BetaWarning"
)


class AuditedTable(PaimonTableComponent):
    """Adds an upstream asset, and metadata to each result."""

    def get_asset_spec(self, kind: TableAssetKind) -> dg.AssetSpec:
        spec = super().get_asset_spec(kind)
        if kind is TableAssetKind.TABLE:
            return spec.merge_attributes(deps=["events"])
        return spec.merge_attributes(tags={"kind": kind})

    def execute(self, context: dg.AssetExecutionContext, run: MaintenanceAssetRun[Any]) -> Results:
        context.log.info("before %s", run.kind)
        for result in super().execute(context, run):
            yield result._replace(
                metadata={**(result.metadata or {}), "audit": run.table.identifier}
            )


class AuditedDatabase(PaimonDatabaseComponent):
    """Has tables with overrides, and adds a tag to each asset and metadata to each result."""

    def table_component(self, table: str, *, partitioned: bool) -> PaimonTableComponent:
        component = super().table_component(table, partitioned=partitioned)
        return AuditedTable(**dict(component) | {"trigger": "none"})

    def get_asset_spec(self, kind: TableAssetKind, table: PaimonTableComponent) -> dg.AssetSpec:
        spec = super().get_asset_spec(kind, table)
        return spec.merge_attributes(tags={"table": table.table})

    def execute(
        self,
        context: dg.AssetExecutionContext,
        run: MaintenanceAssetRun[Any],
        table: PaimonTableComponent,
    ) -> Results:
        run = replace(run, config=CompactionConfig(strategy=StrategyChoice("full")))
        for result in super().execute(context, run, table):
            strategy = run.config.strategy.value
            yield result._replace(metadata={**(result.metadata or {}), "strategy": strategy})


def build_component(cls: type[PaimonTableComponent], **attributes: Any) -> PaimonTableComponent:
    return cls.from_attributes_dict(attributes={"table": "lake.orders", **attributes})


def materialize(
    definitions: dg.Definitions, resources: Mapping[str, object], **options: Any
) -> dg.ExecuteInProcessResult:
    assets = [a for a in definitions.assets or [] if isinstance(a, dg.AssetsDefinition)]
    return dg.materialize(assets, resources=resources, **options)


@ignore_dagster_warnings
def test_a_subclass_that_is_loaded_from_yaml_overrides_specs_and_runs(
    monkeypatch: pytest.MonkeyPatch,
    orders: Table,
    upsert: Callable[..., None],
    paimon: PaimonCatalogResource,
    resources: Mapping[str, object],
) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", str(paimon.warehouse))
    upsert(orders, DAY)

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=PaimonTableComponent,
            scaffold_params={"table": "lake.orders"},
            defs_yaml_contents={
                "type": f"{__name__}.AuditedTable",
                "attributes": {
                    "table": "lake.orders",
                    "warehouse": "{{ env.PAIMON_WAREHOUSE }}",
                    "file_index": True,
                    "translation": {"group_name": "translated", "tags": {"tier": "gold"}},
                },
            },
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, definitions):
            assert type(component).__name__ == "AuditedTable"
            specs = {spec.key: spec for spec in definitions.resolve_all_asset_specs()}
            result = materialize(definitions, resources)

    file_index = dg.AssetKey(["lake", "orders", "orders_file_index"])
    assert [dep.asset_key for dep in specs[TABLE].deps] == [dg.AssetKey("events")]
    assert specs[COMPACTION].tags["kind"] == "compaction"
    assert specs[file_index].tags["kind"] == "file_index"
    assert {spec.group_name for key, spec in specs.items() if key.path != ["events"]} == {
        "translated"
    }
    assert specs[COMPACTION].tags["tier"] == "gold"
    metadata = {
        event.asset_key: event.materialization.metadata
        for event in result.get_asset_materialization_events()
    }
    assert metadata[COMPACTION]["audit"].value == "lake.orders"
    assert metadata[COMPACTION]["paimon/files_before"].value == 1
    assert metadata[file_index]["audit"].value == "lake.orders"


def test_a_subclass_overrides_the_assets_of_all_tables_of_a_database(
    orders: Table, upsert: Callable[..., None], resources: Mapping[str, object]
) -> None:
    upsert(orders, DAY)
    component = AuditedDatabase.from_attributes_dict(
        attributes={"database": "lake", "warehouse": "/lake"}
    )

    definitions = component.definitions({"orders": [], "items": []})
    tags = {spec.key: spec.tags for spec in definitions.resolve_all_asset_specs()}
    result = materialize(definitions, resources, selection=[COMPACTION])

    assert not definitions.sensors
    assert tags[TABLE]["table"] == "lake.orders"
    assert tags[COMPACTION]["kind"] == "compaction"
    assert tags[dg.AssetKey(["lake", "items", "items_compaction"])]["table"] == "lake.items"
    [event] = result.get_asset_materialization_events()
    metadata = event.materialization.metadata
    assert metadata["audit"].value == "lake.orders"
    assert metadata["strategy"].value == "full"


def test_an_error_in_an_overridden_run_fails_the_run_by_name(
    orders: Table, resources: Mapping[str, object]
) -> None:
    class Component(PaimonTableComponent):
        def execute(
            self, context: dg.AssetExecutionContext, run: MaintenanceAssetRun[Any]
        ) -> Results:
            yield from super().execute(context, run)
            raise InputError(f"no audit for {run.table.identifier}")

    definitions = build_component(Component).definitions()
    result = materialize(definitions, resources, raise_on_error=False)

    [failure] = result.get_step_failure_events()
    assert "InputError: no audit for lake.orders" in str(
        failure.step_failure_data.user_failure_data
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": "other"}, "the key lake/orders cannot be changed to other"),
        ({"deps": []}, "deps of lake/orders/orders_compaction must include lake/orders"),
        (
            {"partitions_def": dg.StaticPartitionsDefinition(["eu"])},
            "partitions_def cannot be changed; set partitions",
        ),
    ],
)
def test_an_override_cannot_change_what_other_definitions_refer_to(
    change: dict[str, Any], message: str
) -> None:
    class Component(PaimonTableComponent):
        def get_asset_spec(self, kind: TableAssetKind) -> dg.AssetSpec:
            return super().get_asset_spec(kind).replace_attributes(**change)

    with pytest.raises(InputError, match=message):
        build_component(Component).definitions()


def test_specs_are_equal_to_those_of_the_assets_of_the_factories() -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01")
    arguments: dict[str, Any] = {"partitions_def": days, "owners": ["team:lake"]}

    compaction = build_compaction_asset("lake.orders", **arguments)
    file_index = build_file_index_asset("lake.orders", **arguments)

    assert compaction.get_asset_spec() == build_compaction_spec("lake.orders", **arguments)
    assert file_index.get_asset_spec() == build_file_index_spec("lake.orders", **arguments)
