"""Merging sorted runs equals updating a dictionary, with about one batch per run in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.merge.sort.sort_merge_reader import (
    MergeBatch,
    MergeRun,
    RowBlock,
    build_sorted_batch,
    merge_blocks,
    merge_runs,
)

Record = tuple[Any, ...]
INTEGER = ["k"]
COMPOSITE = ["k", "t"]


def batch_of(rows: list[tuple[Record, int]], names: list[str]) -> pa.RecordBatch:
    """Return rows of (key, sequence number); the value contains the sequence number."""
    keys = {
        name: pa.array(
            [key[position] for key, _ in rows], pa.int64() if name == "k" else pa.string()
        )
        for position, name in enumerate(names)
    }
    numbers = pa.array([number for _, number in rows], pa.int64())
    kinds = pa.array([0] * len(rows), pa.int8())
    return pa.record_batch(
        {"_SEQUENCE_NUMBER": numbers, "_VALUE_KIND": kinds, **keys, "v": numbers}
    )


def batches_of(
    rows: list[tuple[Record, int]], names: list[str], batch_rows: int, level: int = 0
) -> Iterator[tuple[int, pa.RecordBatch]]:
    for position in range(0, len(rows), batch_rows):
        yield level, batch_of(rows[position : position + batch_rows], names)


def run_of(
    rows: list[tuple[Record, int]], names: list[str], batch_rows: int, level: int = 0
) -> MergeRun:
    return MergeRun(batches_of(rows, names, batch_rows, level))


def newest(steps: Iterator[MergeBatch], names: list[str]) -> list[tuple[Record, int]]:
    """Return the last row of every group, in the order of the groups."""
    result = []
    for step in steps:
        rows = step.rows.take(pa.array(step.newest_row_per_key))
        keys = zip(*(rows[name].to_pylist() for name in names), strict=True)
        result += list(zip(keys, rows["v"].to_pylist(), strict=True))
    return result


def comparable(key: Record) -> tuple[tuple[bool, Any], ...]:
    return tuple((True, value) for value in key)


def runs_strategy(names: list[str]) -> st.SearchStrategy[list[list[Record]]]:
    integers = st.integers(-20, 20)
    parts = (
        (integers, st.sampled_from(["", "a", "b", "\U0001f600"]))
        if names == COMPOSITE
        else (integers,)
    )
    key = st.tuples(*parts)
    return st.lists(st.lists(key, unique=True, max_size=25), min_size=1, max_size=6)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("names", [INTEGER, COMPOSITE], ids=["one column", "two columns"])
def test_a_merge_has_the_same_result_as_updates_of_a_dictionary(names: list[str]) -> None:
    @given(runs_strategy(names), st.integers(1, 9), st.randoms(use_true_random=False))
    def check(runs: list[list[Record]], batch_rows: int, random: Any) -> None:
        numbers = list(range(sum(map(len, runs))))
        random.shuffle(numbers)  # the runs are in another order than their rows
        model: dict[Record, int] = {}
        merged = []
        for keys in runs:
            rows = [(key, numbers.pop()) for key in sorted(keys)]
            for key, number in rows:
                model[key] = max(number, model.get(key, -1))
            merged.append(run_of(rows, names, batch_rows))

        assert newest(merge_runs(merged, names), names) == sorted(model.items())

    check()


@given(
    st.lists(st.tuples(st.integers(-9, 9).map(lambda key: (key,)), st.integers(0, 3)), min_size=1)
)
def test_unsorted_rows_are_grouped_and_ordered_by_sequence(rows: list[tuple[Record, int]]) -> None:
    step = build_sorted_batch(pa.Table.from_batches([batch_of(rows, INTEGER)]), INTEGER)

    ordered = [rows[position] for position in step.order]
    assert ordered == sorted(ordered)
    starts = [
        position
        for position, row in enumerate(ordered)
        if not position or ordered[position - 1][0] != row[0]
    ]
    assert step.starts.tolist() == starts


def test_steps_are_ascending_and_return_every_row_once() -> None:
    rows = [[((key,), key) for key in range(start, 60, 3)] for start in (0, 0, 1)]

    steps = list(merge_runs([run_of(run, INTEGER, 4) for run in rows], INTEGER))

    step_keys = [step.keys.take(step.order) for step in steps]
    for keys, next_keys in pairwise(step_keys):
        assert keys.at(len(keys) - 1) < next_keys.at(0)
    assert sum(len(step.order) for step in steps) == sum(map(len, rows))


def test_rows_with_equal_sequence_numbers_keep_the_order_of_the_runs() -> None:
    runs = [
        MergeRun([(0, batch_of([((1,), 5)], INTEGER).set_column(3, "v", pa.array([position])))])
        for position in range(3)
    ]

    (step,) = merge_runs(runs, INTEGER)

    assert step.rows.take(pa.array(step.order))["v"].to_pylist() == [0, 1, 2]


def test_an_add_wins_over_a_retract_of_the_same_sequence_number() -> None:
    def one(kind: int) -> MergeRun:
        batch = batch_of([((1,), 5)], INTEGER)
        return MergeRun([(0, batch.set_column(1, "_VALUE_KIND", pa.array([kind], pa.int8())))])

    (step,) = merge_runs([one(0), one(3)], INTEGER)

    assert step.rows.take(pa.array(step.newest_row_per_key))["_VALUE_KIND"].to_pylist() == [0]


def test_rows_without_sequence_numbers_keep_the_order_of_the_runs() -> None:
    older, newer = (batch_of([((1,), number)], INTEGER) for number in (9, 5))
    runs = [MergeRun([(0, batch.drop_columns("_SEQUENCE_NUMBER"))]) for batch in (older, newer)]

    assert newest(merge_runs(runs, INTEGER), INTEGER) == [((1,), 5)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("distance", [1, 1_000_003], ids=["dense", "sparse"])
@given(st.lists(st.sets(st.integers(-20, 20), max_size=25), min_size=1, max_size=6))
def test_the_reader_can_return_only_the_newest_row_per_key(
    distance: int, rows: list[set[int]]
) -> None:
    runs = [
        [((key * distance,), number) for key in sorted(keys)] for number, keys in enumerate(rows)
    ]
    expected = {key: number for run in runs for key, number in run}
    merging = [
        MergeRun(
            (0, batch.drop_columns("_SEQUENCE_NUMBER")) for _, batch in batches_of(run, INTEGER, 7)
        )
        for run in runs
    ]
    steps = list(merge_runs(merging, INTEGER, newest=True))

    assert newest(iter(steps), INTEGER) == sorted(expected.items())
    for step in steps:
        assert step.keys.arrays[0].to_pylist() == step.rows["k"].to_pylist()
        assert len(step.levels) == step.rows.num_rows == len(step.order)


def test_levels_are_returned_with_their_rows() -> None:
    runs = [
        run_of([((1,), 1), ((2,), 2)], INTEGER, 1, level=4),
        run_of([((2,), 9), ((3,), 9)], INTEGER, 1, level=0),
    ]

    upper = set()
    for step in merge_runs(runs, INTEGER):
        rows = step.rows.take(pa.array(step.newest_row_per_key))
        for key, flag in zip(
            rows["k"].to_pylist(), step.any_in_group(step.levels > 0), strict=True
        ):
            if flag:
                upper.add(key)

    assert upper == {1, 2}


def test_empty_runs_are_skipped() -> None:
    assert list(merge_runs([], INTEGER)) == []
    assert newest(
        merge_runs([MergeRun(()), run_of([((1,), 1)], INTEGER, 9)], INTEGER), INTEGER
    ) == [((1,), 1)]


def test_the_last_rows_of_short_runs_do_not_end_batches() -> None:
    long_run = [((key,), 0) for key in range(1000)]
    # the batches of the short runs, and the runs themselves, end at different keys
    short_runs = [[((key,), run) for key in range(run, 900 + run, 7)] for run in range(1, 9)]
    merging = [run_of(long_run, INTEGER, 100), *(run_of(run, INTEGER, 32) for run in short_runs)]

    steps = list(merge_runs(merging, INTEGER))

    assert len(steps) == 10
    assert sum(len(step.order) for step in steps) == 1000 + sum(map(len, short_runs))


def test_rows_of_one_run_in_two_batches_are_known_to_have_distinct_keys() -> None:
    numbers = [*range(0, 90, 10), *range(100, 140)]
    runs = [
        run_of([((key,), 0) for key in numbers], INTEGER, 10),
        run_of([((key,), 1) for key in range(85)], INTEGER, 85),
    ]

    steps = list(merge_runs(runs, INTEGER))

    assert [step.is_single_run for step in steps] == [False, *[True] * 4]
    assert [step.rows["k"][0].as_py() for step in steps[1:]] == [100, 111, 121, 131]
    for step in steps[1:]:
        assert step.keys.arrays[0].to_pylist() == step.rows["k"].to_pylist()


@pytest.mark.slow
@given(
    st.lists(st.lists(st.integers(0, 60), unique=True, max_size=40), min_size=1, max_size=5),
    st.integers(1, 9),
    st.randoms(use_true_random=False),
)
def test_blocks_are_read_only_if_another_run_has_a_key_in_their_range(
    runs: list[list[int]], batch_rows: int, random: Any
) -> None:
    """A file is open until the block after its last one is requested."""
    numbered = [[((key,), run) for key in sorted(keys)] for run, keys in enumerate(runs)]
    unused = set[int]()
    read = []

    def read_block(number: int, rows: list[tuple[Record, int]]) -> Iterator[Any]:
        unused.remove(number)
        read.append(rows)
        yield from batches_of(rows, INTEGER, max(1, len(rows) // 2))

    def items_of(run: int) -> Iterator[Any]:
        rows = numbered[run]
        for start in range(0, len(rows), batch_rows):
            part = rows[start : start + batch_rows]
            if random.random() < 0.5:
                yield from batches_of(part, INTEGER, batch_rows)
                continue
            number = run * 100 + start
            unused.add(number)
            yield RowBlock(
                low=comparable(part[0][0]),
                high=comparable(part[-1][0]),
                read=partial(read_block, number, part),
            )
            assert number not in unused

    result = []
    for step in merge_blocks([MergeRun(items_of(run)) for run in range(len(runs))], INTEGER):
        if isinstance(step, MergeBatch):
            result += newest(iter([step]), INTEGER)
            continue
        number = next(n for n in unused if comparable(numbered[n // 100][n % 100][0]) == step.low)
        unused.remove(number)
        start = number % 100
        block = numbered[number // 100][start : start + batch_rows]
        others = [key for run, keys in enumerate(runs) if run != number // 100 for key in keys]
        assert not any(block[0][0] <= (key,) <= block[-1][0] for key in others)
        result += block

    expected = {key: number for rows in numbered for key, number in rows}
    assert result == sorted(expected.items())
    for rows in read:
        other_keys = [key for keys in numbered for key, run in keys if run != rows[0][1]]
        assert any(rows[0][0] <= key <= rows[-1][0] for key in other_keys)


def test_the_last_rows_before_a_block_end_a_batch() -> None:
    """The block is not requested again or read to make the batch larger."""
    used = []

    def read_block() -> Iterator[Any]:
        used.append("read")
        yield from batches_of([((key,), 0) for key in range(105, 110)], INTEGER, 5)

    def items() -> Iterator[Any]:
        yield from batches_of([((key,), 0) for key in range(101)], INTEGER, 100)
        yield RowBlock(low=comparable((105,)), high=comparable((109,)), read=read_block)
        used.append("finished")

    other = run_of([((key,), 1) for key in [*range(3, 104), *range(120, 150)]], INTEGER, 200)

    shown = []
    for step in merge_blocks([MergeRun(items()), other], INTEGER):
        if isinstance(step, MergeBatch):
            keys = [key for key, _ in newest(iter([step]), INTEGER)]
            shown.append((keys[0], keys[-1], list(used)))
        else:
            shown.append((step.low[0][1:], step.high[0][1:], list(used)))

    assert shown == [
        ((0,), (99,), []),
        ((100,), (100,), []),
        ((101,), (103,), []),
        ((105,), (109,), []),
        ((120,), (149,), ["finished"]),
    ]


@pytest.mark.parametrize(
    "shape", ["interleaved", "one after the other", "one long and several short"]
)
def test_a_merge_buffers_about_one_batch_per_run(shape: str) -> None:
    """Buffered rows never exceed two batches per run, regardless of the length of the runs."""
    count, batch_rows, length = 4, 10, 400
    keys = {
        "interleaved": [range(run, count * length, count) for run in range(count)],
        "one after the other": [range(run * length, (run + 1) * length) for run in range(count)],
        "one long and several short": [
            range(length),
            *(range(position, position + 2) for position in range(3)),
        ],
    }[shape]
    read = 0

    def reading(numbers: range) -> Iterator[tuple[int, pa.RecordBatch]]:
        nonlocal read
        for start in range(0, len(numbers), batch_rows):
            part = numbers[start : start + batch_rows]
            read += len(part)
            yield 0, batch_of([((key,), 0) for key in part], INTEGER)

    handed_on = 0
    for step in merge_runs([MergeRun(reading(numbers)) for numbers in keys], INTEGER):
        assert len(step.order) <= 1.5 * count * batch_rows
        assert read - handed_on <= 2 * count * batch_rows
        handed_on += len(step.order)
    assert handed_on == read == sum(map(len, keys))
