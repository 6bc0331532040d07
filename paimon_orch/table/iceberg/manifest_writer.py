"""Writes the manifests and manifest lists of one Iceberg snapshot.

See docs/format/iceberg-metadata.md#manifests.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paimon_orch.format.iceberg.iceberg_manifest import (
    Entry,
    EntryStatus,
    ManifestContent,
    ManifestFormat,
    encode_manifest,
    is_live,
)
from paimon_orch.format.iceberg.iceberg_manifest_list import (
    IcebergManifestFile,
    PartitionSummary,
    encode_manifest_list,
)
from paimon_orch.format.iceberg.single_value import (
    decode_partition_value,
    decode_single_value,
    encode_single_value,
)
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot
from paimon_orch.table.iceberg.iceberg_settings import IcebergSettings
from paimon_orch.table.iceberg.metadata_store import IcebergMetadataStore

_TEXT_TYPES = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_MAX_ENTRIES = 500
"""The entries of one manifest: a commit rewrites the manifests of all files that it removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergManifestWriter:
    """Writes the manifests of snapshot ``snapshot_id``."""

    store: IcebergMetadataStore
    settings: IcebergSettings
    manifest_format: ManifestFormat
    location: str
    """The metadata directory, spelled as in the paths of the metadata."""
    partition_fields: Sequence[Field]
    snapshot_id: int

    def write(
        self, entries: Sequence[Entry], content: ManifestContent
    ) -> list[IcebergManifestFile]:
        """Write entries to manifests of equal length; writes none if there are none."""
        return self.write_lazily(len(entries), lambda start, end: entries[start:end], content)

    def write_lazily(
        self,
        count: int,
        build: Callable[[int, int], Sequence[Entry]],
        content: ManifestContent = ManifestContent.DATA,
    ) -> list[IcebergManifestFile]:
        """Write manifests of many entries, of which only one manifest's are in memory.

        ``build`` returns the entries from a start to an end.
        """
        return [
            manifest
            for start, end in _split(count)
            for manifest in self._write_part(build(start, end), content)
        ]

    def is_small(self, manifest: IcebergManifestFile) -> bool:
        """Return whether a manifest should be merged with others when there are many."""
        entries = manifest.live_files + manifest.deleted_files
        is_short = 3 * manifest.length < 2 * self.settings.target_manifest_size
        return is_short and 3 * entries < 2 * _MAX_ENTRIES

    def _write_part(
        self, entries: Sequence[Entry], content: ManifestContent
    ) -> list[IcebergManifestFile]:
        """Write entries to one manifest, or to several if it exceeds the target size."""
        data = encode_manifest(entries, self.manifest_format, content)
        if len(data) > self.settings.target_manifest_size and len(entries) > 1:
            half = len(entries) // 2
            first, second = entries[:half], entries[half:]
            return [*self._write_part(first, content), *self._write_part(second, content)]
        return [self._write_encoded(entries, data, content)]

    def _write_encoded(
        self, entries: Sequence[Entry], data: bytes, content: ManifestContent
    ) -> IcebergManifestFile:
        name = self.store.write_manifest(data)
        counts = dict.fromkeys(EntryStatus, 0)
        rows = dict.fromkeys(EntryStatus, 0)
        for entry in entries:
            counts[entry["status"]] += 1
            rows[entry["status"]] += entry["data_file"]["record_count"]
        return IcebergManifestFile(
            path=f"{self.location}/{name}",
            length=len(data),
            content=content,
            sequence_number=self.snapshot_id,
            min_sequence_number=min(entry["sequence_number"] for entry in entries),
            added_snapshot_id=self.snapshot_id,
            added_files=counts[EntryStatus.ADDED],
            existing_files=counts[EntryStatus.EXISTING],
            deleted_files=counts[EntryStatus.DELETED],
            added_rows=rows[EntryStatus.ADDED],
            existing_rows=rows[EntryStatus.EXISTING],
            deleted_rows=rows[EntryStatus.DELETED],
            partitions=self._summarize_partitions(entries),
        )

    def _summarize_partitions(self, entries: Sequence[Entry]) -> tuple[PartitionSummary, ...]:
        names = [field.name for field in self.partition_fields]
        distinct = {
            tuple(partition[name] for name in names)
            for partition in (entry["data_file"]["partition"] for entry in entries)
        }
        return tuple(
            _summarize_column([values[index] for values in distinct], field)
            for index, field in enumerate(self.partition_fields)
        )

    def write_list(self, manifests: Iterable[IcebergManifestFile], parent_id: int | None) -> str:
        """Write the manifest list of the snapshot; return its path."""
        data = encode_manifest_list(
            manifests,
            snapshot_id=self.snapshot_id,
            parent_id=parent_id,
            format_version=self.manifest_format.format_version,
            legacy=self.settings.legacy_lists,
            codec=self.settings.codec,
            level=self.settings.level,
        )
        return f"{self.location}/{self.store.write_manifest_list(data)}"


