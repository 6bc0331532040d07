"""Streaming k-way merge of sorted runs, in bounded memory (engine: one batch of every run at a time).

The smallest of the runs' last loaded keys bounds what is complete. Rows up to that bound, from all runs, are put in
order and handed on as one :class:`Step`; the rest waits. Keys within one run are unique.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_orch.format.schema import SEQUENCE_NUMBER
from paimon_orch.merge.keys import Indices, Key, KeyColumns


@dataclass(frozen=True, slots=True)
class MergeRun:
    """One sorted run to merge: its rows in key order, each batch with the level it comes from."""

    batches: Iterable[tuple[int, pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Step:
    """Complete groups of rows with equal keys.

    ``order`` sorts ``rows`` by key, then sequence; group ``i`` is ``order[starts[i]:starts[i + 1]]``. ``levels`` tells
    the level that each of ``rows`` came from.
    """

    rows: pa.Table
    keys: KeyColumns
    order: Indices
    starts: Indices
    levels: npt.NDArray[np.int32]

    @property
    def lasts(self) -> Indices:
        """Return the row of each group that comes last: the newest."""
        ends = np.append(self.starts[1:], len(self.order)) - 1
        chosen: Indices = self.order[ends]
        return chosen

    def any_of_group(self, flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Tell for each group whether one of its rows has the flag."""
        found: npt.NDArray[np.bool_] = np.logical_or.reduceat(flags[self.order], self.starts)
        return found


class _Buffer:
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


def merge_runs(runs: Sequence[MergeRun], key_names: Sequence[str]) -> Iterator[Step]:
    """Yield the rows of all runs in key order, step by step.

    Runs are given oldest first: rows of equal key and sequence number keep that order.
    """
    buffers = [_Buffer(run, key_names) for run in runs]
    while buffers := [buffer for buffer in buffers if buffer.rows is not None]:
        bound = min(buffer.last for buffer in buffers)
        parts = []
        for buffer in buffers:
            level, taken = buffer.level, buffer.take(bound)
            if taken is not None:
                parts.append((level, *taken))
        yield _step(parts)


def _step(parts: Sequence[tuple[int, pa.RecordBatch, KeyColumns]]) -> Step:
    rows = pa.Table.from_batches([batch for _, batch, _ in parts])
    keys = KeyColumns.concat([part_keys for _, _, part_keys in parts])
    levels = np.repeat(
        np.array([level for level, _, _ in parts], np.int32),
        [batch.num_rows for _, batch, _ in parts],
    )
    if len(parts) == 1:  # one run alone: its keys are unique and sorted
        everything = np.arange(len(keys))
        return Step(rows, keys, everything, everything, levels)
    return _ordered(rows, keys, levels)


def sort_step(rows: pa.Table, key_names: Sequence[str]) -> Step:
    """Return unsorted rows as one step, as if they came from level 0."""
    return _ordered(rows, KeyColumns.of(rows, key_names), np.zeros(rows.num_rows, np.int32))


def _ordered(rows: pa.Table, keys: KeyColumns, levels: npt.NDArray[np.int32]) -> Step:
    order = keys.sort_order()
    same = keys.take(order).same_as_next()
    starts = np.flatnonzero(np.concatenate(([True], ~same)))
    return Step(rows, keys, _by_sequence(order, starts, same, rows), starts, levels)


def _by_sequence(
    order: Indices, starts: Indices, same: npt.NDArray[np.bool_], rows: pa.Table
) -> Indices:
    """Order the rows of each group by sequence number; most often they are already."""
    sequence = rows.column(SEQUENCE_NUMBER.name).to_numpy()[order]
    if not (same & (sequence[:-1] > sequence[1:])).any():
        return order
    group = np.zeros(len(order), np.int64)
    group[starts[1:]] = 1
    resorted: Indices = order[np.lexsort((sequence, np.cumsum(group)))]
    return resorted
