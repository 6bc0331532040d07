"""Sorts rows in bounded memory: sorted runs are spilled to local files and merged.

See docs/format/sort-compaction.md#incremental-clustering.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import pyarrow as pa

from paimon_orch.format.arrays import to_arrow_array
from paimon_orch.merge.sort.key_order import KeyColumns
from paimon_orch.merge.sort.sort_merge_reader import LevelRows, MergeRun, merge_runs

_MIN_BATCH_ROWS = 256
_COMPRESSION = "lz4"


class ExternalSort:
    """Sorts rows by key columns; rows of more than ``memory`` bytes are spilled to disk.

    :param total_rows: an estimate of the number of rows, from which the batch size of the merge
        follows
    :param max_runs: the maximum number of files that are merged together
    """

    def __init__(
        self, key_names: Sequence[str], *, memory: int, total_rows: int, max_runs: int
    ) -> None:
        self._key_names = key_names
        self._memory = memory
        self._total_rows = total_rows
        self._max_runs = max(2, max_runs)
        self._buffered: list[pa.Table] = []
        self._buffered_bytes = 0
        self._runs: list[Path] = []
        self._spilled = 0
        self._folder = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._folder.close()

    def add(self, rows: pa.Table) -> None:
        """Add rows."""
        if not rows.num_rows:
            return
        self._buffered.append(rows)
        self._buffered_bytes += rows.nbytes
        if self._buffered_bytes >= self._memory:
            self._spill(self._sort_buffered())

    def read(self) -> Iterator[pa.Table]:
        """Yield all rows in order; no rows may be added afterwards."""
        if not self._runs:
            if self._buffered:
                yield self._sort_buffered()
            return
        if self._buffered:
            self._spill(self._sort_buffered())
        while len(self._runs) > self._max_runs:
            merged, self._runs = self._runs[: self._max_runs], self._runs[self._max_runs :]
            self._write_run(self._merge(merged), self._batch_rows)
            for path in merged:
                path.unlink()
        yield from self._merge(self._runs)

    def _sort_buffered(self) -> pa.Table:
        rows = pa.concat_tables(self._buffered)
        self._buffered, self._buffered_bytes = [], 0
        order, _ = KeyColumns.of(rows, self._key_names).compute_order()
        return rows.take(to_arrow_array(order))

    def _spill(self, rows: pa.Table) -> None:
        if not self._runs:
            prefix = "paimon-orch-sort-"
            self._path = Path(self._folder.enter_context(TemporaryDirectory(prefix=prefix)))
            # A batch of each run is in memory during the merge.
            runs = min(self._max_runs, self._total_rows // rows.num_rows + 1)
            self._batch_rows = max(_MIN_BATCH_ROWS, rows.num_rows // runs)
        self._write_run([rows], self._batch_rows)

    def _write_run(self, tables: Iterable[pa.Table], batch_rows: int) -> None:
        path = self._path / f"run-{self._spilled}"
        self._spilled += 1
        options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION)
        with ExitStack() as stack:
            sink = stack.enter_context(pa.OSFile(str(path), "wb"))
            writer: pa.RecordBatchStreamWriter | None = None
            for table in tables:
                if writer is None:
                    writer = stack.enter_context(
                        pa.ipc.new_stream(sink, table.schema, options=options)
                    )
                writer.write_table(table, max_chunksize=batch_rows)
        self._runs.append(path)

    def _merge(self, paths: Sequence[Path]) -> Iterator[pa.Table]:
        with ExitStack() as stack:
            runs = [MergeRun(_read_run(stack.enter_context(pa.OSFile(str(p))))) for p in paths]
            for step in merge_runs(runs, self._key_names):
                yield step.rows.take(to_arrow_array(step.order))


def _read_run(source: pa.NativeFile) -> Iterator[LevelRows]:
    with pa.ipc.open_stream(source) as reader:
        for batch in reader:
            if batch.num_rows:
                yield 0, batch
