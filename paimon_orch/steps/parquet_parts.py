"""Splits Parquet files into parts that tasks read, in the order of the rows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_orch.errors import InputError
from paimon_orch.files.parquet import Footer, read_batches

_MAX_PART_BYTES, _MIN_PART_BYTES = 128 << 20, 4 << 20  # as the parts that Spark reads
_MAX_BATCH_ROWS, _MAX_BATCH_BYTES = 65_536, 32 << 20


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Row groups of a Parquet file."""

    path: str
    numbers: Sequence[int]

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order of the file."""
        try:
            with pa.OSFile(self.path) as file:
                batch_rows = _compute_batch_rows(Footer(file).metadata, self.numbers)
                yield from read_batches(file, batch_rows, self.numbers)
        except (pa.ArrowException, OSError, ValueError, LookupError) as error:
            raise InputError(f"{self.path} cannot be read as parquet: {error}") from error


PartOfFiles = Sequence[RowGroups]
"""Row groups of consecutive files, which one task reads."""


def split_parquet_files(paths: Sequence[str], parallelism: int) -> list[PartOfFiles]:
    """Return parts of at most about 128 MB, enough for ``parallelism`` tasks if possible.

    A row group is never split. The parts contain the row groups in their order.
    """
    files = [(path, _list_row_groups(path)) for path in paths]
    total = sum(size for _, groups in files for _, size in groups)
    target = min(_MAX_PART_BYTES, max(_MIN_PART_BYTES, total // parallelism))
    count, start = math.ceil(total / target), 0
    parts: dict[int, list[RowGroups]] = {}
    for path, groups in files:
        numbers: dict[int, list[int]] = {}
        for number, size in groups:
            # the part that contains the middle of the row group, so that parts have similar sizes
            numbers.setdefault((start + size // 2) * count // total, []).append(number)
            start += size
        for part, of_part in numbers.items():
            parts.setdefault(part, []).append(RowGroups(path, tuple(of_part)))
    return list(parts.values())


def read_part(part: PartOfFiles) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part in their order."""
    for groups in part:
        yield from groups.read()


def _list_row_groups(path: str) -> list[tuple[int, int]]:
    """Return the number and the stored bytes of each row group that has rows."""
    try:
        with pa.OSFile(path) as file:
            footer = Footer(file)
            leaves = range(footer.metadata.num_columns)
            return [
                (number, sum(footer.locate_pages(number, leaf).size for leaf in leaves))
                for number in range(footer.metadata.num_row_groups)
                if footer.metadata.row_group(number).num_rows
            ]
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise InputError(f"{path} cannot be read as parquet: {error}") from error


def _compute_batch_rows(metadata: pq.FileMetaData, numbers: Sequence[int]) -> int:
    """Return the number of rows of a batch: less if rows are long."""
    groups = [metadata.row_group(number) for number in numbers]
    rows = sum(int(group.num_rows) for group in groups)
    size = sum(int(group.total_byte_size) for group in groups)
    return max(1, min(_MAX_BATCH_ROWS, _MAX_BATCH_BYTES * rows // max(1, size)))
