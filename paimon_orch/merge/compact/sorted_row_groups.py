"""Row groups of sorted files: copied where no other run has a key in their range.

See docs/format/compaction-rewrites.md#row-groups-that-are-copied.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import pyarrow as pa

from paimon_orch.errors import wrap_decode_errors
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.data_file_writer import RollingFileWriter, SortedRows
from paimon_orch.files.parquet import RowGroupSource
from paimon_orch.files.row_group_copier import CopyableFiles
from paimon_orch.files.stats.collector import resolve_stats_modes, to_internal_value
from paimon_orch.files.stats.row_group_stats import RowGroupStatsDecoder, decode_column_stats
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.row.stats_mode import FULL_STATS
from paimon_orch.format.schema import SEQUENCE_NUMBER, TableSchema
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot
from paimon_orch.merge.sort.key_order import Key, to_comparable_value
from paimon_orch.merge.sort.sort_merge_reader import LevelRows, RowBlock
from paimon_orch.merge.tree.key_range import KeyRange

ReadRows = Callable[[Sequence[int] | None], Iterator[LevelRows]]
_NULL = (False, None)
_FLOAT_TYPES = (TypeRoot.FLOAT, TypeRoot.DOUBLE)


@dataclass(frozen=True, slots=True)
class _KeyBounds:
    """Bounds of all keys of a row group.

    ``high`` may be shorter than a key: then it is the start of the highest possible key.
    """

    low: Key
    high: Key

    @classmethod
    def of_row_group(
        cls, source: RowGroupSource, number: int, schema: TableSchema
    ) -> "_KeyBounds | None":
        """Return the bounds, or None if the footer does not have those of all needed columns.

        A column bounds the keys only if all columns before it are constant.
        """
        low, high = list[tuple[bool, object]](), list[tuple[bool, object]]()
        for key in schema.key_fields:
            stats = decode_column_stats(key, source, number)
            if stats is None or stats.null_count or stats.min is None:
                return None
            low.append(to_comparable_value(stats.min, key.type))
            high.append(to_comparable_value(stats.max, key.type))
            if low[-1] != high[-1]:
                break
        # null is the lowest value
        missing = len(schema.key_fields) - len(low)
        return cls((*low, *[_NULL] * missing), tuple(high))

    def is_inside(self, limits: tuple[Key | None, Key | None]) -> bool:
        """Return whether all keys are in a range, whose end is exclusive."""
        start, end = limits
        is_before_end = end is None or end[: len(self.high)] > self.high
        return is_before_end and (start is None or self.low >= start)

    def is_outside(self, limits: tuple[Key | None, Key | None]) -> bool:
        """Return whether no key is in a range, whose end is exclusive."""
        start, end = limits
        is_before_start = start is not None and start[: len(self.high)] > self.high
        return is_before_start or (end is not None and self.low >= end)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedRowGroup(RowBlock):
    """A row group of an open file."""

    bucket_file: BucketFile
    source: RowGroupSource
    number: int


@dataclass
class SortedRowGroupCopier:
    """Copies row groups of sorted files to one writer."""

    reader: FileReader
    writer: RollingFileWriter
    _files: CopyableFiles = field(init=False)

    def __post_init__(self) -> None:
        self._files = CopyableFiles(self.reader, self.writer)

    @cached_property
    def _has_ordered_bounds(self) -> bool:
        """Return whether files are sorted by key, and bounds in footers have the order of keys."""
        schema = self.reader.schema
        has_float_keys = any(
            isinstance(key.type, AtomicType) and key.type.name in _FLOAT_TYPES
            for key in schema.key_fields
        )
        return schema.order_fields(self.writer.level) == schema.key_fields and not has_float_keys

    def read(
        self, bucket_file: BucketFile, read_rows: ReadRows, keys: KeyRange | None
    ) -> Iterator[RowBlock | LevelRows]:
        """Yield the rows of a file that may be in ``keys``, as row groups if these may be copied.

        ``read_rows`` returns the rows of some row groups in ``keys``, or of the whole file. The
        file remains open until its last row group is read.
        """
        file = bucket_file.file
        if self._has_ordered_bounds and file.delete_row_count == 0 and self._files.may_copy(file):
            with self._files.open(bucket_file) as source:
                ranges = None
                if source is not None:
                    with wrap_decode_errors(self.reader.path(bucket_file)):
                        ranges = self._find_key_ranges(source)
                if source is not None and ranges is not None:
                    self.writer.balances_groups = True
                    yield from self._read_row_groups(bucket_file, source, ranges, read_rows, keys)
                    return
        yield from read_rows(None)

    def _read_row_groups(
        self,
        bucket_file: BucketFile,
        source: RowGroupSource,
        ranges: Sequence[_KeyBounds | None],
        read_rows: ReadRows,
        keys: KeyRange | None,
    ) -> Iterator[RowBlock | LevelRows]:
        limits = None if keys is None else keys.decode(self.reader.schema.key_fields)
        for number, bounds in enumerate(ranges):
            if bounds is not None and limits is not None and bounds.is_outside(limits):
                continue
            is_copyable = (
                bounds is not None
                and (limits is None or bounds.is_inside(limits))
                and source.groups[number].size >= self._files.min_bytes
            )
            if bounds is None or not is_copyable:
                yield from read_rows([number])
            else:
                yield SortedRowGroup(
                    low=bounds.low,
                    high=bounds.high,
                    read=partial(read_rows, [number]),
                    bucket_file=bucket_file,
                    source=source,
                    number=number,
                )

    def _find_key_ranges(self, source: RowGroupSource) -> list[_KeyBounds | None] | None:
        """Return the bounds of the keys of each row group.

        Returns None if the row groups are not in key order, so that reading them finds the error.
        """
        ranges, highest = [], None
        for number in range(len(source.groups)):
            bounds = _KeyBounds.of_row_group(source, number, self.reader.schema)
            if bounds is not None:
                if highest is not None and bounds.low[: len(highest)] < highest:
                    return None
                highest = bounds.high
            ranges.append(bounds)
        return ranges

    def copy(self, group: SortedRowGroup) -> bool:
        """Copy a row group to the writer; return False if it must be decoded.

        It is not copied either if the rows before it would become a small row group.
        """
        source = group.source.select(group.number)
        size, pending_rows = source.groups[0].size, self.writer.pending_rows
        if pending_rows and pending_rows * size < self._files.min_bytes * source.rows:
            return False
        file, number = group.bucket_file.file, group.number
        sequence = decode_column_stats(SEQUENCE_NUMBER, group.source, number)
        low, high = (None, None) if sequence is None else (sequence.min, sequence.max)
        if not isinstance(low, int) or not isinstance(high, int):
            return False

        def read(fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
            return self.reader.read_row_groups(group.bucket_file, fields, [number])

        with wrap_decode_errors(self.reader.path(group.bucket_file)):
            stats = self._stats_decoder.decode(file, group.source, number, read)
        sorted_rows = SortedRows(
            sequence_numbers=(low, high),
            read_first_key=lambda: self._read_key(group.bucket_file, number, 0),
            read_last_key=lambda: self._read_key(group.bucket_file, number, -1),
        )
        self._files.copy(group.bucket_file, source, size, stats, sorted_rows)
        return True

    def _read_key(self, bucket_file: BucketFile, number: int, row: int) -> bytes:
        fields = self.reader.schema.key_fields
        batches = list(self.reader.read_row_groups(bucket_file, fields, [number]))
        batch = batches[row]
        index = row % batch.num_rows
        values = [to_internal_value(column[index]) for column in batch.columns]
        return serialize_row(values, [field.type for field in fields])

    @cached_property
    def _stats_decoder(self) -> RowGroupStatsDecoder:
        schema = self.reader.schema
        modes = resolve_stats_modes(schema, self.writer.level)
        modes |= dict.fromkeys(schema.trimmed_primary_keys, FULL_STATS)
        return RowGroupStatsDecoder(schema.fields, [modes[field.name] for field in schema.fields])
