"""Columnar access to the fields of data files, from objects or directly from a manifest."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from paimon_orch.format.arrays import Indices
from paimon_orch.format.manifest.columnar_manifest import ColumnarManifest, Manifest
from paimon_orch.format.manifest.manifest_entry import DataFileMeta

_ATTRIBUTE_BY_FIELD = {
    "_ROW_COUNT": "row_count",
    "_SCHEMA_ID": "schema_id",
    "_KEY_STATS._MIN_VALUES": "key_stats.min_values",
    "_KEY_STATS._MAX_VALUES": "key_stats.max_values",
    "_KEY_STATS._NULL_COUNTS": "key_stats.null_counts",
    "_VALUE_STATS._MIN_VALUES": "value_stats.min_values",
    "_VALUE_STATS._MAX_VALUES": "value_stats.max_values",
    "_VALUE_STATS._NULL_COUNTS": "value_stats.null_counts",
    "_VALUE_STATS_COLS": "value_stats_cols",
    "_WRITE_COLS": "write_cols",
    "_EMBEDDED_FILE_INDEX": "embedded_index",
}


class FileFields(Protocol):
    """Columnar fields of data files; names are as in manifests, without ``_FILE``."""

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the files."""
        ...

    def get(self, field: str) -> Sequence[Any]:
        """Return one field of all files."""
        ...

    def take(self, rows: Indices) -> "FileFields":
        """Return some of the files."""
        ...


class ObjectFileFields:
    """The fields of :class:`DataFileMeta` objects."""

    def __init__(self, files: Sequence[DataFileMeta]) -> None:
        self._files = files

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the files."""
        return [file.file_name for file in self._files]

    def get(self, field: str) -> Sequence[Any]:
        """Return one field of all files."""
        return list(map(attrgetter(_ATTRIBUTE_BY_FIELD[field]), self._files))

    def take(self, rows: Indices) -> "ObjectFileFields":
        """Return some of the files."""
        return ObjectFileFields([self._files[row] for row in rows.tolist()])


class ManifestFileFields:
    """The fields of some entries of a manifest."""

    def __init__(self, manifest: ColumnarManifest, rows: Indices) -> None:
        self._manifest, self._rows = manifest, rows

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the files."""
        return [self._manifest.names[row] for row in self._rows.tolist()]

    def get(self, field: str) -> Sequence[Any]:
        """Return one field of all files; null if the manifest does not store it."""
        all_rows = self._manifest.columns.get(f"_FILE.{field}")
        if all_rows is None:
            return [None] * len(self._rows)
        column, data = all_rows.take(self._rows), self._manifest.data
        if column.item_type is not None:
            return column.arrays(data)
        return column.numbers() if column.ends is None else column.slices(data)

    def take(self, rows: Indices) -> "ManifestFileFields":
        """Return some of the files."""
        return ManifestFileFields(self._manifest, self._rows[rows])


def build_file_fields(manifest: Manifest, rows: Indices | None = None) -> FileFields:
    """Return the fields of some entries' files."""
    if isinstance(manifest, ColumnarManifest):
        return ManifestFileFields(manifest, np.arange(len(manifest)) if rows is None else rows)
    return ObjectFileFields([entry.file for entry in manifest.entries(rows)])
