"""The attribute ``run_on``: work of runs in other processes, by clients of Dagster Pipes."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster_pipes import open_dagster_pipes
from support.dagster.asset_runs import (
    materialize,
    materialize_range,
    metadata_by_partition,
    observation_metadata,
)
from support.dagster.pipes_clients import (
    InProcessPipesClient,
    ScriptClient,
    open_session_in_process,
)
from support.dagster.spark_resources import UnavailableSparkResource
from support.dagster.ticks import SensorTicks

from paimon_orch import errors
from paimon_orch.dagster import (
    PaimonCatalogResource,
    PaimonDatabaseComponent,
    PaimonTableComponent,
    RunOn,
    SparkSessionResource,
    build_compaction_asset,
    build_expire_snapshots_job,
    build_file_index_asset,
    build_latest_snapshot_sensor,
    build_step_job,
)
from paimon_orch.dagster.error_conversion import raise_dagster_errors
from paimon_orch.dagster.remote_runs import CLIENTS, RemoteSteps
from paimon_orch.dagster.resources import ExecutorChoice
from paimon_orch.errors import InputError
from paimon_orch.orchestration.planned_runs import PlannedRun
from paimon_orch.orchestration.reported_steps import raise_reported_error
from paimon_orch.orchestration.step_runs import STEP_EXTRA
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

pytestmark = [  # Dagster's own client calls these
    pytest.mark.filterwarnings("ignore:AssetExecutionContext.run_id is deprecated"),
    pytest.mark.filterwarnings("ignore:Function `PipesMessageReader.expected_writer_count`"),
]

DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]
PARTITIONS = dg.StaticPartitionsDefinition([*DAYS, "2026-01-04"])
Upsert = Callable[..., None]
Metadata = dict[str | None, dict[str, Any]]

SCRIPT = "s3://code/run_step.py"
MODULE = ["python", "-m", "paimon_orch.run_step"]


@pytest.fixture
def client() -> InProcessPipesClient:
    return InProcessPipesClient()


@pytest.fixture
def resources(paimon: PaimonCatalogResource, client: InProcessPipesClient) -> dict[str, object]:
    return {"paimon": paimon, "spark": UnavailableSparkResource(), "pipes_client": client}


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[], dict[str, object]]:
    """Copies the warehouse, and returns the resources of local runs on the copy."""

    def copy() -> dict[str, object]:
        shutil.copytree(tmp_path / "warehouse", tmp_path / "copy")
        paimon = PaimonCatalogResource(warehouse=str(tmp_path / "copy"))
        return {"paimon": paimon, "spark": UnavailableSparkResource()}

    return copy


def comparable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata without times, directories, and what a local run does not have."""
    return {
        name: re.sub(r"[0-9.]+ s|/(warehouse|copy)/", "", str(value))
        for name, value in metadata.items()
        if not name.endswith("duration_seconds")
        and name != "job"
        and not name.startswith("paimon/spark_")  # of a session that other tests started
    }


def test_a_compaction_elsewhere_reports_what_a_local_one_does(
    orders: Table,
    upsert: Upsert,
    resources: dict[str, object],
    client: InProcessPipesClient,
    copied: Callable[[], dict[str, object]],
    instance: dg.DagsterInstance,
) -> None:
    for amount in range(2):
        upsert(orders, *DAYS, amount=amount)
    here = copied()
    options: Any = {"partitions_def": PARTITIONS, "max_partitions_per_run": 2, "checks": {}}
    local = materialize_range(
        build_compaction_asset("lake.orders", **options), here, DAYS[0], "2026-01-04", instance
    )

    asset = build_compaction_asset("lake.orders", run_on="k8s", **options)
    result = materialize_range(asset, resources, DAYS[0], "2026-01-04", instance)

    metadata, expected = metadata_by_partition(result), metadata_by_partition(local)
    assert metadata.keys() == expected.keys() == {*DAYS, "2026-01-04"}
    for key in metadata:
        assert comparable(metadata[key]) == {
            name: value
            for name, value in comparable(expected[key]).items()
            if name != "paimon/write_amplification"  # the report does not name the files
        }
    assert metadata[DAYS[0]]["job"] == "https://cluster.example.com/jobs/1"
    # the last group has one partition with files, and one without
    assert [extras[STEP_EXTRA]["arguments"]["partitions"] for extras in client.extras] == [
        [{"dt": DAYS[0]}, {"dt": DAYS[1]}],
        [{"dt": DAYS[2]}],
    ]
    assert orders.stores.snapshots.latest_id() == 4
    evaluations = [
        event.event_specific_data.check_name  # type: ignore[union-attr]
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION
    ]
    assert "level0_backlog" in evaluations


