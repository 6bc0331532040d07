"""Selects what row-level changes do by the kind of table."""

from collections.abc import Mapping

from paimon_orch.format.schema import TableSchema
from paimon_orch.format.table_kind import TableKind
from paimon_orch.steps.row_level.append_target import AppendTarget, RowTrackingTarget
from paimon_orch.steps.row_level.data_evolution_target import DataEvolutionTarget
from paimon_orch.steps.row_level.primary_key_target import PrimaryKeyTarget
from paimon_orch.steps.row_level.row_target import RowTarget

_TARGETS: Mapping[TableKind, type[RowTarget]] = {
    TableKind.APPEND: AppendTarget,
    TableKind.ROW_TRACKING: RowTrackingTarget,
    TableKind.DATA_EVOLUTION: DataEvolutionTarget,
    TableKind.PRIMARY_KEY: PrimaryKeyTarget,
}


def find_target(schema: TableSchema) -> RowTarget:
    """Return the target of the kind of table that a schema describes."""
    return _TARGETS[schema.kind](schema)
