"""Writes the rows of tables with BLOB columns: data files, and BLOB files of their rows.

See docs/format/blob.md.
"""

import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import IO

import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError, StorageError
from paimon_orch.files.blob.blob_descriptor import is_descriptor
from paimon_orch.files.blob.blob_file import MAGIC, NULL_LENGTH, RECORD_BYTES, VERSION
from paimon_orch.files.data_file_writer import (
    FileWriterFactory,
    RollingFileWriter,
    local_wall_clock_millis,
)
from paimon_orch.files.uncommitted_files import UncommittedFiles, delete_unused_files
from paimon_orch.format.arrays import Int64Array
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.external_paths import DataFilePathFactory, NewFilePath
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileSource
from paimon_orch.format.options.core_options import BLOB_TARGET_FILE_SIZE, DATA_FILE_PREFIX
from paimon_orch.format.paths import BLOB_SUFFIX, FileNameGenerator
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import is_blob
from paimon_orch.storage import FileIO


@dataclass(slots=True, kw_only=True)
class BlobRowWriter(UncommittedFiles):
    """Writes rows to data files without BLOB columns, each followed by its BLOB files.

    Values are written at once; only the other columns are buffered.
    """

    io: FileIO
    placement: DataFilePathFactory
    schema: TableSchema
    open_data_file: Callable[[Sequence[str]], RollingFileWriter]
    """Opens a writer of one data file with some columns."""
    max_rows: int
    """The maximum number of rows of a data file."""
    _names: FileNameGenerator = field(default_factory=FileNameGenerator)
    _data: RollingFileWriter | None = None
    _data_rows: int = 0
    _data_bytes: int = 0
    _blobs: dict[str, "_OpenBlobFile"] = field(default_factory=dict)
    _finished_blobs: dict[str, list[DataFileMeta]] = field(default_factory=dict)
    _finished_files: list[DataFileMeta] = field(default_factory=list)
    _writers: list[RollingFileWriter] = field(default_factory=list)
    _paths: list[str] = field(default_factory=list)

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        start = 0
        while start < table.num_rows:
            rows = table.slice(start, self.max_rows - self._data_rows)
            self._write_rows(rows)
            start += rows.num_rows
            target = self.schema.target_file_size
            if self._data_rows >= self.max_rows or self._data_bytes >= target:
                self._finish_data_file()

    def _write_rows(self, rows: pa.Table) -> None:
        columns = tuple(f.name for f in self.schema.fields if not is_blob(f.type))
        if self._data is None:
            self._data = self.open_data_file(columns)
            self._writers.append(self._data)
        data = rows.select(columns)
        self._data.write(data)
        self._data_rows += data.num_rows
        self._data_bytes += data.nbytes
        for field_ in self.schema.fields:
            if is_blob(field_.type):
                self._write_values(field_.name, rows.column(field_.name))

    def _write_values(self, name: str, values: pa.ChunkedArray) -> None:
        options = self.schema.typed_options
        target = options.get(BLOB_TARGET_FILE_SIZE, options.target_file_size(primary_key=False))
        for value in values:
            file = self._blobs.get(name) or self._open_blob_file(name)
            file.write(value)
            if file.size >= target:
                self._finish_blob_file(name)

    def _open_blob_file(self, column: str) -> "_OpenBlobFile":
        prefix = self.schema.typed_options.get(DATA_FILE_PREFIX)
        name = self._names.next(prefix, BLOB_SUFFIX)
        location = self.placement.place(name)
        self._paths.append(location.path)
        file = _OpenBlobFile(name, location, self.io.open_output(location.path))
        self._blobs[column] = file
        return file

    def _finish_blob_file(self, column: str) -> None:
        meta = self._blobs[column].close(column, self.schema.id)
        del self._blobs[column]
        self._finished_blobs.setdefault(column, []).append(meta)

    def _finish_data_file(self) -> None:
        """Finish the data file and its BLOB files."""
        if self._data is None:
            return
        columns = tuple(f.name for f in self.schema.fields if not is_blob(f.type))
        self._finished_files += [replace(f, write_cols=columns) for f in self._data.close()]
        for name in list(self._blobs):
            self._finish_blob_file(name)
        for field_ in self.schema.fields:
            self._finished_files += self._finished_blobs.pop(field_.name, [])
        self._data, self._data_rows, self._data_bytes = None, 0, 0

    def close(self) -> list[DataFileMeta]:
        """Write the pending rows and return the metadata of all files.

        The BLOB files of the rows of a data file follow it, in the order of its rows.
        """
        self._finish_data_file()
        return self._finished_files

    def delete_files(self) -> None:
        """Delete all files that were written."""
        for file in self._blobs.values():
            with suppress(OSError, StorageError):
                file.sink.close()
        for writer in self._writers:
            writer.delete_files()
        delete_unused_files(self.io, self._paths)