@pytest.mark.slow
def test_a_compaction_in_a_subprocess_materializes_each_partition_once(
    orders: Table, upsert: Upsert, resources: dict[str, object], instance: dg.DagsterInstance
) -> None:
    for amount in range(2):
        upsert(orders, *DAYS, amount=amount)
    asset = build_compaction_asset("lake.orders", partitions_def=PARTITIONS, run_on="subprocess")
    del resources["pipes_client"]

    result = materialize_range(asset, resources, DAYS[0], DAYS[2], instance)

    metadata = metadata_by_partition(result)
    assert len(result.get_asset_materialization_events()) == 3
    assert {day: metadata[day]["paimon/files_after"] for day in DAYS} == dict.fromkeys(DAYS, 1)
    assert metadata[DAYS[0]]["paimon/snapshot_id"] == "3"
    assert orders.stores.snapshots.latest_id() == 3


@pytest.mark.parametrize("run_on", ["k8s", pytest.param("subprocess", marks=pytest.mark.slow)])
@pytest.mark.parametrize("partitions_def", [None, PARTITIONS], ids=["table", "partition"])
def test_file_indexes_are_rewritten_elsewhere(
    run_on: str,
    partitions_def: dg.StaticPartitionsDefinition | None,
    orders: Table,
    upsert: Upsert,
    paimon: PaimonCatalogResource,
    resources: dict[str, object],
    copied: Callable[[], dict[str, object]],
) -> None:
    upsert(orders, *DAYS)
    paimon.catalog().alter_table(
        "lake.orders", [SetOption("file-index.bloom-filter.columns", "amount")]
    )
    key = DAYS[1] if partitions_def else None
    local = build_file_index_asset("lake.orders", partitions_def=partitions_def)
    expected = metadata_by_partition(materialize(local, copied(), key))
    asset = build_file_index_asset("lake.orders", partitions_def=partitions_def, run_on=run_on)

    metadata = metadata_by_partition(materialize(asset, resources, key))

    assert comparable(metadata[key]) == comparable(expected[key])
    assert metadata[key]["paimon/indexed_files"] == (3 if key is None else 1)
    again = metadata_by_partition(materialize(asset, resources, key))
    assert again[key]["paimon/summary"] == "All files have the indexes of the table's options."


def test_no_process_is_started_for_partitions_without_files(
    orders: Table, resources: dict[str, object], client: InProcessPipesClient
) -> None:
    compaction = build_compaction_asset("lake.orders", partitions_def=PARTITIONS, run_on="k8s")
    index = build_file_index_asset("lake.orders", partitions_def=PARTITIONS, run_on="k8s")

    compacted = metadata_by_partition(materialize(compaction, resources, DAYS[0]))
    assert compacted[DAYS[0]]["paimon/summary"] == "Nothing to compact."
    indexed = metadata_by_partition(materialize(index, resources, DAYS[0]))
    assert indexed[DAYS[0]]["paimon/indexed_files"] == 0
    assert client.calls == []
    assert orders.stores.snapshots.latest_id() is None


