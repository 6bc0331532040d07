"""The rows of a partition with row ids, and those that an index has the current values of.

See docs/format/global-index-files.md#use-on-read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paimon_orch.files.global_index_reader import SORTED_INDEX_TYPES
from paimon_orch.format.arrays import Int64Array
from paimon_orch.format.manifest.index_manifest import GlobalIndexMeta, IndexManifestEntry
from paimon_orch.format.manifest.index_source import decode_source_snapshot
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import GLOBAL_INDEX_COLUMN_UPDATE_ACTION
from paimon_orch.format.paths import is_blob_file
from paimon_orch.format.row_range_set import EMPTY_ROW_RANGES, RowRanges
from paimon_orch.format.schema import TableSchema
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.scan.data_evolution import RowIdGroup, find_anchor_file, group_files_by_rows


def is_sorted_index(entry: IndexManifestEntry) -> bool:
    """Return whether an entry is a btree or bitmap index of one column of valid rows."""
    meta = entry.global_index
    return (
        meta is not None
        and not meta.extra_field_ids
        and entry.index_type in SORTED_INDEX_TYPES
        and bool(entry.row_range)
    )


def get_index_meta(entry: IndexManifestEntry) -> GlobalIndexMeta:
    """Return the fields of a column index."""
    meta = entry.global_index
    assert meta is not None
    return meta


@dataclass(frozen=True, kw_only=True)
class RowIdGroups:
    """The files with row ids of a partition, grouped by rows, in the order of their row ids."""

    schema: TableSchema
    schemas: SchemaStore
    groups: Sequence[RowIdGroup]
    starts: Int64Array
    ends: Int64Array
    sequences: Int64Array
    """The greatest sequence number of each group: the id of the snapshot that wrote its rows."""

    @classmethod
    def of(
        cls, files: Sequence[DataFileMeta], schema: TableSchema, schemas: SchemaStore
    ) -> "RowIdGroups":
        """Group the files of a partition."""
        groups = [g for g in group_files_by_rows(files) if g[0].first_row_id is not None]
        starts = np.array([group[0].first_row_id for group in groups], np.int64)
        counts = np.array([group[0].row_count for group in groups], np.int64)
        sequences = [max(file.max_sequence_number for file in group) for group in groups]
        return cls(
            schema=schema,
            schemas=schemas,
            groups=groups,
            starts=starts,
            ends=starts + counts,
            sequences=np.array(sequences, np.int64),
        )

    @cached_property
    def rows(self) -> RowRanges:
        """Return all row ids."""
        return RowRanges.of(self.starts, self.ends)

    def find_groups(self, start: int, end: int) -> tuple[RowIdGroup, ...]:
        """Return the groups with rows from ``start`` to ``end``, exclusive."""
        low = int(np.searchsorted(self.ends, start, "right"))
        high = int(np.searchsorted(self.starts, end, "left"))
        return tuple(self.groups[low:high])

    @cached_property
    def _ignores_updates(self) -> bool:
        action = self.schema.typed_options.get(GLOBAL_INDEX_COLUMN_UPDATE_ACTION)
        return action.upper() == "IGNORE"

    def find_current_rows(self, entry: IndexManifestEntry) -> RowRanges:
        """Return the rows whose values in an index are those of the table, if it covers them.

        If updates keep indexes as they are, this requires that the index names its snapshot.
        """
        snapshot_id = decode_source_snapshot(entry)
        if snapshot_id is None:
            return EMPTY_ROW_RANGES if self._ignores_updates else self.rows
        changed = list(self._find_changed(get_index_meta(entry).index_field_id, snapshot_id))
        if not changed:
            return self.rows
        return self.rows - RowRanges.of(self.starts[changed], self.ends[changed])

    def _find_changed(self, field_id: int, snapshot_id: int) -> Iterator[int]:
        """Yield the groups of rows whose values of a column may be newer than a snapshot."""
        for number in np.flatnonzero(self.sequences > snapshot_id).tolist():
            group = self.groups[number]
            # An update adds a file to the oldest one. A compaction writes one new file; it keeps
            # the values, but it may have joined updates that no index was dropped for.
            anchor = None if self._ignores_updates else find_anchor_file(group)
            if any(
                file is not anchor
                and file.max_sequence_number > snapshot_id
                and not is_blob_file(file.file_name)
                and self._has_column(file, field_id)
                for file in group
            ):
                yield number

    def _has_column(self, file: DataFileMeta, field_id: int) -> bool:
        fields: Mapping[int, str] = {
            field.id: field.name for field in self.schemas.get(file.schema_id).fields
        }
        name = fields.get(field_id)
        return name is not None and (file.write_cols is None or name in file.write_cols)
