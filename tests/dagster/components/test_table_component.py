import json
import runpy
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from pydantic import ValidationError
from support.dagster.spark_resources import InProcessSparkResource
from support.dagster.ticks import evaluate_sensor, scheduled_op_config

from paimon_orch.dagster import CompactionPolicy, PaimonCatalogResource, PaimonTableComponent
from paimon_orch.dagster.components.compaction_attributes import CompactionAttributes
from paimon_orch.errors import InputError, PaimonError
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

ATTRIBUTES: Mapping[str, Any] = {
    "table": "lake.orders",
    "warehouse": "/lake",
    "partitions": {"start": "2026-01-01"},
    "snapshot_expiration": {"retain_min": 10, "retain_for": "24 h", "cron": "17 * * * *"},
    "orphan_files": {"older_than": "7 d"},
    "checks": {"level0_backlog": {"limit": 20, "severity": "error", "blocking": True}},
}
DAY = "2026-01-01"
COMPACTION = dg.AssetKey(["lake", "orders", "orders_compaction"])
SENSOR = "latest_snapshot__lake__orders"


def load(**attributes: Any) -> dg.Definitions:
    component = PaimonTableComponent.from_attributes_dict(attributes={**ATTRIBUTES, **attributes})
    return component.definitions()


def load_catalog(**attributes: Any) -> PaimonCatalogResource:
    paimon = (load(**attributes).resources or {})["paimon"]
    assert isinstance(paimon, PaimonCatalogResource)
    return paimon


def schedule_config(defs: dg.Definitions, action: str) -> dict[str, Any]:
    schedule = defs.resolve_schedule_def(f"{action}__lake__orders_schedule")
    return scheduled_op_config(schedule, action)


def asset_keys(defs: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in defs.resolve_all_asset_keys()}


def test_a_minimal_component_has_assets_a_sensor_and_jobs() -> None:
    defs = load()

    dg.Definitions.validate_loadable(defs)
    assert asset_keys(defs) == {"lake/orders", "lake/orders/orders_compaction"}
    assert [sensor.name for sensor in defs.sensors or []] == ["latest_snapshot__lake__orders"]
    assert {job.name for job in defs.jobs or []} == {
        "expire_snapshots__lake__orders",
        "remove_orphan_files__lake__orders",
        "sync_iceberg__lake__orders",
    }


def test_policies_become_the_config_of_the_schedules() -> None:
    defs = load()

    expire = defs.resolve_schedule_def("expire_snapshots__lake__orders_schedule")
    assert expire.cron_schedule == "17 * * * *"
    assert expire.default_status is dg.DefaultScheduleStatus.STOPPED
    assert schedule_config(defs, "expire_snapshots") == {
        "dry_run": False,
        "retain_min": 10,
        "retain_for": "24 h",
    }
    assert schedule_config(defs, "remove_orphan_files") == {
        "dry_run": True,
        "older_than": "7 d",
        "quarantine": False,
    }


def test_any_declared_step_has_a_job_and_with_a_cron_a_schedule() -> None:
    steps = {
        "analyze": {"cron": "0 3 * * *", "arguments": {"columns": ["id"]}},
        "rescale": {"arguments": {"bucket_num": 4}},
    }

    defs = load(steps=steps)

    dg.Definitions.validate_loadable(defs)
    assert {"analyze__lake__orders", "rescale__lake__orders"} <= {
        job.name for job in defs.jobs or []
    }
    assert "rescale__lake__orders_schedule" not in {each.name for each in defs.schedules or []}
    assert defs.resolve_schedule_def("analyze__lake__orders_schedule").cron_schedule == "0 3 * * *"
    assert schedule_config(defs, "analyze") == {"dry_run": False, "columns": ["id"]}


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"analyse": {}}, "there is no step analyse"),
        ({"rescale": {"arguments": {"buckets": 4}}}, "rescale has no config field buckets"),
        ({"rescale": {"arguments": {"bucket_num": 0}}}, "bucket_num is 0; the minimum is 1"),
        ({"expire-tags": {"arguments": {"older_than": "soon"}}}, "older_than 'soon' is neither"),
    ],
)
def test_a_wrong_step_is_refused_when_definitions_load(steps: dict[str, Any], message: str) -> None:
    with pytest.raises(PaimonError, match=message):
        load(steps=steps)


