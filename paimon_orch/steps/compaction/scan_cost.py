"""Why a table is slow to read: what a scan of it costs now, and after the command that helps most."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from paimon_orch.errors import CorruptFileError, UnsupportedError
from paimon_orch.format.display import Displayable, format_count, format_size
from paimon_orch.format.options.core_options import MANIFEST_TARGET_FILE_SIZE
from paimon_orch.format.schema import TableSchema
from paimon_orch.steps.common.step import EmptyRequest
from paimon_orch.steps.compaction.compaction_remedies import COMPACTIONS, Remedies
from paimon_orch.steps.inspection.health import TableHealth
from paimon_orch.steps.inspection.inspect import inspect_newest
from paimon_orch.steps.maintenance import compact_manifests
from paimon_orch.table.scan.unseen_rows import Visibility
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

_OTHER_FILES = 5  # the hint, the snapshot, its schema and two manifest lists
_COMMANDS = {"minor": "compact", "full": "compact --strategy full"}
_MANY_DELETED = 0.1  # of the rows
_ENOUGH = 0.5  # of what a full compaction saves; a minor one rewrites much less


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCost(Displayable):
    """What a scan of the newest snapshot reads; level 0 counts only if readers see it."""

    files: int = 0
    manifests: int = 0
    vector_files: int = 0
    """The number of files with deletion vectors."""
    max_sorted_runs: int = 0
    """The maximum number of sorted runs that are merged in a bucket; 0 if none are merged."""

    @property
    def requests(self) -> int:
        """Return about how many requests the scan makes to a store; small files need one."""
        return self.files + self.manifests + self.vector_files + _OTHER_FILES

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return {
            "files": self.files,
            "manifests": self.manifests,
            "vector_files": self.vector_files,
            "max_sorted_runs": self.max_sorted_runs,
            "requests": self.requests,
        }

    @classmethod
    def of(cls, health: TableHealth, schema: TableSchema, vector_files: int) -> "ScanCost":
        """Return the cost of a table with these metrics."""
        skips_level_0 = Visibility(schema).skips_level_0
        return cls(
            files=health.files - (health.level0_files if skips_level_0 else 0),
            manifests=health.manifests,
            vector_files=vector_files if health.deleted_ratio else 0,
            max_sorted_runs=0 if skips_level_0 else health.max_sorted_runs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(Displayable):
    """What makes a table slow or large, and what would help."""

    identifier: str
    now: ScanCost
    bytes: int = 0
    """The size of all data files."""
    physical_rows: int = 0
    deleted_ratio: float = 0.0
    """The share of physical rows that are deleted or retract other rows, and are still read."""
    rows_not_visible: int = 0
    """The records that batch readers do not see before a compaction."""
    command: str | None = None
    """The command line that saves most requests or makes rows visible, or None if none does."""
    after: ScanCost | None = None
    """The estimated cost after the command."""

    def to_dict(self) -> dict[str, object]:
        """Return the explanation as JSON values."""
        return {
            "table": self.identifier,
            "now": self.now.to_dict(),
            "bytes": self.bytes,
            "physical_rows": self.physical_rows,
            "deleted_ratio": self.deleted_ratio,
            "rows_not_visible": self.rows_not_visible,
            "command": self.command,
            "after": None if self.after is None else self.after.to_dict(),
        }

    def describe(self) -> str:
        """Return the explanation as one paragraph."""
        now = self.now
        files = format_count(now.files, "data file")
        manifests = format_count(now.manifests, "manifest")
        requests = format_count(now.requests, "request")
        parts = [
            f"A scan of {self.identifier} opens {files} and {manifests}: about {requests}.",
            f"All data files have {format_size(self.bytes)}.",
        ]
        if now.max_sorted_runs > 1:
            parts.append(f"It merges up to {now.max_sorted_runs:,} sorted runs in a bucket.")
        if self.deleted_ratio:
            parts.append(
                f"{self.deleted_ratio:.1%} of {format_count(self.physical_rows, 'row')} are "
                "deleted and still read."
            )
        if self.rows_not_visible:
            rows = format_count(self.rows_not_visible, "record")
            parts.append(f"{rows} of level 0 or of postpone buckets cannot be seen.")
        return " ".join([*parts, self._describe_remedy()])

    def _describe_remedy(self) -> str:
        if self.command is None or self.after is None:
            return "No compaction makes it read less."
        saved = self.now.requests - self.after.requests
        effects = [f"about {format_count(saved, 'request')} fewer"] if saved > 0 else []
        if self.after.max_sorted_runs < self.now.max_sorted_runs:
            effects.append(f"at most {format_count(self.after.max_sorted_runs, 'sorted run')}")
        if self.rows_not_visible:
            effects.append("all rows visible")
        return f"After {self.command}: {', '.join(effects) or 'fewer deleted rows'}."


def explain(table: Table) -> Explanation:
    """Explain what a scan of a table costs; reads only metadata.

    Raises :class:`CorruptFileError` for damaged metadata.
    """
    state = table.load(with_lists=True)
    report = inspect_newest(state)
    health, live = report.health, report.live
    if report.problem is not None:
        raise CorruptFileError(table.paths.root, report.problem)
    if health is None or live is None:
        return Explanation(identifier=table.identifier, now=ScanCost())
    vectors = {entry.file_name for _, entries in live.iterate_vectors() for entry in entries}
    build_cost = partial(ScanCost.of, schema=state.schema, vector_files=len(vectors))
    explanation = Explanation(
        identifier=table.identifier,
        now=build_cost(health),
        bytes=health.bytes,
        physical_rows=report.physical_rows,
        deleted_ratio=health.deleted_ratio,
        rows_not_visible=Visibility(state.schema).rows_not_visible(state.manifests, state.snapshot),
    )
    remedies = Remedies(table, state, live, health)
    costs = dict[str, ScanCost]()
    for strategy in COMPACTIONS:
        predicted = remedies.predict(strategy)
        if predicted is None:
            continue
        # the commit of the compaction adds a manifest
        cost = build_cost(replace(predicted, manifests=health.manifests + 1))
        if _helps(explanation, cost, predicted.deleted_ratio):
            costs[_COMMANDS[strategy]] = cost
    command = _choose_compaction(explanation, costs)
    after = None if command is None else costs[command]
    saved = 0 if after is None else explanation.now.requests - after.requests
    improves_rows = after is not None and (
        explanation.rows_not_visible > 0
        or explanation.deleted_ratio >= _MANY_DELETED
        or after.max_sorted_runs < explanation.now.max_sorted_runs
    )
    merged = _estimate_merged_manifests(table, state, health.manifests)
    if not improves_rows and health.manifests - merged > saved:
        command, after = "compact-manifests", replace(explanation.now, manifests=merged)
    if command is None:
        return explanation
    name, *options = command.split(" ", 1)
    line = " ".join([table.stores.label.format_command(name), *options])
    return replace(explanation, command=line, after=after)


def _helps(explanation: Explanation, after: ScanCost, deleted_ratio: float) -> bool:
    """Return whether a compaction makes a scan read or merge less."""
    now = explanation.now
    return (
        after.requests < now.requests
        or after.max_sorted_runs < now.max_sorted_runs
        or deleted_ratio < explanation.deleted_ratio
        or explanation.rows_not_visible > 0
    )


def _choose_compaction(explanation: Explanation, costs: Mapping[str, ScanCost]) -> str | None:
    """Return the cheapest compaction that saves about as much as the full one."""
    saved = {command: explanation.now.requests - after.requests for command, after in costs.items()}
    enough = _ENOUGH * max(saved.values(), default=0)
    return next((command for command, each in saved.items() if each >= enough), None)


def _estimate_merged_manifests(table: Table, state: TableState, manifests: int) -> int:
    """Return about how many manifests a merge leaves; as many as now if it changes nothing."""
    try:
        planned = compact_manifests.plan(table, EmptyRequest(), state=state)
    except UnsupportedError:  # the command itself reports this
        return manifests
    if not planned:
        return manifests
    target = max(1, state.schema.typed_options.get(MANIFEST_TARGET_FILE_SIZE))
    return planned.manifests - planned.small + max(1, -(-planned.bytes // target))
