"""Merge engines: what becomes of the rows of one key.

See docs/format/merge-engines.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.format.options.core_options import (
    IGNORE_UPDATE_BEFORE,
    SEQUENCE_FIELD,
    SEQUENCE_FIELD_SORT_ORDER,
)
from paimon_orch.format.row.row_kind import RowKind, is_retract
from paimon_orch.format.schema import VALUE_KIND, TableSchema
from paimon_orch.merge.aggregate.registry import find_aggregate_function
from paimon_orch.merge.engine.record_level_expire import RecordLevelExpire
from paimon_orch.merge.engine.row_merge import (
    check_aggregation,
    check_partial_update,
    create_aggregation,
    create_partial_update,
    parse_sequence_groups,
)
from paimon_orch.merge.sort.sort_merge_reader import MergeBatch, SequenceOrder

# functions that may change a first value
_NON_NEUTRAL_FUNCTIONS = {"collect", "listagg", "nested_update", "nested_partial_update"}


@dataclass(frozen=True, slots=True)
class MergeEngine:
    """Merges the rows of each key of a step; made by :func:`create_merge_engine`."""

    schema: TableSchema

    @property
    def _name(self) -> str:
        return self.schema.typed_options.merge_engine

    @property
    def ignores_delete(self) -> bool:
        """Tell whether -D and -U rows have no effect at all (3.2)."""
        return self.schema.typed_options.ignores_delete

    @property
    def newest_row_wins(self) -> bool:
        """Tell whether the newest row replaces an older one whatever that one holds."""
        return self._name == "deduplicate" and not self.sequence.names and not self.ignores_delete

    @property
    def is_deduplicate(self) -> bool:
        """Tell whether what is left of a key is its newest row as it is."""
        return self._name == "deduplicate"

    @property
    def is_first_row(self) -> bool:
        """Tell whether later rows of a key are dropped."""
        return self._name == "first-row"

    @property
    def sequence(self) -> SequenceOrder:
        """Return how rows of one key are ordered before their sequence number."""
        options = self.schema.typed_options
        descending = options.get(SEQUENCE_FIELD_SORT_ORDER) == "descending"
        return SequenceOrder(tuple(options.get(SEQUENCE_FIELD)), descending)

    def accepted(self, rows: pa.Table) -> pa.Table:
        """Return the rows to write that have a say: the others get no sequence number and no place in a changelog."""
        kinds = rows.column(VALUE_KIND.name)
        if self.ignores_delete:
            dropped = is_retract(kinds)
        elif self.schema.typed_options.get(IGNORE_UPDATE_BEFORE):
            dropped = kinds.to_numpy() == int(RowKind.UPDATE_BEFORE)
        else:
            return rows
        return rows.filter(pa.array(~dropped)) if dropped.any() else rows

    def required_columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns to read so that ``names`` can be merged, in the order of the table."""
        schema = self.schema
        wanted = {*names, *schema.trimmed_primary_keys, *self.sequence.names}
        if self._name == "partial-update":
            for group in parse_sequence_groups(schema):
                wanted |= set(group.fields)
        return [name for name in schema.names if name in wanted]

    @property
    def _should_drop_retracts(self) -> bool:
        """Return whether retracts in files are left out; the other engines have rules of their own for them."""
        return self.ignores_delete and self._name in ("deduplicate", "first-row")

    @property
    def _can_change_single_rows(self) -> bool:
        """Return whether merging a single added row may change it."""
        if self._name == "partial-update":
            return bool(parse_sequence_groups(self.schema))
        names = {find_aggregate_function(self.schema, name) for name in self.schema.names}
        return bool(names & _NON_NEUTRAL_FUNCTIONS)

    def prepare(self, step: MergeBatch) -> MergeBatch:
        """Leave out the rows that have no say; keys of which none is left vanish."""
        if step.order is step.starts and not self._should_drop_retracts:
            return step  # one run alone
        if self.schema.typed_options.needs_lookup and self._name != "first-row":
            step = keep_newest_level(step)
        return drop_batch_retracts(step) if self._should_drop_retracts else step

    def merge(self, step: MergeBatch, *, settles: bool = False, deletes: bool = True) -> pa.Table:
        """Return one row for each key of a prepared step, in key order.

        A deleted key is a -D row, or without ``deletes`` no row. A key's only row passes through as it is, unless the
        merge ``settles`` it: compaction that looks up older rows folds each row as the engine says. A lone retract of
        an aggregation table becomes an insert, and a row without a sequence loses the columns of its group (3.1).
        """
        if not len(step.order):
            return step.rows.slice(0, 0)
        if self._name == "deduplicate" and step.order is not step.starts:
            chosen = step.newest_row_per_key
            if not deletes:  # before the columns are copied, not after
                chosen = chosen[~is_retract(step.rows.column(VALUE_KIND.name))[chosen]]
            return step.rows.take(pa.array(chosen))
        merged = self._merged(step, settles=settles)
        return merged if deletes else drop_retracts(merged)

    def _merged(self, step: MergeBatch, *, settles: bool) -> pa.Table:
        if self._name == "deduplicate":
            return step.rows  # one run alone: nothing to merge, nothing to move
        if self._name == "first-row":
            return _take_first_rows(step)
        folded = step.sizes > 1
        counts = np.ones(len(folded), bool) if settles else step.reduced_groups
        if counts is not None:
            changes = self._can_change_single_rows
            folded |= counts if changes else counts & _retract_mask(step)[step.starts]
        if step.order is step.starts and not folded.any():
            return step.rows
        return self._fold(step, folded)

    def _fold(self, step: MergeBatch, folded: Mask) -> pa.Table:
        """Fold the columns of some keys; the others have one row, which passes through as it is."""
        sizes = step.sizes
        several = np.flatnonzero(folded)
        if not len(several):
            return step.rows.take(pa.array(step.newest_row_per_key))
        make = create_aggregation if self._name == "aggregation" else create_partial_update
        rows = step.rows.take(pa.array(step.order[np.repeat(folded, sizes)]))
        fold = make(self.schema, rows, len(several))
        for groups, turn in iterate_in_lockstep(sizes[several]):
            fold.take(groups, turn)
        merged = fold.result(step.rows.schema)
        chosen = step.order[step.starts]
        chosen[several] = step.rows.num_rows + np.arange(len(several))
        return pa.concat_tables([step.rows, merged]).take(pa.array(chosen))


