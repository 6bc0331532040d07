"""With ``trigger: automation``, a condition of the compaction asset requests compactions."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest
from support.dagster.ticks import SensorTicks

from paimon_orch.dagster import PaimonCatalogResource, PaimonTableComponent
from paimon_orch.errors import InputError
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

TABLE = dg.AssetKey(["lake", "orders"])
COMPACTION = dg.AssetKey(["lake", "orders", "orders_compaction"])
DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]
NOW = datetime(2026, 1, 3, 12, tzinfo=UTC)
Upsert = Callable[..., None]


def load(**attributes: Any) -> dg.Definitions:
    component = PaimonTableComponent.from_attributes_dict(
        attributes={
            "table": "lake.orders",
            "warehouse": "/lake",
            "trigger": "automation",
            **attributes,
        }
    )
    return component.definitions()


class AutomationTicks:
    """The sensor that reports commits, and then the evaluation of conditions, as in a daemon."""

    def __init__(
        self, defs: dg.Definitions, paimon: PaimonCatalogResource, instance: dg.DagsterInstance
    ) -> None:
        self.defs, self.instance = defs, instance
        self.cursor: Any = None
        sensor = defs.resolve_sensor_def("latest_snapshot__lake__orders")
        self.sensor = SensorTicks(sensor, paimon, instance)
        self._evaluate_conditions()

    def find_requested(self) -> set[str | None]:
        """Return the keys of the partitions that one tick requests; None is the whole table."""
        result = self.sensor.evaluate()
        if isinstance(result, dg.SensorResult):
            assert not result.run_requests
            for event in result.asset_events:
                self.instance.report_runless_asset_event(event)
        return self._evaluate_conditions()

    def _evaluate_conditions(self) -> set[str | None]:
        result = dg.evaluate_automation_conditions(
            self.defs,
            self.instance,
            dg.AssetSelection.assets(COMPACTION),
            evaluation_time=NOW,
            cursor=self.cursor,
        )
        self.cursor = result.cursor
        requested = result.get_requested_partitions(COMPACTION)
        return {None} if requested == {None} else set(requested)

    def compact(self, resources: Mapping[str, object], day: str | None) -> None:
        assets = [a for a in self.defs.assets or [] if isinstance(a, dg.AssetsDefinition)]
        result = dg.materialize(
            assets, resources=resources, partition_key=day, instance=self.instance
        )
        assert result.success


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "partitions",
    [{"start": DAYS[0]}, {"dynamic": True}, {"values": DAYS}],
    ids=["time", "dynamic", "static"],
)
def test_each_partition_that_a_commit_changed_is_requested_once(
    orders: Table,
    upsert: Upsert,
    paimon: PaimonCatalogResource,
    resources: Mapping[str, object],
    instance: dg.DagsterInstance,
    partitions: Mapping[str, Any],
) -> None:
    ticks = AutomationTicks(load(partitions=partitions), paimon, instance)

    upsert(orders, *DAYS[:2])
    assert ticks.find_requested() == {*DAYS[:2]}
    assert ticks.find_requested() == set()
    for day in DAYS[:2]:
        ticks.compact(resources, day)
    assert inspect(orders).level0_files == 0
    assert ticks.find_requested() == set()
    upsert(orders, DAYS[0], amount=2)
    assert ticks.find_requested() == {DAYS[0]}


def test_a_table_without_partitions_is_requested_as_a_whole(
    create: Callable[..., Table],
    upsert: Upsert,
    paimon: PaimonCatalogResource,
    resources: Mapping[str, object],
    instance: dg.DagsterInstance,
) -> None:
    table = create("lake.orders", ())
    ticks = AutomationTicks(load(), paimon, instance)

    upsert(table, "2026-01-01")
    assert ticks.find_requested() == {None}
    ticks.compact(resources, None)
    assert ticks.find_requested() == set()


def test_the_condition_may_be_a_template() -> None:
    [spec] = [
        spec
        for spec in load(
            automation_condition="{{ dg.AutomationCondition.on_cron('0 3 * * *') }}"
        ).resolve_all_asset_specs()
        if spec.automation_condition
    ]

    assert spec.key == COMPACTION
    assert spec.automation_condition == dg.AutomationCondition.on_cron("0 3 * * *")


def test_a_table_that_dagster_loads_has_no_sensor() -> None:
    assert not load(external=False).sensors
    [sensor] = load().sensors or []
    assert "Reports" in str(sensor.description)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {
                "trigger": "sensor",
                "automation_condition": "{{ dg.AutomationCondition.eager() }}",
            },
            "automation_condition requires 'trigger: automation', but trigger is 'sensor'",
        ),
        ({"automation_condition": "eager"}, "automation_condition"),
    ],
)
def test_a_condition_that_has_no_effect_is_refused(
    attributes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises((InputError, ValueError), match=message):
        load(**attributes)
