"""Compacting the picked files of one bucket: upgrade, rewrite, look up (merge-tree facts 2.11, 2.12, 4)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from paimon_orch.files.reader import SYSTEM_FIELDS, BucketFile, FileReader
from paimon_orch.files.writer import FileWriterFactory, RollingFileWriter
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest import DataFileMeta, FileSource
from paimon_orch.format.schema import SEQUENCE_NUMBER
from paimon_orch.format.types import Field
from paimon_orch.merge.changelog import ChangelogProducer
from paimon_orch.merge.engines import drop_retracts, merge_engine, restricted
from paimon_orch.merge.levels import oldest_first, sections
from paimon_orch.merge.lookup import PositionLookup
from paimon_orch.merge.stream import MergeRun, Step, merge_runs, with_rows
from paimon_orch.merge.vectors import BucketVectors, read_vectors


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """What to do in one bucket.

    ``above`` are the files of the levels above ``output_level``. ``one_by_one`` rewrites every file by itself: for
    files of one run that are not neighbours.
    """

    partition: bytes
    bucket: int
    files: tuple[DataFileMeta, ...]
    above: tuple[DataFileMeta, ...]
    output_level: int
    max_level: int
    drop_delete: bool
    vectors: tuple[IndexManifestEntry, ...] = ()
    one_by_one: bool = False


@dataclass(slots=True)
class CompactionOutcome:
    """What changed: files that go, files that come, changelog files, and the bucket's new index file."""

    before: list[DataFileMeta] = field(default_factory=list)
    after: list[DataFileMeta] = field(default_factory=list)
    changelog: list[DataFileMeta] = field(default_factory=list)
    index: IndexManifestEntry | None = None


