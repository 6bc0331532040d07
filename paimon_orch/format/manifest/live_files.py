"""The live files of a snapshot as columns, at about 100 bytes per file.

Steps plan, sum and group with these columns, and build objects only for the files that they choose.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import (
    AnyArray,
    Indices,
    Int8Array,
    Int32Array,
    Int64Array,
    Mask,
    UInt64Array,
    to_arrow_array,
    to_numpy,
)
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.row.key_prefix import encode_key_prefixes
from paimon_orch.format.types.data_types import DataType

UNKNOWN = -1
"""Stands for null in ``delete_row_counts``, ``sources`` and ``first_row_ids``."""

NO_TIME = np.iinfo(np.int64).min
"""Stands for null in ``creation_times``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFiles:
    """Live data files as columns with one item per file, in the order of the manifests.

    ``manifest_codes`` and ``positions`` are where the entries are stored: an index of ``manifests``
    and :attr:`Manifest.positions`. ``ManifestReader.build_entries`` builds objects from them.
    """

    manifests: Sequence[ManifestFileMeta]
    """The manifests that were read."""
    partitions: Sequence[bytes]
    """The distinct serialized partitions."""
    partition_codes: Int32Array
    """The indices of ``partitions``."""
    buckets: Int64Array
    total_buckets: Int64Array
    levels: Int64Array
    file_sizes: Int64Array
    row_counts: Int64Array
    delete_row_counts: Int64Array
    """The numbers of retracting rows, or :data:`UNKNOWN`."""
    min_sequence_numbers: Int64Array
    max_sequence_numbers: Int64Array
    creation_times: Int64Array
    """Epoch milliseconds of the writers' local time, or :data:`NO_TIME`."""
    schema_ids: Int64Array
    sources: Int8Array
    """:class:`FileSource`, or :data:`UNKNOWN`."""
    manifest_codes: Int32Array
    positions: Int64Array
    names: pa.StringArray | None = None
    """The file names, if they were requested."""
    indexed: Mask | None = None
    """Which files have a file index, if this was requested."""
    first_row_ids: Int64Array | None = None
    """The ids of the first rows, or :data:`UNKNOWN`, if they were requested."""
    min_keys: UInt64Array | None = None
    """The prefixes of the smallest keys (:func:`encode_key_prefixes`), if they were requested."""
    max_keys: UInt64Array | None = None
    """The prefixes of the largest keys."""

    def __len__(self) -> int:
        return len(self.buckets)

    def take(self, rows: Indices) -> "LiveFiles":
        """Return some of the files; they keep the dictionary of partitions."""
        columns = {name: getattr(self, name)[rows] for name in _ARRAYS}
        optional = {name: getattr(self, name) for name in _OPTIONAL_ARRAYS}
        columns |= {name: column[rows] for name, column in optional.items() if column is not None}
        names = None if self.names is None else self.names.take(to_arrow_array(rows))
        return replace(self, **columns, names=names)

    def sort(self) -> "LiveFiles":
        """Return the files in the order of the manifests, with only their partitions."""
        files = self.take(np.lexsort((np.abs(self.positions), self.manifest_codes)))
        used, first = np.unique(files.partition_codes, return_index=True)
        used = used[np.argsort(first)]
        codes = np.zeros(len(self.partitions), np.int32)
        codes[used] = np.arange(len(used))
        return replace(
            files,
            partitions=[self.partitions[code] for code in used.tolist()],
            partition_codes=codes[files.partition_codes],
        )

    def to_table(self) -> pa.Table:
        """Return the columns as an Arrow table, without ``manifests``; keys become two columns."""
        partitions = pa.array(self.partitions, pa.binary())
        columns = {"partition": partitions.take(to_arrow_array(self.partition_codes))}
        for name in (*_ARRAYS, *_OPTIONAL_ARRAYS):
            values = getattr(self, name)
            if values is None or name == "partition_codes":
                continue
            if values.ndim == 1:
                columns[name] = to_arrow_array(values)
            else:
                words = values.T.copy()
                columns |= {
                    f"{name}_{number}": to_arrow_array(word) for number, word in enumerate(words)
                }
        if self.names is not None:
            columns["names"] = self.names
        return pa.table(columns)

    @classmethod
    def from_table(cls, table: pa.Table, manifests: Sequence[ManifestFileMeta]) -> "LiveFiles":
        """Return the columns of a table of :meth:`to_table`; other columns are ignored."""
        table = table.combine_chunks()
        encoded = pa.concat_arrays(table["partition"].chunks or [pa.array([], pa.binary())])
        encoded = encoded.dictionary_encode()
        required: dict[str, Any] = {
            name: to_numpy(table[name]) for name in _ARRAYS if name != "partition_codes"
        }
        optional: dict[str, Any] = {}
        for name in _OPTIONAL_ARRAYS:
            if name in table.schema.names:
                optional[name] = to_numpy(table[name])
            elif f"{name}_0" in table.schema.names:
                words = [to_numpy(table[f"{name}_{number}"]) for number in range(2)]
                optional[name] = np.stack(words, axis=1)
        names = None
        if "names" in table.schema.names:
            names = pa.concat_arrays(table["names"].chunks or [pa.nulls(0, pa.string())])
        return cls(
            manifests=manifests,
            partitions=encoded.dictionary.to_pylist(),
            partition_codes=to_numpy(encoded.indices),
            **required,
            **optional,
            names=names,
        )

    def group_by_bucket(self) -> "BucketGroups":
        """Group the files by bucket; buckets are in the order of their first file."""
        order = np.lexsort((self.buckets, self.partition_codes))
        codes, buckets = self.partition_codes[order], self.buckets[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (codes[1:] != codes[:-1]) | (buckets[1:] != buckets[:-1])
        starts = np.flatnonzero(is_first)
        lengths = np.diff(np.append(starts, len(order)))
        # lexsort is stable, so the first file of a group has the lowest index
        by_first = np.argsort(order[starts], kind="stable")
        starts, lengths = starts[by_first], lengths[by_first]
        return BucketGroups(files=self, rows=order[_expand(starts, lengths)], lengths=lengths)


_OPTIONAL_ARRAYS = ("indexed", "first_row_ids", "min_keys", "max_keys")
_ARRAYS = [
    column.name
    for column in fields(LiveFiles)
    if column.name not in ("manifests", "partitions", "names", *_OPTIONAL_ARRAYS)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketGroups:
    """Live files by bucket: ``rows`` are the files of the first bucket, then of the second, ..."""

    files: LiveFiles
    rows: Indices
    lengths: Indices
    """The number of files of each bucket."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> Indices:
        """Return where each bucket starts in ``rows``."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def first_rows(self) -> Indices:
        """Return the first file of each bucket."""
        return self.rows[self.starts]

    @property
    def partition_codes(self) -> Int32Array:
        """Return the partition of each bucket."""
        return self.files.partition_codes[self.first_rows]

    @property
    def buckets(self) -> Int64Array:
        """Return the number of each bucket in its partition."""
        return self.files.buckets[self.first_rows]

    def sum(self, values: Int64Array) -> Int64Array:
        """Return the sums, by bucket, of values that have one item per file."""
        if not len(self):
            return np.zeros(0, np.int64)
        sums: Int64Array = np.add.reduceat(values[self.rows], self.starts, dtype=np.int64)
        return sums

    def max(self, values: Int64Array) -> Int64Array:
        """Return the maxima, by bucket, of values that have one item per file."""
        if not len(self):
            return np.zeros(0, np.int64)
        maxima: Int64Array = np.maximum.reduceat(values[self.rows], self.starts)
        return maxima

    def list_buckets(self) -> list[PartitionBucket]:
        """Return the partition and number of each bucket."""
        partitions = self.files.partitions
        pairs = zip(self.partition_codes.tolist(), self.buckets.tolist(), strict=True)
        return [PartitionBucket(partitions[code], bucket) for code, bucket in pairs]

    def take(self, groups: Indices) -> "BucketGroups":
        """Return some of the buckets; ``files`` remain the same."""
        lengths = self.lengths[groups]
        return replace(self, rows=self.rows[_expand(self.starts[groups], lengths)], lengths=lengths)

    def split(self) -> Iterator[Indices]:
        """Yield the files of each bucket."""
        ends = np.cumsum(self.lengths).tolist()
        start = 0
        for end in ends:
            yield self.rows[start:end]
            start = end


def _expand(starts: Indices, lengths: Indices) -> Indices:
    """Return the numbers from each start, as many as its length."""
    offsets = np.cumsum(lengths) - lengths
    return np.repeat(starts - offsets, lengths) + np.arange(int(lengths.sum()))


def collect_live_files(
    manifests: Sequence[ManifestFileMeta],
    live: Iterable[tuple[int, Manifest, Indices]],
    *,
    with_names: bool = False,
    with_indexed: bool = False,
    with_row_ids: bool = False,
    key_types: Sequence[DataType] | None = None,
) -> LiveFiles:
    """Return the columns of the live ``rows`` of manifests, which are released one by one.

    ``live`` yields the index of a manifest in ``manifests``, its entries and the rows. With
    ``key_types``, prefixes of the key bounds are included. The columns ``names``, ``indexed`` and
    ``first_row_ids`` are included on request.
    """
    collector = _LiveFileCollector(
        with_names=with_names,
        with_indexed=with_indexed,
        with_row_ids=with_row_ids,
        key_types=key_types,
    )
    for number, manifest, rows in live:
        if len(rows):
            collector.add(number, manifest, rows)
    return collector.build(manifests)


# An unknown bound is below or above all keys.
_KEYS = {"min_keys": ("_MIN_KEY", 0), "max_keys": ("_MAX_KEY", np.iinfo(np.uint64).max)}


_DTYPES = {"partition_codes": np.int32, "manifest_codes": np.int32, "sources": np.int8}
_FIELDS = {
    "file_sizes": ("_FILE_SIZE", 0),
    "row_counts": ("_ROW_COUNT", 0),
    "delete_row_counts": ("_DELETE_ROW_COUNT", UNKNOWN),
    "min_sequence_numbers": ("_MIN_SEQUENCE_NUMBER", 0),
    "max_sequence_numbers": ("_MAX_SEQUENCE_NUMBER", 0),
    "creation_times": ("_CREATION_TIME", NO_TIME),
    "schema_ids": ("_SCHEMA_ID", 0),
    "sources": ("_FILE_SOURCE", UNKNOWN),
}


@dataclass(slots=True, kw_only=True)
class _LiveFileCollector:
    """Collects the columns of live files, manifest by manifest; see :func:`collect_live_files`."""

    with_names: bool
    with_indexed: bool
    with_row_ids: bool
    key_types: Sequence[DataType] | None
    _codes: dict[bytes, int] = field(default_factory=dict)
    _parts: dict[str, list[AnyArray]] = field(
        default_factory=lambda: {name: [np.zeros(0, np.int64)] for name in _ARRAYS}
    )
    _names: list[pa.Array] = field(default_factory=lambda: [pa.nulls(0, pa.string())])
    _indexed: list[Mask] = field(default_factory=lambda: [np.zeros(0, bool)])
    _row_ids: list[Int64Array] = field(default_factory=lambda: [np.zeros(0, np.int64)])
    _keys: dict[str, list[UInt64Array]] = field(
        default_factory=lambda: {name: [np.zeros((0, 2), np.uint64)] for name in _KEYS}
    )

    def add(self, number: int, manifest: Manifest, rows: Indices) -> None:
        """Add rows of the manifest with an index."""
        for name, values in _read_columns(manifest, rows).items():
            self._parts[name].append(values)
        distinct, local = manifest.encode_partitions()
        used, local = np.unique(local[rows], return_inverse=True)
        # np.unique sorts by local code, which is the order of the first entry
        mapped = [
            self._codes.setdefault(distinct[code], len(self._codes)) for code in used.tolist()
        ]
        self._parts["partition_codes"].append(np.array(mapped, np.int32)[local])
        self._parts["manifest_codes"].append(np.full(len(rows), number, np.int32))
        if self.with_names:
            names = manifest.names
            self._names.append(pa.array([names[row] for row in rows.tolist()], pa.string()))
        if self.with_indexed:
            self._indexed.append(manifest.find_indexed_files()[rows])
        if self.with_row_ids:
            self._row_ids.append(manifest.read_file_numbers("_FIRST_ROW_ID", UNKNOWN)[rows])
        if self.key_types is not None:
            for name, (key_field, unknown) in _KEYS.items():
                bounds = manifest.read_file_bytes(key_field, rows)
                prefixes = encode_key_prefixes(bounds, self.key_types, unknown=unknown)
                self._keys[name].append(prefixes)

    def build(self, manifests: Sequence[ManifestFileMeta]) -> LiveFiles:
        """Return the columns; the parts of one are released before the next one is built."""
        columns: dict[str, Any] = {}
        for name in _ARRAYS:
            dtype = _DTYPES.get(name, np.int64)
            columns[name] = np.concatenate(self._parts.pop(name)).astype(dtype)
        has_keys = self.key_types is not None
        return LiveFiles(
            manifests=manifests,
            partitions=list(self._codes),
            **columns,
            names=pa.concat_arrays(self._names) if self.with_names else None,
            indexed=np.concatenate(self._indexed) if self.with_indexed else None,
            first_row_ids=np.concatenate(self._row_ids) if self.with_row_ids else None,
            min_keys=np.concatenate(self._keys["min_keys"]) if has_keys else None,
            max_keys=np.concatenate(self._keys["max_keys"]) if has_keys else None,
        )


def _read_columns(manifest: Manifest, rows: Indices) -> dict[str, AnyArray]:
    columns = {
        "buckets": manifest.buckets[rows],
        "total_buckets": manifest.total_buckets[rows],
        "levels": manifest.levels[rows],
        "positions": manifest.positions[rows],
    }
    for name, (file_field, null) in _FIELDS.items():
        columns[name] = manifest.read_file_numbers(file_field, null)[rows]
    sources = columns["sources"]
    is_known = (sources >= 0) & (sources <= np.iinfo(np.int8).max)
    columns["sources"] = np.where(is_known, sources, UNKNOWN).astype(np.int8)
    return columns