def open_blob_row_writer(
    factory: FileWriterFactory, partition_bucket: PartitionBucket
) -> BlobRowWriter:
    """Return a writer of new rows of a table with BLOB columns."""

    def open_data_file(columns: Sequence[str]) -> RollingFileWriter:
        return factory.writer(partition_bucket, rolls=False, columns=columns)

    schema = factory.schema
    return BlobRowWriter(
        io=factory.io,
        placement=factory.paths.create_data_file_path_factory(schema, *partition_bucket),
        schema=schema,
        open_data_file=open_data_file,
        max_rows=schema.typed_options.target_file_rows,
    )


class _OpenBlobFile:
    """The BLOB file that is being written."""

    def __init__(self, name: str, location: NewFilePath, sink: IO[bytes]) -> None:
        self.name, self.location, self.sink = name, location, sink
        self.size = 0
        self._lengths: list[int] = []

    def write(self, value: "pa.Scalar[pa.DataType]") -> None:
        """Write the record of a row."""
        if not value.is_valid:
            self._lengths.append(NULL_LENGTH)
            return
        content = value.as_buffer()
        if is_descriptor(memoryview(content)[:9].tobytes()):
            raise InputError(
                "a value of a BLOB column is a BLOB descriptor; read the bytes that it describes, "
                "and write them"
            )
        length = RECORD_BYTES + content.size
        stored_length = length.to_bytes(8, "little")
        checksum = zlib.crc32(stored_length, zlib.crc32(content, zlib.crc32(MAGIC)))
        for part in (MAGIC, content, stored_length, checksum.to_bytes(4, "little")):
            self.sink.write(part)
        self._lengths.append(length)
        self.size += length

    def close(self, column: str, schema_id: int) -> DataFileMeta:
        """Write the index; return the metadata, without row ids and sequence numbers."""
        index = encode_lengths(np.array(self._lengths, np.int64))
        self.sink.write(index + len(index).to_bytes(4, "little") + bytes([VERSION]))
        self.sink.close()
        return DataFileMeta(
            file_name=self.name,
            file_size=self.size + len(index) + 5,
            row_count=len(self._lengths),
            schema_id=schema_id,
            creation_time=local_wall_clock_millis(),
            delete_row_count=0,
            file_source=int(FileSource.APPEND),
            value_stats_cols=(),
            external_path=self.location.external,
            write_cols=(column,),
        )


def encode_lengths(lengths: Int64Array) -> bytes:
    """Return the index of a BLOB file."""
    deltas = np.diff(lengths, prepend=np.int64(0))
    numbers = ((deltas << 1) ^ (deltas >> 63)).astype(np.uint64)
    groups = numbers[:, None] >> (7 * np.arange(10)).astype(np.uint64)
    is_used = groups > 0
    is_used[:, 0] = True
    encoded = (groups & np.uint64(0x7F)).astype(np.uint8)
    encoded[:, :-1] |= np.where(is_used[:, 1:], 0x80, 0).astype(np.uint8)
    return encoded[is_used].tobytes()
