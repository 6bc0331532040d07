"""Values of the rows that a merge chose, read after it: of row groups in which no row wins nothing is decoded."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from paimon_orch.errors import CorruptFileError
from paimon_orch.files.data_file_reader import ROW_POSITION, RowGroup
from paimon_orch.format.arrays import Positions
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.paths import parse_file_format
from paimon_orch.format.schema import KEY_PREFIX
from paimon_orch.format.types.data_types import Field
from paimon_orch.merge.sort.key_order import unsorted_file_error

_ROW_LOCATION = f"{KEY_PREFIX}PLACE"  # a name that the format gives no column of a table
_FILE_SHIFT = 40  # of a place: the number of the file from there on, the position in it below
BatchRows = tuple[pa.RecordBatch, Positions]
"""Some of the rows of a batch, by ascending indices."""


@dataclass(slots=True)
class RowGroupValues:
    """The values of a row group of a file, found by ascending positions."""

    file_name: str
    batches: Iterator[pa.RecordBatch]
    batch: pa.RecordBatch | None = None
    positions: Positions = field(default_factory=lambda: np.empty(0, np.int64))

    def find(self, wanted: Positions) -> Iterator[BatchRows]:
        """Yield where the rows at some positions are, all greater than those of the call before."""
        check_ascending(wanted, -1 if self.batch is None else self.positions[0] - 1, self.file_name)
        while len(wanted):
            if self.batch is None or self.positions[-1] < wanted[0]:
                self.batch = next(self.batches, None)
                if self.batch is None:
                    raise CorruptFileError(
                        self.file_name, f"has no row {wanted[0]} where its keys were read"
                    )
                self.positions = self.batch.column(ROW_POSITION).to_numpy()
                continue
            count = int(np.searchsorted(wanted, self.positions[-1], side="right"))
            yield self.batch, self._rows(wanted[:count])
            wanted = wanted[count:]

    def _rows(self, wanted: Positions) -> Positions:
        rows: Positions = wanted - self.positions[0]
        if self.positions[-1] - self.positions[0] >= len(self.positions):  # some are deleted
            rows = np.searchsorted(self.positions, wanted)
        if (self.positions[rows] != wanted).any():
            raise unsorted_file_error(self.file_name)
        return rows


@dataclass(slots=True, kw_only=True)
class _FileValues:
    """The values of a file, found by ascending positions."""

    number: int
    file_name: str
    fields: Sequence[Field]
    groups: Iterator[RowGroup]
    group: RowGroup | None = None
    values: RowGroupValues | None = None
    last: int = -1

    def find(self, wanted: Positions) -> Iterator[BatchRows]:
        check_ascending(wanted, self.last, self.file_name)
        self.last = int(wanted[-1])
        while len(wanted):
            if self.group is None or wanted[0] >= self.group.rows.stop:
                self.group, self.values = next(self.groups, None), None
                if self.group is None:
                    raise CorruptFileError(
                        self.file_name, f"has no row {wanted[0]} where its keys were read"
                    )
                continue
            if self.values is None:
                self.values = RowGroupValues(self.file_name, self.group.read(self.fields))
            count = int(np.searchsorted(wanted, self.group.rows.stop))
            yield from self.values.find(wanted[:count])
            wanted = wanted[count:]


def check_ascending(positions: Positions, after: int, file_name: str) -> None:
    """Raise :class:`CorruptFileError` if positions do not ascend from one beyond ``after``.

    Keys come in order, so do the rows of a sorted file; values of others would be taken from anywhere.
    """
    if len(positions) and (positions[0] <= after or (np.diff(positions) <= 0).any()):
        raise unsorted_file_error(file_name)


def should_materialize_late(runs: Sequence[Sequence[DataFileMeta]]) -> bool:
    """Tell whether whole row groups may hold no winner: where the other runs have as many rows as the largest one.

    Otherwise most row groups are read anyway, and the keys of each would be decoded apart from the values for nothing.
    """
    rows = [sum(file.row_count for file in files) for files in runs]
    parquet = all(
        parse_file_format(file.file_name) == "parquet" for files in runs for file in files
    )
    return parquet and len(rows) > 1 and sum(rows) >= 2 * max(rows)


class LateMaterialization:
    """Columns that play no part in the merge of some runs, which follow each other in key order.

    ``read`` gives the row groups of a file.
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
        self._numbers = {file.file_name: at for at, (_, file) in enumerate(self._files)}
        # of each run the one file that the merge has come to
        self._open: dict[int, _FileValues] = {}

    def add_row_location(self, file: DataFileMeta, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a file with their place, in the file and among the files, instead of ``POSITION``."""
        first = self._numbers[file.file_name] << _FILE_SHIFT
        places = pa.array(rows.column(ROW_POSITION).to_numpy() + first)
        return rows.drop_columns(ROW_POSITION).append_column(_ROW_LOCATION, places)

    def append_values(self, rows: pa.Table) -> pa.Table:
        """Put the values beside merged rows with a place, which come in key order over all calls."""
        places = rows.column(_ROW_LOCATION).to_numpy()
        files, positions = places >> _FILE_SHIFT, places & ((1 << _FILE_SHIFT) - 1)
        batches, order, count = [], np.empty(len(files), np.int64), 0
        for number in np.flatnonzero(np.bincount(files)).tolist():
            of_file = np.flatnonzero(files == number)
            for batch, found in self._file(number).find(positions[of_file]):
                within = batch.slice(found[0], found[-1] + 1 - found[0])
                order[of_file[: len(found)]] = found + (count - found[0])
                of_file = of_file[len(found) :]
                batches.append(within)
                count += within.num_rows
        values = pa.Table.from_batches(batches)
        if count > len(order) or (np.diff(order) != 1).any():
            values = values.take(pa.array(order))
        for name in (late.name for late in self.fields):
            rows = rows.append_column(name, values.column(name))
        return rows

    def _file(self, number: int) -> _FileValues:
        run, file = self._files[number]
        found = self._open.get(run)
        if found is None or found.number != number:
            groups = self._read(file)
            found = self._open[run] = _FileValues(
                number=number, file_name=file.file_name, fields=self.fields, groups=groups
            )
        return found
