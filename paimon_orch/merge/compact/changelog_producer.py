"""The changelog of a compaction: the changelog producers ``lookup`` and ``full-compaction``.

See docs/format/changelog-producers.md.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Indices, Mask, to_arrow_array
from paimon_orch.format.java_equality import find_changed_rows
from paimon_orch.format.options.core_options import (
    CHANGELOG_PRODUCER_IGNORE_DELETE,
    CHANGELOG_PRODUCER_IGNORE_UPDATE_BEFORE,
    CHANGELOG_PRODUCER_ROW_DEDUPLICATE,
    CHANGELOG_PRODUCER_ROW_DEDUPLICATE_IGNORE_FIELDS,
)
from paimon_orch.format.row.row_kind import RowKind, is_retract
from paimon_orch.format.schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from paimon_orch.merge.sort.sort_merge_reader import MergeBatch

_NO_ROW = -1


@dataclass(frozen=True, slots=True)
class ChangelogProducer:
    """Produces the changes of merged keys.

    ``lookup`` compares the merged row with the row above level 0, for keys with rows on level 0.
    ``full-compaction`` compares it with the row on the highest level, for keys with rows below it.
    """

    schema: TableSchema
    max_level: int

    def compute_changes(self, step: MergeBatch, merged: pa.Table) -> pa.Table:
        """Return +I, -U, +U and -D rows in key order; ``merged`` has one row per group of ``step``.

        As in Java Paimon, changelog rows of ``first-row`` keep the row kind of the written row. The
        table's options can leave out -U and -D rows.
        """
        options = self.schema.typed_options
        levels, is_lookup = step.levels[step.order], options.changelog_producer == "lookup"
        is_before = levels > 0 if is_lookup else levels == self.max_level
        touched = np.logical_or.reduceat(~is_before, step.starts)
        before = _last_flagged_row(step, is_before)
        before[before != _NO_ROW] = np.where(
            is_retract(step.rows.column(VALUE_KIND.name))[before[before != _NO_ROW]],
            _NO_ROW,
            before[before != _NO_ROW],
        )
        existed = before != _NO_ROW
        exists = ~is_retract(merged.column(VALUE_KIND.name))
        inserted = np.flatnonzero(touched & ~existed & exists)
        deleted = np.flatnonzero(touched & existed & ~exists)
        updated = np.flatnonzero(touched & existed & exists)
        first_row = options.merge_engine == "first-row"
        if first_row:
            updated = updated[:0]  # the row of an existing key never changes
        updated = self._drop_unchanged_updates(updated, step.rows, before, merged)
        replaced = updated[:0] if options.get(CHANGELOG_PRODUCER_IGNORE_UPDATE_BEFORE) else updated
        if options.get(CHANGELOG_PRODUCER_IGNORE_DELETE):
            deleted = deleted[:0]
        groups = np.concatenate((inserted, deleted, replaced, updated))
        parts = [
            _take_with_kind(merged, inserted, None if first_row else RowKind.INSERT),
            _take_with_kind(step.rows, before[deleted], RowKind.DELETE),
            _take_with_kind(step.rows, before[replaced], RowKind.UPDATE_BEFORE),
            _take_with_kind(merged, updated, RowKind.UPDATE_AFTER),
        ]
        order = np.argsort(groups, kind="stable")  # a stable sort keeps -U before +U
        return pa.concat_tables(parts).take(to_arrow_array(order))

    def _drop_unchanged_updates(
        self, groups: Indices, rows: pa.Table, before: Indices, merged: pa.Table
    ) -> Indices:
        """Drop updates that change no value, if ``changelog-producer.row-deduplicate`` is set."""
        options = self.schema.typed_options
        if not options.get(CHANGELOG_PRODUCER_ROW_DEDUPLICATE) or not len(groups):
            return groups
        ignored = {
            SEQUENCE_NUMBER.name,
            VALUE_KIND.name,
            *options.get(CHANGELOG_PRODUCER_ROW_DEDUPLICATE_IGNORE_FIELDS),
        }
        names = [name for name in merged.column_names if name not in ignored]
        old = rows.select(names).take(to_arrow_array(before[groups]))
        new = merged.select(names).take(to_arrow_array(groups))
        return groups[find_changed_rows(old, new)]


def _last_flagged_row(step: MergeBatch, flags: Mask) -> Indices:
    """Return the last flagged row of each group, or -1; flags are in the order of the step."""
    positions = np.where(flags, np.arange(len(flags)), _NO_ROW)
    last = np.maximum.reduceat(positions, step.starts)
    rows: Indices = np.where(last == _NO_ROW, _NO_ROW, step.order[last])
    return rows


def _take_with_kind(rows: pa.Table, indices: Indices, kind: RowKind | None) -> pa.Table:
    """Return rows with the given row kind; None keeps the row kind of each row."""
    selected = rows.take(to_arrow_array(indices))
    if kind is None:
        return selected
    kinds = to_arrow_array(np.full(selected.num_rows, int(kind), np.int8))
    index = selected.column_names.index(VALUE_KIND.name)
    return selected.set_column(index, selected.schema.field(index), kinds)
