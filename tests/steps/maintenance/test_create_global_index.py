"""Global indexes of rows that have none are built, and other commits do not make them wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.damage import fail_to_write
from support.data_evolution import RowChanges, evolving_table
from support.golden import GOLDEN, copy_warehouse
from support.histories import backdate_files
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import (
    CommitConflictError,
    InputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import materialize_deletion_vectors as materialize
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.compaction.materialize_deletion_vectors import materialize_deletion_vectors
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance import create_global_index as step
from paimon_orch.steps.maintenance.create_global_index import (
    CreateGlobalIndexRequest,
    create_global_index,
)
from paimon_orch.steps.maintenance.drop_global_index import drop_global_index
from paimon_orch.steps.maintenance.reassign_row_ids import reassign_row_ids
from paimon_orch.steps.row_level import column_update
from paimon_orch.table.schema_change.schema_changes import DropColumn, RenameColumn, UpdateType
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage

EXECUTOR = InProcessExecutor()
VECTORS = {"deletion_vectors__enabled": "true"}


def index_entries(table: Table) -> list[IndexManifestEntry]:
    entries = table.stores.manifests.read_index_entries(table.stores.snapshots.latest())
    return [entry for entry in entries if entry.global_index is not None]


def ranges_of(table: Table) -> list[tuple[int, int]]:
    metas = [entry.global_index for entry in index_entries(table)]
    return sorted((meta.row_range_start, meta.row_range_end) for meta in metas if meta)


def append(table: Table, start: int, end: int) -> None:
    table.append(table_of("p a b", [(n % 2, n, n) for n in range(start, end)]))


def partitioned(root: Path, **options: str) -> Table:
    table = evolving_table(root, "p INT, a BIGINT, b BIGINT", ["p"], **options)
    append(table, 0, 20)
    return table


def plan_and_build(table: Table) -> tuple[step.GlobalIndexPlan, list[CommitMessage]]:
    planned = step.plan(table, CreateGlobalIndexRequest(column="a"))
    messages = [CommitMessage.decode(step.run(planned.reader, unit)) for unit in planned.units]
    return planned, messages


def index_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.paths.root, "index").iterdir()}


def test_rows_without_an_index_get_one_in_ranges_of_limited_size(tmp_path: Path) -> None:
    table = evolving_table(tmp_path, sorted_index__records_per_range="8")
    table.append(table_of("a b c", [(n, n, n) for n in range(20)]))

    first = create_global_index(table, "a")
    again = create_global_index(table, "a")
    table.append(table_of("a b c", [(n, n, n) for n in range(20, 25)]))
    second = create_global_index(table, "a")

    assert (first.index_files, first.rows, again.snapshot_id) == (3, 20, None)
    assert (second.index_files, second.rows) == (1, 5)
    assert ranges_of(table) == [(0, 5), (6, 12), (13, 19), (20, 24)]
    assert rows_of(table, filter="a = 13") == [(13, 13, 13)]
    report = check(table, deep=True)
    assert (report.findings, report.stale_indexes) == ((), ())
    names = {entry.file_name for entry in index_entries(table)}
    assert all(name.startswith("btree-global-index-") and name.endswith(".index") for name in names)


def test_a_failed_index_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = partitioned(tmp_path)
    before = stored_files(table)
    fail_to_write(monkeypatch, "/index/")

    with pytest.raises(StorageError, match="the disk is full"):
        create_global_index(table, "a")

    assert stored_files(table) == before


def test_an_index_of_java_is_extended(tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "global_index", tmp_path / "w")
    table = Catalog(str(warehouse)).table("db.t")

    assert create_global_index(table, "id").rows == 40
    assert create_global_index(table, "v", index_type="bitmap").rows == 100

    assert ranges_of(table) == [(0, 59), (0, 59), (0, 99), (60, 99)]
    assert len(table.scan(filter="id = 70").plan()[0].files) == 1


def test_indexes_are_built_and_dropped_by_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = partitioned(tmp_path)
    external = f"file:{tmp_path}/elsewhere"

    created = create_global_index(table, "a", partitions=["p=1"])
    create_global_index(table, "a", index_type="bitmap")

    assert (created.index_files, created.rows) == (1, 10)
    assert drop_global_index(table, "a", partitions=["p=0"]).index_files == 1
    assert drop_global_index(table, "a", index_type="bitmap").index_files == 1
    assert drop_global_index(table, "a").index_files == 1
    assert drop_global_index(table, "a").snapshot_id is None
    assert index_entries(table) == []
    monkeypatch.setenv("PAIMON_ALLOWED_EXTERNAL_PATHS", f"{external}/*")
    elsewhere = evolving_table(tmp_path / "x", global_index__external_path=external)
    elsewhere.append(table_of("a b c", [(1, 2, 3)]))
    create_global_index(elsewhere, "a")
    [entry] = index_entries(elsewhere)
    assert entry.external_path == f"{external}/{entry.file_name}"
    assert rows_of(elsewhere, filter="a = 1") == [(1, 2, 3)]


def test_an_update_between_plan_and_commit_is_a_conflict(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    planned, messages = plan_and_build(table)
    RowChanges(updated={3: {"a": 1000}}).commit(table)

    with pytest.raises(CommitConflictError, match="has new values of column 'a'"):
        step.commit(table, planned, messages)

    assert index_files(table) == set()
    assert create_global_index(table, "a").rows == 20
    assert len(rows_of(table, filter="a = 1000")) == 1


def test_an_update_of_the_column_by_its_new_name_is_a_conflict(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    planned, messages = plan_and_build(table)
    Catalog(str(tmp_path)).alter_table("db.t", [RenameColumn("a", "z")])
    RowChanges(updated={3: {"z": 1000}}).commit(Catalog(str(tmp_path)).table("db.t"))

    with pytest.raises(CommitConflictError, match="has new values of column 'a'"):
        step.commit(table, planned, messages)


def test_an_update_of_another_column_is_no_conflict(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    planned, messages = plan_and_build(table)
    RowChanges(updated={3: {"b": 1000}}).commit(table)
    append(table, 20, 24)

    step.commit(table, planned, messages)

    assert len(index_entries(table)) == 2


def test_rows_that_another_commit_replaced_are_a_conflict(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    planned, messages = plan_and_build(table)
    table.overwrite(table_of("p a b", [(0, 1, 1)]))

    with pytest.raises(CommitConflictError, match="was replaced or removed by another commit"):
        step.commit(table, planned, messages)

    planned, messages = plan_and_build(table)
    create_global_index(table, "a")
    with pytest.raises(CommitConflictError, match="of another commit has the same rows"):
        step.commit(table, planned, messages)


def test_other_commits_keep_indexes_right(tmp_path: Path) -> None:
    options = VECTORS | {"compaction__min__file_num": "2"}
    table = partitioned(tmp_path, **options)
    append(table, 20, 40)
    create_global_index(table, "a")
    entries = index_entries(table)

    compact(table, EXECUTOR, strategy="full")
    RowChanges(deleted=[2]).commit(table)  # a = 4
    assert index_entries(table) == entries
    assert rows_of(table, filter="a IN (4, 5)") == [(1, 5, 5)]
    with pytest.raises(UnsupportedError, match="make a global index stale"):
        RowChanges(updated={3: {"a": 1000}}).commit(table)

    reassign_row_ids(table)
    assert rows_of(table, filter="a IN (4, 5)") == [(1, 5, 5)]
    materialize_deletion_vectors(table, EXECUTOR)
    assert len(index_entries(table)) == 2  # of the partition without deleted rows
    create_global_index(table, "a")
    expire_snapshots(table, retain_max=1, retain_min=1)
    backdate_files(table)
    remove_orphan_files(table)
    assert index_files(table) >= {entry.file_name for entry in index_entries(table)}
    assert rows_of(table, filter="a IN (4, 5, 37)") == [(1, 5, 5), (1, 37, 37)]
    report = check(table, deep=True)
    assert (report.findings, report.stale_indexes) == ((), ())

    table.overwrite(table_of("p a b", [(0, 70, 1)]))
    assert len(index_entries(table)) == 2
    assert rows_of(table, filter="a = 70") == [(0, 70, 1)]


def test_an_index_that_is_added_during_an_update_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = partitioned(tmp_path, global_index__column_update_action="DROP_PARTITION_INDEX")
    create_global_index(table, "b")
    create_global_index(table, "a")
    monkeypatch.setattr(column_update, "find_stale_indexes", lambda *_: [])

    with pytest.raises(CommitConflictError, match="added the index file btree-global-index-"):
        RowChanges(updated={3: {"a": 1000}}).commit(table)

    monkeypatch.undo()
    RowChanges(updated={3: {"a": 1000}}).commit(table)
    assert ranges_of(table) == [(0, 9), (10, 19), (10, 19)]
    assert rows_of(table, filter="a IN (6, 1000)") == [(0, 1000, 6)]


def test_an_index_that_is_added_while_rows_get_new_ids_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = partitioned(tmp_path, **VECTORS)
    create_global_index(table, "a")
    RowChanges(deleted=[2]).commit(table)
    monkeypatch.setattr(materialize, "_find_global_indexes", lambda *_: [])

    materialize_deletion_vectors(table, EXECUTOR)

    assert ranges_of(table) == [(10, 19)]
    assert rows_of(table, filter="a IN (4, 6)") == [(0, 6, 6)]


def test_columns_with_an_index_cannot_be_dropped_or_get_another_type(tmp_path: Path) -> None:
    table, catalog = partitioned(tmp_path), Catalog(str(tmp_path))
    create_global_index(table, "a")

    catalog.alter_table("db.t", [RenameColumn("a", "x"), UpdateType("b", "STRING")])
    for change in (DropColumn("x"), UpdateType("x", "STRING")):
        with pytest.raises(InputError, match=r"column 'x' of db\.t has a btree index"):
            catalog.alter_table("db.t", [change])

    renamed = catalog.table("db.t")
    assert rows_of(renamed, filter="x = 5") == [(1, 5, "5")]
    assert drop_global_index(renamed, "x").index_files == 2
    catalog.alter_table("db.t", [DropColumn("x")])


def test_tables_and_columns_without_global_indexes_are_refused(tmp_path: Path) -> None:
    evolving = partitioned(tmp_path / "e")
    keyed = new_table(tmp_path / "k")

    with pytest.raises(UnsupportedError, match=r"Set 'pk-btree\.index\.columns'"):
        create_global_index(keyed, "k")
    with pytest.raises(InputError, match="'ivf' is not a type of global index that can be built"):
        create_global_index(evolving, "a", index_type="ivf")
    with pytest.raises(NotFoundError):
        create_global_index(evolving, "nope")
    with pytest.raises(NotFoundError, match="has no column 'nope'"):
        drop_global_index(evolving, "nope")
    assert create_global_index(evolving_table(tmp_path / "x"), "a").snapshot_id is None
