"""Parquet data files through pyarrow (format section 8.4; settings from measured winners)."""

from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_orch.errors import InputError

ROW_GROUP_ROWS = 262_144
_DICTIONARY_SHARE = 0.1  # a dictionary pays below this share of distinct values
_CODECS = {"zstd", "snappy", "gzip", "lz4", "brotli", "none"}


class ParquetFileReader:
    """One open Parquet file."""

    def __init__(self, source: IO[bytes]) -> None:
        # without pre_buffer memory stays flat, and local reads are as fast
        self._file = pq.ParquetFile(source, pre_buffer=False)
        self.num_rows: int = self._file.metadata.num_rows
        self.names: list[str] = self._file.schema_arrow.names

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the named columns in file order."""
        yield from self._file.iter_batches(
            batch_size=batch_rows, columns=list(columns), use_threads=False
        )

    @property
    def num_row_groups(self) -> int:
        """Return the number of row groups."""
        return self._file.num_row_groups

    def row_group_rows(self, index: int) -> int:
        """Return the number of rows of a row group."""
        return int(self._file.metadata.row_group(index).num_rows)

    def row_group_bounds(self, index: int, column: str) -> tuple[object, object] | None:
        """Return the minimum and maximum of a column in a row group, if the file tells them."""
        group = self._file.metadata.row_group(index)
        for number in range(group.num_columns):
            chunk = group.column(number)
            if chunk.path_in_schema == column:
                statistics = chunk.statistics
                if statistics is None or not statistics.has_min_max:
                    return None
                return statistics.min, statistics.max
        return None

    def read_row_group(self, index: int, columns: Sequence[str]) -> pa.Table:
        """Return the named columns of one row group."""
        return self._file.read_row_group(index, columns=list(columns), use_threads=False)


class ParquetFileWriter:
    """Writes one Parquet file; every table handed over becomes its own row group."""

    def __init__(self, sink: IO[bytes], schema: pa.Schema, codec: str, zstd_level: int) -> None:
        if codec not in _CODECS:
            raise InputError(f"'file.compression' = {codec!r}: Parquet takes {', '.join(sorted(_CODECS))}")
        self._sink, self._schema, self._codec = sink, schema, codec
        self._level = zstd_level if codec == "zstd" else None
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Write the rows of a table as one row group."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression=self._codec,
                compression_level=self._level,
                use_dictionary=_low_cardinality(table),
                store_decimal_as_integer=True,
                store_schema=False,
                write_time_adjusted_to_utc=True,
                use_deprecated_int96_timestamps=_has_nanoseconds(self._schema),
            )
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self) -> None:
        """Write the footer."""
        if self._writer is None:
            self.write(self._schema.empty_table())
        assert self._writer is not None
        self._writer.close()


def _has_nanoseconds(schema: pa.Schema) -> bool:
    """Timestamps of more than six digits are INT96, as Java writes and reads them."""
    return any(isinstance(kind, pa.TimestampType) and kind.unit == "ns" for kind in schema.types)


def _low_cardinality(table: pa.Table) -> list[str]:
    """Return the columns that repeat themselves, by a look at the first rows."""
    sample = table.slice(0, 16_384)
    chosen = []
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        if pa.types.is_nested(column.type) or pa.types.is_boolean(column.type):
            continue
        if pc.count_distinct(column).as_py() < max(2, _DICTIONARY_SHARE * len(column)):
            chosen.append(name)
    return chosen
