"""The snapshot that a step or a report reads may expire at any moment: it reads a newer one."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.interrupting_io import InterruptingFileIO
from support.tables import assert_healthy, new_table, table_of

from paimon_orch import Catalog
from paimon_orch.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    NotFoundError,
    PaimonError,
)
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.orchestration.changes_since_cursor import CompactionDecider, collect_changes
from paimon_orch.orchestration.cursor import Cursor, SnapshotIdentity, get_table_identity
from paimon_orch.orchestration.row_rules import evaluate_row_rules
from paimon_orch.orchestration.table_conditions import find_partitions
from paimon_orch.orchestration.table_watch import find_due_partitions
from paimon_orch.steps import (
    InProcessExecutor,
    MaintenanceRequest,
    analyze,
    compact,
    compact_manifests,
    delete,
    expire_snapshots,
    ingest,
    inspect,
    remove_orphan_files,
    rescale,
    rewrite_file_index,
    update,
)
from paimon_orch.steps.autopilot.table_actions import find_actions
from paimon_orch.steps.compaction.policy import CompactionPolicy
from paimon_orch.steps.inspection.health import compute_health
from paimon_orch.steps.inspection.verdict.verdict import judge
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table
from paimon_orch.table.write.table_write import write_rows

Rows = dict[tuple[str, int], int]
Step = Callable[[Table], object]

EXECUTOR = InProcessExecutor()
MOMENTS = 8
NEW = table_of("p k v", [("a", 1, 100), ("c", 1, 101)])

WRITES: dict[str, tuple[Step, Callable[[Rows], Rows]]] = {
    "upsert": (lambda table: table.upsert(NEW), lambda rows: rows | {("a", 1): 100, ("c", 1): 101}),
    "upsert once": (
        lambda table: table.upsert(NEW, commit_id=CommitId("job", 1)),
        lambda rows: rows | {("a", 1): 100, ("c", 1): 101},
    ),
    "overwrite": (
        lambda table: table.overwrite(NEW.slice(0, 1), {"p": "a"}),
        lambda rows: {k: v for k, v in rows.items() if k[0] != "a"} | {("a", 1): 100},
    ),
    "delete": (
        lambda table: delete(table, EXECUTOR, "k = 2"),
        lambda rows: {k: v for k, v in rows.items() if k[1] != 2},
    ),
    "update": (
        lambda table: update(table, {"v": 7}, "k = 2"),
        lambda rows: {k: 7 if k[1] == 2 else v for k, v in rows.items()},
    ),
    "drop_partitions": (
        lambda table: table.drop_partitions(["p=b"]),
        lambda rows: {k: v for k, v in rows.items() if k[0] != "b"},
    ),
    "compact": (lambda table: compact(table, strategy="full"), dict),
    "compact a partition": (lambda table: compact(table, partitions=["p=a"]), dict),
    "rescale": (lambda table: rescale(table, 3), dict),
    "rewrite_file_index": (rewrite_file_index, dict),
    "compact_manifests": (compact_manifests, dict),
    "analyze": (analyze, dict),
    "expire": (lambda table: expire_snapshots(table, retain_max=1, retain_min=1), dict),
    "orphans": (remove_orphan_files, dict),
}
REFUSALS: dict[str, type[PaimonError]] = {
    "rescale": CommitConflictError,  # it is not repeated after a conflict
    # a snapshot without new data files leaves no trace if it expires before it is verified
    "drop_partitions": CommitOutcomeUnknownError,
    "compact_manifests": CommitOutcomeUnknownError,
}


def evaluate_changes(table: Table) -> object:
    """Evaluate the changes since the second snapshot, as sensors do."""
    stored = Catalog(str(Path(table.paths.root).parent.parent)).table("db.t")
    handled = stored.snapshot(2)
    assert handled is not None
    cursor = Cursor(
        table=get_table_identity(stored.load()), handled=SnapshotIdentity.of(handled), pending={}
    )
    return collect_changes(CompactionDecider(table, table.load(), CompactionPolicy()), cursor, 100)


READS: dict[str, Step] = {
    "inspect": inspect,
    "health": compute_health,
    "why": judge,
    "files": Table.files,
    "system table of files": lambda table: table.system("files").scan().to_arrow(),
    "system table of manifests": lambda table: table.system("manifests").scan().to_arrow(),
    "system table of snapshots": lambda table: table.system("snapshots").scan().to_arrow(),
    "row rules": lambda table: evaluate_row_rules(table, {"small": "v > 1000"}),
    "partitions": lambda table: find_partitions(table, "p=a"),
    "due partitions": lambda table: find_due_partitions(table, CompactionPolicy()),
    "sensor": evaluate_changes,
    "autopilot": lambda table: find_actions(table, MaintenanceRequest()),
}


def build_table(root: Path) -> Table:
    table = new_table(
        root,
        "p STRING, k BIGINT, v INT",
        key=("p", "k"),
        partition_by=("p",),
        bucket="2",
        deletion_vectors__enabled="true",
        file_index__bloom_filter__columns="v",
        commit__min_retry_wait="0 ms",
    )
    for number in range(3):
        rows = [(p, k, 10 * number + k) for p in ("a", "b") for k in range(number, number + 3)]
        table.upsert(table_of("p k v", rows))
        compact(table)
    return table


def read_rows(table: Table) -> Rows:
    return {
        (row["p"], row["k"]): row["v"]
        for row in table.scan(merge_level_0=True).to_arrow().to_pylist()
    }


def act(root: Path) -> None:
    """Write a row, rewrite all files, and expire all other snapshots."""
    table = Catalog(str(root)).table("db.t")
    table.upsert(table_of("p k v", [("z", 1, 1)]))
    compact(table, strategy="full")
    compact_manifests(table)
    expire_snapshots(table, retain_max=1, retain_min=1, older_than=0)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    build_table(root)
    return root


def open_copy(lake: Path, root: Path, at: int = 0) -> tuple[Table, InterruptingFileIO]:
    """Copy a lake; return its table, and the store of it in which others act at an operation."""
    shutil.copytree(lake, root)
    table, io = Catalog(str(root)).table("db.t"), InterruptingFileIO(at, lambda: act(root))
    return Table(table.identifier, io, table.paths), io


def count_operations(step: Step, lake: Path, root: Path) -> int:
    """Return the number of operations of a step, whose modules and caches are loaded."""
    for name in ("first", "counted"):
        table, io = open_copy(lake, root / name)
        step(table)
    return io.count


def choose_moments(step: Step, lake: Path, root: Path) -> list[int]:
    """Return some of the operations of a step."""
    count = count_operations(step, lake, root)
    return sorted({1 + number * count // MOMENTS for number in range(MOMENTS)})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", WRITES)
def test_a_step_whose_snapshot_expires_at_any_moment_is_done(
    name: str, lake: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    step, expect = WRITES[name]
    before = read_rows(Catalog(str(lake)).table("db.t"))
    for at in choose_moments(step, lake, tmp_path):
        table, io = open_copy(lake, tmp_path / str(at), at)
        expected = [expect(before) | {("z", 1): 1}]

        try:
            step(table)
        except REFUSALS.get(name, ()):
            expected.append(before | {("z", 1): 1})

        assert io.count >= at
        assert read_rows(table) in expected, at
        assert_healthy(table)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", READS)
def test_a_report_whose_snapshot_expires_at_any_moment_is_that_of_a_newer_one(
    name: str, lake: Path, tmp_path: Path
) -> None:
    step = READS[name]
    for at in choose_moments(step, lake, tmp_path):
        table, io = open_copy(lake, tmp_path / str(at), at)

        step(table)

        assert io.count >= at


CHANGES: dict[str, Callable[[Table], Snapshot | None]] = {
    "delete": lambda table: table.delete("k = 2"),
    "update": lambda table: table.update({"v": 7}, "k = 2"),
    "merge": lambda table: table.merge(NEW, ["p", "k"], when_matched_update="*"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_whose_snapshot_expires_at_its_end_is_no_error(
    name: str, lake: Path, tmp_path: Path
) -> None:
    last = count_operations(CHANGES[name], lake, tmp_path)
    table, io = open_copy(lake, tmp_path / "interrupted", last)

    changed = CHANGES[name](table)

    assert io.count >= last
    assert changed is not None
    assert changed.commit_user
    assert ("z", 1) in read_rows(table)


class SlowInterruptingFileIO(InterruptingFileIO):
    """Has as slow requests as object stores, so numbers are read when the rows are known."""

    capabilities = replace(LocalFileIO.capabilities, has_slow_requests=True)


def load_new_rows(table: Table) -> object:
    """Load rows in this process, as from files."""
    request = ingest.IngestRequest(columns=NEW.column_names)
    planned = ingest.plan(table, request, in_process=True)
    prepared = partial(planned.prepare, NEW.to_batches())
    return ingest.run_ingest(table, planned, lambda: [write_rows(planned, prepared())])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("write", [lambda table: table.upsert(NEW), load_new_rows])
def test_a_write_to_a_slow_store_whose_snapshot_expires_is_done(
    write: Step, lake: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    expected = read_rows(Catalog(str(lake)).table("db.t"))
    expected |= {("a", 1): 100, ("c", 1): 101, ("z", 1): 1}
    at = 1
    while True:
        root = tmp_path / str(at)
        shutil.copytree(lake, root)
        io = SlowInterruptingFileIO(at, partial(act, root))
        table = Catalog(str(root)).table("db.t")

        write(Table("db.t", io, table.paths))

        if io.count < at:
            break
        assert read_rows(table) == expected, at
        assert_healthy(table)
        at += 1 + io.count // MOMENTS
    assert at > MOMENTS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["create", "replace"])
def test_a_tag_of_the_newest_snapshot_that_expires_at_any_moment_is_of_a_newer_one(
    name: str, lake: Path, tmp_path: Path
) -> None:
    at = 1
    while True:
        table, io = open_copy(lake, tmp_path / str(at), at)
        if name == "replace":
            Catalog(str(tmp_path / str(at))).table("db.t").tags.create("new", 2)

        tagged = getattr(table.tags, name)("new")

        if io.count < at:
            break
        assert table.tags.get("new").id == tagged.id
        assert read_rows(table)
        table.scan(tag="new").to_arrow()
        assert_healthy(table)
        at += 1
    assert at > MOMENTS


@pytest.mark.slow
def test_a_given_snapshot_that_expires_while_it_is_tagged_is_not_found(
    lake: Path, tmp_path: Path
) -> None:
    at = 1
    while True:
        table, io = open_copy(lake, tmp_path / str(at), at)
        try:
            table.tags.create("new", 2)
        except NotFoundError:
            assert table.tags.names() == []
        else:
            table.scan(tag="new").to_arrow()
        if io.count < at:
            break
        at += 1


def test_a_write_planned_by_an_expired_snapshot_of_an_older_schema_is_a_conflict(
    lake: Path, tmp_path: Path
) -> None:
    table, _ = open_copy(lake, tmp_path / "lake")
    state = table.load()
    Catalog(str(tmp_path / "lake")).alter_table("db.t", [AddColumn(column="w", type="INT")])
    act(tmp_path / "lake")
    request = ingest.IngestRequest(columns=state.schema.names)

    with pytest.raises(CommitConflictError, match="the schema was changed while the write was"):
        ingest.plan(table, request, state=state)
