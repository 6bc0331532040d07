"""The version of bitmap indexes that writers of a table keep, where its options name none (file-index section 4)."""

from collections.abc import Iterator

import numpy as np

from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.file_index_reader import names_bitmap_version, stored_bitmap_version
from paimon_orch.format.file_index.index_options import NEWEST_BITMAP
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.metadata.manifest_io import ManifestReader

_MANIFESTS = 4  # the newest ones; writers of one table seldom differ
_ENTRIES = 16


def kept_bitmap_version(
    manifests: ManifestReader, reader: FileReader, snapshot: Snapshot | None
) -> int:
    """Return the version of the bitmap indexes of the newest files; the default of Paimon if they have none."""
    if snapshot is None or names_bitmap_version(reader.schema):
        return NEWEST_BITMAP
    for entry in _newest_entries(manifests, snapshot):
        at = BucketFile(entry.partition, entry.bucket, entry.file)
        version = stored_bitmap_version(reader.io, reader.path(at), entry.file)
        if version is not None:
            return version
    return NEWEST_BITMAP


def _newest_entries(manifests: ManifestReader, snapshot: Snapshot) -> Iterator[ManifestEntry]:
    for meta in manifests.manifests(snapshot)[: -_MANIFESTS - 1 : -1]:
        manifest = manifests.open(meta)
        rows = np.flatnonzero(manifest.kinds == FileKind.ADD)[-_ENTRIES:]
        yield from reversed(manifest.entries(rows))
