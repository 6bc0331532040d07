"""Batch writes: reads the state that writers start from, and commits the files of writers.

See docs/format/commit.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_orch.errors import REFUSED_COMMIT_ERRORS, InputError
from paimon_orch.format.argument_checks import check_text
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import HASH_INDEX
from paimon_orch.format.manifest.live_files import BucketGroups, collect_live_files
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.options.core_options import COMMIT_FORCE_CREATE_SNAPSHOT, ROWKIND_FIELD
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.row.row_kind import RowKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.table.commit.commit_changes import CommitChanges, PartitionFilter
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.filter.partition_spec import PartitionSpec
from paimon_orch.table.scan.unseen_rows import Visibility, describe_unseen_rows_after_write
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.arrow_input import ArrowStreamExportable, to_arrow_table
from paimon_orch.table.write.bucket_routing import check_writable
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files
from paimon_orch.table.write.conform_rows import add_missing_columns, check_columns, convert_rows
from paimon_orch.table.write.dynamic_bucket import HashIndex, has_dynamic_buckets
from paimon_orch.table.write.next_sequences import PartitionSequences, compute_next_sequences
from paimon_orch.table.write.overwrite_upgrade import upgrade_after_overwrite
from paimon_orch.table.write.partition_overwrite import build_overwrite_filter
from paimon_orch.table.write.postpone_bucket import PostponeBuckets, has_postpone_buckets
from paimon_orch.table.write.table_write import write_rows
from paimon_orch.table.write.write_plan import WritePlan

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WriteBuilder:
    """Builds the writers of one batch write and commits their files.

    An append keeps the existing rows. An overwrite replaces the partitions that match
    ``partitions``, by default the partitions of the new rows.
    """

    state: TableState
    _: KW_ONLY
    is_overwrite: bool = False
    partitions: PartitionSpec | Sequence[PartitionSpec] | None = None
    commit_id: CommitId | None = None

    def __post_init__(self) -> None:
        """Raise :class:`InputError` for a commit id of another type."""
        given: Any = self.commit_id
        if given is not None and not isinstance(given, CommitId):
            raise InputError(
                f"commit_id must be a CommitId, such as CommitId('nightly', 20260131), not {given!r}"
            )

    def read_next_sequences(self) -> dict[PartitionBucket, int]:
        """Return the next sequence number of each bucket with files, or {} for an overwrite.

        See docs/format/data-files.md#order-and-sequence-numbers.
        """
        if self.is_overwrite:
            return {}
        return compute_next_sequences(self._read_buckets(self.state.snapshot))

    def find_committed(self) -> Snapshot | None:
        """Return the snapshot with this commit id, or None if it is not committed."""
        if self.commit_id is None:
            return None
        commit = self.state.new_commit(StepKind.WRITE_ROWS, self.commit_id.user)
        return commit.find_committed(self.commit_id.identifier)

    def report_commit(self, committed: Snapshot) -> None:
        """Repeat the reports of an earlier commit, which may have ended before them."""
        self.state.report_commit(StepKind.WRITE_ROWS, committed)

    def plan(self, row_kind: str | None = None, *, in_process: bool = False) -> WritePlan:
        """Read the next sequence numbers and the state of the buckets for the tasks of a write.

        ``row_kind`` names a text column with row kinds. ``in_process``: this process writes the
        rows, so the numbers of a partition can be read when its rows are known. Raises
        :class:`UnsupportedError` if the table's options or buckets do not allow writes.
        """
        return self._plan(row_kind, in_process=in_process, state=self.state)

    @repeat_if_expired
    def _plan(
        self, row_kind: str | None = None, *, in_process: bool, state: TableState | None
    ) -> WritePlan:
        builder = self if state is not None else replace(self, state=self.state.refresh())
        return builder._plan_once(row_kind, in_process=in_process)  # noqa: SLF001 - its own class

    def _plan_once(self, row_kind: str | None, *, in_process: bool) -> WritePlan:
        snapshot = self.state.snapshot
        factory = self.state.build_writer_factory(snapshot)
        self.state.check_step(StepKind.WRITE_ROWS, factory.schema)
        check_writable(factory.schema)
        # an overwrite ignores the sequence numbers and buckets of existing rows
        replaces_all = self.is_overwrite or snapshot is None
        first_sequence: Mapping[PartitionBucket, int] | None = None
        if in_process and not replaces_all:
            first_sequence = self._defer_sequences(factory.schema, snapshot)
        without_buckets = replaces_all or first_sequence is not None
        groups = self._read_buckets(None if without_buckets else snapshot)
        if first_sequence is None:
            first_sequence = compute_next_sequences(groups)
        has_postponed = has_postpone_buckets(factory.schema)
        return WritePlan(
            state=self.state,
            factory=factory,
            first_sequence=first_sequence,
            row_kind=row_kind,
            is_overwrite=self.is_overwrite,
            partitions=self.partitions,
            commit_id=self.commit_id,
            hashes=self._load_hash_index(factory.schema, snapshot, groups),
            postponed=PostponeBuckets.of(factory.schema, groups) if has_postponed else None,
        )

    def _defer_sequences(
        self, schema: TableSchema, snapshot: Snapshot | None
    ) -> PartitionSequences | None:
        """Return numbers to read later, if this saves requests and no bucket is needed before."""
        is_assigned = has_dynamic_buckets(schema) or has_postpone_buckets(schema)
        if snapshot is None or is_assigned or not schema.partition_keys:
            return None
        if not self.state.io.capabilities.has_slow_requests:
            return None
        return PartitionSequences(self.state)

    def _read_buckets(self, snapshot: Snapshot | None) -> BucketGroups:
        """Return the live files of a snapshot by bucket, without objects for files."""
        manifests = self.state.manifests
        if snapshot is None:
            return collect_live_files((), ()).group_by_bucket()
        return manifests.read_live_files(snapshot).group_by_bucket()

    def _load_hash_index(
        self, schema: TableSchema, snapshot: Snapshot | None, groups: BucketGroups
    ) -> HashIndex | None:
        """Return the hash indexes of a table with dynamic buckets, else None."""
        if not has_dynamic_buckets(schema):
            return None
        if self.is_overwrite:
            return HashIndex(self.state.reader(), {}, {})
        index_files = {
            entry.partition_bucket: entry
            for entry in self.state.manifests.read_index_entries(snapshot)
            if entry.index_type == HASH_INDEX
        }
        buckets = groups.list_buckets()
        numbers = [n for n, bucket in enumerate(buckets) if bucket not in index_files]
        without_index = groups.take(np.array(numbers, np.int64))
        files = without_index.files.take(without_index.rows)
        entries = iter(self.state.manifests.build_entries(files))
        unindexed = {
            buckets[number]: tuple(next(entries).file for _ in range(length))
            for number, length in zip(numbers, without_index.lengths.tolist(), strict=True)
        }
        return HashIndex(self.state.reader(), index_files, unindexed)

    def write(
        self,
        rows: ArrowStreamExportable,
        *,
        row_kind: str | None = None,
        kind: RowKind = RowKind.INSERT,
    ) -> Snapshot | None:
        """Write and commit rows in this process; return None if there is nothing to commit.

        ``row_kind`` names a text column with row kinds; without it, all rows have ``kind``.
        """
        if row_kind is not None:
            check_text("row_kind", row_kind, "op")
        planned = self.plan(in_process=True)
        committed = self.find_committed()
        if committed is not None:
            self.report_commit(committed)
            return committed
        planned, written = self._write_files(
            to_arrow_table(rows), row_kind, kind, planned, state=planned.state
        )
        try:
            snapshot = replace(self, state=planned.state or self.state).commit(
                written, planned.hashes
            )
        except REFUSED_COMMIT_ERRORS:
            # After these errors, it is certain that the files are not committed.
            discard_written_files(self.state.reader(), [written])
            raise
        self._warn_of_unseen_rows(written.entries, planned.schema)
        return snapshot

    @repeat_if_expired
    def _write_files(
        self,
        rows: pa.Table,
        row_kind: str | None,
        kind: RowKind,
        planned: WritePlan,
        *,
        state: TableState | None,
    ) -> tuple[WritePlan, CommitMessage]:
        """Write the rows with a plan, or with a newer one if ``state``, its snapshot, expired."""
        if state is None:
            planned = replace(self, state=self.state.refresh()).plan(in_process=True)
        if kind is RowKind.INSERT:
            row_kind = row_kind or planned.schema.typed_options.get(ROWKIND_FIELD)
        check_columns(rows.column_names, planned.schema, row_kind=row_kind)
        complete = add_missing_columns(rows, planned.schema)
        converted = convert_rows(complete, planned.schema, row_kind=row_kind, kind=kind)
        return planned, write_rows(planned, [converted])

    def commit(
        self, written: CommitMessage, hash_index: HashIndex | None = None
    ) -> Snapshot | None:
        """Commit new files as an APPEND, or as an OVERWRITE of the replaced partitions.

        ``hash_index`` has the hash indexes that were used to assign rows to dynamic buckets. If
        this ``commit_id`` is already committed, the files are deleted. Returns None if there is
        nothing to commit.
        """
        if len({entry.partition_bucket for entry in written.index}) < len(written.index):
            raise InputError(
                "two tasks assigned new keys of the same partition to dynamic buckets; all rows of "
                "a partition must be sent to one task"
            )
        if self.is_overwrite:
            changes = self._build_overwrite(written)
        else:
            changes = self._build_append(written, hash_index)
        if changes is None:
            return None
        user = None
        if self.commit_id is not None:
            user = self.commit_id.user
            changes = replace(changes, identifier=self.commit_id.identifier)
        commit = self.state.new_commit(StepKind.WRITE_ROWS, user)
        snapshot = commit.commit(changes)
        if commit.is_duplicate:
            discard_written_files(self.state.reader(), [written])
        return snapshot

    def _build_append(
        self, written: CommitMessage, hash_index: HashIndex | None
    ) -> CommitChanges | None:
        options = self.state.schema.typed_options
        if not written.entries and not options.get(COMMIT_FORCE_CREATE_SNAPSHOT):
            return None
        guards = () if hash_index is None else hash_index.guards(written.entries, written.index)
        return CommitChanges(
            kind=CommitKind.APPEND,
            entries=written.entries,
            changelog=written.changelog,
            index=written.index,
            hash_index_guards=guards,
        )

    def _build_overwrite(self, written: CommitMessage) -> CommitChanges | None:
        schema = self.state.schema
        partitions = (entry.partition for entry in written.entries)
        replaced = build_overwrite_filter(partitions, self.partitions, schema)
        if replaced is None:
            return None
        self._warn_of_replaced_unseen_rows(replaced, state=self.state)
        return CommitChanges(
            kind=CommitKind.OVERWRITE,
            entries=tuple(upgrade_after_overwrite(written.entries, schema)),
            index=written.index,
            overwrite=replaced,
        )

    def count_unseen_rows(
        self, entries: Sequence[ManifestEntry], schema: TableSchema | None = None
    ) -> int:
        """Count the new records that batch readers see only after a compaction."""
        schema = schema or self.state.schema
        added = upgrade_after_overwrite(entries, schema) if self.is_overwrite else entries
        return Visibility(schema).count(added)

    def _warn_of_unseen_rows(self, entries: Sequence[ManifestEntry], schema: TableSchema) -> None:
        unseen = self.count_unseen_rows(entries, schema)
        if unseen:
            logger.warning(
                "%s",
                describe_unseen_rows_after_write(self.state.label, unseen),
            )

    @repeat_if_expired
    def _warn_of_replaced_unseen_rows(
        self, replaced: PartitionFilter, *, state: TableState | None
    ) -> None:
        """Log a warning if an overwrite replaces records that scans of the table leave out."""
        latest = (state or self.state.refresh()).snapshot
        visibility = Visibility(self.state.schema)
        rows = visibility.rows_not_visible(self.state.manifests, latest, partitions=replaced)
        if latest is not None and rows:
            logger.warning(
                "the overwrite of %s replaces %s records that are not compacted yet and that batch "
                "reads leave out. If the new rows come from a read of this table, they lack these "
                "records: roll back to snapshot %d, and read with merge_level_0",
                self.state.identifier,
                f"{rows:,}",
                latest.id,
            )
