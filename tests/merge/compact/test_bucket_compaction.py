"""Merge engines, compaction, deletion vectors and changelogs equal a simple model."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from support.merge_model import RETRACT_FUNCTIONS, Change, Model, Row, Rules
from support.steps import run_units
from support.tables import assert_healthy, deletion_vectors_of, small_batches

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.schema import SEQUENCE_NUMBER
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as step
from paimon_orch.steps.compaction.primary_key import select_primary_key_units
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
STRATEGIES: tuple[step.CompactionStrategy, ...] = ("minor", "full")
EVERY_KIND = ("+I", "+I", "+I", "+U", "-U", "-D")
THREE = {"s": "INT", "t": "INT", "v": "INT"}
AGGREGATED = {
    "total": ("BIGINT", "sum"),
    "high": ("INT", "max"),
    "low": ("INT", "min"),
    "any_of": ("BOOLEAN", "bool_or"),
    "all_of": ("BOOLEAN", "bool_and"),
    "names": ("STRING", "listagg"),
    "items": ("ARRAY<INT>", "collect"),
    "latest": ("INT", "last_value"),
    "known": ("INT", "last_non_null_value"),
    "first": ("INT", "first_value"),
    "met": ("INT", "first_non_null_value"),
    "s": ("INT", "last_value"),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.integers(-9, 9),
    "BIGINT": st.integers(-9, 9),
    "BOOLEAN": st.booleans(),
    "STRING": st.text("ab", min_size=1, max_size=2),
    "ARRAY<INT>": st.lists(st.integers(0, 3), max_size=2),
}


KEYS: dict[str, list[Any]] = {
    "INT": [-(2**31), -1, 0, 1, 2, 7, 2**31 - 1],
    "STRING": ["", "a", "ab", "b", "é", "\uff5e", "😀"],
    "DOUBLE": [float("-inf"), -1.5, 0.0, 1e-9, 2.5, 1e300, float("inf")],
    "DECIMAL(20, 2)": [Decimal(text) for text in ("-99.99", "-0.01", "0.00", "0.10", "7.00")],
    "BOOLEAN": [False, True],
    "BYTES": [b"", b"\0", b"\0\0", b"a", b"\x7f", b"\x80", b"\xff"],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
}


@dataclass(frozen=True)
class Shape:
    """The type of the key, and its position among the columns."""

    key_type: str
    key_at: int


PLAIN = Shape("INT", 0)


@dataclass(frozen=True)
class Case:
    """The rules of a table, the types of its columns, and the kinds of written rows."""

    rules: Rules
    types: dict[str, str] = field(default_factory=lambda: THREE)
    kinds: tuple[str, ...] = EVERY_KIND

    def table(self, root: Path, options: dict[str, str], shape: Shape = PLAIN) -> Table:
        named = [f"{n} {kind}" for n, kind in self.types.items()]
        named.insert(shape.key_at % (len(named) + 1), f"k {shape.key_type}")
        columns = ", ".join(named)
        fixed = {"bucket": "1", "num-levels": "4", "num-sorted-run.compaction-trigger": "3"}
        table = Catalog(str(root)).create_table(
            "db.t", columns, primary_key=["k"], options=fixed | self.options() | options
        )
        return small_batches(table, 3)

    def options(self) -> dict[str, str]:
        rules = self.rules
        named = {"merge-engine": rules.engine, "changelog-producer": rules.producer}
        named["deletion-vectors.enabled"] = str(rules.deletion_vectors).lower()
        named["force-lookup"] = str(rules.lookup).lower()
        named["changelog-producer.row-deduplicate"] = str(rules.deduplicates_changelog).lower()
        named["ignore-delete"] = str(rules.ignore_delete).lower()
        if rules.remove_on_delete:
            named[f"{rules.engine}.remove-record-on-delete"] = "true"
        if rules.sequence:
            named["sequence.field"] = ",".join(rules.sequence)
            named["sequence.field.sort-order"] = "descending" if rules.descending else "ascending"
        if rules.group[0]:
            named[f"fields.{','.join(rules.group[0])}.sequence-group"] = ",".join(rules.group[1])
        for name, function in rules.functions.items():
            if name not in rules.sequence:
                named[f"fields.{name}.aggregate-function"] = function
                if function not in RETRACT_FUNCTIONS and not rules.remove_on_delete:
                    named[f"fields.{name}.ignore-retract"] = "true"
        return named

    def rows(self, shape: Shape) -> st.SearchStrategy[Row]:
        values = {n: st.none() | VALUES[kind] for n, kind in self.types.items()}
        keys = st.sampled_from(KEYS[shape.key_type])
        return st.fixed_dictionaries({"k": keys, "_kind": st.sampled_from(self.kinds)} | values)

    def histories(self) -> st.SearchStrategy[tuple[Shape, list[Any]]]:
        """Draw a shape, and batches to write with compactions between them."""

        def of_shape(shape: Shape) -> st.SearchStrategy[tuple[Shape, list[Any]]]:
            batch = st.lists(self.rows(shape), min_size=1, max_size=6)
            operation = batch | batch | st.sampled_from(["minor", "minor", "full"])
            return st.tuples(st.just(shape), st.lists(operation, min_size=3, max_size=9))

        shapes = st.builds(Shape, st.sampled_from(list(KEYS)), st.integers(0, 20))
        return shapes.flatmap(of_shape)


def aggregation(**rules: Any) -> Rules:
    functions = {name: function for name, (_, function) in AGGREGATED.items()}
    return Rules(engine="aggregation", columns=tuple(AGGREGATED), functions=functions, **rules)


AGGREGATED_TYPES = {name: kind for name, (kind, _) in AGGREGATED.items()}
ADDS = ("+I", "+U")
GROUPED = {"g": "INT", "h": "INT", "a": "INT", "n": "BIGINT", "b": "INT"}
CASES = {
    "deduplicate": Case(Rules(columns=("s", "t", "v"))),
    "deduplicate, ignoring deletes": Case(Rules(columns=("s", "t", "v"), ignore_delete=True)),
    "deduplicate by a sequence": Case(Rules(columns=("s", "t", "v"), sequence=("s",))),
    "deduplicate by two sequences, descending": Case(
        Rules(columns=("s", "t", "v"), sequence=("s", "t"), descending=True)
    ),
    "aggregation": Case(aggregation(), AGGREGATED_TYPES),
    "aggregation by a sequence": Case(aggregation(sequence=("s",)), AGGREGATED_TYPES),
    "aggregation, deletes remove": Case(
        aggregation(remove_on_delete=True), AGGREGATED_TYPES, ("+I", "+I", "+U", "-D")
    ),
    "partial-update": Case(Rules(engine="partial-update", columns=("s", "t", "v")), kinds=ADDS),
    "partial-update by a sequence": Case(
        Rules(engine="partial-update", columns=("s", "t", "v"), sequence=("s",)), kinds=ADDS
    ),
    "partial-update, deletes remove": Case(
        Rules(engine="partial-update", columns=("s", "t", "v"), remove_on_delete=True)
    ),
    "partial-update, sequence group": Case(
        Rules(
            engine="partial-update",
            columns=tuple(GROUPED),
            functions={"n": "sum"},
            group=(("g", "h"), ("a", "n")),
        ),
        GROUPED,
    ),
    "first-row": Case(Rules(engine="first-row", columns=("s", "t", "v"), lookup=True), kinds=ADDS),
    "first-row, ignoring deletes": Case(
        Rules(engine="first-row", columns=("s", "t", "v"), lookup=True, ignore_delete=True)
    ),
}
MODES: dict[str, dict[str, Any]] = {
    "merged on read": {},
    "vectors": {"deletion_vectors": True, "lookup": True},
    "lookup": {"producer": "lookup", "lookup": True},
    "vectors and lookup": {"producer": "lookup", "lookup": True, "deletion_vectors": True},
    "lookup of differences": {"producer": "lookup", "lookup": True, "deduplicates_changelog": True},
    "full-compaction": {"producer": "full-compaction"},
    "input": {"producer": "input"},
}
TREES = {
    "flat": {},
    "deep": {"compaction.max-size-amplification-percent": "1000000"},
    "sliced": {"target-file-size": "1 b"},
}


SLICED = ("deduplicate", "aggregation", "partial-update, sequence group")
SLICED_MODES = ("vectors", "vectors and lookup", "full-compaction")


def is_tested(case: str, mode: str, tree: str) -> bool:
    """Return whether a tree is tested with a table; slow trees are tested with few tables."""
    few = tree != "sliced" or (case in SLICED and mode in SLICED_MODES)
    return few and is_supported(CASES[case], MODES[mode])


def is_supported(case: Case, mode: dict[str, Any]) -> bool:
    """Return whether the format allows the table."""
    first_row = case.rules.engine == "first-row"
    return not first_row or (
        not mode.get("deletion_vectors") and mode.get("producer") in (None, "lookup")
    )


class Driver:
    """Applies operations to a table and to the model, and compares rows and changelogs."""

    def __init__(self, case: Case, table: Table) -> None:
        self.case, self.table = case, table
        self.model = Model(case.rules, table.load().schema.typed_options.num_levels - 1)
        self.replica: dict[Any, Row] = {}

    def write(self, rows: list[Row]) -> None:
        accepted = self.model.write(rows)
        types = self.table.scan().arrow_schema
        columns = {f.name: pa.array([row[f.name] for row in rows], f.type) for f in types}
        columns["kind"] = pa.array([row["_kind"] for row in rows], pa.string())
        snapshot = self.table.upsert(pa.table(columns), row_kind="kind")
        if self.case.rules.producer == "input" and accepted and snapshot:
            changes = [(kind, row) for kind, row in self.changes_of(snapshot.id)]
            assert by_key(changes) == by_key(
                (r["_kind"], self.seen(r)) for r in self.ordered(accepted)
            )

    def ordered(self, rows: list[Row]) -> list[Row]:
        return sorted(rows, key=lambda row: (row["k"], self.case.rules.sort_key(row)))

    def compact(self, strategy: step.CompactionStrategy) -> None:
        before, files = self.model.content(least_level=0), self.files()
        deletion_vectors = deletion_vectors_of(self.table)
        result = step.compact(self.table, EXECUTOR, strategy=strategy)
        assert bool(result.plan) == (result.snapshot_id is not None)
        changes: list[Change] = []
        # The table has one bucket, which may be compacted in several parts.
        tasks = [unit.task for unit in select_primary_key_units(result.plan)]
        assert len({task.output_level for task in tasks}) <= 1
        levels = {file.level for task in tasks for file in task.files}
        if levels:  # some tasks merge files
            output = tasks[0].output_level
            assert output > 0
            assert all(file.level > output for task in tasks for file in task.higher_level_files), (
                "a prefix"
            )
            self.reject_upgraded_rows_without_sequence(files)
            changes = self.model.compact(levels, output)
        if result.snapshot_id is not None:
            changelog = self.changes_of(result.snapshot_id)
            assert by_key(changelog) == by_key((kind, self.seen(row)) for kind, row in changes)
            self.follow(changelog)
            self.check_files(files, self.files(), strategy)
            self.check_deletion_vectors(deletion_vectors)
            assert_healthy(self.table)
        self.check()
        if self.keeps_content:
            assert {k: self.seen(r) for k, r in before.items()} == self.visible(0)

    def reject_upgraded_rows_without_sequence(self, old: list[BucketFile]) -> None:
        """Reject histories in which the changelog and the rows of the table differ.

        See docs/format/compaction-rewrites.md#rewriters: a file that only changes its level keeps
        the columns of a sequence group whose sequence is null, and the changelog does not.
        """
        sequence, grouped = self.case.rules.group
        reader = self.table.stores.reader()
        fields = [f for f in reader.schema.fields if f.name in (*sequence, *grouped)]
        levels = {file.file.file_name: file.file.level for file in old}
        upgraded = [f for f in self.files() if levels.get(f.file.file_name) == 0]
        for file in upgraded if sequence and self.case.rules.lookup else ():
            for rows in reader.read(file, fields):
                for row in rows.to_pylist():
                    if all(row[n] is None for n in sequence) and any(
                        row[n] is not None for n in grouped
                    ):
                        reject()

    def files(self) -> list[BucketFile]:
        splits = self.table.files()
        return [BucketFile(s.partition, s.bucket, file) for s in splits for file in s.files]

    def check_files(
        self, old: list[BucketFile], new: list[BucketFile], strategy: step.CompactionStrategy
    ) -> None:
        assert self.numbers(new) <= self.numbers(old), "a row has the number of one it is made of"
        if self.case.rules.lookup:
            assert all(file.file.level > 0 for file in new)
        if strategy == "full":
            assert {file.file.level for file in new} <= {self.model.top}
            assert not any(file.file.delete_row_count for file in new)

    def check_deletion_vectors(self, old: dict[str, DeletionVector]) -> None:
        """Check that rows remain deleted by deletion vectors until their file is deleted."""
        new = deletion_vectors_of(self.table)
        assert bool(self.case.rules.deletion_vectors) or not new
        for bucket_file in self.files():
            name = bucket_file.file.file_name
            if name in old:
                assert set(old[name].positions().tolist()) <= set(new[name].positions().tolist())

    def numbers(self, files: Iterable[BucketFile]) -> set[tuple[Any, int]]:
        """Return the keys and sequence numbers of all rows in files."""
        reader, keys = self.table.stores.reader(), set[tuple[Any, int]]()
        for file in files:
            for rows in reader.read(file, [SEQUENCE_NUMBER, *reader.schema.key_fields]):
                keys |= set(zip(rows["k"].to_pylist(), rows[0].to_pylist(), strict=True))
        return keys

    @property
    def keeps_content(self) -> bool:
        """Return whether merging rows in groups gives the same rows as merging them together."""
        rules = self.case.rules
        return rules.engine == "deduplicate" and not rules.sequence

    def follow(self, changes: list[Change]) -> None:
        """Apply a changelog; the result must equal the rows of the table."""
        rules = self.case.rules
        if rules.producer not in ("lookup", "full-compaction"):
            return
        if rules.engine == "first-row":  # the row of a new key keeps its original row kind
            changes = [("+I" if kind == "+U" else kind, row) for kind, row in changes]
        for (kind, row), (following, _) in zip_longest(changes, changes[1:], fillvalue=("", {})):
            assert (kind == "-U") == (following == "+U"), "-U and +U are adjacent"
            old_row = self.replica.pop(row["k"], None)
            removes = kind in ("-U", "-D")
            assert (old_row is not None) == removes, f"{kind} of {old_row}"
            assert old_row in (None, row)
            if not removes:
                self.replica[row["k"]] = row
        assert self.replica == self.visible(1 if rules.producer == "lookup" else self.model.top)

    def changes_of(self, snapshot: int) -> list[Change]:
        if self.case.rules.producer == "none":
            return []
        rows = self.table.incremental(snapshot - 1, snapshot, "changelog").to_arrow().to_pylist()
        return [(row.pop("rowkind"), row) for row in rows]

    def seen(self, row: Row) -> Row:
        return {name: row[name] for name in self.table.load().schema.names}

    def visible(self, least_level: int | None = None) -> dict[Any, Row]:
        return {key: self.seen(row) for key, row in self.model.content(least_level).items()}

    def check(self) -> None:
        rows = self.table.scan().to_arrow().to_pylist()
        row_by_key = {row["k"]: row for row in rows}
        assert len(row_by_key) == len(rows), "duplicate key"
        assert row_by_key == self.visible()


def by_key(changes: Iterable[Change]) -> dict[Any, list[Change]]:
    """Group a changelog by key, because the order of the keys is not defined."""
    grouped = defaultdict(list)
    for kind, row in changes:
        grouped[row["k"]].append((kind, row))
    return dict(grouped)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("case", "mode", "tree"),
    [(c, m, t) for c in CASES for m in MODES for t in TREES if is_tested(c, m, t)],
)
def test_rows_and_changelog_of_a_table_equal_the_model(case: str, mode: str, tree: str) -> None:
    rules = replace(CASES[case].rules, **MODES[mode])
    case_with_rules = replace(CASES[case], rules=rules)

    @settings(max_examples=3, deadline=None)
    @given(case_with_rules.histories())
    def check(history: tuple[Shape, list[Any]]) -> None:
        shape, operations = history
        with tempfile.TemporaryDirectory() as folder:
            driver = Driver(
                case_with_rules, case_with_rules.table(Path(folder), TREES[tree], shape)
            )
            for operation in operations:
                if isinstance(operation, list):
                    driver.write(operation)
                    driver.check()
                else:
                    driver.compact(operation)
            driver.compact("minor")
            driver.compact("full")
            before = driver.table.snapshot()
            driver.compact("full")
            assert driver.table.snapshot() == before, "another compaction would do work"

    check()


def test_an_upgraded_file_keeps_values_without_sequence_that_are_null_in_the_changelog(
    tmp_path: Path,
) -> None:
    rules = replace(CASES["partial-update, sequence group"].rules, **MODES["lookup"])
    case = replace(CASES["partial-update, sequence group"], rules=rules)
    table = case.table(tmp_path, TREES["sliced"])
    nulls: Row = dict.fromkeys(GROUPED)
    for row in ({"k": 1, **nulls}, {"k": 1, **nulls}, {"k": 2, **nulls, "n": 7}):
        table.upsert(pa.Table.from_pylist([row], table.scan().arrow_schema))

    result = step.compact(table, EXECUTOR, strategy="minor")

    assert result.snapshot_id
    changes = table.incremental(result.snapshot_id - 1, result.snapshot_id, "changelog")
    assert [(row["k"], row["n"]) for row in changes.to_arrow().to_pylist()] == [
        (1, None),
        (2, None),
    ]
    assert [(row["k"], row["n"]) for row in table.scan().to_arrow().to_pylist()] == [
        (1, None),
        (2, 7),
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", MODES)
def test_at_most_one_of_two_concurrent_compactions_of_a_bucket_is_committed(
    tmp_path: Path, mode: str
) -> None:
    rules = replace(CASES["deduplicate"].rules, **MODES[mode])
    case = replace(CASES["deduplicate"], rules=rules)
    driver = Driver(case, case.table(tmp_path, {}))
    for batch in range(4):
        rows = [{"k": k, "s": batch, "t": k, "v": None, "_kind": "+I"} for k in range(batch, 9)]
        driver.write([*rows, {"k": batch, "s": 0, "t": 0, "v": 0, "_kind": "-D"}])
    plans = [
        step.plan(driver.table, step.CompactRequest(strategy=strategy)) for strategy in STRATEGIES
    ]
    results = [run_units(step.COMPACT, driver.table, planned) for planned in plans]

    step.commit(driver.table, plans[0], results[0])
    with pytest.raises(CommitConflictError):
        step.commit(driver.table, plans[1], results[1])

    for unit in select_primary_key_units(plans[0]):
        driver.model.compact({file.level for file in unit.task.files}, unit.output_level)
    driver.check()
    assert_healthy(driver.table)
