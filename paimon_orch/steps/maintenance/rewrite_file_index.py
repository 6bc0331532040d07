"""Build file indexes for existing data files.

See docs/format/procedures.md#rewrite-file-indexes.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
import pyarrow as pa

from paimon_orch.errors import CorruptFileError, InputError, UnsupportedError
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.file_index_reader import (
    INDEX_SUFFIX,
    open_indexes,
    read_bitmap_version,
    sibling_path,
)
from paimon_orch.files.file_index_writer import next_index_name, should_embed_index
from paimon_orch.files.uncommitted_files import UncommittedPaths
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.file_index.build import FileIndexBuilder, is_built_with
from paimon_orch.format.file_index.container import encode_container
from paimon_orch.format.file_index.index_options import (
    LATEST_BITMAP_VERSION,
    IndexSpec,
    parse_index_specs,
    set_default_bitmap_version,
)
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    build_entries,
)
from paimon_orch.format.options.core_options import DATA_EVOLUTION_ENABLED
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.format.types.data_types import Field
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict, discard_messages
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.common.step import FiguresOutcome, Step, WorkUnits, plan_and_run
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.bitmap_index_version import choose_bitmap_version
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.partition_selection import open_reader, plan_live_buckets
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.commit_message import CommitMessage

logger = get_logger(__name__)

FileIdentity = tuple[object, ...]

_READER_THREADS = 8  # number of threads that read the heads of index files
_MAX_UNIT_FILES, _MAX_UNIT_BYTES = 100, 1 << 30
MAX_FILES_PER_COMMIT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIndexRewriteUnit:
    """Files of one bucket whose indexes are rewritten."""

    partition: bytes
    partition_text: str
    """``k1=v1/k2=v2``, or an empty string."""
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    retired_identities: frozenset[FileIdentity] = frozenset()
    """Identities that the files had before and must not have again.

    The indexes of a file are part of its identity, and readers ignore an identity that any manifest
    deletes.
    """
    bitmap_version: int = LATEST_BITMAP_VERSION
    """The version of new bitmap indexes if the options do not set it."""

    def to_dict(self) -> dict[str, object]:
        """Return the unit as JSON values."""
        return {
            "partition": self.partition_text,
            "bucket": self.bucket,
            "files": len(self.files),
            "rows": sum(file.row_count for file in self.files),
            "bytes": sum(file.file_size for file in self.files),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFileIndexRequest(PartitionRequest):
    """Selects the partitions whose file indexes are rewritten."""

    files_per_commit: Annotated[
        int, Argument("Maximum number of files whose indexes one snapshot replaces.", minimum=1)
    ] = MAX_FILES_PER_COMMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIndexRewritePlan(Displayable):
    """The plan of a rewrite. It is falsy if there is nothing to do."""

    request: RewriteFileIndexRequest
    state: TableState = field(repr=False, compare=False)
    snapshot_id: int | None = None
    reader: FileReader | None = None
    units: tuple[FileIndexRewriteUnit, ...] = ()
    skipped_files: int = 0

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.units)

    @property
    def bytes(self) -> int:
        """Return the size of the files to read."""
        return sum(file.file_size for unit in self.units for file in unit.files)

    def groups(self) -> Iterator[tuple[FileIndexRewriteUnit, ...]]:
        """Yield groups of units to commit together, with ``files_per_commit`` files or one unit."""
        group: list[FileIndexRewriteUnit] = []
        for unit in self.units:
            file_count = sum(len(other.files) for other in group) + len(unit.files)
            if group and file_count > self.request.files_per_commit:
                yield tuple(group)
                group = []
            group.append(unit)
        if group:
            yield tuple(group)

    def split(self) -> "list[FileIndexRewritePlan]":
        """Return one plan for each commit, or only this plan if there is nothing to do."""
        return [replace(self, units=group) for group in self.groups()] or [self]

    def to_dict(self) -> dict[str, object]:
        """Return counts, bytes and all units as JSON values."""
        return {
            "snapshot_id": self.snapshot_id,
            "files": sum(len(unit.files) for unit in self.units),
            "skipped_files": self.skipped_files,
            "bytes": self.bytes,
            "snapshots": sum(1 for _ in self.groups()),
            "units": [unit.to_dict() for unit in self.units],
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        files = format_count(sum(len(unit.files) for unit in self.units), "file")
        snapshots = format_count(sum(1 for _ in self.groups()), "snapshot")
        return PlanReport(
            action=f"rewrite the indexes of {files} in {snapshots}",
            nothing="nothing to do: every file has the indexes that the table's options configure",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIndexRewriteResult(FiguresOutcome):
    """The result of a rewrite."""

    snapshot_id: int | None = None
    """The last snapshot, or None if there was nothing to do."""
    snapshots: int = 0
    files: int = 0
    embedded: int = 0
    """The number of files whose indexes are in the manifest."""
    index_files: int = 0
    """The number of files whose indexes are in a separate file."""
    removed: int = 0
    """The number of files that no longer have indexes."""
    embedded_bytes: int = 0
    """The size of the indexes in the manifest."""
    units: tuple[FileIndexRewriteUnit, ...] = field(default=(), repr=False)
    """The executed units; after a conflict, they differ from the units of the caller's plan."""

    def count_io(self) -> StepIo:
        """Return the rows that were indexed, and the files."""
        return StepIo(
            rows_written=sum(file.row_count for unit in self.units for file in unit.files),
            files_read=self.files,
            files_written=self.index_files,
            bytes_read=sum(file.file_size for unit in self.units for file in unit.files),
            bytes_written=self.embedded_bytes,
        )

    def merge(self, later: "FileIndexRewriteResult") -> "FileIndexRewriteResult":
        """Combine the results of this and a later rewrite."""
        sums = {name: getattr(self, name) + getattr(later, name) for name in _COUNTS}
        snapshot_id = self.snapshot_id if later.snapshot_id is None else later.snapshot_id
        units = (*self.units, *later.units)
        return FileIndexRewriteResult(snapshot_id=snapshot_id, units=units, **sums)


