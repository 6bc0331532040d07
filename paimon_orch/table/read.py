"""Reading buckets: raw where no merge is needed, else merged; vectors applied (format section 11)."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from paimon_orch.files.reader import SYSTEM_FIELDS, BucketFile, FileReader
from paimon_orch.format.manifest import DataFileMeta
from paimon_orch.format.types import Field
from paimon_orch.merge.engines import drop_retracts, merge_engine
from paimon_orch.merge.levels import sections
from paimon_orch.merge.stream import MergeRun, merge_runs
from paimon_orch.merge.vectors import read_vectors
from paimon_orch.table.plan import BucketSplit


class BucketReader:
    """Reads the visible rows of one bucket as record batches of the asked columns."""

    def __init__(self, reader: FileReader, split: BucketSplit, fields: Sequence[Field]) -> None:
        self._reader, self._split, self._fields = reader, split, list(fields)
        self._vectors = read_vectors(reader.io, reader.paths, reader.schema, split.vectors)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield rows; keys of primary-key tables come once, deleted ones not at all."""
        if not self._reader.schema.primary_keys:
            for file in sorted(self._split.files, key=lambda f: f.min_sequence_number):
                yield from self._read(file, self._fields)
        elif self._is_raw():
            for file in self._split.files:
                yield from self._read(file, self._fields)
        else:
            yield from self._merged()

    def _is_raw(self) -> bool:
        """Tell whether no key is in two files and no row is a retract (11.5)."""
        files = self._split.files
        if any(file.level == 0 or file.delete_row_count for file in files):
            return len(files) == 1 and files[0].delete_row_count == 0
        options = self._reader.schema.typed_options
        one_level = len({file.level for file in files}) == 1
        return one_level or options.deletion_vectors or options.merge_engine == "first-row"

    def _read(self, file: DataFileMeta, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        at = BucketFile(self._split.partition, self._split.bucket, file)
        return self._reader.read(at, fields, self._vectors.get(file.file_name))

    def _merged(self) -> Iterator[pa.RecordBatch]:
        schema = self._reader.schema
        engine = merge_engine(schema)
        names = [field.name for field in self._fields]
        needed = [*SYSTEM_FIELDS, *schema.select(engine.needed(names))]
        key_names = schema.trimmed_primary_keys
        for section in sections(self._split.files, schema.key_fields):
            oldest_first = sorted(section, key=lambda run: max(f.max_sequence_number for f in run))
            runs = [MergeRun(self._run(files, needed)) for files in oldest_first]
            for step in merge_runs(runs, key_names, engine.sequence):
                rows = drop_retracts(engine.merge(step)).select(names)
                yield from rows.combine_chunks().to_batches()

    def _run(
        self, files: Sequence[DataFileMeta], fields: Sequence[Field]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        for file in files:
            for batch in self._read(file, fields):
                yield file.level, batch
