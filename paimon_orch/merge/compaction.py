"""Compacting the picked files of one bucket: upgrade, rewrite, look up (merge-tree facts 2.11, 2.12, 4)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from paimon_orch.files.reader import SYSTEM_FIELDS, BucketFile, FileReader
from paimon_orch.files.writer import FileWriterFactory, RollingFileWriter
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest import DataFileMeta, FileSource
from paimon_orch.format.schema import SEQUENCE_NUMBER
from paimon_orch.merge.engines import drop_retracts, merge_engine
from paimon_orch.merge.levels import sections
from paimon_orch.merge.lookup import PositionLookup
from paimon_orch.merge.stream import MergeRun, merge_runs
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
    drop_delete: bool
    vectors: tuple[IndexManifestEntry, ...] = ()
    one_by_one: bool = False


@dataclass(slots=True)
class CompactionOutcome:
    """What changed: files that go, files that come, and the bucket's new index file."""

    before: list[DataFileMeta] = field(default_factory=list)
    after: list[DataFileMeta] = field(default_factory=list)
    index: IndexManifestEntry | None = None


class BucketCompaction:
    """Runs one task; everything it writes has a fresh name, so running it twice is harmless."""

    def __init__(self, reader: FileReader, task: CompactionTask) -> None:
        self._reader, self._task = reader, task
        self._schema = reader.schema
        self._options = reader.schema.typed_options
        self._key_fields = reader.schema.key_fields
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
            if file.level == 0 and self._looks_up:
                self._mark_replaced_rows_of(file)
            self._outcome.before.append(file)
            self._outcome.after.append(file.upgraded(output))

    def _must_rewrite(self, file: DataFileMeta) -> bool:
        if self._options.boolean("compaction.force-rewrite-all-files"):
            return True
        may_delete, is_top = file.delete_row_count != 0, not self._task.above
        if is_top and self._task.drop_delete and may_delete:
            return True
        if self._options.deletion_vectors and file.level == 0:
            return may_delete
        return is_top and file.file_name in self._vectors.vectors

    @property
    def _looks_up(self) -> bool:
        return self._options.deletion_vectors and bool(self._task.above)

    def _lookup(self) -> PositionLookup:
        return PositionLookup(
            self._task.above, self._key_fields, self._read_keys, self._vectors.vectors
        )

    def _read_keys(
        self, file: DataFileMeta, vector: DeletionVector | None
    ) -> Iterator[pa.RecordBatch]:
        return self._reader.read(self._at(file), self._key_fields, vector, positions=True)

    def _at(self, file: DataFileMeta) -> BucketFile:
        return BucketFile(self._task.partition, self._task.bucket, file)

    def _runs(self, section: Sequence[Sequence[DataFileMeta]]) -> list[MergeRun]:
        """Return the runs of a section, oldest first, without the rows that vectors hide."""
        oldest_first = sorted(section, key=lambda run: max(f.max_sequence_number for f in run))
        return [MergeRun(self._read_run(files)) for files in oldest_first]

    def _read_run(self, files: Sequence[DataFileMeta]) -> Iterator[tuple[int, pa.RecordBatch]]:
        fields = [*SYSTEM_FIELDS, *self._schema.fields]
        for file in files:
            vector = self._vectors.vectors.get(file.file_name)
            for batch in self._reader.read(self._at(file), fields, vector):
                yield file.level, batch

    def _merge_sections(self, pending: Sequence[list[list[DataFileMeta]]]) -> None:
        task = self._task
        files = [file for section in pending for run in section for file in run]
        lookup = self._lookup() if self._looks_up and any(f.level == 0 for f in files) else None
        writer = FileWriterFactory(self._reader.io, self._reader.paths, self._schema).writer(
            task.partition, task.bucket, level=task.output_level, source=FileSource.COMPACT
        )
        self._writers.append(writer)
        names = [field.name for field in self._key_fields]
        for section in pending:
            for step in merge_runs(self._runs(section), names, self._engine.sequence):
                if lookup is not None:
                    only_new = ~step.any_of_group(step.levels > 0)
                    lookup.mark(step.keys.take(step.lasts[only_new]))
                merged = self._engine.merge(step)
                merged = drop_retracts(merged) if task.drop_delete else merged
                if merged.num_rows:
                    writer.write(merged)
        self._outcome.after.extend(writer.close())
        self._outcome.before.extend(files)
        for file in files:
            self._vectors.drop(file.file_name)
        if lookup is not None:
            self._vectors.add(lookup.vectors())

    def _mark_replaced_rows_of(self, file: DataFileMeta) -> None:
        """Hide the older versions of a level-0 file's keys; the file itself stays as it is."""
        lookup = self._lookup()
        batches = self._reader.read(self._at(file), [SEQUENCE_NUMBER, *self._key_fields])
        run = MergeRun((0, batch) for batch in batches)
        names = [key.name for key in self._key_fields]
        for step in merge_runs([run], names):
            lookup.mark(step.keys)
        self._vectors.add(lookup.vectors())
