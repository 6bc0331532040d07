"""Autopilot: 1,000 tables with skewed traffic, compared with fixed thresholds; a simulation.

    python benchmarks/autopilot.py [--tables 1000] [--days 3] [--seeds 3]
                                   [--warm-up-days 3] [--draw]

Each hour, tables are written and read with skewed rates, and maintained by one of two rules: the
universal compaction of each table that has as many sorted runs as a fixed threshold, or the actions
that the autopilot chooses among all tables. The levels and the choice of runs are those of the
library, and so are the read cost, the scores and the choice of actions; only the files have no
content. Two kinds of read amplification are measured:

- of bytes: what all reads cost, divided by what they would cost if each table had one sorted run,
- of reads: the number of sorted runs that a read merges, on average over all reads.

Goal: the read amplification of bytes of the default threshold of 5, for at most half of the bytes
rewritten. ``--draw`` writes docs/images/autopilot.svg, and needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, cast

import numpy as np
import typer
from measurement import HERE, console
from rich.table import Table

from paimon_orch.format.arrays import Float64Array, Int64Array
from paimon_orch.merge.tree.levels import SortedRun
from paimon_orch.merge.tree.universal_compaction import UniversalCompaction, select_levels
from paimon_orch.steps.autopilot.budgets import choose_actions
from paimon_orch.steps.autopilot.level_merges import LevelMerges, choose_candidates
from paimon_orch.steps.autopilot.read_cost import PartitionLayout, compute_scores, estimate_savings

IMAGE = HERE.parent / "docs" / "images" / "autopilot.svg"
MB = 1 << 20
LEVELS, TARGET_FILE, OPEN_FILE = 6, 128 * MB, 4 * MB
IDLE_HOURS = 6
UPDATED = 0.8  # the share of written rows that replace rows
DEFAULT_THRESHOLD = 5
THRESHOLDS = (2, 3, 4, 5, 6, 8, 10, 14)
MIN_SCORES = (1, 10, 20, 40, 60, 80, 100, 120, 135, 150, 200)


@dataclass(frozen=True, slots=True)
class Run:
    """A sorted run without files; has what the choice of runs needs."""

    level: int
    size: int

    @property
    def files(self) -> int:
        """Return the number of its files."""
        return 1 if self.level == 0 else -(-self.size // TARGET_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The rates of tables; arrays have one item per table."""

    sizes: Int64Array
    flushes_per_hour: Float64Array
    flush_bytes: Int64Array
    reads: Float64Array
    """Relative to the mean of all tables."""

    @classmethod
    def generate(cls, tables: int, rng: np.random.Generator) -> Traffic:
        """Return tables whose sizes, writes and reads are skewed and independent."""
        ranks = np.arange(1, tables + 1)
        writes, reads = (1 / rng.permutation(ranks) for _ in range(2))
        sizes = np.minimum(rng.lognormal(np.log(1e9), 1.0, tables), 5e10).astype(np.int64)
        return cls(
            sizes=sizes,
            flushes_per_hour=np.maximum(writes / writes.max() * 4, 1 / 48),
            flush_bytes=np.maximum(sizes // 200, MB),
            reads=reads / reads.mean(),
        )


@dataclass(slots=True)
class Tables:
    """The sorted runs of each table, newest first, and the hours of their last writes."""

    runs: list[list[Run]]
    written: Int64Array
    rewritten: int = 0

    def compact(self, table: int, count: int, level: int) -> None:
        """Merge the newest runs of a table into one run of a level."""
        runs = self.runs[table]
        size = sum(run.size for run in runs[:count])
        self.rewritten += size
        largest = max(run.size for run in runs[:count])
        merged = Run(level, int(largest + (1 - UPDATED) * (size - largest)))
        self.runs[table] = [merged, *runs[count:]]

    def count_runs(self) -> Int64Array:
        """Return the number of sorted runs of each table."""
        return np.array([len(runs) for runs in self.runs], np.int64)

    def sum_sizes(self) -> Int64Array:
        """Return the size of each table."""
        return np.array([sum(run.size for run in runs) for runs in self.runs], np.int64)


Maintain = Callable[[Tables, Traffic, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The figures of one simulation after the warm-up."""

    rule: str
    setting: int
    amplification_of_bytes: float
    amplification_of_reads: float
    gb_per_day: float


def simulate(
    traffic: Traffic, maintain: Maintain, days: int, seed: int, warm_up_days: int
) -> tuple[float, ...]:
    """Write and maintain tables; return both read amplifications, and the bytes of a day in GB."""
    rng, count, warm_up = np.random.default_rng(seed), len(traffic.sizes), 24 * warm_up_days
    runs = [[Run(LEVELS - 1, size)] for size in traffic.sizes.tolist()]
    tables, of_bytes, of_reads = Tables(runs, np.zeros(count, np.int64)), [], []
    for hour in range(warm_up + 24 * days):
        if hour == warm_up:
            tables.rewritten = 0
        flushes = rng.poisson(traffic.flushes_per_hour)
        for table in np.flatnonzero(flushes).tolist():
            new = [Run(0, int(traffic.flush_bytes[table]))] * int(flushes[table])
            tables.runs[table] = [*new, *tables.runs[table]]
            tables.written[table] = hour
        maintain(tables, traffic, hour)
        if hour >= warm_up:
            numbers = tables.count_runs()
            of_bytes.append(np.average(numbers, weights=traffic.reads * tables.sum_sizes()))
            of_reads.append(np.average(numbers, weights=traffic.reads))
    return float(np.mean(of_bytes)), float(np.mean(of_reads)), tables.rewritten / 1e9 / days


def select_runs(runs: list[Run], threshold: int) -> tuple[int, int] | None:
    """Return how many runs universal compaction merges, and into which level."""
    strategy = UniversalCompaction(trigger=threshold)
    selection = strategy.select_runs(LEVELS, cast("list[SortedRun]", runs))
    return None if selection is None else (selection.count, selection.output_level)


def use_threshold(threshold: int) -> Maintain:
    """Return the maintenance of each table by its own threshold."""

    def maintain(tables: Tables, _traffic: Traffic, _hour: int) -> None:
        for table, runs in enumerate(tables.runs):
            selection = select_runs(runs, threshold)
            if selection is not None:
                tables.compact(table, *selection)

    return maintain


def use_autopilot(min_score: float, *, knows_reads: bool) -> Maintain:
    """Return the maintenance by the ranking of all tables."""

    def maintain(tables: Tables, traffic: Traffic, hour: int) -> None:
        candidates = find_candidates(tables, hour)
        savings = estimate_savings(
            candidates.layout,
            target_file_bytes=TARGET_FILE,
            open_file_bytes=OPEN_FILE,
            packs_files=False,
        )
        numbers, sizes = candidates.tables, candidates.layout.rewrite_bytes
        reads = traffic.reads[numbers] if knows_reads else np.ones(len(numbers))
        scores = compute_scores(savings.cost, sizes, reads)
        best = choose_candidates(numbers, scores, candidates.layout.is_full, min_score)
        chosen, _ = choose_actions(scores[best], sizes[best], min_score=min_score, max_bytes=None)
        for number in best[chosen].tolist():
            table = int(numbers[number])
            runs = cast("list[SortedRun]", tables.runs[table])
            selection = select_levels(LEVELS, runs, int(candidates.levels[number]))
            assert selection is not None
            tables.compact(table, selection.count, selection.output_level)

    return maintain


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The merges of which each table may have one; arrays have one item per merge."""

    tables: Int64Array
    levels: Int64Array
    layout: PartitionLayout


def find_candidates(tables: Tables, hour: int) -> Candidates:
    """Return the merge up to each level, and the full compactions of idle tables."""
    files, sizes = (np.zeros((len(tables.runs), LEVELS), np.int64) for _ in range(2))
    for table, runs in enumerate(tables.runs):
        for run in runs:
            files[table, run.level] += run.files
            sizes[table, run.level] += run.size
    merges = LevelMerges.compute(files, sizes)
    changes = np.diff(merges.files, axis=1, prepend=0) > 0
    numbers, levels = np.nonzero(changes)
    idle = np.flatnonzero((hour - tables.written >= IDLE_HOURS) & (merges.files[:, -1] > 0))
    is_full = np.repeat([False, True], [len(numbers), len(idle)])
    numbers, levels = np.r_[numbers, idle], np.r_[levels, np.full(len(idle), LEVELS - 1)]
    layout = PartitionLayout(
        files=files.sum(axis=1)[numbers],
        bytes=sizes.sum(axis=1)[numbers],
        sorted_runs=tables.count_runs()[numbers],
        deleted_ratio=np.zeros(len(numbers)),
        rewrite_files=merges.files[numbers, levels],
        rewrite_bytes=merges.bytes[numbers, levels],
        rewrite_buckets=np.ones(len(numbers), np.int64),
        is_full=is_full,
        remaining_runs=merges.remaining_runs[numbers, levels],
    )
    return Candidates(tables=numbers, levels=levels, layout=layout)


RULES: dict[str, tuple[Sequence[int], Callable[[int], Maintain]]] = {
    "fixed threshold": (THRESHOLDS, use_threshold),
    "autopilot": (MIN_SCORES, partial(use_autopilot, knows_reads=True)),
    "autopilot, reads unknown": (MIN_SCORES, partial(use_autopilot, knows_reads=False)),
}


def main(
    tables: Annotated[int, typer.Option(min=1)] = 1000,
    days: Annotated[int, typer.Option(min=1)] = 3,
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    warm_up_days: Annotated[int, typer.Option(min=0)] = 3,
    *,
    draw: Annotated[bool, typer.Option("--draw")] = False,
) -> None:
    """Simulate each rule with each setting, and compute the means of several seeds."""
    traffics = [Traffic.generate(tables, np.random.default_rng(seed)) for seed in range(seeds)]
    results = []
    for rule, (settings, build) in RULES.items():
        for setting in settings:
            figures = [
                simulate(traffic, build(setting), days, seed, warm_up_days)
                for seed, traffic in enumerate(traffics)
            ]
            of_bytes, of_reads, gb_per_day = np.mean(figures, axis=0).tolist()
            results.append(
                Result(
                    rule=rule,
                    setting=setting,
                    amplification_of_bytes=of_bytes,
                    amplification_of_reads=of_reads,
                    gb_per_day=gb_per_day,
                )
            )
    show_results(f"{tables:,} tables, {days} days after {warm_up_days}, {seeds} seeds", results)
    if draw:
        draw_results(results)


def show_results(title: str, results: Sequence[Result]) -> None:
    """Print a row for each simulation, and the share of bytes at equal read amplification."""
    table = Table("rule", "setting", "of bytes", "of reads", "GB per day", title=title)
    for each in results:
        figures = (each.amplification_of_bytes, each.amplification_of_reads, each.gb_per_day)
        table.add_row(each.rule, str(each.setting), *(f"{figure:.2f}" for figure in figures))
    console.print(table)
    [default] = [r for r in results if (r.rule, r.setting) == ("fixed threshold", 5)]
    for rule in list(RULES)[1:]:
        points = sorted((r.amplification_of_bytes, r.gb_per_day) for r in results if r.rule == rule)
        amplifications, sizes = zip(*points, strict=True)
        equal = np.interp(default.amplification_of_bytes, amplifications, sizes)
        share = equal / default.gb_per_day
        console.print(f"{rule}: {share:.0%} of the bytes at the amplification of threshold 5")


def draw_results(results: Sequence[Result]) -> None:
    """Draw read amplification against rewritten bytes, with a line for each rule."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": IMAGE.stem, "font.size": 10})
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    figure.patch.set_facecolor("white")
    axes = figure.subplots()
    for rule, color in zip(RULES, ("#9aa5b1", "#3f51b5", "#d08c2f"), strict=True):
        points = [r for r in results if r.rule == rule]
        x = [point.gb_per_day for point in points]
        y = [point.amplification_of_bytes for point in points]
        axes.plot(x, y, marker="o", color=color, label=rule)
        name = "" if rule == "fixed threshold" else "score "
        for point in points[:: 1 if not name else 3]:
            place = (point.gb_per_day, point.amplification_of_bytes)
            axes.annotate(f"{name}{point.setting}", place, xytext=(5, 5), fontsize=8,
                          textcoords="offset points", color=color)  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("GB rewritten per day")
    axes.set_ylabel("read amplification of bytes")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(IMAGE, metadata={"Date": None})


if __name__ == "__main__":
    typer.run(main)
