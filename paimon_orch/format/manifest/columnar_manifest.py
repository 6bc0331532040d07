"""Manifests as columns: decodes all records of an Avro manifest together, field by field.

Avro stores no record lengths. Candidates are positions that look like the start of an entry; a
record is decoded at each of them. The result is valid if records follow each other without a gap
from the first byte to the last, and each block has the number of records in its header. Otherwise
the manifest is decoded record by record.
"""

import io
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from paimon_orch.errors import CorruptFileError, PaimonError, wrap_decode_errors
from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.format.bytes.binary_batch import BinaryBatch
from paimon_orch.format.manifest.additional_fields import (
    AdditionalFields,
    FieldDefinition,
    find_unknown_fields,
)
from paimon_orch.format.manifest.avro_batch_decoder import (
    AVRO_PADDING,
    AvroBatchDecoder,
    AvroColumn,
    UnexpectedAvroError,
    find_record_type,
    is_column_type,
)
from paimon_orch.format.manifest.avro_blocks import AVRO_MAGIC, AvroContainer
from paimon_orch.format.manifest.manifest_entry import (
    MANIFEST_FIELDS,
    MANIFEST_SCHEMA,
    MANIFEST_VERSION,
    DataFileMeta,
    FileKind,
    ManifestEntry,
    check_file_names,
    check_level,
    decode_manifest,
)
from paimon_orch.format.manifest.manifest_format import find_format
from paimon_orch.format.row.simple_stats import SimpleStats

T = TypeVar("T")

_MIN_COLUMNAR_BYTES = 16_384  # below this size, decoding record by record is as fast