@pytest.mark.parametrize("run_on", ["k8s", pytest.param("subprocess", marks=pytest.mark.slow)])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_job_elsewhere_reports_what_a_local_one_does(
    run_on: str,
    dry_run: bool,
    orders: Table,
    upsert: Upsert,
    resources: dict[str, object],
    copied: Callable[[], dict[str, object]],
) -> None:
    for amount in range(3):
        upsert(orders, DAYS[0], amount=amount)
    config: Any = {"retain_min": 1, "retain_max": 1, "dry_run": dry_run}
    local = build_expire_snapshots_job("lake.orders", config=config)
    job = build_expire_snapshots_job("lake.orders", config=config, run_on=run_on)

    [expected] = observation_metadata(local.execute_in_process(resources=copied()))
    [metadata] = observation_metadata(job.execute_in_process(resources=resources))

    assert comparable(metadata) == comparable(expected)
    assert metadata["paimon/dry_run"] is dry_run
    snapshots = f"paimon/expire_snapshots_{'planned_' if dry_run else ''}snapshots"
    assert metadata[snapshots] == 2
    assert orders.stores.snapshots.ids() == ([1, 2, 3] if dry_run else [3])


def test_the_figures_of_merged_manifests_are_those_of_a_local_run(
    orders: Table,
    upsert: Upsert,
    resources: dict[str, object],
    copied: Callable[[], dict[str, object]],
) -> None:
    for amount in range(3):
        upsert(orders, DAYS[0], amount=amount)
    local = build_step_job("compact-manifests", "lake.orders", config={"dry_run": False})
    job = build_step_job(
        "compact-manifests", "lake.orders", config={"dry_run": False}, run_on="k8s"
    )

    [expected] = observation_metadata(local.execute_in_process(resources=copied()))
    [metadata] = observation_metadata(job.execute_in_process(resources=resources))

    assert comparable(metadata) == comparable(expected)
    assert metadata["paimon/compact_manifests_manifests_after"] < 3


@pytest.mark.parametrize(
    "run_on", [None, "k8s", pytest.param("subprocess", marks=pytest.mark.slow)]
)
def test_a_damaged_partition_fails_as_in_a_local_run(
    run_on: str | None,
    orders: Table,
    upsert: Upsert,
    resources: dict[str, object],
    instance: dg.DagsterInstance,
) -> None:
    for amount in range(2):
        upsert(orders, *DAYS[:2], amount=amount)
    for path in Path(orders.paths.root).glob(f"dt={DAYS[0]}/bucket-0/data-*"):
        path.write_bytes(b"damaged")
    asset = build_compaction_asset("lake.orders", partitions_def=PARTITIONS, run_on=run_on)

    tags = {
        "dagster/asset_partition_range_start": DAYS[0],
        "dagster/asset_partition_range_end": DAYS[1],
    }
    result = materialize(asset, resources, tags=tags, instance=instance, raise_on_error=False)

    data = result.failure_data_for_node("lake__orders__orders_compaction")
    assert data is not None
    assert data.user_failure_data is not None
    metadata = {name: each.value for name, each in data.user_failure_data.metadata.items()}
    assert metadata["paimon/error"] == "CorruptFileError"
    assert "paimon-orch doctor --deep" in str(metadata["paimon/next_step"])
    # the other partition of the group was compacted
    assert instance.get_materialized_partitions(asset.key) == {DAYS[1]}
    assert orders.stores.snapshots.latest_id() == 3


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        ({"type": "CommitConflictError", "may_succeed_again": True}, dg.RetryRequested),
        ({"type": "ConnectionResetError", "may_succeed_again": True}, dg.RetryRequested),
        ({"type": "CommitOutcomeUnknownError", "may_succeed_again": False}, dg.Failure),
        ({"type": "InputError", "may_succeed_again": False}, dg.Failure),
        ({"type": "IndexError", "may_succeed_again": False}, dg.Failure),
        ({"type": "REFUSED_COMMIT_ERRORS", "may_succeed_again": False}, dg.Failure),
    ],
    ids=lambda each: each["type"] if isinstance(each, dict) else "",
)
def test_a_reported_error_has_the_consequences_of_a_local_one(
    error: dict[str, Any], raised: type[Exception]
) -> None:
    causes = []

    @dg.op
    def step(context: dg.OpExecutionContext) -> None:
        with pytest.raises(raised) as failed, raise_dagster_errors("lake.orders", context):
            raise_reported_error(error | {"message": "a: b"})
        causes.append(failed.value.__cause__)

    assert dg.GraphDefinition("run", node_defs=[step]).execute_in_process().success

    [cause] = causes
    assert (type(cause).__name__, str(cause)) == (error["type"], "a: b")
    kind = getattr(errors, error["type"], None)
    assert not isinstance(kind, type) or type(cause) is kind


