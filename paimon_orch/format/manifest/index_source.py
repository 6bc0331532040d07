"""The data files that an index file of a primary-key table covers.

See docs/format/manifest.md#index-manifest-record.
"""

from dataclasses import dataclass
from struct import Struct, error

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.manifest.additional_fields import AdditionalFields
from paimon_orch.format.manifest.index_manifest import SOURCE_META, IndexManifestEntry

_VERSION = 1
_HEADER = Struct(">iii")
_SNAPSHOT = Struct(">iiq")
_SNAPSHOT_MAGIC = 0x44454958
_NAME_LENGTH = Struct(">H")
_ROW_COUNT = Struct(">q")
_SOURCE_META_FIELD = {"name": "_SOURCE_META", "type": ["null", "bytes"], "default": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSource:
    """The compacted files of one level, in the order of their names."""

    level: int
    files: tuple[tuple[str, int], ...]
    """Name and row count of each file."""

    @property
    def row_count(self) -> int:
        """Return the number of rows of all files, including deleted rows."""
        return sum(rows for _, rows in self.files)

    def to_additional_fields(self) -> AdditionalFields:
        """Return the field that an index manifest has for these files."""
        data = _HEADER.pack(_VERSION, self.level, len(self.files))
        for name, rows in self.files:
            encoded = name.encode()
            data += _NAME_LENGTH.pack(len(encoded)) + encoded + _ROW_COUNT.pack(rows)
        return AdditionalFields({SOURCE_META: _SOURCE_META_FIELD}, {SOURCE_META: data})


def covers_data_files(entry: IndexManifestEntry) -> bool:
    """Return whether an index has positions in data files, which it lists, and not row ids."""
    data = entry.source_meta
    return data is not None and data[:4] != _SNAPSHOT.pack(_SNAPSHOT_MAGIC, 0, 0)[:4]


def decode_index_source(entry: IndexManifestEntry) -> IndexSource | None:
    """Return the data files that an index file covers, or None if the entry does not list them.

    Raises :class:`UnsupportedError` for an encoding that is not implemented.
    """
    data = entry.source_meta
    if data is None:
        return None
    try:
        version, level, count = _HEADER.unpack_from(data)
        if version != _VERSION:
            raise UnsupportedError(
                f"index file {entry.file_name}: version {version} of the list of its data files is "
                f"not implemented, only version {_VERSION}"
            )
        files, position = [], _HEADER.size
        for _ in range(count):
            [length] = _NAME_LENGTH.unpack_from(data, position)
            start = position + _NAME_LENGTH.size
            position = start + length
            [rows] = _ROW_COUNT.unpack_from(data, position)
            files.append((data[start:position].decode(), rows))
            position += _ROW_COUNT.size
    except (error, UnicodeDecodeError) as cause:
        raise UnsupportedError(
            f"index file {entry.file_name}: the list of its data files is damaged: {cause}"
        ) from cause
    if position != len(data):
        raise UnsupportedError(
            f"index file {entry.file_name}: the list of its data files has unknown fields"
        )
    return IndexSource(level=level, files=tuple(files))


def encode_source_snapshot(snapshot_id: int) -> AdditionalFields:
    """Return the field of an index of a data-evolution table that was built from a snapshot."""
    data = _SNAPSHOT.pack(_SNAPSHOT_MAGIC, _VERSION, snapshot_id)
    return AdditionalFields({SOURCE_META: _SOURCE_META_FIELD}, {SOURCE_META: data})


def decode_source_snapshot(entry: IndexManifestEntry) -> int | None:
    """Return the snapshot that an index of a data-evolution table was built from, if it is known.

    Java Paimon writes it since 2.1.
    """
    data = entry.source_meta
    if data is None or len(data) != _SNAPSHOT.size:
        return None
    magic, version, snapshot_id = _SNAPSHOT.unpack(data)
    return int(snapshot_id) if (magic, version) == (_SNAPSHOT_MAGIC, _VERSION) else None
