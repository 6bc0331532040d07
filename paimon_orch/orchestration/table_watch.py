"""Watches a table: what changed since a cursor, and which partitions are due, as JSON values."""

from dataclasses import dataclass, field, replace

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import NotFoundError
from paimon_orch.format.options.blocking_options import NO_ALLOWANCES, Allowances
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.orchestration.changes_since_cursor import (
    ChangesSinceCursor,
    CompactionDecider,
    collect_changes,
)
from paimon_orch.orchestration.cursor import Cursor
from paimon_orch.orchestration.table_tick import find_compaction_refusal, open_table_with_news
from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionPolicy
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

MAX_PARTITIONS = 1000
"""The number of due partitions in one report; the others follow in the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNews:
    """What one evaluation of a table found."""

    table: str
    cursor: Cursor
    """The next cursor; due partitions that are not in :attr:`due` are pending in it."""
    data_snapshots: tuple[int, ...] = ()
    """The ids of the new snapshots that changed data; only the newest if all was evaluated."""
    whole_table_reason: str | None = None
    """The reason to evaluate all partitions, or None if only changed ones were evaluated."""
    due: tuple[CompactionDecision, ...] = ()
    """The partitions to compact, with the reasons."""
    refusal: str = ""
    """Why the table's options forbid compaction although partitions are due."""

    def to_dict(self) -> dict[str, object]:
        """Return the news as JSON values, without the cursor."""
        return {
            "table": self.table,
            "snapshot_id": self.cursor.handled.snapshot_id,
            "data_snapshots": list(self.data_snapshots),
            "whole_table_reason": self.whole_table_reason,
            "due": [
                {"partition": each.partition, "strategy": each.strategy, "reason": each.reason}
                for each in self.due
            ],
            "postponed_partitions": len(self.cursor.pending),
            "refusal": self.refusal,
        }


@dataclass(frozen=True, slots=True)
class TableEvaluation:
    """The changes of a table since a cursor."""

    table: Table
    state: TableState
    changes: ChangesSinceCursor | None
    """None for a table without snapshots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWatch:
    """A table whose commits are evaluated, and the policy that decides about its partitions."""

    table: str
    """The identifier ``database.table``."""
    policy: CompactionPolicy = field(default_factory=CompactionPolicy)
    max_snapshots: int = 100
    """The number of snapshots that one evaluation reads."""
    max_partitions: int = MAX_PARTITIONS
    allowances: Allowances = NO_ALLOWANCES
    compacts_partitions: bool = True
    """Whether runs compact single partitions, so that one of them can be rewritten fully."""

    def evaluate(self, catalog: Catalog, cursor: Cursor | None) -> TableEvaluation | None:
        """Return the changes since the cursor, or None if nothing is new or overdue.

        Reads no data files. If nothing is new, it takes one or two requests. Raises
        :class:`NotFoundError` if there is no such table.
        """
        tick = open_table_with_news(catalog, self.table, cursor, self.policy, self.allowances)
        if tick is None:
            return None
        if tick.state.snapshot is None:
            return TableEvaluation(tick.table, tick.state, None)
        is_full_allowed = self.compacts_partitions or not tick.state.schema.partition_keys
        decider = CompactionDecider(
            tick.table, tick.state, self.policy, can_compact_fully=is_full_allowed
        )
        changes = collect_changes(decider, cursor, self.max_snapshots, tick.found)
        return TableEvaluation(tick.table, tick.state, changes)

    def poll(self, catalog: Catalog, cursor: Cursor | None) -> TableNews | None:
        """Return the news since the cursor, or None if there are none, or no table or snapshot yet."""
        try:
            evaluation = self.evaluate(catalog, cursor)
        except NotFoundError:
            return None
        if evaluation is None or evaluation.changes is None:
            return None
        changes = evaluation.changes
        due = tuple(decision for decision in changes.decisions if decision.compact)
        refusal = find_compaction_refusal(evaluation.state) if due else ""
        reported = () if refusal else due[: self.max_partitions]
        postponed = () if refusal else due[self.max_partitions :]
        pending = {each.partition: changes.cursor.pending[each.partition] for each in postponed}
        return TableNews(
            table=self.table,
            cursor=replace(changes.cursor, pending=pending),
            data_snapshots=tuple(snapshot.id for snapshot in changes.data_snapshots),
            whole_table_reason=changes.whole_table_reason,
            due=reported,
            refusal=refusal,
        )


def find_due_partitions(table: Table, policy: CompactionPolicy) -> tuple[CompactionDecision, ...]:
    """Return the decisions about the partitions of a table that are due for compaction now.

    Raises :class:`UnsupportedError` if partitions are due but the table's options forbid compaction.
    """
    state = table.load()
    decisions = CompactionDecider(table, state, policy).decide()
    due = tuple(decision for decision in decisions if decision.compact)
    if due:
        state.check_step(StepKind.COMPACT)
    return due
