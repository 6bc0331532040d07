"""The outcome of a step that writes rows, and the compaction after it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from paimon_orch.errors import PaimonError
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.step import StepOutcome
from paimon_orch.steps.common.step_report import format_figures
from paimon_orch.table.scan.unseen_rows import describe_unseen_rows_after_write
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from paimon_orch.steps.compaction.compact import CompactionResult


NO_ROW_MATCHES = "no row matches: nothing was committed"


@dataclass(frozen=True, kw_only=True)  # classes with two bases can have slots of one of them
class WriteRequest(ParsedRequest):
    """What to do after rows are written."""

    compact_after: Annotated[
        bool,
        Argument(
            "Compact the written partitions, so that batch readers see the rows.",
            option="--compact",
        ),
    ] = False

    def check_compactable(self, table: Table) -> None:
        """Raise an error before a write if the table refuses the compaction after it."""
        if self.compact_after:
            from paimon_orch.steps.compaction.append import check_compactable

            schema = table.stores.get_schema()
            table.stores.check_step(StepKind.COMPACT, schema)
            check_compactable(schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome(StepOutcome):
    """The figures of a write, the compaction after it, and notes about the rows."""

    values: Mapping[str, object]
    """The JSON values; ``snapshot_id`` is None if no row was written."""
    nothing: str
    """What to say in this case."""
    lines: tuple[str, ...] = ()
    """What was changed before the write."""
    compaction: "CompactionResult | None" = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        compaction = {} if self.compaction is None else {"compaction": self.compaction.to_dict()}
        return dict(self.values) | compaction

    def describe(self) -> list[str]:
        """Return the figures of the write and of the compaction."""
        figures = [(self.values, self.nothing)]
        if self.compaction is not None:
            figures.append((self.compaction.to_dict(), "nothing to compact"))
        written = [
            nothing if values["snapshot_id"] is None else format_figures(values)
            for values, nothing in figures
        ]
        return [*self.lines, *written]

    def list_notes(self) -> tuple[str, ...]:
        """Return what readers do not see yet, and how to take the write back."""
        return self.notes


def complete_write(
    table: Table,
    outcome: StepOutcome,
    request: WriteRequest,
    executor: Executor,
    progress: Progress | None = None,
    *,
    nothing: str,
) -> WriteOutcome:
    """Compact what a step wrote, if its request says so, and return the outcome of both."""
    values: dict[str, object] = outcome.to_dict()  # type: ignore[attr-defined]
    snapshot_id, compaction = values["snapshot_id"], None
    if request.compact_after and isinstance(snapshot_id, int):
        compaction = _compact(table, snapshot_id, executor, progress)
        values["rows_not_visible"] = table.scan().rows_not_visible
    notes, label, rows = list[str](), table.stores.label, values["rows_not_visible"]
    if isinstance(rows, int) and rows:
        notes.append(describe_unseen_rows_after_write(label, rows))
    if isinstance(snapshot_id, int) and compaction is None:
        notes.append(f"to take this back, run {label.format_command('undo')}")
    written = WriteOutcome(
        values=values, nothing=nothing, compaction=compaction, notes=tuple(notes)
    )
    return replace(written, duration_seconds=outcome.duration_seconds, attempts=outcome.attempts)


def _compact(
    table: Table, snapshot_id: int, executor: Executor, progress: Progress | None
) -> "CompactionResult":
    from paimon_orch.steps.compaction.compact import compact_written_partitions

    try:
        return compact_written_partitions(table, snapshot_id, executor, progress=progress)
    except (PaimonError, OSError, KeyboardInterrupt) as error:
        command = table.stores.label.format_command("compact")
        error.add_note(
            f"the write is committed as snapshot {snapshot_id}; do not repeat it, but run "
            f"`{command}`"
        )
        raise
