"""A model of a bucket of a primary-key table, which merges dictionaries row by row.

The model is slow and simple: tests compare merge engines, compaction (with and without deletion
vectors) and changelogs with it. A row is a dictionary of its columns, of ``_kind`` (``+I``, ``-U``,
``+U``, ``-D``) and of ``_number``, its sequence number. A run has the rows of one level, or of one
file on level 0, by key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Change = tuple[str, Row]
Combine = Callable[[Any, Any], Any]


def is_add(row: Row) -> bool:
    return row["_kind"] in ("+I", "+U")


def _ignore_nulls(combine: Combine) -> Combine:
    return lambda old, new: old if new is None else new if old is None else combine(old, new)


AGGREGATE_FUNCTIONS: dict[str, Combine] = {
    "sum": _ignore_nulls(lambda old, new: old + new),
    "max": _ignore_nulls(max),
    "min": _ignore_nulls(min),
    "bool_or": _ignore_nulls(lambda old, new: old or new),
    "bool_and": _ignore_nulls(lambda old, new: old and new),
    "listagg": _ignore_nulls(lambda old, new: f"{old},{new}"),
    "collect": _ignore_nulls(lambda old, new: old + new),
    "last_value": lambda _, new: new,
    "last_non_null_value": lambda old, new: old if new is None else new,
}
FIRST_VALUE_FUNCTIONS = ("first_value", "first_non_null_value")


def _retract_sum(old: int | None, retracted: int | None) -> int | None:
    return old if retracted is None else (old or 0) - retracted


def _retract_collect(old: list[Any] | None, retracted: list[Any] | None) -> list[Any] | None:
    remaining = None if old is None else list(old)
    for item in retracted or ():
        if remaining and item in remaining:
            remaining.remove(item)
    return remaining


RETRACT_FUNCTIONS: dict[str, Combine] = {
    "sum": _retract_sum,
    "collect": _retract_collect,
    "last_value": lambda _, __: None,
    "last_non_null_value": lambda old, retracted: old if retracted is None else None,
}


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The options of a table: ``functions`` are aggregate functions, ``group`` a sequence group."""

    engine: str = "deduplicate"
    columns: tuple[str, ...] = ("v",)
    functions: Mapping[str, str] = field(default_factory=dict)
    sequence: tuple[str, ...] = ()
    descending: bool = False
    group: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    ignore_delete: bool = False
    remove_on_delete: bool = False
    lookup: bool = False
    deletion_vectors: bool = False
    producer: str = "none"
    deduplicates_changelog: bool = False

    def sort_key(self, row: Row) -> tuple[Any, ...]:
        """Return the sort key of a row among the rows of its key; null is always the smallest."""
        sign = -1 if self.descending else 1
        named = [(row[n] is not None, sign * (row[n] or 0)) for n in self.sequence]
        return *named, row["_number"], is_add(row)

    def merge(self, rows: Sequence[Row], *, is_lookup_merge: bool) -> Row | None:
        """Merge the rows of a key; a single row is unchanged unless ``is_lookup_merge`` is set."""
        rows = sorted(rows, key=self.sort_key)
        if self.ignore_delete:
            rows = [row for row in rows if is_add(row)]
        if not rows or (len(rows) == 1 and not is_lookup_merge):
            return rows[0] if rows else None
        if self.engine in ("deduplicate", "first-row"):
            return rows[-1 if self.engine == "deduplicate" else 0]
        merge = (
            self._merge_aggregation if self.engine == "aggregation" else self._merge_partial_update
        )
        return {**rows[-1], **merge(rows)}

    def _merge_aggregation(self, rows: Sequence[Row]) -> Row:
        values: Row = dict.fromkeys(self.columns)
        set_columns, deleted = set[str](), False
        for row in rows:
            deleted = self.remove_on_delete and row["_kind"] == "-D"
            for name in self.columns:
                if deleted:
                    values[name] = row[name]
                else:
                    self._aggregate(values, name, row, set_columns)
        return values | {"_kind": "-D" if deleted else "+I"}

    def _aggregate(self, values: Row, name: str, row: Row, set_columns: set[str]) -> None:
        function = self.functions.get(name, "last_non_null_value")
        if name in self.sequence:
            function = "last_value"
        if not is_add(row):
            if function in RETRACT_FUNCTIONS:  # the table ignores retracts of other functions
                values[name] = RETRACT_FUNCTIONS[function](values[name], row[name])
        elif function not in FIRST_VALUE_FUNCTIONS:
            values[name] = AGGREGATE_FUNCTIONS[function](values[name], row[name])
        elif name not in set_columns and (row[name] is not None or function == "first_value"):
            values[name] = row[name]
            set_columns.add(name)

    def _merge_partial_update(self, rows: Sequence[Row]) -> Row:
        start = dict.fromkeys(self.columns) if is_add(rows[0]) else rows[0]
        values: Row = {name: start[name] for name in self.columns}
        added = deleted = False
        for row in rows:
            add = is_add(row)
            added |= add
            deleted = self.remove_on_delete and (row["_kind"] == "-D" or (deleted and not add))
            sequence, grouped = self.group
            for name in self.columns:
                overwrites = name not in (*sequence, *grouped) and row[name] is not None
                if (add and overwrites) or (deleted and row["_kind"] == "-D"):
                    values[name] = row[name]
            if any(row[name] is not None for name in sequence):
                self._update_group(values, row)
        return values | {"_kind": "-D" if deleted or not added else "+I"}

    def _update_group(self, values: Row, row: Row) -> None:
        sequence, grouped = self.group
        fresh = _nulls_first(row, sequence) >= _nulls_first(values, sequence)
        for name in grouped:
            if name in self.functions and (fresh or self.functions[name] == "sum"):
                self._aggregate(values, name, row, set())
            elif fresh:
                values[name] = row[name] if is_add(row) else None
        if fresh:
            values.update({name: row[name] for name in sequence})


