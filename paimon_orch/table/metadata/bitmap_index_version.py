"""Chooses the version of new bitmap indexes if the table's options do not set it.

See docs/format/bitmap-index.md.
"""

from collections.abc import Iterator

import numpy as np

from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.file_index_reader import read_bitmap_version
from paimon_orch.files.file_index_writer import is_bitmap_version_configured
from paimon_orch.format.file_index.index_options import LATEST_BITMAP_VERSION
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.metadata.manifest_io import ManifestReader

# Writers of one table rarely use different versions, so only the newest manifests are read.
_MAX_MANIFESTS = 4
_ENTRIES_PER_MANIFEST = 16


def choose_bitmap_version(
    manifests: ManifestReader, reader: FileReader, snapshot: Snapshot | None
) -> int:
    """Return the version in the newest indexed file, or Paimon's newest if no file is indexed."""
    if snapshot is None or is_bitmap_version_configured(reader.schema):
        return LATEST_BITMAP_VERSION
    for entry in _read_newest_entries(manifests, snapshot):
        bucket_file = BucketFile(entry.partition, entry.bucket, entry.file)
        version = read_bitmap_version(reader.io, reader.path(bucket_file), entry.file)
        if version is not None:
            return version
    return LATEST_BITMAP_VERSION


def _read_newest_entries(manifests: ManifestReader, snapshot: Snapshot) -> Iterator[ManifestEntry]:
    for meta in manifests.manifests(snapshot)[: -_MAX_MANIFESTS - 1 : -1]:
        manifest = manifests.open(meta)
        rows = np.flatnonzero(manifest.kinds == FileKind.ADD)[-_ENTRIES_PER_MANIFEST:]
        yield from reversed(manifest.entries(rows))
