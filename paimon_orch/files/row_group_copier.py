"""Copies files to a writer by their row groups, without decoding them.

See docs/format/append-table-compaction.md#row-groups-that-are-copied.
"""

from dataclasses import dataclass, field
from functools import cached_property

from paimon_orch.errors import CorruptFileError, wrap_decode_errors
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.data_file_writer import RollingFileWriter
from paimon_orch.files.parquet.row_group_source import (
    FileLayout,
    RowGroupSource,
)
from paimon_orch.files.stats.collector import resolve_stats_modes
from paimon_orch.files.stats.stored_stats import StoredStatsDecoder
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.paths import parse_file_format
from paimon_orch.format.row.stats_mode import StatsMode
from paimon_orch.format.schema import TableSchema


@dataclass
class RowGroupCopier:
    """Copies files to one writer; callers decode the files that it refuses."""

    reader: FileReader
    writer: RollingFileWriter
    _decoded_bytes: int = 0
    """The size of the files that were decoded since the last copy."""
    _is_same_schema: dict[int, bool] = field(default_factory=dict)
    _directories: dict[PartitionBucket, str] = field(default_factory=dict)

    def copy(self, bucket_file: BucketFile, deletions: DeletionVector | None = None) -> bool:
        """Copy a file without deleted rows; return False if it must be decoded.

        A file is not copied either if the rows before it would become a small row group. Raises
        :class:`CorruptFileError` if the file becomes shorter while it is copied.
        """
        is_copied = deletions is None and self._can_start() and self._copy(bucket_file)
        self._decoded_bytes = 0 if is_copied else self._decoded_bytes + bucket_file.file.file_size
        return is_copied

    def _can_start(self) -> bool:
        """Return whether the pending rows are none or enough for a row group."""
        return not self.writer.pending_rows or self._decoded_bytes >= self._min_bytes

    def _copy(self, bucket_file: BucketFile) -> bool:
        file = bucket_file.file
        if not self._may_have_layout(file) or self._layout is None:
            return False
        stats = self._stats_decoder.decode(file)
        if stats is None:
            return False
        path = self._find_path(bucket_file)
        with wrap_decode_errors(path):
            source = self.reader.io.open_input(path)
        with source:
            with wrap_decode_errors(path):
                groups = RowGroupSource.open(
                    source,
                    self._layout,
                    self.reader.batch_sizes,
                    remote=self.reader.io.remote,
                )
            if groups is None or (groups.rows, groups.size) != (file.row_count, file.file_size):
                return False
            try:
                self.writer.copy(groups, file, stats)
            except EOFError as error:
                raise CorruptFileError(path, f"cannot be copied: {error}") from error
        return True

    def _may_have_layout(self, file: DataFileMeta) -> bool:
        if file.schema_id not in self._is_same_schema:
            schema = self.reader.schemas.get(file.schema_id)
            self._is_same_schema[file.schema_id] = schema is not None and self._writes_same_files(
                schema
            )
        return (
            file.file_size >= self._min_bytes
            and file.write_cols is None
            and self._is_same_schema[file.schema_id]
            and parse_file_format(file.file_name) == "parquet"
        )

    def _writes_same_files(self, schema: TableSchema) -> bool:
        """Return whether writers of a schema write files like those of the newest schema."""
        newest = self.reader.schema
        if schema is newest:
            return True
        columns, newest_columns = (
            [(field.id, field.name, field.type) for field in version.fields]
            for version in (schema, newest)
        )
        return (
            columns == newest_columns
            and self._resolve_modes(schema) == self._modes
            and schema.typed_options.zstd_level == newest.typed_options.zstd_level
        )

    def _resolve_modes(self, schema: TableSchema) -> list[StatsMode]:
        modes = resolve_stats_modes(schema, self.writer.level)
        return [modes[field.name] for field in schema.fields]

    def _find_path(self, bucket_file: BucketFile) -> str:
        """Return the path of a file; the directory of a bucket is computed once."""
        if bucket_file.file.external_path is not None:
            return self.reader.path(bucket_file)
        bucket = bucket_file.partition_bucket
        if bucket not in self._directories:
            self._directories[bucket] = self.reader.paths.bucket_dir(self.reader.schema, *bucket)
        return f"{self._directories[bucket]}/{bucket_file.file.file_name}"

    @cached_property
    def _stats_decoder(self) -> StoredStatsDecoder:
        return StoredStatsDecoder(self.reader.schema.fields, self._modes)

    @property
    def _min_bytes(self) -> int:
        return self.reader.batch_sizes.min_copied_group_bytes

    @cached_property
    def _modes(self) -> list[StatsMode]:
        return self._resolve_modes(self.reader.schema)

    @cached_property
    def _layout(self) -> FileLayout | None:
        return self.writer.find_copied_layout()
