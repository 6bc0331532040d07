"""Merges small manifests at every commit.

See docs/format/manifest.md#manifest-merging.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_orch.format.manifest.live_entries import DeletedFiles, iterate_live_rows, merge_entries
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    MANIFEST_FORMAT,
    MANIFEST_FULL_COMPACTION_THRESHOLD_SIZE,
    MANIFEST_MERGE_MIN_COUNT,
    MANIFEST_TARGET_FILE_SIZE,
)
from paimon_orch.table.metadata.manifest_io import ManifestReader, ManifestWriter
from paimon_orch.table.scan.partition_pruner import build_partition_manifest_selector


@dataclass(frozen=True, slots=True)
class ManifestMerger:
    """Merges the manifests of a table according to its options, or all of them (``force_full``).

    ``force_full`` also writes manifests of another format than ``manifest.format`` again.
    """

    reader: ManifestReader
    writer: ManifestWriter
    options: Options
    force_full: bool = field(default=False, kw_only=True)

    def run(self, manifests: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        """Return manifests with the same live files; merged manifests are written as new files."""
        merged = self._try_full_compaction(manifests)
        return self._run_minor_compaction(manifests) if merged is None else merged

    def run_again(
        self, merged: Sequence[ManifestFileMeta], added: Sequence[ManifestFileMeta]
    ) -> list[ManifestFileMeta]:
        """Return the result of an earlier merge with the manifests that were added since then.

        Merges them only if they are so many that a commit would.
        """
        manifests = [*merged, *added]
        is_many = len(added) >= self.options.get(MANIFEST_MERGE_MIN_COUNT)
        return self._run_minor_compaction(manifests) if is_many else manifests

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
        others = set[str]()
        if self.force_full:
            others = find_other_formats(self.reader, manifests, self.options)
            changing |= others
        size = sum(m.file_size for m in manifests if m.file_name in changing)
        least = self.options.get(MANIFEST_FULL_COMPACTION_THRESHOLD_SIZE)
        if size < least and not self.force_full:
            return None
        deleted = DeletedFiles.of(self.reader.open(m) for m in manifests if m.num_deleted_files)
        named = {m.file_name for m in self._select_naming(manifests, deleted)}
        candidates = [m for m in manifests if m.file_name in changing | named]
        if len(manifests if deleted.identities else candidates) <= 1 and not others:
            return None
        rewritten, surviving = set[str](), list[ManifestEntry]()
        live = iterate_live_rows(map(self.reader.open, candidates), deleted)
        for meta, (manifest, rows) in zip(candidates, live, strict=True):
            if meta.file_name in changing or len(rows) < len(manifest):
                rewritten.add(meta.file_name)
                surviving += manifest.entries(rows)
        unchanged = [m for m in manifests if m.file_name not in rewritten]
        return [*unchanged, *self.writer.manifests(surviving)]

    def _select_naming(
        self, manifests: Sequence[ManifestFileMeta], deleted: DeletedFiles
    ) -> Sequence[ManifestFileMeta]:
        """Return the manifests that may name a deleted file, by their partition statistics."""
        if not deleted.identities:
            return ()
        select = build_partition_manifest_selector(deleted.partitions, self.writer.schema)
        return select(manifests)

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


def find_other_formats(
    reader: ManifestReader, manifests: Sequence[ManifestFileMeta], options: Options
) -> set[str]:
    """Return the names of manifests in another format than ``manifest.format``.

    Java Paimon cannot read them.
    """
    expected = options.get(MANIFEST_FORMAT)
    return {m.file_name for m in manifests if reader.find_format(m.file_name) != expected}
