"""Chain tables of Java Paimon 2.0: no step changes one of their branches separately."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from support.golden import GOLDEN, copy_warehouse

from paimon_orch import Catalog
from paimon_orch.errors import InputError, PaimonError, UnsupportedError
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.expiration.expire_partitions import expire_partitions
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.table.table import Table


def no_rows(table: Table) -> pa.Table:
    return to_arrow_schema(table.schema.fields).empty_table()


STEPS: dict[str, tuple[Callable[[Table], object], type[PaimonError], str]] = {
    "drop_partitions": (
        lambda t: t.drop_partitions(["dt=20250810"]),
        UnsupportedError,
        r"chain-table\.enabled",
    ),
    "expire_partitions": (expire_partitions, UnsupportedError, r"chain-table\.enabled"),
    "truncate": (lambda t: t.truncate(), UnsupportedError, r"chain-table\.enabled"),
    "overwrite": (lambda t: t.overwrite(no_rows(t)), UnsupportedError, r"chain-table\.enabled"),
    "upsert": (lambda t: t.upsert(no_rows(t)), UnsupportedError, r"chain-table\.enabled"),
    "delete": (
        lambda t: delete(t, InProcessExecutor(), "k = 1"),
        UnsupportedError,
        r"chain-table\.enabled",
    ),
    "branch": (lambda t: t.branches.delete("delta"), InputError, r"scan\.fallback-delta-branch"),
}


@pytest.mark.parametrize("name", ["db.t", "db.t$branch_snapshot", "db.t$branch_delta"])
@pytest.mark.parametrize("step", list(STEPS))
def test_a_refused_step_changes_nothing(name: str, step: str, tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "chain_table", tmp_path / "w")
    before = sorted(warehouse.rglob("*"))
    run, error, messages = STEPS[step]

    with pytest.raises(error, match=messages):
        run(Catalog(str(warehouse)).table(name))

    assert sorted(warehouse.rglob("*")) == before
