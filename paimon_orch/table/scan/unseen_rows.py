"""Counts rows that batch readers do not see until the next compaction.

Batch reads of tables with deletion vectors or the merge engine ``first-row`` skip level 0. Scans
read postpone buckets only with ``postpone.merge-on-read``.

See docs/format/scan.md#rules.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from paimon_orch.format.arrays import Indices
from paimon_orch.format.display import format_count
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.file_fields import build_file_fields
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.scan.file_pruner import FilePruner
from paimon_orch.table.scan.scan_planner import ALL_LEVELS
from paimon_orch.table.table_label import TableLabel
from paimon_orch.table.write.postpone_bucket import has_postpone_buckets

_ONLY_LEVEL_0 = range(1)


@dataclass(frozen=True, slots=True)
class Visibility:
    """Determines which files of a table batch readers leave out."""

    schema: TableSchema

    merge_level_0: bool | None = None
    """Overrides the options of the table: whether level 0 is read."""

    merge_postponed: bool = False
    """Whether rows in postpone buckets are read."""

    @property
    def skips_level_0(self) -> bool:
        """Return whether level 0 is left out."""
        if self.merge_level_0 is None:
            return self.schema.skips_level_0
        return not self.merge_level_0 and self.schema.shows_compacted_rows

    @property
    def can_merge_more(self) -> bool:
        """Return whether ``merge_level_0`` includes all rows that are left out otherwise."""
        return self.skips_level_0 and not has_postpone_buckets(self.schema)

    def levels_to_read(self, levels: range = ALL_LEVELS) -> range:
        """Return the part of a range of levels that is read."""
        return range(max(1, levels.start), levels.stop) if self.skips_level_0 else levels

    def count(self, entries: Iterable[ManifestEntry]) -> int:
        """Count the records of added files that readers leave out."""
        skips = self.skips_level_0
        return sum(
            entry.file.row_count
            for entry in entries
            if entry.kind is FileKind.ADD
            and (not self.merge_postponed if entry.bucket < 0 else skips and entry.file.level == 0)
        )

    def rows_not_visible(
        self,
        manifests: ManifestReader,
        snapshot: Snapshot | None,
        pruner: FilePruner | None = None,
        partitions: Callable[[bytes], bool] = lambda _: True,
    ) -> int:
        """Return the number of records, including deletes, that readers of a snapshot leave out.

        ``pruner`` and ``partitions`` limit the count to the partitions that they select. Reads only
        manifests with files of level 0.
        """
        if snapshot is None or not (self.skips_level_0 or has_postpone_buckets(self.schema)):
            return 0

        def keep(manifests: Sequence[ManifestFileMeta]) -> Sequence[ManifestFileMeta]:
            with_level_0 = [meta for meta in manifests if meta.min_level in (0, None)]
            return with_level_0 if pruner is None else pruner.select_manifests(with_level_0)

        def choose(serialized: Sequence[bytes]) -> set[bytes]:
            selected = set(serialized) if pruner is None else pruner.select_partitions(serialized)
            return set(filter(partitions, selected))

        skips, counts = self.skips_level_0, list[int]()

        def count(manifest: Manifest, rows: Indices) -> Indices:
            if not skips:
                rows = rows[manifest.buckets[rows] < 0]
            if self.merge_postponed:
                rows = rows[manifest.buckets[rows] >= 0]
            if len(rows):
                counts.append(sum(build_file_fields(manifest, rows).get("_ROW_COUNT")))
            return rows[:0]  # no entry objects are needed

        manifests.read_live_entries(
            snapshot, manifests=keep, partitions=choose, levels=_ONLY_LEVEL_0, choose=count
        )
        return sum(counts)


def describe_unseen_rows_after_write(label: TableLabel, rows: int) -> str:
    """Return the warning after a write of rows that batch readers cannot see yet."""
    verb = "is" if rows == 1 else "are"
    return (
        f"{rows:,} of the records written to {label.identifier} {verb} not visible to batch readers "
        f"before a compaction; run `{label.format_command('compact')}`"
    )


def describe_unseen_rows_in_scan(label: TableLabel, rows: int, merge: str | None = None) -> str:
    """Return the warning of a read; ``merge`` names the option that includes the records."""
    verb = "is" if rows == 1 else "are"
    return (
        f"{format_count(rows, 'record')} of {label.identifier} {verb} not compacted yet and {verb} left out; run "
        f"`{label.format_command('compact')}`"
    ) + (f", or read them with {merge}" if merge else "")