_FILE_PREFIX = "_FILE."
_ENTRY_START = ["_VERSION", "_KIND", "_PARTITION"]
_WIDENED_TYPES = {"int": "long"}
_MILLIS_LOGICAL_TYPES = (None, "timestamp-millis", "local-timestamp-millis")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarManifest:
    """The entries of one manifest as columns; objects are built only for requested entries.

    ``kinds``, ``buckets``, ``levels`` and ``names`` (of data files) have one item per entry.
    ``positions`` are where the entries start in ``data``, the content of all blocks.
    ``columns`` are all fields by dotted path. ``unknown`` are the definitions of unknown fields.
    """

    path: str
    positions: Indices = field(repr=False)
    kinds: Indices
    buckets: Indices
    levels: Indices
    names: Sequence[str] = field(repr=False)
    data: bytes = field(repr=False)
    columns: Mapping[str, AvroColumn] = field(repr=False)
    unknown: Mapping[str, FieldDefinition] = field(repr=False)

    @property
    def format(self) -> str:
        """Return the only file format that is decoded as columns."""
        return "avro"

    @classmethod
    def decode(cls, data: bytes, path: str) -> "ColumnarManifest | None":
        """Decode a manifest; return None if it is not Avro or record boundaries are uncertain."""
        try:
            with wrap_decode_errors(path):
                container = _open_container(data)
                if container is None:
                    return None
                decoded = _decode_columns(container)
                return None if decoded is None else cls._of(path, container, *decoded)
        except (PaimonError, UnexpectedAvroError):
            # decode_manifest then decodes the file, and reports an error if it is damaged
            return None

    @classmethod
    def decode_at(cls, data: bytes, path: str, positions: Indices) -> "ColumnarManifest":
        """Decode the entries at some of the ``positions`` of a manifest that was decoded before."""
        with wrap_decode_errors(path):
            container = _open_container(data)
            if container is None:
                raise CorruptFileError(path, "was replaced while it was read")
            _, columns = AvroBatchDecoder(container.content).walk(container.schema, positions)
            return cls._of(path, container, positions, columns)

    @classmethod
    def _of(
        cls,
        path: str,
        container: "_Container",
        positions: Indices,
        columns: Mapping[str, AvroColumn],
    ) -> "ColumnarManifest":
        data = container.content
        kinds, buckets = columns["_KIND"].values, columns["_BUCKET"].values
        levels = columns["_FILE._LEVEL"].values
        names = [part.decode() for part in columns["_FILE._FILE_NAME"].slices(data)]
        check_file_names(names, path)
        check_level(int(levels.min(initial=0)))
        return cls(
            path=path,
            positions=positions,
            kinds=kinds,
            buckets=buckets,
            levels=levels,
            names=names,
            data=data,
            columns=columns,
            unknown=container.unknown,
        )

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def total_buckets(self) -> Indices:
        """Return the number of buckets of the partition of every entry."""
        return self.columns["_TOTAL_BUCKETS"].values

    def partitions(self) -> list[bytes]:
        """Return the serialized partition of every entry; equal partitions share one object."""
        distinct: dict[bytes, bytes] = {}
        parts = self.columns["_PARTITION"].slices(self.data)
        return [distinct.setdefault(part, part) for part in parts]

    def encode_partitions(self) -> tuple[list[bytes], Indices]:
        """Return the distinct serialized partitions, and the index of the one of every entry."""
        return _encode_dictionary(self.columns["_PARTITION"].slices(self.data))

    def read_file_numbers(self, name: str, null: int = 0) -> Indices:
        """Return a field of every data file; ``null`` replaces null and fields that are missing."""
        column = self.columns.get(_FILE_PREFIX + name)
        if column is None:
            return np.full(len(self), null, np.int64)
        if column.valid is None:
            return column.values
        return np.where(column.valid, column.values, null)

    def read_file_bytes(self, name: str, rows: Indices) -> BinaryBatch:
        """Return a binary field of some data files that is never null."""
        column = self.columns[_FILE_PREFIX + name]
        assert column.ends is not None
        starts = column.values[rows]
        return BinaryBatch(np.frombuffer(self.data, np.uint8), starts, column.ends[rows] - starts)

    def find_indexed_files(self) -> Mask:
        """Return which data files have a file index, embedded or in an extra file."""
        with wrap_decode_errors(self.path):
            groups = self.columns["_FILE._EXTRA_FILES"].arrays(self.data)
            has_index = np.array([has_index_file(names or ()) for names in groups], bool)
            embedded = self.columns.get("_FILE._EMBEDDED_FILE_INDEX")
            if embedded is None:
                return has_index
            return has_index | (True if embedded.valid is None else embedded.valid)

    def extra_file_names(self) -> list[str]:
        """Return the distinct names of extra files of data files."""
        with wrap_decode_errors(self.path):
            groups = set(self.columns["_FILE._EXTRA_FILES"].arrays(self.data))
            names = list(dict.fromkeys(name for group in groups for name in group or ()))
            check_file_names(names, self.path)
            return names

    def entries(self, rows: Indices | None = None) -> list[ManifestEntry]:
        """Return the entries, or some of them in ascending order, as objects."""
        with wrap_decode_errors(self.path):
            return _build_entries(self if rows is None else self._take(rows))

    def _take(self, rows: Indices) -> "ColumnarManifest":
        if len(rows) == len(self):
            return self
        return ColumnarManifest(
            path=self.path,
            positions=self.positions[rows],
            kinds=self.kinds[rows],
            buckets=self.buckets[rows],
            levels=self.levels[rows],
            names=[self.names[row] for row in rows.tolist()],
            data=self.data,
            columns={name: column.take(rows) for name, column in self.columns.items()},
            unknown=self.unknown,
        )


