"""Why a table is slow to read: what a scan of it costs now, and after the command that helps most."""

from dataclasses import dataclass, replace

from paimon_orch.format.display import Displayable, format_count, format_size
from paimon_orch.format.options.core_options import MANIFEST_TARGET_FILE_SIZE
from paimon_orch.steps.common.step import EmptyRequest
from paimon_orch.steps.compaction.compaction_remedies import COMPACTIONS, Remedies
from paimon_orch.steps.inspection.health import TableHealth
from paimon_orch.steps.inspection.inspect import inspect_newest
from paimon_orch.steps.maintenance import compact_manifests
from paimon_orch.table.table import Table

_OTHER_FILES = 5  # the hint, the snapshot, its schema and two manifest lists
_ENOUGH = 0.5  # of what a full compaction saves; a minor one rewrites much less


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCost(Displayable):
    """What a scan of the newest snapshot reads."""

    files: int = 0
    bytes: int = 0
    manifests: int = 0
    max_sorted_runs: int = 0
    """The maximum number of sorted runs that are merged in a bucket; 0 without a primary key."""

    @property
    def requests(self) -> int:
        """Return about how many requests the scan makes to a store; small files need one."""
        return self.files + self.manifests + _OTHER_FILES

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return {
            "files": self.files,
            "bytes": self.bytes,
            "manifests": self.manifests,
            "max_sorted_runs": self.max_sorted_runs,
            "requests": self.requests,
        }

    @classmethod
    def of(cls, health: TableHealth) -> "ScanCost":
        """Return the cost of a table with these metrics."""
        return cls(
            files=health.files,
            bytes=health.bytes,
            manifests=health.manifests,
            max_sorted_runs=health.max_sorted_runs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(Displayable):
    """What makes a table slow or large, and what would help."""

    identifier: str
    now: ScanCost
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
            "physical_rows": self.physical_rows,
            "deleted_ratio": self.deleted_ratio,
            "rows_not_visible": self.rows_not_visible,
            "command": self.command,
            "after": None if self.after is None else self.after.to_dict(),
        }

    def describe(self) -> str:
        """Return the explanation as one paragraph."""
        now, parts = self.now, list[str]()
        if not now.files:
            return f"{self.identifier} has no data files: a scan reads only metadata."
        parts.append(
            f"A scan of {self.identifier} opens {format_count(now.files, 'data file')} of "
            f"{format_size(now.bytes)} and {format_count(now.manifests, 'manifest')}: about "
            f"{format_count(now.requests, 'request')} to the store."
        )
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
    state = table.stores.load(with_lists=True)
    report = inspect_newest(state)
    health = report.health
    if health is None or report.live is None:
        return Explanation(identifier=table.identifier, now=ScanCost())
    explanation = Explanation(
        identifier=table.identifier,
        now=ScanCost.of(health),
        physical_rows=report.physical_rows,
        deleted_ratio=health.deleted_ratio,
        rows_not_visible=table.scan().rows_not_visible or 0,
    )
    command, after = _choose_compaction(
        explanation, Remedies(table, state, report.live, health), health.deleted_ratio
    )
    merged = _estimate_merged_manifests(table)
    saved = 0 if after is None else explanation.now.requests - after.requests
    if not explanation.rows_not_visible and health.manifests - merged > saved:
        command, after = "compact-manifests", replace(explanation.now, manifests=merged)
    if command is None:
        return explanation
    name, *options = command.split(" ", 1)
    line = " ".join([table.stores.label.format_command(name), *options])
    return replace(explanation, command=line, after=after)


def _choose_compaction(
    explanation: Explanation, remedies: Remedies, deleted_ratio: float
) -> tuple[str | None, ScanCost | None]:
    """Return the cheapest compaction that saves about as much as the full one."""
    now, options = explanation.now, dict[str, ScanCost]()
    for strategy in COMPACTIONS:
        health = remedies.predict(strategy)
        if health is None:
            continue
        after = ScanCost.of(health)
        helps = (
            after.requests < now.requests
            or after.max_sorted_runs < now.max_sorted_runs
            or health.deleted_ratio < deleted_ratio
            or explanation.rows_not_visible > 0
        )
        if helps:
            options["compact" if strategy == "minor" else "compact --strategy full"] = after
    if not options:
        return None, None
    most = max(now.requests - after.requests for after in options.values())
    return next(
        (command, after)
        for command, after in options.items()
        if now.requests - after.requests >= _ENOUGH * most
    )


def _estimate_merged_manifests(table: Table) -> int:
    """Return about how many manifests a merge leaves; as many as now if it changes nothing."""
    planned = compact_manifests.plan(table, EmptyRequest())
    if not planned:
        return planned.manifests
    target = planned.state.schema.typed_options.get(MANIFEST_TARGET_FILE_SIZE)
    return planned.manifests - planned.small + max(1, -(-planned.bytes // target))
