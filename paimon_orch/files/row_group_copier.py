"""Copies files or row groups to a writer without decoding them.

See docs/format/append-table-compaction.md#row-groups-that-are-copied.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from paimon_orch.errors import CorruptFileError, wrap_decode_errors
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.data_file_writer import RollingFileWriter, SortedRows
from paimon_orch.files.parquet import FileLayout, RowGroupSource
from paimon_orch.files.stats.collector import resolve_stats_modes
from paimon_orch.files.stats.stored_stats import StoredStatsDecoder
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import COMPACTION_FORCE_REWRITE_ALL_FILES
from paimon_orch.format.paths import parse_file_format
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.row.stats_mode import StatsMode
from paimon_orch.format.schema import TableSchema


@dataclass
class CopyableFiles:
    """Opens files whose row groups a writer can copy."""

    reader: FileReader
    writer: RollingFileWriter
    _has_same_columns: dict[int, bool] = field(default_factory=dict)
    _directories: dict[PartitionBucket, str] = field(default_factory=dict)

    def may_copy(self, file: DataFileMeta) -> bool:
        """Return False if the metadata shows that a file must be decoded."""
        if file.schema_id not in self._has_same_columns:
            schema = self.reader.schemas.get(file.schema_id)
            self._has_same_columns[file.schema_id] = (
                schema is not None and self._writes_same_columns(schema)
            )
        return (
            file.file_size >= self.min_bytes
            and file.write_cols is None
            and self._has_same_columns[file.schema_id]
            and parse_file_format(file.file_name) == "parquet"
            and self._layout is not None
            # It repairs the statistics of row groups, which a copy keeps.
            and not self.reader.schema.typed_options.get(COMPACTION_FORCE_REWRITE_ALL_FILES)
        )

    def _writes_same_columns(self, schema: TableSchema) -> bool:
        """Return whether a schema has the columns and the compression of the newest schema."""
        newest = self.reader.schema
        if schema is newest:
            return True
        columns, newest_columns = (
            [(field.id, field.name, field.type) for field in version.fields]
            for version in (schema, newest)
        )
        levels = schema.typed_options.zstd_level, newest.typed_options.zstd_level
        return columns == newest_columns and levels[0] == levels[1]

    @contextmanager
    def open(self, bucket_file: BucketFile) -> Iterator[RowGroupSource | None]:
        """Open a file of :meth:`may_copy`; yield None if it must be decoded."""
        file, path = bucket_file.file, self._find_path(bucket_file)
        assert self._layout is not None
        with wrap_decode_errors(path):
            source = self.reader.open_input(path, file)
        with source:
            with wrap_decode_errors(path):
                groups = RowGroupSource.open(
                    source,
                    self._layout,
                    self.reader.batch_sizes,
                    remote=self.reader.io.capabilities.has_slow_requests,
                )
            is_complete = groups is not None and (groups.rows, groups.size) == (
                file.row_count,
                file.file_size,
            )
            yield groups if is_complete else None

    def copy(
        self,
        bucket_file: BucketFile,
        groups: RowGroupSource,
        size: int,
        stats: Sequence[ColumnStats],
        sorted_rows: SortedRows | None = None,
    ) -> None:
        """Copy row groups of an open file of ``size`` bytes.

        Raises :class:`CorruptFileError` if the file becomes shorter while it is copied.
        """
        try:
            self.writer.copy(groups, size, stats, sorted_rows)
        except EOFError as error:
            raise CorruptFileError(
                self._find_path(bucket_file), f"cannot be copied: {error}"
            ) from error

    def _find_path(self, bucket_file: BucketFile) -> str:
        """Return the path of a file; the directory of a bucket is computed once."""
        if bucket_file.file.external_path is not None:
            return self.reader.path(bucket_file)
        bucket = bucket_file.partition_bucket
        if bucket not in self._directories:
            self._directories[bucket] = self.reader.paths.bucket_dir(self.reader.schema, *bucket)
        return f"{self._directories[bucket]}/{bucket_file.file.file_name}"

    @property
    def min_bytes(self) -> int:
        """Return the minimum size of a row group."""
        return self.reader.batch_sizes.min_copied_group_bytes

    @cached_property
    def _layout(self) -> FileLayout | None:
        return self.writer.find_copied_layout()


@dataclass
class RowGroupCopier:
    """Copies whole files to one writer; callers decode the files that it refuses."""

    reader: FileReader
    writer: RollingFileWriter
    _decoded_bytes: int = 0
    """The size of the files that were decoded since the last copy."""
    _has_same_modes: dict[int, bool] = field(default_factory=dict)

    def copy(self, bucket_file: BucketFile, deletions: DeletionVector | None = None) -> bool:
        """Copy a file without deleted rows; return False if it must be decoded.

        A file is not copied either if the rows before it would become a small row group. Raises
        :class:`CorruptFileError` if the file becomes shorter while it is copied.
        """
        can_start = not self.writer.pending_rows or self._decoded_bytes >= self._files.min_bytes
        is_copied = deletions is None and can_start and self._copy(bucket_file)
        self._decoded_bytes = 0 if is_copied else self._decoded_bytes + bucket_file.file.file_size
        return is_copied

    def _copy(self, bucket_file: BucketFile) -> bool:
        file = bucket_file.file
        if not self._files.may_copy(file) or not self._stores_same_stats(file.schema_id):
            return False
        stats = self._stats_decoder.decode(file)
        if stats is None:
            return False
        with self._files.open(bucket_file) as groups:
            if groups is None:
                return False
            self._files.copy(bucket_file, groups, file.file_size, stats)
        return True

    def _stores_same_stats(self, schema_id: int) -> bool:
        if schema_id not in self._has_same_modes:
            modes = self._resolve_modes(self.reader.schemas[schema_id])
            self._has_same_modes[schema_id] = modes == self._modes
        return self._has_same_modes[schema_id]

    def _resolve_modes(self, schema: TableSchema) -> list[StatsMode]:
        modes = resolve_stats_modes(schema, self.writer.level)
        return [modes[field.name] for field in schema.fields]

    @cached_property
    def _files(self) -> CopyableFiles:
        return CopyableFiles(self.reader, self.writer)

    @cached_property
    def _stats_decoder(self) -> StoredStatsDecoder:
        return StoredStatsDecoder(self.reader.schema.fields, self._modes)

    @cached_property
    def _modes(self) -> list[StatsMode]:
        return self._resolve_modes(self.reader.schema)
