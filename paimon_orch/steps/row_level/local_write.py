"""Writes and commits the changed rows of an update or a merge in this process."""

from collections.abc import Collection, Iterable

import pyarrow as pa

from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.steps.row_level.row_level_write import RowLevelPlan, RowLevelResult
from paimon_orch.steps.row_level.task_result import RowLevelTaskResult
from paimon_orch.table.commit.row_level_conflicts import ReadGuard
from paimon_orch.table.table import Table


def write_in_process(
    table: Table,
    planned: RowLevelPlan,
    changes: Iterable[pa.RecordBatch],
    updated: Collection[str],
    *,
    guard: ReadGuard | None = None,
) -> RowLevelResult:
    """Write changed rows with their addresses and kinds, and commit them in one snapshot.

    :param updated: the columns that get new values in existing rows
    :param guard: as in :func:`paimon_orch.steps.row_level.row_level_write.commit`
    """
    writing = row_level.plan_writing(table, planned)
    if planned.row_ranges:
        update = row_level.plan_column_update(planned, writing, updated)
        encoded = update.run(update.prepare(changes))
    else:
        encoded = row_level.write_changes(writing, row_level.prepare_changes(writing, changes))
    return row_level.commit(
        table,
        planned,
        [RowLevelTaskResult.decode(encoded)],
        executor=InProcessExecutor(),
        guard=guard,
        hashes=writing.hashes,
    )
