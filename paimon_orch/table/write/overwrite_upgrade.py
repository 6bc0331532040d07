"""``overwrite-upgrade``: commits new files without overlapping keys at the highest level.

After an overwrite, the buckets have no other files, so these files need no merge. Readers that skip
level 0 see their rows without a compaction.

See docs/format/commit.md#overwrite-and-drop.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.options.core_options import OVERWRITE_UPGRADE
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.sort.key_order import decode_key_bounds


def upgrade_after_overwrite(
    entries: Sequence[ManifestEntry], schema: TableSchema
) -> list[ManifestEntry]:
    """Return the added files of an overwrite with the levels to commit.

    As in Java Paimon, files are upgraded only if all of them are on level 0. Each bucket is
    upgraded independently.
    """
    if not _can_upgrade(entries, schema):
        return list(entries)
    buckets: dict[PartitionBucket, list[ManifestEntry]] = {}
    for entry in entries:
        buckets.setdefault(entry.partition_bucket, []).append(entry)
    top = schema.top_level
    upgraded = list[ManifestEntry]()
    for files in buckets.values():
        if len(files) > 1 and _has_overlap(files, schema):
            upgraded += files
        else:
            upgraded += [replace(entry, file=entry.file.with_level(top)) for entry in files]
    return upgraded


def _can_upgrade(entries: Sequence[ManifestEntry], schema: TableSchema) -> bool:
    return (
        schema.has_runs_sorted_by_key
        and schema.typed_options.get(OVERWRITE_UPGRADE)
        and all(entry.bucket >= 0 and entry.file.level == 0 for entry in entries)
    )


def _has_overlap(files: Sequence[ManifestEntry], schema: TableSchema) -> bool:
    """Return whether the key ranges of two files of a bucket overlap."""
    fields = schema.key_fields
    ranges = sorted(decode_key_bounds(entry.file, fields) for entry in files)
    return any(first[1] >= second[0] for first, second in pairwise(ranges))
