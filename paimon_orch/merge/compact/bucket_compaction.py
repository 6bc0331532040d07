"""Compaction of the selected files of one bucket: upgrade, rewrite and lookup.

See docs/format/compaction-rewrites.md and docs/format/lookup-compaction.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from paimon_orch.files.data_file_reader import SYSTEM_FIELDS, BucketFile, FileReader, RowGroup
from paimon_orch.files.data_file_writer import FileWriterFactory, RollingFileWriter
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.file_index.index_options import parse_index_specs
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileSource
from paimon_orch.format.options.core_options import (
    COMPACTION_FORCE_REWRITE_ALL_FILES,
    COMPACTION_SMALL_FILE_RATIO,
)
from paimon_orch.format.schema import SEQUENCE_NUMBER
from paimon_orch.format.types.data_types import Field
from paimon_orch.merge.compact.bucket_deletion_vectors import (
    BucketDeletionVectors,
    read_deletion_vectors,
)
from paimon_orch.merge.compact.changelog_producer import ChangelogProducer
from paimon_orch.merge.compact.position_lookup import PositionLookup
from paimon_orch.merge.compact.sorted_row_groups import SortedRowGroup, SortedRowGroupCopier
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.engine.record_level_expire import RecordLevelExpire
from paimon_orch.merge.engine.retracts import drop_retracts
from paimon_orch.merge.sort.key_order import KeyOrderChecker
from paimon_orch.merge.sort.sort_merge_reader import (
    LevelRows,
    MergeBatch,
    MergeRun,
    RowBlock,
    filter_batch,
    insert_rows,
    merge_blocks,
    merge_runs,
)
from paimon_orch.merge.tree.key_range import KeyRange, build_first_key_predicate
from paimon_orch.merge.tree.levels import sort_oldest_first, split_into_sections
from paimon_orch.storage.recent_inputs import alternate, iterate_ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """The compaction of one bucket, or of a part of it."""

    partition_bucket: PartitionBucket
    files: tuple[DataFileMeta, ...]
    """The files to merge."""
    higher_level_files: tuple[DataFileMeta, ...]
    """The other files of the levels above ``output_level``, in which older rows are looked up."""
    output_level: int
    max_level: int
    drop_delete: bool
    vectors: tuple[IndexManifestEntry, ...] = ()
    standalone_files: tuple[DataFileMeta, ...] = ()
    """Files that are rewritten individually on their level, after all other files.

    The rewrite drops deleted or expired rows. Files of the higher levels are possible."""
    groups: tuple[tuple[DataFileMeta, ...], ...] = ()
    """The standalone files to merge, by group, if files are sorted by ``clustering.columns``."""
    now: int = 0
    """Seconds since the epoch, for record-level expiration."""
    keys: KeyRange | None = None
    """The range of keys that the task is restricted to."""
    is_partial: bool = False
    """Whether the task is one part of a compaction; all parts share one index file."""
    merges_level0: bool = False
    """Whether another part can contain the rows of level 0."""
    merges_levels: bool = False
    """Whether rows on a level are merged with those of higher levels, although there are lookups.

    Lookups have merged them already, except in files from before there were lookups."""

    @property
    def inputs(self) -> tuple[DataFileMeta, ...]:
        """Return all files that are rewritten or moved."""
        return *self.files, *self.standalone_files


@dataclass(slots=True, kw_only=True)
class BucketCompactionResult:
    """The files before and after the compaction, its changelog files and its index file."""

    before: list[DataFileMeta] = field(default_factory=list)
    after: list[DataFileMeta] = field(default_factory=list)
    changelog: list[DataFileMeta] = field(default_factory=list)
    index: IndexManifestEntry | None = None
    new_deletion_vectors: Mapping[str, DeletionVector] = field(default_factory=dict)
    """The new deletion vectors of a part of a compaction, by data file."""


class BucketCompaction:
    """Runs one task; written files have new names, so a task can be retried."""

    def __init__(self, reader: FileReader, task: CompactionTask) -> None:
        self._reader, self._task = reader, task
        self._schema = reader.schema
        self._options = reader.schema.typed_options
        self._key_fields = reader.schema.key_fields
        self._key_names = reader.schema.trimmed_primary_keys
        self._fields = [*SYSTEM_FIELDS, *reader.schema.fields]
        self._vectors = BucketDeletionVectors(
            read_deletion_vectors(reader.io, reader.paths, reader.schema, task.vectors)
        )
        self._outcome = BucketCompactionResult()
        self._engine = create_merge_engine(reader.schema)
        if task.merges_levels:
            self._engine = replace(self._engine, are_levels_ordered=False)
        self._expiry = RecordLevelExpire.of(reader.schema, task.now)
        self._open_writers = ExitStack()
        self._writer_factory: FileWriterFactory | None = None
        self._is_lookup_merge = self._has_changelog = False

    def run(self) -> BucketCompactionResult:
        """Compact the bucket; on failure the written files are deleted."""
        reader, task = self._reader, self._task
        with self._open_writers:
            self._compact()
            for file in task.standalone_files:
                self._merge_sections([[[file]]], level=file.level)
            if task.is_partial:
                self._outcome.new_deletion_vectors = self._vectors.new_deletion_vectors
            else:  # also if vectors are disabled, so that none is left of a rewritten file
                self._outcome.index = self._vectors.write(
                    reader.io, reader.paths, self._schema, *task.partition_bucket
                )
        return self._outcome

    def _compact(self) -> None:
        """Upgrade large files that do not overlap others; merge the other files, in key order."""
        if self._task.keys is not None:
            self._merge_sections(split_into_sections(self._task.files, self._key_fields))
            return
        target = self._options.target_file_size(primary_key=True)
        small = target * self._options.get(COMPACTION_SMALL_FILE_RATIO)
        pending: list[list[list[DataFileMeta]]] = []
        for section in split_into_sections(self._task.files, self._key_fields):
            if len(section) > 1:
                pending.append(section)
                continue
            for file in section[0]:
                if file.file_size < small:
                    pending.append([[file]])
                else:
                    self._rewrite(pending)
                    pending = []
                    self._upgrade(file)
        self._rewrite(pending)

    def _rewrite(self, pending: Sequence[list[list[DataFileMeta]]]) -> None:
        """Merge sections into new files; upgrade a single run."""
        if len(pending) == 1 and len(pending[0]) == 1:
            for file in pending[0][0]:
                self._upgrade(file)
        elif pending:
            self._merge_sections(pending)

    def _upgrade(self, file: DataFileMeta) -> None:
        """Move a file to the output level by changing only its metadata; rewrite it if needed."""
        output = self._task.output_level
        formats = {self._options.file_format(level) for level in (file.level, output)}
        if self._should_rewrite_file(file) or (file.level != output and len(formats) > 1):
            self._merge_sections([[[file]]])
        elif file.level != output:
            if self._should_write_changelog([file]):
                self._merge_sections([[[file]]], rewrite=False)
            elif (
                file.level == 0
                and self._options.has_deletion_vectors
                and self._task.higher_level_files
            ):
                self._mark_replaced_rows(file)
            self._outcome.before.append(file)
            self._outcome.after.append(file.with_level(output))

    def _should_rewrite_file(self, file: DataFileMeta) -> bool:
        if self._options.get(COMPACTION_FORCE_REWRITE_ALL_FILES):
            return True
        if self._expiry is not None and self._expiry.touches(file, self._reader.schemas):
            return True
        may_delete, is_top = file.delete_row_count != 0, not self._task.higher_level_files
        if is_top and self._task.drop_delete and may_delete:
            return True
        if self._options.needs_lookup and file.level == 0:
            merges_values = self._task.higher_level_files and not self._engine.newest_row_wins
            return bool(merges_values) or (self._options.has_deletion_vectors and may_delete)
        return is_top and file.file_name in self._vectors.vectors

    def _should_write_changelog(self, files: Iterable[DataFileMeta]) -> bool:
        """Return whether merging these files writes changelog."""
        if self._options.changelog_producer == "lookup":
            return any(file.level == 0 for file in files)
        to_top = self._task.output_level == self._task.max_level
        return self._options.changelog_producer == "full-compaction" and to_top

    def _create_lookup(self, values: Sequence[Field] = ()) -> PositionLookup:
        def read(file: DataFileMeta, vector: DeletionVector | None) -> Iterator[RowGroup]:
            return self._reader.row_groups(self._bucket_file(file), self._key_fields[0], vector)

        files, vectors = self._task.higher_level_files, self._vectors.vectors
        # In first-row tables, later rows of a key are dropped even if its first row is expired,
        # until a compaction drops the first row.
        is_alive = None
        if self._expiry is not None and values and not self._engine.is_first_row:
            is_alive = self._expiry.is_alive
        return PositionLookup(
            files, self._key_fields, read, vectors, values=values, is_alive=is_alive
        )

    def _bucket_file(self, file: DataFileMeta) -> BucketFile:
        return BucketFile(*self._task.partition_bucket, file)

    def _build_runs(
        self, section: Sequence[Sequence[DataFileMeta]], copier: SortedRowGroupCopier | None
    ) -> list[MergeRun]:
        """Return the runs of a section without deleted rows, oldest first."""
        runs = sort_oldest_first(section)
        run_rows = [sum(file.row_count for file in files) for files in runs]
        loads = self._reader.batch_sizes.plan_merge(run_rows)
        return [
            MergeRun(self._read_run(files, load, copier))
            for files, load in zip(runs, loads, strict=True)
        ]

    def _read_run(
        self, files: Sequence[DataFileMeta], batch_rows: int, copier: SortedRowGroupCopier | None
    ) -> Iterator[LevelRows | RowBlock]:
        order = KeyOrderChecker(self._key_names)
        for file in iterate_ahead(files, self._open_ahead):

            def read(
                row_groups: Sequence[int] | None, file: DataFileMeta = file
            ) -> Iterator[LevelRows]:
                for batch in self._read_file(file, batch_rows, row_groups):
                    order.check(file.file_name, batch)
                    rows = batch if self._expiry is None else self._expiry.drop_expired(batch)
                    if rows.num_rows:
                        yield file.level, rows

            # Otherwise the merge of keys that only this file has returns their rows unchanged.
            is_changed = file.file_name in self._vectors.vectors or (
                self._has_changelog and file.level != self._task.max_level
            )
            if copier is None or is_changed:
                yield from read(None)
            else:
                yield from copier.read(self._bucket_file(file), read, self._task.keys)

    def _open_ahead(self, file: DataFileMeta) -> bool:
        return self._reader.open_ahead(self._bucket_file(file))

    def _open_section_ahead(self, section: Sequence[Sequence[DataFileMeta]]) -> bool:
        """Start to open the files of sorted runs, which a merge needs at the same time."""
        return all(map(self._open_ahead, alternate(section)))

    def _read_file(
        self, file: DataFileMeta, batch_rows: int, row_groups: Sequence[int] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are not deleted and are in the key range of the task."""
        bucket_file, keys = self._bucket_file(file), self._task.keys
        if row_groups is not None:
            batches = self._reader.read_row_groups(
                bucket_file, self._fields, row_groups, batch_rows=batch_rows
            )
        else:
            key_filter = None
            # A forced rewrite repairs wrong statistics, by which the filter would lose rows.
            if keys is not None and not self._options.get(COMPACTION_FORCE_REWRITE_ALL_FILES):
                key_filter = build_first_key_predicate(keys.low, keys.high, self._key_fields[0])
            batches = self._reader.read(
                bucket_file,
                self._fields,
                self._vectors.vectors.get(file.file_name),
                predicate=key_filter,
                batch_rows=batch_rows,
            )
        for batch in batches:
            rows = batch if keys is None else keys.slice_rows(batch, self._key_fields)
            if rows.num_rows:
                yield rows

    def _merge_sections(
        self,
        pending: Sequence[list[list[DataFileMeta]]],
        *,
        rewrite: bool = True,
        level: int | None = None,
    ) -> None:
        """Merge sections in key order into new files and changelog files."""
        files = [file for section in pending for run in section for file in run]
        has_changes = self._should_write_changelog(files)
        merges_level0 = self._task.merges_level0 or any(file.level == 0 for file in files)
        self._is_lookup_merge = self._options.needs_lookup and merges_level0
        lookup = None
        if self._is_lookup_merge and self._task.higher_level_files:
            by_value = has_changes or not self._engine.newest_row_wins
            lookup = self._create_lookup(self._fields if by_value else ())
        output = self._create_writer(changelog=False, level=level) if rewrite else None
        changelog = self._create_writer(changelog=True) if has_changes else None
        dictionaries = frozenset[str]()
        if output is not None and lookup is None and changelog is None:
            dictionaries = self._find_dictionary_columns(files, output.level)
        self._reader = replace(self._reader, dictionaries=dictionaries)
        self._has_changelog = changelog is not None
        copier = None
        if output is not None and lookup is None and self._keeps_single_rows:
            copier = SortedRowGroupCopier(self._reader, output)
        for section in iterate_ahead(pending, self._open_section_ahead):
            for step in self._merge_runs(self._build_runs(section, copier), copier):
                self._merge_batch(step, lookup, output, changelog)
        if output is not None:
            self._outcome.after.extend(output.close())
            self._outcome.before.extend(files)
            for file in files:
                self._vectors.drop(file.file_name)
        if changelog is not None:
            self._outcome.changelog.extend(changelog.close())
        if lookup is not None and self._options.has_deletion_vectors:
            self._vectors.add(lookup.vectors())

    @property
    def _keeps_single_rows(self) -> bool:
        """Return whether the only row of a key remains unchanged if it is not a retract."""
        return (
            self._expiry is None
            and not self._options.has_snapshot_ordering
            and not (self._is_lookup_merge and self._engine.can_change_single_rows)
        )

    def _merge_runs(
        self, runs: Sequence[MergeRun], copier: SortedRowGroupCopier | None
    ) -> Iterator[MergeBatch]:
        """Copy row groups in whose range no other run has a key; yield the other rows."""
        for step in merge_blocks(runs, self._key_names, self._engine.sequence):
            if isinstance(step, MergeBatch):
                yield step
                continue
            assert copier is not None
            assert isinstance(step, SortedRowGroup)
            if not copier.copy(step):
                yield from merge_runs([MergeRun(step.read())], self._key_names)

    def _find_dictionary_columns(self, files: Sequence[DataFileMeta], level: int) -> frozenset[str]:
        """Return the columns that the largest file stores with small dictionaries.

        Keys, sequences and indexed columns are needed as values.
        """
        options, schema = self._options, self._schema
        if options.file_format(level) != "parquet":
            return frozenset()
        self._open_section_ahead([files])
        largest = max(files, key=lambda file: file.row_count)
        values = {*schema.identifying_names, *self._engine.sequence.names}
        values |= {field.name for field in schema.order_fields(level)}
        values |= {spec.column for spec in parse_index_specs(schema.options)}
        found = self._reader.find_dictionary_columns(self._bucket_file(largest))
        return frozenset(found) - values

    def _create_writer(self, *, changelog: bool, level: int | None = None) -> RollingFileWriter:
        task = self._task
        writer = self._factory().writer(
            task.partition_bucket,
            level=task.output_level if level is None else level,
            source=FileSource.APPEND if changelog else FileSource.COMPACT,
            changelog=changelog,
        )
        return self._open_writers.enter_context(writer)

    def _factory(self) -> FileWriterFactory:
        task = self._task
        if self._writer_factory is None:
            self._writer_factory = FileWriterFactory.for_rewrite(
                self._reader, task.partition_bucket, (*task.inputs, *task.higher_level_files)
            )
        return self._writer_factory

    def _merge_batch(
        self,
        step: MergeBatch,
        lookup: PositionLookup | None,
        output: RollingFileWriter | None,
        changelog: RollingFileWriter | None,
    ) -> None:
        if lookup is not None:
            step = self._add_older_rows(step, lookup)
        step = self._engine.prepare(step)
        deletes = changelog is not None or not self._task.drop_delete
        merged = self._engine.merge(step, merges_single_rows=self._is_lookup_merge, deletes=deletes)
        if changelog is not None and merged.num_rows:
            changes = ChangelogProducer(self._schema, self._task.max_level).compute_changes(
                step, merged
            )
            if changes.num_rows:
                changelog.write(changes)
        if output is not None:
            rows = drop_retracts(merged) if deletes and self._task.drop_delete else merged
            if rows.num_rows:
                output.write(rows)

    def _add_older_rows(self, step: MergeBatch, lookup: PositionLookup) -> MergeBatch:
        """Look up the keys that only level 0 has, and add their older rows to the batch."""
        newest = step.newest_row_per_key
        if step.levels.any():
            newest = newest[~step.any_in_group(step.levels > 0)]
        older_rows = lookup.mark_replaced_rows(step.keys.take(newest))
        if not older_rows:
            return step
        step = insert_rows(step, older_rows, self._key_names, self._engine.sequence)
        if not self._engine.is_first_row:
            return step
        # the first row of these keys is on a higher level, where it remains
        exists_above = step.any_in_group(step.levels > self._task.output_level)
        return filter_batch(step, np.repeat(~exists_above, step.sizes))

    def _mark_replaced_rows(self, file: DataFileMeta) -> None:
        """Add the older rows of a level-0 file's keys to the deletion vectors."""
        lookup, order = self._create_lookup(), KeyOrderChecker(self._key_names)

        def batches() -> Iterator[tuple[int, pa.RecordBatch]]:
            for batch in self._reader.read(
                self._bucket_file(file), [SEQUENCE_NUMBER, *self._key_fields]
            ):
                order.check(file.file_name, batch)
                yield 0, batch

        run = MergeRun(batches())
        for step in merge_runs([run], self._key_names):
            lookup.mark_replaced_rows(step.keys)
        self._vectors.add(lookup.vectors())
