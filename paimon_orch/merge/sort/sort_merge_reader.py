"""Streaming sort-merge of sorted runs in bounded memory: one batch of each run at a time.

Each run has loaded its rows up to some last key. Up to the smallest of these last keys, the rows of
all runs are complete: they are sorted and yielded as one :class:`MergeBatch`, and later rows are
buffered. Keys within one run are unique. A run that is loaded to its end does not limit a batch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Indices, Int32Array, Mask, to_arrow_array, to_numpy
from paimon_orch.format.row.row_kind import is_retract
from paimon_orch.format.schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_orch.merge.sort.key_order import Key, KeyColumns
from paimon_orch.merge.sort.sequence_order import NO_SEQUENCE_FIELD, SequenceOrder

LevelRows = tuple[int, pa.RecordBatch]
"""A batch of rows in key order, and its level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Consecutive rows of a run, which are not read if no other run has a key in their range."""

    low: Key
    """A lower bound of the keys."""

    high: Key
    """An upper bound of the keys, or of their first columns."""

    read: Callable[[], Iterable[LevelRows]]


@dataclass(frozen=True, slots=True)
class MergeRun:
    """One sorted run to merge, in key order."""

    batches: Iterable[LevelRows | RowBlock]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBatch:
    """Complete groups of rows with equal keys."""

    rows: pa.Table
    keys: KeyColumns
    order: Indices
    """Sorts ``rows`` by key, then by sequence."""
    starts: Indices
    """Group ``i`` is ``order[starts[i]:starts[i + 1]]``."""
    levels: Int32Array
    """The level of each row in ``rows``."""
    is_single_run: bool = False
    """Whether the rows are from one run, and therefore sorted and with distinct keys."""
    reduced_groups: Mask | None = None
    """The groups from which rows were dropped."""

    @property
    def sizes(self) -> Indices:
        """Return the number of rows of each group."""
        return np.diff(np.append(self.starts, len(self.order)))

    @property
    def newest_row_per_key(self) -> Indices:
        """Return the index of the last, newest row of each group."""
        ends = np.append(self.starts[1:], len(self.order)) - 1
        newest: Indices = self.order[ends]
        return newest

    def any_in_group(self, flags: Mask) -> Mask:
        """Return a mask of the groups with at least one flagged row."""
        groups: Mask = np.logical_or.reduceat(flags[self.order], self.starts)
        return groups


def filter_batch(step: MergeBatch, keep: Mask) -> MergeBatch:
    """Return the batch without some rows; ``keep`` is in the order of ``step.order``."""
    if keep.all():
        return step
    group = np.repeat(np.arange(len(step.starts)), step.sizes)
    starts = np.flatnonzero(np.diff(group[keep], prepend=-1))
    return MergeBatch(
        rows=step.rows, keys=step.keys, order=step.order[keep], starts=starts, levels=step.levels
    )


RowsOfRun = tuple[int, pa.RecordBatch, KeyColumns]
"""Rows of one run: their level, the rows, and the keys."""


class _RunBuffer:
    """The loaded rows of one run that have not been yielded."""

    def __init__(self, run: MergeRun, key_names: Sequence[str]) -> None:
        self._batches = iter(run.batches)
        self._names = key_names
        self._parts: list[RowsOfRun] = []
        self._largest_batch = 0
        self._next_block: RowBlock | None = None
        self.is_finished = False
        self.last: Key = ()
        self.load()

    @property
    def has_rows(self) -> bool:
        return bool(self._parts)

    @property
    def block(self) -> RowBlock | None:
        """Return the block that follows, if all rows before it were taken."""
        return None if self._parts else self._next_block

    @property
    def is_exhausted(self) -> bool:
        return not self._parts and self._next_block is None

    @property
    def first(self) -> Key:
        """Return the first key, or a lower bound of the keys of the block."""
        if self._parts:
            return self._parts[0][2].at(0)
        assert self._next_block is not None
        return self._next_block.low

    def load(self) -> None:
        """Append the next batch, or finish the run if it has none; a block is not read."""
        assert self._next_block is None
        item = next(self._batches, None)
        if item is None:
            self.is_finished = True
        elif isinstance(item, RowBlock):
            self._next_block = item
        else:
            level, rows = item
            keys = KeyColumns.of(rows, self._names)
            self.last = keys.at(len(keys) - 1)
            self._parts.append((level, rows, keys))
            self._largest_batch = max(self._largest_batch, len(keys))

    def read_block(self) -> None:
        """Load the first rows of the block."""
        assert self.block is not None
        self._batches = chain(self.block.read(), self._batches)
        self.skip_block()

    def skip_block(self) -> None:
        """Load what follows the block."""
        self._next_block = None
        self.load()

    def can_load_more(self) -> bool:
        """Return whether less than half a batch is loaded, and no block follows."""
        if self._next_block is not None:
            return False
        return 2 * sum(len(keys) for _, _, keys in self._parts) < self._largest_batch

    def take(self, bound: Key | None, *, inclusive: bool) -> list[RowsOfRun]:
        """Remove and return the rows up to the bound; load the next batch if none remain."""
        if bound is None or self.last < bound or (inclusive and self.last == bound):
            complete_rows, self._parts = self._parts, []
            if not self.is_finished and self._next_block is None:
                self.load()
            return complete_rows
        complete_rows = []
        while True:
            level, rows, keys = self._parts[0]
            count = keys.count_up_to(bound) if inclusive else keys.count_below(bound)
            if count == len(keys):
                complete_rows.append(self._parts.pop(0))
                continue
            if count:
                complete_rows.append((level, rows.slice(0, count), keys.slice(0, count)))
                rest = keys.slice(count, len(keys) - count)
                self._parts[0] = level, rows.slice(count), rest
            return complete_rows


def merge_runs(
    runs: Sequence[MergeRun],
    key_names: Sequence[str],
    sequence: SequenceOrder = NO_SEQUENCE_FIELD,
    *,
    newest: bool = False,
) -> Iterator[MergeBatch]:
    """Yield the rows of all runs in key order, in batches of complete keys.

    ``runs`` are oldest first; this order decides between rows with equal or no sequence numbers.
    ``newest`` yields only the newest row of each key, for rows without ``_SEQUENCE_NUMBER``.
    """
    for step in merge_blocks(runs, key_names, sequence, newest=newest):
        assert isinstance(step, MergeBatch)
        yield step


def merge_blocks(
    runs: Sequence[MergeRun],
    key_names: Sequence[str],
    sequence: SequenceOrder = NO_SEQUENCE_FIELD,
    *,
    newest: bool = False,
) -> Iterator[MergeBatch | RowBlock]:
    """Yield like :func:`merge_runs`, and the blocks in whose range no other run has a key.

    The next step is computed after a block was used.
    """
    buffers = [_RunBuffer(run, key_names) for run in runs]
    while buffers := [buffer for buffer in buffers if not buffer.is_exhausted]:
        limit: Key | None = None
        if any(buffer.block is not None for buffer in buffers):
            buffer, next_key = _find_first_block(buffers)
            block = buffer.block
            assert block is not None
            if next_key is None or next_key[: len(block.high)] > block.high:
                yield block
                buffer.skip_block()
                continue
            if next_key >= block.low:
                buffer.read_block()
                continue
            limit = block.low
        loaded = [buffer for buffer in buffers if buffer.has_rows]
        bound = _find_bound(loaded, limit)
        inclusive = bound != limit
        rows_of_runs = [
            rows for buffer in loaded if (rows := buffer.take(bound, inclusive=inclusive))
        ]
        yield _build_batch(rows_of_runs, sequence, newest=newest)


def _find_bound(buffers: Sequence[_RunBuffer], limit: Key | None) -> Key | None:
    """Return the last key of the next batch, or ``limit``, which all its keys must be less than.

    All runs are loaded up to the returned key; all loaded rows are complete if it is None.

    A run that would end the batch with the last few of its rows loads its next batch first. A
    merge of many runs would otherwise yield a small batch at the end of each of their batches.
    """
    while unfinished := [buffer for buffer in buffers if not buffer.is_finished]:
        first = min(unfinished, key=lambda buffer: buffer.last)
        if limit is not None and first.last >= limit:
            return limit
        if not first.can_load_more():
            return first.last
        first.load()
    return limit


def _find_first_block(buffers: Sequence[_RunBuffer]) -> tuple[_RunBuffer, Key | None]:
    """Return the buffer with the lowest block, and the lowest key of the other buffers."""
    first, low = None, None
    for buffer in buffers:
        if buffer.block is not None and (low is None or buffer.block.low < low):
            first, low = buffer, buffer.block.low
    assert first is not None
    return first, min((buffer.first for buffer in buffers if buffer is not first), default=None)


def _build_batch(
    rows_of_runs: Sequence[list[RowsOfRun]], sequence: SequenceOrder, *, newest: bool
) -> MergeBatch:
    parts = [part for parts in rows_of_runs for part in parts]
    rows = pa.Table.from_batches([batch for _, batch, _ in parts])
    keys = KeyColumns.concat([part_keys for _, _, part_keys in parts])
    levels = np.repeat(
        np.array([level for level, _, _ in parts], np.int32),
        [batch.num_rows for _, batch, _ in parts],
    )
    if len(rows_of_runs) == 1:  # the keys of one run are unique and sorted
        return _build_unique_batch(rows, keys, levels)
    if SEQUENCE_NUMBER.name not in rows.column_names:
        if newest:
            indices = keys.find_newest_rows([batch.num_rows for _, batch, _ in parts])
            return _build_unique_batch(
                rows.take(to_arrow_array(indices)), keys.take(indices), levels[indices]
            )
        order, starts, _ = _group_by_key(keys)
        return MergeBatch(rows=rows, keys=keys, order=order, starts=starts, levels=levels)
    return _build_ordered_batch(rows, keys, levels, sequence)


def _build_unique_batch(rows: pa.Table, keys: KeyColumns, levels: Int32Array) -> MergeBatch:
    order = np.arange(len(keys))
    return MergeBatch(
        rows=rows, keys=keys, order=order, starts=order, levels=levels, is_single_run=True
    )


def insert_rows(
    step: MergeBatch,
    older_rows: Sequence[tuple[int, pa.RecordBatch]],
    key_names: Sequence[str],
    sequence: SequenceOrder,
) -> MergeBatch:
    """Return a batch that also has the rows of other levels, in merge order."""
    if not older_rows:
        return step
    names = step.rows.column_names
    older = pa.Table.from_batches([batch.select(names) for _, batch in older_rows])
    rows = pa.concat_tables([older, step.rows])
    keys = KeyColumns.concat([KeyColumns.of(older, key_names), step.keys])
    counts = [batch.num_rows for _, batch in older_rows]
    levels = np.repeat(np.array([level for level, _ in older_rows], np.int32), counts)
    return _build_ordered_batch(rows, keys, np.concatenate((levels, step.levels)), sequence)


def build_sorted_batch(
    rows: pa.Table, key_names: Sequence[str], sequence: SequenceOrder = NO_SEQUENCE_FIELD
) -> MergeBatch:
    """Return unsorted rows as one batch of level 0."""
    keys = KeyColumns.of(rows, key_names)
    return _build_ordered_batch(rows, keys, np.zeros(rows.num_rows, np.int32), sequence)


def _build_ordered_batch(
    rows: pa.Table, keys: KeyColumns, levels: Int32Array, sequence: SequenceOrder
) -> MergeBatch:
    order, starts, equals_next = _group_by_key(keys)
    order = _sort_by_sequence(order, starts, equals_next=equals_next, rows=rows, sequence=sequence)
    return MergeBatch(rows=rows, keys=keys, order=order, starts=starts, levels=levels)


def _group_by_key(keys: KeyColumns) -> tuple[Indices, Indices, Mask]:
    """Return the order by key, the start of each key, and which rows precede an equal key."""
    order, equals_next = keys.compute_order()
    return order, np.flatnonzero(np.concatenate(([True], ~equals_next))), equals_next


def _sort_by_sequence(
    order: Indices,
    starts: Indices,
    equals_next: Mask,
    rows: pa.Table,
    sequence: SequenceOrder,
) -> Indices:
    """Order the rows of each key: by sequences, then -U and -D before +I and +U."""
    numbers = to_numpy(rows.column(SEQUENCE_NUMBER.name))
    ordered = numbers[order]
    if not equals_next.any():
        return order
    if not sequence.names and not (equals_next & (ordered[:-1] >= ordered[1:])).any():
        return order  # usually the rows of a key are already in order
    group = np.zeros(len(order), np.int64)
    group[starts[1:]] = 1
    if VALUE_KIND.name in rows.column_names:
        is_add = ~is_retract(rows.column(VALUE_KIND.name))
    else:
        is_add = np.zeros(len(order), bool)
    criteria = [is_add, numbers, *reversed(sequence.compute_ranks(rows))]
    sorted_order: Indices = order[
        np.lexsort([*(values[order] for values in criteria), np.cumsum(group)])
    ]
    return sorted_order
