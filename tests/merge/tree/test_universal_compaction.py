"""Selection of runs: the examples of docs/format and general rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options import Options
from paimon_orch.merge.tree.levels import SortedRun
from paimon_orch.merge.tree.universal_compaction import (
    RunSelection,
    UniversalCompaction,
    force_up_level0,
    move_up_level0_only,
    select_full_compaction,
    select_levels,
    select_minor_compaction,
)

LEVELS = 6
NOON = datetime(2026, 1, 31, 12)


def runs_of(text: str) -> list[SortedRun]:
    """Parse ``0:1 0:1 5:100``: level and size of each run, the newest first."""
    pairs = (item.split(":") for item in text.split())
    return [
        SortedRun(int(level), (DataFileMeta(file_name="f", file_size=int(size), row_count=1),))
        for level, size in pairs
    ]


def select_runs(pick: RunSelection | None) -> tuple[int, int] | None:
    return None if pick is None else (pick.count, pick.output_level)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ("0:1 0:1 0:1 5:1", None),
        ("0:1 0:1 0:1 0:1 5:10", (4, 4)),
        ("0:1 0:1 0:1 0:1 5:1", (5, 5)),
        ("0:1 0:1 0:1 0:1 0:1", (5, 5)),
        ("0:1 0:5 0:10 0:20 5:1000", None),
        ("0:1 0:5 0:10 0:20 4:100 5:1000", (4, 3)),
        ("0:1 0:1 0:1 0:1 0:1 0:1 5:1000", (6, 4)),
        ("", None),
    ],
)
def test_universal_compaction_selects_the_documented_runs(
    runs: str, expected: tuple[int, int] | None
) -> None:
    assert select_runs(UniversalCompaction().select_runs(LEVELS, runs_of(runs))) == expected


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ("0:1 5:100", (1, 4)),
        ("0:1 1:100 5:1000", (2, 4)),
        ("0:1 4:1 5:100", (2, 4)),
        ("0:1 0:1", (2, 5)),
        ("3:5 5:100", None),
        # universal compaction takes precedence
        ("0:1 0:1 0:1 0:1 5:1", (5, 5)),
    ],
)
def test_force_up_level_0_selects_the_documented_runs(
    runs: str, expected: tuple[int, int] | None
) -> None:
    selected = force_up_level0(UniversalCompaction(), LEVELS, runs_of(runs))
    assert select_runs(selected) == expected


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ("0:1 5:100", (1, 4)),
        # A deletion vector costs less than a rewrite that includes the small files.
        ("0:9 0:9 4:1 5:1", (2, 3)),
        ("0:1 2:1 5:100", (1, 1)),
        ("0:1 1:100 5:1000", (2, 1)),  # level 1 is included, because there is no level below it
        ("0:1 1:100", (2, 5)),
        ("0:1", (1, 5)),
        ("1:1 5:1", None),
        ("", None),
        ("0:1 0:1 0:1 0:1 5:1", (5, 5)),
    ],
)
def test_a_level_0_compaction_rewrites_few_other_files(
    runs: str, expected: tuple[int, int] | None
) -> None:
    selected = move_up_level0_only(UniversalCompaction(), LEVELS, runs_of(runs))
    assert select_runs(selected) == expected


def test_level_0_compactions_bound_the_number_of_runs() -> None:
    """Each upsert is moved to the next lower level; universal compaction merges full levels."""
    universal, runs = UniversalCompaction(), runs_of("5:1000000")
    for _ in range(50):
        runs = [*runs_of("0:10"), *runs]
        selected = move_up_level0_only(universal, LEVELS, runs)
        assert selected is not None
        size = sum(run.size for run in runs[: selected.count])
        runs = [*runs_of(f"{selected.output_level}:{size}"), *runs[selected.count :]]
        assert all(upper.level < next_run.level for upper, next_run in pairwise(runs))
    assert len(runs) <= LEVELS


@pytest.mark.parametrize(
    ("runs", "level", "expected"),
    [
        ("0:1 0:1 5:100", 0, (2, 4)),
        ("0:1 0:1 4:9 5:100", 0, (2, 3)),
        ("0:1 0:1 4:9 5:100", 3, (2, 3)),
        ("0:1 0:1 4:9 5:100", 4, (3, 4)),
        ("0:1 0:1 4:9 5:100", 5, (4, 5)),
        ("0:1 1:9 5:100", 0, (2, 1)),
        ("0:1 0:1", 0, (2, 5)),
        ("0:1 5:100", 0, None),
        ("3:5 5:100", 0, None),
    ],
)
def test_runs_up_to_a_level_are_merged_below_the_next_run(
    runs: str, level: int, expected: tuple[int, int] | None
) -> None:
    assert select_runs(select_levels(LEVELS, runs_of(runs), level)) == expected


def test_a_full_compaction_selects_all_runs_for_the_highest_level() -> None:
    assert select_runs(select_full_compaction(LEVELS, runs_of("0:1 3:1 5:9"))) == (3, 5)
    assert select_full_compaction(LEVELS, []) is None


@pytest.mark.parametrize(
    ("options", "runs", "expected"),
    [
        ({"compaction.total-size-threshold": "1 kb"}, "0:1 5:1000", (2, 5)),
        ({"compaction.total-size-threshold": "1 kb"}, "0:100 5:1000", None),
        ({"compaction.total-size-threshold": "1 kb"}, "0:1", None),
        ({"compaction.incremental-size-threshold": "10"}, "0:6 4:6 5:1000", (3, 5)),
        ({"compaction.incremental-size-threshold": "10"}, "0:6 5:1000", None),
        ({"num-sorted-run.compaction-trigger": "2"}, "0:1 5:2", None),
        ({"num-sorted-run.compaction-trigger": "2"}, "0:3 5:1", (2, 5)),
        ({"compaction.max-size-amplification-percent": "50"}, "0:1 0:1 0:1 0:1 5:7", (5, 5)),
        ({"compaction.size-ratio": "100"}, "0:5 0:10 0:20 0:40 5:1000", (4, 4)),
    ],
)
def test_options_change_the_thresholds(
    options: dict[str, str], runs: str, expected: tuple[int, int] | None
) -> None:
    universal = UniversalCompaction.of(Options(options), NOON)
    assert select_runs(universal.select_runs(LEVELS, runs_of(runs))) == expected


@pytest.mark.parametrize(
    ("start", "end", "hour", "expected"),
    [
        (9, 17, 12, 51),
        (9, 17, 17, 1),
        (22, 6, 23, 51),
        (22, 6, 5, 51),
        (22, 6, 6, 1),
        (-1, 6, 3, 1),
        (7, 7, 7, 1),
    ],
)
def test_the_size_ratio_is_larger_in_off_peak_hours(
    start: int, end: int, hour: int, expected: int
) -> None:
    options = {
        "compaction.offpeak.start.hour": str(start),
        "compaction.offpeak.end.hour": str(end),
        "compaction.offpeak-ratio": "50",
    }
    assert UniversalCompaction.of(Options(options), NOON.replace(hour=hour)).size_ratio == expected


def with_creation_time(runs: list[SortedRun], level: int, time: datetime | None) -> list[SortedRun]:
    """Set the creation time of the files of a level, in milliseconds of the local wall clock."""
    millis = None if time is None else int(time.replace(tzinfo=UTC).timestamp() * 1000)
    return [
        replace(run, files=tuple(replace(f, creation_time=millis) for f in run.files))
        if run.level == level
        else run
        for run in runs
    ]


HOURLY = {"compaction.optimization-interval": "1 h"}


@pytest.mark.parametrize(
    ("runs", "age", "expected"),
    [
        ("0:1 5:1000", timedelta(minutes=61), (2, 5)),
        ("0:1 5:1000", timedelta(minutes=59), None),
        ("0:1 5:1000", None, (2, 5)),  # the time of the last full compaction is unknown
        ("0:1 4:1000", timedelta(0), (2, 5)),  # there was no full compaction yet
        ("5:1000", timedelta(hours=9), None),  # a single run is not merged
        ("0:1", None, None),
    ],
)
def test_a_full_compaction_is_due_after_the_optimization_interval(
    runs: str, age: timedelta | None, expected: tuple[int, int] | None
) -> None:
    selected = with_creation_time(runs_of(runs), 5, None if age is None else NOON - age)
    assert select_runs(select_minor_compaction(Options(HOURLY), NOON, LEVELS, selected)) == expected


LOOKUP = {"changelog-producer": "lookup"}
GENTLE = LOOKUP | {"lookup-compact": "gentle"}


@pytest.mark.parametrize(
    ("options", "runs", "expected"),
    [
        ({}, "0:1 5:100", None),
        ({"compaction.force-up-level-0": "true"}, "0:1 5:100", (1, 4)),
        (LOOKUP, "0:1 5:100", (1, 4)),
        ({"merge-engine": "first-row"}, "0:1 5:100", (1, 4)),
        ({"force-lookup": "true"}, "0:1 4:1 5:100", (2, 4)),
        ({"deletion-vectors.enabled": "true"}, "0:1 4:1 5:100", (1, 3)),
        ({"deletion-vectors.enabled": "true"}, "0:1 3:1 5:100", (1, 2)),
        (GENTLE, "0:1 5:100", None),
        (GENTLE, " ".join(["0:1"] * 4 + ["5:2"]), (5, 5)),  # universal compaction takes precedence
        (GENTLE, "0:1 0:9 0:99 0:999 5:99999", None),
        (
            GENTLE | {"lookup-compact.max-interval": "5"},
            "0:1 0:9 0:99 0:999 0:9999 5:999999",
            (5, 4),
        ),
        # The interval is at least the compaction trigger.
        (GENTLE | {"lookup-compact.max-interval": "1"}, "0:1 0:9 5:99999", None),
        (GENTLE | {"deletion-vectors.enabled": "true"}, "0:1 5:100", None),
    ],
)
def test_minor_compaction_follows_the_options_of_the_table(
    options: dict[str, str], runs: str, expected: tuple[int, int] | None
) -> None:
    assert (
        select_runs(select_minor_compaction(Options(options), NOON, LEVELS, runs_of(runs)))
        == expected
    )


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 500)), min_size=1, max_size=10),
    st.sampled_from([{}, LOOKUP, GENTLE, HOURLY, {"deletion-vectors.enabled": "true"}]),
)
def test_selected_runs_are_the_newest_and_their_output_level_is_below_the_others(
    selected: list[tuple[int, int]], options: dict[str, str]
) -> None:
    levels = sorted({level for level, _ in selected if level})
    sizes = dict(selected)
    level0 = [f"0:{size}" for level, size in selected if level == 0]
    runs = runs_of(" ".join(level0 + [f"{level}:{sizes[level]}" for level in levels]))

    for pick in (
        select_minor_compaction(Options(options), NOON, LEVELS, runs),
        select_full_compaction(LEVELS, runs),
    ):
        if pick is not None:
            assert 1 <= pick.count <= len(runs)
            assert 1 <= pick.output_level <= LEVELS - 1
            assert all(run.level > pick.output_level for run in runs[pick.count :])
            assert all(run.level <= pick.output_level for run in runs[: pick.count])
