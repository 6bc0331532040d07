"""Compares the contents of data files and deletion vectors with their metadata.

See docs/format/invariants.md.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import (
    CorruptFileError,
    InputError,
    MissingFileError,
    PaimonError,
    raise_if_temporary,
)
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.file_index_reader import open_indexes
from paimon_orch.files.stats.file_stats import FileStats
from paimon_orch.format.bucket.bucket_function import compute_buckets
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.display import format_count
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, ManifestEntry
from paimon_orch.format.options.core_options import BUCKET_FUNCTION_TYPE
from paimon_orch.format.paths import POSTPONE_BUCKET, TablePaths
from paimon_orch.format.schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.merge.sort.key_order import KeyColumns, decode_key_bounds
from paimon_orch.merge.tree.levels import build_bucket_runs
from paimon_orch.steps.inspection.check_global_indexes import GlobalIndexChecker
from paimon_orch.steps.inspection.check_metadata import SnapshotContents
from paimon_orch.steps.inspection.check_row_groups import (
    REWRITE,
    find_difference,
    find_wrong_row_groups,
)
from paimon_orch.steps.inspection.duplicate_keys import ComparedBucket, DuplicateKeyFinder
from paimon_orch.steps.inspection.findings import Findings
from paimon_orch.storage import FileIO
from paimon_orch.table.metadata.schema_store import SchemaStore


@dataclass(slots=True, kw_only=True)
class FileChecker:
    """Checks the files of a branch."""

    io: FileIO
    paths: TablePaths
    schemas: SchemaStore
    findings: Findings
    checked_files: set[tuple[str, str]]
    """Buckets and names of the files of all branches that were already checked."""
    _vectors: dict[str, dict[str, DeletionVector]] = field(default_factory=dict)
    _previous_vectors: dict[str, DeletionVector] = field(default_factory=dict)
    _compared: set[frozenset[tuple[object, int]]] = field(default_factory=set)
    _global_indexes: GlobalIndexChecker = field(init=False)

    def __post_init__(self) -> None:
        """Create the checker of column indexes."""
        self._global_indexes = GlobalIndexChecker(
            io=self.io, paths=self.paths, schemas=self.schemas, findings=self.findings
        )

    def check(self, state: SnapshotContents) -> None:
        """Check the data files and deletion vectors of a version that were not checked before."""
        for entry in state.entries:
            file_key = str(entry.partition_bucket), entry.file.file_name
            if file_key not in self.checked_files:
                self.checked_files.add(file_key)
                self._record_errors(partial(self._check_file, entry))
                self._record_errors(partial(self._check_index, entry))
        vectors = self._read_deletion_vectors(state)
        self._check_deletion_vectors(state, vectors)
        self._record_errors(partial(self._global_indexes.check, state, vectors))
        schema = state.schema
        if schema.has_unmerged_levels or schema.is_bucket_dynamic:
            self._check_unique_keys(state, vectors)

    def _record_errors(self, check: Callable[[], None]) -> None:
        try:
            check()
        except MissingFileError as error:  # the check of metadata has the same finding
            self.findings.add("missing-file", "", f"{error.path} does not exist")
        except (PaimonError, OSError) as error:
            raise_if_temporary(error)
            self.findings.add("unreadable", "", str(error))

    def _check_file(self, entry: ManifestEntry) -> None:
        file = entry.file
        schema = self.schemas.get(file.schema_id)
        fields = [*schema.system_fields, *schema.fields]
        bucket_file = BucketFile(entry.partition, entry.bucket, file)
        reader = FileReader(self.io, self.paths, schema, {schema.id: schema})
        batches = list(reader.read(bucket_file, fields))
        if not batches:
            return
        rows = pa.Table.from_batches(batches)
        self._check_text(file, rows)
        if schema.system_fields:
            self._check_system_columns(file, rows)
        if entry.bucket == POSTPONE_BUCKET:
            # The rows are in arrival order, and the metadata has the keys of the first and last row.
            return
        if schema.key_fields:
            self._check_keys(file, rows, schema)
        self._check_statistics(bucket_file, reader, rows)
        self._check_bucket_hash(entry, rows, schema)

    def _check_index(self, entry: ManifestEntry) -> None:
        """Read the header of the file index; readers of this package skip an index with damage."""
        bucket_file = BucketFile(entry.partition, entry.bucket, entry.file)
        schema = self.schemas.get(entry.file.schema_id)
        path = FileReader(self.io, self.paths, schema, {schema.id: schema}).path(bucket_file)
        with open_indexes(self.io, path, entry.file):
            pass

    def _check_text(self, file: DataFileMeta, rows: pa.Table) -> None:
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                text = f"{file.file_name}: column {name} has text that is not UTF-8 ({error})"
                self.findings.add("text", "", text)

    def _check_keys(self, file: DataFileMeta, rows: pa.Table, schema: TableSchema) -> None:
        keys = KeyColumns.of(rows, schema.trimmed_primary_keys)
        if keys.compute_order()[1].any():
            self.findings.add("keys", "", f"{file.file_name} has duplicate keys")
        order = schema.order_fields(file.level)
        keys = KeyColumns.of(rows, [field.name for field in order])
        if not keys.is_sorted():
            names = "key" if order == schema.key_fields else ", ".join(f.name for f in order)
            self.findings.add("keys", "", f"{file.file_name} is not sorted by {names}")
        first, last = decode_key_bounds(file, order)
        # Old releases did not update the key bounds when a compaction dropped deleted keys, so keys
        # within the bounds are accepted.
        if keys.at(0) < first or last < keys.at(len(keys) - 1):
            text = f"{file.file_name} has keys outside of the range in its metadata"
            self.findings.add("key-range", "", text)

    def _check_system_columns(self, file: DataFileMeta, rows: pa.Table) -> None:
        actual = pc.min_max(rows[SEQUENCE_NUMBER.name]).as_py()
        expected = {"min": file.min_sequence_number, "max": file.max_sequence_number}
        if (
            actual["min"] is not None
            and not expected["min"] <= actual["min"] <= actual["max"] <= expected["max"]
        ):
            text = (
                f"{file.file_name} has the sequence numbers {actual['min']} to {actual['max']}, "
                f"but its metadata has {expected['min']} to {expected['max']}"
            )
            self.findings.add("sequence", "", text)
        minus = pa.array([1, 3], pa.int8())  # the row kinds -U and -D
        retracts = int(pc.sum(pc.is_in(rows[VALUE_KIND.name], minus)).as_py() or 0)
        if file.delete_row_count is not None and file.delete_row_count != retracts:
            text = (
                f"{file.file_name} has {retracts} retract rows, "
                f"but its metadata has {file.delete_row_count}"
            )
            self.findings.add("delete-rows", "", text)

    def _check_statistics(
        self, bucket_file: BucketFile, reader: FileReader, rows: pa.Table
    ) -> None:
        schema, file = reader.schema, bucket_file.file
        stats_of = FileStats(schema, self.schemas.get).of(bucket_file.partition, file)
        fields = [f for f in schema.fields if f.name not in schema.partition_keys]
        for column in fields:
            stated = stats_of(column.name)
            actual = find_difference(stated, rows[column.name], column.type)
            if actual is not None:
                text = f"column {column.name} has {actual}, but its metadata has {stated}"
                self._add_wrong_statistics(file, text)
        for text in find_wrong_row_groups(reader, bucket_file, fields, rows):
            self._add_wrong_statistics(file, text)

    def _add_wrong_statistics(self, file: DataFileMeta, text: str) -> None:
        self.findings.add("statistics", "", f"{file.file_name}: {text}; {REWRITE}")

    def _check_bucket_hash(self, entry: ManifestEntry, rows: pa.Table, schema: TableSchema) -> None:
        fields = schema.bucket_key_fields
        if entry.total_buckets < 1 or entry.bucket < 0 or not schema.has_hashed_buckets:
            return
        columns = [rows[f.name].combine_chunks() for f in fields]
        function = schema.typed_options.get(BUCKET_FUNCTION_TYPE)
        try:
            buckets = compute_buckets(
                columns, [f.type for f in fields], entry.total_buckets, function
            )
        except InputError:  # the bucket function is not supported
            return
        strays = int((buckets != entry.bucket).sum())
        if strays:
            name = entry.file.file_name
            text = f"{name}: the hashes of {strays} rows do not belong to bucket {entry.bucket}"
            self.findings.add("bucket", "", text)

    def _read_deletion_vectors(self, state: SnapshotContents) -> dict[str, DeletionVector]:
        vectors: dict[str, DeletionVector] = {}
        for item in state.index:
            if item.file_name not in self._vectors:
                try:
                    file_vectors = read_deletion_vectors(self.io, self.paths, state.schema, [item])
                except (PaimonError, OSError) as error:
                    raise_if_temporary(error)
                    self.findings.add("vector", "", str(error))
                    file_vectors = {}
                self._vectors[item.file_name] = file_vectors
            vectors |= self._vectors[item.file_name]
        return vectors

    def _check_deletion_vectors(
        self, state: SnapshotContents, vectors: Mapping[str, DeletionVector]
    ) -> None:
        rows = {entry.file.file_name: entry.file.row_count for entry in state.entries}
        for name, vector in vectors.items():
            if name in rows and vector.last_position >= rows[name]:
                text = (
                    f"the deletion vector of {name} deletes row {vector.last_position} of "
                    f"{rows[name]}"
                )
                self.findings.add("vector", state.version, text)
        if state.version.snapshot.commit_kind is not CommitKind.OVERWRITE:
            for name, before in self._previous_vectors.items():
                if name not in rows or name not in vectors:
                    continue
                if (before | vectors[name]).cardinality != vectors[name].cardinality:
                    text = f"deleted rows of {name} are live again in {state.version}"
                    self.findings.add("vector", state.version, text)
        self._previous_vectors = dict(vectors)

    def _check_unique_keys(
        self, state: SnapshotContents, vectors: Mapping[str, DeletionVector]
    ) -> None:
        merges_buckets = not state.schema.has_unmerged_levels
        for group in _group_entries(state):
            entries = [entry for entry in group if merges_buckets or entry.file.level > 0]
            # Files and deletion vectors that were checked in another version are not checked again.
            key = frozenset(
                (entry.identity, id(vectors.get(entry.file.file_name))) for entry in entries
            )
            buckets = {entry.partition_bucket for entry in entries}
            if key in self._compared or len(buckets if merges_buckets else entries) < 2:
                continue
            self._compared.add(key)
            check = partial(
                self._check_duplicate_keys, state, entries, vectors, merges_buckets=merges_buckets
            )
            self._record_errors(check)

    def _check_duplicate_keys(
        self,
        state: SnapshotContents,
        entries: list[ManifestEntry],
        vectors: Mapping[str, DeletionVector],
        *,
        merges_buckets: bool,
    ) -> None:
        schema = state.schema
        schemas = self.schemas.get_all(entry.file.schema_id for entry in entries)
        reader = FileReader(self.io, self.paths, schema, schemas)
        try:
            buckets = [
                ComparedBucket(
                    bucket=bucket,
                    runs=[run.files for run in build_bucket_runs([e.file for e in group], schema)],
                    deletions=vectors,
                )
                for bucket, group in groupby(entries, key=lambda entry: entry.partition_bucket)
            ]
        except CorruptFileError:  # files of a level overlap, which the check of metadata reports
            return
        is_sorted = not schema.typed_options.is_pk_clustering_override
        if is_sorted and sum(len(bucket.runs) for bucket in buckets) < 2:
            return  # the keys of a sorted run are distinct
        duplicates = DuplicateKeyFinder(reader, buckets, merges_buckets=merges_buckets).find()
        if not duplicates.keys:
            return
        rows = "row" if len(buckets) == 1 else "row in several buckets"
        names = ", ".join(sorted(name for files in duplicates.positions.values() for name in files))
        text = (
            f"{format_count(duplicates.keys, 'key')} with more than one live {rows}; "
            f"the replaced rows are in {names}"
        )
        self.findings.add("live-twice", state.version, text)


def _group_entries(state: SnapshotContents) -> Iterator[list[ManifestEntry]]:
    """Yield the files of the buckets that can share keys, in the order of their buckets."""

    def get_group(entry: ManifestEntry) -> object:
        is_shared = state.schema.is_bucket_dynamic
        return entry.partition if is_shared else entry.partition_bucket

    ordered = sorted(
        (entry for entry in state.entries if entry.bucket >= 0),
        key=lambda entry: entry.partition_bucket,
    )
    for _, group in groupby(ordered, key=get_group):
        yield list(group)