class BucketCompaction:
    """Runs one task; everything it writes has a fresh name, so running it twice is harmless."""

    def __init__(self, reader: FileReader, task: CompactionTask) -> None:
        self._reader, self._task = reader, task
        self._schema = reader.schema
        self._options = reader.schema.typed_options
        self._key_fields = reader.schema.key_fields
        self._key_names = reader.schema.trimmed_primary_keys
        self._fields = [*SYSTEM_FIELDS, *reader.schema.fields]
        self._vectors = BucketVectors(
            read_vectors(reader.io, reader.paths, reader.schema, task.vectors)
        )
        self._outcome = CompactionOutcome()
        self._engine = merge_engine(reader.schema)
        self._writers: list[RollingFileWriter] = []

    def run(self) -> CompactionOutcome:
        """Compact and return what changed; on failure what was written is removed again."""
        reader, task = self._reader, self._task
        try:
            self._compact()
            if self._options.deletion_vectors:
                self._outcome.index = self._vectors.write(
                    reader.io, reader.paths, self._schema, task.partition, task.bucket
                )
        except BaseException:
            for writer in self._writers:
                writer.abort()
            raise
        return self._outcome

    def _compact(self) -> None:
        """Walk the sections in key order: large files that stand alone move up, the rest is merged."""
        if self._task.one_by_one:
            for file in self._task.files:
                self._merge_sections([[[file]]])
            return
        target = self._options.target_file_size(primary_key=True)
        small = target * float(self._options.text("compaction.small-file-ratio", "0.7"))
        pending: list[list[list[DataFileMeta]]] = []
        for section in sections(self._task.files, self._key_fields):
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
        """Merge sections into new files; a lone run is upgraded instead."""
        if len(pending) == 1 and len(pending[0]) == 1:
            for file in pending[0][0]:
                self._upgrade(file)
        elif pending:
            self._merge_sections(pending)

    def _upgrade(self, file: DataFileMeta) -> None:
        """Move a file up by metadata alone where that is right, or rewrite it."""
        output = self._task.output_level
        formats = {self._options.file_format(level) for level in (file.level, output)}
        if self._must_rewrite(file) or (file.level != output and len(formats) > 1):
            self._merge_sections([[[file]]])
        elif file.level != output:
            if self._writes_changelog([file]):
                self._merge_sections([[[file]]], rewrite=False)
            elif file.level == 0 and self._looks_up:
                self._mark_replaced_rows_of(file)
            self._outcome.before.append(file)
            self._outcome.after.append(file.upgraded(output))

    def _must_rewrite(self, file: DataFileMeta) -> bool:
        if self._options.boolean("compaction.force-rewrite-all-files"):
            return True
        may_delete, is_top = file.delete_row_count != 0, not self._task.above
        if is_top and self._task.drop_delete and may_delete:
            return True
        if self._options.need_lookup and file.level == 0:
            merges_values = self._task.above and not self._engine.newest_row_wins
            return bool(merges_values) or (self._options.deletion_vectors and may_delete)
        return is_top and file.file_name in self._vectors.vectors

    @property
    def _looks_up(self) -> bool:
        return self._options.need_lookup and bool(self._task.above)

    def _writes_changelog(self, files: Iterable[DataFileMeta]) -> bool:
        """Tell whether merging these files makes changes to write down (6.3, 6.4)."""
        if self._options.changelog_producer == "lookup":
            return any(file.level == 0 for file in files)
        to_top = self._task.output_level == self._task.max_level
        return self._options.changelog_producer == "full-compaction" and to_top

    def _lookup(self, fields: Sequence[Field]) -> PositionLookup:
        def read(file: DataFileMeta, vector: DeletionVector | None) -> Iterator[pa.RecordBatch]:
            return self._reader.read(self._at(file), fields, vector, positions=True)

        return PositionLookup(self._task.above, self._key_fields, read, self._vectors.vectors)

    def _at(self, file: DataFileMeta) -> BucketFile:
        return BucketFile(self._task.partition, self._task.bucket, file)

    def _runs(self, section: Sequence[Sequence[DataFileMeta]]) -> list[MergeRun]:
        """Return the runs of a section, oldest first, without the rows that vectors hide."""
        return [MergeRun(self._read_run(files)) for files in oldest_first(section)]

    def _read_run(self, files: Sequence[DataFileMeta]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for file in files:
            vector = self._vectors.vectors.get(file.file_name)
            for batch in self._reader.read(self._at(file), self._fields, vector):
                yield file.level, batch

    def _merge_sections(
        self, pending: Sequence[list[list[DataFileMeta]]], *, rewrite: bool = True
    ) -> None:
        """Merge sections in key order into new files, or only for the changes they make."""
        files = [file for section in pending for run in section for file in run]
        has_changes = self._writes_changelog(files)
        lookup = None
        if self._looks_up and any(file.level == 0 for file in files):
            by_value = has_changes or not self._engine.newest_row_wins
            lookup = self._lookup(self._fields if by_value else self._key_fields)
        output = self._writer(changelog=False) if rewrite else None
        changelog = self._writer(changelog=True) if has_changes else None
        for section in pending:
            for step in merge_runs(self._runs(section), self._key_names, self._engine.sequence):
                self._merge_step(step, lookup, output, changelog)
        if output is not None:
            self._outcome.after.extend(output.close())
            self._outcome.before.extend(files)
            for file in files:
                self._vectors.drop(file.file_name)
        if changelog is not None:
            self._outcome.changelog.extend(changelog.close())
        if lookup is not None and self._options.deletion_vectors:
            self._vectors.add(lookup.vectors())

    def _writer(self, *, changelog: bool) -> RollingFileWriter:
        task = self._task
        factory = FileWriterFactory(self._reader.io, self._reader.paths, self._schema)
        writer = factory.writer(
            task.partition,
            task.bucket,
            level=task.output_level,
            source=FileSource.APPEND if changelog else FileSource.COMPACT,
            changelog=changelog,
        )
        self._writers.append(writer)
        return writer

    def _merge_step(
        self,
        step: Step,
        lookup: PositionLookup | None,
        output: RollingFileWriter | None,
        changelog: RollingFileWriter | None,
    ) -> None:
        if lookup is not None:
            step = self._with_older_rows(step, lookup)
        step = self._engine.prepare(step)
        merged = self._engine.merge(step)
        if changelog is not None and merged.num_rows:
            changes = ChangelogProducer(self._schema, self._task.max_level).changes(step, merged)
            if changes.num_rows:
                changelog.write(changes)
        if output is not None:
            merged = drop_retracts(merged) if self._task.drop_delete else merged
            if merged.num_rows:
                output.write(merged)

    def _with_older_rows(self, step: Step, lookup: PositionLookup) -> Step:
        """Look up the keys that are on level 0 alone; take their older rows along if they matter."""
        only_new = ~step.any_of_group(step.levels > 0)
        found = lookup.mark(step.keys.take(step.lasts[only_new]))
        if not found or SEQUENCE_NUMBER.name not in found[0][1].schema.names:
            return step
        step = with_rows(step, found, self._key_names, self._engine.sequence)
        if not self._engine.first_row_wins:
            return step
        # the first row of these keys lies above and stays there
        known = step.any_of_group(step.levels > self._task.output_level)
        return restricted(step, np.repeat(~known, step.sizes))

    def _mark_replaced_rows_of(self, file: DataFileMeta) -> None:
        """Hide the older versions of a level-0 file's keys; the file itself stays as it is."""
        lookup = self._lookup(self._key_fields)
        batches = self._reader.read(self._at(file), [SEQUENCE_NUMBER, *self._key_fields])
        run = MergeRun((0, batch) for batch in batches)
        for step in merge_runs([run], self._key_names):
            lookup.mark(step.keys)
        self._vectors.add(lookup.vectors())
