"""The merge engine ``aggregation``.

See docs/format/aggregate-functions.md.
"""

from dataclasses import dataclass

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Indices
from paimon_orch.format.options.core_options import (
    AGGREGATION_REMOVE_RECORD_ON_DELETE,
    FIELD_IGNORE_RETRACT,
    SEQUENCE_FIELD,
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


def check_aggregation(schema: TableSchema) -> None:
    """Refuse contradictory options of an aggregation table."""
    options = schema.typed_options
    removes = options.get(AGGREGATION_REMOVE_RECORD_ON_DELETE)
    for name in schema.value_names:
        _aggregate_function(schema, name)
        if removes and options.get(FIELD_IGNORE_RETRACT.named(name)):
            raise InputError(
                f"'fields.{name}.ignore-retract' cannot be combined with "
                "'aggregation.remove-record-on-delete'"
            )


def _aggregate_function(schema: TableSchema, name: str) -> str:
    """Return the checked aggregate function of a column of an aggregation table."""
    if name in schema.typed_options.get(SEQUENCE_FIELD):
        return "last_value"
    function = find_aggregate_function(schema, name) or "last_non_null_value"
    find_aggregator_factory(schema, name, function)
    return function


@dataclass(slots=True, kw_only=True)
class AggregateMergeFunction(MergeFunction):
    """Merges each column by its aggregate function."""

    remove_on_delete: bool = False

    def take(self, groups: Indices, rows: Indices) -> None:
        """Add or retract the rows."""
        self.last[groups] = rows
        self.deleted[groups] = False
        retracts = self.retracts[rows]
        restarts = self.deletes[rows] & self.remove_on_delete
        adds = ~retracts
        retracted = retracts & ~restarts
        for aggregator in self.aggregators.values():
            if adds.any():
                aggregator.add(groups[adds], rows[adds])
            if retracted.any():
                aggregator.take_back(groups[retracted], rows[retracted])
        if restarts.any():
            self.apply_delete(groups[restarts], rows[restarts])


def prepare_aggregation(schema: TableSchema) -> MergeFunctionFactory:
    """Return a factory of the merge functions of an aggregation table."""
    aggregations = [
        ColumnAggregation.of(schema, name, _aggregate_function(schema, name))
        for name in schema.value_names
    ]
    removes = schema.typed_options.get(AGGREGATION_REMOVE_RECORD_ON_DELETE)

    def create(rows: RowsOfGroups, groups: int) -> MergeFunction:
        retracts, deletes = row_kind_masks(rows)
        return AggregateMergeFunction(
            rows=rows,
            groups=groups,
            aggregators=rows.create_aggregators(aggregations, groups),
            retracts=retracts,
            deletes=deletes,
            remove_on_delete=removes,
        )

    return create
