"""Watches a table: what changed since a cursor, and which partitions are due, as JSON values."""

from dataclasses import dataclass, field, replace

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.catalog.identifier import TableIdentifier
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
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

MAX_PARTITIONS = 1000
"""The number of due partitions in one report; the others follow in the next one."""
_MIN_WORD = 4  # letters of a word that may be misspelled


class AwaitedTableError(NotFoundError):
    """A table does not exist yet; its first writer will create it."""


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
        :class:`AwaitedTableError` if the table does not exist yet, and :class:`NotFoundError` if it
        was dropped, its catalog does not exist, or its name seems to be misspelled.
        """
        try:
            tick = open_table_with_news(catalog, self.table, cursor, self.policy, self.allowances)
        except NotFoundError as error:
            if cursor is not None:
                raise NotFoundError(f"{self.table} was dropped or renamed: {error}") from error
            raise_if_awaited(catalog, self.table, error)
            raise
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
        """Return the news since the cursor, or None if there are none, or no table or snapshot yet.

        Raises :class:`NotFoundError` as :meth:`evaluate` does.
        """
        try:
            evaluation = self.evaluate(catalog, cursor)
        except AwaitedTableError:
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


def raise_if_awaited(catalog: Catalog, table: str, error: NotFoundError) -> None:
    """Raise :class:`AwaitedTableError` for a table that a writer may still create.

    Raises :class:`NotFoundError` if there is no catalog, or a name that only differs by a typo.
    """
    catalog.require_exists()
    identifier, databases = TableIdentifier.parse(table), catalog.databases()
    name, existing = identifier.database, databases
    if identifier.database in databases:
        name, existing = identifier.table, catalog.tables(identifier.database)
    near = next((each for each in existing if _is_misspelled(name, each)), None)
    if name in existing or near is None:
        raise AwaitedTableError(f"{table} does not exist yet: {error}") from error
    raise NotFoundError(f"{error}; did you mean {near}?") from error


def _is_misspelled(name: str, other: str) -> bool:
    """Return whether two names differ by case, or by one letter of one word.

    Names that differ by digits or a short word, such as ``sales_de``, belong to other tables.
    """
    if name.lower() == other.lower():
        return True
    words, others = name.split("_"), other.split("_")
    if len(words) != len(others):
        return False
    [*different] = ((a, b) for a, b in zip(words, others, strict=True) if a != b)
    if len(different) != 1:
        return False
    a, b = different[0]
    start = _count_equal(a, b)
    end = _count_equal(a[start:][::-1], b[start:][::-1])
    old, new = a[start : len(a) - end], b[start : len(b) - end]
    is_typo = max(len(old), len(new)) == 1 or (len(old) == 2 and old == new[::-1])
    return is_typo and max(len(a), len(b)) >= _MIN_WORD and (old + new).isalpha()


def _count_equal(name: str, other: str) -> int:
    """Return how many first letters are equal."""
    pairs = enumerate(zip(name, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(name), len(other)))


@repeat_if_expired
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
