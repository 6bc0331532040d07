"""Random histories of data-evolution tables, compared with a dictionary of rows by id."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.data_evolution import RowChanges, evolving_table, rows_by_id
from support.tables import deletion_vectors_of, table_of

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.compaction.materialize_deletion_vectors import materialize_deletion_vectors
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.reassign_row_ids import reassign_row_ids
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
# The nightly run has 1,000 histories; they take about ten minutes.
EXAMPLES = int(os.environ.get("DATA_EVOLUTION_HISTORIES", "12"))
OPTIONS = {
    "deletion_vectors__enabled": "true",
    "compaction__min__file_num": "3",
    "source__split__open_file_cost": "1 b",
    "target_file_size": "3 kb",
    "file__compression": "none",
}


@dataclass
class Model:
    """A table and its rows by id, as values by column."""

    table: Table
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    next_id: int = 0
    written: int = 0

    @property
    def names(self) -> list[str]:
        return self.table.load().schema.names

    def run(self, operation: str, draw: st.DataObject) -> None:
        getattr(self, operation)(draw)
        expected = {n: tuple(row[name] for name in self.names) for n, row in self.rows.items()}
        assert rows_by_id(self.table) == expected

    def append(self, draw: st.DataObject) -> None:
        """Append rows; the rows of a partition get consecutive ids, which the table reveals."""
        count, before = draw.draw(st.integers(1, 12)), rows_by_id(self.table)
        rows = [self._new_row(draw.draw(st.integers(0, 1))) for _ in range(count)]
        self.table.append(table_of(" ".join(self.names), rows))
        self._add_new(before, rows)

    def update(self, draw: st.DataObject) -> None:
        if self.rows:
            RowChanges(updated=self._draw_updates(draw)).commit(self.table)

    def merge(self, draw: st.DataObject) -> None:
        """Update, delete and insert rows in one commit."""
        if not self.rows:
            return
        before = rows_by_id(self.table)
        updated = self._draw_updates(draw)
        others = sorted(set(self.rows) - set(updated))
        deleted = draw.draw(st.sets(st.sampled_from(others), max_size=4)) if others else set()
        inserted = [self._new_row(n % 2) for n in range(draw.draw(st.integers(0, 3)))]
        RowChanges(updated=updated, deleted=deleted, inserted=inserted).commit(self.table)
        for row_id in deleted:
            del self.rows[row_id]
        self._add_new(before, inserted)

    def delete(self, draw: st.DataObject) -> None:
        value = draw.draw(st.integers(0, self.written))
        delete(self.table, EXECUTOR, f"a >= {value} AND a < {value + 5}")
        self.rows = {
            n: row
            for n, row in self.rows.items()
            if row["a"] is None or not value <= row["a"] < value + 5
        }

    def compact_minor(self, _draw: st.DataObject) -> None:
        compact(self.table, EXECUTOR)

    def compact_full(self, _draw: st.DataObject) -> None:
        """Compact until nothing is left to do: new files can be small enough to be joined again."""
        while (result := compact(self.table, EXECUTOR, strategy="full")).snapshot_id:
            assert result.files_after < result.files_before

    def materialize(self, _draw: st.DataObject) -> None:
        """Remove deleted rows: some rows get new ids, all values stay the same."""
        before = self.rows
        result = materialize_deletion_vectors(self.table, EXECUTOR)
        assert deletion_vectors_of(self.table) == {}
        after = rows_by_id(self.table)
        moved = sorted(set(before) - set(after))
        assert bool(result.snapshot_id) or not moved
        assert all(n >= self.next_id for n in set(after) - set(before))
        self.rows = {n: dict(zip(self.names, row, strict=True)) for n, row in after.items()}
        assert sorted(map(str, self.rows.values())) == sorted(map(str, before.values()))
        snapshot = self.table.snapshot()
        assert snapshot is not None
        self.next_id = snapshot.next_row_id or 0

    def reassign(self, _draw: st.DataObject) -> None:
        """Give rows new ids, in the order of the old ones within a partition."""
        result = reassign_row_ids(self.table)
        if result.snapshot_id is None:
            return
        before, after = self.rows, rows_by_id(self.table)
        self.rows = {n: dict(zip(self.names, row, strict=True)) for n, row in after.items()}
        for partition in (0, 1):
            old, new = (
                [row for _, row in sorted(rows.items()) if row["p"] == partition]
                for rows in (before, self.rows)
            )
            assert old == new
        assert result.plan.reassignment is not None
        self.next_id = result.plan.reassignment.next_row_id

    def add_column(self, _draw: st.DataObject) -> None:
        name = f"c{len(self.names)}"
        location = str(Path(self.table.paths.root).parents[1])
        catalog = Catalog(location)
        catalog.alter_table("db.t", [AddColumn(column=name, type="BIGINT")])
        self.table = catalog.table("db.t")
        for row in self.rows.values():
            row[name] = None

    def expire(self, _draw: st.DataObject) -> None:
        expire_snapshots(self.table, retain_max=1, retain_min=1)

    def _draw_updates(self, draw: st.DataObject) -> Mapping[int, Mapping[str, object]]:
        columns = sorted(draw.draw(st.sets(st.sampled_from(self.names[1:]), min_size=1)))
        ids = draw.draw(st.sets(st.sampled_from(sorted(self.rows)), min_size=1, max_size=8))
        updates = {}
        for row_id in sorted(ids):
            self.written += 1
            value = None if draw.draw(st.integers(0, 4)) == 0 else self.written
            updates[row_id] = dict.fromkeys(columns, value)
            self.rows[row_id] |= updates[row_id]
        return updates

    def _new_row(self, partition: int) -> tuple[int, ...]:
        self.written += 1
        return (partition, *(self.written for _ in self.names[1:]))

    def _add_new(self, before: Mapping[int, object], rows: list[tuple[int, ...]]) -> None:
        after = rows_by_id(self.table)
        added = {n: row for n, row in after.items() if n not in before}
        assert sorted(added) == list(range(self.next_id, self.next_id + len(rows)))
        assert sorted(added.values()) == sorted(rows)
        self.next_id += len(rows)
        for row_id, row in added.items():
            self.rows[row_id] = dict(zip(self.names, row, strict=True))


OPERATIONS = (
    *("append", "update", "merge", "delete") * 2,
    *("compact_minor", "compact_full", "materialize", "reassign"),
    *("add_column", "expire"),
)


@pytest.mark.slow
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(operations=st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=12), draw=st.data())
def test_rows_and_their_ids_are_those_of_the_model(
    operations: list[str], draw: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = evolving_table(Path(folder), "p INT, a BIGINT, b BIGINT", ["p"], **OPTIONS)
        model = Model(table)
        for operation in ["append", *operations]:
            model.run(operation, draw)
        assert check(model.table, deep=True).findings == ()
