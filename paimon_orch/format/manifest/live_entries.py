"""The live files of manifests: ADD entries without a DELETE entry of the same file.

See docs/format/manifest.md#file-identity-and-merging.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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

    :func:`iterate_live_rows` finds the same in manifests without building all their entries.
    """
    entries = list(entries)
    deleted = {entry.identity for entry in entries if entry.kind is FileKind.DELETE}
    return [
        entry
        for entry in entries
        if entry.kind is FileKind.ADD and (not deleted or entry.identity not in deleted)
    ]


def iterate_live_rows(
    manifests: Iterable[Manifest],
    deleted: "DeletedFiles",
    partitions: Callable[[Sequence[bytes]], Collection[bytes]] | None = None,
    levels: range | None = None,
) -> Iterator[tuple[Manifest, Indices]]:
    """Yield each manifest with the indices of its live entries: ADD entries without a DELETE.

    Opens one manifest after the other if ``manifests`` does. ``deleted`` are the DELETE entries of
    all manifests. ``partitions`` selects from distinct serialized partitions.
    """
    is_selected: dict[bytes, bool] = {}
    for manifest in manifests:
        live = manifest.kinds == FileKind.ADD
        if levels is not None:
            live &= (manifest.levels >= levels.start) & (manifest.levels < levels.stop)
        if partitions is not None:
            distinct, codes = manifest.encode_partitions()
            unseen = [partition for partition in distinct if partition not in is_selected]
            selected = partitions(unseen) if unseen else ()
            is_selected |= {partition: partition in selected for partition in unseen}
            live &= _to_mask(map(is_selected.__getitem__, distinct))[codes]
        yield manifest, np.flatnonzero(deleted.exclude_from(manifest, live))


@dataclass(frozen=True, slots=True)
class DeletedFiles:
    """Identities of DELETE entries, compared only for entries with the same file name."""

    names: frozenset[str]
    identities: frozenset[tuple[object, ...]]

    @classmethod
    def of(cls, manifests: Iterable[Manifest]) -> "DeletedFiles":
        """Collect the DELETE entries of manifests."""
        identities = frozenset(
            entry.identity
            for manifest in manifests
            if manifest.kinds.any()
            for entry in manifest.entries(np.flatnonzero(manifest.kinds == FileKind.DELETE))
        )
        return cls(frozenset(str(identity[3]) for identity in identities), identities)

    @property
    def partitions(self) -> set[bytes]:
        """Return the serialized partitions of the deleted files."""
        return {bytes(identity[0]) for identity in self.identities}  # type: ignore[call-overload]

    def exclude_from(self, manifest: Manifest, added: Mask) -> Mask:
        """Return ``added``, a mask of ADD entries, without deleted files."""
        if not self.names:
            return added
        live = added.copy()
        rows = np.flatnonzero(live & _to_mask(name in self.names for name in manifest.names))
        is_deleted = _to_mask(entry.identity in self.identities for entry in manifest.entries(rows))
        live[rows[is_deleted]] = False
        return live


def _to_mask(flags: Iterable[bool]) -> Mask:
    return np.fromiter(flags, bool)
