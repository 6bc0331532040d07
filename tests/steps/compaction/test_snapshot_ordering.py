"""`sequence.snapshot-ordering`: rows of later snapshots win over larger sequence numbers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.golden import (
    assert_rows_equal,
    canonical_rows,
    copy_warehouse,
    expected_rows,
    golden_tables,
    table_name,
)
from support.tables import assert_healthy, new_table, rows_of, small_batches, table_of
from support.tables_with_deletion_vectors import EXECUTOR

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileSource, ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.compaction.compact import CompactionStrategy, compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.rescale import rescale
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table
from paimon_orch.table.write.conform_rows import convert_rows
from paimon_orch.table.write.table_write import TableWriter
from paimon_orch.table.write.write_plan import WritePlan

STRATEGIES: tuple[CompactionStrategy, ...] = ("minor", "full")


def ordered_table(root: Path, columns: str = "k BIGINT, v STRING", **options: str) -> Table:
    ordering = {"sequence__snapshot_ordering": "true", "write_only": "true"}
    return new_table(root, columns, **ordering, **options)


def prepare(table: Table, rows: pa.Table, first: int, kinds: str | None = None) -> CommitChanges:
    """Write rows with numbers from `first` on, and return the uncommitted changes."""
    writer = TableWriter(
        WritePlan(
            factory=table.stores.build_writer_factory(),
            first_sequence={PartitionBucket(EMPTY_ROW, 0): first},
        )
    )
    writer.write(convert_rows(rows, table.load().schema, row_kind=kinds))
    return CommitChanges(kind=CommitKind.APPEND, entries=writer.close().entries)


def commit(table: Table, changes: CommitChanges) -> None:
    table.stores.new_commit(StepKind.WRITE_ROWS).commit(changes)


def files_of(table: Table) -> list[DataFileMeta]:
    return [file for split in table.files() for file in split.files]


def stored_numbers(table: Table, file: DataFileMeta) -> set[int]:
    path = Path(table.paths.root) / "bucket-0" / file.file_name
    return set(pq.read_table(path)["_SEQUENCE_NUMBER"].to_pylist())


def golden_cases() -> Iterator[Any]:
    for name, folder, entry in golden_tables():
        if "snapshot_ordering" in name:
            yield pytest.param(folder, entry, id=name)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("folder", "entry"), list(golden_cases()))
def test_rows_of_java_keep_their_order_through_compactions(
    folder: Path, entry: dict[str, Any], tmp_path: Path
) -> None:
    table = Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table(table_name(entry))
    expected = expected_rows(entry["snapshots"][-1])
    assert check(table, deep=True).findings == ()

    for strategy in STRATEGIES:
        compact(table, EXECUTOR, strategy=strategy)

        assert_rows_equal(expected, canonical_rows(table.scan().to_arrow()))
        assert check(table, deep=True).findings == ()


def test_the_later_snapshot_wins_over_larger_sequence_numbers(tmp_path: Path) -> None:
    table = ordered_table(tmp_path)
    late = prepare(table, table_of("k v", [(1, "late"), (2, "late")]), 0)
    commit(table, prepare(table, table_of("k v", [(1, "early"), (3, "early")]), 1000))
    commit(table, late)

    assert rows_of(table) == [(1, "late"), (2, "late"), (3, "early")]
    compact(table, EXECUTOR, strategy="full")
    assert rows_of(table) == [(1, "late"), (2, "late"), (3, "early")]


def test_a_retried_commit_writes_the_id_of_its_snapshot_to_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ordered_table(tmp_path)
    retried, other = (prepare(table, table_of("k v", [(1, who)]), 50) for who in ("mine", "other"))
    committer = table.stores.new_commit(StepKind.WRITE_ROWS)
    create = type(committer)._create_snapshot_file

    def overtaken(self: Any, *args: Any) -> Any:
        monkeypatch.undo()
        commit(table, other)
        return create(self, *args)

    monkeypatch.setattr(type(committer), "_create_snapshot_file", overtaken)
    snapshot = committer.commit(retried)

    assert (snapshot.id, committer.attempts) == (2, 2)
    assert {(f.min_sequence_number, f.max_sequence_number) for f in files_of(table)} == {
        (1, 1),
        (2, 2),
    }
    assert rows_of(table) == [(1, "mine")]


def test_compacted_files_contain_the_snapshots_of_their_rows(tmp_path: Path) -> None:
    table = ordered_table(tmp_path)
    for number in range(3):
        commit(
            table, prepare(table, table_of("k v", [(number, "v"), (9, f"{number}")]), 100 - number)
        )

    compact(table, EXECUTOR, strategy="full")

    [file] = files_of(table)
    assert file.file_source == FileSource.COMPACT
    assert (file.min_sequence_number, file.max_sequence_number) == (1, 3)
    assert stored_numbers(table, file) == {1, 2, 3}


def test_a_file_that_moves_to_another_level_keeps_its_snapshot(tmp_path: Path) -> None:
    table = ordered_table(tmp_path, compaction__small_file_ratio="0")
    commit(table, prepare(table, table_of("k v", [(1, "old")]), 77))

    compact(table, EXECUTOR, strategy="full")

    [file] = files_of(table)
    assert (file.level > 0, file.file_source) == (True, FileSource.APPEND)
    assert (file.min_sequence_number, file.max_sequence_number) == (1, 1)
    commit(table, prepare(table, table_of("k v", [(1, "new")]), 0))
    assert rows_of(table) == [(1, "new")]


def test_several_flushes_of_a_writer_become_one_sorted_run(tmp_path: Path) -> None:
    table = ordered_table(tmp_path, write_buffer_size="1 b")
    writer = TableWriter(WritePlan(factory=table.stores.build_writer_factory()))
    for number in range(5):
        rows = table_of("k v", [(key, f"{number}") for key in range(number, 8)])
        writer.write(convert_rows(rows, table.load().schema))
    entries = writer.close().entries
    commit(table, CommitChanges(kind=CommitKind.APPEND, entries=entries))

    assert [entry.file.row_count for entry in entries] == [8]
    assert rows_of(table) == [(key, f"{min(key, 4)}") for key in range(8)]
    named = {entry.file.file_name for entry in entries}
    assert {path.name for path in Path(table.paths.root).glob("bucket-0/*")} == named


def test_rescaled_rows_belong_to_the_snapshot_of_the_rescale(tmp_path: Path) -> None:
    table = ordered_table(tmp_path)
    commit(table, prepare(table, table_of("k v", [(k, "old") for k in range(20)]), 900))

    rescale(table, 2)
    Catalog(str(tmp_path)).alter_table("db.t", [SetOption("bucket", "2")])
    table = Catalog(str(tmp_path)).table("db.t")
    table.upsert(table_of("k v", [(k, "new") for k in range(10)]))

    assert rows_of(table) == [(k, "new" if k < 10 else "old") for k in range(20)]
    assert check(table, deep=True).findings == ()


def test_files_without_a_source_are_refused(tmp_path: Path) -> None:
    table = ordered_table(tmp_path)
    changes = prepare(table, table_of("k v", [(1, "a")]), 0)

    def without_source(entry: ManifestEntry) -> ManifestEntry:
        return replace(entry, file=replace(entry.file, file_source=None))

    commit(table, replace(changes, entries=tuple(map(without_source, changes.entries))))
    commit(table, prepare(table, table_of("k v", [(1, "b")]), 0))

    with pytest.raises(UnsupportedError, match=r"sequence\.snapshot-ordering"):
        rows_of(table)


@dataclass(frozen=True)
class Prepare:
    keys: list[int]
    deletes: list[int]
    first: int


@dataclass(frozen=True)
class Commit:
    which: int


@dataclass(frozen=True)
class Compact:
    strategy: CompactionStrategy


@dataclass(kw_only=True)
class Model:
    """Dictionaries of rows in the order of snapshots, and as of the last compaction."""

    table: Table
    pending: list[tuple[CommitChanges, dict[int, str | None]]] = field(default_factory=list)
    written: dict[int, str] = field(default_factory=dict)
    compacted: dict[int, str] = field(default_factory=dict)
    writes: int = 0

    def apply(self, operation: Prepare | Commit | Compact) -> None:
        match operation:
            case Prepare(keys, deletes, first):
                self.writes += 1
                rows: dict[int, str | None] = dict.fromkeys(keys, f"{self.writes}")
                rows |= dict.fromkeys(deletes)
                records = [(k, v, "-D" if v is None else "+I") for k, v in rows.items()]
                changes = prepare(self.table, table_of("k v kind", records), first, "kind")
                self.pending.append((changes, rows))
            case Commit(which) if self.pending:
                changes, rows = self.pending.pop(which % len(self.pending))
                commit(self.table, changes)
                self.written |= {k: v for k, v in rows.items() if v is not None}
                for key in (k for k, v in rows.items() if v is None):
                    self.written.pop(key, None)
            case Compact(strategy) if self.table.snapshot() is not None:
                compact(self.table, EXECUTOR, strategy=strategy)
                self.compacted = dict(self.written)

    def check(self) -> None:
        visible = (
            self.compacted
            if self.table.load().schema.typed_options.has_deletion_vectors
            else self.written
        )
        assert rows_of(self.table) == sorted(visible.items())
        if self.table.snapshot() is not None:
            assert_healthy(self.table)


keys = st.lists(st.integers(0, 30), min_size=1, max_size=20)
operations = st.lists(
    st.one_of(
        st.builds(
            Prepare, keys, st.lists(st.integers(0, 30), max_size=4), st.sampled_from([0, 7, 500])
        ),
        st.builds(Commit, st.integers(0, 3)),
        st.builds(Commit, st.integers(0, 3)),
        st.builds(Compact, st.sampled_from(STRATEGIES)),
    ),
    min_size=6,
    max_size=20,
)

VARIANTS: dict[str, dict[str, str]] = {
    "merge-on-read": {},
    "many levels": {
        "num_levels": "6",
        "compaction__max_size_amplification_percent": "1000000",
        "compaction__size_ratio": "0",
    },
    "deletion vectors": {"deletion_vectors__enabled": "true"},
    "changelog of lookups": {"changelog_producer": "lookup"},
    "changelog of full compactions": {"changelog_producer": "full-compaction"},
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("variant", [pytest.param(v, id=name) for name, v in VARIANTS.items()])
def test_readers_see_rows_in_the_order_of_their_snapshots(variant: dict[str, str]) -> None:
    @settings(max_examples=15)
    @given(operations)
    def run(operations: list[Prepare | Commit | Compact]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            options = {"num_sorted_run__compaction_trigger": "3", "target_file_size": "4 kb"}
            table = ordered_table(Path(folder), **options, **variant)
            model = Model(table=small_batches(table, 5))
            for operation in operations:
                model.apply(operation)
            model.check()
            for strategy in STRATEGIES:
                model.apply(Compact(strategy))
                model.check()

    run()


def test_partial_updates_use_columns_of_the_later_snapshot(tmp_path: Path) -> None:
    table = ordered_table(tmp_path, "k BIGINT, a STRING, b STRING", merge_engine="partial-update")
    late = prepare(table, table_of("k a b", [(1, "late", "late")]), 0)
    early = table_of("k a b", [(1, "early", "early"), (2, None, "early")])
    commit(table, prepare(table, early, 10))
    commit(table, late)
    some = table_of("k a b", [(1, None, "late"), (2, "x", None)])
    commit(table, prepare(table, some, 0))

    for _ in range(2):
        assert rows_of(table) == [(1, "late", "late"), (2, "x", "early")]
        compact(table, EXECUTOR, strategy="full")
