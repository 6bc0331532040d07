"""The step that renames tags."""

from pathlib import Path

import pytest
from support.tables import new_table, table_of

from paimon_orch.errors import NotFoundError
from paimon_orch.orchestration.step_runs import run_declared_step
from paimon_orch.steps.common.executor import InProcessExecutor


def test_a_tag_is_renamed_and_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    table, executor = new_table(tmp_path, "k INT", key=("k",)), InProcessExecutor()
    table.upsert(table_of("k", [(1,)]))
    table.tags.create("old", 1)
    names = {"name": "old", "to": "new"}

    planned = run_declared_step("rename-tag", table, names, executor, dry_run=True)
    assert planned["plan"] == {"tag": "new", "previous_name": "old"}
    assert table.tags.names() == ["old"]
    run_declared_step("rename-tag", table, names, executor, dry_run=False)

    assert (table.tags.names(), table.tags.get("new").id) == (["new"], 1)
    with pytest.raises(NotFoundError, match="'old'"):
        run_declared_step("rename-tag", table, names, executor, dry_run=True)