class DecodedManifest:
    """The entries of a manifest that was not decoded as columns, with the same interface.

    ``positions`` are negative: -1 is the first entry, -2 the second.
    """

    def __init__(self, entries: Sequence[ManifestEntry], file_format: str = "avro") -> None:
        self._entries, self.format = entries, file_format
        self.positions = -1 - np.arange(len(entries))
        self.total_buckets = np.array([entry.total_buckets for entry in entries], np.int64)
        self.kinds = np.array([entry.kind for entry in entries], np.int64)
        self.buckets = np.array([entry.bucket for entry in entries], np.int64)
        self.levels = np.array([entry.file.level for entry in entries], np.int64)
        self.names = [entry.file.file_name for entry in entries]

    def __len__(self) -> int:
        return len(self._entries)

    def partitions(self) -> list[bytes]:
        """Return the serialized partition of every entry."""
        return [entry.partition for entry in self._entries]

    def encode_partitions(self) -> tuple[list[bytes], Indices]:
        """Return the distinct serialized partitions, and the index of the one of every entry."""
        return _encode_dictionary(self.partitions())

    def read_file_numbers(self, name: str, null: int = 0) -> Indices:
        """Return a field of every data file; ``null`` replaces null."""
        values = map(attrgetter(name[1:].lower()), (entry.file for entry in self._entries))
        return np.array([null if value is None else value for value in values], np.int64)

    def read_file_bytes(self, name: str, rows: Indices) -> BinaryBatch:
        """Return a binary field of some data files that is never null."""
        files = (self._entries[row].file for row in rows.tolist())
        return BinaryBatch.of([getattr(file, name[1:].lower()) for file in files])

    def find_indexed_files(self) -> Mask:
        """Return which data files have a file index, embedded or in an extra file."""
        files = (entry.file for entry in self._entries)
        indexed = [f.embedded_index is not None or has_index_file(f.extra_files) for f in files]
        return np.array(indexed, bool)

    def extra_file_names(self) -> list[str]:
        """Return the distinct names of extra files of data files."""
        groups = {entry.file.extra_files for entry in self._entries}
        return list(dict.fromkeys(name for group in groups for name in group))

    def entries(self, rows: Indices | None = None) -> list[ManifestEntry]:
        """Return the entries, or some of them."""
        if rows is None:
            return list(self._entries)
        return [self._entries[row] for row in rows.tolist()]


Manifest = ColumnarManifest | DecodedManifest


def has_index_file(extra_files: Iterable[str]) -> bool:
    """Return whether one of the extra files of a data file is its file index."""
    return any(name.endswith(".index") for name in extra_files)


def open_manifest(data: bytes, path: str) -> Manifest:
    """Decode a manifest, as columns if possible. Error messages contain ``path``."""
    columns = ColumnarManifest.decode(data, path) if len(data) >= _MIN_COLUMNAR_BYTES else None
    if columns is not None:
        return columns
    return DecodedManifest(decode_manifest(data, path), find_format(data))


def read_entries_at(data: bytes, path: str, positions: Indices) -> list[ManifestEntry]:
    """Return the entries at some of the ``positions`` of a manifest that was opened before."""
    if not len(positions):
        return []
    if positions[0] < 0:
        return DecodedManifest(decode_manifest(data, path)).entries(-1 - positions)
    return ColumnarManifest.decode_at(data, path, positions).entries()


