"""Merge engines: how the rows of one key become one row.

See docs/format/merge-engines.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Indices, Mask, to_arrow_array
from paimon_orch.format.options.core_options import SEQUENCE_FIELD, SEQUENCE_FIELD_SORT_ORDER
from paimon_orch.format.row.row_kind import is_retract
from paimon_orch.format.schema import VALUE_KIND, TableSchema
from paimon_orch.format.schema_definition import check_sequence_fields
from paimon_orch.merge.aggregate.registry import find_aggregate_function
from paimon_orch.merge.engine.aggregation import check_aggregation, prepare_aggregation
from paimon_orch.merge.engine.merge_function import (
    MergeFunction,
    MergeFunctionFactory,
    RowsOfGroups,
)
from paimon_orch.merge.engine.partial_update import (
    check_partial_update,
    parse_sequence_groups,
    prepare_partial_update,
)
from paimon_orch.merge.engine.record_level_expire import RecordLevelExpire
from paimon_orch.merge.engine.retracts import (
    drop_ignored_rows,
    drop_retracts,
    find_retracts,
    should_drop_retracts,
)
from paimon_orch.merge.sort.sequence_order import SequenceOrder
from paimon_orch.merge.sort.sort_merge_reader import MergeBatch, filter_batch

# these functions can change a value even if it is the only one of its key
_NON_NEUTRAL_FUNCTIONS = {"collect", "listagg", "nested_update", "nested_partial_update"}


@dataclass(frozen=True)
class MergeEngine:
    """Merges the rows of each key of a batch; created by :func:`create_merge_engine`."""

    schema: TableSchema

    are_levels_ordered: bool = True
    """Whether lookups have merged the rows of a level with those of higher levels.

    Not if files of several partitions are merged, or files from before there were lookups."""

    @property
    def _name(self) -> str:
        return self.schema.typed_options.merge_engine

    @property
    def ignores_delete(self) -> bool:
        """Return whether -D and -U rows have no effect."""
        return self.schema.typed_options.ignores_delete

    @property
    def newest_row_wins(self) -> bool:
        """Return whether the newest row always replaces older rows of its key."""
        return self._name == "deduplicate" and not self.sequence.names and not self.ignores_delete

    @property
    def is_deduplicate(self) -> bool:
        """Return whether the merged row of a key is its newest row."""
        return self._name == "deduplicate"

    @property
    def is_first_row(self) -> bool:
        """Return whether later rows of a key are dropped."""
        return self._name == "first-row"

    @property
    def sequence(self) -> SequenceOrder:
        """Return ``sequence.field``, which orders rows of one key; ties use the sequence number.

        Raises :class:`InputError` if stored options name what cannot order rows.
        """
        check_sequence_fields(self.schema)
        options = self.schema.typed_options
        descending = options.get(SEQUENCE_FIELD_SORT_ORDER) == "descending"
        return SequenceOrder(tuple(options.get(SEQUENCE_FIELD)), descending)

    def drop_ignored_rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows to write; ignored rows get no sequence number and no changelog."""
        return drop_ignored_rows(rows, self.schema)

    def required_columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns that a merge of ``names`` needs, in the order of the table."""
        schema = self.schema
        required = {*names, *schema.trimmed_primary_keys, *self.sequence.names}
        if self._name == "partial-update":
            for group in parse_sequence_groups(schema):
                required |= set(group.fields)
        return [name for name in schema.names if name in required]

    @cached_property
    def _create_merge_function(self) -> MergeFunctionFactory:
        is_aggregation = self._name == "aggregation"
        return (prepare_aggregation if is_aggregation else prepare_partial_update)(self.schema)

    @cached_property
    def can_change_single_rows(self) -> bool:
        """Return whether merging a single added row can change it."""
        if self._name == "partial-update":
            return bool(parse_sequence_groups(self.schema))
        names = {find_aggregate_function(self.schema, name) for name in self.schema.names}
        return bool(names & _NON_NEUTRAL_FUNCTIONS)

    def prepare(self, step: MergeBatch) -> MergeBatch:
        """Drop ignored rows; a key with no remaining row is dropped."""
        if step.is_single_run and not should_drop_retracts(self.schema):
            return step
        has_lookup = self.schema.typed_options.needs_lookup and self._name != "first-row"
        if has_lookup and self.are_levels_ordered:
            step = keep_newest_level(step)
        return (
            filter_batch(step, ~find_retracts(step)) if should_drop_retracts(self.schema) else step
        )

    def merge(
        self, step: MergeBatch, *, merges_single_rows: bool = False, deletes: bool = True
    ) -> pa.Table:
        """Return one row for each key of a prepared batch, in key order.

        :param merges_single_rows: also merge keys with one row, as in lookup compactions: a single
            retract of an aggregation table becomes an insert, and a row without a sequence loses
            the columns of its group. By default the only row of a key is returned unchanged.
        :param deletes: whether to return a -D row for a deleted key
        """
        if not len(step.order):
            return step.rows.slice(0, 0)
        if self._name == "deduplicate" and not step.is_single_run:
            return _take_rows(step.rows, step.newest_row_per_key, deletes=deletes)
        if self._name == "deduplicate":  # the rows of a single run have distinct keys
            return step.rows if deletes else drop_retracts(step.rows)
        if self._name == "first-row":
            return _take_first_rows(step)
        is_merged = step.sizes > 1
        counts = np.ones(len(is_merged), bool) if merges_single_rows else step.reduced_groups
        if counts is not None:
            changes = self.can_change_single_rows
            is_merged |= counts if changes else counts & find_retracts(step)[step.starts]
        if step.is_single_run and not is_merged.any():
            return step.rows if deletes else drop_retracts(step.rows)
        row_indices = step.order[step.starts]
        if not is_merged.any():
            return _take_rows(step.rows, row_indices, deletes=deletes)
        function = self._merge_groups(step, is_merged)
        return function.result(row_indices, np.flatnonzero(is_merged), deletes=deletes)

    def _merge_groups(self, step: MergeBatch, is_merged: Mask) -> MergeFunction:
        """Return the state after the rows of some keys."""
        sizes = step.sizes
        rows = RowsOfGroups(step.rows, step.order[np.repeat(is_merged, sizes)])
        function = self._create_merge_function(rows, int(is_merged.sum()))
        for groups, turn in iterate_in_lockstep(sizes[is_merged]):
            function.take(groups, turn)
        return function


def create_merge_engine(schema: TableSchema) -> MergeEngine:
    """Return the merge engine of a table after a check of its options."""
    if schema.typed_options.merge_engine == "partial-update":
        check_partial_update(schema)
    elif schema.typed_options.merge_engine == "aggregation":
        check_aggregation(schema)
    return MergeEngine(schema)


def check_merge_engine(schema: TableSchema) -> None:
    """Refuse a schema with an invalid merge engine, aggregate function or expiration."""
    if schema.primary_keys:
        create_merge_engine(schema)
        RecordLevelExpire.of(schema, now=0)


def _take_rows(rows: pa.Table, indices: Indices, *, deletes: bool) -> pa.Table:
    if not deletes:  # filtering the indices is faster than filtering the rows
        indices = indices[~is_retract(rows.column(VALUE_KIND.name))[indices]]
    return pc.take(rows, to_arrow_array(indices), boundscheck=False)


def iterate_in_lockstep(sizes: Indices) -> Iterator[tuple[Indices, Indices]]:
    """Yield the first rows of all groups, then the second rows of larger groups, and so on.

    The rows of a group are adjacent; ``sizes`` are the numbers of rows. Each item is (group
    indices, row indices).
    """
    by_size = np.argsort(-sizes, kind="stable")
    ordered, firsts = sizes[by_size], (np.cumsum(sizes) - sizes)[by_size]
    for turn in range(int(ordered[0])):
        active = int(np.searchsorted(-ordered, -turn, side="left"))
        yield by_size[:active], firsts[:active] + turn


def keep_newest_level(step: MergeBatch) -> MergeBatch:
    """Drop rows above level 0 except those of each key's lowest level, which are already merged.

    See docs/format/lookup-compaction.md.
    """
    if not step.levels.any():
        return step
    levels = step.levels[step.order]
    upper_levels = np.where(levels > 0, levels, np.iinfo(np.int32).max)
    lowest = np.repeat(np.minimum.reduceat(upper_levels, step.starts), step.sizes)
    keep = (levels == 0) | (levels == lowest)
    if keep.all():
        return step
    return replace(
        filter_batch(step, keep), reduced_groups=~np.logical_and.reduceat(keep, step.starts)
    )


def _take_first_rows(step: MergeBatch) -> pa.Table:
    retracts = find_retracts(step)
    if retracts.any():
        raise InputError(
            "'merge-engine' = 'first-row' does not accept -U and -D rows; set 'ignore-delete' = "
            "'true' to drop them"
        )
    return step.rows.take(to_arrow_array(step.order[step.starts]))