def test_a_reported_error_may_have_any_name() -> None:
    error = {"type": "nul\0\ud800", "message": "lost", "may_succeed_again": False}

    with pytest.raises(errors.PaimonError, match="lost") as failed:
        raise_reported_error(error)

    assert type(failed.value).__name__ == r"nul\x00\ud800"


def test_a_reported_damage_has_the_path_of_the_file() -> None:
    with pytest.raises(errors.MissingFileError) as damage:
        raise_reported_error(
            {
                "type": "MissingFileError",
                "message": "s3://b/f: is: lost",
                "may_succeed_again": False,
            }
        )
    assert (damage.value.path, damage.value.reason) == ("s3://b/f", "is: lost")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [("false", "External execution process failed"), ("true", "subprocess sent no report")],
)
@pytest.mark.filterwarnings("ignore:.*did not receive any messages")
def test_a_process_without_a_report_fails_the_run(
    command: str, sentence: str, orders: Table, upsert: Upsert, resources: dict[str, object]
) -> None:
    upsert(orders, DAYS[0])
    asset = build_compaction_asset(
        "lake.orders", run_on=RunOn("subprocess", {"command": [command]})
    )

    result = materialize(asset, resources, raise_on_error=False)

    data = result.failure_data_for_node("lake__orders__orders_compaction")
    assert data is not None
    assert data.user_failure_data is not None
    assert sentence in str(data.error)


class ReportingClient(dg.PipesClient):
    """A process that sends one report, of another version or with wrong values."""

    def __init__(self, report: object) -> None:
        self._report = report

    def run(  # type: ignore[override]  # as Dagster's clients
        self, *, context: Any, extras: dict[str, Any] | None = None, **_arguments: Any
    ) -> dg.PipesClientCompletedInvocation:
        """Send the report."""
        with open_session_in_process(context, extras) as session, open_dagster_pipes() as pipes:
            pipes.report_custom_message(self._report)
        return dg.PipesClientCompletedInvocation(session)


