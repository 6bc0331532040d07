"""Chain tables of Java Paimon 2.0: refused steps, branches and options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.golden import GOLDEN, copy_warehouse
from support.tables import new_table, rows_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, PaimonError, UnsupportedError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step import EmptyRequest
from paimon_orch.steps.expiration.expire_partitions import expire_partitions
from paimon_orch.steps.maintenance import rescale
from paimon_orch.steps.repairs import remove_unexisting_files
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.table.table import Table

STEPS: dict[str, tuple[Callable[[Table], object], type[PaimonError], str]] = {
    "expire_partitions": (expire_partitions, UnsupportedError, r"chain-table\.enabled"),
    "rescale": (
        lambda t: rescale.plan(t, rescale.RescaleRequest(bucket_num=3)),
        UnsupportedError,
        r"chain-table\.enabled",
    ),
    "remove_unexisting_files": (
        lambda t: remove_unexisting_files.plan(t, EmptyRequest()),
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


def test_a_change_by_a_filter_is_refused_for_the_whole_table(tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "chain_table", tmp_path / "w")
    catalog = Catalog(str(warehouse))
    with pytest.raises(UnsupportedError, match="change the delta branch"):
        delete(catalog.table("db.t"), InProcessExecutor(), "k = 11")
    delete(catalog.table("db.t$branch_delta"), InProcessExecutor(), "k = 11 AND dt = '20250811'")
    assert len(rows_of(catalog.table("db.t"), filter="k = 11 AND dt > '20250810'")) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bucket": "-1"}, "needs fixed buckets"),
        ({"sequence_field": "", "changelog_producer": "lookup"}, "'sequence.field', 'changelog-p"),
        ({"merge_engine": "partial-update", "deletion_vectors__enabled": "true"}, "deduplicate"),
        ({"partition__timestamp_pattern": ""}, "'partition.timestamp-pattern'"),
    ],
)
def test_the_options_of_a_chain_table_are_checked(
    change: dict[str, str], message: str, tmp_path: Path
) -> None:
    valid = {
        "chain_table__enabled": "true",
        "sequence__field": "seq",
        "partition__timestamp_pattern": "$dt",
        "partition__timestamp_formatter": "yyyyMMdd",
    }
    if "sequence_field" in change:
        del valid["sequence__field"]
    options = valid | {name: text for name, text in change.items() if name != "sequence_field"}
    columns = "dt STRING, k INT, seq INT"
    with pytest.raises(InputError, match=message):
        new_table(tmp_path, columns, key=("dt", "k"), partition_by=["dt"], **options)
