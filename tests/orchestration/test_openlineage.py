"""The events of OpenLineage that steps send, as an HTTP server receives them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from support.lineage_receiver import Receiver, run_receiver

import paimon_orch
from paimon_orch.errors import InputError
from paimon_orch.orchestration import openlineage
from paimon_orch.orchestration.step_runs import run_declared_step
from paimon_orch.steps.common import step_metrics
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.ingest import IngestRequest, plan, run_ingest
from paimon_orch.table.table import Table
from paimon_orch.table.write.table_write import write_rows

pytest.importorskip("openlineage.client")


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(step_metrics, "_observe", [])
    openlineage._make_client.cache_clear()
    with run_receiver() as running, mock.patch.dict(os.environ):  # the client sets variables too
        os.environ["OPENLINEAGE_URL"] = running.url
        os.environ["OPENLINEAGE__TRANSPORT__RETRY__TOTAL"] = "0"
        yield running
    openlineage._make_client.cache_clear()


def upsert(table: Table, *ids: int) -> None:
    table.upsert(pa.table({"dt": ["a"] * len(ids), "id": pa.array(ids), "amount": [1] * len(ids)}))


def compact(table: Table) -> dict[str, object]:
    arguments = {"strategy": "full"}
    return run_declared_step("compact", table, arguments, InProcessExecutor(), dry_run=False)


def test_a_compaction_sends_its_tables_with_schema_versions_and_statistics(
    orders: Table, receiver: Receiver
) -> None:
    upsert(orders, 1, 2)
    upsert(orders, 2, 3)

    outcome: Any = compact(orders)["outcome"]

    start, end = receiver.events
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["path"] == "/api/v1/lineage"
    assert start["run"]["runId"] == end["run"]["runId"]
    assert start["job"]["namespace"] == "default"
    assert start["job"]["name"] == "lake.orders.compact"
    engine = end["run"]["facets"]["processing_engine"]
    assert (engine["name"], engine["version"]) == ("paimon_orch", paimon_orch.__version__)
    [source], [target] = end["inputs"], end["outputs"]
    assert source["namespace"] == target["namespace"] == "file"
    assert source["name"] == target["name"] == orders.paths.root
    assert source["facets"]["version"]["datasetVersion"] == "2"
    assert target["facets"]["version"]["datasetVersion"] == str(outcome["snapshot_id"]) == "3"
    fields = target["facets"]["schema"]["fields"]
    assert [(each["name"], each["type"]) for each in fields] == [
        ("dt", "STRING NOT NULL"),
        ("id", "BIGINT NOT NULL"),
        ("amount", "INT"),
    ]
    [identifier] = target["facets"]["symlinks"]["identifiers"]
    assert identifier["name"] == "lake.orders"
    read = source["inputFacets"]["inputStatistics"]
    assert (read["fileCount"], read["size"]) == (2, outcome["bytes_read"])
    written = target["outputFacets"]["outputStatistics"]
    assert (written["rowCount"], written["fileCount"]) == (3, 1)
    assert written["size"] == outcome["bytes_written"]


def ingest(table: Table, sources: Sequence[str] = ()) -> None:
    openlineage.emit_lineage()
    rows = pa.table({"dt": ["a"], "id": pa.array([1]), "amount": pa.array([1], pa.int32())})
    planned = plan(table, IngestRequest(columns=rows.column_names))
    batches = rows.to_batches()
    run_ingest(
        table,
        planned,
        lambda: [write_rows(planned, planned.prepare(batches))],
        sources=sources,
    )


def test_an_ingest_of_rows_has_no_input_and_the_version_that_it_wrote(
    orders: Table, receiver: Receiver
) -> None:
    ingest(orders)

    end = receiver.events[1]
    assert receiver.states == [("lake.orders.ingest", "START"), ("lake.orders.ingest", "COMPLETE")]
    assert end["inputs"] == []
    assert end["outputs"][0]["facets"]["version"]["datasetVersion"] == "1"
    assert end["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 1


def list_inputs(receiver: Receiver) -> list[tuple[str, str]]:
    """Return the inputs of the last event, which are also those of the first one."""
    first, last = ([(i["namespace"], i["name"]) for i in e["inputs"]] for e in receiver.events)
    assert first == last
    assert not any(i.get("inputFacets") for e in receiver.events for i in e["inputs"])
    return last


def test_an_ingest_has_the_files_that_it_loads_as_inputs(
    orders: Table, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    ingest(orders, ["day.csv", "day.csv", "/data/a.csv", "s3://bucket/raw/b.csv", "hdfs://n/c.csv"])

    assert list_inputs(receiver) == [
        ("file", str(tmp_path / "day.csv")),
        ("file", "/data/a.csv"),
        ("s3://bucket", "raw/b.csv"),
        ("hdfs://n", "/c.csv"),
    ]


def test_secrets_of_the_addresses_of_files_are_not_sent(orders: Table, receiver: Receiver) -> None:
    ingest(orders, ["s3://AKIA:hush-hush@bucket/a.csv", "https://h/b.csv?token=hush-hush"])

    assert "hush-hush" not in str(receiver.events)
    assert list_inputs(receiver) == [
        ("s3://***@bucket", "a.csv"),
        ("https://h", "/b.csv?token=***"),
    ]


def test_many_files_are_named_by_their_directories(orders: Table, receiver: Receiver) -> None:
    ingest(orders, [f"s3://bucket/raw/dt={n % 2}/{n}.csv" for n in range(101)])

    assert list_inputs(receiver) == [("s3://bucket", "raw/dt=0"), ("s3://bucket", "raw/dt=1")]


def test_a_failed_step_sends_its_error(
    orders: Table, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    upsert(orders, 1)

    def refuse(*_: object, **__: object) -> None:
        raise InputError("no room\nleft")

    monkeypatch.setattr(InProcessExecutor, "map", refuse)
    with pytest.raises(InputError, match="no room"):
        compact(orders)

    assert receiver.states == [("lake.orders.compact", "START"), ("lake.orders.compact", "FAIL")]
    message = receiver.events[1]["run"]["facets"]["errorMessage"]["message"]
    assert message.startswith("InputError: no room")
    assert "\n" not in message


def test_the_run_that_started_the_process_is_the_parent(
    orders: Table, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    upsert(orders, 1)
    run_id = str(uuid.uuid4())
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/nightly.compact/{run_id}")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "lakehouse")

    compact(orders)

    parent = receiver.events[1]["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == run_id
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("airflow", "nightly.compact")
    assert receiver.events[1]["job"]["namespace"] == "lakehouse"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("parent", [None, "no parent"])
def test_a_receiver_that_fails_is_a_warning(
    orders: Table,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    parent: str | None,
) -> None:
    upsert(orders, 1)
    if parent is None:
        receiver.status = 400
    else:
        monkeypatch.setenv("OPENLINEAGE_PARENT_ID", parent)

    with caplog.at_level(logging.WARNING, "paimon_orch.orchestration.openlineage"):
        report = compact(orders)

    assert report["outcome"]
    [warning] = [each for each in caplog.messages if "OpenLineage" in each]
    assert "compact of lake.orders: no event of OpenLineage" in warning
    assert len(receiver.events) == (1 if parent is None else 0)


@pytest.mark.slow
def test_without_a_transport_nothing_is_imported(orders: Table) -> None:
    upsert(orders, 1)
    code = (
        "import sys; from paimon_orch import Catalog; "
        "from paimon_orch.orchestration.step_runs import run_declared_step as run; "
        "from paimon_orch.steps.common.executor import InProcessExecutor as E; "
        f"table = Catalog({str(Path(orders.paths.root).parents[1])!r}).table('lake.orders'); "
        "run('compact', table, {'strategy': 'full'}, E(), dry_run=False); "
        "print('openlineage' in sys.modules)"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENLINEAGE")}

    finished = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert finished.stdout.strip() == "False"


COMMAND = "from paimon_orch.cli.app import main; main()"
DAGSTER = """
import sys
import dagster as dg
from paimon_orch.dagster import PaimonCatalogResource, SparkSessionResource, build_compaction_asset
asset = build_compaction_asset("lake.orders")
resources = {"paimon": PaimonCatalogResource(warehouse=sys.argv[1]), "spark": SparkSessionResource()}
assert dg.materialize([asset], resources=resources).success
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [COMMAND, DAGSTER], ids=["command", "dagster"])
def test_commands_and_runs_of_dagster_send_events(
    orders: Table, receiver: Receiver, tmp_path: Path, program: str
) -> None:
    upsert(orders, 1)
    warehouse = str(Path(orders.paths.root).parents[1])
    arguments = ["compact", warehouse, "lake.orders"] if program == COMMAND else [warehouse]

    subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "DAGSTER_HOME": str(tmp_path)},
        check=True,
        capture_output=True,
    )

    assert receiver.states == [
        ("lake.orders.compact", "START"),
        ("lake.orders.compact", "COMPLETE"),
    ]


@pytest.mark.slow
def test_the_command_ingest_names_its_files(
    orders: Table, receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "day.csv").write_text("dt,id,amount\na,1,1\n")
    warehouse = str(Path(orders.paths.root).parents[1])

    subprocess.run(
        [sys.executable, "-c", COMMAND, "ingest", warehouse, "lake.orders", "--from", "day.csv"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )

    assert list_inputs(receiver) == [("file", str(tmp_path / "day.csv"))]
