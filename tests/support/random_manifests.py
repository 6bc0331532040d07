"""Random manifests and snapshots, written without a commit: they may be inconsistent."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from paimon_orch.format.manifest.index_manifest import (
    DELETION_VECTORS_INDEX,
    DeletionVectorRange,
    IndexManifestEntry,
    encode_index_manifest,
)
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    encode_manifest,
)
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta, encode_manifest_list
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.format.types.data_types import AtomicType, TypeRoot
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache
from paimon_orch.table.table import Table

INT = AtomicType(False, TypeRoot.INT)
KEY_TYPES = [AtomicType(False, TypeRoot.BIGINT), AtomicType(False, TypeRoot.VARCHAR, (100,))]
PARTITIONS = [serialize_row([number], [INT]) for number in range(2)]
TEXTS = ["a", "b", "a longer text than inline"]
KEYS = st.one_of(
    st.tuples(st.integers(0, 3), st.sampled_from(TEXTS)).map(lambda k: serialize_row(k, KEY_TYPES)),
    st.tuples(st.integers(0, 3), st.sampled_from(TEXTS)).map(lambda k: serialize_row(k, KEY_TYPES)),
    st.sampled_from([b"\0\0\0\2", serialize_row([1], KEY_TYPES[:1])]),
)
NAMES = ["a", "b", "c", "d", "e"]
FILES = st.builds(
    DataFileMeta,
    file_name=st.sampled_from(NAMES),
    file_size=st.sampled_from([1, 1, 1, 2]),
    row_count=st.sampled_from([1, 5, 2**62]),
    level=st.sampled_from([0, 1, 5]),
    min_key=KEYS,
    max_key=KEYS,
    extra_files=st.sampled_from([(), (), (), ("x",), ("x", "y")]),
    embedded_index=st.sampled_from([None, None, b"i"]),
    external_path=st.sampled_from([None, None, None, "file:/elsewhere/a"]),
)
ENTRIES = st.builds(
    ManifestEntry,
    kind=st.sampled_from([FileKind.ADD, FileKind.ADD, FileKind.DELETE]),
    partition=st.sampled_from(PARTITIONS),
    bucket=st.sampled_from([0, 1, 2, -2]),
    total_buckets=st.sampled_from([2, 2, 2, 3]),
    file=FILES,
)
VECTORS = st.builds(
    IndexManifestEntry,
    kind=st.just(FileKind.ADD),
    partition=st.sampled_from(PARTITIONS),
    bucket=st.integers(0, 1),
    index_type=st.just(DELETION_VECTORS_INDEX),
    file_name=st.sampled_from(["i", "j"]),
    file_size=st.just(1),
    row_count=st.integers(0, 2),
    ranges=st.lists(
        st.builds(
            DeletionVectorRange,
            data_file=st.sampled_from(NAMES),
            offset=st.just(1),
            length=st.just(1),
            cardinality=st.sampled_from([None, 0, 1, 5, 6]),
        ),
        max_size=2,
    ).map(tuple),
)
NUMBERS = st.lists(st.integers(0, 4), max_size=2, unique=True)
SNAPSHOTS = st.tuples(
    NUMBERS, NUMBERS, NUMBERS, st.lists(VECTORS, max_size=2), st.booleans(), st.integers(0, 6)
).filter(lambda snapshot: not {*snapshot[0]} & {*snapshot[1]})  # a manifest is named once


def write_snapshots(
    table: Table, manifests: list[list[ManifestEntry]], snapshots: Sequence[tuple[Any, ...]]
) -> None:
    """Replace the metadata of the table, with files of the same names."""
    clear_metadata_cache()
    folder = Path(table.paths.manifest_dir)
    for path in (folder, Path(table.paths.snapshot_dir)):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    metas = []
    for number, entries in enumerate(manifests):
        data = encode_manifest(entries)
        (folder / f"m-{number}").write_bytes(data)
        metas.append(
            ManifestFileMeta.of(
                f"m-{number}", len(data), entries, table.load().schema.partition_fields, 0
            )
        )
    for number, (base, delta, changelog, vectors, is_compaction, rows) in enumerate(snapshots, 1):
        for name, numbers in (("base", base), ("delta", delta), ("changelog", changelog)):
            data = encode_manifest_list([metas[n] for n in numbers])
            (folder / f"{name}-{number}").write_bytes(data)
        (folder / f"index-{number}").write_bytes(encode_index_manifest(vectors))
        snapshot = Snapshot(
            id=number,
            schema_id=0,
            base_manifest_list=f"base-{number}",
            delta_manifest_list=f"delta-{number}",
            changelog_manifest_list=f"changelog-{number}",
            index_manifest=f"index-{number}",
            commit_user="u",
            commit_identifier=number,
            commit_kind=CommitKind.COMPACT if is_compaction else CommitKind.APPEND,
            time_millis=0,
            total_record_count=rows,
            delta_record_count=rows // 2,
        )
        table.io.write(table.stores.snapshots.path(number), snapshot.to_json())