REPORT: dict[str, Any] = {"action": "nothing to do", "columns": {}, "items": [], "outcome": None}
OUTCOME: dict[str, Any] = {"snapshot_id": None, "duration_seconds": 0, "bytes_written": 0}
OUTCOME |= dict.fromkeys(("buckets", "rows_written", "attempts"), 0)
UNIT = {"partition": "", "bucket": 0, "reason": "", "files": 1, "rows": 1, "bytes": 1}


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        ({"error": "lost"}, "error is 'lost'"),
        ({"error": {"type": ["InputError"], "message": "", "may_succeed_again": False}}, "type"),
        ({"error": {"type": "InputError", "may_succeed_again": False}}, "message is missing"),
        ({"error": {"type": "KeyError", "message": None, "may_succeed_again": True}}, "message is"),
        ({"plan": {}}, "action is missing"),
        (REPORT | {"plan": None}, "plan is None"),
        (REPORT | {"plan": {}}, "outcome is None"),
        (REPORT | {"plan": {}, "outcome": OUTCOME}, "plan.units is missing"),
        (REPORT | {"plan": {"units": [UNIT]}, "outcome": OUTCOME}, "units[0].output_level is miss"),
        (REPORT | {"plan": {"units": [UNIT | {"rows": "1"}]}, "outcome": OUTCOME}, "rows is '1'"),
        (REPORT | {"plan": {"units": []}, "outcome": OUTCOME | {"snapshot_id": "5"}}, "is '5'"),
        (REPORT | {"plan": {}, "items": [{"path": ["a"]}]}, "items[0].path is ['a']"),
    ],
)
def test_a_report_that_cannot_be_read_fails_the_run_with_its_reason(
    report: dict[str, Any],
    reason: str,
    orders: Table,
    upsert: Upsert,
    resources: dict[str, object],
) -> None:
    upsert(orders, DAYS[0])
    asset = build_compaction_asset("lake.orders", run_on="k8s")
    resources["pipes_client"] = ReportingClient({"step": "compact", **report})

    result = materialize(asset, resources, raise_on_error=False)

    data = result.failure_data_for_node("lake__orders__orders_compaction")
    assert data is not None
    assert data.user_failure_data is not None
    [sentence] = [line for line in str(data.error).splitlines() if "cannot be read: " in line][:1]
    assert reason in sentence
    assert "Install the same version of paimon-orch there" in sentence
    assert orders.stores.snapshots.latest_id() == 1


def test_messages_of_a_script_are_no_report(
    orders: Table, upsert: Upsert, resources: dict[str, object]
) -> None:
    upsert(orders, DAYS[0])
    asset = build_compaction_asset("lake.orders", run_on="k8s")
    resources["pipes_client"] = ReportingClient({"progress": 1})

    result = materialize(asset, resources, raise_on_error=False)

    data = result.failure_data_for_node("lake__orders__orders_compaction")
    assert data is not None
    assert "sent no report" in str(data.error)


MESSAGES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("k8s", {"image": "lake:1"}, {"image": "lake:1", "command": MODULE}),
    ("k8s", {"command": ["sh"]}, {"command": ["sh"]}),
    (
        "ecs",
        {"run_task_params": {"overrides": {"containerOverrides": [{"name": "a"}, {"name": "b"}]}}},
        {
            "run_task_params": {
                "overrides": {
                    "containerOverrides": [{"name": "a", "command": MODULE}, {"name": "b"}]
                }
            }
        },
    ),
    (
        "emr",
        {"run_job_flow_params": {"Name": "nightly"}},
        {
            "run_job_flow_params": {
                "Name": "nightly",
                "Steps": [
                    {
                        "Name": "paimon_orch",
                        "ActionOnFailure": "TERMINATE_CLUSTER",
                        "HadoopJarStep": {
                            "Jar": "command-runner.jar",
                            "Args": ["spark-submit", SCRIPT],
                        },
                    }
                ],
            }
        },
    ),
    (
        "emr_serverless",
        {"start_job_run_params": {"applicationId": "a"}},
        {
            "start_job_run_params": {
                "applicationId": "a",
                "jobDriver": {"sparkSubmit": {"entryPoint": SCRIPT}},
            }
        },
    ),
    (
        "emr_containers",
        {"start_job_run_params": {"virtualClusterId": "a"}},
        {
            "start_job_run_params": {
                "virtualClusterId": "a",
                "jobDriver": {"sparkSubmitJobDriver": {"entryPoint": SCRIPT}},
            }
        },
    ),
    (
        "glue",
        {"start_job_run_params": {"JobName": "compact"}},
        {"start_job_run_params": {"JobName": "compact"}},
    ),
    (
        "databricks",
        {"task": {"existing_cluster_id": "c"}},
        {
            "task": (
                "SubmitTask",
                {
                    "existing_cluster_id": "c",
                    "task_key": "paimon_orch",
                    "spark_python_task": {"python_file": SCRIPT},
                },
            )
        },
    ),
    (
        "dataproc",
        {"submit_job_params": {"region": "r", "job": {"placement": {"cluster_name": "c"}}}},
        {
            "submit_job_params": {
                "region": "r",
                "job": (
                    "Job",
                    {
                        "placement": {"cluster_name": "c"},
                        "pyspark_job": {"main_python_file_uri": SCRIPT},
                    },
                ),
            }
        },
    ),
]


