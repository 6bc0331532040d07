"""Late materialization: read values after the merge, only from row groups that have merged rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from paimon_orch.errors import CorruptFileError
from paimon_orch.files.data_file_reader import ROW_POSITION, RowGroup
from paimon_orch.format.arrays import Positions, to_arrow_array, to_numpy
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.paths import parse_file_format
from paimon_orch.format.schema import KEY_PREFIX
from paimon_orch.format.types.data_types import Field
from paimon_orch.merge.sort.key_order import unsorted_file_error

_ROW_LOCATION = f"{KEY_PREFIX}PLACE"  # names with this prefix are reserved
_FILE_SHIFT = 40  # the low 40 bits of a row location are the position in the file
BatchRows = tuple[pa.RecordBatch, Positions]
"""A batch, and ascending indices of some of its rows."""


@dataclass(slots=True)
class RowGroupValues:
    """The values of a row group, looked up by ascending positions."""

    file_name: str
    batches: Iterator[pa.RecordBatch]
    batch: pa.RecordBatch | None = None
    positions: Positions = field(default_factory=lambda: np.empty(0, np.int64))

    def find(self, requested: Positions) -> Iterator[BatchRows]:
        """Yield the rows at positions, which must be greater than those of earlier calls."""
        check_ascending(
            requested, -1 if self.batch is None else self.positions[0] - 1, self.file_name
        )
        while len(requested):
            if self.batch is None or self.positions[-1] < requested[0]:
                self.batch = next(self.batches, None)
                if self.batch is None:
                    raise CorruptFileError(
                        self.file_name, f"has no row {requested[0]} where its keys were read"
                    )
                self.positions = to_numpy(self.batch.column(ROW_POSITION))
                continue
            count = int(np.searchsorted(requested, self.positions[-1], side="right"))
            yield self.batch, self._rows(requested[:count])
            requested = requested[count:]

    def _rows(self, requested: Positions) -> Positions:
        rows: Positions = requested - self.positions[0]
        if self.positions[-1] - self.positions[0] >= len(self.positions):  # some rows are deleted
            rows = np.searchsorted(self.positions, requested)
        if (self.positions[rows] != requested).any():
            raise unsorted_file_error(self.file_name)
        return rows


@dataclass(slots=True, kw_only=True)
class _FileValues:
    """The values of a file, looked up by ascending positions."""

    number: int
    file_name: str
    fields: Sequence[Field]
    groups: Iterator[RowGroup]
    group: RowGroup | None = None
    values: RowGroupValues | None = None
    last: int = -1

    def find(self, requested: Positions) -> Iterator[BatchRows]:
        check_ascending(requested, self.last, self.file_name)
        self.last = int(requested[-1])
        while len(requested):
            if self.group is None or requested[0] >= self.group.rows.stop:
                self.group, self.values = next(self.groups, None), None
                if self.group is None:
                    raise CorruptFileError(
                        self.file_name, f"has no row {requested[0]} where its keys were read"
                    )
                continue
            if self.values is None:
                self.values = RowGroupValues(self.file_name, self.group.read(self.fields))
            count = int(np.searchsorted(requested, self.group.rows.stop))
            yield from self.values.find(requested[:count])
            requested = requested[count:]


def check_ascending(positions: Positions, after: int, file_name: str) -> None:
    """Raise :class:`CorruptFileError` unless positions ascend and are greater than ``after``.

    Keys are merged in key order, so the positions in a sorted file ascend. In an unsorted file,
    values would be read from the wrong rows.
    """
    if len(positions) and (positions[0] <= after or (np.diff(positions) <= 0).any()):
        raise unsorted_file_error(file_name)


def should_materialize_late(runs: Sequence[Sequence[DataFileMeta]]) -> bool:
    """Return whether late materialization can skip whole row groups.

    This is likely if the smaller runs together have at least as many rows as the largest run.
    Otherwise most row groups are read anyway, and decoding keys and values separately costs more.
    """
    rows = [sum(file.row_count for file in files) for files in runs]
    parquet = all(
        parse_file_format(file.file_name) == "parquet" for files in runs for file in files
    )
    return parquet and len(rows) > 1 and sum(rows) >= 2 * max(rows)


class LateMaterialization:
    """Appends the columns that a merge of sorted runs does not need, in key order.

    ``read`` returns the row groups of a file.
    """

    def __init__(
        self,
        fields: Sequence[Field],
        runs: Sequence[Sequence[DataFileMeta]],
        read: Callable[[DataFileMeta], Iterator[RowGroup]],
    ) -> None:
        self.fields = fields
        self._read = read
        self._files = [(run, file) for run, files in enumerate(runs) for file in files]
        self._numbers = {file.file_name: number for number, (_, file) in enumerate(self._files)}
        # each run has at most one open file
        self._open: dict[int, _FileValues] = {}

    def add_row_location(self, file: DataFileMeta, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a file with a row location instead of the position."""
        first = self._numbers[file.file_name] << _FILE_SHIFT
        locations = to_arrow_array(to_numpy(rows.column(ROW_POSITION)) + first)
        return rows.drop_columns(ROW_POSITION).append_column(_ROW_LOCATION, locations)

    def append_values(self, rows: pa.Table) -> pa.Table:
        """Append the values to merged rows with a row location; calls are in key order."""
        locations = to_numpy(rows.column(_ROW_LOCATION))
        files, positions = locations >> _FILE_SHIFT, locations & ((1 << _FILE_SHIFT) - 1)
        batches, order, count = [], np.empty(len(files), np.int64), 0
        for number in np.flatnonzero(np.bincount(files)).tolist():
            of_file = np.flatnonzero(files == number)
            for batch, indices in self._file(number).find(positions[of_file]):
                span = batch.slice(indices[0], indices[-1] + 1 - indices[0])
                order[of_file[: len(indices)]] = indices + (count - indices[0])
                of_file = of_file[len(indices) :]
                batches.append(span)
                count += span.num_rows
        values = pa.Table.from_batches(batches)
        if count > len(order) or (np.diff(order) != 1).any():
            values = values.take(to_arrow_array(order))
        for name in (late.name for late in self.fields):
            rows = rows.append_column(name, values.column(name))
        return rows

    def _file(self, number: int) -> _FileValues:
        run, file = self._files[number]
        values = self._open.get(run)
        if values is None or values.number != number:
            groups = self._read(file)
            values = self._open[run] = _FileValues(
                number=number, file_name=file.file_name, fields=self.fields, groups=groups
            )
        return values
