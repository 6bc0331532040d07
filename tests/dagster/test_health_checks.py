from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from support.commands import Run, build_runner
from support.dagster.spark_resources import UnavailableSparkResource, build_recorded_resource
from support.dagster.ticks import SensorTicks
from support.damage import data_files
from support.docs.page_run import BLOCK

from paimon_orch.dagster import (
    CompactionPolicy,
    Limit,
    PaimonCatalogResource,
    build_compaction_asset,
    build_file_index_asset,
    build_latest_snapshot_sensor,
    build_paimon_table_checks,
)
from paimon_orch.dagster.resources import ExecutorChoice
from paimon_orch.errors import (
    CancelledError,
    CorruptFileError,
    InputError,
    StorageError,
    TransientError,
)
from paimon_orch.orchestration.health_limits import DEFAULT_LIMITS
from paimon_orch.table.table import Table

Upsert = Callable[..., None]
DAY = "2026-01-01"
KEY = dg.AssetKey(["lake", "orders"])


@pytest.fixture
def run_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command."""
    return build_runner(monkeypatch, capsys)


@dg.asset(key=KEY)
def orders_asset() -> None:
    """The asset of the table."""


@dg.asset(deps=[KEY])
def report() -> None:
    """An asset downstream of the table."""


def run(
    paimon: PaimonCatalogResource,
    limits: Mapping[str, Limit] | None = None,
    raise_on_error: bool = True,
    **resources: object,
) -> dg.ExecuteInProcessResult:
    checks = build_paimon_table_checks("lake.orders", limits=limits)
    return dg.materialize(
        [orders_asset, report, checks],
        resources={"paimon": paimon} | resources,
        raise_on_error=raise_on_error,
    )


def evaluations(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {e.check_name: e for e in result.get_asset_check_evaluations()}


def names_of_evaluations(result: dg.SensorResult) -> set[str]:
    events = result.asset_events or ()
    return {event.check_name for event in events if isinstance(event, dg.AssetCheckEvaluation)}


def find_materialized_assets(result: dg.ExecuteInProcessResult) -> set[dg.AssetKey | None]:
    return {event.asset_key for event in result.get_asset_materialization_events()}


def test_a_healthy_table_passes_all_default_checks(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource
) -> None:
    upsert(orders, DAY)

    results = evaluations(run(paimon))

    assert set(results) == set(DEFAULT_LIMITS)
    assert all(evaluation.passed for evaluation in results.values())
    assert results["level0_backlog"].metadata["paimon/value"].value == 1
    assert results["level0_backlog"].metadata["paimon/limit"].value == "100"
    assert "paimon/value" not in results["file_index_coverage"].metadata


@pytest.mark.slow
def test_a_failed_check_describes_the_remedy(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource
) -> None:
    for amount in range(3):
        upsert(orders, DAY, amount=amount)

    results = evaluations(run(paimon, {"level0_backlog": Limit(limit=2)}))

    failed = results["level0_backlog"]
    assert not failed.passed
    assert failed.metadata["paimon/value"].value == 3
    assert failed.description == "To fix this, run the compaction."
    assert failed.severity is dg.AssetCheckSeverity.WARN
    assert results["sorted_runs"].passed


def test_a_remedy_names_the_compaction_only_if_the_check_passes_afterwards(
    upsert: Upsert, paimon: PaimonCatalogResource
) -> None:
    table = paimon.catalog().create_table(
        "lake.orders",
        "dt STRING, id BIGINT, amount INT",
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "5"},
    )
    upsert(table, DAY)
    upsert(table, DAY, amount=2)
    limits = {name: Limit(limit=0) for name in ("level0_backlog", "sorted_runs")}

    results = evaluations(run(paimon, limits))

    assert not any(results[name].passed for name in limits)
    assert "with strategy: full" in (results["level0_backlog"].description or "")
    assert "num-sorted-run.compaction-trigger" in (results["sorted_runs"].description or "")


@pytest.mark.parametrize("build", [build_compaction_asset, build_file_index_asset])
def test_a_maintenance_run_evaluates_the_checks_of_its_table(
    build: Callable[..., dg.AssetsDefinition],
    orders: Table,
    upsert: Upsert,
    resources: dict[str, object],
) -> None:
    upsert(orders, DAY)
    limits = {"snapshot_count": Limit(limit=0, severity="error"), "file_references": Limit(limit=0)}

    result = dg.materialize([build("lake.orders", checks=limits)], resources=resources)

    results = evaluations(result)
    assert set(results) == set(DEFAULT_LIMITS)
    assert {evaluation.asset_key for evaluation in results.values()} == {KEY}
    failed = [name for name, evaluation in results.items() if not evaluation.passed]
    assert failed == ["snapshot_count"]
    assert results["snapshot_count"].severity is dg.AssetCheckSeverity.ERROR
    assert results["snapshot_count"].metadata["paimon/value"].value == len(
        orders.stores.snapshots.ids()
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (CorruptFileError("data-1", "is damaged"), 1),
        (TransientError("the store does not answer"), 2),  # only the last attempt evaluates them
        (OSError("the disk is full"), 2),
        (RuntimeError("Spark has lost the work"), 1),
        (CancelledError("terminated"), 0),
    ],
)
def test_a_compaction_that_fails_evaluates_the_checks(
    orders: Table,
    upsert: Upsert,
    resources: dict[str, object],
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    attempts: int,
) -> None:
    calls = list[bool]()

    def fail(*_: object, **__: object) -> None:
        calls.append(True)
        raise error

    upsert(orders, DAY)
    monkeypatch.setattr("paimon_orch.dagster.asset_runs.asset_work.run_compaction", fail)
    asset = build_compaction_asset(
        "lake.orders", checks={}, retry_policy=dg.RetryPolicy(max_retries=1)
    )

    result = dg.materialize([asset], instance=instance, resources=resources, raise_on_error=False)

    assert not result.success
    records = instance.get_records_for_run(
        result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION
    ).records
    assert len(records) == (len(DEFAULT_LIMITS) if attempts else 0)
    assert len(calls) == max(attempts, 1)


def test_a_compaction_that_cannot_load_the_table_fails_the_check_of_damage(
    orders: Table, upsert: Upsert, resources: dict[str, object], instance: dg.DagsterInstance
) -> None:
    upsert(orders, DAY)
    (Path(orders.paths.root) / "schema" / "schema-0").write_text("{")

    result = dg.materialize(
        [build_compaction_asset("lake.orders", checks={})],
        instance=instance,
        resources=resources,
        raise_on_error=False,
    )

    assert not result.success
    [record] = instance.get_records_for_run(
        result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION
    ).records
    evaluation = record.event_log_entry.asset_check_evaluation
    assert evaluation is not None
    assert (evaluation.check_name, evaluation.passed) == ("damage", False)


def test_a_damaged_file_that_a_compaction_met_fails_a_check_until_it_is_repaired(
    orders: Table,
    upsert: Upsert,
    resources: dict[str, object],
    instance: dg.DagsterInstance,
    run_command: Run,
) -> None:
    for _ in range(2):
        upsert(orders, DAY)
    path = data_files(orders)[0]
    path.write_bytes(path.read_bytes()[:-10])
    damage = [dg.AssetCheckKey(KEY, "damage")]

    def evaluate() -> dg.AssetCheckEvaluation:
        checks = build_paimon_table_checks("lake.orders")
        selection = dg.AssetSelection.checks(*damage)
        result = dg.materialize(
            [orders_asset, checks], instance=instance, resources=resources, selection=selection
        )
        [evaluation] = result.get_asset_check_evaluations()
        return evaluation

    assert evaluate().passed, "no step has met it"
    compaction = build_compaction_asset("lake.orders", checks={})
    config = {"strategy": "full"}
    failed = dg.materialize(
        [compaction],
        instance=instance,
        resources=resources,
        raise_on_error=False,
        run_config={"ops": {"lake__orders__orders_compaction": {"config": config}}},
    )
    assert not failed.success

    for _ in range(2):  # also the evaluation after the first one knows it
        evaluation = evaluate()
        assert not evaluation.passed
        assert path.name in (evaluation.description or "")
        assert "--deep" in (evaluation.description or "")
    warehouse = Path(orders.paths.root).parents[1]
    answer = run_command("repair", warehouse, "lake.orders", "--rule", "unreadable-files", "--yes")
    assert answer.status == 0, answer
    assert evaluate().passed


def test_a_compaction_succeeds_although_its_checks_cannot_be_evaluated(
    orders: Table,
    upsert: Upsert,
    resources: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise StorageError("the store does not answer")

    upsert(orders, DAY)
    monkeypatch.setattr("paimon_orch.steps.inspection.verdict.verdict.open_judge", fail)

    result = dg.materialize([build_compaction_asset("lake.orders", checks={})], resources=resources)

    assert set(evaluations(result)) == {"damage"}, "no step has met a damaged file"
    assert len(result.get_asset_materialization_events()) == 1
    assert orders.stores.snapshots.latest_id() == 2


def test_a_sensor_evaluates_the_checks_if_it_requests_no_run(
    orders: Table,
    upsert: Upsert,
    compact_all: Callable[[Table], None],
    paimon: PaimonCatalogResource,
    instance: dg.DagsterInstance,
) -> None:
    sensor = build_latest_snapshot_sensor(
        "lake.orders", checks={}, policy=CompactionPolicy(level0_files=3)
    )
    ticks = SensorTicks(sensor, paimon, instance)
    upsert(orders, DAY)
    compact_all(orders)

    first = names_of_evaluations(ticks.result())
    upsert(orders, DAY, amount=2)
    waiting = names_of_evaluations(ticks.result())
    for amount in range(3):
        upsert(orders, DAY, amount=amount)
    requested = ticks.result()

    assert first == waiting == set(DEFAULT_LIMITS)
    assert requested.run_requests
    assert names_of_evaluations(requested) == set()


def test_a_sensor_does_not_read_large_manifests_for_the_checks(
    orders: Table,
    upsert: Upsert,
    compact_all: Callable[[Table], None],
    paimon: PaimonCatalogResource,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("paimon_orch.dagster.sensor._MAX_MANIFEST_BYTES", 0)
    sensor = build_latest_snapshot_sensor("lake.orders", checks={})
    upsert(orders, DAY)
    compact_all(orders)

    assert names_of_evaluations(SensorTicks(sensor, paimon, instance).result()) == set()


@pytest.mark.slow
def test_a_blocking_error_stops_downstream_assets_and_a_warning_does_not(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource
) -> None:
    upsert(orders, DAY)
    error = Limit(limit=0, severity="error", blocking=True)

    warned = run(paimon, {"level0_backlog": Limit(limit=0, blocking=True)})
    stopped = run(paimon, {"level0_backlog": error}, raise_on_error=False)

    assert find_materialized_assets(warned) == {KEY, report.key}
    assert not stopped.success
    assert find_materialized_assets(stopped) == {KEY}


@pytest.mark.slow
def test_file_references_are_checked_if_limits_contain_the_check(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource
) -> None:
    upsert(orders, DAY)
    limits = {"file_references": Limit(limit=0, severity="error")}
    spark = UnavailableSparkResource(executor=ExecutorChoice.spark)

    intact = evaluations(run(paimon, limits, spark=spark))["file_references"]
    [data] = Path(str(paimon.warehouse), "lake.db/orders", f"dt={DAY}").rglob("data-*")
    data.unlink()
    damaged = evaluations(run(paimon, limits, spark=spark))["file_references"]

    assert intact.passed
    assert intact.metadata["paimon/versions"].value == 1
    assert not damaged.passed
    assert data.name in (damaged.description or "")


def test_the_executor_of_the_resource_checks_large_manifests(
    orders: Table,
    upsert: Upsert,
    paimon: PaimonCatalogResource,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upsert(orders, DAY)
    monkeypatch.setattr("paimon_orch.steps.common.executor.SMALL_WORK_BYTES", 0)
    limits = {"file_references": Limit(limit=0)}
    labels = list[str]()
    spark = build_recorded_resource(labels, executor=ExecutorChoice.spark)

    result = run(paimon, limits, spark=spark)

    assert evaluations(result)["file_references"].passed
    [label] = labels
    assert label.startswith(f"check the files of lake.orders (Dagster run {result.run_id} step ")


def test_a_subset_of_the_checks_can_be_run(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource
) -> None:
    upsert(orders, DAY)
    checks = build_paimon_table_checks("lake.orders")
    selection = dg.AssetSelection.checks(dg.AssetCheckKey(KEY, "sorted_runs"))

    result = dg.materialize(
        [orders_asset, checks], resources={"paimon": paimon}, selection=selection
    )

    assert set(evaluations(result)) == {"sorted_runs"}


def test_the_checks_of_a_missing_table_fail_with_its_name(paimon: PaimonCatalogResource) -> None:
    result = run(paimon, raise_on_error=False)

    failure = result.failure_data_for_node("checks__lake__orders")
    assert failure
    assert failure.error
    assert "lake.orders" in failure.error.message


def test_an_unknown_check_is_refused_with_the_list_of_checks() -> None:
    with pytest.raises(InputError, match=r"too_big; the checks are level0_backlog"):
        build_paimon_table_checks("lake.orders", limits={"too_big": Limit(limit=1)})


def test_the_sensor_of_the_page_about_production_sends_one_message_until_a_check_passes(
    monkeypatch: pytest.MonkeyPatch, paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    page = Path(__file__).parents[2] / "docs" / "production.md"
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    for language, code in blocks:
        if language == "python" and "dagster_slack" not in code:
            exec(compile(code, page.name, "exec"), names)  # noqa: S102 - a page of ours
    messages = list[str]()
    monkeypatch.setitem(names, "send_email", messages.append)
    checks = build_paimon_table_checks("lake.orders")
    defs = dg.Definitions(
        [orders_asset], asset_checks=[checks], resources={"paimon": paimon}
    ).get_repository_def()
    cursor = None

    for passed in (False, False, True, False):
        evaluation = dg.AssetCheckEvaluation(
            asset_key=KEY, check_name="small_files", passed=passed, description="Compact."
        )
        instance.report_runless_asset_event(evaluation)
        with dg.build_sensor_context(instance, cursor, repository_def=defs) as context:
            names["failed_checks"](context)
            cursor = context.cursor

    assert messages == ["lake/orders:small_files: Compact."] * 2