def create_merge_engine(schema: TableSchema) -> MergeEngine:
    """Return the merge engine of a table, its options checked."""
    if schema.typed_options.merge_engine == "partial-update":
        check_partial_update(schema)
    elif schema.typed_options.merge_engine == "aggregation":
        check_aggregation(schema)
    return MergeEngine(schema)


def check_merge_engine(schema: TableSchema) -> None:
    """Refuse a schema whose merge engine, aggregate functions or expiry could not work; says which rule it breaks."""
    if schema.primary_keys:
        create_merge_engine(schema)
        RecordLevelExpire.of(schema, now=0)


def iterate_in_lockstep(sizes: Indices) -> Iterator[tuple[Indices, Indices]]:
    """Yield the first rows of all groups, then the second rows of those that have one, and so on.

    The rows of a group lie together, ``sizes`` of them. Each item is (numbers of the groups, their rows).
    """
    by_size = np.argsort(-sizes, kind="stable")
    ordered, firsts = sizes[by_size], (np.cumsum(sizes) - sizes)[by_size]
    for turn in range(int(ordered[0])):
        alive = int(np.searchsorted(-ordered, -turn, side="left"))
        yield by_size[:alive], firsts[:alive] + turn


def filter_batch(step: MergeBatch, keep: Mask) -> MergeBatch:
    """Return the step without some of its rows; ``keep`` is in the order of ``step.order``."""
    if keep.all():
        return step
    group = np.repeat(np.arange(len(step.starts)), step.sizes)
    starts = np.flatnonzero(np.diff(group[keep], prepend=-1))
    return MergeBatch(
        rows=step.rows, keys=step.keys, order=step.order[keep], starts=starts, levels=step.levels
    )


def keep_newest_level(step: MergeBatch) -> MergeBatch:
    """Keep of each key's rows above level 0 the one of the lowest level: it is merged already (3.7)."""
    if not step.levels.any():
        return step
    levels = step.levels[step.order]
    above = np.where(levels > 0, levels, np.iinfo(np.int32).max)
    lowest = np.repeat(np.minimum.reduceat(above, step.starts), step.sizes)
    keep = (levels == 0) | (levels == lowest)
    if keep.all():
        return step
    return replace(
        filter_batch(step, keep), reduced_groups=~np.logical_and.reduceat(keep, step.starts)
    )


def _retract_mask(step: MergeBatch) -> Mask:
    mask: Mask = is_retract(step.rows.column(VALUE_KIND.name))[step.order]
    return mask


def drop_batch_retracts(step: MergeBatch) -> MergeBatch:
    """Leave out -U and -D rows."""
    return filter_batch(step, ~_retract_mask(step))


def _take_first_rows(step: MergeBatch) -> pa.Table:
    retracts = _retract_mask(step)
    if retracts.any():
        raise InputError(
            "'merge-engine' = 'first-row' takes no -U and -D rows; set 'ignore-delete' = 'true' to leave them out"
        )
    return step.rows.take(pa.array(step.order[step.starts]))


def drop_retracts(rows: pa.Table) -> pa.Table:
    """Return the rows that are there for a reader: no -U and no -D."""
    retracts = is_retract(rows.column(VALUE_KIND.name))
    return rows.filter(pa.array(~retracts)) if retracts.any() else rows
