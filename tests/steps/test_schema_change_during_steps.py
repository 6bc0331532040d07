"""A schema change at any moment of a step: the step sees it whole or not at all, or is refused."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from support.interrupting_io import InterruptingFileIO
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.errors import PaimonError
from paimon_orch.steps import (
    InProcessExecutor,
    analyze,
    check,
    compact,
    compact_manifests,
    delete,
    expire_snapshots,
    remove_orphan_files,
    rescale,
    rewrite_file_index,
)
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SchemaChange,
    SetOption,
    UpdateType,
)
from paimon_orch.table.table import Table

T = TypeVar("T")
Rows = dict[tuple[str, int], int]

CHANGES: dict[str, list[SchemaChange]] = {
    "add": [AddColumn(column="w", type="STRING", default="x")],
    "drop": [DropColumn("u")],
    "rename": [RenameColumn("v", "renamed")],
    "widen": [UpdateType("v", "BIGINT")],
    "option": [SetOption("file-index.bloom-filter.columns", "v")],
    "buckets": [SetOption("bucket", "3")],
}
NEW = table_of("p k v u", [("a", 1, 100, 0), ("c", 1, 101, 0)])


def upsert(table: Table) -> object:
    return table.upsert(NEW)


STEPS: dict[str, tuple[Callable[[Table], object], Callable[[Rows], Rows]]] = {
    "upsert": (upsert, lambda rows: rows | {("a", 1): 100, ("c", 1): 101}),
    "overwrite": (
        lambda table: table.overwrite(NEW.slice(0, 1), {"p": "a"}),
        lambda rows: {k: v for k, v in rows.items() if k[0] != "a"} | {("a", 1): 100},
    ),
    "delete keys": (
        lambda table: table.delete(NEW.slice(0, 1).select(["p", "k"])),
        lambda rows: {k: v for k, v in rows.items() if k != ("a", 1)},
    ),
    "delete": (
        lambda table: delete(table, InProcessExecutor(), "k = 2"),
        lambda rows: {k: v for k, v in rows.items() if k[1] != 2},
    ),
    "compact": (lambda table: compact(table, strategy="full"), dict),
    "rescale": (lambda table: rescale(table, 3), dict),
    "rewrite_file_index": (rewrite_file_index, dict),
    "compact_manifests": (compact_manifests, dict),
    "analyze": (analyze, dict),
    "expire": (lambda table: expire_snapshots(table, retain_max=1, retain_min=1), dict),
    "orphans": (remove_orphan_files, dict),
    "drop_partitions": (
        lambda table: table.drop_partitions(["p=b"]),
        lambda rows: {k: v for k, v in rows.items() if k[0] != "b"},
    ),
    "tag": (lambda table: table.tags.create("t"), dict),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the table, which each run of a step copies."""
    root = tmp_path_factory.mktemp("lake")
    table = new_table(
        root,
        "p STRING, k BIGINT, v INT, u INT",
        key=("p", "k"),
        partition_by=("p",),
        bucket="2",
    )
    for number in range(3):
        rows = [(p, k, 10 * number + k, 0) for p in ("a", "b") for k in range(number, number + 3)]
        table.upsert(table_of("p k v u", rows))
    return root


def copy_table(lake: Path, root: Path) -> Table:
    shutil.copytree(lake, root)
    return Catalog(str(root)).table("db.t")


def read_rows(table: Table) -> Rows:
    """Return the value of ``v``, which may have another name, by key."""
    rows = table.scan().to_arrow()
    [name] = {"v", "renamed"} & set(rows.column_names)
    keys = zip(rows["p"].to_pylist(), rows["k"].to_pylist(), strict=True)
    return dict(zip(keys, rows[name].to_pylist(), strict=True))


def spread(count: int, most: int) -> Sequence[int]:
    """Return at most so many numbers from 1 to the count."""
    return sorted({1 + number * count // most for number in range(min(most, count))})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_with_a_schema_change_at_any_moment_loses_no_row(
    step: str, change: str, lake: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    action, expect = STEPS[step]
    total = count_operations(action, copy_table(lake, tmp_path / "counted"))
    outcomes = set[str]()
    for at in spread(total, 10):
        table = copy_table(lake, tmp_path / str(at))
        before, catalog = read_rows(table), Catalog(str(tmp_path / str(at)))
        io = InterruptingFileIO(at, lambda: catalog.alter_table("db.t", CHANGES[change]))  # noqa: B023
        try:
            action(Table(table.identifier, io, table.paths))
            expected = expect(before)
            outcomes.add("done")
        except PaimonError:
            expected = before
            outcomes.add("refused")
        schema = table.load().schema

        assert io.count >= at
        assert schema.id == 1
        assert read_rows(table) == expected
        report = check(table, deep=True)
        assert not report.findings, report.findings
    assert "done" in outcomes


def count_operations(action: Callable[[Table], Any], table: Table) -> int:
    """Return how many operations an action needs."""
    io = InterruptingFileIO(0, list)
    action(Table(table.identifier, io, table.paths))
    return io.count
