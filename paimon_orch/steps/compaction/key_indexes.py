"""Builds the missing indexes of primary-key tables after a compaction.

An index file covers all compacted files of one level of a bucket, which several units may write, so
indexes are built and committed after the compaction. Readers scan files without an index.

See docs/format/commit.md#indexes-of-primary-key-tables.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paimon_orch.errors import CommitConflictError
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.uncommitted_files import UncommittedPaths
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.global_index.index_blocks import MAX_ROWS
from paimon_orch.format.global_index.sorted_column import can_be_indexed, sort_column
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.index_source import IndexSource, decode_index_source
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileSource
from paimon_orch.format.options.core_options import PK_BITMAP_INDEX_COLUMNS, PK_BTREE_INDEX_COLUMNS
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.paths import FileNameGenerator
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.format.types.data_types import AtomicType, Field
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.common.column_index_writer import NewIndexFile, write_column_index
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict, discard_messages
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.common.step import Step, StepOutcome, WorkUnits, run_step
from paimon_orch.steps.common.step_declaration import take_fields
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.conflict_detection import BucketGuard
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.partition_selection import open_reader, plan_live_buckets
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.commit_message import CommitMessage

logger = get_logger(__name__)

_MAX_ROWS = min(MAX_ROWS, 50_000_000)  # a column of one level is sorted in memory
_MAX_SNAPSHOT_UNITS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyIndex:
    """An index that the options of a table ask for."""

    type: str
    column: Field


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyIndexUnit:
    """The compacted files of one level of a bucket, and the indexes to build."""

    bucket: PartitionBucket
    level: int
    files: tuple[DataFileMeta, ...]
    """The files in the order of their names."""
    indexes: tuple[KeyIndex, ...]

    @property
    def source(self) -> IndexSource:
        """Return the files as the index manifest lists them."""
        return list_source(self.level, self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyIndexPlan:
    """The indexes to build. It is falsy if there are none."""

    request: PartitionRequest
    state: TableState
    reader: FileReader | None = None
    units: tuple[KeyIndexUnit, ...] = ()
    replaced: tuple[IndexManifestEntry, ...] = ()
    """Index files that readers ignore."""
    guards: tuple[BucketGuard, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyIndexResult(StepOutcome):
    """The result of building indexes."""

    snapshot_id: int | None = None
    index_files: int = 0

    def count_io(self) -> StepIo:
        """Return the index files that were written."""
        return StepIo(files_written=self.index_files)


def find_key_indexes(schema: TableSchema) -> list[KeyIndex]:
    """Return the indexes that the options ask for and that can be built."""
    if not schema.primary_keys:  # a stored option of an append table has no effect
        return []
    fields = {field.name: field for field in schema.fields}
    options = (("btree", PK_BTREE_INDEX_COLUMNS), ("bitmap", PK_BITMAP_INDEX_COLUMNS))
    indexes = [
        KeyIndex(type=kind, column=fields[name])
        for kind, option in options
        for name in schema.typed_options.get(option)
        if name in fields
    ]
    return [index for index in indexes if can_be_indexed(index.column.type)]


def plan(table: Table, request: PartitionRequest) -> KeyIndexPlan:
    """Find the levels of buckets without a valid index; reads only metadata."""
    state = table.load()
    schema, snapshot = state.schema, state.snapshot
    indexes = find_key_indexes(schema)
    if not indexes or snapshot is None:
        return KeyIndexPlan(request=request, state=state)
    state.check_step(StepKind.COMPACT)
    buckets = plan_live_buckets(state, schema, snapshot, request)
    above_level_0 = buckets.with_files(buckets.groups.files.levels > 0)
    splits = above_level_0.build_splits() if len(above_level_0) else []
    previous = _group_by_bucket(state.manifests.read_index_entries(snapshot))
    units, replaced = list[KeyIndexUnit](), list[IndexManifestEntry]()
    touched = list[BucketSplit]()
    for split in splits:
        entries = previous.get(split.partition_bucket, ())
        for level, files in group_by_level(split.files).items():
            missing, stale = _find_missing(level, files, indexes, entries)
            if missing and _is_small_enough(table, split, files):
                touched.append(split)
                replaced += stale
                units.append(
                    KeyIndexUnit(
                        bucket=split.partition_bucket, level=level, files=files, indexes=missing
                    )
                )
        if len(units) >= _MAX_SNAPSHOT_UNITS:
            break
    return KeyIndexPlan(
        request=request,
        state=state,
        reader=open_reader(state, schema, splits) if units else None,
        units=tuple(units),
        replaced=tuple(replaced),
        guards=tuple(
            BucketGuard.of(split.partition_bucket, split.files, split.vectors)
            for split in {split.partition_bucket: split for split in touched}.values()
        ),
    )


def _group_by_bucket(
    entries: Iterable[IndexManifestEntry],
) -> Mapping[PartitionBucket, list[IndexManifestEntry]]:
    groups = defaultdict[PartitionBucket, list[IndexManifestEntry]](list)
    for entry in entries:
        if entry.source_meta is not None:
            groups[entry.partition_bucket].append(entry)
    return groups


def group_by_level(files: Iterable[DataFileMeta]) -> dict[int, tuple[DataFileMeta, ...]]:
    """Return the compacted files of each level, in the order of their names."""
    levels = defaultdict[int, list[DataFileMeta]](list)
    for file in sorted(files, key=lambda file: file.file_name):
        if file.level > 0 and file.file_source == FileSource.COMPACT:
            levels[file.level].append(file)
    return {level: tuple(of_level) for level, of_level in levels.items()}


def _find_missing(
    level: int,
    files: Sequence[DataFileMeta],
    indexes: Iterable[KeyIndex],
    entries: Iterable[IndexManifestEntry],
) -> tuple[tuple[KeyIndex, ...], list[IndexManifestEntry]]:
    """Return the indexes to build for a level, and the index files that they replace."""
    source = list_source(level, files)
    candidates = [(entry, decode_index_source(entry)) for entry in entries]
    missing, replaced = list[KeyIndex](), list[IndexManifestEntry]()
    for index in indexes:
        of_index = [
            (entry, covered)
            for entry, covered in candidates
            if covered is not None
            and covered.level == level
            and entry.index_type == index.type
            and entry.global_index is not None
            and entry.global_index.index_field_id == index.column.id
        ]
        if [covered for _, covered in of_index] != [source]:
            missing.append(index)
            replaced += [entry for entry, _ in of_index]
    return tuple(missing), replaced


def list_source(level: int, files: Iterable[DataFileMeta]) -> IndexSource:
    """Return the files of a level, in the order of their names, as an index lists them."""
    return IndexSource(level=level, files=tuple((file.file_name, file.row_count) for file in files))


def _is_small_enough(table: Table, split: BucketSplit, files: Iterable[DataFileMeta]) -> bool:
    rows = sum(file.row_count for file in files)
    if rows > _MAX_ROWS:
        logger.warning(
            "%s: bucket %d has %d rows in one level, too many to build an index in memory; Java "
            "Paimon builds it when it compacts the bucket",
            table.identifier,
            split.bucket,
            rows,
        )
    return 0 < rows <= _MAX_ROWS


def _collect_work(_table: Table, plan: KeyIndexPlan) -> WorkUnits[FileReader | None, KeyIndexUnit]:
    size = sum(file.file_size for unit in plan.units for file in unit.files)
    return WorkUnits(shared=plan.reader, units=plan.units, bytes=size)


def run(reader: FileReader | None, unit: KeyIndexUnit) -> bytes:
    """Build the indexes of a unit; return an encoded :class:`CommitMessage`."""
    assert reader is not None
    names, written = FileNameGenerator(), list[IndexManifestEntry]()
    with UncommittedPaths(reader.io) as created:
        for index in unit.indexes:
            written.append(_build_index(reader, unit, index, names.next("index-"), created.paths))
    return CommitMessage(index=tuple(written)).encode()


def _build_index(
    reader: FileReader, unit: KeyIndexUnit, index: KeyIndex, name: str, created: list[str]
) -> IndexManifestEntry:
    """Write an index file; add its path to ``created``."""
    data_type = index.column.type
    assert isinstance(data_type, AtomicType)
    # Positions count the rows of all files in their order, including deleted rows.
    chunks = [
        batch.column(0)
        for file in unit.files
        for batch in reader.read(BucketFile(*unit.bucket, file), [index.column])
    ]
    source = unit.source
    column = sort_column(chunks, data_type)
    assert column.row_count == source.row_count
    file = NewIndexFile(
        bucket=unit.bucket,
        index_type=index.type,
        field_id=index.column.id,
        name=name,
        source=source.to_additional_fields(),
    )
    return write_column_index(reader, file, column, created)


def commit(table: Table, plan: KeyIndexPlan, messages: Sequence[CommitMessage]) -> KeyIndexResult:
    """Commit new index files in one snapshot."""
    added = [entry for message in messages for entry in message.index]
    if not added:
        return KeyIndexResult()
    changes = CommitChanges(
        kind=CommitKind.COMPACT,
        index=(*(entry.deleted() for entry in plan.replaced), *added),
        guards=plan.guards,
    )
    with discard_files_on_conflict(table, messages):
        snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return KeyIndexResult(snapshot_id=snapshot.id, index_files=len(added))


BUILD_KEY_INDEXES = Step(
    title="build indexes of",
    planner=plan,
    work=_collect_work,
    run=run,
    decode=CommitMessage.decode,
    commit=commit,
    discard=discard_messages,
)


@take_fields(PartitionRequest)
def build_key_indexes(
    table: Table, request: PartitionRequest, executor: Executor | None, progress: Progress | None
) -> KeyIndexResult:
    """Build the missing indexes of columns of a primary-key table, in one snapshot.

    A compaction does this, too. After repeated conflicts with other commits, logs a warning: rows
    are correct without indexes, and the next compaction builds them.
    """
    planned = BUILD_KEY_INDEXES.plan(table, request)
    if not planned:
        return KeyIndexResult()
    try:
        return run_step(BUILD_KEY_INDEXES, table, planned, executor, progress=progress)
    except CommitConflictError as error:
        logger.warning(
            "%s: indexes were not built, the next compaction builds them: %s",
            table.identifier,
            error,
        )
        return KeyIndexResult()
