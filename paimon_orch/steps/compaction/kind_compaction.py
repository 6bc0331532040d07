"""What differs between the kinds of tables in a compaction: one module for each kind."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.table_kind import TableKind
from paimon_orch.steps.common.bucket_scan import BucketScan, Judge
from paimon_orch.steps.compaction.plan import (
    CompactionPlan,
    CompactionResult,
    CompactionUnit,
    CompactRequest,
)
from paimon_orch.steps.compaction.policy import CompactionStrategy
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.commit_message import CommitMessage


class KindCompaction(Protocol):
    """The functions that a module for a kind of table has."""

    def check_compactable(self, schema: TableSchema, /) -> None:
        """Raise an error for tables that cannot be compacted with their options."""

    def select_buckets(
        self, buckets: LiveBuckets, strategy: CompactionStrategy, now: datetime, /
    ) -> LiveBuckets:
        """Return the buckets that may have work, without objects for files."""

    def build_judge(self, scan: BucketScan, request: CompactRequest, /) -> Judge:
        """Return what selects the buckets of a plan."""

    def plan_units(
        self,
        reader: FileReader,
        scan: BucketScan,
        chosen: LiveBuckets,
        strategy: CompactionStrategy,
        /,
    ) -> Sequence[CompactionUnit]:
        """Return the units of chosen buckets; reads only metadata."""

    def plan(
        self, state: TableState, request: CompactRequest, scan: BucketScan | None, /
    ) -> CompactionPlan:
        """Plan a compaction of the latest snapshot; reads only metadata.

        Without a scan, the table has no snapshot.
        """

    def commit(
        self, table: Table, plan: CompactionPlan, messages: Sequence[CommitMessage], /
    ) -> CompactionResult:
        """Commit the results of all units in one snapshot."""


def find_compaction(schema: TableSchema) -> KindCompaction:
    """Return the module for a kind of table; imports no other one."""
    if schema.kind is TableKind.PRIMARY_KEY:
        from paimon_orch.steps.compaction import primary_key

        return primary_key
    from paimon_orch.steps.compaction import append

    return append
