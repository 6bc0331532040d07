"""Streaming sort-merge of sorted runs in bounded memory: one batch of each run at a time.

Each run has loaded its rows up to some last key. Up to the smallest of these last keys, the rows of
all runs are complete: they are sorted and yielded as one :class:`MergeBatch`, and later rows are
buffered. Keys within one run are unique.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Indices, Int32Array, Mask
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


class _RunBuffer:
    """The loaded rows of one run that have not been yielded."""

    def __init__(self, run: MergeRun, key_names: Sequence[str]) -> None:
        self._batches = iter(run.batches)
        self._names = key_names
        self.level = 0
        self.rows: pa.RecordBatch | None = None
        self.block: RowBlock | None = None
        self.last: Key = ()
        self.load()

    def load(self) -> None:
        item = next(self._batches, (0, None))
        if isinstance(item, RowBlock):
            self.block, self.rows = item, None
            return
        self.block = None
        self.level, self.rows = item
        if self.rows is not None:
            self.keys = KeyColumns.of(self.rows, self._names)
            self.last = self.keys.at(len(self.keys) - 1)

    def read_block(self) -> None:
        """Load the first rows of the block."""
        assert self.block is not None
        self._batches = chain(self.block.read(), self._batches)
        self.load()

    @property
    def is_exhausted(self) -> bool:
        return self.rows is None and self.block is None

    @property
    def first(self) -> Key:
        """Return the first key, or a lower bound of the keys of the block."""
        return self.keys.at(0) if self.block is None else self.block.low

    def take(
        self, bound: Key, *, inclusive: bool = True
    ) -> tuple[pa.RecordBatch, KeyColumns] | None:
        """Remove and return the rows up to the bound; load the next batch if none remain."""
        assert self.rows is not None
        if self.last < bound or (inclusive and self.last == bound):
            count = len(self.keys)
        else:
            count = self.keys.count_up_to(bound) if inclusive else self.keys.count_below(bound)
        if count == 0:
            return None
        complete_rows = self.rows.slice(0, count), self.keys.slice(0, count)
        if count == len(self.keys):
            self.load()
        else:
            self.rows = self.rows.slice(count)
            self.keys = self.keys.slice(count, len(self.keys) - count)
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
                buffer.load()
                continue
            if next_key >= block.low:
                buffer.read_block()
                continue
            limit = block.low
        loaded = [buffer for buffer in buffers if buffer.block is None]
        bound = min(buffer.last for buffer in loaded)
        inclusive = limit is None or bound < limit
        bound = bound if inclusive or limit is None else limit
        complete_rows = [
            (buffer.level, buffer.take(bound, inclusive=inclusive)) for buffer in loaded
        ]
        parts = [(level, *rows) for level, rows in complete_rows if rows is not None]
        yield _build_batch(parts, sequence, newest=newest)


def _find_first_block(buffers: Sequence[_RunBuffer]) -> tuple[_RunBuffer, Key | None]:
    """Return the buffer with the lowest block, and the lowest key of the other buffers."""
    first, low = None, None
    for buffer in buffers:
        if buffer.block is not None and (low is None or buffer.block.low < low):
            first, low = buffer, buffer.block.low
    assert first is not None
    return first, min((buffer.first for buffer in buffers if buffer is not first), default=None)


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
    if len(parts) == 1:  # the keys of one run are unique and sorted
        return _build_unique_batch(rows, keys, levels)
    if SEQUENCE_NUMBER.name not in rows.column_names:
        if newest:
            indices = keys.find_newest_rows([batch.num_rows for _, batch, _ in parts])
            return _build_unique_batch(
                rows.take(pa.array(indices)), keys.take(indices), levels[indices]
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
    numbers = rows.column(SEQUENCE_NUMBER.name).to_numpy()
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
