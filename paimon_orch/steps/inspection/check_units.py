"""Reads the manifests of a check in work units, and sends their entries to parts by bucket.

A part has the entries of its buckets in all versions, at about 150 bytes per entry before
compression.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from paimon_orch.errors import MissingFileError, PaimonError, raise_if_temporary, wrap_decode_errors
from paimon_orch.format.arrays import AnyArray, UInt64Array
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.index_manifest import DELETION_VECTORS_INDEX
from paimon_orch.format.manifest.live_files import UNKNOWN
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.types.data_types import DataType
from paimon_orch.steps.common.manifest_units import (
    IDENTITY_FIELDS,
    EntryUnit,
    build_field_getter,
    compute_part,
    compute_parts,
    decode_table,
    encode_table,
    read_identity_columns,
    split_by_part,
)
from paimon_orch.steps.inspection.manifest_summaries import build_summary_check
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.metadata.manifest_io import ManifestReader

_HASH_SEED, _HASH_FACTOR = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9

_ENTRY_SCHEMA = pa.schema(
    [
        ("manifest", pa.int32()),
        ("row", pa.int32()),
        ("kind", pa.int8()),
        ("partition", pa.binary()),
        ("bucket", pa.int64()),
        ("total_buckets", pa.int64()),
        ("level", pa.int64()),
        *IDENTITY_FIELDS,
        ("file_size", pa.int64()),
        ("row_count", pa.int64()),
        ("first_row_id", pa.int64()),
        ("max_sequence", pa.int64()),
        ("min_key", pa.binary()),
        ("max_key", pa.binary()),
    ]
)
"""``row`` is the index of the entry in its manifest; the keys of files on level 0 are null, because
nothing compares them."""

_RANGE_SCHEMA = pa.schema(
    [
        ("manifest", pa.int32()),
        ("item", pa.int32()),
        ("position", pa.int32()),
        ("index_file", pa.string()),
        ("partition", pa.binary()),
        ("bucket", pa.int64()),
        ("data_file", pa.string()),
        ("cardinality", pa.int64()),
    ]
)
"""Deletion vectors: ``item`` is the index of the index file in its index manifest."""


_FORMATS, _CONTRADICTIONS = "formats", "contradictions"


@dataclass(frozen=True, slots=True)
class DeletionVectorUnit:
    """Index manifests whose deletion vectors are compared with data files."""

    index_manifests: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartContent:
    """What units read for the buckets of one part."""

    entries: pa.Table
    vectors: pa.Table
    failures: dict[int, tuple[bool, str]]
    """The errors of unreadable manifests, and whether the manifest is missing."""
    formats: dict[int, str]
    """The file formats of manifests; the first part has all of them."""
    contradictions: dict[int, str]
    """How lists contradict the entries of manifests; the first part has all of them."""


def read_units(
    reader: ManifestReader,
    unit: EntryUnit | DeletionVectorUnit,
    parts: int,
    name_hashes: UInt64Array | None = None,
    partition_types: Sequence[DataType] = (),
) -> list[tuple[int, bytes]]:
    """Read a unit's manifests and return pieces by part.

    Errors are sent to all parts. ``name_hashes`` selects the entries of some file names, which are
    not compared with their lists.
    """
    if isinstance(unit, DeletionVectorUnit):
        return _read_deletion_vectors(reader, unit, parts)
    pieces: list[list[pa.Table]] = [[] for _ in range(parts)]
    failures: dict[int, tuple[bool, str]] = {}
    formats: dict[int, str] = {}
    contradictions: dict[int, str] = {}
    find_contradiction = build_summary_check(partition_types)
    opened = map_concurrently(reader.io, partial(_try_open, reader), unit.manifests)
    for (number, meta), (manifest, failure) in zip(unit.manifests, opened, strict=True):
        try:
            if failure is not None:
                raise failure
            assert manifest is not None
            table = _build_entry_table(manifest, number)
        except PaimonError as error:
            raise_if_temporary(error)
            failures[number] = (isinstance(error, MissingFileError), str(error))
            continue
        formats[number] = manifest.format
        if name_hashes is None and (text := find_contradiction(meta, manifest)) is not None:
            contradictions[number] = text
        codes = compute_parts(*manifest.encode_partitions(), manifest.buckets, parts)
        if name_hashes is not None:
            wanted = np.isin(hash_names(manifest.names), name_hashes)
            table, codes = table.filter(pa.array(wanted)), codes[wanted]
        for part, rows in split_by_part(table, codes):
            pieces[part].append(rows)
    results = [
        (part, encode_table(pa.concat_tables(tables)))
        for part, tables in enumerate(pieces)
        if tables
    ]
    if name_hashes is None:
        notes = {_FORMATS: formats, _CONTRADICTIONS: contradictions}
        results.append((0, json.dumps(notes).encode()))
    if failures:
        results += [(part, json.dumps(failures).encode()) for part in range(parts)]
    return results


def _try_open(
    reader: ManifestReader, item: tuple[int, ManifestFileMeta]
) -> tuple[Manifest | None, PaimonError | None]:
    """Read a manifest; return the error if that fails."""
    try:
        return reader.open(item[1]), None
    except PaimonError as error:
        return None, error


def decode_pieces(pieces: Iterable[bytes]) -> PartContent:
    """Combine the pieces of a part."""
    tables: dict[bool, list[pa.Table]] = {True: [], False: []}
    failures, formats = dict[int, tuple[bool, str]](), dict[int, str]()
    contradictions = dict[int, str]()
    for piece in pieces:
        if piece[:1] == b"{":
            values = json.loads(piece)
            for key, notes in ((_FORMATS, formats), (_CONTRADICTIONS, contradictions)):
                notes |= {int(number): text for number, text in values.pop(key, {}).items()}
            for number, (is_missing, text) in values.items():
                failures[int(number)] = (is_missing, text)
            continue
        table = decode_table(piece)
        tables[table.schema.names == _ENTRY_SCHEMA.names].append(table)
    return PartContent(
        entries=pa.concat_tables([_ENTRY_SCHEMA.empty_table(), *tables[True]]).combine_chunks(),
        vectors=pa.concat_tables([_RANGE_SCHEMA.empty_table(), *tables[False]]).combine_chunks(),
        failures=failures,
        formats=formats,
        contradictions=contradictions,
    )


def hash_names(names: Sequence[str]) -> UInt64Array:
    """Return a hash of each file name that is equal in all processes."""
    if not len(names):
        return np.zeros(0, np.uint64)
    values = np.array([name.encode(errors="surrogatepass") for name in names], np.bytes_)
    width = -(-max(1, values.dtype.itemsize) // 8) * 8
    words = values.astype(f"S{width}").view(np.uint64).reshape(len(names), width // 8)
    hashes = np.full(len(names), _HASH_SEED, np.uint64)
    for column in words.T:
        hashes = (hashes ^ column) * np.uint64(_HASH_FACTOR)
        hashes ^= hashes >> np.uint64(29)
    return hashes


def _build_entry_table(manifest: Manifest, number: int) -> pa.Table:
    get = build_field_getter(manifest)
    has_keys = manifest.levels > 0
    distinct, codes = manifest.encode_partitions()
    columns = {
        "manifest": np.full(len(manifest), number, np.int32),
        "row": np.arange(len(manifest), dtype=np.int32),
        "kind": manifest.kinds.astype(np.int8),
        "partition": pa.array(distinct, pa.binary()).take(pa.array(codes)),
        "bucket": manifest.buckets,
        "total_buckets": manifest.total_buckets,
        "level": manifest.levels,
        **read_identity_columns(manifest),
        "file_size": manifest.read_file_numbers("_FILE_SIZE"),
        "row_count": manifest.read_file_numbers("_ROW_COUNT"),
        "first_row_id": manifest.read_file_numbers("_FIRST_ROW_ID", UNKNOWN),
        "max_sequence": manifest.read_file_numbers("_MAX_SEQUENCE_NUMBER"),
        "min_key": _mask_values(get("_MIN_KEY"), has_keys),
        "max_key": _mask_values(get("_MAX_KEY"), has_keys),
    }
    with wrap_decode_errors(getattr(manifest, "path", "")):
        for name in ("_VALUE_STATS_COLS", "_WRITE_COLS"):
            get(name)  # readers need these names, so they must be valid text
        arrays = [
            column
            if isinstance(column, pa.Array)
            else pa.array(column, _ENTRY_SCHEMA.field(name).type)
            for name, column in columns.items()
        ]
    return pa.Table.from_arrays(arrays, schema=_ENTRY_SCHEMA)


def _mask_values(values: Sequence[bytes], valid: AnyArray) -> list[bytes | None]:
    return [
        value if is_valid else None for value, is_valid in zip(values, valid.tolist(), strict=True)
    ]


def _read_deletion_vectors(
    reader: ManifestReader, unit: DeletionVectorUnit, parts: int
) -> list[tuple[int, bytes]]:
    rows: list[list[tuple[object, ...]]] = [[] for _ in range(parts)]
    for number, name in unit.index_manifests:
        for item_number, item in enumerate(reader.index_manifest(name)):
            if item.index_type != DELETION_VECTORS_INDEX:
                continue
            part = compute_part(item.partition, item.bucket, parts)
            rows[part] += [
                (
                    number, item_number, position, item.file_name, item.partition, item.bucket,
                    vector.data_file, vector.cardinality,
                )
                for position, vector in enumerate(item.ranges or ())
            ]  # fmt: skip
    return [
        (
            part,
            encode_table(
                pa.Table.from_arrays(
                    [
                        pa.array(values, column.type)
                        for values, column in zip(
                            zip(*part_rows, strict=True), _RANGE_SCHEMA, strict=True
                        )
                    ],
                    schema=_RANGE_SCHEMA,
                )
            ),
        )
        for part, part_rows in enumerate(rows)
        if part_rows
    ]
