"""The verdict on a table: what is wrong, what a scan costs, and which command helps now.

Doctor, checks, ``why``, ``inspect``, ``compact`` and the autopilot show it. A command is named only if
it changes something now, and heals what it is named for; all problems that compactions heal name the
same compaction. Reads only metadata.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.display import Displayable, format_count, format_size
from paimon_orch.format.options.core_options import SOURCE_SPLIT_OPEN_FILE_COST
from paimon_orch.steps.autopilot.read_cost import compute_read_cost, compute_scores
from paimon_orch.steps.compaction.plan import CompactRequest
from paimon_orch.steps.compaction.policy import CompactionPolicy
from paimon_orch.steps.inspection.health_metrics import (
    COMPACT,
    COMPACT_FULLY,
    COMPACT_MANIFESTS,
    COMPACTIONS,
    HEALTH_METRICS,
    METRIC_LIMITS,
    Problem,
    find_problems,
)
from paimon_orch.steps.inspection.inspect import inspect_newest
from paimon_orch.steps.inspection.verdict.remedies import (
    Inspection,
    Remedy,
    ScanCost,
    find_remedy,
    predict_compaction_of,
)
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

_MANY_DELETED = 0.1  # of the rows
_ENOUGH = 0.5  # of what a full compaction saves; a minor one rewrites much less


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Displayable):
    """What makes a table slow or large, and the one command that helps."""

    identifier: str
    now: ScanCost
    bytes: int = 0
    """The size of all data files."""
    physical_rows: int = 0
    deleted_ratio: float = 0.0
    """The share of physical rows that are deleted or retract other rows, and are still read."""
    rows_not_visible: int = 0
    """The records that batch readers do not see before a compaction."""
    problems: tuple[Problem, ...] = ()
    """The metrics beyond the limits."""
    remedy: Remedy | None = None
    command: str | None = None
    """The command line of the remedy."""

    def to_dict(self) -> dict[str, object]:
        """Return the verdict as JSON values."""
        remedy = self.remedy
        return {
            "table": self.identifier,
            "now": self.now.to_dict(),
            "bytes": self.bytes,
            "physical_rows": self.physical_rows,
            "deleted_ratio": self.deleted_ratio,
            "rows_not_visible": self.rows_not_visible,
            "problems": [
                {"name": each.name, "value": each.value, "limit": each.limit, "text": str(each)}
                for each in self.problems
            ],
            "command": self.command,
            "after": None if remedy is None else remedy.after.to_dict(),
            "rewrite_files": 0 if remedy is None else remedy.rewrite_files,
            "rewrite_bytes": 0 if remedy is None else remedy.rewrite_bytes,
        }

    def describe(self) -> str:
        """Return the verdict as one paragraph."""
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

    def describe_problems(self) -> str:
        """Return what is wrong and which command helps; an empty string if nothing is wrong."""
        texts = [*map(str, self.problems)]
        if self.rows_not_visible:
            texts.insert(
                0, f"batch readers do not see {format_count(self.rows_not_visible, 'record')}"
            )
        return "; ".join(texts) + f". {self._describe_remedy()}" if texts else ""

    def _describe_remedy(self) -> str:
        if self.remedy is None:
            return "No compaction makes it read less."
        effects = [self.remedy.describe_saving(self.now)]
        effects += ["all rows visible"] if self.rows_not_visible else []
        effect = ", ".join(filter(None, effects)) or "fewer deleted rows"
        texts = [f"After {self.command}: {effect}."]
        if self.remedy.rewrite_files:
            files = format_count(self.remedy.rewrite_files, "file")
            texts.append(f"It rewrites {files} of {format_size(self.remedy.rewrite_bytes)}.")
        if not self.problems and not self.rows_not_visible:
            texts.append("No limit of doctor is exceeded.")
        return " ".join(texts)


class Judge:
    """Judges a table by one inspection of it; commands are planned when they are asked for.

    ``limits`` are those of :data:`HEALTH_METRICS` to apply.
    """

    def __init__(self, inspection: Inspection, limits: Mapping[str, float] = METRIC_LIMITS) -> None:
        self._inspection = inspection
        self._report, self._health = inspection.report, inspection.health
        self.now = inspection.compute_cost(inspection.health)
        """What a scan costs now."""
        self.problems = tuple(find_problems(inspection.health, limits))
        self.find_remedy = cache(partial(find_remedy, inspection))
        """Plan a command; return None if it changes nothing now, or is refused."""
        self.find_compaction = cache(self._find_compaction)
        """Return the one compaction that heals most problems, or saves most requests."""

    def read(self, name: str) -> float | None:
        """Return the value of a metric, or None if it does not apply to the table."""
        return HEALTH_METRICS[name].read(self._health)

    @property
    def deleted_ratio(self) -> float:
        """Return the share of stored rows that are deleted or retracted."""
        return self._health.deleted_ratio

    def predict_compaction(self, request: CompactRequest) -> Remedy | None:
        """Return the effect of a compaction; None if it changes nothing, or is refused."""
        command = COMPACT_FULLY if request.strategy == "full" else COMPACT
        if self._report.live is None:
            return None
        return predict_compaction_of(self._inspection, command, request)

    def find_remedy_of(self, problem: Problem) -> Remedy | None:
        """Return the remedy that ends a problem, or None if no command does."""
        metric, limit = problem.metric, problem.limit
        compaction = self.find_compaction() if COMPACT in metric.commands else None
        if compaction is not None and compaction.heals(metric, limit):
            return compaction
        others = (self.find_remedy(each) for each in metric.commands if each not in COMPACTIONS)
        return next(
            (each for each in others if each is not None and each.heals(metric, limit)), None
        )

    def judge(self) -> Verdict:
        """Return the verdict, with the command that saves most if no limit is exceeded."""
        remedy = self._choose_remedy()
        return Verdict(
            identifier=self._inspection.table.identifier,
            now=self.now,
            bytes=self._health.bytes,
            physical_rows=self._report.physical_rows,
            deleted_ratio=self._health.deleted_ratio,
            rows_not_visible=self._report.rows_not_visible,
            problems=self.problems,
            remedy=remedy,
            command=None if remedy is None else self.format_command(remedy.command),
        )

    def format_command(self, command: str) -> str:
        """Return the command line of a command on the table."""
        name, *options = command.split(" ", 1)
        return " ".join([self._inspection.table.stores.label.format_command(name), *options])

    def is_worth(self, remedy: Remedy) -> bool:
        """Return whether a rewrite is due: it shows rows, or saves one scan what it costs."""
        if (
            not remedy.rewrite_bytes
            or (self._report.rows_not_visible and remedy.command in COMPACTIONS)
            or self._health.deleted_ratio > CompactionPolicy().deleted_ratio
        ):
            return True
        options = self._inspection.state.schema.typed_options
        costs = [
            compute_read_cost(
                np.array([cost.bytes], np.float64),
                np.array([cost.files], np.float64),
                np.array([cost.max_sorted_runs], np.float64),
                options.get(SOURCE_SPLIT_OPEN_FILE_COST),
            )
            for cost in (self.now, remedy.after)
        ]
        sizes = np.array([remedy.rewrite_bytes], np.int64)
        return bool(compute_scores(costs[0] - costs[1], sizes, np.ones(1))[0] >= 1)

    def _choose_remedy(self) -> Remedy | None:
        """Return the one command: it heals problems, or else saves most requests."""
        compaction, manifests = self.find_compaction(), self.find_remedy(COMPACT_MANIFESTS)
        if compaction is not None and self._count_healed(compaction):
            return compaction
        for problem in self.problems:
            remedy = self.find_remedy_of(problem)
            if remedy is not None:
                return remedy
        if manifests is None or manifests.after.requests >= self.now.requests:
            return compaction
        if compaction is None:
            return manifests
        improves_rows = (
            self._health.deleted_ratio >= _MANY_DELETED
            or compaction.after.max_sorted_runs < self.now.max_sorted_runs
        )
        saves_more = manifests.after.requests < compaction.after.requests
        return manifests if saves_more and not improves_rows else compaction

    def _find_compaction(self) -> Remedy | None:
        found = (self.find_remedy(command) for command in COMPACTIONS)
        remedies = [each for each in found if each is not None and self.helps(each)]
        if not remedies:
            return None
        healed = [self._count_healed(each) for each in remedies]
        if max(healed):
            return remedies[healed.index(max(healed))]
        saved = [self.now.requests - each.after.requests for each in remedies]
        enough = min(max(saved), _ENOUGH * max(saved))  # small target files add requests
        return next((r for r, each in zip(remedies, saved, strict=True) if each >= enough), None)

    def _count_healed(self, remedy: Remedy) -> int:
        """Return how many problems a compaction heals; hidden rows are one."""
        return bool(self._report.rows_not_visible) + sum(
            COMPACT in problem.metric.commands and remedy.heals(problem.metric, problem.limit)
            for problem in self.problems
        )

    def helps(self, remedy: Remedy) -> bool:
        """Return whether a compaction makes a scan read or merge less, or see more rows."""
        now, after = self.now, remedy.after
        return (
            after.requests < now.requests
            or after.max_sorted_runs < now.max_sorted_runs
            or remedy.health.deleted_ratio < self._health.deleted_ratio
            or self._report.rows_not_visible > 0
            or self._count_healed(remedy) > 0
        )


def open_judge(
    table: Table,
    limits: Mapping[str, float] = METRIC_LIMITS,
    *,
    state: TableState | None = None,
) -> Judge:
    """Inspect a table, and return its judge. ``state`` is the table, if the caller has loaded it.

    Raises :class:`CorruptFileError` for damaged metadata.
    """
    state = state or table.load(with_lists=True)
    report = inspect_newest(state)
    if report.problem is not None or report.health is None:
        raise CorruptFileError(table.paths.root, str(report.problem))
    return Judge(Inspection(table=table, state=state, report=report, health=report.health), limits)


@repeat_if_expired
def judge(table: Table) -> Verdict:
    """Return the verdict on a table.

    Raises :class:`CorruptFileError` for damaged metadata.
    """
    return open_judge(table).judge()