@pytest.mark.parametrize(
    ("attribute", "policy", "step"),
    [
        ("snapshot_expiration", {"retain_min": 2}, "expire-snapshots"),
        ("orphan_files", {}, "remove-orphan-files"),
        ("partition_expiration", {"expiration_time": "1 d"}, "expire-partitions"),
        ("iceberg", {}, "sync-iceberg"),
    ],
)
def test_a_job_with_two_policies_is_refused(
    attribute: str, policy: dict[str, Any], step: str
) -> None:
    with pytest.raises(InputError, match=f"{attribute} and steps.{step} are both the policy"):
        load(**{attribute: policy, "steps": {step: {}}})


def test_iceberg_metadata_is_published_by_a_schedule_if_the_attribute_is_set() -> None:
    defs = load(iceberg={"cron": "*/10 * * * *"})
    dry = load(iceberg={"dry_run": True})

    schedule = defs.resolve_schedule_def("sync_iceberg__lake__orders_schedule")
    assert schedule.cron_schedule == "*/10 * * * *"
    assert schedule_config(defs, "sync_iceberg") == {"dry_run": False}
    assert schedule_config(dry, "sync_iceberg") == {"dry_run": True}


def test_schedules_are_created_only_with_a_policy() -> None:
    defs = load(snapshot_expiration=None, orphan_files=None)

    assert not list(defs.schedules or [])


def test_limits_apply_to_the_checks_and_null_disables_checks() -> None:
    [checks] = load().asset_checks or []
    assert isinstance(checks, dg.AssetChecksDefinition)
    spec = {spec.name: spec for spec in checks.check_specs}["level0_backlog"]

    assert spec.blocking
    assert not load(checks=None).asset_checks


def test_filters_that_no_row_may_match_are_checks_of_their_own() -> None:
    [checks] = load(checks=None, never={"ids_are_known": "id IS NULL"}).asset_checks or []
    assert isinstance(checks, dg.AssetChecksDefinition)
    assert [spec.name for spec in checks.check_specs] == ["ids_are_known"]


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ({"values": ["eu", "us"]}, ["eu", "us"]),
        ({"values": ["1_0", "0x10"]}, ["1_0", "0x10"]),
        ({"start": "2026-01", "every": "month", "format": "%Y-%m"}, ["2026-01", "2026-02"]),
        ({"start": "20260101", "format": "%Y%m%d"}, ["20260101", "20260102"]),
        ({"start": "2026-01-01-00:00", "every": "hour"}, ["2026-01-01-00:00", "2026-01-01-01:00"]),
    ],
)
def test_partitions_can_be_values_or_times(partitions: object, expected: list[str]) -> None:
    asset = load(partitions=partitions).resolve_assets_def(COMPACTION)

    assert asset.partitions_def
    assert list(asset.partitions_def.get_partition_keys())[:2] == expected


@pytest.mark.parametrize(
    ("partitions", "external", "last"),
    [
        ({"start": "2026-01-01"}, True, "2026-01-05"),
        ({"start": "2026-01-01"}, False, "2026-01-04"),
        ({"start": "2026-01-01", "end_offset": 0}, True, "2026-01-04"),
        ({"start": "2026-01", "every": "month", "format": "%Y-%m"}, True, "2026-01"),
        ({"start": "2026-01-01-00:00", "every": "hour"}, True, "2026-01-05-06:00"),
        (
            {"columns": {"dt": {"start": "2026-01-01"}, "r": {"values": ["eu"]}}},
            True,
            "2026-01-05|eu",
        ),
    ],
)
def test_an_external_table_has_a_partition_for_the_current_time(
    partitions: object, external: bool, last: str
) -> None:
    asset = load(partitions=partitions, external=external).resolve_assets_def(COMPACTION)

    assert asset.partitions_def
    with dg.partition_loading_context(effective_dt=datetime(2026, 1, 5, 6, 30, tzinfo=UTC)):
        assert asset.partitions_def.get_last_partition_key() == last


