"""Reads a BLOB column of a range of rows: the newest file with a value of a row has it.

See docs/format/blob.md#columns.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa

from paimon_orch.errors import CorruptFileError, wrap_decode_errors
from paimon_orch.files.blob.blob_descriptor import encode_descriptors
from paimon_orch.files.blob.blob_file import (
    HEADER_BYTES,
    NULL_LENGTH,
    PLACEHOLDER_LENGTH,
    RECORD_BYTES,
    find_blob_starts,
    read_blobs,
    split_blobs,
)
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.format.arrays import Int32Array, Int64Array, Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobColumn:
    """Where the values of a range of rows are; a row without value has the length -1."""

    reader: FileReader
    files: Sequence[BucketFile]
    paths: Sequence[str]
    file_numbers: Int32Array
    starts: Int64Array
    lengths: Int64Array

    @classmethod
    def of(
        cls, reader: FileReader, files: Sequence[BucketFile], first_row_id: int, row_count: int
    ) -> "BlobColumn":
        """Read the indexes of the BLOB files of a column; a file may have a part of the rows."""
        file_numbers = np.zeros(row_count, np.int32)
        starts = np.zeros(row_count, np.int64)
        lengths = np.full(row_count, NULL_LENGTH, np.int64)
        oldest_first = sorted(files, key=lambda each: each.file.max_sequence_number)
        for number, bucket_file in enumerate(oldest_first):
            new_lengths = reader.read_blob_lengths(bucket_file)
            position = (bucket_file.file.first_row_id or 0) - first_row_id
            has_value = new_lengths != PLACEHOLDER_LENGTH
            rows = position + np.flatnonzero(has_value)
            if position < 0 or (len(rows) and rows[-1] >= row_count):
                raise CorruptFileError(
                    reader.path(bucket_file),
                    f"has rows from {position} on, which are not among the {row_count} rows of "
                    "the files of the same rows",
                )
            file_numbers[rows] = number
            starts[rows] = find_blob_starts(new_lengths)[has_value]
            lengths[rows] = new_lengths[has_value]
        paths = [reader.path(bucket_file) for bucket_file in oldest_first]
        return cls(
            reader=reader,
            files=oldest_first,
            paths=paths,
            file_numbers=file_numbers,
            starts=starts,
            lengths=lengths,
        )

    def read(self, name: str, rows: Positions, *, as_descriptors: bool) -> Iterator[pa.RecordBatch]:
        """Yield the values or the descriptors of some rows, in batches limited by bytes."""
        sizes = np.zeros(len(rows), np.int64) if as_descriptors else self.lengths[rows]
        with ExitStack() as stack:
            sources: dict[int, IO[bytes]] = {}
            for begin, end in split_blobs(sizes, self.reader.batch_sizes.batch_rows):
                part = rows[begin:end]
                numbers = self.file_numbers[part]
                parts, order = list[pa.Array](), list[Positions]()
                for number in np.unique(numbers).tolist():
                    of_file: Positions = np.flatnonzero(numbers == number)
                    order.append(of_file)
                    if as_descriptors:
                        parts.append(self._describe(number, part[of_file]))
                        continue
                    if number not in sources:
                        file = self.files[number].file
                        source = self.reader.open_input(self.paths[number], file)
                        sources[number] = stack.enter_context(source)
                    starts, lengths = self.starts[part[of_file]], self.lengths[part[of_file]]
                    with wrap_decode_errors(self.paths[number]):
                        values = read_blobs(sources[number], self.paths[number], starts, lengths)
                    parts.append(values)
                values = parts[0]
                if len(parts) > 1:
                    inverse = np.argsort(np.concatenate(order))
                    values = pa.concat_arrays(parts).take(pa.array(inverse))
                yield pa.RecordBatch.from_arrays([values], [name])

    def _describe(self, number: int, rows: Positions) -> pa.Array:
        lengths = self.lengths[rows]
        is_value = lengths >= 0
        descriptors = encode_descriptors(
            self.paths[number],
            self.starts[rows][is_value] + HEADER_BYTES,
            lengths[is_value] - RECORD_BYTES,
        )
        positions = np.cumsum(is_value) - 1
        return descriptors.take(pa.array(positions, mask=~is_value))
