"""Merging manifests changes their number, but not their content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import assert_healthy, new_table, rows_of, table_of

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.manifest.live_entries import filter_live_entries
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.options import Options
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.table.metadata.manifest_io import ManifestReader, ManifestWriter
from paimon_orch.table.metadata.manifest_merge import ManifestMerger
from paimon_orch.table.table import Table

# Each commit has a number of files to add and a number of existing files to delete.
commits = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


@dataclass
class History:
    """The manifests of some commits, and the files that are live after them."""

    table: Table
    writer: ManifestWriter
    live: list[str]

    def manifests(self, steps: list[tuple[int, int]]) -> list[ManifestFileMeta]:
        number, manifests = 0, list[ManifestFileMeta]()
        for adds, deletes in steps:
            entries: list[ManifestEntry] = []
            deleted = [self.live.pop(0) for _ in range(min(deletes, len(self.live)))]
            entries += [entry_of(name).deleted() for name in deleted]
            for _ in range(adds):
                number += 1
                self.live.append(f"data-{number}")
                entries.append(entry_of(f"data-{number}"))
            manifests += self.writer.manifests(entries)
        self.writer.flush()
        return manifests


def entry_of(name: str) -> ManifestEntry:
    return ManifestEntry(
        kind=FileKind.ADD,
        partition=EMPTY_ROW,
        bucket=0,
        total_buckets=1,
        file=DataFileMeta(file_name=name, file_size=1, row_count=1),
    )


OPTIONS = {
    "none": {},
    "minor by count": {"manifest.merge-min-count": "3"},
    "minor by size": {"manifest.target-file-size": "3500 b"},
    "full": {"manifest.full-compaction-threshold-size": "1 b"},
    "full of some": {
        "manifest.full-compaction-threshold-size": "1 b",
        "manifest.target-file-size": "1200 b",
    },
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [pytest.param(o, id=name) for name, o in OPTIONS.items()])
def test_merged_manifests_have_the_same_live_files(tmp_path: Path, options: dict[str, str]) -> None:
    table = new_table(tmp_path)
    writer = ManifestWriter(table.io, table.paths, table.load().schema)
    reader = ManifestReader(table.io, table.paths)

    @settings(max_examples=40)
    @given(commits)
    def check(steps: list[tuple[int, int]]) -> None:
        history = History(table, writer, [])
        manifests = history.manifests(steps)

        merged = ManifestMerger(reader, writer, Options(options)).run(manifests)
        writer.flush()

        entries = reader.entries(merged)
        live = [entry.file.file_name for entry in filter_live_entries(entries)]
        assert sorted(live) == sorted(history.live)
        assert len(merged) <= max(1, len(manifests))
        for meta in merged:
            kinds = [entry.kind for entry in reader.entries([meta])]
            counted = (meta.num_added_files, meta.num_deleted_files)
            assert counted == (kinds.count(FileKind.ADD), kinds.count(FileKind.DELETE))
        if "manifest.full-compaction-threshold-size" in options and len(manifests) > 1:
            assert not any(entry.kind is FileKind.DELETE for entry in entries)

    check()


def test_a_table_with_many_commits_has_few_manifests(tmp_path: Path) -> None:
    table = new_table(tmp_path, manifest__merge_min_count="5")
    for number in range(23):
        table.upsert(table_of("k v", [(number, "x")]))

    snapshot = table.snapshot()
    assert snapshot is not None
    assert len(table.stores.manifests.manifests(snapshot)) <= 6
    assert [row[0] for row in rows_of(table)] == list(range(23))
    assert rows_of(table, snapshot_id=7) == [(number, "x") for number in range(7)]
    assert_healthy(table)


@pytest.mark.parametrize("name", ["full", "minor by count"])
def test_a_manifest_of_another_size_is_not_merged(tmp_path: Path, name: str) -> None:
    table = new_table(tmp_path)
    writer = ManifestWriter(table.io, table.paths, table.load().schema)
    manifests = History(table, writer, []).manifests([(1, 0)] * 4)
    with (Path(table.paths.manifest_dir) / manifests[2].file_name).open("ab") as file:
        file.write(b"\0")

    reader = ManifestReader(table.io, table.paths)
    with pytest.raises(CorruptFileError, match=rf"{manifests[2].file_name}: has "):
        ManifestMerger(reader, writer, Options(OPTIONS[name])).run(manifests)


@pytest.mark.slow
def test_many_entries_are_split_into_manifests_of_the_target_size(tmp_path: Path) -> None:
    table = new_table(tmp_path, manifest__target_file_size="50 kb")
    writer = ManifestWriter(table.io, table.paths, table.load().schema)
    entries = [entry_of(f"data-{uuid5(NAMESPACE_OID, str(number))}") for number in range(9_000)]

    manifests = writer.manifests(entries)
    writer.flush()

    assert all(25 << 10 < manifest.file_size < 75 << 10 for manifest in manifests[:-1])
    assert len(manifests) > 2
    read = table.stores.manifests.entries(manifests)
    assert [entry.file.file_name for entry in read] == [entry.file.file_name for entry in entries]


def test_only_the_last_manifest_of_a_write_is_below_the_target_size(tmp_path: Path) -> None:
    table = new_table(tmp_path, manifest__target_file_size="20 kb")
    writer = ManifestWriter(table.io, table.paths, table.load().schema)
    entries = [entry_of(f"data-{uuid5(NAMESPACE_OID, str(number))}") for number in range(3_000)]
    written = writer.manifests(entries)
    writer.flush()
    assert len(written) > 3
    assert all(20 << 10 <= meta.file_size < 30 << 10 for meta in written[:-1])
    reader = ManifestReader(table.io, table.paths)
    assert reader.entries(written) == entries