def _encode_dictionary(values: Sequence[bytes]) -> tuple[list[bytes], Indices]:
    codes: dict[bytes, int] = {}
    indices = [codes.setdefault(value, len(codes)) for value in values]
    return list(codes), np.array(indices, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Container:
    """An Avro file with an entry schema: the content of all blocks, their counts and sizes."""

    content: bytes
    """The blocks, and :data:`AVRO_PADDING`."""
    counts: Indices
    sizes: Indices
    schema: Any
    unknown: Mapping[str, FieldDefinition]


def _open_container(data: bytes) -> _Container | None:
    """Decompress a manifest; return None if its schema is not supported."""
    if data[: len(AVRO_MAGIC)] != AVRO_MAGIC:
        return None
    container = AvroContainer(io.BytesIO(data))
    schema = container.schema
    names = [part["name"] for part in find_record_type(schema)["fields"]]
    if names[: len(_ENTRY_START)] != _ENTRY_START or not _is_compatible_schema(
        MANIFEST_SCHEMA, schema
    ):
        return None
    unknown = find_unknown_fields(MANIFEST_FIELDS, schema)
    if not all(is_column_type(definition["type"]) for definition in unknown.values()):
        return None
    blocks = list(container.read_blocks(together=True))
    return _Container(
        content=b"".join([*(block.content for block in blocks), AVRO_PADDING]),
        counts=np.array([block.num_records for block in blocks], np.int64),
        sizes=np.array([len(block.content) for block in blocks], np.int64),
        schema=schema,
        unknown=unknown,
    )


def _decode_columns(container: _Container) -> tuple[Indices, dict[str, AvroColumn]] | None:
    """Return the starts of all records, and their columns.

    Returns None or raises if record boundaries are uncertain.
    """
    schema, walk = container.schema, AvroBatchDecoder(container.content)
    branch = 2 * schema.index(find_record_type(schema)) if isinstance(schema, list) else None
    starts = walk.find_entry_starts(2 * MANIFEST_VERSION, branch)
    ends, columns = walk.walk(schema, starts)
    chain = _find_record_chain(starts, ends, container)
    if chain is None:
        return None
    if len(chain) < len(starts):  # some candidates are not starts of entries
        starts = starts[chain]
        _, columns = walk.walk(schema, starts)
    if any(columns[name].valid is not None for name in _REQUIRED_FIELDS):
        return None
    return starts, columns


def _find_record_chain(starts: Indices, ends: Indices, container: _Container) -> Indices | None:
    """Return the candidates that form a gapless chain through all blocks, or None."""
    counts, sizes = container.counts, container.sizes
    total, size = int(counts.sum()), int(sizes.sum())
    if not total or (counts < 0).any() or not len(starts):
        return None
    bounds = np.append(starts, size)
    following = np.searchsorted(bounds, ends).clip(max=len(starts))
    following = np.where(bounds[following] == ends, following, -1)
    if np.array_equal(following, np.arange(1, len(bounds))):
        chain = np.arange(len(starts))
    else:
        chain = _follow_chain(following.tolist(), total)
    if len(chain) != total or following[chain[-1]] != len(starts):
        return None
    first_of_block = np.append(chain, len(starts))[np.cumsum(counts) - counts]
    block_starts = np.cumsum(sizes) - sizes
    return chain if np.array_equal(bounds[first_of_block], block_starts) else None


def _follow_chain(following: Sequence[int], total: int) -> Indices:
    chain: list[int] = []
    candidate = 0
    while 0 <= candidate < len(following) and len(chain) < total:
        chain.append(candidate)
        candidate = following[candidate]
    return np.array(chain, np.int64)


def _is_compatible_schema(ours: Any, theirs: Any) -> bool:
    """Return whether both decoders return equal values for known fields of a writer's schema."""
    ours, theirs = _strip_null(ours), _strip_null(theirs)
    kinds = [_WIDENED_TYPES.get(part["type"], part["type"]) for part in (ours, theirs)]
    if kinds[0] != kinds[1]:
        return False
    if kinds[0] == "record":
        our_types = {part["name"]: part["type"] for part in ours["fields"]}
        return all(
            _is_compatible_schema(our_types[part["name"]], part["type"])
            for part in theirs["fields"]
            if part["name"] in our_types
        )
    if kinds[0] == "array":
        return _is_compatible_schema(ours["items"], theirs["items"])
    return theirs.get("logicalType") in (
        _MILLIS_LOGICAL_TYPES if "logicalType" in ours else (None,)
    )


def _strip_null(schema: Any) -> Mapping[str, Any]:
    if isinstance(schema, list):
        [schema] = [option for option in schema if option != "null"]
    return schema if isinstance(schema, dict) else {"type": schema}


def _iterate_required_fields(schema: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    """Yield the fields that are never null and that every release writes."""
    for part in schema["fields"]:
        kind = part["type"]
        if isinstance(kind, dict) and kind["type"] == "record":
            yield from _iterate_required_fields(kind, f"{prefix}{part['name']}.")
        elif not isinstance(kind, list):
            yield prefix + part["name"]


_REQUIRED_FIELDS = frozenset(_iterate_required_fields(MANIFEST_SCHEMA))


def _build_entries(manifest: ColumnarManifest) -> list[ManifestEntry]:
    kinds = (FileKind.ADD, FileKind.DELETE)
    columns = [
        [kinds[kind] for kind in manifest.kinds.tolist()],
        manifest.partitions(),
        manifest.buckets.tolist(),
        manifest.columns["_TOTAL_BUCKETS"].numbers(),
        _build_files(manifest),
    ]
    return _build_objects(ManifestEntry, len(manifest), columns)


@dataclass(frozen=True, slots=True)
class _FileColumns:
    """Fields of data files; fields that the writer did not store are null."""

    columns: Mapping[str, AvroColumn]
    data: bytes

    def numbers(self, name: str) -> Iterable[int | None]:
        column = self.columns.get(_FILE_PREFIX + name)
        return repeat(None) if column is None else column.numbers()

    def spans(self, name: str) -> Iterable[bytes | None]:
        column = self.columns.get(_FILE_PREFIX + name)
        return repeat(None) if column is None else column.slices(self.data)

    def strings(self, name: str) -> Iterable[tuple[str, ...] | None]:
        column = self.columns.get(_FILE_PREFIX + name)
        return repeat(None) if column is None else column.arrays(self.data)


def _build_files(manifest: ColumnarManifest) -> list[DataFileMeta]:
    names, columns, data = manifest.names, manifest.columns, manifest.data
    of = _FileColumns(columns, data)
    extra = list(of.strings("_EXTRA_FILES"))
    check_file_names([name for group in set(extra) for name in group or ()], manifest.path)
    values = [
        names,
        of.numbers("_FILE_SIZE"),
        of.numbers("_ROW_COUNT"),
        of.spans("_MIN_KEY"),
        of.spans("_MAX_KEY"),
        _build_stats(columns, f"{_FILE_PREFIX}_KEY_STATS.", data),
        _build_stats(columns, f"{_FILE_PREFIX}_VALUE_STATS.", data),
        of.numbers("_MIN_SEQUENCE_NUMBER"),
        of.numbers("_MAX_SEQUENCE_NUMBER"),
        of.numbers("_SCHEMA_ID"),
        of.numbers("_LEVEL"),
        extra,
        of.numbers("_CREATION_TIME"),
        of.numbers("_DELETE_ROW_COUNT"),
        of.spans("_EMBEDDED_FILE_INDEX"),
        of.numbers("_FILE_SOURCE"),
        of.strings("_VALUE_STATS_COLS"),
        (None if path is None else path.decode() for path in of.spans("_EXTERNAL_PATH")),
        of.numbers("_FIRST_ROW_ID"),
        of.strings("_WRITE_COLS"),
        _build_additional_fields(manifest),
    ]
    return _build_objects(DataFileMeta, len(names), values)


def _build_additional_fields(manifest: ColumnarManifest) -> Iterable[AdditionalFields | None]:
    unknown = manifest.unknown
    if not unknown:
        return repeat(None)
    columns = [manifest.columns[path] for path in unknown]
    if all(column.is_null for column in columns):
        return repeat(AdditionalFields(unknown, dict.fromkeys(unknown)))
    values = [
        column.to_python_values(definition["type"], manifest.data)
        for column, definition in zip(columns, unknown.values(), strict=True)
    ]
    return (
        AdditionalFields(unknown, dict(zip(unknown, row, strict=True)))
        for row in zip(*values, strict=True)
    )


def _build_stats(columns: Mapping[str, AvroColumn], prefix: str, data: bytes) -> list[SimpleStats]:
    bounds = [columns[prefix + name].slices(data) for name in ("_MIN_VALUES", "_MAX_VALUES")]
    counts = columns.get(f"{prefix}_NULL_COUNTS")
    nulls = repeat(None) if counts is None else counts.arrays(data)
    return _build_objects(SimpleStats, len(bounds[0]), [*bounds, nulls])


def _build_objects(kind: type[T], size: int, columns: Sequence[Iterable[object]]) -> list[T]:
    """Build frozen slotted objects column by column, four times as fast as with constructors."""
    objects = list(map(object.__new__, repeat(kind, size)))
    for slot, column in zip(fields(kind), columns, strict=True):  # type: ignore[arg-type]
        deque(map(getattr(kind, slot.name).__set__, objects, column), maxlen=0)
    return objects
