"""Decisions of compaction policies and their reasons, on small tables."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import new_table, table_of

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import CompactRequest, compact, plan
from paimon_orch.steps.compaction.decide import decide
from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionPolicy
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.table import Table

VECTORS = {"deletion_vectors__enabled": "true"}


def upsert(table: Table, *days: str, rows: int = 4, value: str = "a") -> None:
    rows_of_days = [(day, number, value) for day in days for number in range(rows)]
    table.upsert(table_of("dt k v", rows_of_days).cast(pa.schema([("dt", "string"), ("k", "int64"), ("v", "string")])))  # fmt: skip


def create_partitioned_table(root: Path, **options: str) -> Table:
    return new_table(root, "dt STRING, k BIGINT, v STRING", key=["dt", "k"], partition_by=["dt"], **options)  # fmt: skip


def settle(table: Table, **chosen: Any) -> None:
    assert compact(table, InProcessExecutor(), **chosen).snapshot_id


def reasons_of(table: Table, **policy: Any) -> dict[str, CompactionDecision]:
    return {d.partition: d for d in decide(table, CompactionPolicy(**policy))}


def test_by_default_any_file_on_level_0_is_compacted(tmp_path: Path) -> None:
    table = create_partitioned_table(tmp_path, **VECTORS)
    upsert(table, "a", "b")
    settle(table)
    upsert(table, "b", value="b")

    reasons = reasons_of(table)

    assert not reasons["dt=a"].compact
    assert reasons["dt=a"].reason.startswith("nothing to compact: level-0 files: 0")
    assert reasons["dt=b"].compact
    assert reasons["dt=b"].strategy == "minor"
    assert "level-0 files: 1 (threshold 1)" in reasons["dt=b"].reason
    assert reasons["dt=b"].metrics.level0_files == 1
    assert reasons["dt=b"].metrics.rewrite_files == 1


def test_work_below_the_thresholds_waits_for_a_limited_time(tmp_path: Path) -> None:
    table = create_partitioned_table(tmp_path, **VECTORS)
    upsert(table, "a")

    [waiting] = decide(table, CompactionPolicy(level0_files=3))
    [late] = decide(table, CompactionPolicy(level0_files=3), overdue={"dt=a"})
    for _ in range(2):
        upsert(table, "a")
    [reached] = decide(table, CompactionPolicy(level0_files=3))

    assert (waiting.compact, waiting.is_waiting) == (False, True)
    assert waiting.reason.startswith("below all thresholds: level-0 files: 1")
    assert late.compact
    assert late.reason.startswith("the partition has waited longer than 1 h")
    assert reached.compact
    assert "level-0 files: 3 (threshold 3)" in reached.reason


def test_read_amplification_is_a_reason_to_compact(tmp_path: Path) -> None:
    table = create_partitioned_table(tmp_path, num_sorted_run__compaction_trigger="2")
    for _ in range(3):
        upsert(table, "a")

    assert (
        "sorted runs: 3 (threshold 3)"
        in reasons_of(table, level0_files=9, sorted_runs=3)["dt=a"].reason
    )
    assert reasons_of(table, level0_files=9, sorted_runs=4)["dt=a"].is_waiting


def test_files_that_the_options_exclude_are_not_compacted(tmp_path: Path) -> None:
    table = create_partitioned_table(tmp_path)
    upsert(table, "a")

    reason = reasons_of(table)["dt=a"]

    assert not plan(table, CompactRequest())
    assert (reason.compact, reason.is_waiting) == (False, False)


def test_a_high_share_of_deleted_rows_requires_a_full_compaction(tmp_path: Path) -> None:
    table = create_partitioned_table(tmp_path, **VECTORS, compaction__delete_ratio_threshold="1.0")
    for value in "abc":
        upsert(table, "a", value=value)
        settle(table)
    assert not plan(table, CompactRequest())

    reason = reasons_of(table)["dt=a"]
    [minor_only] = decide(table, may_be_full=False)
    limited = reasons_of(table, max_rewrite="1 b")["dt=a"]
    at_limit = reasons_of(table, max_rewrite=f"{reason.metrics.rewrite_bytes} b")["dt=a"]
    at_ratio = reasons_of(table, deleted_ratio=reason.metrics.deleted_ratio)["dt=a"]
    settle(table, strategy="full")

    assert (reason.compact, reason.strategy) == (True, "full")
    assert reason.reason.startswith("67% of the rows are deleted or retracted, more than 50%")
    assert not minor_only.compact
    assert not limited.compact
    assert at_limit.compact
    assert not at_ratio.compact
    assert not reasons_of(table)["dt=a"].compact


def test_compactions_above_the_size_limit_are_not_run(tmp_path: Path) -> None:
    table = create_partitioned_table(tmp_path, num_sorted_run__compaction_trigger="2")
    for value in "ab":
        upsert(table, "a", value=value)

    reason = reasons_of(table, max_rewrite="100 b")["dt=a"]

    assert (reason.compact, reason.is_waiting) == (False, False)
    assert reason.reason.startswith("too much to rewrite")
    assert reason.reason.endswith("limit 100 b")


@pytest.mark.parametrize("options", [VECTORS, {"merge_engine": "first-row"}])
def test_rows_that_readers_do_not_see_wait_for_the_maximum_time_whatever_the_size_limit(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table, policy = (
        create_partitioned_table(tmp_path, **options),
        CompactionPolicy(max_rewrite="1 b"),
    )
    upsert(table, "a")

    [waiting] = decide(table, policy)
    [overdue] = decide(table, policy, overdue={"dt=a"})

    assert (waiting.compact, waiting.is_waiting) == (False, True)
    assert waiting.reason.startswith("too much to rewrite")
    assert overdue.compact
    assert overdue.reason.startswith("rows are not visible to batch readers for more than 1 h")
    settle(table)
    assert not decide(table, policy, overdue={"dt=a"})[0].compact


def test_small_files_of_an_append_table_are_counted(tmp_path: Path) -> None:
    table = new_table(tmp_path, "dt STRING, k BIGINT", key=(), partition_by=["dt"], bucket="-1")
    for _ in range(5):
        table.append(pa.table({"dt": ["a"], "k": [1]}))

    assert "small files: 5 (threshold 2)" in reasons_of(table)["dt=a"].reason
    assert reasons_of(table, small_files=5)["dt=a"].compact
    assert reasons_of(table, small_files=6)["dt=a"].is_waiting


def test_compactions_by_table_option_ignore_thresholds(tmp_path: Path) -> None:
    table = create_partitioned_table(tmp_path, **VECTORS)
    upsert(table, "a")
    settle(table)
    upsert(table, "a", rows=3, value="b")
    settle(table)

    reason = reasons_of(table, level0_files=9, sorted_runs=9, deleted_ratio=1.0)["dt=a"]

    assert reason.reason.startswith("required by the table's options (deleted rows)")


def test_postponed_rows_require_compaction(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="-2", postpone__batch_write_fixed_bucket="false")
    table.upsert(pa.table({"k": [1], "v": ["a"]}))

    [decision] = decide(table)

    assert decision.compact
    assert decision.partition == ""


def test_a_table_without_partitions_has_one_decision_and_an_empty_table_has_no_decision(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, **VECTORS)
    assert decide(table) == []

    table.upsert(pa.table({"k": [1], "v": ["a"]}))

    [decision] = decide(table)
    assert str(decision).startswith("the table: minor compaction: level-0 files: 1")
    assert decision.to_dict()["compact"] == "minor"


def test_tables_that_cannot_be_compacted_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1", clustering__incremental="true")

    with pytest.raises(InputError, match=r"clustering\.columns"):
        decide(table)


@pytest.mark.parametrize("wrong", [{"max_rewrite": "much"}, {"max_wait": "long"}])
def test_sizes_and_durations_are_validated(wrong: dict[str, str]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        CompactionPolicy(**wrong)  # type: ignore[arg-type]


class Reads(LocalFileIO):
    def __init__(self) -> None:
        self.manifests: list[str] = []

    def read_bytes(self, path: str) -> bytes:
        name = path.rsplit("/", 1)[-1]
        if name.startswith("manifest-") and not name.startswith("manifest-list"):
            self.manifests.append(name)
        assert "/manifest/" in path or "/snapshot/" in path or "/schema/" in path
        return super().read_bytes(path)


def test_only_manifests_of_the_selected_partitions_are_read(tmp_path: Path) -> None:
    table = create_partitioned_table(tmp_path, **VECTORS)
    for day in "abcdefgh":
        upsert(table, day)
    reads = Reads()
    table = Table(table.identifier, reads, table.paths)

    [decision] = decide(table, partitions=["dt=c"])

    assert decision.partition == "dt=c"
    assert len(reads.manifests) == 1


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from(["upsert", "compact", "full"]), max_size=6),
    st.booleans(),
    st.integers(1, 3),
)
def test_compacted_partitions_have_work_and_other_partitions_have_a_reason(
    tmp_path_factory: pytest.TempPathFactory, life: list[str], vectors: bool, least: int
) -> None:
    table = create_partitioned_table(tmp_path_factory.mktemp("t"), **(VECTORS if vectors else {}))
    for number, event in enumerate(life):
        if event == "upsert":
            upsert(table, "a", value=str(number))
        else:
            compact(table, InProcessExecutor(), strategy="full" if event == "full" else "minor")

    for decision in decide(table, CompactionPolicy(level0_files=least)):
        work = plan(
            table, CompactRequest(partitions=[decision.partition], strategy=decision.strategy)
        )
        assert decision.reason
        if decision.compact or decision.is_waiting:
            assert work
        else:
            assert not work


def test_a_partition_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path, "dt STRING, k INT, v INT", key=("dt", "k"), partition_by=["dt"])
    table.append(table_of("dt k v", [("a", 1, 1)]))
    assert decide(table, partitions=["dt=a"])
    with pytest.raises(NotFoundError, match=r"db\.t has no partition dt=b"):
        decide(table, partitions=["dt=b"])
