"""Deletion vectors: deleted row positions of data files, in index files.

In memory, a vector has one 32-bit roaring bitmap per high word of the position, usually one.

See docs/format/deletion-vectors.md.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from paimon_orch.errors import CorruptFileError, InputError, wrap_decode_errors
from paimon_orch.format.arrays import Positions
from paimon_orch.format.bytes.roaring import build_bitmap_from_sorted, read_serialized_size
from paimon_orch.format.manifest.additional_fields import AdditionalFields
from paimon_orch.format.manifest.index_manifest import DeletionVectorRange

FILE_VERSION = 1
MAGIC_32 = 1581511376
MAGIC_64 = 1681511377
_BE = struct.Struct(">i")
_CRC = struct.Struct(">I")
_LE = struct.Struct("<i")
_COUNT = struct.Struct("<q")
_MAX_POSITION_32 = 2147483647
# A 64-bit vector has one bitmap for each high word up to the highest. Data with more bitmaps than
# this limit is damaged.
_MAX_BITMAPS = 1 << 16


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """An immutable set of deleted positions (0-based physical row numbers of one data file)."""

    bitmaps: Mapping[int, BitMap]
    additional: AdditionalFields | None = field(default=None, repr=False, compare=False)
    """Unknown fields of its range in the index manifest; None after a change."""

    @classmethod
    def of(cls, positions: npt.ArrayLike) -> "DeletionVector":
        """Create a deletion vector from positions in any order."""
        values = np.asarray(positions, np.int64)
        if not values.size:
            return EMPTY_DELETION_VECTOR
        if not (values[1:] > values[:-1]).all():
            values = np.unique(values)
        if values[0] < 0:
            raise InputError(f"row position {values[0]} is negative")
        if values[-1] < 1 << 32:
            return cls({0: build_bitmap_from_sorted(values)})
        high = values >> 32
        words = {int(word): values[high == word] & 0xFFFFFFFF for word in np.unique(high)}
        return cls({word: build_bitmap_from_sorted(low) for word, low in words.items()})

    def positions(self) -> Positions:
        """Return the deleted positions in ascending order."""
        parts = [
            np.asarray(bitmap.to_array(), np.int64) + (word << 32)
            for word, bitmap in sorted(self.bitmaps.items())
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    @property
    def cardinality(self) -> int:
        """Return the number of deleted rows."""
        return sum(len(bitmap) for bitmap in self.bitmaps.values())

    @property
    def last_position(self) -> int:
        """Return the greatest deleted position; -1 if no row is deleted."""
        word = max(self.bitmaps, default=-1)
        return -1 if word < 0 else (word << 32) + int(self.bitmaps[word].max())

    def check_rows(self, row_count: int, path: str) -> None:
        """Raise :class:`CorruptFileError` if a row is deleted that a data file does not have.

        A few bytes can delete any number of rows, so call it before :meth:`positions`.
        """
        if self.last_position >= row_count:
            raise CorruptFileError(
                path,
                f"has {row_count} rows, but its deletion vector deletes {self.cardinality} rows up "
                f"to row {self.last_position}",
            )

    def __or__(self, other: "DeletionVector") -> "DeletionVector":
        """Return the union of two deletion vectors."""
        merged = dict(self.bitmaps)
        for word, bitmap in other.bitmaps.items():
            merged[word] = merged[word] | bitmap if word in merged else bitmap
        return DeletionVector(merged)

    def encode_payload(self, *, bitmap64: bool) -> bytes:
        """Return magic and bitmap as stored in an index file; bitmaps are run-optimized."""
        if not bitmap64:
            if (
                max(self.bitmaps, default=0) > 0
                or self.bitmaps.get(0, BitMap([0])).max() > _MAX_POSITION_32
            ):
                raise InputError(
                    "a 32-bit deletion vector holds row positions up to 2147483647; set the table "
                    "option 'deletion-vectors.bitmap64' = 'true', with which Java Paimon before 1.2 "
                    "cannot read the table"
                )
            return _BE.pack(MAGIC_32) + _serialize_bitmap(self.bitmaps.get(0))
        count = max(self.bitmaps, default=-1) + 1
        words = [
            _LE.pack(word) + _serialize_bitmap(self.bitmaps.get(word)) for word in range(count)
        ]
        return _LE.pack(MAGIC_64) + _COUNT.pack(count) + b"".join(words)


EMPTY_DELETION_VECTOR = DeletionVector({})


def _serialize_bitmap(bitmap: BitMap | None) -> bytes:
    copy = BitMap() if bitmap is None else bitmap.copy()
    copy.run_optimize()
    return bytes(copy.serialize())


def decode_deletion_vector_payload(data: bytes, path: str) -> DeletionVector:
    """Decode magic and bitmap; the magic selects the 32-bit or the 64-bit layout."""
    with wrap_decode_errors(path):
        if _BE.unpack_from(data)[0] == MAGIC_32:
            bitmap = BitMap.deserialize(data[4:])
            return DeletionVector({0: bitmap} if bitmap else {})
        if _LE.unpack_from(data)[0] != MAGIC_64:
            raise ValueError(f"the deletion vector has the unknown magic {data[:4].hex()}")
        (count,) = _COUNT.unpack_from(data, 4)
        if not 0 <= count <= _MAX_BITMAPS:
            raise ValueError(f"a deletion vector cannot have {count} bitmaps")
        bitmaps, position = {}, 12
        for _ in range(count):
            (word,) = _LE.unpack_from(data, position)
            size = read_serialized_size(data, position + 4)
            if word < 0 or word in bitmaps or position + 4 + size > len(data):
                raise ValueError(f"the bitmap {word} of a deletion vector is damaged")
            bitmap = BitMap.deserialize(data[position + 4 : position + 4 + size])
            if bitmap:
                bitmaps[word] = bitmap
            position += 4 + size
        return DeletionVector(bitmaps)


def encode_deletion_vector_file(
    vectors: Mapping[str, DeletionVector], *, bitmap64: bool = False
) -> tuple[bytes, tuple[DeletionVectorRange, ...]]:
    """Return an index file with the deletion vectors of data files, and the range of each."""
    out, ranges = bytearray([FILE_VERSION]), []
    for data_file, vector in vectors.items():
        payload = vector.encode_payload(bitmap64=bitmap64)
        # a 64-bit length includes the size word and the checksum
        # (docs/format/manifest.md#index-manifest-record)
        length = len(payload) + 8 if bitmap64 else len(payload)
        ranges.append(
            DeletionVectorRange(
                data_file=data_file,
                offset=len(out),
                length=length,
                cardinality=vector.cardinality,
                additional=vector.additional,
            )
        )
        out += _BE.pack(len(payload)) + payload + _CRC.pack(zlib.crc32(payload))
    return bytes(out), tuple(ranges)


def decode_deletion_vector_file(
    data: bytes, ranges: Sequence[DeletionVectorRange], path: str
) -> dict[str, DeletionVector]:
    """Return the deletion vectors of an index file by data file; checksums are verified."""
    if data[:1] != bytes([FILE_VERSION]):
        raise CorruptFileError(
            path,
            f"the first byte of a deletion vector file must be {FILE_VERSION}, its version, but "
            f"is {data[0] if data else 'missing'}",
        )
    total = sum(entry.length for entry in ranges)
    if total > len(data):  # many data files could share a few bytes
        raise CorruptFileError(
            path,
            f"has {len(ranges)} deletion vectors of {total} bytes, but the file has {len(data)}",
        )
    return {entry.data_file: decode_deletion_vector(data, entry, path) for entry in ranges}


def decode_deletion_vector(data: bytes, entry: DeletionVectorRange, path: str) -> DeletionVector:
    """Return one deletion vector of an index file whose whole content is ``data``."""
    with wrap_decode_errors(path):
        (size,) = _BE.unpack_from(data, entry.offset)
        end = entry.offset + 4 + size
        if size < 4 or end + 4 > len(data) or entry.length not in (size, size + 8):
            raise ValueError(
                f"the deletion vector of {entry.data_file} has {size} bytes at offset "
                f"{entry.offset}, but the index manifest says {entry.length} bytes and the file "
                f"has {len(data)}"
            )
        payload = data[entry.offset + 4 : end]
        if zlib.crc32(payload) != _CRC.unpack_from(data, end)[0]:
            raise ValueError(f"the deletion vector of {entry.data_file} has a wrong checksum")
    vector = decode_deletion_vector_payload(payload, path)
    if entry.cardinality is not None and entry.cardinality != vector.cardinality:
        raise CorruptFileError(
            path,
            f"the deletion vector of {entry.data_file} has {vector.cardinality} rows, but the "
            f"index manifest says {entry.cardinality}",
        )
    return vector if entry.additional is None else replace(vector, additional=entry.additional)
