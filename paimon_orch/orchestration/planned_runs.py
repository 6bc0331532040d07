"""The runs that compact the partitions of a table, and the keys by which each is started once."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paimon_orch.format.display import format_count
from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionMetrics

COMPACTION = "compaction"


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """The partitions of one run, in the order in which the orchestrator lists them."""

    keys: tuple[str, ...]
    """The partition keys, or no keys for a run of the whole table."""
    decisions: tuple[CompactionDecision, ...]
    """The decisions about the partitions; for partition keys, in their order."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the partitions, or an empty path for the whole table."""
        return tuple(decision.partition for decision in self.decisions) if self.keys else ("",)

    @property
    def bytes(self) -> int:
        """The size of the files that the run reads, by which an orchestrator can size it."""
        return sum(decision.metrics.rewrite_bytes for decision in self.decisions)

    @property
    def decision(self) -> CompactionDecision:
        """The decision about the only partition, or one for all partitions of the run."""
        first, others = self.decisions[0], len(self.decisions) - 1
        if len(self.keys) == 1 or not (others or first.partition):
            return first
        suffix = f", and {format_count(others, 'other partition')}" if others else ""
        return CompactionDecision(
            partition="",
            compact=True,
            reason=f"{first.partition}: {first.reason}{suffix}",
            metrics=CompactionMetrics(),
            strategy=first.strategy,
        )

    def build_run_key(self, table: str, origin: str, suffixes: Mapping[str, str]) -> str:
        """Return the run key; an orchestrator starts no second run with the same key.

        ``origin`` identifies the table (see :func:`~.cursor.get_table_identity`), and ``suffixes``
        the evaluations of the paths.
        """
        path = self.paths[0] if len(self.paths) == 1 else f"{self.paths[0]}...{self.paths[-1]}"
        distinct = dict.fromkeys(suffixes[path] for path in self.paths)
        suffix = " ".join(distinct)
        if len(distinct) > 1:
            pairs = [(path, suffixes[path]) for path in self.paths]
            suffix = hashlib.sha256(repr(pairs).encode()).hexdigest()
        return f"{table}:{origin}:{COMPACTION}:{path}:{suffix}"


def plan_partition_runs(
    decisions: Sequence[CompactionDecision],
    keys: Mapping[str, str],
    group: Callable[[Sequence[str]], Sequence[tuple[str, ...]]],
) -> list[PlannedRun]:
    """Return the runs for decisions to compact; each has one strategy.

    ``keys`` are partition keys by path, and decisions about other paths are left out. ``group``
    returns the groups of keys that one run can process.
    """
    decisions_by_key = {keys[d.partition]: d for d in decisions if d.partition in keys}
    runs = list[PlannedRun]()
    for strategy in dict.fromkeys(d.strategy for d in decisions_by_key.values()):
        chosen = [key for key, d in decisions_by_key.items() if d.strategy == strategy]
        runs += [
            PlannedRun(tuple(group_keys), tuple(decisions_by_key[key] for key in group_keys))
            for group_keys in group(chosen)
        ]
    return runs