def _nulls_first(row: Row, names: Sequence[str]) -> list[tuple[bool, Any]]:
    return [(row[name] is not None, row[name]) for name in names]


@dataclass
class Run:
    level: int
    rows: dict[Any, Row]


@dataclass
class Model:
    """A bucket with its runs, the newest first."""

    rules: Rules
    top: int
    runs: list[Run] = field(default_factory=list)
    written: int = 0

    def write(self, rows: Sequence[Row]) -> list[Row]:
        """Write merged rows to level 0; return the written rows with sequence numbers."""
        accepted = [row for row in rows if is_add(row) or not self.rules.ignore_delete]
        numbered = [row | {"_number": self.written + n} for n, row in enumerate(accepted)]
        self.written += len(numbered)
        keys = {row["k"] for row in numbered}
        merged = {key: self._merge([r for r in numbered if r["k"] == key]) for key in keys}
        if numbered:
            self.runs.insert(0, Run(0, {key: row for key, row in merged.items() if row}))
        return numbered

    def _merge(self, rows: Sequence[Row], *, is_lookup_merge: bool = False) -> Row | None:
        return self.rules.merge(rows, is_lookup_merge=is_lookup_merge)

    def rows_of(self, runs: Sequence[Run], key: Any) -> list[Row]:
        """Return the rows of a key to merge; with lookup, only the lowest row above level 0."""
        new = [run.rows[key] for run in runs if run.level == 0 and key in run.rows]
        old = [run.rows[key] for run in runs if run.level > 0 and key in run.rows]
        return [*new, *(old[:1] if self.rules.lookup else old)]

    def content(self, least_level: int | None = None) -> dict[Any, Row]:
        """Return the rows of a reader by key, at ``least_level`` and above; by default of a batch read."""
        if least_level is None:
            skips = self.rules.deletion_vectors or self.rules.engine == "first-row"
            least_level = 1 if skips else 0
        runs = [run for run in self.runs if run.level >= least_level]
        keys = {key for run in runs for key in run.rows}
        merged = {key: self._merge(self.rows_of(runs, key)) for key in keys}
        return {key: row for key, row in merged.items() if row and is_add(row)}

    def compact(self, levels: set[int], output: int) -> list[Change]:
        """Merge the runs of the newest levels; return the changelog."""
        selected = [run for run in self.runs if run.level in levels]
        above = [run for run in self.runs if run.level not in levels]
        is_lookup_merge = self.rules.lookup and 0 in levels
        result, changes = Run(output, {}), list[Change]()
        for key in sorted({key for run in selected for key in run.rows}):
            rows = self.rows_of(selected, key)
            old_row = None
            if is_lookup_merge and all(key not in run.rows for run in selected if run.level > 0):
                old_row = self._look_up(above, key)
            if old_row and self.rules.engine == "first-row":
                continue
            merged = self._merge(
                [*rows, *([old_row] if old_row else [])], is_lookup_merge=is_lookup_merge
            )
            if self._produces_changelog(levels, output):
                changes += self._changes(selected, old_row, key, merged)
            if merged and (is_add(merged) or (above and not self.rules.deletion_vectors)):
                result.rows[key] = merged
        self.runs = [result, *above] if result.rows else above
        return changes

    def _look_up(self, above: Sequence[Run], key: Any) -> Row | None:
        """Return the older row of a key, which is then deleted by a deletion vector."""
        for run in above:
            if key in run.rows:
                return run.rows.pop(key) if self.rules.deletion_vectors else run.rows[key]
        return None

    def _produces_changelog(self, levels: set[int], output: int) -> bool:
        by = self.rules.producer
        return (by == "lookup" and 0 in levels) or (by == "full-compaction" and output == self.top)

    def _changes(
        self, selected: Sequence[Run], old_row: Row | None, key: Any, merged: Row | None
    ) -> list[Change]:
        """Return the changelog of a key from its old and its new row."""
        least = 1 if self.rules.producer == "lookup" else self.top
        holders = [run for run in selected if key in run.rows]
        if all(run.level >= least for run in holders):
            return []
        old = [run.rows[key] for run in holders if run.level >= least] + (
            [old_row] if old_row else []
        )
        before = old[0] if old and is_add(old[0]) else None
        after = merged if merged and is_add(merged) else None
        if before and self.rules.engine == "first-row":
            return []  # a first row never changes
        if before and after:
            same = all(before[name] == after[name] for name in self.rules.columns)
            if same and self.rules.deduplicates_changelog:
                return []
            return [("-U", before), ("+U", after)]
        if before or not after:
            return [("-D", before)] if before else []
        return [(after["_kind"] if self.rules.engine == "first-row" else "+I", after)]
