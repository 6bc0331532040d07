"""`pk-clustering-override`: files above level 0 are sorted by other columns than the key."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from support.steps import run_units
from support.tables import (
    deletion_vectors_of,
    levels_of,
    new_table,
    rows_of,
    small_batches,
    table_of,
)
from support.tables_with_deletion_vectors import EXECUTOR

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, UnsupportedError
from paimon_orch.steps.compaction import compact as step
from paimon_orch.steps.compaction.compact import CompactionStrategy, compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.rescale import rescale
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

STRATEGIES: tuple[CompactionStrategy, ...] = ("minor", "full")
COLUMNS = "k BIGINT, c STRING, v BIGINT"


def create_clustered_table(root: Path, columns: str = "c", **options: str) -> Table:
    vectors = {"deletion_vectors__enabled": "true"}
    if options.get("merge_engine") == "first-row":
        vectors = {}
    return new_table(
        root,
        COLUMNS,
        pk_clustering_override="true",
        clustering__columns=columns,
        target_file_size="4 kb",
        **vectors,
        **options,
    )


def golden_cases(*names: str) -> Iterator[Any]:
    for name, folder, entry in golden_tables():
        if "/pk_clustering" in name and name.endswith(names):
            yield pytest.param(folder, entry, id=name)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("folder", "entry"), list(golden_cases("db.t_many", "db.t_first", "db.t_first_dv"))
)
def test_compaction_keeps_rows_of_java_paimon(
    folder: Path, entry: dict[str, Any], tmp_path: Path
) -> None:
    table = Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table(table_name(entry))
    expected = expected_rows(entry["snapshots"][-1])
    for strategy in STRATEGIES:
        compact(table, EXECUTOR, strategy=strategy)
        assert_rows_equal(expected, canonical_rows(table.scan().to_arrow()))
        assert check(table, deep=True).findings == ()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("folder", "entry"), list(golden_cases("db.t_dv")))
def test_level_0_rows_are_merged_equally_on_read_and_by_compaction(
    folder: Path, entry: dict[str, Any], tmp_path: Path
) -> None:
    warehouse = copy_warehouse(folder, tmp_path / "w")
    catalog, name = Catalog(str(warehouse)), table_name(entry)
    catalog.alter_table(name, [SetOption("deletion-vectors.merge-on-read", "true")])
    table = catalog.table(name)
    assert 0 in levels_of(table)
    merged = canonical_rows(table.scan().to_arrow())
    for strategy in STRATEGIES:
        compact(table, EXECUTOR, strategy=strategy)
        assert_rows_equal(merged, canonical_rows(table.scan().to_arrow()))
        assert check(table, deep=True).findings == ()
    assert not deletion_vectors_of(table)


@dataclass(frozen=True)
class Upsert:
    rows: list[tuple[int, str | None]]


@dataclass(frozen=True)
class Delete:
    keys: list[int]


@dataclass(frozen=True)
class Compact:
    strategy: CompactionStrategy


Rows = dict[int, tuple[str | None, int]]


@dataclass
class Model:
    """Dictionaries of the written rows, and of the rows as of the last compaction."""

    table: Table
    written: Rows = field(default_factory=dict)
    compacted: Rows = field(default_factory=dict)
    writes: int = 0

    @property
    def first_row(self) -> bool:
        return self.table.load().schema.typed_options.merge_engine == "first-row"

    def apply(self, operation: Upsert | Delete | Compact) -> None:
        match operation:
            case Upsert(rows):
                self.writes += 1
                values = [(k, c, self.writes * 100 + number) for number, (k, c) in enumerate(rows)]
                self.table.upsert(table_of("k c v", values))
                for k, c, v in values:
                    if not (self.first_row and k in self.written):
                        self.written[k] = (c, v)
            case Delete(keys) if not self.first_row:
                self.table.delete(table_of("k", [(key,) for key in keys]))
                for key in keys:
                    self.written.pop(key, None)
            case Compact(strategy) if self.table.snapshot() is not None:
                compact(self.table, EXECUTOR, strategy=strategy)
                self.compacted = dict(self.written)
                assert 0 not in levels_of(self.table)
                self.check()

    def check(self) -> None:
        skips = self.table.load().schema.skips_level_0
        visible = self.compacted if skips else self.written
        assert rows_of(self.table) == sorted((k, c, v) for k, (c, v) in visible.items())
        some = {k: row for k, row in visible.items() if row[0] == "b" or k < 3}
        filtered = rows_of(self.table, filter="c = 'b' OR k < 3")
        assert filtered == sorted((k, c, v) for k, (c, v) in some.items())


def finish(model: Model) -> None:
    model.check()
    for strategy in STRATEGIES:
        model.apply(Compact(strategy))
    if model.table.snapshot() is not None:
        assert check(model.table, deep=True).findings == ()
    assert not deletion_vectors_of(model.table)
    before = model.table.snapshot()
    model.apply(Compact("full"))  # a second compaction has nothing to do
    assert model.table.snapshot() == before


values = st.sampled_from([None, "", "a", "b", "c" * 9])
operations = st.lists(
    st.one_of(
        st.builds(Upsert, st.lists(st.tuples(st.integers(0, 40), values), min_size=1, max_size=30)),
        st.builds(Delete, st.lists(st.integers(0, 40), min_size=1, max_size=10)),
        st.builds(Compact, st.sampled_from(STRATEGIES)),
    ),
    min_size=4,
    max_size=12,
)
VARIANTS: dict[str, dict[str, str]] = {
    "vectors": {},
    "two columns, little memory": {"columns": "c,v", "write_buffer_size": "200 b"},
    "merged on read": {"columns": "v", "deletion_vectors__merge_on_read": "true"},
    "first row": {"merge_engine": "first-row"},
    "first row, little memory": {"merge_engine": "first-row", "write_buffer_size": "200 b"},
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", [pytest.param(v, id=name) for name, v in VARIANTS.items()])
def test_readers_see_the_rows_of_a_dictionary_model(variant: dict[str, str]) -> None:
    @settings(max_examples=15)
    @given(operations)
    def run(operations: list[Upsert | Delete | Compact]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            model = Model(small_batches(create_clustered_table(Path(folder), **variant), 5))
            for operation in operations:
                model.apply(operation)
            finish(model)

    run()


def test_rows_are_correct_after_a_change_of_clustering_columns(tmp_path: Path) -> None:
    model = Model(create_clustered_table(tmp_path))
    model.apply(Upsert([(k, "ab"[k % 2]) for k in range(30)]))
    model.apply(Compact("minor"))
    Catalog(str(tmp_path)).alter_table("db.t", [SetOption("clustering.columns", "v")])
    model.table = Catalog(str(tmp_path)).table("db.t")
    model.apply(Upsert([(k, "c") for k in range(10, 20)]))
    model.apply(Delete([3, 12]))

    model.apply(Compact("minor"))
    assert check(model.table, deep=True).findings == ()
    finish(model)


def test_a_bucket_that_another_compaction_changed_is_planned_again(tmp_path: Path) -> None:
    table = create_clustered_table(tmp_path, merge_engine="first-row")
    table.upsert(table_of("k c v", [(1, "a", 1)]))
    planned = step.plan(table, step.CompactRequest())
    table.upsert(table_of("k c v", [(1, "b", 2), (2, "b", 2)]))
    results = run_units(step.COMPACT, table, planned)
    compact(table, EXECUTOR)
    with pytest.raises(CommitConflictError):
        step.commit(table, planned, results)
    assert rows_of(table) == [(1, "a", 1), (2, "b", 2)]


def test_rescale_is_refused_and_names_the_option(tmp_path: Path) -> None:
    table = create_clustered_table(tmp_path)
    table.upsert(table_of("k c v", [(1, "a", 1)]))
    compact(table, EXECUTOR)
    before = table.snapshot()

    with pytest.raises(UnsupportedError, match="pk-clustering-override"):
        rescale(table, 2)
    assert table.snapshot() == before


def test_changes_between_two_states_are_found_by_key(tmp_path: Path) -> None:
    table = create_clustered_table(tmp_path)
    table.upsert(table_of("k c v", [(k, "ab"[k % 2], 0) for k in range(6)]))
    compact(table, EXECUTOR)
    before = table.snapshot()
    table.upsert(table_of("k c v", [(1, "z", 1), (9, "a", 1)]))
    table.delete(table_of("k", [(4,)]))
    compact(table, EXECUTOR)
    after = table.snapshot()
    assert before is not None
    assert after is not None

    changes = table.incremental(before.id, after.id, mode="diff").to_arrow().to_pylist()

    assert sorted((row["rowkind"], row["k"], row["c"]) for row in changes) == [
        ("+I", 9, "a"),
        ("+U", 1, "z"),
        ("-D", 4, "a"),
    ]
    audited = table.system("audit_log").scan().to_arrow().to_pylist()
    assert sorted(row["k"] for row in audited) == [0, 1, 2, 3, 5, 9]


def test_the_old_option_key_of_clustering_columns_is_read(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        COLUMNS,
        pk_clustering_override="true",
        deletion_vectors__enabled="true",
        sink__clustering__by_columns="v",
    )
    table.upsert(table_of("k c v", [(1, "a", 3), (2, "a", 1), (3, "a", 2)]))
    compact(table, EXECUTOR)

    assert table.scan().to_arrow()["v"].to_pylist() == [1, 2, 3]
    assert check(table, deep=True).findings == ()