_COUNTS = ("snapshots", "files", "embedded", "index_files", "removed", "embedded_bytes")


def plan(
    table: Table, request: RewriteFileIndexRequest, *, state: TableState | None = None
) -> FileIndexRewritePlan:
    """Find the files of the latest snapshot whose indexes differ from the table's options.

    Reads only the heads of index files.

    ``state`` is the table, if the caller has loaded it.
    """
    state = state or table.load()
    state.check_step(StepKind.COMPACT)
    schema = state.schema
    specs = _build_index_specs(schema)
    snapshot = state.snapshot
    if snapshot is None:
        return FileIndexRewritePlan(request=request, state=state)
    buckets = plan_live_buckets(state, schema, snapshot, request, with_indexed=True)
    buckets = buckets.take(np.flatnonzero(buckets.groups.buckets >= 0))
    reader = open_reader(state, schema, buckets)
    splits = _select_candidates(buckets, reader, specs).build_splits()
    files = [
        BucketFile(split.partition, split.bucket, file) for split in splits for file in split.files
    ]
    with ThreadPoolExecutor(_READER_THREADS) as pool:
        differences = list(pool.map(lambda file: _should_rewrite(reader, file, specs), files))
    selected = {
        file.file.file_name for file, differs in zip(files, differences, strict=True) if differs
    }
    retired = _read_retired_identities(table, snapshot, selected) if selected else frozenset()
    version = choose_bitmap_version(state.manifests, reader, snapshot)
    units = tuple(
        unit
        for split in splits
        for unit in _plan_units(reader, split, selected, retired, version=version)
    )
    return FileIndexRewritePlan(
        request=request,
        state=state,
        snapshot_id=snapshot.id,
        reader=reader,
        units=units,
        skipped_files=int(buckets.groups.lengths.sum()) - len(selected),
    )


def _select_candidates(
    buckets: LiveBuckets, reader: FileReader, specs: Sequence[IndexSpec]
) -> LiveBuckets:
    """Return only the files that have an index or should have one, without objects for files."""
    files = buckets.groups.files
    assert files.indexed is not None
    with_specs = [each for each in buckets.schema_ids if select_schema_specs(reader, each, specs)]
    return buckets.with_files(files.indexed | np.isin(files.schema_ids, with_specs))


def _read_retired_identities(
    table: Table, snapshot: Snapshot, names: set[str]
) -> frozenset[FileIdentity]:
    """Return the identities of the given files that have a DELETE entry in manifests."""
    manifests = table.stores.manifests.manifests(snapshot)
    entries = table.stores.manifests.entries(manifests, lambda m: m.num_deleted_files > 0)
    return frozenset(
        entry.identity
        for entry in entries
        if entry.kind is FileKind.DELETE and entry.file.file_name in names
    )


def _build_index_specs(schema: TableSchema) -> list[IndexSpec]:
    if schema.typed_options.get(DATA_EVOLUTION_ENABLED):
        raise UnsupportedError(
            "rewriting file indexes of tables with 'data-evolution.enabled' = true is not supported"
        )
    specs = parse_index_specs(schema.options)
    for spec in specs:
        spec.value_type(schema.fields)
    return specs


