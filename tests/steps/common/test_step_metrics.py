"""Metrics of steps, as a meter provider of OpenTelemetry receives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.tables import new_table, table_of

from paimon_orch.errors import InputError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.compaction.compact import CompactRequest
from paimon_orch.steps.ingest import IngestRequest, plan, run_ingest
from paimon_orch.table.table import Table

sdk = pytest.importorskip("opentelemetry.sdk.metrics")
export = pytest.importorskip("opentelemetry.sdk.metrics.export")
COMPACT = {"paimon.step": "compact", "paimon.table": "db.t"}


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a reader of the metrics of a provider that only this test uses."""
    reader = export.InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[reader])
    monkeypatch.setattr("opentelemetry.metrics.get_meter", provider.get_meter)
    yield reader
    provider.shutdown()


def read_points(reader: Any) -> dict[str, list[tuple[dict[str, str], Any]]]:
    """Return attributes and value of each point; a histogram's value is its count."""
    data = reader.get_metrics_data()
    metrics = data.resource_metrics[0].scope_metrics[0].metrics if data else []
    return {
        metric.name: [
            (dict(point.attributes), getattr(point, "value", getattr(point, "count", None)))
            for point in metric.data.data_points
        ]
        for metric in metrics
    }


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path)
    for number in range(3):
        table.upsert(table_of("k v", [(number, "a")]))
    return table


def test_a_compaction_records_its_duration_rows_files_and_bytes(table: Table, reader: Any) -> None:
    result = compact.compact(table, strategy="full")

    points = read_points(reader)
    assert points["paimon.step.duration"] == [({**COMPACT, "paimon.outcome": "committed"}, 1)]
    assert points["paimon.step.rows"] == [(COMPACT, 3)]
    read, written = ({**COMPACT, "paimon.operation": name} for name in ("read", "written"))
    assert points["paimon.step.files"] == [(read, 3), (written, 1)]
    assert points["paimon.step.bytes"] == [
        (read, result.bytes_read),
        (written, result.bytes_written),
    ]


def test_a_step_without_work_is_recorded_as_such(table: Table, reader: Any) -> None:
    compact.compact(table, strategy="full")
    compact.compact(table, strategy="full")

    durations = read_points(reader)["paimon.step.duration"]
    assert ({**COMPACT, "paimon.outcome": "nothing to do"}, 1) in durations


def test_a_failed_step_records_the_type_of_its_error(
    table: Table, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_options: object) -> list[bytes]:
        raise InputError("no")

    monkeypatch.setattr(InProcessExecutor, "map", fail)
    planned = compact.plan(table, CompactRequest(strategy="full"))

    with pytest.raises(InputError):
        compact.run_compaction(table, planned)

    failed = {"paimon.outcome": "failed", "error.type": "InputError"}
    assert read_points(reader) == {"paimon.step.duration": [({**COMPACT, **failed}, 1)]}


def test_an_ingest_records_the_rows_that_it_wrote(table: Table, reader: Any) -> None:
    run_ingest(table, plan(table, IngestRequest(columns=["k", "v"])), list)

    [(attributes, count)] = read_points(reader)["paimon.step.duration"]
    assert attributes["paimon.step"] == "ingest"
    assert (attributes["paimon.outcome"], count) == ("nothing to do", 1)
