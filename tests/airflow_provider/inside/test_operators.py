"""The operators run steps, and their errors decide about retries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

try:
    from airflow.sdk.exceptions import TaskDeferred
except ImportError:  # before Airflow 3.2
    from airflow.exceptions import TaskDeferred

from paimon_orch import (
    Catalog,
    CommitOutcomeUnknownError,
    CorruptFileError,
    InputError,
    StorageError,
    UnsupportedError,
)
from paimon_orch.airflow.due_partitions import due_partitions
from paimon_orch.airflow.operators import (
    PaimonCompactOperator,
    PaimonExpireSnapshotsOperator,
    PaimonRemoveOrphanFilesOperator,
    PaimonRewriteFileIndexOperator,
    PaimonStepOperator,
)
from paimon_orch.airflow.sensors import PaimonSnapshotSensor
from paimon_orch.airflow.task_errors import build_failure, raise_airflow_errors
from paimon_orch.airflow.triggers import PaimonSnapshotTrigger
from paimon_orch.steps.common.step_registry import load_declaration
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

DAYS = ("2026-01-01", "2026-01-02")
FAILURE = type(build_failure(""))
Upsert = Callable[..., None]


def execute(operator: PaimonStepOperator) -> Any:
    """Run an operator, and return what it puts into XCom as JSON."""
    return json.loads(json.dumps(operator.execute({})))


def test_a_compaction_returns_its_plan_and_its_outcome(orders: Table, upsert: Upsert) -> None:
    upsert(orders, *DAYS)

    result = execute(
        PaimonCompactOperator(task_id="t", table="lake.orders", partitions=[f"dt={DAYS[0]}"])
    )

    assert result["plan"]["buckets"] == 1
    assert result["plan"]["units"][0]["partition"] == f"dt={DAYS[0]}"
    assert result["outcome"]["snapshot_id"] == 2
    assert result["outcome"]["level0_before"] == 1
    assert result["outcome"]["level0_after"] == 0
    assert [due["partitions"] for due in due_partitions("lake.orders")] == [[f"dt={DAYS[1]}"]]


def test_a_dry_run_commits_nothing(orders: Table, upsert: Upsert) -> None:
    upsert(orders, *DAYS)

    result = execute(PaimonCompactOperator(task_id="t", table="lake.orders", dry_run=True))

    assert result["dry_run"]
    assert result["outcome"] is None
    assert result["plan"]["buckets"] == 2
    assert orders.load().snapshots.latest_id() == 1


def test_snapshots_expire_by_rendered_texts(orders: Table, upsert: Upsert) -> None:
    for _ in range(3):
        upsert(orders, DAYS[0])

    result = execute(
        PaimonExpireSnapshotsOperator(
            task_id="t", table="lake.orders", retain_max="1", retain_min="1", older_than="0 s"
        )
    )

    assert result["plan"]["snapshots"] == 2
    assert result["outcome"]["snapshots"] == 2


def test_orphan_files_are_listed_unless_asked_to_remove_them(orders: Table, upsert: Upsert) -> None:
    upsert(orders, DAYS[0])
    orphan = Path(orders.paths.root, f"dt={DAYS[0]}", "bucket-0", "data-orphan-0.parquet")
    orphan.write_bytes(b"x")
    arguments: dict[str, Any] = {"task_id": "t", "table": "lake.orders", "older_than": "0 s"}

    listed = execute(PaimonRemoveOrphanFilesOperator(**arguments))
    assert listed["plan"]["files"] == 1
    assert orphan.exists()

    removed = execute(PaimonRemoveOrphanFilesOperator(**arguments, dry_run=False))
    assert removed["outcome"]["files"] == 1
    assert not orphan.exists()


def test_no_orphan_file_of_a_damaged_table_is_removed(orders: Table, upsert: Upsert) -> None:
    upsert(orders, DAYS[0])
    folder = Path(orders.paths.root, f"dt={DAYS[0]}", "bucket-0")
    [data_file] = folder.iterdir()
    data_file.unlink()
    (folder / "data-orphan-0.parquet").write_bytes(b"x")
    operator = PaimonRemoveOrphanFilesOperator(
        task_id="t", table="lake.orders", older_than="0 s", dry_run=False
    )

    with pytest.raises(FAILURE, match="damaged table"):
        operator.execute({})
    assert [path.name for path in folder.iterdir()] == ["data-orphan-0.parquet"]


def test_file_indexes_are_rewritten(orders: Table, catalog: Catalog, upsert: Upsert) -> None:
    upsert(orders, DAYS[0])
    catalog.alter_table("lake.orders", [SetOption("file-index.bloom-filter.columns", "amount")])

    result = execute(PaimonRewriteFileIndexOperator(task_id="t", table="lake.orders"))

    assert result["outcome"]["files"] == 1


def test_any_step_runs_by_its_name(orders: Table, upsert: Upsert) -> None:
    upsert(orders, *DAYS)
    arguments = {"partitions": f"dt={DAYS[0]}", "strategy": "full", "idle_for": None}

    result = execute(
        PaimonStepOperator(task_id="t", step="compact", table="lake.orders", arguments=arguments)
    )

    assert result["outcome"]["buckets"] == 1


@pytest.mark.parametrize(
    ("step", "arguments", "message"),
    [
        ("compress", {}, "there is no step compress"),
        ("compact", {"partition": "dt=a"}, "unknown arguments: partition"),
        ("compact", {"idle_for": "soon"}, "is not a duration"),
        ("expire-snapshots", {"retain_max": "few"}, "must be a whole number"),
    ],
)
def test_wrong_arguments_fail_without_a_retry(
    orders: Table, step: str, arguments: dict[str, str], message: str
) -> None:
    operator = PaimonStepOperator(
        task_id="t", step=step, table="lake.orders", arguments=arguments, dry_run=False
    )

    with pytest.raises(FAILURE, match=message):
        operator.execute({})


def test_a_step_that_deletes_requires_a_decision(orders: Table) -> None:
    arguments = {"retain_max": 1, "retain_min": 1}
    before = orders.stores.snapshots.ids()
    operator = PaimonStepOperator(
        task_id="t", step="expire-snapshots", table="lake.orders", arguments=arguments
    )

    with pytest.raises(FAILURE, match="expire-snapshots needs a decision: set dry_run to true"):
        operator.execute({})

    assert orders.stores.snapshots.ids() == before


def test_a_refused_step_fails_without_a_retry(catalog: Catalog, orders: Table) -> None:
    catalog.alter_table("lake.orders", [SetOption("commit.callbacks", "com.example.Callback")])
    operator = PaimonCompactOperator(task_id="t", table="lake.orders")

    with pytest.raises(FAILURE, match=r"UnsupportedError: .*commit.callbacks"):
        operator.execute({})


@pytest.mark.parametrize(
    "error",
    [
        InputError("a request"),
        UnsupportedError("an option"),
        CorruptFileError("/lake/file", "damaged"),
        CommitOutcomeUnknownError("no answer"),
    ],
)
def test_refusals_damage_and_unknown_outcomes_are_final(error: Exception) -> None:
    with pytest.raises(FAILURE, match=type(error).__name__), raise_airflow_errors():
        raise error


def test_damage_names_the_next_step() -> None:
    with pytest.raises(FAILURE, match="paimon-orch doctor"), raise_airflow_errors():
        raise CorruptFileError("/lake/file", "damaged")


@pytest.mark.parametrize("error", [StorageError("a timeout"), OSError("no route"), ValueError()])
def test_other_errors_are_left_to_the_retries_of_the_task(error: Exception) -> None:
    with pytest.raises(type(error)), raise_airflow_errors():
        raise error


def test_named_operators_have_the_arguments_of_their_request() -> None:
    operators = (
        PaimonCompactOperator,
        PaimonExpireSnapshotsOperator,
        PaimonRemoveOrphanFilesOperator,
        PaimonRewriteFileIndexOperator,
    )
    for operator in operators:
        made = operator(task_id="t", table="lake.orders")
        assert set(operator.argument_names) <= set(load_declaration(made.step).arguments)
        assert set(operator.argument_names) < set(operator.template_fields)


def test_a_sensor_waits_for_a_snapshot(orders: Table, upsert: Upsert) -> None:
    sensor = PaimonSnapshotSensor(
        task_id="t", table="lake.orders", after_snapshot_id="1", poke_interval=0.05
    )
    upsert(orders, DAYS[0])
    assert not sensor.poke({}).is_done

    upsert(orders, DAYS[0])
    assert sensor.execute({}) == 2


def test_a_deferrable_sensor_waits_in_the_triggerer(orders: Table, upsert: Upsert) -> None:
    sensor = PaimonSnapshotSensor(
        task_id="t", table="lake.orders", deferrable=True, poke_interval=1, timeout=60
    )
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})

    trigger = deferred.value.trigger
    assert isinstance(trigger, PaimonSnapshotTrigger)
    assert trigger.serialize()[1]["table"] == "lake.orders"
    assert sensor.execute_complete({}, {"snapshot_id": 5}) == 5
    with pytest.raises(FAILURE, match="CorruptFileError"):
        sensor.execute_complete({}, {"error": "CorruptFileError: damaged"})
    upsert(orders, DAYS[0])
    assert sensor.execute({}) == 1


def test_a_repair_that_leaves_damage_fails_after_it_kept_its_report(
    orders: Table, upsert: Upsert
) -> None:
    upsert(orders, DAYS[0])
    (Path(orders.paths.root) / "snapshot/snapshot-1").write_text("{")
    kept = dict[str, Any]()

    class TaskInstance:
        def xcom_push(self, key: str, value: Any) -> None:
            kept[key] = value

    operator = PaimonStepOperator(task_id="t", step="repair", table="lake.orders", dry_run=False)
    with pytest.raises(FAILURE, match=r"^repair of lake\.orders leaves damage"):
        operator.execute({"ti": TaskInstance()})

    [refused] = kept["return_value"]["plan"]["refused"]
    assert refused["rule"] == "unreadable-table"
