"""Row tracking: numbers that rows keep when their files are rewritten.

A new file says where its numbering begins; only files of moved rows hold the two columns. Null means: by the file.

See docs/format/row-tracking.md.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.arrays import Positions
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import ROW_TRACKING_ENABLED
from paimon_orch.format.schema import SEQUENCE_NUMBER, TableSchema
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot

_BIGINT = AtomicType(True, TypeRoot.BIGINT)
ROW_ID = Field(id=2147483642, name="_ROW_ID", type=_BIGINT)
ROW_SEQUENCE_NUMBER = Field(id=SEQUENCE_NUMBER.id, name=SEQUENCE_NUMBER.name, type=_BIGINT)
ROW_TRACKING_FIELDS = (ROW_ID, ROW_SEQUENCE_NUMBER)


def row_tracking_fields(schema: TableSchema) -> tuple[Field, ...]:
    """Return the columns that a rewrite of data files reads and writes behind the table's own.

    These are ``_ROW_ID`` and ``_SEQUENCE_NUMBER`` of tables with row tracking, none of others. A reader gives them
    complete; a writer of ``FileSource.COMPACT`` files expects them. Where a row is changed, its sequence number is
    written as null: the commit gives it the number of its snapshot.
    """
    tracked = schema.typed_options.get(ROW_TRACKING_ENABLED)
    return ROW_TRACKING_FIELDS if tracked and not schema.primary_keys else ()


def fill_row_tracking(
    batch: pa.RecordBatch, file: DataFileMeta, numbers: Positions
) -> pa.RecordBatch:
    """Fill what a file leaves null; ``numbers`` are those of the rows in the file.

    Rows of a file that neither holds ids nor has a first one were rewritten by somebody who lost them; they have none.
    """
    for at, name in enumerate(batch.schema.names):
        column = batch.column(at)
        if not column.null_count or name not in (ROW_ID.name, ROW_SEQUENCE_NUMBER.name):
            continue
        if name == ROW_SEQUENCE_NUMBER.name:
            derived = pa.scalar(file.max_sequence_number, pa.int64())
        elif file.first_row_id is None:
            continue
        else:
            derived = pa.array(file.first_row_id + numbers)
        batch = batch.set_column(at, name, pc.coalesce(column, derived))
    return batch


@dataclass(slots=True)
class SequenceNumberRange:
    """The bounds of the sequence numbers of a rewritten file, collected as it is written; 0 is what a commit replaces."""

    _low: int | None = None
    _high: int = 0
    _has_null: bool = False

    def add(self, column: pa.ChunkedArray) -> None:
        """Take the numbers of further rows."""
        self._has_null |= bool(column.null_count)
        found = pc.min_max(column).as_py()
        if found["min"] is not None:
            self._low = found["min"] if self._low is None else min(self._low, found["min"])
            self._high = max(self._high, found["max"])

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the smallest and the largest; null is newer than all of them."""
        return self._low or 0, 0 if self._has_null else self._high
