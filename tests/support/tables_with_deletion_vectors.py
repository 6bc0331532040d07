"""Tables with deletion vectors, for tests of compaction."""

from __future__ import annotations

from pathlib import Path

from support.tables import new_table, small_batches, table_of

from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()


def deletion_vector_table(root: Path, **options: str) -> Table:
    """Create an empty table with deletion vectors, which has five rows in a batch."""
    return small_batches(new_table(root, deletion_vectors__enabled="true", **options), 5)


def upsert_numbers(table: Table, numbers: range, value: str) -> None:
    """Upsert a value for each key."""
    table.upsert(table_of("k v", [(number, value) for number in numbers]))


def compacted_deletion_vector_table(root: Path, **options: str) -> Table:
    """Create a table with 100 keys on the highest level."""
    table = deletion_vector_table(root, **options)
    upsert_numbers(table, range(100), "old")
    compact(table, EXECUTOR)
    return table