def _plan_units(
    reader: FileReader,
    split: BucketSplit,
    selected: set[str],
    retired: frozenset[FileIdentity],
    *,
    version: int,
) -> Iterator[FileIndexRewriteUnit]:
    """Yield the selected files of a bucket in units of limited size."""
    files, size = list[DataFileMeta](), 0

    def unit() -> FileIndexRewriteUnit:
        names = {file.file_name for file in files}
        retired_in_unit = frozenset(identity for identity in retired if identity[3] in names)
        return FileIndexRewriteUnit(
            partition=split.partition,
            partition_text=format_partition(split.partition, reader.schema),
            bucket=split.bucket,
            total_buckets=split.total_buckets,
            files=tuple(files),
            retired_identities=retired_in_unit,
            bitmap_version=version,
        )

    for file in (file for file in split.files if file.file_name in selected):
        if files and (len(files) >= _MAX_UNIT_FILES or size + file.file_size > _MAX_UNIT_BYTES):
            yield unit()
            files, size = [], 0
        files.append(file)
        size += file.file_size
    if files:
        yield unit()


def _should_rewrite(
    reader: FileReader, bucket_file: BucketFile, specs: Sequence[IndexSpec]
) -> bool:
    """Return whether the indexes of a file are missing, damaged or built with other options."""
    expected = {
        (spec.name, spec.index): spec
        for spec in select_schema_specs(reader, bucket_file.file.schema_id, specs)
    }
    fields = reader.schemas[bucket_file.file.schema_id].fields
    try:
        with open_indexes(reader.io, reader.path(bucket_file), bucket_file.file) as indexes:
            if indexes is None:
                return bool(
                    expected
                    or bucket_file.file.embedded_index
                    or _find_index_names(bucket_file.file)
                )
            actual = {
                (name, kind): blob
                for name, kinds in indexes.items()
                for kind, blob in kinds.items()
            }
            return actual.keys() != expected.keys() or not all(
                is_built_with(expected[key], blob, expected[key].value_type(fields))
                for key, blob in actual.items()
                if blob is not None
            )
    except CorruptFileError as error:
        logger.warning("%s; the index is rebuilt", error)
        return True


def select_schema_specs(
    reader: FileReader, schema_id: int, specs: Sequence[IndexSpec]
) -> list[IndexSpec]:
    """Return the indexes that files of a schema should have, with the column names of the schema.

    Matches columns by id. Skips columns that the files lack, or whose type in the files cannot be
    indexed.
    """
    ids = {field.name: field.id for field in reader.schema.fields}
    file_fields = reader.schemas[schema_id].fields
    names = {field.id: field.name for field in file_fields}
    file_specs = (
        replace(spec, column=names[ids[spec.column]]) for spec in specs if ids[spec.column] in names
    )
    return [spec for spec in file_specs if _is_indexable(spec, file_fields)]


def _is_indexable(spec: IndexSpec, fields: Sequence[Field]) -> bool:
    try:
        spec.value_type(fields)
    except InputError:
        return False
    return True


def run(reader: FileReader | None, unit: FileIndexRewriteUnit) -> bytes:
    """Build the indexes of a unit's files; return an encoded :class:`CommitMessage`.

    May run repeatedly.
    """
    assert reader is not None
    specs = parse_index_specs(reader.schema.options)
    entries = list[ManifestEntry]()
    with UncommittedPaths(reader.io) as created:
        bucket = PartitionBucket(unit.partition, unit.bucket)
        for old in build_entries(FileKind.DELETE, bucket, unit.total_buckets, unit.files):
            container = _build_container(reader, unit, old.file, specs)
            entries += [old, _store_index(reader, unit, old, container, created.paths)]
    return CommitMessage(entries=tuple(entries)).encode()


def _build_container(
    reader: FileReader, unit: FileIndexRewriteUnit, file: DataFileMeta, specs: Sequence[IndexSpec]
) -> bytes | None:
    """Build the indexes of a file; return None if it has no columns to index."""
    file_specs = select_schema_specs(reader, file.schema_id, specs)
    if not file_specs:
        return None
    bucket_file = BucketFile(unit.partition, unit.bucket, file)
    file_fields = reader.schemas[file.schema_id].fields
    version = read_bitmap_version(reader.io, reader.path(bucket_file), file) or unit.bitmap_version
    builder = FileIndexBuilder(set_default_bitmap_version(file_specs, version), file_fields)
    columns = [field for field in file_fields if field.name in builder.columns]
    # Indexes use positions in the file, so they include deleted rows.
    for batch in reader.read(bucket_file, columns):
        builder.add(pa.Table.from_batches([batch]))
    return builder.finish()