@pytest.mark.parametrize(
    ("kind", "options", "arguments"), MESSAGES, ids=lambda each: str(each)[:14]
)
def test_each_client_gets_our_program_in_the_place_that_it_has_for_it(
    kind: str,
    options: dict[str, Any],
    arguments: dict[str, Any],
    orders: Table,
    upsert: Upsert,
    resources: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packages: dict[str, dict[str, Any]] = {
        "databricks.sdk.service.jobs": {
            "SubmitTask": SimpleNamespace(from_dict=lambda task: ("SubmitTask", task))
        },
        "google.cloud.dataproc_v1.types": {"Job": lambda job: ("Job", job)},
    }
    for name, types in packages.items():  # they are not installed
        module = ModuleType(name)
        vars(module).update(types)
        monkeypatch.setitem(sys.modules, name, module)
    upsert(orders, DAYS[0])
    client = InProcessPipesClient(kind)
    run_on = RunOn(kind, options, script=SCRIPT, resource="cluster")
    asset = build_compaction_asset("lake.orders", run_on=run_on)

    for _ in range(2):
        assert materialize(asset, resources | {"cluster": client}).success

    assert client.calls == [arguments, arguments]
    assert run_on.options == options  # clients change their arguments
    assert client.extras[0][STEP_EXTRA]["table"] == "lake.orders"


@pytest.mark.slow
def test_a_script_may_connect_to_dagster_by_the_arguments_of_its_process(
    tmp_path: Path,
    orders: Table,
    upsert: Upsert,
    resources: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    types = ModuleType("google.cloud.dataproc_v1.types")
    vars(types)["Job"] = dict
    monkeypatch.setitem(sys.modules, types.__name__, types)
    upsert(orders, DAYS[0])
    script = tmp_path / "run.py"
    script.write_text(
        "from dagster_pipes import PipesCliArgsParamsLoader, open_dagster_pipes\n"
        "from paimon_orch.run_step import main\n"
        "with open_dagster_pipes(params_loader=PipesCliArgsParamsLoader()):\n"
        "    main()\n",
        encoding="utf-8",
    )
    asset = build_compaction_asset("lake.orders", run_on=RunOn("dataproc", script=str(script)))

    [metadata] = metadata_by_partition(
        materialize(asset, resources | {"pipes_client": ScriptClient()})
    ).values()

    assert metadata["paimon/snapshot_id"] == "2"


def test_all_clients_but_the_subprocess_are_recorded() -> None:
    assert {kind for kind, *_ in MESSAGES} == CLIENTS.keys() - {"subprocess"}


@pytest.mark.parametrize(
    ("run_on", "sentence"),
    [
        ("mars", "unknown client 'mars'; possible are subprocess, k8s, ecs"),
        ("emr_serverless", "run_on needs 'script', the address of a Python file"),
        ("emr", "run_on needs 'script'"),
        ({"image": "lake:1"}, "an object with the key 'client'"),
        ({"client": ["k8s"]}, "unknown client \\['k8s'\\]; possible are"),
        ({"client": "emr", "script": 5}, "script is 5, but must be a text"),
        ({"client": "k8s", "resource": None}, "resource is None, but must be a text"),
        ({"client": "k8s", "from_tags": "size_pod"}, "from_tags is 'size_pod', but must be a func"),
        ({"client": "k8s", "extras": {}}, "k8s takes no extras"),
        ({"client": "subprocess", "comand": ["sh"]}, "subprocess takes no comand"),
        ({"client": "ecs", "run_task_params": None}, "an argument of ecs has another type"),
        ({"client": "databricks", "task": "nightly"}, "an argument of databricks has another type"),
    ],
)
def test_an_unusable_place_is_refused_when_definitions_load(run_on: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        build_compaction_asset("lake.orders", run_on=run_on)


@pytest.mark.parametrize(
    ("catalog", "spark", "names"),
    [
        ({"storage_options": {"secret": "s3cr3t"}}, {}, "secret"),
        ({"metastore": "rest", "uri": "http://localhost:1", "token": "s3cr3t"}, {}, "token"),
        ({"metastore": "jdbc", "uri": "jdbc:mysql://u:pw@h/d"}, {}, "uri"),
        ({}, {"remote": "sc://h:15002/;token=s3cr3t"}, "spark"),
    ],
)
def test_secrets_are_not_sent_to_a_cluster(
    catalog: dict[str, Any], spark: dict[str, Any], names: str
) -> None:
    table: Any = SimpleNamespace(identifier="lake.orders")
    with dg.build_op_context() as context, pytest.raises(InputError) as refused:
        RemoteSteps(
            run_on=RunOn("k8s"),
            context=context,
            paimon=PaimonCatalogResource(warehouse="/lake", **catalog),
            spark=SparkSessionResource(**spark),
        ).run("compact", table, {}, executor=ExecutorChoice.spark)

    assert f"k8s would show secrets in the description of its job: {names};" in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_secrets_are_sent_to_a_subprocess_in_a_private_directory() -> None:
    RunOn("subprocess").check_secrets({"token": "s3cr3t"})

    extras = {STEP_EXTRA: {"storage_options": {"secret": "s3cr3t"}}}

    @dg.op
    def step(context: dg.OpExecutionContext) -> None:
        with dg.open_pipes_session(
            context=context,
            extras=extras,
            context_injector=dg.PipesSubprocessClient().context_injector,
            message_reader=dg.PipesTempFileMessageReader(),
        ) as session:
            path = Path(session.context_injector_params["path"])
            assert "s3cr3t" in path.read_text(encoding="utf-8")
            assert path.parent.stat().st_mode & 0o077 == 0
            assert "s3cr3t" not in str(session.get_bootstrap_env_vars())

    assert dg.GraphDefinition("run", node_defs=[step]).execute_in_process().success


def test_the_process_gets_the_executor_the_allowances_and_the_cluster(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource, client: InProcessPipesClient
) -> None:
    upsert(orders, DAYS[0])
    spark = SparkSessionResource(master="spark://h:7077", executor=ExecutorChoice.local)
    job = build_step_job(
        "analyze",
        "lake.orders",
        config={"dry_run": True, "allow_unknown_options": True, "executor": "spark"},
        run_on="k8s",
    )
    resources = {"paimon": paimon, "spark": spark, "pipes_client": client}
    job.execute_in_process(resources=resources)

    [extras] = client.extras
    assert extras[STEP_EXTRA] == {
        "step": "analyze",
        "catalog": paimon.warehouse,
        "catalog_options": {},
        "storage_options": {},
        "table": "lake.orders",
        "arguments": {},
        "dry_run": True,
        "executor": "spark",
        "master": "spark://h:7077",
        "allow_stale_external": False,
        "allow_unknown_options": True,
    }


def size_of(run: PlannedRun) -> Mapping[str, str]:
    return {"memory": "8Gi" if run.bytes > 100 else "1Gi"}


def size_pod(tags: Mapping[str, str]) -> Mapping[str, Any]:
    resources = {"requests": {"memory": tags["memory"]}}
    return {"base_pod_spec": {"containers": [{"name": "step", "resources": resources}]}}


def test_a_pod_is_sized_by_what_the_run_will_read(
    orders: Table,
    upsert: Upsert,
    paimon: PaimonCatalogResource,
    client: InProcessPipesClient,
    resources: dict[str, object],
    instance: dg.DagsterInstance,
) -> None:
    upsert(orders, DAYS[0])
    sensor = build_latest_snapshot_sensor(
        "lake.orders", partitions_def=PARTITIONS, run_tags=size_of
    )
    [request] = SensorTicks(sensor, paimon, instance).new_run_requests()
    asset = build_compaction_asset(
        "lake.orders",
        partitions_def=PARTITIONS,
        run_on=RunOn("k8s", {"image": "lake:1"}, from_tags=size_pod),
    )

    materialize(asset, resources, request.partition_key, tags=request.tags)

    [call] = client.calls
    assert call == {"image": "lake:1", "command": MODULE, **size_pod({"memory": "8Gi"})}


@pytest.mark.parametrize(
    ("run_on", "keys"),
    [
        ("subprocess", {"paimon", "spark"}),
        ({"client": "k8s", "image": "lake:1"}, {"paimon", "spark", "pipes_client"}),
        ({"client": "k8s", "resource": "pods"}, {"paimon", "spark", "pods"}),
    ],
)
def test_all_work_of_a_component_runs_there(run_on: Any, keys: set[str]) -> None:
    attributes = {"warehouse": "/lake", "file_index": True, "run_on": run_on}
    table = PaimonTableComponent.from_attributes_dict(
        attributes={**attributes, "table": "lake.orders"}
    )
    assert table.run_on == RunOn.parse(run_on)
    database = PaimonDatabaseComponent.from_attributes_dict(
        attributes={**attributes, "database": "lake"}
    )

    for definitions in (table.definitions(), database.definitions({"orders": []})):
        jobs: Any = definitions.jobs
        ops = [node.definition for job in jobs for node in job.nodes]
        assets = definitions.assets or ()
        ops += [asset.node_def for asset in assets if isinstance(asset, dg.AssetsDefinition)]
        assert len(ops) == 5
        for op in ops:
            assert op.required_resource_keys == keys


@pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")  # in Dagster
def test_the_size_of_a_pod_may_be_a_template() -> None:
    text = (
        "table: lake.orders\nwarehouse: /lake\n"
        "run_on: {client: k8s, namespace: '{{ env.PWD }}', from_tags: '{{ pod }}'}\n"
    )
    component = PaimonTableComponent.resolve_from_yaml(text, scope={"pod": size_pod})
    run_on = RunOn.parse(component.run_on)

    assert run_on is not None
    assert run_on.build_arguments({"memory": "1Gi"}) == {
        "namespace": os.environ["PWD"],
        "command": MODULE,
        **size_pod({"memory": "1Gi"}),
    }


def test_a_job_of_many_tables_runs_there(
    orders: Table,
    upsert: Upsert,
    paimon: PaimonCatalogResource,
    resources: dict[str, object],
    client: InProcessPipesClient,
) -> None:
    upsert(orders, DAYS[0])
    component = PaimonDatabaseComponent.from_attributes_dict(
        attributes={"database": "lake", "warehouse": paimon.warehouse, "run_on": "k8s"}
    )
    jobs: Any = component.definitions({"orders": ["dt"]}).jobs
    [job] = [each for each in jobs if each.name == "expire_snapshots__lake"]

    assert job.execute_in_process(partition_key="lake.orders", resources=resources).success

    assert [extras[STEP_EXTRA]["table"] for extras in client.extras] == ["lake.orders"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")  # in Dagster
def test_a_component_from_yaml_compacts_in_a_subprocess(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    for amount in range(2):
        upsert(orders, DAYS[0], amount=amount)
    text = f"table: lake.orders\nwarehouse: {paimon.warehouse}\nrun_on: subprocess\n"
    component = PaimonTableComponent.resolve_from_yaml(text)
    job = component.definitions().resolve_implicit_global_asset_job_def()

    result = job.execute_in_process(
        instance=instance, asset_selection=[dg.AssetKey(["lake", "orders", "orders_compaction"])]
    )

    [metadata] = metadata_by_partition(result).values()
    assert (metadata["paimon/files_before"], metadata["paimon/files_after"]) == (2, 1)
