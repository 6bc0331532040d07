"""The conditions that tasks wait for: partitions, their marks, and the health of a table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pyarrow as pa
import pytest
from support.recorded_partitions import RecordedPartitions, through_catalog

from paimon_orch import Catalog
from paimon_orch.errors import InputError, NotFoundError, UnsupportedError
from paimon_orch.orchestration.table_conditions import (
    find_done_partition,
    find_partitions,
    read_health,
    resolve_limits,
)
from paimon_orch.steps import mark_done
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

DAY, NEXT_DAY = "2026-01-01", "2026-01-02"
DAY_NUMBER = (date.fromisoformat(DAY) - date(1970, 1, 1)).days  # the name of a DATE in paths
ACTION = "partition.mark-done-action"
Upsert = Callable[..., None]


def make_hours(catalog: Catalog) -> Table:
    table = catalog.create_table(
        "lake.hours", "dt DATE, hr INT, id BIGINT", partition_by=["dt", "hr"]
    )
    rows = [{"dt": date(2026, 1, 1), "hr": hour, "id": 1} for hour in (9, 10)]
    table.append(pa.Table.from_pylist(rows))
    return table


def test_a_partition_exists_if_the_newest_snapshot_has_files_in_it(
    orders: Table, upsert: Upsert
) -> None:
    assert find_partitions(orders, f"dt={DAY}") is None

    upsert(orders, DAY)
    found = find_partitions(orders, {"dt": DAY})
    assert found is not None
    assert found.to_dict() == {"snapshot_id": 1, "partitions": [f"dt={DAY}"]}
    assert find_partitions(orders, f"dt={NEXT_DAY}") is None

    orders.drop_partitions([f"dt={DAY}"])
    assert find_partitions(orders, f"dt={DAY}") is None


def test_a_partial_spec_finds_all_of_its_partitions(catalog: Catalog) -> None:
    hours = make_hours(catalog)

    found = find_partitions(hours, f"dt={DAY}")

    assert found is not None
    assert found.partitions == (f"dt={DAY_NUMBER}/hr=10", f"dt={DAY_NUMBER}/hr=9")


def test_a_column_that_is_no_partition_column_is_refused(orders: Table) -> None:
    with pytest.raises(NotFoundError, match="'day' is not a partition column"):
        find_partitions(orders, "day=1")


def test_a_partition_is_done_when_it_has_its_mark(catalog: Catalog) -> None:
    hours = make_hours(catalog)
    assert find_done_partition(hours, f"dt={DAY}/hr=9") is None

    mark_done(hours, [f"dt={DAY}/hr=9"])

    assert find_done_partition(hours, f"dt={DAY}/hr=9") == f"dt={DAY_NUMBER}/hr=9"
    assert find_done_partition(hours, {"hr": 9, "dt": date(2026, 1, 1)}) == f"dt={DAY_NUMBER}/hr=9"
    assert find_done_partition(hours, f"dt={DAY}/hr=10") is None
    with pytest.raises(InputError, match="'dt=2026-01-01' lacks hr"):
        find_done_partition(hours, f"dt={DAY}")


def test_all_marks_that_can_be_read_must_exist(
    catalog: Catalog, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, DAY)
    options = {ACTION: "success-file,done-partition", "metastore.partitioned-table": "true"}
    catalog.alter_table("lake.orders", [SetOption(*option) for option in options.items()])
    listed = RecordedPartitions()
    table = through_catalog(catalog.table("lake.orders"), listed)
    mark_done(table, [f"dt={DAY}"])
    assert find_done_partition(table, f"dt={DAY}") == f"dt={DAY}"

    listed.drop([{"dt": f"{DAY}.done"}])

    assert find_done_partition(table, f"dt={DAY}") is None


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("mark-event", "add success-file to it"),
        ("done-partition", "needs a table that was opened through a catalog"),
    ],
)
def test_marks_that_cannot_be_read_are_refused(
    catalog: Catalog, orders: Table, action: str, message: str
) -> None:
    catalog.alter_table("lake.orders", [SetOption(ACTION, action)])

    with pytest.raises(UnsupportedError, match=message):
        find_done_partition(orders, f"dt={DAY}")


def test_limits_override_the_default_ones(orders: Table, upsert: Upsert) -> None:
    upsert(orders, DAY)
    limits = resolve_limits("lake.orders", {"level0_backlog": 0, "snapshot_count": None})

    health = read_health(orders, limits)

    assert [outcome.name for outcome in health.failed] == ["level0_backlog"]
    assert health.to_dict()["level0_backlog"] == 1
    assert "snapshot_count" not in health.to_dict()
    assert not read_health(orders, resolve_limits("lake.orders", None)).failed


@pytest.mark.parametrize("name", ["level_0", "file_references"])
def test_limits_of_other_checks_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=name):
        resolve_limits("lake.orders", {name: 1})
