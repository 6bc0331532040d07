"""The level of the files of an overwrite, and whether readers see their rows immediately."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables import assert_healthy, levels_of, new_table, rows_of, table_of

from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.table import Table
from paimon_orch.table.write.table_write import write_rows

NEW = [(1, "new"), (2, "new")]


def create_overwritten_table(root: Path, **options: str) -> Table:
    table = new_table(root, **options)
    table.upsert(table_of("k v", [(k, "old") for k in range(5)]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(7, "waits")]))
    return table


@pytest.mark.parametrize(
    "options", [{"deletion_vectors__enabled": "true"}, {"merge_engine": "first-row"}]
)
def test_rows_of_an_overwrite_are_visible_immediately(
    tmp_path: Path, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    table = create_overwritten_table(tmp_path, **options)
    caplog.clear()

    table.overwrite(table_of("k v", NEW))

    assert rows_of(table) == NEW
    assert levels_of(table) == [5]
    assert table.scan().rows_not_visible == 0
    assert not any("not visible" in message for message in caplog.messages)
    assert_healthy(table)


def test_later_rows_replace_those_of_an_overwrite(tmp_path: Path) -> None:
    table = create_overwritten_table(tmp_path, deletion_vectors__enabled="true")
    table.overwrite(table_of("k v", NEW))

    table.upsert(table_of("k v", [(1, "newer")]))
    compact(table, InProcessExecutor())

    assert rows_of(table) == [(1, "newer"), (2, "new")]
    assert_healthy(table)


def test_deletes_in_an_overwrite_write_no_rows(tmp_path: Path) -> None:
    table = create_overwritten_table(tmp_path, deletion_vectors__enabled="true")
    rows = table_of("k v kind", [(1, "new", "+I"), (2, "new", "-D")])
    planned = ingest.plan(
        table, ingest.IngestRequest(columns=rows.column_names, mode="overwrite", row_kind="kind")
    )

    outcome = ingest.commit(
        table, planned, [write_rows(planned, planned.prepare(rows.to_batches()))]
    )

    assert outcome.rows_not_visible == 0
    assert rows_of(table) == [(1, "new")]
    compact(table, InProcessExecutor(), strategy="full")
    assert rows_of(table) == [(1, "new")]


def test_files_with_overlapping_keys_remain_on_level_0(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        "p STRING, k BIGINT, v STRING",
        key=("p", "k"),
        partition_by=("p",),
        deletion_vectors__enabled="true",
    )
    planned = ingest.plan(table, ingest.IngestRequest(columns=["p", "k", "v"], mode="overwrite"))
    tasks = [
        [("overlapping", 1, "a"), ("overlapping", 3, "a"), ("apart", 1, "a")],
        [("overlapping", 2, "b"), ("apart", 2, "b")],
    ]
    results = [
        write_rows(planned, planned.prepare(table_of("p k v", rows).to_batches())) for rows in tasks
    ]

    outcome = ingest.commit(table, planned, results)

    assert outcome.rows_not_visible == 3
    assert levels_of(table) == [0, 0, 5, 5]
    assert rows_of(table) == [("apart", 1, "a"), ("apart", 2, "b")]
    assert table.scan().rows_not_visible == 3
    assert_healthy(table)


@pytest.mark.parametrize(
    "options",
    [
        {"overwrite_upgrade": "false"},
        {"bucket": "-2", "postpone__batch_write_fixed_bucket": "false"},
    ],
)
def test_files_are_not_rewritten_or_moved(tmp_path: Path, options: dict[str, str]) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true", **options)

    table.overwrite(table_of("k v", NEW))

    assert levels_of(table) == [0]
    assert rows_of(table) == []


def test_the_highest_level_follows_the_options(tmp_path: Path) -> None:
    table = new_table(tmp_path, num_levels="3")

    table.overwrite(table_of("k v", NEW))

    assert levels_of(table) == [2]
    assert rows_of(table) == NEW


def test_appended_rows_are_not_upgraded(tmp_path: Path) -> None:
    table = new_table(tmp_path)

    table.upsert(table_of("k v", NEW))

    assert levels_of(table) == [0]
