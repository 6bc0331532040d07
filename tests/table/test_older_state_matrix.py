"""Each way back to an older snapshot returns its rows, or is refused by the name of the option."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.tables import (
    catalog_of,
    deletion_vectors_of,
    levels_of,
    rows_of,
    stored_files,
    table_of,
)

from paimon_orch import Catalog, Table
from paimon_orch.errors import InputError
from paimon_orch.format.row.row_kind import RowKind
from paimon_orch.steps import check, compact
from paimon_orch.steps.maintenance.rollback_as_latest import rollback_as_latest
from paimon_orch.table.metadata.rollback import plan_rollback
from paimon_orch.table.metadata.rollback import rollback as roll_back_without_check
from paimon_orch.table.metadata.time_travel import SnapshotSelector
from paimon_orch.table.schema_change.schema_changes import (
    DropColumn,
    RenameColumn,
    ResetOption,
    SetOption,
)
from paimon_orch.table.write.write_builder import WriteBuilder

Row = tuple[object, ...]


@dataclass(frozen=True)
class Case:
    """An option that changes after snapshot 2, whose rows are to be merged."""

    key: str
    value: str
    options: dict[str, str] = field(default_factory=dict)
    value_type: str = "BIGINT"
    deletes: bool = False


SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
LIST = {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}
CASES = [
    Case("deletion-vectors.enabled", "true", {"deletion-vectors.modifiable": "true"}),
    Case("sequence.field", "s"),
    Case("sequence.field.sort-order", "descending", {"sequence.field": "s"}),
    Case("ignore-delete", "true", deletes=True),
    Case("deduplicate.ignore-delete", "true", deletes=True),
    Case("ignore-delete", "false", {"deduplicate.ignore-delete": "true"}),
    Case(
        "partial-update.ignore-delete",
        "false",
        {"merge-engine": "partial-update", "partial-update.ignore-delete": "true"},
    ),
    Case("fields.v.aggregate-function", "max", SUM),
    Case("fields.default-aggregate-function", "min", {"merge-engine": "aggregation"}),
    Case("fields.v.ignore-retract", "true", SUM, deletes=True),
    Case("fields.v.list-agg-delimiter", ";", LIST, "STRING"),
    Case("fields.v.distinct", "true", LIST, "STRING"),
    Case("fields.s.sequence-group", "v", {"merge-engine": "partial-update"}),
    Case("changelog-producer", "lookup", SUM),
]
IDS = [f"{case.key} = {case.value}" for case in CASES]


def create(root: Path, case: Case) -> tuple[Table, dict[int, list[Row]]]:
    """Create a table whose option changed after snapshot 3; return the rows of each snapshot."""
    catalog = Catalog(str(root))
    options = {"bucket": "1", **case.options}
    columns = f"k BIGINT, v {case.value_type}, s BIGINT"
    table = catalog.create_table("db.t", columns, primary_key=["k"], options=options)
    to_value: Callable[[int], object] = str if case.value_type == "STRING" else int

    def write(number: int, *keys: int) -> None:
        table.append(table_of("k v s", [(key, to_value(number), -number) for key in keys]))

    write(1, 1, 2, 3)
    if case.deletes:
        builder = WriteBuilder(table.load())
        builder.write(table_of("k v s", [(1, to_value(1), -2)]), kind=RowKind.DELETE)
    else:
        write(2, 1, 2)
    compact(table, strategy="full")
    tagged = {number: rows_of(table, snapshot_id=number) for number in (1, 2, 3)}
    table.tags.create("two", 2)
    table.branches.create("old", "two")
    catalog.alter_table("db.t", [SetOption(case.key, case.value)])
    table = catalog.table("db.t")
    write(5, 9)
    return table, tagged


def is_refused(
    roll_back: Callable[[Table, int], object], table: Table, number: int, key: str
) -> bool:
    """Return whether a rollback is refused by the name of the option, and changes nothing."""
    before = stored_files(table)
    with pytest.raises(InputError, match=f"'{re.escape(key)}' has changed since snapshot {number}"):
        roll_back(table, number)
    return stored_files(table) == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("roll_back", [Table.rollback, rollback_as_latest])
def test_a_rollback_returns_the_rows_of_the_snapshot_or_names_the_option(
    tmp_path: Path, roll_back: Callable[[Table, int], object], case: Case
) -> None:
    table, expected = create(tmp_path, case)

    assert is_refused(roll_back, table, 2, case.key)

    roll_back(table, 3)
    assert rows_of(table) == expected[3]


def table_with_older_option(root: Path, case: Case) -> Table:
    catalog, value = Catalog(str(root)), case.options.get(case.key)
    change = ResetOption(case.key) if value is None else SetOption(case.key, value)
    catalog.alter_table("db.t", [change])
    return catalog.table("db.t")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_advice_of_a_refused_rollback_works(tmp_path: Path, case: Case) -> None:
    table, expected = create(tmp_path, case)
    compact(table, strategy="full")
    table = table_with_older_option(tmp_path, case)

    table.rollback(2)

    assert rows_of(table) == expected[2]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_other_ways_back_return_the_rows_of_the_snapshot(tmp_path: Path, case: Case) -> None:
    table, expected = create(tmp_path, case)
    branch = Catalog(str(tmp_path)).table("db.t$branch_old")

    assert rows_of(table, snapshot_id=2) == expected[2]
    assert rows_of(table, tag="two") == expected[2]
    assert rows_of(branch) == expected[2]
    table.branches.fast_forward("old")
    assert rows_of(Catalog(str(tmp_path)).table("db.t")) == expected[2]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_diff_compares_the_rows_of_both_snapshots(tmp_path: Path, case: Case) -> None:
    table, expected = create(tmp_path, case)
    newest = table.snapshot()
    assert newest is not None
    states = {0: list[Row](), **expected}
    states[newest.id] = rows_of(table, merge_level_0=True)

    for start, before in states.items():
        for end in (number for number in states if number > start):
            changes = table.incremental(start, end, "diff").to_arrow().to_pylist()
            copy = {row[0]: row for row in before}
            for change in changes:
                kind, *row = change.values()
                if kind == "-D":
                    del copy[row[0]]
                else:
                    assert (row[0] in copy) == (kind == "+U")
                    copy[row[0]] = tuple(row)
            assert sorted(copy.values()) == states[end], (start, end)


def test_a_diff_merges_by_the_newest_name_of_a_column(tmp_path: Path) -> None:
    table, expected = create(tmp_path, Case("sequence.field", "v", {"sequence.field": "s"}))
    Catalog(str(tmp_path)).alter_table("db.t", [RenameColumn("s", "renamed")])

    changes = table.incremental(0, 2, "diff").to_arrow().drop_columns("rowkind").to_pylist()

    assert sorted(tuple(row.values()) for row in changes) == expected[2]


def test_a_diff_is_refused_if_a_column_that_its_merge_needs_was_dropped(tmp_path: Path) -> None:
    table, expected = create(tmp_path, Case("sequence.field", "v", {"sequence.field": "s"}))
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [ResetOption("sequence.field"), DropColumn("s")])

    with pytest.raises(InputError, match=r"'sequence\.field' = 's'.*no column 's'"):
        table.incremental(0, 2, "diff").to_arrow()
    assert rows_of(table, snapshot_id=2) == expected[2]


def create_table_with_vectors(root: Path) -> Table:
    """Create a table whose snapshot 4 has a deletion vector, which is compacted in snapshot 5."""
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    options |= {"deletion-vectors.modifiable": "true", "num-sorted-run.compaction-trigger": "3"}
    table = Catalog(str(root)).create_table(
        "db.t", "k BIGINT, v BIGINT", primary_key=["k"], options=options
    )
    table.append(table_of("k v", [(key, 0) for key in range(50)]))
    compact(table, strategy="full")
    table.append(table_of("k v", [(1, 1), (2, 1)]))
    compact(table)
    return table


def test_deletion_vectors_are_disabled_after_a_full_compaction(tmp_path: Path) -> None:
    table = create_table_with_vectors(tmp_path)
    expected, catalog = rows_of(table), Catalog(str(tmp_path))
    disable = SetOption("deletion-vectors.enabled", "false")
    with pytest.raises(InputError, match="full compaction"):
        catalog.alter_table("db.t", [disable])

    compact(table, strategy="full")
    catalog.alter_table("db.t", [disable])
    table = catalog.table("db.t")

    assert rows_of(table) == expected
    assert is_refused(Table.rollback, table, 4, disable.key)
    changes = table.incremental(2, 4, "diff").to_arrow()
    assert changes.to_pydict() == {"rowkind": ["+U", "+U"], "k": [1, 2], "v": [1, 1]}


def test_a_full_compaction_leaves_no_vector_after_vectors_were_disabled(tmp_path: Path) -> None:
    """Java Paimon disables vectors without a check."""
    table = create_table_with_vectors(tmp_path)
    expected, schemas = rows_of(table), table.stores.schemas
    newest = schemas.latest()
    options = {**newest.options, "deletion-vectors.enabled": "false"}
    schemas.create(replace(newest, id=newest.id + 1, options=options))
    table.append(table_of("k v", [(3, 2)]))
    report = check(table)
    assert {finding.rule for finding in report.findings} == {"vector"}

    compact(table, strategy="full")

    snapshot = table.snapshot()
    assert snapshot is not None
    assert f"snapshot {snapshot.id}" not in str(check(table, deep=True).findings)
    assert deletion_vectors_of(table) == {}
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [SetOption("deletion-vectors.enabled", "true")])
    assert rows_of(catalog.table("db.t")) == sorted({**dict(expected), 3: 2}.items())


def test_a_deep_check_judges_the_newest_snapshot_by_the_newest_schema(tmp_path: Path) -> None:
    """A rollback of Java Paimon or of an older release returned to rows to merge."""
    case = Case("deletion-vectors.enabled", "true", {"deletion-vectors.modifiable": "true"})
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table(
        "db.t", "k BIGINT, v BIGINT", primary_key=["k"], options={"bucket": "1", **case.options}
    )
    table.append(table_of("k v", [(key, 0) for key in range(20)]))
    compact(table, strategy="full")
    table.append(table_of("k v", [(1, 1), (2, 1)]))
    compact_up_to_level_0(table)
    merged = table.snapshot()
    assert merged is not None
    compact(table, strategy="full")
    catalog.alter_table("db.t", [SetOption(case.key, case.value)])
    table = catalog.table("db.t")

    snapshots = table.stores.snapshots
    roll_back_without_check(snapshots, plan_rollback(snapshots, SnapshotSelector(merged.id)))

    assert table.scan().to_arrow().num_rows == 22
    (finding,) = check(table, deep=True).findings
    assert (finding.rule, finding.text[:6]) == ("live-twice", "2 keys")


def compact_up_to_level_0(table: Table) -> None:
    """Move the files of level 0 to a level above it, and keep the others."""
    options = {"compaction.force-up-level-0": "true"}
    catalog = catalog_of(table)
    catalog.alter_table("db.t", [SetOption(*item) for item in options.items()])
    compact(table)
    assert len(set(levels_of(table))) == 2
    assert 0 not in levels_of(table)
