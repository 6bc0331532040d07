"""Checking a table: every invariant that can be read off it; nothing is changed.

Without ``deep`` metadata is read, and files are looked for. With it every data file is read as well: rows, keys,
sequence numbers, statistics, buckets, vectors.

See docs/format/invariants.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from paimon_orch.errors import MissingFileError, PaimonError
from paimon_orch.format.paths import TablePaths
from paimon_orch.steps.inspection.check_data_files import FileChecker
from paimon_orch.steps.inspection.check_metadata import SnapshotContents, VersionChecker
from paimon_orch.steps.inspection.findings import Finding, Findings
from paimon_orch.table.cleanup.references import (
    ReferenceReader,
    RetainedSnapshot,
    RetainedSnapshotKind,
    RetainedSnapshotStore,
)
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import EARLIEST, SnapshotStore
from paimon_orch.table.table import Table

__all__ = ["CheckReport", "Finding", "check"]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found; it is true when that is nothing."""

    findings: tuple[Finding, ...] = ()
    versions: int = 0
    data_files: int = 0

    def __bool__(self) -> bool:
        """Tell whether the table is sound."""
        return not self.findings

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {
            "versions": self.versions,
            "data_files": self.data_files,
            "findings": [{"rule": f.rule, "where": f.where, "text": f.text} for f in self.findings],
        }


def check(table: Table, *, deep: bool = False) -> CheckReport:
    """Check all snapshots, tags and changelogs of all branches of a table.

    Files that nothing refers to are no finding: orphan cleanup removes them. Snapshots below the hint EARLIEST are being
    expired, or were when a process was killed, and are left out; so is what expires while it is checked.
    """
    findings = Findings()
    store = RetainedSnapshotStore(
        table.io, table.paths.root, lambda error: findings.add("unreadable", "", str(error))
    )
    run = _TableChecker(table=table, findings=findings, deep=deep)
    try:
        branches = store.branches()
    except PaimonError as error:
        findings.add("unreadable", table.paths.root, str(error))
        return CheckReport(tuple(findings.collected))
    for paths in branches:
        run.branch(paths, [v for v in store.read_branch(paths) if v.is_complete])
    return CheckReport(tuple(findings.collected), run.versions, run.data_files)


@dataclass(slots=True, kw_only=True)
class _TableChecker:
    table: Table
    findings: Findings
    deep: bool = field(kw_only=True)
    versions: int = 0
    _checker: VersionChecker = field(init=False)
    _files: dict[str, FileChecker] = field(default_factory=dict)
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        reader = ReferenceReader.of(self.table.io, self.table.paths.root)
        self._checker = VersionChecker(io=self.table.io, reader=reader, findings=self.findings)

    @property
    def data_files(self) -> int:
        return len(self._seen)

    def branch(self, paths: TablePaths, versions: Iterable[RetainedSnapshot]) -> None:
        versions = list(versions)
        snapshots = sorted(
            (v for v in versions if v.kind is RetainedSnapshotKind.SNAPSHOT),
            key=lambda v: v.snapshot.id,
        )
        for one, two in pairwise(v.snapshot.id for v in snapshots):
            if two != one + 1:
                self.findings.add(
                    "gap", paths.snapshot_dir, f"the snapshots {one + 1} to {two - 1} are missing"
                )
        self._check_latest_hint(paths)
        schemas = SchemaStore(self.table.io, paths)
        previous: SnapshotContents | None = None
        for version in [
            *snapshots,
            *(v for v in versions if v.kind is not RetainedSnapshotKind.SNAPSHOT),
        ]:
            self.versions += 1
            before = len(self.findings.collected)
            state = self._checker.version(version, schemas)
            if state is not None:
                if version.kind is RetainedSnapshotKind.SNAPSHOT:
                    self._checker.check_successor(previous, state)
                    previous = state
                self._content(paths, state, schemas)
            elif version.kind is RetainedSnapshotKind.SNAPSHOT:
                previous = None
            if len(self.findings.collected) > before and not self._is_kept(version, paths):
                del self.findings.collected[before:]

    def _check_latest_hint(self, paths: TablePaths) -> None:
        """Check that the newest snapshot, which LATEST names, is not lost."""
        try:
            SnapshotStore(self.table.io, paths).latest_id()
        except MissingFileError as error:
            self.findings.add("lost-snapshot", error.path, error.reason)

    def _content(self, paths: TablePaths, state: SnapshotContents, schemas: SchemaStore) -> None:
        if self.deep:
            checker = self._files.get(paths.branch)
            if checker is None:
                checker = FileChecker(
                    io=self.table.io,
                    paths=paths,
                    schemas=schemas,
                    findings=self.findings,
                    seen=self._seen,
                )
                self._files[paths.branch] = checker
            checker.state(state)
        else:
            self._seen.update(("", e.file.file_name) for e in state.entries)

    def _is_kept(self, version: RetainedSnapshot, paths: TablePaths) -> bool:
        """Tell whether a version did not expire while it was checked."""
        if not self.table.io.exists(version.path):
            return False
        earliest = SnapshotStore(self.table.io, paths).hint(EARLIEST) or 0
        hidden = version.kind is RetainedSnapshotKind.SNAPSHOT and version.snapshot.id < earliest
        return not (hidden and self.table.io.exists(f"{paths.snapshot_dir}/snapshot-{earliest}"))