def _split(count: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of entries of manifests of equal length."""
    parts = -(-count // _MAX_ENTRIES)
    for number in range(parts):
        yield count * number // parts, count * (number + 1) // parts


def _summarize_column(values: Iterable[Any], field: Field) -> PartitionSummary:
    decoded = [decode_partition_value(value, field.type) for value in values]
    numbers = [value for value in decoded if value is not None and not _is_nan(value)]
    # Java Paimon up to 2.0 fails to read a summary without bounds; wider bounds are always right.
    if not numbers:
        is_text = isinstance(field.type, AtomicType) and field.type.name in _TEXT_TYPES
        numbers = ["" if is_text else 0]
    return PartitionSummary(
        contains_null=any(value is None for value in decoded),
        contains_nan=any(map(_is_nan, decoded)),
        lower_bound=encode_single_value(min(numbers), field.type),
        upper_bound=encode_single_value(max(numbers), field.type),
    )


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def to_existing(entry: Entry) -> Entry:
    """Return a live entry as the entry of a file that an earlier snapshot added."""
    return {**entry, "status": EntryStatus.EXISTING}


def to_deleted(entry: Entry, snapshot_id: int) -> Entry:
    """Return a live entry as the entry of a file that a snapshot removes."""
    return {**entry, "status": EntryStatus.DELETED, "snapshot_id": snapshot_id}


def assign_first_row_ids(
    manifests: Iterable[IcebergManifestFile], next_row_id: int
) -> tuple[list[IcebergManifestFile], int]:
    """Assign row ids to data manifests without them; return the manifests and the next row id.

    See docs/format/iceberg-metadata.md#row-lineage.
    """
    assigned = []
    for manifest in manifests:
        if manifest.content is ManifestContent.DATA and manifest.first_row_id is None:
            assigned.append(replace(manifest, first_row_id=next_row_id))
            next_row_id += manifest.live_rows
        else:
            assigned.append(manifest)
    return assigned, next_row_id


def inherit_first_row_ids(entries: Iterable[Entry], first_row_id: int | None) -> Iterator[Entry]:
    """Yield the entries of a manifest; files that inherit their row ids from it get them."""
    for entry in entries:
        file = entry["data_file"]
        if first_row_id is not None and is_live(entry) and file.get("first_row_id") is None:
            yield {**entry, "data_file": {**file, "first_row_id": first_row_id}}
            first_row_id += file["record_count"]
        else:
            yield entry


def may_contain(
    manifest: IcebergManifestFile,
    partitions: Iterable[Sequence[Any]],
    fields: Sequence[Field],
) -> bool:
    """Return whether a manifest may have files of one of the partitions, given as internal values.

    See docs/format/iceberg-metadata.md#manifest-lists.
    """
    if len(manifest.partitions) != len(fields):
        return True
    checks = [
        _build_range_check(summary, field)
        for summary, field in zip(manifest.partitions, fields, strict=True)
    ]
    return any(
        all(check(value) for check, value in zip(checks, values, strict=True))
        for values in partitions
    )


def _build_range_check(summary: PartitionSummary, field: Field) -> Callable[[Any], bool]:
    lower, upper = (
        None if bound is None else decode_single_value(bound, field.type)
        for bound in (summary.lower_bound, summary.upper_bound)
    )

    def check(value: Any) -> bool:
        if value is None:
            return summary.contains_null
        if _is_nan(value):
            return True  # older writers do not set contains_nan
        return lower is not None and upper is not None and bool(lower <= value <= upper)

    return check
