"""Row tracking: row ids and sequence numbers that survive a rewrite of data files.

The metadata of a new file has the first row id and the sequence number of its rows; only rewritten
files have the two columns. A null in them stands for the value of the metadata.

See docs/format/row-tracking.md.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.arrays import Positions, to_arrow_array
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.schema import SEQUENCE_NUMBER, TableSchema
from paimon_orch.format.table_kind import TableKind
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot

_BIGINT = AtomicType(True, TypeRoot.BIGINT)
ROW_ID = Field(id=2147483642, name="_ROW_ID", type=_BIGINT)
ROW_SEQUENCE_NUMBER = Field(id=SEQUENCE_NUMBER.id, name=SEQUENCE_NUMBER.name, type=_BIGINT)
ROW_TRACKING_FIELDS = (ROW_ID, ROW_SEQUENCE_NUMBER)
_TRACKED_KINDS = (TableKind.ROW_TRACKING, TableKind.DATA_EVOLUTION)


def row_tracking_fields(schema: TableSchema) -> tuple[Field, ...]:
    """Return the columns that a rewrite of data files reads and writes after the table's columns.

    They are ``_ROW_ID`` and ``_SEQUENCE_NUMBER``; tables without row tracking have none. A reader
    returns them without nulls; a writer of ``FileSource.COMPACT`` files expects them. A
    changed row has null as its sequence number: the commit assigns the number of its snapshot.
    """
    return ROW_TRACKING_FIELDS if schema.kind in _TRACKED_KINDS else ()


def fill_row_tracking(
    batch: pa.RecordBatch, file: DataFileMeta, numbers: Positions
) -> pa.RecordBatch:
    """Replace nulls by the values of the file's metadata.

    ``numbers`` are row positions in the file. Without a first row id, row ids remain null.
    """
    for index, name in enumerate(batch.schema.names):
        column = batch.column(index)
        if not column.null_count or name not in (ROW_ID.name, ROW_SEQUENCE_NUMBER.name):
            continue
        if name == ROW_SEQUENCE_NUMBER.name:
            derived = pa.scalar(file.max_sequence_number, pa.int64())
        elif file.first_row_id is None:
            continue
        else:
            derived = to_arrow_array(file.first_row_id + numbers)
        batch = batch.set_column(index, name, pc.coalesce(column, derived))
    return batch


@dataclass(slots=True)
class SequenceNumberRange:
    """Collects the bounds of the sequence numbers of a rewritten file.

    A bound of 0 is a placeholder that the commit replaces.
    """

    _low: int | None = None
    _high: int = 0
    _has_null: bool = False

    def add(self, column: pa.ChunkedArray) -> None:
        """Add the sequence numbers of rows."""
        self._has_null |= bool(column.null_count)
        low, high = pc.min_max(column).as_py().values()
        if low is not None:
            self._low = low if self._low is None else min(self._low, low)
            self._high = max(self._high, high)

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the lowest and the highest sequence number.

        The commit assigns a higher number to null, so the highest is 0 if there are nulls.
        """
        return self._low or 0, 0 if self._has_null else self._high
