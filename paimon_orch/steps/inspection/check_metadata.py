"""Checks the metadata of versions: files exist, and counts are consistent.

See docs/format/invariants.md.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paimon_orch.errors import MissingFileError, PaimonError
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import (
    DELETION_VECTORS_INDEX,
    HASH_INDEX,
    DeletionVectorRange,
    IndexManifestEntry,
)
from paimon_orch.format.manifest.live_entries import filter_live_entries
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.paths import POSTPONE_BUCKET, TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.merge.tree.levels import build_bucket_runs
from paimon_orch.steps.inspection.findings import Findings
from paimon_orch.storage import FileIO
from paimon_orch.table.cleanup.references import (
    ReferenceReader,
    RetainedSnapshot,
    RetainedSnapshotKind,
)
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.schema_store import SchemaStore

_HASH_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotContents:
    """The live files, index files and delta of one version."""

    version: RetainedSnapshot
    schema: TableSchema
    base: tuple[ManifestEntry, ...]
    delta: tuple[ManifestEntry, ...]
    entries: tuple[ManifestEntry, ...]
    index: tuple[IndexManifestEntry, ...]

    @property
    def identities(self) -> set[tuple[object, ...]]:
        """Return the identities of the live files."""
        return {entry.identity for entry in self.entries}


@dataclass(slots=True, kw_only=True)
class VersionChecker:
    """Checks the metadata of versions; shared manifests and directories are read once."""

    io: FileIO
    reader: ReferenceReader
    findings: Findings
    _manifests: dict[str, list[ManifestEntry]] = field(default_factory=dict)
    _listed: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def check(self, version: RetainedSnapshot, schemas: SchemaStore) -> SnapshotContents | None:
        """Check a version; return None if it is unreadable or a changelog."""
        snapshot = version.snapshot
        if version.kind is not RetainedSnapshotKind.TAG and version.name != str(snapshot.id):
            self.findings.add("id", version.path, f"contains snapshot {snapshot.id}")
        try:
            schema = schemas.get(snapshot.schema_id)
            lists = self._read_base_and_delta(version)
            changelog = self._read_changelog_entries(version)
            index = self.reader.index(version)
        except PaimonError as error:
            self.findings.add("unreadable", version, str(error))
            return None
        self._check_changelog(version, changelog, schema)
        if version.kind is RetainedSnapshotKind.CHANGELOG:
            added = [entry for entry in lists[1] if entry.kind is FileKind.ADD]
            self._check_files(version, added, schema)
            return None
        base, delta = map(tuple, lists)
        live = tuple(filter_live_entries([*base, *delta]))
        state = SnapshotContents(
            version=version, schema=schema, base=base, delta=delta, entries=live, index=index
        )
        self._check_delta(state)
        self._check_record_counts(state)
        self._check_files(version, live, schema)
        self._check_buckets(state)
        self._check_index(state)
        self._check_statistics(version)
        return state

    def check_successor(self, previous: SnapshotContents | None, state: SnapshotContents) -> None:
        """Check a snapshot against the previous snapshot."""
        if previous is None or previous.version.snapshot.id + 1 != state.version.snapshot.id:
            return
        before, after = previous.version.snapshot, state.version.snapshot
        if after.total_record_count != before.total_record_count + after.delta_record_count:
            self.findings.add(
                "record-count",
                state.version,
                f"totalRecordCount of snapshot {after.id} is {after.total_record_count}, "
                f"but the previous snapshot has {before.total_record_count} rows "
                f"and the delta {after.delta_record_count}",
            )
        if {entry.identity for entry in filter_live_entries(state.base)} != previous.identities:
            self.findings.add(
                "base",
                state.version,
                f"the base manifests of snapshot {after.id} do not have the files "
                f"of snapshot {before.id}",
            )

    def _read_base_and_delta(
        self, version: RetainedSnapshot
    ) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
        """Return the base entries and the delta entries."""
        if not version.state_lists:
            return [], []
        delta = self.reader.delta(version)
        state = self.reader.state(version)
        return self._read_entries(state[: len(state) - len(delta)]), self._read_entries(delta)

    def _read_changelog_entries(self, version: RetainedSnapshot) -> list[ManifestEntry]:
        """Return the entries of the changelog, or an empty list if it has expired."""
        try:
            return self._read_entries(self.reader.changelog(version))
        except MissingFileError:
            if version.keeps_changelog:
                raise
            return []

    def _read_entries(self, metas: Iterable[ManifestFileMeta]) -> list[ManifestEntry]:
        metas = list(metas)
        for meta in metas:
            if meta.file_name not in self._manifests:
                self._manifests[meta.file_name] = self.reader.manifests.open(meta).entries()
        return [entry for meta in metas for entry in self._manifests[meta.file_name]]

    def _check_changelog(
        self, version: RetainedSnapshot, changelog: list[ManifestEntry], schema: TableSchema
    ) -> None:
        snapshot = version.snapshot
        if not version.keeps_changelog and not changelog:
            return
        rows = sum(entry.file.row_count for entry in changelog if entry.kind is FileKind.ADD)
        if (snapshot.changelog_record_count or 0) != rows:
            self.findings.add(
                "record-count",
                version,
                f"changelogRecordCount is {snapshot.changelog_record_count}, "
                f"but the changelog files have {rows} rows",
            )
        if version.keeps_changelog:
            self._check_files(version, changelog, schema)

    def _check_delta(self, state: SnapshotContents) -> None:
        """Check that the delta deletes only live files and adds no live file."""
        live = {entry.identity for entry in filter_live_entries(state.base)}
        for entry in state.delta:
            name = entry.file.file_name
            if entry.kind is FileKind.DELETE:
                if entry.identity not in live:
                    self.findings.add("delete", state.version, f"deletes {name}, which is not live")
                live.discard(entry.identity)
            elif entry.identity in live:
                self.findings.add("add", state.version, f"adds {name}, which is already live")
            else:
                live.add(entry.identity)
        names = Counter(entry.file.file_name for entry in state.entries)
        for name, count in names.items():
            if count > 1:
                self.findings.add("add", state.version, f"{name} is live {count} times")

    def _check_record_counts(self, state: SnapshotContents) -> None:
        snapshot = state.version.snapshot
        total = sum(entry.file.row_count for entry in state.entries)
        added = sum(e.file.row_count for e in state.delta if e.kind is FileKind.ADD)
        deleted = sum(e.file.row_count for e in state.delta if e.kind is FileKind.DELETE)
        counts = (
            ("totalRecordCount", snapshot.total_record_count, total),
            ("deltaRecordCount", snapshot.delta_record_count, added - deleted),
        )
        for name, expected, actual in counts:
            if expected != actual:
                self.findings.add(
                    "record-count",
                    state.version,
                    f"{name} is {expected}, but the files have {actual} rows",
                )
        if snapshot.commit_kind is CommitKind.COMPACT and added > deleted:
            self.findings.add(
                "compaction", state.version, f"a compaction wrote {added} rows for {deleted} rows"
            )

    def _check_files(
        self, version: RetainedSnapshot, entries: Iterable[ManifestEntry], schema: TableSchema
    ) -> None:
        paths = TablePaths(self.reader.manifests.paths.root)
        for entry in entries:
            try:
                path = paths.data_file(schema, entry.partition, entry.bucket, entry.file)
            except PaimonError as error:
                self.findings.add("path", version, str(error))
                continue
            self._check_file_size(version, path, entry.file.file_size)
            for extra in entry.file.extra_files:
                self._check_file_size(version, f"{path.rpartition('/')[0]}/{extra}", None)

    def _check_file_size(self, version: RetainedSnapshot, path: str, size: int | None) -> None:
        directory, _, name = path.rpartition("/")
        if directory not in self._listed:
            try:
                self._listed[directory] = {i.name: i.size for i in self.io.list_dir(directory)}
            except PaimonError as error:
                self.findings.add("path", version, str(error))
                self._listed[directory] = {}
        actual = self._listed[directory].get(name)
        if actual is None:  # the file may have been written after the listing
            try:
                actual = self.io.size(path)
            except (OSError, PaimonError):
                actual = None
        if actual is None:
            self.findings.add("missing-file", version, f"{path} does not exist")
        elif size is not None and actual != size:
            self.findings.add(
                "file-size", version, f"{path} has {actual} bytes, but its metadata has {size}"
            )

    def _check_buckets(self, state: SnapshotContents) -> None:
        schema = state.schema
        groups: dict[PartitionBucket, list[ManifestEntry]] = {}
        for entry in state.entries:
            groups.setdefault(entry.partition_bucket, []).append(entry)
        for (partition, bucket), entries in groups.items():
            where = f"{state.version}, {format_partition(partition, schema)} bucket {bucket}"
            total = entries[0].total_buckets
            if 0 < total <= bucket:
                self.findings.add("bucket", where, f"the partition has only {total} buckets")
            if schema.primary_keys and bucket != POSTPONE_BUCKET:
                try:
                    build_bucket_runs([entry.file for entry in entries], schema)
                except PaimonError as error:
                    self.findings.add("sorted-run", where, str(error))
        self._check_bucket_counts(state)

    def _check_bucket_counts(self, state: SnapshotContents) -> None:
        counts: dict[bytes, set[int]] = {}
        for entry in state.entries:
            if entry.bucket != POSTPONE_BUCKET:
                counts.setdefault(entry.partition, set()).add(entry.total_buckets)
        for partition, totals in counts.items():
            if len(totals) > 1:
                numbers = " and ".join(map(str, sorted(totals)))
                text = f"its files have different numbers of buckets: {numbers}"
                where = f"{state.version}, {format_partition(partition, state.schema) or 'table'}"
                self.findings.add("bucket", where, text)

    def _check_index(self, state: SnapshotContents) -> None:
        paths = TablePaths(self.reader.manifests.paths.root)
        for item in state.index:
            path = paths.index_file(state.schema, item)
            self._check_file_size(state.version, path, item.file_size)
            where = f"{state.version}, {item.file_name}"
            if item.index_type == HASH_INDEX and item.file_size != _HASH_BYTES * item.row_count:
                text = f"a file of {item.file_size} bytes cannot contain {item.row_count} hashes"
                self.findings.add("index", where, text)
        self._check_vector_ranges(state)

    def _check_vector_ranges(self, state: SnapshotContents) -> None:
        files = {(e.partition, e.bucket, e.file.file_name): e.file for e in state.entries}
        names: set[str] = set()
        for item in state.index:
            if item.index_type != DELETION_VECTORS_INDEX:
                continue
            where, ranges = f"{state.version}, {item.file_name}", item.ranges or ()
            if item.row_count != len(ranges):
                text = f"has {len(ranges)} deletion vectors, but its metadata has {item.row_count}"
                self.findings.add("index", where, text)
            for entry in ranges:
                name = entry.data_file
                self._check_cardinality(
                    where, entry, files.get((item.partition, item.bucket, name))
                )
                if name in names:
                    self.findings.add("vector", where, f"{name} has two deletion vectors")
                names.add(name)

    def _check_cardinality(
        self, where: str, entry: DeletionVectorRange, file: DataFileMeta | None
    ) -> None:
        name, deleted = entry.data_file, entry.cardinality
        if file is None:
            text = f"{name} has a deletion vector but is not live in the bucket"
            self.findings.add("vector", where, text)
        elif deleted is not None and not 0 < deleted <= file.row_count:
            text = f"{name} has {file.row_count} rows, but its metadata has {deleted} deleted rows"
            self.findings.add("vector", where, text)

    def _check_statistics(self, version: RetainedSnapshot) -> None:
        if version.statistics is None:
            return
        path = f"{self.reader.manifests.paths.root}/statistics/{version.statistics}"
        try:
            json.loads(self.io.read_bytes(path))
        except (OSError, ValueError, RecursionError, PaimonError) as error:
            self.findings.add("statistics", version, f"{path} cannot be read: {error}")
