"""Selects the runs to compact: universal compaction and its variants.

See docs/format/universal-compaction.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    COMPACTION_FORCE_UP_LEVEL_0,
    COMPACTION_INCREMENTAL_SIZE_THRESHOLD,
    COMPACTION_MAX_SIZE_AMPLIFICATION_PERCENT,
    COMPACTION_OFFPEAK_END_HOUR,
    COMPACTION_OFFPEAK_RATIO,
    COMPACTION_OFFPEAK_START_HOUR,
    COMPACTION_OPTIMIZATION_INTERVAL,
    COMPACTION_SIZE_RATIO,
    COMPACTION_TOTAL_SIZE_THRESHOLD,
    LOOKUP_COMPACT,
    LOOKUP_COMPACT_MAX_INTERVAL,
)
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.merge.tree.levels import SortedRun


@dataclass(frozen=True, slots=True)
class RunSelection:
    """The newest ``count`` runs are rewritten to ``output_level``."""

    count: int
    output_level: int
    reason: CompactReason


@dataclass(frozen=True, slots=True, kw_only=True)
class UniversalCompaction:
    """Selects runs by size amplification, size ratio and number of runs."""

    trigger: int = 5
    size_ratio: int = 1
    max_amplification: int = 200
    total_size_threshold: int | None = None
    incremental_size_threshold: int | None = None
    full_compaction_before: int | None = None

    @classmethod
    def of(cls, options: Options, now: datetime) -> "UniversalCompaction":
        """Read the table's options; ``now`` is local time.

        ``full_compaction_before`` is in milliseconds of the local wall clock: a full compaction is
        due if the newest file of the highest level is older.
        """
        return cls(
            trigger=options.compaction_trigger,
            size_ratio=options.get(COMPACTION_SIZE_RATIO) + _off_peak_ratio(options, now.hour),
            max_amplification=options.get(COMPACTION_MAX_SIZE_AMPLIFICATION_PERCENT),
            total_size_threshold=options.get(COMPACTION_TOTAL_SIZE_THRESHOLD),
            incremental_size_threshold=options.get(COMPACTION_INCREMENTAL_SIZE_THRESHOLD),
            full_compaction_before=_interval_start(options, now),
        )

    def select_runs(self, num_levels: int, runs: Sequence[SortedRun]) -> RunSelection | None:
        """Return the selection of the first matching rule, or None; ``runs`` are newest first."""
        top = num_levels - 1
        if reason := self._find_full_compaction_reason(top, runs):
            return RunSelection(len(runs), top, reason)
        if len(runs) >= self.trigger:
            selection = self.extend(
                num_levels, runs, 1, force=False, reason=CompactReason.SIZE_RATIO
            )
            if selection is not None:
                return selection
        if len(runs) > self.trigger:
            count = len(runs) - self.trigger + 1
            return self.extend(
                num_levels, runs, count, force=False, reason=CompactReason.NUMBER_OF_RUNS
            )
        return None

    def _find_full_compaction_reason(
        self, top: int, runs: Sequence[SortedRun]
    ) -> CompactReason | None:
        if len(runs) > 1 and self._is_full_compaction_due(top, runs):
            return CompactReason.OPTIMIZATION_INTERVAL
        if len(runs) > 1 and self._is_size_threshold_reached(top, runs):
            return CompactReason.SIZE_THRESHOLD
        if len(runs) >= self.trigger:
            candidate, oldest = sum(run.size for run in runs[:-1]), runs[-1].size
            if candidate * 100 > self.max_amplification * oldest:
                return CompactReason.SIZE_AMPLIFICATION
        return None

    def _is_full_compaction_due(self, top: int, runs: Sequence[SortedRun]) -> bool:
        if self.full_compaction_before is None:
            return False
        times = [file.creation_time for run in runs if run.level == top for file in run.files]
        known_times = [time for time in times if time is not None]
        return not known_times or max(known_times) < self.full_compaction_before

    def _is_size_threshold_reached(self, top: int, runs: Sequence[SortedRun]) -> bool:
        total = sum(run.size for run in runs)
        if self.total_size_threshold is not None and total < self.total_size_threshold:
            return True
        incremental = sum(run.size for run in runs if run.level != top)
        limit = self.incremental_size_threshold
        return limit is not None and incremental > limit

    def extend(
        self,
        num_levels: int,
        runs: Sequence[SortedRun],
        count: int,
        *,
        force: bool,
        reason: CompactReason,
    ) -> RunSelection | None:
        """Extend a prefix of ``count`` runs by the size ratio.

        Returns None for a single run that was neither extended nor forced.
        """
        size, triggered = sum(run.size for run in runs[:count]), force or count > 1
        for run in runs[count:]:
            if size * (100.0 + self.size_ratio) / 100.0 < run.size and not (
                triggered and run.level <= 1
            ):
                break
            size, count, triggered = size + run.size, count + 1, True
        return _select_prefix(num_levels, runs, count, reason) if triggered else None


def _select_prefix(
    num_levels: int, runs: Sequence[SortedRun], count: int, reason: CompactReason
) -> RunSelection:
    """Return the selection of ``count`` runs, extended until its output level is not 0."""
    top = num_levels - 1
    output = top if count == len(runs) else max(0, runs[count].level - 1)
    while output == 0:
        run = runs[count]
        count += 1
        if run.level != 0:
            output = run.level
        elif count == len(runs):
            break
    return RunSelection(count, top if count == len(runs) else output, reason)


def force_up_level0(
    universal: UniversalCompaction, num_levels: int, runs: Sequence[SortedRun]
) -> RunSelection | None:
    """Return the selection of universal compaction; without one, select at least level 0."""
    selection = universal.select_runs(num_levels, runs)
    level0 = sum(run.level == 0 for run in runs)
    if selection is not None or not level0:
        return selection
    return universal.extend(num_levels, runs, level0, force=True, reason=CompactReason.LEVEL_0)


def move_up_level0_only(
    universal: UniversalCompaction, num_levels: int, runs: Sequence[SortedRun]
) -> RunSelection | None:
    """Return the selection of universal compaction; without one, select only level 0.

    Tables with deletion vectors use this, because deletion vectors replace older rows at a fraction
    of the cost of a rewrite. The rules of universal compaction still bound the number of runs.
    """
    selection = universal.select_runs(num_levels, runs)
    level0 = sum(run.level == 0 for run in runs)
    if selection is not None or not level0:
        return selection
    return _select_prefix(num_levels, runs, level0, CompactReason.LEVEL_0)


def select_minor_compaction(
    options: Options, now: datetime, num_levels: int, runs: Sequence[SortedRun]
) -> RunSelection | None:
    """Select runs by the table's options; ``now`` is local time.

    A table with lookup moves level 0 up each time or, if ``lookup-compact`` is ``gentle``, when
    level 0 has ``lookup-compact.max-interval`` files. Java Paimon counts the calls of its
    strategy instead, which it calls once per flushed file.
    """
    universal = UniversalCompaction.of(options, now)
    forced = options.needs_lookup or options.get(COMPACTION_FORCE_UP_LEVEL_0)
    level0 = sum(run.level == 0 for run in runs)
    if not forced or (options.needs_lookup and level0 < min_level0_files(options)):
        return universal.select_runs(num_levels, runs)
    if options.has_deletion_vectors:
        return move_up_level0_only(universal, num_levels, runs)
    return force_up_level0(universal, num_levels, runs)


def select_levels(
    num_levels: int, runs: Sequence[SortedRun], up_to_level: int
) -> RunSelection | None:
    """Select the runs of all levels up to a limit, with the output level of universal compaction.

    Returns None if this would merge less than two runs.
    """
    count = sum(run.level <= up_to_level for run in runs)
    if not count:
        return None
    selection = _select_prefix(num_levels, runs, count, CompactReason.LEVELS)
    return selection if selection.count > 1 else None


def min_level0_files(options: Options) -> int:
    """Return the number of level-0 files that triggers a lookup compaction."""
    if options.get(LOOKUP_COMPACT) != "gentle":
        return 1
    trigger = options.compaction_trigger
    return max(trigger, options.get(LOOKUP_COMPACT_MAX_INTERVAL, 2 * trigger))


def select_full_compaction(num_levels: int, runs: Sequence[SortedRun]) -> RunSelection | None:
    """Select all runs; the output level is the highest level."""
    return RunSelection(len(runs), num_levels - 1, CompactReason.FULL) if runs else None


def _interval_start(options: Options, now: datetime) -> int | None:
    interval = options.get(COMPACTION_OPTIMIZATION_INTERVAL)
    if interval is None:
        return None
    as_if_utc = (now - interval).replace(tzinfo=UTC)
    return int(as_if_utc.timestamp() * 1000)


def _off_peak_ratio(options: Options, hour: int) -> int:
    start = options.get(COMPACTION_OFFPEAK_START_HOUR)
    end = options.get(COMPACTION_OFFPEAK_END_HOUR)
    if start == -1 or end in (-1, start):
        return 0
    within = start <= hour < end if start < end else hour < end or hour >= start
    return options.get(COMPACTION_OFFPEAK_RATIO) if within else 0
