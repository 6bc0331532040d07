"""Reads buckets of primary-key tables: merges files if necessary.

See docs/format/merge-tree-reads.md.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.blob.managed_blobs import resolve_blobs
from paimon_orch.files.data_file_reader import SYSTEM_FIELDS, RowGroup
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.row_kind import ROW_KIND_SYMBOLS
from paimon_orch.format.schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_orch.format.types.data_types import Field
from paimon_orch.format.types.predicate import Predicate, restrict_to_columns
from paimon_orch.merge.engine.merge_engine import MergeEngine, create_merge_engine
from paimon_orch.merge.engine.retracts import drop_retracts
from paimon_orch.merge.sort.key_order import KeyOrderChecker
from paimon_orch.merge.sort.late_materialization import LateMaterialization, should_materialize_late
from paimon_orch.merge.sort.sort_merge_reader import MergeRun, build_sorted_batch, merge_runs
from paimon_orch.merge.tree.levels import (
    build_sorted_runs,
    has_ascending_sequences,
    merge_order_key,
    plan_merge_sections,
    sort_oldest_first,
)
from paimon_orch.storage.recent_inputs import alternate, iterate_ahead
from paimon_orch.table.bucket_readers.bucket_reader import BucketReader
from paimon_orch.table.scan.base_scan import ROW_KIND
from paimon_orch.table.scan.bucket_split import is_file_raw_convertible, is_raw_convertible
from paimon_orch.table.scan.postponed_rows import read_postponed_rows


class PrimaryKeyReader(BucketReader):
    """Reads one row for each key."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the live rows, one for each key."""
        return self._resolve_blobs(self._read_rows())

    def _read_rows(self) -> Iterator[pa.RecordBatch]:
        schema, split = self._reader.schema, self._split
        files = split.files
        has_other_rows = split.postponed_files or split.is_chained
        if not has_other_rows and is_raw_convertible(files, schema):
            for file in iterate_ahead(files, self._open_ahead):
                first = self._first if is_file_raw_convertible(files, file, schema) else None
                yield from self._read(file, self._fields, self._predicate, first)
        elif schema.typed_options.is_pk_clustering_override and all(file.level for file in files):
            yield from self._read_unmerged()
        else:
            yield from self.read_merged()

    def _read_unmerged(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files with disjoint keys, without retracts."""
        names = [field.name for field in self._fields]
        for file in iterate_ahead(self._split.files, self._open_ahead):
            for batch in self._read(file, [VALUE_KIND, *self._fields], self._predicate):
                rows = drop_retracts(pa.Table.from_batches([batch]))
                yield from rows.select(names).to_batches()

    def read_merged(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in key order."""
        names = [field.name for field in self._fields]
        for rows in self._merge(deletes=False):
            yield from rows.select(names).combine_chunks().to_batches()

    def read_audit_log(self) -> Iterator[pa.RecordBatch]:
        """Yield rows and the last changes of deleted keys; the first column is ``rowkind``."""
        names = [VALUE_KIND.name, *(field.name for field in self._fields)]
        for rows in self._merge(deletes=True):
            batches = self._resolve_blobs(rows.select(names).combine_chunks().to_batches())
            yield from map(_decode_row_kinds, batches)

    def _read_changes_of_file(self, file: DataFileMeta) -> Iterator[pa.RecordBatch]:
        fields = [VALUE_KIND, *self._fields]
        batches = self._resolve_blobs(self._read(file, fields, self._predicate))
        yield from map(_decode_row_kinds, batches)

    def _resolve_blobs(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = [self._to_bucket_file(file) for file in self._split.files]
        return resolve_blobs(self._reader, files, self._fields, batches)

    def _open_runs_ahead(self, section: Sequence[Sequence[DataFileMeta]]) -> bool:
        """Start to open the files of sorted runs; a merge needs the first of each to begin."""
        files = alternate([run[:1] for run in section] if self._may_stop else section)
        return all(map(self._start_opening, files)) and not self._may_stop

    def _merge(self, *, deletes: bool) -> Iterator[pa.Table]:
        schema = self._reader.schema
        engine = create_merge_engine(schema)
        if self._split.origins:
            engine = replace(engine, are_levels_ordered=False)
        needed = schema.select(engine.required_columns([field.name for field in self._fields]))
        if self._split.postponed_files:
            yield from self._merge_with_postponed(engine, needed, deletes=deletes)
            return
        if schema.typed_options.is_pk_clustering_override:
            yield from self._merge_in_memory(engine, needed, deletes=deletes)
            return
        sections = [
            sort_oldest_first(section) for section in plan_merge_sections(self._split.files, schema)
        ]
        for ordered in iterate_ahead(sections, self._open_runs_ahead):
            late = self._plan_late_materialization(engine, needed, ordered)
            fields = [field for field in needed if late is None or field not in late.fields]
            in_order = not engine.sequence.names and has_ascending_sequences(ordered)
            numbered = SEQUENCE_NUMBER in self._fields or not in_order
            system = SYSTEM_FIELDS if numbered else [VALUE_KIND]
            runs = self._build_runs(ordered, [*system, *fields], late)
            keys, newest = schema.trimmed_primary_keys, engine.newest_row_wins
            for step in merge_runs(runs, keys, engine.sequence, newest=newest):
                rows = engine.merge(engine.prepare(step), deletes=deletes)
                if rows.num_rows:
                    yield rows if late is None else late.append_values(rows)

    def _merge_in_memory(
        self, engine: MergeEngine, needed: Sequence[Field], *, deletes: bool
    ) -> Iterator[pa.Table]:
        """Merge files that are not sorted by key; holds all rows in memory."""
        schema, predicate = self._reader.schema, self._restrict_to_keys()
        fields = [*SYSTEM_FIELDS, *needed]
        batches = [
            batch
            for file in iterate_ahead(
                sorted(self._split.files, key=merge_order_key), self._open_ahead
            )
            for batch in self._read(file, fields, predicate)
        ]
        if batches:
            rows = pa.Table.from_batches(batches)
            step = build_sorted_batch(rows, schema.trimmed_primary_keys, engine.sequence)
            yield engine.merge(engine.prepare(step), deletes=deletes)

    def _merge_with_postponed(
        self, engine: MergeEngine, needed: Sequence[Field], *, deletes: bool
    ) -> Iterator[pa.Table]:
        """Merge the bucket with its newer postponed rows; holds the postponed rows in memory."""
        schema, split = self._reader.schema, self._split
        if schema.typed_options.is_pk_clustering_override:
            raise UnsupportedError(
                "'postpone.merge-on-read' = true with 'pk-clustering-override' = true is not "
                "supported; compact the table, and read it without 'postpone.merge-on-read'"
            )
        keys = schema.trimmed_primary_keys
        ordered = sort_oldest_first(
            run.files for run in build_sorted_runs(split.files, schema.key_fields)
        )
        self._open_runs_ahead(ordered)
        runs = self._build_runs(ordered, [*SYSTEM_FIELDS, *needed], None)
        rows = read_postponed_rows(self._reader, split, engine, needed)
        if rows.num_rows:
            step = engine.prepare(build_sorted_batch(rows, keys, engine.sequence))
            merged = engine.merge(step).select([field.name for field in (*SYSTEM_FIELDS, *needed)])
            runs.append(MergeRun((0, batch) for batch in merged.combine_chunks().to_batches()))
        for step in merge_runs(runs, keys, engine.sequence):
            merged = engine.merge(engine.prepare(step), deletes=deletes)
            if merged.num_rows:
                yield merged

    def _plan_late_materialization(
        self, engine: MergeEngine, needed: Sequence[Field], runs: Sequence[Sequence[DataFileMeta]]
    ) -> LateMaterialization | None:
        """Return the late materialization of non-key columns, or None if it cannot save reads.

        Requires an engine that does not combine rows. Row groups can only be skipped if newer runs
        have about as many rows.
        """
        if not engine.is_deduplicate or not should_materialize_late(runs):
            return None
        merging = engine.required_columns([])
        fields = [field for field in needed if field.name not in merging]

        def read(file: DataFileMeta) -> Iterator[RowGroup]:
            return self._reader.row_groups(
                self._to_bucket_file(file), self._reader.schema.key_fields[0]
            )

        return LateMaterialization(fields, runs, read) if fields else None

    def _restrict_to_keys(self) -> Predicate | None:
        """Return the part of the predicate that tests only key and partition columns."""
        names = self._reader.schema.identifying_names
        return None if self._predicate is None else restrict_to_columns(self._predicate, names)

    def _build_runs(
        self,
        runs: Sequence[Sequence[DataFileMeta]],
        fields: Sequence[Field],
        late: LateMaterialization | None,
    ) -> list[MergeRun]:
        is_single_run = len(runs) == 1 and not self._split.postponed_files
        predicate = self._predicate if is_single_run else self._restrict_to_keys()
        run_rows = [sum(file.row_count for file in files) for files in runs]
        loads = self._reader.batch_sizes.plan_merge(run_rows)

        names = self._reader.schema.trimmed_primary_keys

        def read(files: Sequence[DataFileMeta], load: int) -> Iterator[tuple[int, pa.RecordBatch]]:
            order = KeyOrderChecker(names)
            for file in iterate_ahead(files, self._open_ahead):
                for rows in self._reader.read(
                    self._to_bucket_file(file),
                    fields,
                    self._vectors.get(file.file_name),
                    predicate=predicate,
                    positions=late is not None,
                    batch_rows=load,
                ):
                    order.check(file.file_name, rows)
                    yield file.level, rows if late is None else late.add_row_location(file, rows)

        return [MergeRun(read(files, load)) for files, load in zip(runs, loads, strict=True)]


def _decode_row_kinds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace the row kind codes in the first column with text; null stands for an insert."""
    codes = pc.fill_null(batch.column(0), 0)
    symbols = pa.array(ROW_KIND_SYMBOLS).take(codes)
    return pa.RecordBatch.from_arrays(
        [symbols, *batch.columns[1:]], [ROW_KIND.name, *batch.schema.names[1:]]
    )