@pytest.mark.parametrize(
    "attributes",
    [
        {"snapshot_expiration": {"retain_for": "a day"}},
        {"orphan_files": {"older_than": "3 moons"}},
        {"partition_expiration": {"expiration_time": "never"}},
    ],
    ids=str,
)
def test_an_invalid_age_is_refused_when_definitions_load(attributes: dict[str, Any]) -> None:
    [[name]] = attributes.values()

    with pytest.raises(InputError, match=name):
        load(**attributes)


@pytest.mark.parametrize("name", ["max_partitions_per_run", "sensor_interval_seconds"])
@pytest.mark.parametrize("number", [0, -1])
def test_a_number_below_one_is_refused(name: str, number: int) -> None:
    with pytest.raises(ValidationError, match=name):
        load(**{name: number})


@pytest.mark.parametrize("ratio", [-0.1, 50])
def test_a_share_that_is_not_between_zero_and_one_is_refused(ratio: float) -> None:
    with pytest.raises(ValidationError, match="deleted_ratio"):
        load(compaction={"deleted_ratio": ratio})


def test_a_table_name_that_dagster_does_not_allow_is_refused() -> None:
    assert load(table="lake.my-orders").sensors
    with pytest.raises(InputError, match=r"'lake\.my orders'.*letters, digits, _ and -"):
        load(table="lake.my orders")


def test_two_partition_columns_become_two_dimensions() -> None:
    columns = {"region": {"values": ["eu", "us"]}, "dt": {"start": "2026-01-01"}}
    asset = load(partitions={"columns": columns}).resolve_assets_def(COMPACTION)

    assert isinstance(asset.partitions_def, dg.MultiPartitionsDefinition)
    assert asset.partitions_def.get_partition_keys()[:2] == ["2026-01-01|eu", "2026-01-01|us"]


