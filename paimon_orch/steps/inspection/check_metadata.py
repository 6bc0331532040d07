"""What the metadata of a version promises: its files are there, and its figures agree.

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
    IndexManifestEntry,
)
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry, filter_live_entries
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
    """The live files and index files of one version, and what its delta changed."""

    version: RetainedSnapshot
    schema: TableSchema
    base: tuple[ManifestEntry, ...]
    delta: tuple[ManifestEntry, ...]
    entries: tuple[ManifestEntry, ...]
    index: tuple[IndexManifestEntry, ...]

    @property
    def identities(self) -> set[tuple[object, ...]]:
        """Return what tells the live files apart."""
        return {entry.identity for entry in self.entries}


@dataclass(slots=True, kw_only=True)
class VersionChecker:
    """Checks versions one after the other; what they share is read once."""

    io: FileIO
    reader: ReferenceReader
    findings: Findings
    _manifests: dict[str, list[ManifestEntry]] = field(default_factory=dict)
    _listed: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def version(self, version: RetainedSnapshot, schemas: SchemaStore) -> SnapshotContents | None:
        """Check one version by itself; None if it cannot be read, or has no rows of its own."""
        snapshot = version.snapshot
        if version.kind is not RetainedSnapshotKind.TAG and version.name != str(snapshot.id):
            self.findings.add("id", version.path, f"holds the snapshot {snapshot.id}")
        try:
            schema = schemas.get(snapshot.schema_id)
            lists = self._lists(version)
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
        """Check a snapshot against the one before it."""
        if previous is None or previous.version.snapshot.id + 1 != state.version.snapshot.id:
            return
        one, two = previous.version.snapshot, state.version.snapshot
        if two.total_record_count != one.total_record_count + two.delta_record_count:
            self.findings.add(
                "record-count",
                state.version,
                f"totalRecordCount of snapshot {two.id} is {two.total_record_count}, before it were "
                f"{one.total_record_count} rows and the delta has {two.delta_record_count}",
            )
        if {entry.identity for entry in filter_live_entries(state.base)} != previous.identities:
            self.findings.add(
                "base",
                state.version,
                f"the base manifests of snapshot {two.id} do not hold the files of snapshot {one.id}",
            )

    def _lists(self, version: RetainedSnapshot) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
        """Return the entries of the base and of the delta."""
        if not version.state_lists:
            return [], []
        delta = self.reader.delta(version)
        state = self.reader.state(version)
        return self._entries(state[: len(state) - len(delta)]), self._entries(delta)

    def _read_changelog_entries(self, version: RetainedSnapshot) -> list[ManifestEntry]:
        """Return the changelog's entries, none where expiration may have taken them."""
        try:
            return self._entries(self.reader.changelog(version))
        except MissingFileError:
            if version.keeps_changelog:
                raise
            return []

    def _entries(self, metas: Iterable[ManifestFileMeta]) -> list[ManifestEntry]:
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
                f"changelogRecordCount is {snapshot.changelog_record_count}, the changelog files have {rows} rows",
            )
        if version.keeps_changelog:
            self._check_files(version, changelog, schema)

    def _check_delta(self, state: SnapshotContents) -> None:
        """Check that a delta deletes what is live, and adds nothing twice."""
        live = {entry.identity for entry in filter_live_entries(state.base)}
        for entry in state.delta:
            name = entry.file.file_name
            if entry.kind is FileKind.DELETE:
                if entry.identity not in live:
                    self.findings.add("delete", state.version, f"deletes {name}, which is not live")
                live.discard(entry.identity)
            elif entry.identity in live:
                self.findings.add("add", state.version, f"adds {name} a second time")
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
        figures = (
            ("totalRecordCount", snapshot.total_record_count, total),
            ("deltaRecordCount", snapshot.delta_record_count, added - deleted),
        )
        for name, said, found in figures:
            if said != found:
                self.findings.add(
                    "record-count", state.version, f"{name} is {said}, the files have {found} rows"
                )
        if snapshot.commit_kind is CommitKind.COMPACT and added > deleted:
            self.findings.add(
                "compaction", state.version, f"a compaction made {added} rows of {deleted}"
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
        found = self._listed[directory].get(name)
        if found is None:  # or made since its directory was listed
            try:
                found = self.io.size(path)
            except (OSError, PaimonError):
                found = None
        if found is None:
            self.findings.add("missing-file", version, f"{path} does not exist")
        elif size is not None and found != size:
            self.findings.add(
                "file-size", version, f"{path} has {found} bytes, the metadata says {size}"
            )

    def _check_buckets(self, state: SnapshotContents) -> None:
        schema = state.schema
        groups: dict[PartitionBucket, list[ManifestEntry]] = {}
        counts: dict[bytes, set[int]] = {}
        for entry in state.entries:
            groups.setdefault(entry.partition_bucket, []).append(entry)
            if entry.bucket != POSTPONE_BUCKET:
                counts.setdefault(entry.partition, set()).add(entry.total_buckets)
        for (partition, bucket), entries in groups.items():
            where = f"{state.version}, {format_partition(partition, schema)} bucket {bucket}"
            total = entries[0].total_buckets
            if 0 < total <= bucket:
                self.findings.add("bucket", where, f"there are only {total} buckets")
            if schema.primary_keys and bucket != POSTPONE_BUCKET:
                try:
                    build_bucket_runs([entry.file for entry in entries], schema)
                except PaimonError as error:
                    self.findings.add("sorted-run", where, str(error))
        for partition, totals in counts.items():
            if len(totals) > 1:
                text = f"its files are of {' and '.join(map(str, sorted(totals)))} buckets"
                where = f"{state.version}, {format_partition(partition, schema) or 'table'}"
                self.findings.add("bucket", where, text)

    def _check_index(self, state: SnapshotContents) -> None:
        paths = TablePaths(self.reader.manifests.paths.root)
        files = {(e.partition, e.bucket, e.file.file_name): e.file for e in state.entries}
        seen: set[str] = set()
        for item in state.index:
            path = paths.index_file(
                state.schema,
                item.partition,
                bucket=item.bucket,
                name=item.file_name,
                external=item.external_path,
            )
            self._check_file_size(state.version, path, item.file_size)
            where = f"{state.version}, {item.file_name}"
            if item.index_type == HASH_INDEX and item.file_size != _HASH_BYTES * item.row_count:
                self.findings.add("index", where, f"{item.row_count} hashes do not fill it")
            if item.index_type != DELETION_VECTORS_INDEX:
                continue
            if item.row_count != len(item.ranges or ()):
                self.findings.add("index", where, f"has no {item.row_count} vectors")
            for entry in item.ranges or ():
                file = files.get((item.partition, item.bucket, entry.data_file))
                if file is None:
                    self.findings.add(
                        "vector", where, f"{entry.data_file} has a vector and is not live there"
                    )
                elif entry.cardinality is not None and not (
                    0 < entry.cardinality <= file.row_count
                ):
                    self.findings.add(
                        "vector",
                        where,
                        f"{entry.data_file} has {file.row_count} rows, {entry.cardinality} are said to be deleted",
                    )
                if entry.data_file in seen:
                    self.findings.add("vector", where, f"{entry.data_file} has two vectors")
                seen.add(entry.data_file)

    def _check_statistics(self, version: RetainedSnapshot) -> None:
        if version.statistics is None:
            return
        path = f"{self.reader.manifests.paths.root}/statistics/{version.statistics}"
        try:
            json.loads(self.io.read_bytes(path))
        except (OSError, ValueError, RecursionError, PaimonError) as error:
            self.findings.add("statistics", version, f"{path} cannot be read: {error}")
