"""Runs have one strategy each, and keys that name their partitions and evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from paimon_orch.orchestration.planned_runs import PlannedRun, plan_partition_runs
from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionMetrics


def decision(path: str, strategy: Literal["minor", "full"] = "minor") -> CompactionDecision:
    return CompactionDecision(
        partition=path,
        compact=True,
        reason="level-0 files: 9",
        metrics=CompactionMetrics(),
        strategy=strategy,
    )


def one_by_one(keys: Sequence[str]) -> list[tuple[str, ...]]:
    return [(key,) for key in keys]


def test_partitions_without_a_key_have_no_run_and_each_run_has_one_strategy() -> None:
    decisions = [decision("dt=a"), decision("dt=b", "full"), decision("dt=c"), decision("dt=d")]
    keys = {"dt=a": "a", "dt=b": "b", "dt=c": "c"}

    runs = plan_partition_runs(decisions, keys, lambda group: [tuple(group)])

    assert [(run.keys, run.decision.strategy) for run in runs] == [
        (("a", "c"), "minor"),
        (("b",), "full"),
    ]
    assert [run.keys for run in plan_partition_runs(decisions, keys, one_by_one)] == [
        ("a",),
        ("c",),
        ("b",),
    ]


def test_the_decision_of_several_partitions_names_the_first_and_counts_the_others() -> None:
    run = PlannedRun(("a", "b", "c"), tuple(decision(f"dt={day}") for day in "abc"))

    assert run.decision.partition == ""
    assert run.decision.reason == "dt=a: level-0 files: 9, and 2 other partitions"
    two = PlannedRun(("a", "b"), run.decisions[:2])
    assert two.decision.reason == "dt=a: level-0 files: 9, and 1 other partition"


def test_the_decision_of_one_partition_is_unchanged() -> None:
    assert PlannedRun(("a",), (decision("dt=a"),)).decision == decision("dt=a")


def test_the_run_of_the_whole_table_has_the_decision_about_it_or_about_its_partitions() -> None:
    assert PlannedRun((), (decision(""),)).decision == decision("")
    assert PlannedRun((), (decision("dt=a"),)).decision.reason == "dt=a: level-0 files: 9"


def test_run_keys_differ_by_table_partitions_and_evaluations() -> None:
    run = PlannedRun(("a", "b"), (decision("dt=a"), decision("dt=b")))
    whole = PlannedRun((), (decision("dt=a"),))
    same = {"dt=a": "7@1", "dt=b": "7@1"}

    assert run.build_run_key("db.t", "/w@1", same) == "db.t:/w@1:compaction:dt=a...dt=b:7@1"
    assert whole.build_run_key("db.t", "/w@1", {"": "7@1"}) == "db.t:/w@1:compaction::7@1"
    mixed = run.build_run_key("db.t", "/w@1", same | {"dt=b": "8@2"})
    swapped = run.build_run_key("db.t", "/w@1", {"dt=a": "8@2", "dt=b": "7@1"})
    assert len({mixed, swapped, run.build_run_key("db.t", "/w@1", same)}) == 3
