"""Live files as columns, from objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paimon_orch.format.manifest.columnar_manifest import DecodedManifest
from paimon_orch.format.manifest.live_files import LiveFiles, collect_live_files
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.types.data_types import DataType


def live_files_of(
    buckets: Sequence[Sequence[DataFileMeta]], key_types: Sequence[DataType] | None = None
) -> LiveFiles:
    """Return the files of some buckets of one partition."""
    entries = [
        ManifestEntry(
            kind=FileKind.ADD,
            partition=bytes(12),
            bucket=bucket,
            total_buckets=len(buckets),
            file=file,
        )
        for bucket, files in enumerate(buckets)
        for file in files
    ]
    live = [(0, DecodedManifest(entries), np.arange(len(entries)))]
    return collect_live_files((), live, with_names=True, with_row_ids=True, key_types=key_types)
