"""Missing partitions are read from ``scan.fallback-branch``, which no step changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.damage import edit_snapshot
from support.tables import Row, new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.analyze import analyze
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption
from paimon_orch.table.table import Table

MAIN = [("a", 1, "main"), ("b", 2, "main")]
STREAM = [("b", 3, "stream"), ("c", 4, "stream"), ("d", 5, "stream")]
TOGETHER = [*MAIN, *STREAM[1:]]


def rows(tuples: list[Row]) -> pa.Table:
    return table_of("p k v", tuples)


def table_and_branch(root: Path, **options: Any) -> tuple[Table, Table]:
    """Return a table, and its branch, which was created with it and has other options."""
    table = new_table(root, "p STRING, k INT, v STRING", key=("p", "k"), partition_by=["p"])
    table.branches.create("stream")
    catalog = Catalog(str(root))
    catalog.alter_table("db.t", [SetOption("scan.fallback-branch", "stream")])
    named = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
    if named:
        changes = [SetOption(name, text) for name, text in named.items()]
        catalog.alter_table("db.t$branch_stream", changes)
    return catalog.table("db.t"), catalog.table("db.t$branch_stream")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Table, Table]:
    table, branch = table_and_branch(tmp_path)
    table.upsert(rows(MAIN))
    branch.upsert(rows(STREAM))
    return table, branch


def test_missing_partitions_are_read_from_the_branch(pair: tuple[Table, Table]) -> None:
    table, branch = pair
    assert rows_of(table) == TOGETHER
    assert rows_of(branch) == STREAM


def test_a_time_selects_the_snapshots_of_the_table_and_of_the_branch(
    pair: tuple[Table, Table],
) -> None:
    table, branch = pair
    branch.upsert(rows([("e", 6, "stream")]))
    for state, number, time in ((table, 1, 1_000), (branch, 1, 2_000), (branch, 2, 3_000)):
        edit_snapshot(state, number, time_millis=time)

    for time, expected in (
        (1_999, MAIN),
        (2_999, TOGETHER),
        (3_000, [*TOGETHER, ("e", 6, "stream")]),
    ):
        assert rows_of(table, timestamp=time) == expected
    assert rows_of(table, snapshot_id=1) == TOGETHER  # the branch was created later


@pytest.mark.parametrize(
    ("scan", "expected"),
    [
        ({"filter": "p = 'c'"}, STREAM[1:2]),
        ({"filter": "p = 'b'"}, MAIN[1:]),
        # The table has this partition, so the branch is not read.
        ({"filter": "p = 'b' AND k = 3"}, []),
        ({"filter": "k > 3"}, STREAM[1:]),
        ({"filter": "v = 'main'"}, MAIN),
        ({"order_by": "k desc", "limit": 2}, STREAM[1:]),
    ],
)
def test_filters_and_orders_apply_to_the_table_and_its_fallback_branch(
    pair: tuple[Table, Table], scan: dict[str, Any], expected: list[Row]
) -> None:
    assert rows_of(pair[0], **scan) == expected


@pytest.mark.parametrize("limit", range(6))
def test_a_limit_counts_the_rows_of_the_table_and_its_fallback_branch(
    pair: tuple[Table, Table], limit: int
) -> None:
    assert len(rows_of(pair[0], limit=limit)) == min(limit, 4)


def test_a_limit_counts_rows_by_the_options_of_the_branch(tmp_path: Path) -> None:
    table, branch = table_and_branch(tmp_path)
    for value in ("old", "new"):
        branch.upsert(rows([("c", key, value) for key in range(5)]))
    assert len(rows_of(table, limit=5)) == 5


def test_selected_columns_are_read_from_the_table_and_its_fallback_branch(
    pair: tuple[Table, Table],
) -> None:
    assert rows_of(pair[0], columns=["k"]) == [(1,), (2,), (4,), (5,)]


def test_the_branch_is_read_at_the_time_of_the_snapshot(tmp_path: Path) -> None:
    table, branch = table_and_branch(tmp_path)
    branch.upsert(rows([("c", 1, "early")]))
    table.upsert(rows(MAIN))
    branch.upsert(rows([("c", 1, "late")]))
    table.upsert(rows([("a", 1, "main")]))

    assert rows_of(table, snapshot_id=1) == [*MAIN, ("c", 1, "early")]
    assert rows_of(table, snapshot_id=2) == [*MAIN, ("c", 1, "late")]


def test_a_tag_of_the_table_selects_the_branch_at_its_time(tmp_path: Path) -> None:
    table, branch = table_and_branch(tmp_path)
    branch.upsert(rows([("c", 1, "early")]))
    table.upsert(rows(MAIN))
    table.tags.create("now")
    branch.upsert(rows([("c", 1, "late")]))

    assert rows_of(table, tag="now") == [*MAIN, ("c", 1, "early")]


def test_partitions_include_those_of_the_branch_as_in_java(pair: tuple[Table, Table]) -> None:
    table, branch = pair
    branch.upsert(rows([("e", 1, "late")]))

    def list_partitions(table: Table, **scan: Any) -> list[str]:
        names: list[str] = table.system("partitions").scan(**scan).to_arrow()["partition"]
        return [str(name) for name in names]

    assert list_partitions(table) == ["p=a", "p=b", "p=c", "p=d", "p=e"]
    assert list_partitions(branch) == ["p=b", "p=c", "p=d", "p=e"]


def test_the_branch_uses_its_own_options(tmp_path: Path) -> None:
    table, branch = table_and_branch(
        tmp_path, deletion_vectors__enabled="true", deletion_vectors__merge_on_read="true"
    )
    branch.upsert(rows(STREAM))
    assert rows_of(table) == STREAM
    assert rows_of(table, merge_level_0=False) == []


def test_records_of_the_branch_that_are_not_visible_are_counted(
    tmp_path: Path,
) -> None:
    table, branch = table_and_branch(tmp_path, deletion_vectors__enabled="true")
    table.upsert(rows([("a", 1, "main")]))
    branch.upsert(rows([("a", 1, "x"), ("b", 1, "x"), ("b", 2, "x")]))

    assert rows_of(table) == [("a", 1, "main")]
    assert table.scan().rows_not_visible == 2
    assert table.scan(filter="p = 'a'").rows_not_visible == 0
    assert len(rows_of(table, merge_level_0=True)) == 3
    assert table.scan(merge_level_0=True).rows_not_visible == 0


def test_steps_of_the_table_do_not_change_the_branch(pair: tuple[Table, Table]) -> None:
    table, branch = pair
    table.upsert(rows(MAIN))
    before = branch.snapshot()

    compact(table, InProcessExecutor(), strategy="full")
    expire_snapshots(table, retain_max=1)
    remove_orphan_files(table)

    assert branch.snapshot() == before
    assert rows_of(table) == TOGETHER
    assert check(table, deep=True).findings == ()
    assert check(branch, deep=True).findings == ()


def test_statistics_describe_the_table_only(pair: tuple[Table, Table]) -> None:
    result = analyze(pair[0], InProcessExecutor())
    assert result.statistics is not None
    assert result.statistics.row_count == len(MAIN)


def test_an_overwrite_with_rows_of_a_read_does_not_change_the_branch(
    pair: tuple[Table, Table],
) -> None:
    table, branch = pair
    table.overwrite(table.scan().to_arrow())
    assert rows_of(table) == TOGETHER
    assert len({split.partition for split in table.files()}) == 4
    assert rows_of(branch) == STREAM


def test_incremental_reads_are_refused_with_the_option_in_the_error(
    pair: tuple[Table, Table],
) -> None:
    with pytest.raises(UnsupportedError, match=r"scan\.fallback-branch"):
        pair[0].incremental(1, 1)


def test_a_branch_with_other_columns_is_refused(pair: tuple[Table, Table]) -> None:
    table, _ = pair
    catalog = Catalog(str(Path(table.paths.root).parents[1]))
    catalog.alter_table("db.t$branch_stream", [AddColumn(column="more", type="INT")])
    with pytest.raises(InputError, match="must have the same columns"):
        table.scan()


def test_a_missing_branch_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = new_table(tmp_path, scan__fallback_branch="gone")
    table.upsert(table_of("k v", [(1, "a")]))
    assert rows_of(table) == [(1, "a")]
    assert "'gone' of option 'scan.fallback-branch' does not exist" in caplog.text
