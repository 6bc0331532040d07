"""Streaming k-way merge of sorted runs, in bounded memory (engine: one batch of every run at a time).

The smallest of the runs' last loaded keys bounds what is complete. Rows up to that bound, from all runs, are put in
order and handed on as one :class:`MergeBatch`; the rest waits. Keys within one run are unique.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.files.data_file_reader import BATCH_ROWS
from paimon_orch.format.arrays import Indices, Int32Array, Mask
from paimon_orch.format.row.row_kind import is_retract
from paimon_orch.format.schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_orch.merge.sort.key_order import Key, KeyColumns, to_comparable_column


@dataclass(frozen=True, slots=True)
class MergeRun:
    """One sorted run to merge: its rows in key order, each batch with the level it comes from."""

    batches: Iterable[tuple[int, pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBatch:
    """Complete groups of rows with equal keys.

    ``order`` sorts ``rows`` by key, then sequence; group ``i`` is ``order[starts[i]:starts[i + 1]]``. ``levels`` tells
    the level that each of ``rows`` came from, ``reduced`` which groups had more rows that do not count.
    """

    rows: pa.Table
    keys: KeyColumns
    order: Indices
    starts: Indices
    levels: Int32Array
    reduced_groups: Mask | None = None

    @property
    def sizes(self) -> Indices:
        """Return the number of rows of each group."""
        return np.diff(np.append(self.starts, len(self.order)))

    @property
    def newest_row_per_key(self) -> Indices:
        """Return the row of each group that comes last: the newest."""
        ends = np.append(self.starts[1:], len(self.order)) - 1
        chosen: Indices = self.order[ends]
        return chosen

    def any_in_group(self, flags: Mask) -> Mask:
        """Tell for each group whether one of its rows has the flag."""
        found: Mask = np.logical_or.reduceat(flags[self.order], self.starts)
        return found


class _RunBuffer:
    """What is loaded of one run and not handed on yet."""

    def __init__(self, run: MergeRun, key_names: Sequence[str]) -> None:
        self._batches = iter(run.batches)
        self._names = key_names
        self.level = 0
        self.rows: pa.RecordBatch | None = None
        self.last: Key = ()
        self.load()

    def load(self) -> None:
        self.level, self.rows = next(self._batches, (0, None))
        if self.rows is not None:
            self.keys = KeyColumns.of(self.rows, self._names)
            self.last = self.keys.at(len(self.keys) - 1)

    def take(self, bound: Key) -> tuple[pa.RecordBatch, KeyColumns] | None:
        """Hand on the rows up to the bound; loads the next batch when all are gone."""
        assert self.rows is not None
        count = len(self.keys) if self.last <= bound else self.keys.count_up_to(bound)
        if count == 0:
            return None
        taken = self.rows.slice(0, count), self.keys.slice(0, count)
        if count == len(self.keys):
            self.load()
        else:
            self.rows = self.rows.slice(count)
            self.keys = self.keys.slice(count, len(self.keys) - count)
        return taken


@dataclass(frozen=True, slots=True)
class SequenceOrder:
    """How rows of one key are ordered before ``_SEQUENCE_NUMBER``: ``sequence.field`` and its direction."""

    names: tuple[str, ...] = ()
    descending: bool = False

    def ranks(self, rows: pa.Table) -> list[Indices]:
        """Return an ascending rank of every row for each field; null is smallest in both directions."""
        return [self._compute_rank(to_comparable_column(rows.column(name))) for name in self.names]

    def _compute_rank(self, column: pa.Array) -> Indices:
        ranks = compute_dense_rank(column)
        if not self.descending:
            return ranks
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return np.where(valid, ranks.max(initial=0) + 1 - ranks, 0)


def compute_dense_rank(column: pa.Array) -> Indices:
    """Return the rank of each value among the distinct ones, from 1; null is 0."""
    ranks = pc.rank(column, "ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), ranks, 0)


NO_SEQUENCE_FIELD = SequenceOrder()
_MIN_BATCH_ROWS = 16_384  # to load at once: the end of every batch is the end of a step


def plan_batch_rows(run_rows: Sequence[int]) -> list[int]:
    """Return how many rows of each run to load at once, from the rows that each has.

    A thin run spends few rows while the densest spends a batch: more of them would only wait in memory.
    """
    most = max(run_rows, default=1)
    return [max(_MIN_BATCH_ROWS, BATCH_ROWS * rows // max(1, most)) for rows in run_rows]


def merge_runs(
    runs: Sequence[MergeRun],
    key_names: Sequence[str],
    sequence: SequenceOrder = NO_SEQUENCE_FIELD,
    *,
    newest: bool = False,
) -> Iterator[MergeBatch]:
    """Yield the rows of all runs in key order, step by step.

    Runs are given oldest first: rows that are equal in everything else keep that order, and so do those of runs that were
    read without ``_SEQUENCE_NUMBER``. Of the latter ``newest`` yields the last row of each key alone.
    """
    buffers = [_RunBuffer(run, key_names) for run in runs]
    while buffers := [buffer for buffer in buffers if buffer.rows is not None]:
        bound = min(buffer.last for buffer in buffers)
        parts = []
        for buffer in buffers:
            level, taken = buffer.level, buffer.take(bound)
            if taken is not None:
                parts.append((level, *taken))
        yield _build_batch(parts, sequence, newest=newest)


def _build_batch(
    parts: Sequence[tuple[int, pa.RecordBatch, KeyColumns]],
    sequence: SequenceOrder,
    *,
    newest: bool,
) -> MergeBatch:
    rows = pa.Table.from_batches([batch for _, batch, _ in parts])
    keys = KeyColumns.concat([part_keys for _, _, part_keys in parts])
    levels = np.repeat(
        np.array([level for level, _, _ in parts], np.int32),
        [batch.num_rows for _, batch, _ in parts],
    )
    if len(parts) == 1:  # one run alone: its keys are unique and sorted
        return _build_unique_batch(rows, keys, levels)
    if SEQUENCE_NUMBER.name not in rows.column_names:
        if newest:
            last = keys.newest([batch.num_rows for _, batch, _ in parts])
            return _build_unique_batch(rows.take(pa.array(last)), keys.take(last), levels[last])
        order, starts, _ = _group_by_key(keys)
        return MergeBatch(rows=rows, keys=keys, order=order, starts=starts, levels=levels)
    return _build_ordered_batch(rows, keys, levels, sequence)


def _build_unique_batch(rows: pa.Table, keys: KeyColumns, levels: Int32Array) -> MergeBatch:
    everything = np.arange(len(keys))
    return MergeBatch(rows=rows, keys=keys, order=everything, starts=everything, levels=levels)


def insert_rows(
    step: MergeBatch,
    found: Sequence[tuple[int, pa.RecordBatch]],
    key_names: Sequence[str],
    sequence: SequenceOrder,
) -> MergeBatch:
    """Return a step with further rows, of the given levels, put in order among its own."""
    if not found:
        return step
    names = step.rows.column_names
    older = pa.Table.from_batches([batch.select(names) for _, batch in found])
    rows = pa.concat_tables([older, step.rows])
    keys = KeyColumns.concat([KeyColumns.of(older, key_names), step.keys])
    counts = [batch.num_rows for _, batch in found]
    levels = np.repeat(np.array([level for level, _ in found], np.int32), counts)
    return _build_ordered_batch(rows, keys, np.concatenate((levels, step.levels)), sequence)


def build_sorted_batch(
    rows: pa.Table, key_names: Sequence[str], sequence: SequenceOrder = NO_SEQUENCE_FIELD
) -> MergeBatch:
    """Return unsorted rows as one step, as if they came from level 0."""
    keys = KeyColumns.of(rows, key_names)
    return _build_ordered_batch(rows, keys, np.zeros(rows.num_rows, np.int32), sequence)


def _build_ordered_batch(
    rows: pa.Table, keys: KeyColumns, levels: Int32Array, sequence: SequenceOrder
) -> MergeBatch:
    order, starts, same = _group_by_key(keys)
    order = _sort_by_sequence(order, starts, same=same, rows=rows, sequence=sequence)
    return MergeBatch(rows=rows, keys=keys, order=order, starts=starts, levels=levels)


def _group_by_key(keys: KeyColumns) -> tuple[Indices, Indices, Mask]:
    """Return the order of the rows by key, where in it each key begins, and which rows are followed by their like."""
    order, same = keys.ordered()
    return order, np.flatnonzero(np.concatenate(([True], ~same))), same


def _sort_by_sequence(
    order: Indices,
    starts: Indices,
    same: Mask,
    rows: pa.Table,
    sequence: SequenceOrder,
) -> Indices:
    """Order the rows of each key: user sequence, sequence number, then -U and -D before +I and +U."""
    numbers = rows.column(SEQUENCE_NUMBER.name).to_numpy()
    ordered = numbers[order]
    if not same.any():
        return order
    if not sequence.names and not (same & (ordered[:-1] >= ordered[1:])).any():
        return order  # most often the rows of a key are in order already
    group = np.zeros(len(order), np.int64)
    group[starts[1:]] = 1
    if VALUE_KIND.name in rows.column_names:
        is_add = ~is_retract(rows.column(VALUE_KIND.name))
    else:
        is_add = np.zeros(len(order), bool)
    criteria = [is_add, numbers, *reversed(sequence.ranks(rows))]
    resorted: Indices = order[
        np.lexsort([*(values[order] for values in criteria), np.cumsum(group)])
    ]
    return resorted
