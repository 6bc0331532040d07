"""Planning the deletion of snapshots equals a simple implementation that compares entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import new_table

from paimon_orch.format.manifest.columnar_manifest import (
    ColumnarManifest,
    DecodedManifest,
    Manifest,
)
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    encode_manifest,
)
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.cleanup.references import ReferenceReader
from paimon_orch.table.cleanup.retained_snapshots import RetainedSnapshot, RetainedSnapshotKind
from paimon_orch.table.cleanup.snapshot_deletion import SnapshotDeletionPlanner
from paimon_orch.table.table import Table

# Few names and properties, so that entries of the same file and of files with its name are common.
FILES = st.builds(
    DataFileMeta,
    file_name=st.sampled_from(["a", "b", "c", "d"]),
    file_size=st.integers(1, 9),
    row_count=st.just(1),
    level=st.sampled_from([0, 0, 5]),
    extra_files=st.sampled_from([(), (), ("x",), ("x", "y"), ("a",)]),
)
ENTRIES = st.builds(
    ManifestEntry,
    kind=st.sampled_from([FileKind.ADD, FileKind.ADD, FileKind.DELETE]),
    partition=st.just(EMPTY_ROW),
    bucket=st.integers(0, 1),
    total_buckets=st.just(2),
    file=FILES,
)
NUMBERS = st.lists(st.integers(0, 5), max_size=3, unique=True)


@dataclass
class Metadata:
    """Manifests and manifest lists in memory, which count how often a manifest is opened."""

    manifests: list[list[ManifestEntry]]
    decodes: list[bool]
    opened: list[str] = field(default_factory=list)
    io: LocalFileIO = field(default_factory=LocalFileIO)

    def open(self, meta: ManifestFileMeta) -> Manifest:
        self.opened.append(meta.file_name)
        number = int(meta.file_name)
        entries = self.manifests[number]
        decoded = ColumnarManifest.decode(encode_manifest(entries), meta.file_name)
        return DecodedManifest(entries) if decoded is None or self.decodes[number] else decoded

    def list(self, numbers: Iterable[int]) -> tuple[ManifestFileMeta, ...]:
        return tuple(
            ManifestFileMeta.of(str(number), 1, self.manifests[number], [], 0) for number in numbers
        )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return new_table(tmp_path_factory.mktemp("warehouse"))


def make_version(
    reader: ReferenceReader, metadata: Metadata, number: int, drawn: tuple[Any, ...]
) -> RetainedSnapshot:
    kind, base, delta, changelog = drawn
    lists = {"base": base, "delta": delta, "changelog": changelog}
    for name, numbers in lists.items():
        reader._lists[f"{name}-{number}"] = metadata.list(numbers)
    snapshot = Snapshot(
        id=number,
        schema_id=0,
        base_manifest_list=f"base-{number}",
        delta_manifest_list=f"delta-{number}",
        changelog_manifest_list=f"changelog-{number}" if changelog else None,
        commit_user="u",
        commit_identifier=number,
        commit_kind=CommitKind.APPEND,
        time_millis=0,
        total_record_count=0,
        delta_record_count=0,
    )
    return RetainedSnapshot(
        kind=kind, branch="main", name=str(number), path=f"{kind}-{number}", snapshot=snapshot
    )


def is_live(entry: ManifestEntry, entries: list[ManifestEntry]) -> bool:
    deletes = [other.identity for other in entries if other.kind is FileKind.DELETE]
    return entry.kind is FileKind.ADD and entry.identity not in deletes


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    manifests=st.lists(st.lists(ENTRIES, max_size=4), min_size=6, max_size=6),
    decodes=st.lists(st.booleans(), min_size=6, max_size=6),
    versions=st.lists(
        st.tuples(st.sampled_from(RetainedSnapshotKind), NUMBERS, NUMBERS, NUMBERS),
        min_size=2,
        max_size=4,
    ),
    expired=st.integers(1, 2),
    of_tag=st.booleans(),
)
def test_the_planned_files_are_those_of_a_simple_implementation(
    table: Table,
    manifests: list[list[ManifestEntry]],
    decodes: list[bool],
    versions: list[tuple[Any, ...]],
    expired: int,
    of_tag: bool,
) -> None:
    metadata = Metadata(manifests, decodes)
    reader = ReferenceReader(metadata)  # type: ignore[arg-type]
    made = [make_version(reader, metadata, n, drawn) for n, drawn in enumerate(versions)]
    expiring, retained = made[:expired], made[expired:]

    def entries_of(metas: Iterable[ManifestFileMeta]) -> list[ManifestEntry]:
        return [entry for meta in metas for entry in manifests[int(meta.file_name)]]

    planner = SnapshotDeletionPlanner(
        reader=reader, paths=table.paths, schema=table.load().schema, retained=retained
    )
    candidates: list[ManifestEntry] = []
    for version in expiring:
        state, delta = entries_of(reader.state(version)), entries_of(reader.delta(version))
        if of_tag:
            planner.add_live_files(version)
            candidates += [entry for entry in state if is_live(entry, state)]
        else:
            planner.add_deleted_files(version)
            candidates += [entry for entry in delta if entry.kind is FileKind.DELETE]
        planner.add_changelog_files(version)
        changelog = entries_of(reader.changelog(version))
        candidates += [entry for entry in changelog if entry.kind is FileKind.ADD]

    files = planner.collect(expiring)

    names = {entry.file.file_name for entry in candidates}
    referenced: set[str] = set()
    for version in retained:
        groups = [entries_of(reader.state(version)), entries_of(reader.changelog(version))]
        for group in groups:
            for entry in group:
                keeps_all = version.kind is RetainedSnapshotKind.CHANGELOG
                is_needed = entry.kind is FileKind.ADD if keeps_all else is_live(entry, group)
                if is_needed and entry.file.file_name in names:
                    referenced |= {entry.file.file_name, *entry.file.extra_files}
    expected = {
        f"{table.paths.root}/bucket-{entry.bucket}/{name}"
        for entry in candidates
        for name in (entry.file.file_name, *entry.file.extra_files)
        if name not in referenced
    }
    assert set(files.data) == expected
    assert len(files.data) == len(expected) == len(files.sizes)
    if not of_tag:
        shared = {m.file_name for v in retained for m in (*reader.state(v), *reader.changelog(v))}
        opened = Counter(metadata.opened)
        assert all(opened[name] == (1 if names else 0) for name in shared)
