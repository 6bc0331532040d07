"""Orphan candidates: the shuffle by name equals a comparison of sets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.manifest.columnar_manifest import DecodedManifest
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.storage import FileInfo, LocalFileIO, StoreCapabilities
from paimon_orch.table.cleanup.orphan_candidates import (
    ListingUnit,
    ManifestUnit,
    OrphanListing,
    OrphanSearch,
    SearchedDirectory,
    find_unreferenced_names,
    list_names_by_part,
)

# A name on a local disk may be invalid UTF-8, which Python shows as a lone surrogate.
NAMES = ["a", "b", "ä", "\udcff", "data-1.parquet", "data-2.parquet", "blob.managed.blob"]
BEFORE = 100.0
STORED = st.builds(
    lambda name, size, age, kind: FileInfo(
        path=name,
        size=size,
        modified=BEFORE - age,
        is_dir=kind == "directory",
        is_link=kind == "link",
    ),
    st.sampled_from(NAMES),
    st.integers(0, 2**40),
    st.sampled_from([-1, 0, 1, 50]),
    st.sampled_from(["file", "file", "file", "directory", "link"]),
)
REFERENCED = st.lists(
    st.tuples(st.sampled_from(NAMES[:3]), st.lists(st.sampled_from(NAMES[4:6]), max_size=1)),
    max_size=4,
)


@dataclass
class Storage:
    """Directories and manifests in memory; a manifest of None is damaged."""

    directories: list[list[FileInfo]]
    manifests: list[list[tuple[str, list[str]]] | None]
    time_precision_seconds: float = 0.0
    capabilities: StoreCapabilities = LocalFileIO.capabilities

    @property
    def io(self) -> Storage:
        return self

    def list_dir(self, path: str) -> list[Any]:
        if path == "/t":
            numbers = range(2, len(self.directories))
            buckets = [f"/t/bucket-{number}" for number in numbers]
            return [
                FileInfo(path=bucket, size=0, modified=0.0, is_dir=True)
                for bucket in [*buckets, "/t/manifest"]
            ]
        infos = self.directories[int(path.rpartition("-")[2])]
        return [
            FileInfo(
                path=f"{path}/{info.path}",
                size=info.size,
                modified=info.modified,
                is_dir=info.is_dir,
                is_link=info.is_link,
            )
            for info in infos
        ]

    def open(self, meta: ManifestFileMeta) -> DecodedManifest:
        files = self.manifests[int(meta.file_name)]
        if files is None:
            raise CorruptFileError(meta.file_name, "is damaged")
        return DecodedManifest(
            [
                ManifestEntry(
                    kind=FileKind.DELETE,
                    partition=EMPTY_ROW,
                    bucket=0,
                    total_buckets=1,
                    file=DataFileMeta(
                        file_name=name, file_size=1, row_count=1, extra_files=tuple(extra)
                    ),
                )
                for name, extra in files
            ]
        )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    directories=st.lists(
        st.lists(STORED, max_size=4, unique_by=lambda info: info.path), max_size=4
    ),
    manifests=st.lists(st.none() | REFERENCED, max_size=3),
    parts=st.sampled_from([1, 2, 7]),
)
def test_unreferenced_files_are_those_of_a_comparison_of_sets(
    directories: list[list[FileInfo]],
    manifests: list[list[tuple[str, list[str]]] | None],
    parts: int,
) -> None:
    storage = Storage(directories, manifests)
    search = OrphanSearch(io=storage, reader=storage, before=BEFORE)  # type: ignore[arg-type]
    paths = [f"/t/bucket-{number}" for number in range(len(directories))]
    metas = [ManifestFileMeta.of(str(number), 1, [], [], 0) for number in range(len(manifests))]
    units = [
        ListingUnit(tuple(SearchedDirectory(path, modified=0.0) for path in paths[:2])),
        ListingUnit((SearchedDirectory("/t", levels=0),)),
        ManifestUnit(tuple(metas)),
    ]

    listing = OrphanListing.of(
        InProcessExecutor().shuffle(
            partial(list_names_by_part, search, parts=parts),
            units,
            find_unreferenced_names,
            parts=parts,
            label="",
        )
    )

    referenced = {
        other for files in manifests for name, extra in files or () for other in (name, *extra)
    }
    old = [
        (f"{path}/{info.path}", info.size)
        for path, infos in zip(paths, directories, strict=True)
        for info in infos
        if not info.is_dir and not info.is_link and info.modified < BEFORE
        if not info.path.endswith(".managed.blob")
    ]
    expected = sorted(
        (path, size) for path, size in old if path.rpartition("/")[2] not in referenced
    )
    assert [(file.path, file.size) for file in listing.files] == expected
    assert listing.scanned == len(old)
    assert listing.empty == [
        path for path, infos in zip(paths, directories, strict=True) if not infos
    ]
    assert sorted(listing.manifests) == [
        str(number) for number, files in enumerate(manifests) if files is not None
    ]
