"""The step that creates and moves tags."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from support.tables import new_table, table_of

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.orchestration.step_runs import run_declared_step
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    created = new_table(tmp_path, "k INT, v STRING", key=("k",))
    for value in "xy":
        created.upsert(table_of("k v", [(1, value)]))
    return created


def run(table: Table, step: str, *, dry_run: bool = False, **arguments: Any) -> Any:
    return run_declared_step(step, table, arguments, InProcessExecutor(), dry_run=dry_run)


def test_a_tag_is_created_and_moved_and_a_dry_run_writes_nothing(table: Table) -> None:
    planned = run(table, "create-tag", name="daily", dry_run=True)
    assert (planned["plan"], table.tags.names()) == ({"tag": "daily", "snapshot_id": 2}, [])

    created = run(table, "create-tag", name="daily", snapshot_id=1, time_retained="30 d")
    assert created["outcome"] == {"tag": "daily", "snapshot_id": 1}
    stored = json.loads(Path(table.tags.path("daily")).read_bytes())
    assert (stored["id"], stored["tagTimeRetained"]) == (1, 30 * 24 * 3600)

    run(table, "create-tag", name="daily", replace=True)
    assert table.tags.get("daily").id == 2


def test_the_time_of_a_snapshot_selects_it(table: Table) -> None:
    time = table.stores.snapshots.get(1).time_millis
    text = dt.datetime.fromtimestamp(time / 1000, dt.UTC).isoformat()

    for name, value in (("millis", str(time)), ("text", text)):
        run(table, "create-tag", name=name, from_timestamp=value)
        assert table.tags.get(name).id == 1


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_cannot_be_tagged_is_refused_in_a_dry_run_too(table: Table, *, dry_run: bool) -> None:
    table.tags.create("used")

    with pytest.raises(InputError, match="already has a tag 'used'"):
        run(table, "create-tag", name="used", dry_run=dry_run)
    with pytest.raises(InputError, match="must not be blank or contain a slash"):
        run(table, "create-tag", name="a/b", dry_run=dry_run)
    with pytest.raises(NotFoundError, match="'new'"):
        run(table, "create-tag", name="new", replace=True, dry_run=dry_run)
    with pytest.raises(NotFoundError, match="7"):
        run(table, "create-tag", name="new", snapshot_id=7, dry_run=dry_run)
    with pytest.raises(InputError, match="cannot be combined"):
        run(table, "create-tag", name="new", snapshot_id=1, from_watermark="1", dry_run=dry_run)
    assert table.tags.names() == ["used"]
