"""The live files of manifests: ADD entries without a DELETE entry of the same file.

See docs/format/manifest.md#file-identity-and-merging.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry


def merge_entries(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Cancel ADD and DELETE entries of the same file sequentially; keep unmatched DELETEs."""
    live: dict[tuple[object, ...], ManifestEntry] = {}
    for entry in entries:
        identity = entry.identity
        if entry.kind is FileKind.ADD:
            if identity in live:
                raise CorruptFileError(
                    entry.file.file_name, "was added twice without being deleted"
                )
            live[identity] = entry
        elif identity in live and live[identity].kind is FileKind.ADD:
            del live[identity]
        else:
            live[identity] = entry
    return list(live.values())


def filter_live_entries(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Return the ADD entries without a DELETE entry, in any order.

    :func:`read_live_entries` returns the same for manifests without building all their entries.
    """
    entries = list(entries)
    deleted = {entry.identity for entry in entries if entry.kind is FileKind.DELETE}
    return [
        entry
        for entry in entries
        if entry.kind is FileKind.ADD and (not deleted or entry.identity not in deleted)
    ]


def read_live_entries(
    manifests: Sequence[Manifest],
    partitions: Collection[bytes] | None = None,
    levels: range | None = None,
    choose: "Callable[[Manifest, Indices], Indices] | None" = None,
) -> list[ManifestEntry]:
    """Return the ADD entries without a DELETE entry in any of the manifests, in manifest order.

    ``choose`` takes a manifest and the indices of its live entries in ``partitions`` and
    ``levels``, and returns the indices of the entries to build.
    """
    deleted = _DeletedFiles.of(manifests)
    entries = []
    for manifest in manifests:
        live = manifest.kinds == FileKind.ADD
        if levels is not None:
            live &= (manifest.levels >= levels.start) & (manifest.levels < levels.stop)
        if partitions is not None:
            live &= _to_mask(partition in partitions for partition in manifest.partitions())
        rows = np.flatnonzero(deleted.exclude_from(manifest, live))
        entries += manifest.entries(rows if choose is None else choose(manifest, rows))
    return entries


@dataclass(frozen=True, slots=True)
class _DeletedFiles:
    """Identities of DELETE entries, compared only for entries with the same file name."""

    names: frozenset[str]
    identities: frozenset[tuple[object, ...]]

    @classmethod
    def of(cls, manifests: Iterable[Manifest]) -> "_DeletedFiles":
        identities = frozenset(
            entry.identity
            for manifest in manifests
            if manifest.kinds.any()
            for entry in manifest.entries(np.flatnonzero(manifest.kinds == FileKind.DELETE))
        )
        return cls(frozenset(str(identity[3]) for identity in identities), identities)

    def exclude_from(self, manifest: Manifest, added: Mask) -> Mask:
        if not self.names:
            return added
        live = added.copy()
        rows = np.flatnonzero(live & _to_mask(name in self.names for name in manifest.names))
        is_deleted = _to_mask(entry.identity in self.identities for entry in manifest.entries(rows))
        live[rows[is_deleted]] = False
        return live


def _to_mask(flags: Iterable[bool]) -> Mask:
    return np.fromiter(flags, bool)
