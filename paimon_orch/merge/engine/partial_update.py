"""The merge engine ``partial-update``, with its sequence groups.

See docs/format/merge-engines.md#partial-update.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Indices, Mask, to_arrow_array, to_numpy
from paimon_orch.format.options.core_options import (
    PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE,
    PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.aggregate.registry import (
    ColumnAggregation,
    find_aggregate_function,
    find_aggregator_factory,
)
from paimon_orch.merge.engine.merge_function import (
    MergeFunction,
    MergeFunctionFactory,
    RowsOfGroups,
    row_kind_masks,
)
from paimon_orch.merge.sort.key_order import to_comparable_column
from paimon_orch.merge.sort.sequence_order import compute_dense_rank


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """``fields.<sequence>.sequence-group``: columns that rows of older sequences do not change."""

    sequence: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """Return all columns of the group."""
        return *self.sequence, *self.columns


def parse_sequence_groups(schema: TableSchema) -> list[SequenceGroup]:
    """Return the sequence groups of a partial-update table, checked."""
    groups, protected, sequences = [], set[str](), set[str]()
    for key, value in schema.options.items():
        if not (key.startswith("fields.") and key.endswith(".sequence-group")):
            continue
        group = _parse_sequence_group(schema, key, value)
        names, columns = group.sequence, group.columns
        duplicates = (protected | sequences) & set(columns) | protected & set(names)
        if duplicates or len(set(group.fields)) < len(group.fields):
            raise InputError(
                f"option {key!r}: {', '.join(sorted(duplicates or set(columns)))} is in two "
                "sequence groups"
            )
        protected |= set(columns)
        sequences |= set(names)
        groups.append(group)
    return groups


def _parse_sequence_group(schema: TableSchema, key: str, value: str) -> SequenceGroup:
    names = key.removeprefix("fields.").removesuffix(".sequence-group").split(",")
    columns = [name.strip() for name in value.split(",") if name.strip()]
    for name in (*names, *columns):
        schema.field(name)
        if name in schema.primary_keys:
            raise InputError(f"option {key!r}: column {name!r} belongs to the primary key")
    return SequenceGroup(tuple(names), tuple(columns))


def check_partial_update(schema: TableSchema) -> None:
    """Refuse contradictory options of a partial-update table."""
    options, groups = schema.typed_options, parse_sequence_groups(schema)
    sequences = {name for group in groups for name in group.sequence}
    protected = {name for group in groups for name in group.columns}
    removing = options.get(PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP)
    if unknown := sorted(set(removing) - sequences):
        raise InputError(
            f"'partial-update.remove-record-on-sequence-group' names {', '.join(unknown)}, which "
            "is not a sequence field of a sequence group"
        )
    if options.get(PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE) and groups:
        raise InputError(
            "'partial-update.remove-record-on-delete' cannot be combined with sequence groups; "
            "name the groups whose deletes remove a record in "
            "'partial-update.remove-record-on-sequence-group'"
        )
    for name in schema.value_names:
        function = find_aggregate_function(schema, name)
        if function is None or name in sequences:
            continue
        find_aggregator_factory(schema, name, function)
        if function != "last_non_null_value" and name not in protected:
            raise InputError(
                f"column {name!r}: in a partial-update table aggregate function {function!r} needs "
                "a sequence group"
            )


@dataclass(slots=True, kw_only=True)
class _GroupState:
    """The sequence ranks of all rows of a sequence group, and the accepted rank of each key."""

    group: SequenceGroup
    ranks: Indices
    has_sequence: Mask
    accepted: Indices
    aggregated_columns: frozenset[str]
    removes_record: bool


@dataclass(slots=True, kw_only=True)
class PartialUpdateMergeFunction(MergeFunction):
    """Replaces values by later non-null ones; in sequence groups, by those of newer sequences."""

    group_states: Sequence[_GroupState] = ()
    remove_on_delete: bool = False
    ignores_delete: bool = False
    ungrouped_columns: tuple[str, ...] = ()
    added: Mask = field(init=False)
    initialized: Mask = field(init=False)

    def __post_init__(self) -> None:
        super(PartialUpdateMergeFunction, self).__post_init__()
        self.added, self.initialized = np.zeros(self.groups, bool), np.zeros(self.groups, bool)
        self.deleted = np.ones(self.groups, bool)  # all keys are deleted until a row is added

    def take(self, groups: Indices, rows: Indices) -> None:
        """Add or retract the rows."""
        retracts = self.retracts[rows]
        if retracts.any():
            self._retract(groups[retracts], rows[retracts])
            groups, rows = groups[~retracts], rows[~retracts]
        if not len(groups):
            return
        self.last[groups] = rows
        self.deleted[groups], self.added[groups], self.initialized[groups] = False, True, True
        for name in self.ungrouped_columns:
            self.aggregators[name].add(groups, rows)
        for state in self.group_states:
            self._update_group(state, groups, rows, retract=False)

    def _update_group(
        self, state: _GroupState, groups: Indices, rows: Indices, *, retract: bool
    ) -> None:
        some = state.has_sequence[rows]
        groups, rows = groups[some], rows[some]
        fresh = state.ranks[rows] >= state.accepted[groups]
        state.accepted[groups[fresh]] = state.ranks[rows[fresh]]
        for name in state.group.sequence:
            self.aggregators[name].reset(groups[fresh], rows[fresh])
        for name in state.group.columns:
            aggregator, is_aggregated = self.aggregators[name], name in state.aggregated_columns
            if not retract:
                aggregator.add(groups[fresh], rows[fresh])
            elif is_aggregated:
                aggregator.take_back(groups[fresh], rows[fresh])
            else:
                aggregator.clear(groups[fresh])
            if is_aggregated:
                merge_older = aggregator.take_back if retract else aggregator.add_older
                merge_older(groups[~fresh], rows[~fresh])

    def _retract(self, groups: Indices, rows: Indices) -> None:
        # if the first row of a key is a retract, the key starts with the values of this row
        first = ~self.initialized[groups]
        self._start(groups[first], rows[first])
        if self.ignores_delete:
            self.last[groups[first]] = rows[first]
            return
        self.last[groups] = rows
        if self.group_states:
            self._retract_groups(groups, rows)
        elif self.remove_on_delete:
            deletes = self.deletes[rows]  # -U rows have no effect
            self.apply_delete(groups[deletes], rows[deletes])
        else:
            raise InputError(
                "'merge-engine' = 'partial-update' does not accept -U and -D rows without "
                "'ignore-delete', 'partial-update.remove-record-on-delete' or a sequence group"
            )

    def _retract_groups(self, groups: Indices, rows: Indices) -> None:
        self.deleted[groups] = ~self.added[groups]
        active = np.ones(len(groups), bool)  # keys that no sequence group has deleted
        for state in self.group_states:
            some = active & state.has_sequence[rows]
            fresh = some & (state.ranks[rows] >= state.accepted[groups])
            if state.removes_record:
                removed = fresh & self.deletes[rows]
                self._start(groups[removed], rows[removed])
                self.deleted[groups[removed]] = True
                active &= ~removed
            updated = active & some
            self._update_group(state, groups[updated], rows[updated], retract=True)

    def _start(self, groups: Indices, rows: Indices) -> None:
        """Replace the whole row by the values of a retract."""
        for aggregator in self.aggregators.values():
            aggregator.reset(groups, rows)
        for state in self.group_states:
            state.accepted[groups] = np.where(state.has_sequence[rows], state.ranks[rows], 0)
        self.initialized[groups] = True


def prepare_partial_update(schema: TableSchema) -> MergeFunctionFactory:
    """Return a factory of the merge functions of a partial-update table."""
    options = schema.typed_options
    sequence_groups = parse_sequence_groups(schema)
    sequences = {name for group in sequence_groups for name in group.sequence}
    grouped = {name for group in sequence_groups for name in group.columns}
    aggregations = []
    for name in schema.value_names:
        function = None if name in sequences else find_aggregate_function(schema, name)
        default_function = "last_value" if name in sequences | grouped else "last_non_null_value"
        aggregations.append(ColumnAggregation.of(schema, name, function or default_function))
    aggregated = {name for name in grouped if find_aggregate_function(schema, name) is not None}
    removing = set(options.get(PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP))
    remove_on_delete = options.get(PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE)
    ignores_delete = options.ignores_delete

    def create(rows: RowsOfGroups, groups: int) -> MergeFunction:
        aggregators = rows.create_aggregators(aggregations, groups)
        states = []
        for group in sequence_groups:
            ranks, has_sequence = _compute_sequence_ranks(rows, group)
            state = _GroupState(
                group=group,
                ranks=ranks,
                has_sequence=has_sequence,
                accepted=np.zeros(groups, np.int64),
                aggregated_columns=frozenset(aggregated & set(group.columns)),
                removes_record=bool(removing & set(group.sequence)),
            )
            states.append(state)
        retracts, deletes = row_kind_masks(rows)
        return PartialUpdateMergeFunction(
            rows=rows,
            groups=groups,
            aggregators=aggregators,
            retracts=retracts,
            deletes=deletes,
            group_states=states,
            remove_on_delete=remove_on_delete,
            ignores_delete=ignores_delete,
            ungrouped_columns=tuple(
                name for name in aggregators if name not in sequences | grouped
            ),
        )

    return create


def _compute_sequence_ranks(rows: RowsOfGroups, group: SequenceGroup) -> tuple[Indices, Mask]:
    """Return the rank of every row's sequence, from 1, and a mask of the rows that have one."""
    columns = [to_comparable_column(rows.column(name).values) for name in group.sequence]
    some = np.logical_or.reduce([to_numpy(c.is_valid()) for c in columns])
    combined = np.zeros(len(rows.indices), np.int64)
    for column in columns:
        ranks = compute_dense_rank(column)
        combined = compute_dense_rank(to_arrow_array(combined * (ranks.max(initial=0) + 1) + ranks))
    return combined, some