def _store_index(
    reader: FileReader,
    unit: FileIndexRewriteUnit,
    old: ManifestEntry,
    container: bytes | None,
    created: list[str],
) -> ManifestEntry:
    """Store the indexes of a file and return its ADD entry; add new paths to ``created``.

    The indexes are stored in the manifest or in a separate file, or nowhere if there are none. If
    this would restore a retired identity, the next of these places is used: none, manifest, file.
    """
    file = old.file
    other_files = tuple(name for name in file.extra_files if not name.endswith(INDEX_SUFFIX))

    def entry(extra: tuple[str, ...], embedded: bytes | None = None) -> ManifestEntry:
        new_file = replace(file, extra_files=extra, embedded_index=embedded)
        return replace(old, kind=FileKind.ADD, file=new_file)

    if container is None:
        unindexed = entry(other_files)
        if unindexed.identity not in unit.retired_identities:
            return unindexed
        container = encode_container([])
    if should_embed_index(container, reader.schema):
        embedding = entry(other_files, container)
        if embedding.identity not in unit.retired_identities:
            return embedding
    path = reader.path(BucketFile(unit.partition, unit.bucket, file))
    names = _find_index_names(file)
    name = next_index_name(names[-1]) if names else file.file_name + INDEX_SUFFIX
    while entry((*other_files, name)).identity in unit.retired_identities or not reader.io.create(
        sibling_path(path, name), container
    ):
        name = next_index_name(name)  # this name is retired, or its file exists
    created.append(sibling_path(path, name))
    return entry((*other_files, name))


def _find_index_names(file: DataFileMeta) -> list[str]:
    return [name for name in file.extra_files if name.endswith(INDEX_SUFFIX)]


def commit(
    table: Table, plan: FileIndexRewritePlan, messages: Sequence[CommitMessage]
) -> FileIndexRewriteResult:
    """Commit new indexes in one snapshot.

    Raises :class:`CommitConflictError`, and deletes the new files, if another commit changed the
    same files.
    """
    entries = tuple(entry for message in messages for entry in message.entries)
    if not plan or not entries:
        return FileIndexRewriteResult()
    changes = CommitChanges(kind=CommitKind.COMPACT, entries=entries)
    with discard_files_on_conflict(table, messages):
        snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return replace(_build_result(snapshot, messages), units=plan.units)


def _build_result(snapshot: Snapshot, messages: Sequence[CommitMessage]) -> FileIndexRewriteResult:
    added = [entry.file for message in messages for entry in message.added]
    embedded = [file for file in added if file.embedded_index is not None]
    with_index_file = [file for file in added if _find_index_names(file)]
    return FileIndexRewriteResult(
        snapshot_id=snapshot.id,
        snapshots=1,
        files=len(added),
        embedded=len(embedded),
        index_files=len(with_index_file),
        removed=len(added) - len(embedded) - len(with_index_file),
        embedded_bytes=sum(len(file.embedded_index or b"") for file in embedded),
    )


REWRITE_FILE_INDEX = Step(
    title="rewrite file indexes of",
    planner=plan,
    work=lambda _, plan: WorkUnits(shared=plan.reader, units=plan.units, bytes=plan.bytes),
    run=run,
    decode=CommitMessage.decode,
    commit=commit,
    discard=discard_messages,
    split=FileIndexRewritePlan.split,
    merge=FileIndexRewriteResult.merge,
)


@take_fields(RewriteFileIndexRequest)
def rewrite_file_index(
    table: Table,
    request: RewriteFileIndexRequest,
    executor: Executor | None,
    progress: Progress | None,
) -> FileIndexRewriteResult:
    """Build the file indexes that the table's options configure for existing data files.

    Commits each group of files in one snapshot, and no snapshot if there is nothing to do. After a
    conflict with another commit, the remaining work is planned again, at most three times; then
    :class:`CommitConflictError` is raised, and the groups that were committed remain.
    """
    return plan_and_run(REWRITE_FILE_INDEX, table, request, executor, progress=progress)


DECLARATION = declare_step(
    REWRITE_FILE_INDEX,
    RewriteFileIndexRequest,
    help="The table's options configure the indexes. Data files are not rewritten. Indexes that are "
    "no longer configured are removed.",
    examples=["/lake db.orders --dry-run"],
)
