"""The keywords ``op`` and ``run_tags`` of factories and attributes of components."""

from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg
import pytest
from dagster.components.resolved.core_models import OpSpec
from support.dagster.ticks import SensorTicks, evaluate_schedule

from paimon_orch.dagster import (
    PaimonCatalogResource,
    PaimonDatabaseComponent,
    PaimonTableComponent,
    PaimonWarehouseComponent,
    SparkSessionResource,
    build_compaction_asset,
    build_compaction_schedule,
    build_file_index_asset,
    build_latest_snapshot_sensor,
    build_paimon_quality_checks,
    build_paimon_table_checks,
    build_step_job,
    build_table_asset,
)
from paimon_orch.errors import InputError
from paimon_orch.orchestration.planned_runs import PlannedRun
from paimon_orch.table.table import Table

OP = OpSpec(name="work", tags={"dagster-k8s/config": {}}, description="Works.", pool="few")
DAYS = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02"])
Upsert = Callable[..., None]


def size_of(run: PlannedRun) -> Mapping[str, str]:
    return {"size": "large" if run.bytes > 100 else "small", "keys": str(len(run.keys))}


@pytest.mark.parametrize(
    "build",
    [
        lambda: build_compaction_asset("lake.orders", op=OP),
        lambda: build_file_index_asset("lake.orders", op=OP),
        lambda: build_table_asset("lake.orders", lambda *_: [], op=OP),
        lambda: build_paimon_table_checks("lake.orders", op=OP),
        lambda: build_paimon_quality_checks("lake.orders", {"known": "id IS NULL"}, op=OP),
    ],
    ids=["compaction", "file index", "table", "checks", "quality"],
)
def test_the_op_of_a_factory_has_a_name_tags_a_description_and_a_pool(
    build: Callable[[], dg.AssetsDefinition],
) -> None:
    op = build().node_def
    assert (op.name, op.description) == ("work", "Works.")
    assert dict(op.tags) == {"dagster-k8s/config": "{}"}
    assert op.pools == {"few"}


def test_the_op_of_a_job_has_them_too_and_its_runs_have_tags() -> None:
    job = build_step_job("analyze", "lake.orders", op=OP, run_tags={"team": "data"})

    op = job.graph.node_named("analyze").definition
    assert (op.name, op.description, op.pools) == ("work", "Works.", {"few"})
    assert dict(op.tags) == {"dagster-k8s/config": "{}"}
    assert job.run_tags == {"team": "data", "paimon/table": "lake.orders"}
    policy = OpSpec(backfill_policy=dg.BackfillPolicy.single_run())
    with pytest.raises(InputError, match="analyze: only the ops of assets have a backfill policy"):
        build_step_job("analyze", "lake.orders", op=policy)


def test_the_backfill_policy_of_an_asset_is_that_of_its_op() -> None:
    policy = dg.BackfillPolicy.single_run()
    asset = build_compaction_asset(
        "lake.orders", partitions_def=DAYS, op=OpSpec(backfill_policy=policy)
    )
    assert asset.backfill_policy == policy


def test_a_named_op_runs_with_the_config_of_the_sensor(
    orders: Table,
    upsert: Upsert,
    paimon: PaimonCatalogResource,
    instance: dg.DagsterInstance,
) -> None:
    upsert(orders, "2026-01-01")
    sensor = build_latest_snapshot_sensor(
        "lake.orders", partitions_def=DAYS, op=OP, run_tags=size_of
    )
    [request] = SensorTicks(sensor, paimon, instance).new_run_requests()
    assert (request.tags["size"], request.tags["keys"]) == ("large", "1")
    asset = build_compaction_asset("lake.orders", partitions_def=DAYS, op=OP)
    result = dg.materialize(
        [asset],
        partition_key=request.partition_key,
        resources={"paimon": paimon, "spark": SparkSessionResource()},
        run_config={"ops": {"work": {"config": {"strategy": "full"}}}},
        instance=instance,
        selection=[asset],
    )
    assert result.success


def test_a_schedule_requests_runs_with_tags_by_their_size(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    upsert(orders, "2026-01-01", "2026-01-02")
    schedule = build_compaction_schedule("lake.orders", partitions_def=DAYS, run_tags=size_of)

    [request] = evaluate_schedule(schedule, paimon)
    assert isinstance(request, dg.RunRequest)

    assert (request.tags["size"], request.tags["keys"]) == ("large", "2")


def load(component: Any, **attributes: Any) -> Any:
    attributes |= {"warehouse": "/lake", "run_tags": {"team": "data"}}
    return component.from_attributes_dict(attributes=attributes)


def list_ops(definitions: dg.Definitions) -> dict[str, Any]:
    repository = definitions.get_repository_def()
    assets = {
        each.node_def.name: each.node_def
        for each in repository.assets_defs_by_key.values()
        if each.is_executable
    }
    jobs = definitions.jobs or ()
    return assets | {node.definition.name: node.definition for job in jobs for node in job.nodes}  # type: ignore[union-attr]


def test_all_ops_of_a_table_component_have_its_op_and_all_runs_its_tags() -> None:
    component = load(
        PaimonTableComponent,
        table="lake.orders",
        file_index=True,
        op={"name": "work", "pool": "few", "tags": {"cpu": "2"}},
    )
    definitions = component.definitions()

    ops = list_ops(definitions)
    assert {"work", "lake__orders__orders_file_index"} <= set(ops)
    assert {name for name, op in ops.items() if op.pools != {"few"}} == set()
    assert all(op.tags["cpu"] == "2" for op in ops.values())
    assert all(job.run_tags["team"] == "data" for job in definitions.jobs)
    assert component.build_watched_table().run_tags == {"team": "data"}


def test_a_database_component_has_no_name_of_one_op() -> None:
    component = load(PaimonDatabaseComponent, database="lake", op={"pool": "few"})
    ops = list_ops(component.definitions({"orders": ["dt"]}))
    assert ops["lake__orders__orders_compaction"].pools == {"few"}

    named = load(PaimonDatabaseComponent, database="lake", op={"name": "work"})
    with pytest.raises(InputError, match=r"op\.name names one op"):
        named.definitions({"orders": ["dt"]})


def test_the_job_of_a_warehouse_component_has_its_op_and_its_tags() -> None:
    component = load(PaimonWarehouseComponent, op={"pool": "few"})
    [job] = component.definitions().jobs
    assert job.nodes[0].definition.pools == {"few"}
    assert job.run_tags == {"team": "data"}


@pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")  # in Dagster
def test_a_template_of_a_component_is_a_function_of_a_run() -> None:
    text = "table: lake.orders\nwarehouse: /lake\nrun_tags: '{{ size_of }}'\n"
    component = PaimonTableComponent.resolve_from_yaml(text, scope={"size_of": size_of})
    watched = component.build_watched_table()
    assert watched is not None
    assert watched.run_tags is size_of