def test_a_dynamic_dimension_is_named_after_its_table_and_its_column() -> None:
    columns = {"region": {"dynamic": True}, "dt": {"start": "2026-01-01"}}
    asset = load(partitions={"columns": columns}).resolve_assets_def(COMPACTION)

    assert isinstance(asset.partitions_def, dg.MultiPartitionsDefinition)
    region = asset.partitions_def.get_partitions_def_for_dimension("region")
    assert isinstance(region, dg.DynamicPartitionsDefinition)
    assert region.name == "paimon/lake.orders/region"


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        ({"columns": {"dt": {"start": "2026-01-01"}}}, "must have two columns, got 1"),
        ({"columns": {"a": {}, "b": {}}}, "one of 'values', 'start' and 'dynamic'"),
        (
            {"columns": {"a": {"values": ["x"]}, "b": {"dynamic": True}}, "dynamic": True},
            "in each column",
        ),
    ],
)
def test_invalid_dimensions_are_refused(partitions: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(partitions=partitions)


def test_hours_can_be_stored_in_two_columns() -> None:
    partitions = {
        "start": "dt=2026-01-01/hh=00",
        "every": "hour",
        "format": "dt=%Y-%m-%d/hh=%H",
    }
    asset = load(partitions=partitions).resolve_assets_def(COMPACTION)

    assert asset.partitions_def
    assert list(asset.partitions_def.get_partition_keys())[1] == "dt=2026-01-01/hh=01"


def test_the_sensor_uses_the_policy_of_the_component(
    orders: Table,
    upsert: Callable[..., None],
    paimon: PaimonCatalogResource,
    instance: dg.DagsterInstance,
) -> None:
    upsert(orders, DAY)
    defs = load(compaction={"level0_files": 2, "max_rewrite": "10 gb"}, sensor_interval_seconds=5)
    sensor = defs.resolve_sensor_def("latest_snapshot__lake__orders")

    result = evaluate_sensor(sensor, paimon, instance)

    assert sensor.minimum_interval_seconds == 5
    assert isinstance(result, dg.SensorResult)
    assert not result.run_requests


def test_the_component_has_all_fields_of_a_policy() -> None:
    policy = {field.name: field.default for field in fields(CompactionPolicy)}

    assert CompactionAttributes().model_dump() == policy


def test_an_invalid_size_is_refused_when_definitions_load() -> None:
    with pytest.raises(InputError, match="max_rewrite"):
        load(compaction={"max_rewrite": "much"})


@pytest.mark.parametrize(
    ("freshness", "expected"),
    [
        (
            {"fail_after": "24 h", "warn_after": "12 h"},
            dg.FreshnessPolicy.time_window(
                fail_window=timedelta(hours=24), warn_window=timedelta(hours=12)
            ),
        ),
        (
            {"deadline_cron": "0 6 * * *", "within": "2 h", "timezone": "Europe/Berlin"},
            dg.FreshnessPolicy.cron("0 6 * * *", timedelta(hours=2), "Europe/Berlin"),
        ),
    ],
)
def test_the_asset_has_the_freshness_policy_and_the_sensor_reports_materializations(
    orders: Table,
    upsert: Callable[..., None],
    paimon: PaimonCatalogResource,
    instance: dg.DagsterInstance,
    freshness: object,
    expected: dg.FreshnessPolicy,
) -> None:
    upsert(orders, DAY)
    defs = load(freshness=freshness)
    [spec] = [asset for asset in defs.assets or [] if isinstance(asset, dg.AssetSpec)]

    sensor = defs.resolve_sensor_def("latest_snapshot__lake__orders")
    result = evaluate_sensor(sensor, paimon, instance)

    assert spec.freshness_policy == expected
    assert isinstance(result, dg.SensorResult)
    assert [type(event) for event in result.asset_events] == [dg.AssetMaterialization]


@pytest.mark.parametrize(
    ("freshness", "hours", "kind"),
    [
        ({"fail_after": "24 h"}, 23, dg.AssetMaterialization),
        ({"fail_after": "24 h"}, 25, dg.AssetObservation),
        ({"deadline_cron": "0 6 * * *", "within": "2 h"}, 3, dg.AssetObservation),
        (None, 25, dg.AssetMaterialization),
    ],
    ids=["fresh", "old", "before the deadline", "no policy"],
)
def test_a_sensor_that_starts_does_not_make_old_data_fresh(
    orders: Table,
    upsert: Callable[..., None],
    paimon: PaimonCatalogResource,
    instance: dg.DagsterInstance,
    freshness: object,
    hours: int,
    kind: type,
) -> None:
    upsert(orders, DAY)
    path = Path(orders.stores.snapshots.path(1))
    snapshot = json.loads(path.read_text())
    path.write_text(
        json.dumps({**snapshot, "timeMillis": snapshot["timeMillis"] - hours * 3600_000})
    )
    sensor = load(freshness=freshness, partitions=None).resolve_sensor_def(SENSOR)

    result = evaluate_sensor(sensor, paimon, instance)

    assert isinstance(result, dg.SensorResult)
    assert [type(event) for event in result.asset_events] == [kind]


@pytest.mark.parametrize("partitions", [None, {"start": DAY}, {"dynamic": True}])
def test_the_compaction_of_an_external_table_is_in_sync_after_it_succeeded(
    orders: Table,
    upsert: Callable[..., None],
    paimon: PaimonCatalogResource,
    instance: dg.DagsterInstance,
    partitions: object,
) -> None:
    upsert(orders, DAY)
    defs = load(partitions=partitions, warehouse=None)
    resources = {"paimon": paimon, "spark": InProcessSparkResource()}
    defs = dg.Definitions.merge(defs, dg.Definitions(resources=resources))
    tick = evaluate_sensor(defs.resolve_sensor_def(SENSOR), paimon, instance)
    assert isinstance(tick, dg.SensorResult)
    for added in tick.dynamic_partitions_requests or ():
        instance.add_dynamic_partitions(added.partitions_def_name, [*added.partition_keys])
    for event in tick.asset_events:
        instance.report_runless_asset_event(event)
    [request] = tick.run_requests or ()

    defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        asset_selection=[COMPACTION],
        run_config=request.run_config,
        partition_key=request.partition_key,
    )

    statuses = CachingStaleStatusResolver(
        instance, defs.resolve_asset_graph(), LoadingContextForTest(instance)
    )
    key = DAY if partitions else None
    assert statuses.get_status(COMPACTION, key) is StaleStatus.FRESH
    assert statuses.get_status(dg.AssetKey(["lake", "orders"]), key) is StaleStatus.FRESH


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"freshness": {}}, "one of 'fail_after' and 'deadline_cron'"),
        ({"freshness": {"deadline_cron": "0 6 * * *"}}, "requires 'within'"),
        ({"freshness": {"fail_after": "soon"}}, "fail_after"),
        ({"freshness": {"fail_after": "1 h"}, "trigger": "schedule"}, "requires 'trigger: sensor'"),
        ({"freshness": {"fail_after": "1 h"}, "external": False}, "requires 'external: true'"),
    ],
)
def test_freshness_without_a_source_is_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(**attributes)


