"""Checks the invariants of a table without changing it.

By default, reads the metadata and checks that all files exist. With ``deep``, also reads all data
files: rows, keys, sequence numbers, statistics, buckets and deletion vectors.

See docs/format/invariants.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import pairwise

from paimon_orch.errors import MissingFileError, NotFoundError, PaimonError, raise_if_temporary
from paimon_orch.format.display import Displayable
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.common.executor import Executor, InProcessExecutor
from paimon_orch.steps.inspection.check_data_files import FileChecker
from paimon_orch.steps.inspection.check_metadata import MetadataChecker
from paimon_orch.steps.inspection.findings import Finding, Findings
from paimon_orch.steps.inspection.stale_indexes import find_stale_indexes
from paimon_orch.table.cleanup.references import ReferenceReader
from paimon_orch.table.cleanup.retained_snapshots import (
    RetainedSnapshot,
    RetainedSnapshotKind,
    RetainedSnapshotStore,
)
from paimon_orch.table.metadata.held_metadata import HeldManifestReader
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import (
    EARLIEST,
    LATEST,
    SnapshotStore,
    describe_hidden_snapshots,
    hides_snapshots,
)
from paimon_orch.table.partition_directories import open_paths
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import build_table_state, load_newest_state

__all__ = ["CheckReport", "Finding", "check"]


@dataclass(frozen=True, slots=True)
class CheckReport(Displayable):
    """The result of a check. It is truthy if there are no findings."""

    findings: tuple[Finding, ...] = ()
    versions: int = 0
    data_files: int = 0
    stale_indexes: tuple[str, ...] = ()
    """Indexes of columns that do not cover the latest snapshot, which is not a violation."""

    def __bool__(self) -> bool:
        """Return whether the table has no findings."""
        return not self.findings

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {
            "versions": self.versions,
            "data_files": self.data_files,
            "findings": [{"rule": f.rule, "where": f.where, "text": f.text} for f in self.findings],
            "stale_indexes": list(self.stale_indexes),
        }


def check(table: Table, *, deep: bool = False, executor: Executor | None = None) -> CheckReport:
    """Check all snapshots, tags and changelogs of all branches of a table.

    The executor reads the manifests and lists the data files; with ``deep``, the caller's process
    reads the data files.

    Does not report unreferenced files; orphan file removal deletes them. Skips snapshots before the
    hint EARLIEST, whose expiration is running or was interrupted. Drops findings in snapshots that
    expire during the check.
    """
    findings = Findings()
    store = RetainedSnapshotStore(
        table.io, table.paths.root, lambda error: findings.add("unreadable", "", str(error))
    )
    checker = _TableChecker(
        table=table, findings=findings, deep=deep, executor=executor or InProcessExecutor()
    )
    try:
        versions = store.read([])
    except PaimonError as error:
        raise_if_temporary(error)
        findings.add("unreadable", table.paths.root, str(error))
        return CheckReport(tuple(findings.collected))
    complete = [version for version in versions.by_path.values() if version.is_complete]
    checker.read_ahead(complete)
    for paths in versions.branches:
        of_branch = [v for v in complete if v.branch == paths.branch]
        checker.add_branch(paths, of_branch, versions.newest_schemas[paths.branch])
    checker.check()
    return CheckReport(
        tuple(findings.collected),
        len(checker.versions),
        checker.data_files,
        stale_indexes=() if findings.collected else tuple(checker.find_stale_indexes()),
    )


@dataclass(slots=True, kw_only=True)
class _TableChecker:
    table: Table
    findings: Findings
    deep: bool
    executor: InitVar[Executor]
    versions: list[tuple[TablePaths, SchemaStore, RetainedSnapshot]] = field(default_factory=list)
    _metadata: MetadataChecker = field(init=False)
    _files: dict[str, FileChecker] = field(default_factory=dict)
    _checked_files: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self, executor: Executor) -> None:
        self._metadata = MetadataChecker(
            io=self.table.io,
            reader=ReferenceReader(
                HeldManifestReader(self.table.io, open_paths(self.table.io, self.table.paths.root))
            ),
            executor=executor,
            label=self.table.identifier,
        )

    @property
    def data_files(self) -> int:
        return len(self._checked_files) if self.deep else self._metadata.data_files

    def read_ahead(self, versions: Sequence[RetainedSnapshot]) -> None:
        """Read the manifest lists of versions, several at the same time."""
        self._metadata.reader.read_ahead(versions)

    def add_branch(
        self, paths: TablePaths, versions: Sequence[RetainedSnapshot], newest_schema: int
    ) -> None:
        """Read the lists of a branch's versions; snapshots are checked first, in their order."""
        snapshots = sorted(
            (v for v in versions if v.kind is RetainedSnapshotKind.SNAPSHOT),
            key=lambda v: v.snapshot.id,
        )
        self._check_gaps(paths, snapshots)
        self._check_latest_hint(paths, snapshots[-1].snapshot.id if snapshots else 0)
        schemas = SchemaStore(self.table.io, paths)
        if not snapshots:  # the others are checked with the newest schema
            self._check_schema(paths, schemas, newest_schema)
        previous: int | None = None
        for snapshot in snapshots:
            newest = newest_schema if snapshot is snapshots[-1] else None
            previous = self._metadata.add(snapshot, schemas, previous, newest_schema=newest)
            self.versions.append((paths, schemas, snapshot))
        for version in versions:
            if version.kind is not RetainedSnapshotKind.SNAPSHOT:
                self._metadata.add(version, schemas)
                self.versions.append((paths, schemas, version))

    def find_stale_indexes(self) -> Iterator[str]:
        """Yield a sentence for each stale index of the newest snapshot of the table's branch."""
        stores = self.table.stores.hold()
        newest: tuple[SchemaStore, Snapshot] | None = None
        for paths, schemas, version in self.versions:
            if (
                paths.branch == stores.paths.branch
                and version.kind is RetainedSnapshotKind.SNAPSHOT
            ):
                newest = schemas, version.snapshot
        if stores.snapshots.catalog is not None:  # not every catalog writes its newest snapshot
            yield from find_stale_indexes(load_newest_state(stores))
        elif newest is not None and newest[1].index_manifest is not None:
            schema = newest[0].latest()
            yield from find_stale_indexes(build_table_state(stores, schema, newest[1]))

    def check(self) -> None:
        """Check the versions of all branches, and add their findings."""
        for number, version_findings in enumerate(self._metadata.check()):
            paths, _, version = self.versions[number]
            earlier_findings = len(self.findings.collected)
            for finding in version_findings:
                self.findings.add(finding.rule, finding.where, finding.text)
            if self.deep:
                self._check_data_files(number)
            if len(self.findings.collected) > earlier_findings and self._has_expired(
                version, paths
            ):
                self.findings.discard_from(earlier_findings)

    def _check_schema(self, paths: TablePaths, schemas: SchemaStore, number: int) -> None:
        try:
            schemas.get(number)
        except PaimonError as error:
            raise_if_temporary(error)
            self.findings.add("unreadable", f"branch {paths.branch}", str(error))

    def _check_gaps(self, paths: TablePaths, snapshots: Sequence[RetainedSnapshot]) -> None:
        for before, after in pairwise(v.snapshot.id for v in snapshots):
            if after != before + 1:
                text = f"the snapshots {before + 1} to {after - 1} are missing"
                self.findings.add("gap", paths.snapshot_dir, text)

    def _check_latest_hint(self, paths: TablePaths, newest: int) -> None:
        """Check that the snapshot in the hint exists, unless a catalog names the newest one.

        Servers write the hint too, but not always that of the right branch, and readers ignore it.
        ``newest`` is the newest snapshot file that was found.
        """
        store = self.table.stores.get_branch_snapshots(paths.branch)
        hint = newest if store.catalog is not None else store.hint(LATEST) or newest
        if hint < newest and hides_snapshots(hint, store.ids()):
            text = describe_hidden_snapshots(hint, newest)
            self.findings.add("hidden-snapshots", paths.snapshot_dir, text)
        try:
            if store.catalog is not None or hint > newest:
                store.latest_id()
        except MissingFileError as error:
            self.findings.add("lost-snapshot", error.path, error.reason)
        except NotFoundError:  # the catalog does not have this branch, so no reader uses its hint
            pass

    def _check_data_files(self, number: int) -> None:
        contents = self._metadata.read_contents(number)
        if contents is None:
            return
        paths, schemas, _ = self.versions[number]
        if paths.branch not in self._files:
            self._files[paths.branch] = FileChecker(
                io=self.table.io,
                paths=open_paths(self.table.io, paths.root),
                schemas=schemas,
                findings=self.findings,
                checked_files=self._checked_files,
            )
        self._files[paths.branch].check(contents)

    def _has_expired(self, version: RetainedSnapshot, paths: TablePaths) -> bool:
        if not self.table.io.exists(version.path):
            return True
        earliest = SnapshotStore(self.table.io, paths).hint(EARLIEST) or 0
        expires = version.kind is RetainedSnapshotKind.SNAPSHOT and version.snapshot.id < earliest
        return expires and self.table.io.exists(f"{paths.snapshot_dir}/snapshot-{earliest}")
