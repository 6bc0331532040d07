"""Merges small manifests at every commit.

See docs/format/manifest.md#manifest-merging.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_orch.format.manifest.live_entries import merge_entries
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    MANIFEST_FULL_COMPACTION_THRESHOLD_SIZE,
    MANIFEST_MERGE_MIN_COUNT,
    MANIFEST_TARGET_FILE_SIZE,
)
from paimon_orch.table.metadata.manifest_io import ManifestReader, ManifestWriter


@dataclass(frozen=True, slots=True)
class ManifestMerger:
    """Merges the manifests of a table according to its options, or all of them (``force_full``)."""

    reader: ManifestReader
    writer: ManifestWriter
    options: Options
    force_full: bool = field(default=False, kw_only=True)

    def run(self, manifests: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        """Return manifests with the same live files; merged manifests are written as new files."""
        merged = self._try_full_compaction(manifests)
        return self._run_minor_compaction(manifests) if merged is None else merged

    @property
    def _target(self) -> int:
        return self.options.get(MANIFEST_TARGET_FILE_SIZE)

    def _try_full_compaction(
        self, manifests: Sequence[ManifestFileMeta]
    ) -> list[ManifestFileMeta] | None:
        """Rewrite manifests with deleted or few entries if their total size is large enough."""
        changing = {
            m.file_name for m in manifests if m.num_deleted_files or m.file_size < self._target
        }
        size = sum(m.file_size for m in manifests if m.file_name in changing)
        least = self.options.get(MANIFEST_FULL_COMPACTION_THRESHOLD_SIZE)
        if size < least and not self.force_full:
            return None
        deleted = {
            entry.identity
            for entry in self.reader.entries(manifests, lambda m: m.num_deleted_files > 0)
            if entry.kind is FileKind.DELETE
        }
        unchanged = [] if deleted else [m for m in manifests if m.file_name not in changing]
        candidates = [m for m in manifests if m not in unchanged]
        if len(candidates) <= 1:
            return None
        surviving: list[ManifestEntry] = []
        for manifest in candidates:
            entries = self.reader.entries([manifest])
            live = [
                entry
                for entry in entries
                if entry.kind is FileKind.ADD and entry.identity not in deleted
            ]
            if manifest.file_name not in changing and len(live) == len(entries):
                unchanged.append(manifest)
            else:
                surviving += live
        return [*unchanged, *self.writer.manifests(surviving)]

    def _run_minor_compaction(
        self, manifests: Sequence[ManifestFileMeta]
    ) -> list[ManifestFileMeta]:
        """Merge neighbors that together fill a manifest, and the last ones if they are many."""
        result: list[ManifestFileMeta] = []
        candidates: list[ManifestFileMeta] = []
        size = 0
        for manifest in manifests:
            candidates.append(manifest)
            size += manifest.file_size
            if size >= self._target:
                result += self._merge(candidates)
                candidates, size = [], 0
        if len(candidates) >= self.options.get(MANIFEST_MERGE_MIN_COUNT):
            return result + self._merge(candidates)
        return result + candidates

    def _merge(self, manifests: list[ManifestFileMeta]) -> list[ManifestFileMeta]:
        if len(manifests) == 1:
            return manifests
        return self.writer.manifests(merge_entries(self.reader.entries(manifests)))
