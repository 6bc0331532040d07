"""Record-level expiration: compaction drops rows whose time column is too old.

As in Java Paimon, rows of every kind are dropped when they are read, before they are merged. An
older row of the same key with a later time that has not expired becomes visible again.

See docs/format/record-level-expiration.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Indices, Mask, to_arrow_array, to_numpy
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import (
    RECORD_LEVEL_EXPIRE_TIME,
    RECORD_LEVEL_TIME_FIELD,
)
from paimon_orch.format.row.binary_row import read_field, read_row_arity
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import check_time_field, is_expiration_time
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import Field

_MIN_MILLISECONDS = 10**12  # a BIGINT of this size or larger is in milliseconds


@dataclass(frozen=True, slots=True)
class RecordLevelExpire:
    """Finds expired rows at ``now``, in seconds since the epoch; null never expires."""

    column: Field
    expire_time: timedelta
    now: int

    @classmethod
    def of(cls, schema: TableSchema, now: int) -> "RecordLevelExpire | None":
        """Return the expiration of a table's options, or None if its rows do not expire."""
        options = schema.typed_options
        expire_time = options.get(RECORD_LEVEL_EXPIRE_TIME)
        name = options.get(RECORD_LEVEL_TIME_FIELD)
        if expire_time is None:
            return None
        if not name:
            raise InputError(
                f"{RECORD_LEVEL_EXPIRE_TIME.key!r} needs {RECORD_LEVEL_TIME_FIELD.key!r}, "
                "the column with the time of a row"
            )
        check_time_field(schema)
        return cls(schema.field(name), expire_time, now)

    def drop_expired(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are not expired."""
        alive = self.is_alive(rows)
        return rows if alive.all() else rows.filter(to_arrow_array(alive))

    def is_alive(self, rows: pa.RecordBatch) -> Mask:
        """Return a mask of the rows that are not expired."""
        column = rows.column(self.column.name)
        expired = self.now > _to_epoch_seconds(column) + int(self.expire_time.total_seconds())
        alive: Mask = ~(expired & to_numpy(column.is_valid()))
        return alive

    def touches(self, file: DataFileMeta, schemas: Mapping[int, TableSchema]) -> bool:
        """Return whether a file contains an expired row, by its statistics."""
        schema = schemas[file.schema_id]
        column = next((f for f in schema.fields if f.id == self.column.id), None)
        names = list(schema.names if file.value_stats_cols is None else file.value_stats_cols)
        min_values = file.value_stats.min_values
        if column is None or column.name not in names or read_row_arity(min_values) != len(names):
            return False
        if not is_expiration_time(column.type):  # such as a DATE that was altered to TIMESTAMP
            return False
        value = read_field(min_values, names.index(column.name), column.type)
        if not isinstance(value, int):
            return False
        oldest = int(_to_epoch_seconds(pa.array([value], to_arrow_type(column.type)))[0])
        return self.now - int(self.expire_time.total_seconds()) > oldest


def _to_epoch_seconds(column: pa.Array) -> Indices:
    """Return a time column in seconds since the epoch; the value for null is undefined."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        return _to_int64(column.view(pa.int64())) // per_second
    numbers = _to_int64(column.cast(pa.int64()))
    return np.where(numbers >= _MIN_MILLISECONDS, numbers // 1000, numbers)


def _to_int64(column: pa.Array) -> Indices:
    numbers: Indices = to_numpy(column)
    return numbers