@pytest.mark.parametrize(
    "partitions", [{}, {"values": ["eu"], "start": "2026-01-01"}, {"start": "x", "dynamic": True}]
)
def test_partitions_of_several_kinds_are_refused(partitions: object) -> None:
    with pytest.raises(InputError, match="one of 'values', 'start' and 'dynamic'"):
        load(partitions=partitions)


def test_dynamic_partitions_are_named_after_the_table() -> None:
    asset = load(partitions={"dynamic": True}).resolve_assets_def(COMPACTION)

    assert isinstance(asset.partitions_def, dg.DynamicPartitionsDefinition)
    assert asset.partitions_def.name == "paimon/lake.orders"


@pytest.mark.parametrize(("prefix", "label"), [([], "lake.orders"), (["eu"], "eu/lake.orders")])
def test_tables_of_two_catalogs_share_no_pool_tag_and_partitions(
    prefix: list[str], label: str
) -> None:
    attributes = {"partitions": {"dynamic": True}, "snapshot_expiration": {}, "key_prefix": prefix}
    definitions = load(**attributes)

    asset = definitions.resolve_assets_def(dg.AssetKey([*prefix, *COMPACTION.path]))
    [job] = [each for each in definitions.jobs or () if each.name.startswith("expire_snapshots")]
    assert isinstance(job, dg.JobDefinition)
    assert isinstance(asset.partitions_def, dg.DynamicPartitionsDefinition)
    assert asset.partitions_def.name == f"paimon/{label}"
    assert asset.op.pool == f"paimon/{label}"
    assert [node.pools for node in job.all_node_defs] == [{asset.op.pool}]
    assert job.run_tags["paimon/table"] == label


def test_only_the_selected_trigger_is_defined() -> None:
    names = {
        trigger: {
            *(s.name for s in load(trigger=trigger).sensors or []),
            *(s.name for s in load(trigger=trigger).schedules or [] if "compaction" in s.name),
        }
        for trigger in ("sensor", "schedule", "none")
    }

    assert names == {
        "sensor": {"latest_snapshot__lake__orders"},
        "schedule": {"compaction__lake__orders_schedule"},
        "none": set(),
    }


def test_the_attribute_running_starts_the_sensor() -> None:
    defs = load(running=True)

    sensor = defs.resolve_sensor_def("latest_snapshot__lake__orders")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING


def test_components_of_one_catalog_share_resources() -> None:
    named = {"warehouse": None, "catalog": "prod"}
    paimon = load_catalog(**named)
    assert paimon is load_catalog(**named)
    assert paimon.catalog_name == "prod"


