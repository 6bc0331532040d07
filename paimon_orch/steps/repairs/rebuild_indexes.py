"""Writes index files again: hash indexes from keys, and deletion vectors without stale ones.

See docs/format/dynamic-buckets.md#hash-index and docs/format/deletion-vectors.md.
"""

from dataclasses import dataclass, field

from paimon_orch.format.manifest.index_manifest import (
    DELETION_VECTORS_INDEX,
    HASH_INDEX,
    DeletionVectorRange,
    IndexManifestEntry,
)
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict
from paimon_orch.steps.common.step import EmptyRequest, StepOutcome, build_metadata_step
from paimon_orch.steps.inspection.health import read_live_buckets
from paimon_orch.steps.inspection.index_damage import find_index_damage, find_stale_vectors
from paimon_orch.steps.repairs.remove_unexisting_files import rewrite_deletion_vectors
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.conflict_detection import HashIndexGuard
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.partition_selection import open_reader
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.dynamic_bucket import HashIndex, write_hash_index


@dataclass(frozen=True, slots=True, kw_only=True)
class HashIndexPlan:
    """The dynamic buckets without a hash index. The plan is falsy if there are none."""

    request: EmptyRequest = field(default_factory=EmptyRequest)
    state: TableState = field(repr=False, compare=False)
    snapshot: Snapshot | None = None
    buckets: tuple[BucketSplit, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any bucket lacks its index."""
        return bool(self.buckets)

    @property
    def bytes(self) -> int:
        """Return the size of the files whose keys are read."""
        return sum(file.file_size for split in self.buckets for file in split.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleVectorsPlan:
    """The deletion vectors of files that are not live. The plan is falsy if there are none."""

    request: EmptyRequest = field(default_factory=EmptyRequest)
    state: TableState = field(repr=False, compare=False)
    snapshot: Snapshot | None = None
    stale: tuple[DeletionVectorRange, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any deletion vector is stale."""
        return bool(self.stale)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRepairResult(StepOutcome):
    """The new snapshot, or None if there was nothing to do."""

    plan: HashIndexPlan | StaleVectorsPlan
    snapshot: Snapshot | None = None


def plan_hash_indexes(table: Table, request: EmptyRequest) -> HashIndexPlan:
    """Find the dynamic buckets of the latest snapshot whose hash index is missing."""
    state = table.load()
    snapshot, stored = state.snapshot, state.hold()
    if snapshot is None:
        return HashIndexPlan(request=request, state=state)
    live = read_live_buckets(stored, snapshot)
    buckets = find_index_damage(stored, snapshot, live).unindexed_buckets
    if len(buckets):
        state.check_step(StepKind.COMPACT)
    splits = live.build_splits(buckets) if len(buckets) else []
    return HashIndexPlan(request=request, state=state, snapshot=snapshot, buckets=tuple(splits))


def commit_hash_indexes(table: Table, plan: HashIndexPlan) -> IndexRepairResult:
    """Read the keys of the buckets, and commit their hash indexes in one snapshot."""
    if not plan or plan.snapshot is None:
        return IndexRepairResult(plan=plan)
    reader = open_reader(plan.state, plan.state.schema, plan.buckets)
    index = HashIndex(reader, {}, {s.partition_bucket: s.files for s in plan.buckets})
    entries: list[IndexManifestEntry] = []
    for bucket in index.unindexed_files:
        write_hash_index(reader, bucket, index.read_keys(bucket), entries)
    # The manifest may name a file that does not exist.
    listed = {
        entry.partition_bucket: entry.file_name
        for entry in plan.state.manifests.read_index_entries(plan.snapshot)
        if entry.index_type == HASH_INDEX
    }
    changes = CommitChanges(
        kind=CommitKind.COMPACT,
        index=tuple(entries),
        hash_index_guards=tuple(
            HashIndexGuard(entry.partition_bucket, listed.get(entry.partition_bucket))
            for entry in entries
        ),
        expected_latest=plan.snapshot.id,
    )
    with discard_files_on_conflict(table, [CommitMessage(index=changes.index)]):
        snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return IndexRepairResult(plan=plan, snapshot=snapshot)


def plan_stale_vectors(table: Table, request: EmptyRequest) -> StaleVectorsPlan:
    """Find the deletion vectors of the latest snapshot whose data file is not live."""
    state = table.load()
    snapshot, stored = state.snapshot, state.hold()
    if snapshot is None:
        return StaleVectorsPlan(request=request, state=state)
    entries = stored.manifests.read_index_entries(snapshot)
    vectors = [entry for entry in entries if entry.index_type == DELETION_VECTORS_INDEX]
    stale = find_stale_vectors(vectors, read_live_buckets(stored, snapshot))
    if stale:
        state.check_step(StepKind.COMPACT)
    return StaleVectorsPlan(request=request, state=state, snapshot=snapshot, stale=stale)


def commit_stale_vectors(table: Table, plan: StaleVectorsPlan) -> IndexRepairResult:
    """Commit the index files of the buckets without the stale deletion vectors."""
    if not plan or plan.snapshot is None:
        return IndexRepairResult(plan=plan)
    entries = tuple(rewrite_deletion_vectors(plan.state, {item.data_file for item in plan.stale}))
    changes = CommitChanges(
        kind=CommitKind.COMPACT, index=entries, expected_latest=plan.snapshot.id
    )
    with discard_files_on_conflict(table, [CommitMessage(index=entries)]):
        snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return IndexRepairResult(plan=plan, snapshot=snapshot)


REBUILD_HASH_INDEXES = build_metadata_step(
    "rebuild hash indexes of", plan_hash_indexes, commit_hash_indexes, max_attempts=1
)
DROP_STALE_VECTORS = build_metadata_step(
    "drop stale deletion vectors of", plan_stale_vectors, commit_stale_vectors, max_attempts=1
)
