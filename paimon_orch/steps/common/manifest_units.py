"""Reads manifests in work units, and sends their entries to parts by bucket.

A part has all entries of its buckets, so that it can be judged without the others: an ADD entry and
its DELETE entry are in the same part, whichever manifests have them. Entries are exchanged as Arrow
tables.
"""

import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_orch.errors import wrap_decode_errors
from paimon_orch.format.arrays import AnyArray, Indices, to_arrow_array, to_numpy
from paimon_orch.format.manifest.columnar_manifest import ColumnarManifest, Manifest
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.row.binary_row import EMPTY_ROW

_ENTRIES_PER_PART = 150_000
_MAX_PARTS = 256  # a manifest list can state any number of entries
_ENTRIES_PER_UNIT = 200_000
_MANIFESTS_PER_UNIT = 64
_BUCKET_FACTOR = 40_503  # spreads the buckets of a partition over the parts
_BUCKETS_TOGETHER = 16
"""Partitions with up to this many buckets are not split, because parts also report partitions."""
_LIST_SEPARATOR = "\0"  # file names cannot contain it

IDENTITY_FIELDS = (
    ("name", pa.string()),
    ("extra_files", pa.string()),
    ("embedded_index", pa.binary()),
    ("external_path", pa.string()),
)
"""With the bucket and the level, these identify a file; ``embedded_index`` is a digest."""


@dataclass(frozen=True, slots=True)
class EntryUnit:
    """Manifests to read; the numbers are their indices in the caller's list."""

    manifests: tuple[tuple[int, ManifestFileMeta], ...]


def count_entries(metas: Iterable[ManifestFileMeta]) -> int:
    """Return the number of entries of manifests."""
    return sum(meta.num_added_files + meta.num_deleted_files for meta in metas)


def count_parts(metas: Iterable[ManifestFileMeta]) -> int:
    """Return the number of parts for the entries of manifests."""
    return max(1, min(-(-count_entries(metas) // _ENTRIES_PER_PART), _MAX_PARTS))


def split_manifests(
    manifests: Iterable[tuple[int, ManifestFileMeta]], max_manifests: int = _MANIFESTS_PER_UNIT
) -> Iterator[EntryUnit]:
    """Yield units with similar numbers of entries and a limited number of manifests."""
    batch: list[tuple[int, ManifestFileMeta]] = []
    entries = 0
    for number, meta in manifests:
        batch.append((number, meta))
        entries += count_entries([meta])
        if entries >= _ENTRIES_PER_UNIT or len(batch) == max_manifests:
            yield EntryUnit(tuple(batch))
            batch, entries = [], 0
    if batch:
        yield EntryUnit(tuple(batch))


def compute_part(partition: bytes, bucket: int, parts: int) -> int:
    """Return the part of a bucket."""
    [part] = compute_parts([partition], np.zeros(1, np.int64), np.array([bucket]), parts).tolist()
    return int(part)


def compute_parts(
    partitions: Sequence[bytes], codes: Indices, buckets: Indices, parts: int
) -> Indices:
    """Return the part of the bucket of each entry; ``codes`` are indices of ``partitions``."""
    hashes = np.fromiter(map(zlib.crc32, partitions), np.int64, len(partitions))
    together = [1 if partition == EMPTY_ROW else _BUCKETS_TOGETHER for partition in partitions]
    groups = buckets // np.array(together, np.int64)[codes]
    part_codes: Indices = (hashes[codes] + groups * _BUCKET_FACTOR) % parts
    return part_codes


def split_by_part(table: pa.Table, parts: Indices) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each part."""
    if not len(parts):
        return
    order = np.argsort(parts, kind="stable")
    bounds = np.flatnonzero(np.diff(parts[order], prepend=-1)).tolist()
    ordered = table if len(bounds) == 1 else table.take(pa.array(order))
    for start, end in zip(bounds, [*bounds[1:], len(order)], strict=True):
        yield int(parts[order[start]]), ordered.slice(start, end - start)


def encode_table(table: pa.Table) -> bytes:
    """Serialize a table."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()


def decode_table(data: bytes) -> pa.Table:
    """Return a serialized table."""
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()


def read_identity_columns(manifest: Manifest) -> dict[str, Sequence[Any]]:
    """Return the columns :data:`IDENTITY_FIELDS` of all entries."""
    manifest.extra_file_names()  # checks the names
    get = build_field_getter(manifest)
    return {
        "name": manifest.names,
        "extra_files": [
            _LIST_SEPARATOR.join(names) if names else None for names in get("_EXTRA_FILES")
        ],
        "embedded_index": [
            None if data is None else sha256(data).digest() for data in get("_EMBEDDED_FILE_INDEX")
        ],
        "external_path": get("_EXTERNAL_PATH"),
    }


def split_file_names(text: str) -> list[str]:
    """Return the extra files of an entry."""
    return text.split(_LIST_SEPARATOR)


def build_field_getter(manifest: Manifest) -> Callable[[str], Sequence[Any]]:
    """Return a function that returns a field of all data files that is not a number."""
    if not isinstance(manifest, ColumnarManifest):
        files = [entry.file for entry in manifest.entries()]
        attributes = {"_EMBEDDED_FILE_INDEX": "embedded_index"}
        return lambda name: [
            getattr(file, attributes.get(name, name[1:].lower())) for file in files
        ]

    def get(name: str) -> Sequence[Any]:
        column = manifest.columns.get(f"_FILE.{name}")
        if column is None:
            return [None] * len(manifest)
        with wrap_decode_errors(manifest.path):
            if column.item_type is not None:
                return column.arrays(manifest.data)
            return column.slices(manifest.data)

    return get


def to_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the chunks of a column as one array."""
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        combined = (
            pa.concat_arrays(combined.chunks) if combined.num_chunks else pa.array([], column.type)
        )
    return combined


def combine_codes(codes: AnyArray, values: pa.ChunkedArray | pa.Array) -> Indices:
    """Return numbers that are equal where the codes and the values are equal, without gaps."""
    array = to_array(values) if isinstance(values, pa.ChunkedArray) else values
    encoded = array.dictionary_encode("encode")
    size = len(encoded.dictionary)
    if size <= 1 and codes.dtype == np.int64:
        return codes
    combined = codes.astype(np.int64) * max(1, size) + to_numpy(encoded.indices)
    distinct = to_arrow_array(combined).dictionary_encode()
    indices: Indices = to_numpy(distinct.indices).astype(np.int64)
    return indices