def test_a_value_from_a_variable_is_not_resolved_by_the_component(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "very-secret")
    attributes: dict[str, Any] = {
        "warehouse": None,
        "metastore": "rest",
        "uri": "https://catalog",
        "token": {"env": "SOME_TOKEN"},
        "catalog_options": {"dlf.key": {"env": "SOME_TOKEN"}, "lock.enabled": True},
    }
    paimon = load_catalog(**attributes)

    assert (paimon.metastore, paimon.uri) == ("rest", "https://catalog")
    assert "very-secret" not in str(paimon.model_dump())
    resolved = paimon.process_config_and_initialize()
    assert resolved.token == "very-secret"  # noqa: S105 - not a password
    assert resolved.catalog_options == {"dlf.key": "very-secret", "lock.enabled": "true"}
    plain = load_catalog(**attributes | {"catalog_options": {"dlf.key": "SOME_TOKEN"}})
    assert plain.process_config_and_initialize().catalog_options == {"dlf.key": "SOME_TOKEN"}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"catalog": "prod"}, "so warehouse cannot be set"),
        ({"uri": "https://catalog"}, "uri requires metastore"),
        ({"warehouse": None, "token": {"env": "A"}}, "token requires metastore"),
        ({"metastore": "rest", "token": {"file": "A"}}, "accepted values are env"),
        ({"metastore": "rest", "catalog_options": {"a": {"b": "c"}}}, "a: a mapping must be"),
    ],
)
def test_attributes_that_do_not_describe_a_catalog_are_refused(
    attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(**attributes)


def test_components_of_one_warehouse_share_resources() -> None:
    defs = dg.Definitions.merge(load(), load(table="lake.items"))

    dg.Definitions.validate_loadable(defs)
    assert set(defs.resources or {}) == {"paimon", "spark"}
    assert load(warehouse=None).resources == {}


@pytest.mark.parametrize(
    ("attributes", "others"),
    [
        ({"storage_options": {"anon": True}}, {"storage_options": {"anon": "true"}}),
        (
            {"metastore": "rest", "uri": "http://h", "token": {"env": "T"}},
            {"catalog_options": {"metastore": "rest", "uri": "http://h", "token": {"env": "T"}}},
        ),
    ],
    ids=["flag", "options by their names"],
)
def test_components_whose_attributes_mean_the_same_share_resources(
    attributes: dict[str, Any], others: dict[str, Any]
) -> None:
    defs = dg.Definitions.merge(load(**attributes), load(table="lake.items", **others))

    dg.Definitions.validate_loadable(defs)


def test_option_values_of_other_types_are_converted_to_text() -> None:
    spark = {"config": {"a.b": 8}, "ship_package": True}
    defs = load(storage_options={"key": "12345", "anon": True}, spark=spark)

    resources = defs.resources or {}
    assert resources["paimon"].storage_options == {"key": "12345", "anon": "true"}
    assert resources["spark"].spark_config == {"a.b": "8"}
    assert resources["spark"].ship_package


def test_a_component_of_a_loaded_table_does_not_define_its_asset() -> None:
    assets = load(external=False, file_index=True).assets or []

    keys = {asset.key for asset in assets if isinstance(asset, dg.AssetsDefinition | dg.AssetSpec)}
    assert {key.path[-1] for key in keys} == {"orders_compaction", "orders_file_index"}


def test_an_unknown_attribute_is_refused() -> None:
    with pytest.raises(Exception, match="compactoin"):
        load(compactoin={})


def test_the_assets_of_the_component_compact_the_table(
    orders: Table,
    upsert: Callable[..., None],
    paimon: PaimonCatalogResource,
    resources: Mapping[str, object],
) -> None:
    upsert(orders, DAY)
    assets = [
        asset
        for asset in load(warehouse=None).assets or []
        if isinstance(asset, dg.AssetsDefinition)
    ]

    assert dg.materialize(assets, resources=resources, partition_key=DAY).success
    assert inspect(orders).level0_files == 0


def test_python_examples_of_the_documentation_run(repository: Path, tmp_path: Path) -> None:
    text = (repository / "docs" / "dagster.md").read_text()
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert len(blocks) == 4

    for number, block in enumerate(blocks):
        path = tmp_path / f"block{number}.py"
        path.write_text(block)
        names = runpy.run_path(str(path))
        if "defs" in names:
            dg.Definitions.validate_loadable(names["defs"])
