"""The choice of the executor: small work runs in the process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.histories import HISTORY, backdate_files, create_orphan_files, make_table
from support.tables import stored_files

from paimon_orch.errors import CorruptFileError, InputError, StorageError
from paimon_orch.steps.cleanup import remove_orphan_files as step
from paimon_orch.steps.common.executor import InProcessExecutor, ThresholdExecutor
from paimon_orch.steps.common.executor_choice import MAX_LOCAL_BYTES, ChoosingExecutor, ExecutorKind
from paimon_orch.steps.common.local_executor import LocalExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.inspection.check_table import check


class Elsewhere(InProcessExecutor):
    """Stands for Spark."""

    def __init__(self) -> None:
        self.units = 0
        self.labels: set[str] = set()

    def map(self, run: Any, units: Sequence[Any], *, label: str, **named: Any) -> list[bytes]:
        self.units += len(units)
        self.labels.add(label)
        return super().map(run, units, label=label, **named)

    def shuffle(self, split: Any, units: Sequence[Any], join: Any, **named: Any) -> list[bytes]:
        self.units += len(units)
        self.labels.add(named["label"])
        return super().shuffle(split, units, join, **named)


def echo(unit: bytes) -> bytes:
    return unit


@pytest.mark.parametrize("error", [StorageError("the disk is full"), KeyboardInterrupt()])
def test_the_error_of_a_unit_is_raised_after_the_results_are_undone(error: BaseException) -> None:
    def run(unit: bytes) -> bytes:
        if unit == b"c":
            raise error
        return unit

    undone: list[bytes] = []
    for undo in (undone.extend, None):
        with pytest.raises(type(error)) as caught:
            InProcessExecutor().map(run, [b"a", b"b", b"c", b"d"], label="x", undo=undo)
        assert caught.value is error
    assert undone == [b"a", b"b"]


def test_many_units_use_the_given_executor_and_few_do_not() -> None:
    elsewhere, created = Elsewhere(), []

    def make() -> Elsewhere:
        created.append(1)
        return elsewhere

    executor = ThresholdExecutor(make, many=3)

    assert executor.map(echo, [b"a", b"b"], label="few") == [b"a", b"b"]
    assert (created, elsewhere.units) == ([], 0)
    assert executor.map(echo, [b"a", b"b", b"c"], label="many") == [b"a", b"b", b"c"]
    assert (created, elsewhere.units) == ([1], 3)


def test_large_tables_are_listed_by_the_executor_and_small_ones_are_not(tmp_path: Path) -> None:
    table = make_table(tmp_path, "vectors", HISTORY)
    backdate_files(table)
    elsewhere = Elsewhere()
    executor = ThresholdExecutor(lambda: elsewhere, many=3)

    small = step.plan(table, step.RemoveOrphanFilesRequest(), executor=executor)
    assert elsewhere.units == 0
    small_units = step.RemoveOrphanFilesRequest(directories_per_unit=1, manifests_per_unit=1)
    large = step.plan(table, small_units, executor=executor)

    assert elsewhere.labels == {"list the files of db.t and read its manifests"}
    assert small == replace(large, request=small.request) == step.plan(table, small.request)


def test_a_manifest_that_the_executor_cannot_read_stops_the_cleanup(tmp_path: Path) -> None:
    table = make_table(tmp_path, "vectors", HISTORY)
    create_orphan_files(table)
    before = stored_files(table)
    for path in sorted(Path(table.paths.manifest_dir).glob("manifest-[0-9a-f]*-*-*-*-*-*")):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(CorruptFileError, match=path.name):
            step.remove_orphan_files(table, Elsewhere())
        path.write_bytes(content)
    assert stored_files(table) == before
    assert step.remove_orphan_files(table, Elsewhere()).files == 9
    assert check(table, deep=True).findings == ()


@pytest.mark.parametrize(
    ("kind", "has_master", "work_bytes", "is_local"),
    [
        ("auto", False, None, True),
        ("auto", False, MAX_LOCAL_BYTES, True),
        ("auto", False, MAX_LOCAL_BYTES + 1, False),
        ("auto", True, 1, False),
        ("local", False, MAX_LOCAL_BYTES + 1, True),
        ("spark", False, 1, False),
    ],
)
def test_the_size_of_the_work_and_the_choice_of_the_user_decide_about_spark(
    kind: str, *, has_master: bool, work_bytes: int | None, is_local: bool
) -> None:
    spark = Elsewhere()
    executor = ChoosingExecutor(
        make_spark=lambda: spark, kind=ExecutorKind(kind), has_master=has_master
    )
    assert executor.choose_executor(0, work_bytes) is not spark
    chosen = executor.choose_executor(1, work_bytes)
    assert chosen is spark or isinstance(chosen, LocalExecutor)
    assert isinstance(chosen, LocalExecutor) is is_local


def test_programs_of_spark_submit_use_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ChoosingExecutor(make_spark=Elsewhere)
    assert executor.is_local(1)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert not executor.is_local(1)


def test_a_master_contradicts_the_local_executor() -> None:
    with pytest.raises(InputError, match="cannot be combined with a Spark master"):
        ChoosingExecutor(make_spark=Elsewhere, kind=ExecutorKind.LOCAL, has_master=True)


def test_steps_report_the_size_of_their_work(tmp_path: Path) -> None:
    table, sizes = make_table(tmp_path, "vectors", HISTORY), list[int | None]()

    class Recorder(Elsewhere):
        def map(self, run: Any, units: Sequence[Any], **named: Any) -> list[bytes]:
            sizes.append(named["work_bytes"])
            return super().map(run, units, **named)

    planned = compact.plan(table, compact.CompactRequest(strategy="full"))
    compact.run_compaction(table, planned, Recorder())
    assert sizes == [planned.bytes]
    assert planned.bytes > 0


def test_spark_is_started_once_for_tables_that_need_it_at_the_same_time() -> None:
    started: list[Elsewhere] = []

    @cache
    def start() -> Elsewhere:
        time.sleep(0.05)
        started.append(Elsewhere())
        return started[-1]

    executor = ChoosingExecutor(make_spark=start, kind=ExecutorKind.SPARK)
    with ThreadPoolExecutor(4) as threads:
        chosen = list(threads.map(lambda _: executor.choose_executor(1, None), range(4)))

    assert started == [chosen[0]]
