"""The container of all indexes of one data file.

See docs/format/file-index-container.md.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from paimon_orch.decode_limits import check_read
from paimon_orch.errors import InputError, UnsupportedError

CONTAINER_MAGIC = 1493475289347502
CONTAINER_VERSION = 1
_PREFIX = struct.Struct(">qii")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">ii")
_NO_INDEX = -1
_MAX_NAME_BYTES = 65535
_MAX_HEAD_BYTES = 64 << 20


class ByteSource:
    """Bytes that are read on demand, in an embedded index or in a file."""

    __slots__ = ("_data", "_read", "_start", "length", "stored_bytes")

    def __init__(
        self,
        read: Callable[[int, int], bytes] | bytes,
        length: int,
        start: int = 0,
        stored_bytes: int | None = None,
    ) -> None:
        """Create a source of ``length`` bytes, given a function that reads them.

        ``stored_bytes`` is the length without holes.
        """
        if isinstance(read, bytes):
            self._data: bytes | None = read
        else:
            self._data, self._read = None, read
        self.length, self._start = length, start
        self.stored_bytes = length if stored_bytes is None else stored_bytes

    @classmethod
    def of(cls, data: bytes) -> "ByteSource":
        """Return a source over bytes in memory."""
        return cls(data, len(data))

    def bytes(self, position: int = 0, size: int | None = None) -> bytes:
        """Return ``size`` bytes at ``position``; raise ``ValueError`` past the end."""
        size = self.length - position if size is None else size
        start = self._start + position
        if not 0 <= position <= position + size <= self.length:
            raise ValueError(
                f"{size} bytes at {position} exceed the {self.length} bytes of the index"
            )
        content = self._data
        if content is None:
            check_read(size, f"a part of an index has {size} bytes")
        data = self._read(start, size) if content is None else content[start : start + size]
        if len(data) != size:
            raise ValueError(f"the file ends after {len(data)} of the {size} bytes at {start}")
        return data

    def part(self, position: int, size: int) -> "ByteSource":
        """Return a range of the source as a source."""
        if not 0 <= position <= position + size <= self.length:
            raise ValueError(
                f"{size} bytes at {position} exceed the {self.length} bytes of the index"
            )
        return ByteSource(
            self._read if self._data is None else self._data, size, self._start + position
        )

    def read_ints(self, position: int, count: int) -> tuple[int, ...]:
        """Return 32-bit numbers."""
        return struct.unpack(f">{count}i", self.bytes(position, 4 * count))


FileIndexes = Mapping[str, Mapping[str, ByteSource | None]]
"""Indexes by column (``m[k]`` for a map key) and type.

The index of a map key without values is None.
"""


def encode_container(columns: Iterable[tuple[str, Iterable[tuple[str, bytes | None]]]]) -> bytes:
    """Return a container of the columns' indexes, in the given order."""
    encoded_columns = [(_encode_modified_utf8(name), [*indexes]) for name, indexes in columns]
    types = [
        [(_encode_modified_utf8(kind), blob) for kind, blob in indexes]
        for _, indexes in encoded_columns
    ]
    # the column count (4 bytes) precedes the columns, and a redundant length (4 bytes) follows them
    head = _PREFIX.size + 4 + 4
    for (name, _), entries in zip(encoded_columns, types, strict=True):
        head += len(name) + 4 + sum(len(kind) + 8 for kind, _ in entries)
    out, body, body_start = (
        bytearray(_PREFIX.pack(CONTAINER_MAGIC, CONTAINER_VERSION, head)),
        bytearray(),
        head,
    )
    out += _COUNT.pack(len(encoded_columns))
    for (name, _), entries in zip(encoded_columns, types, strict=True):
        out += name + _COUNT.pack(len(entries))
        for kind, blob in entries:
            start = (_NO_INDEX, 0) if blob is None else (body_start, len(blob))
            out += kind + _ENTRY.pack(*start)
            body += blob or b""
            body_start = head + len(body)
    return bytes(out + _COUNT.pack(0) + body)


class HeadLayout(NamedTuple):
    """The layout of a header: constant parts, separated by the offset and length of each index."""

    form: struct.Struct
    constants: tuple[bytes, ...]
    columns: list[tuple[str, list[str]]]

    @property
    def entries(self) -> list[int]:
        """Return the positions of the offset and length of each index."""
        sizes = [len(part) + _ENTRY.size for part in self.constants[:-1]]
        return [end - _ENTRY.size for end in accumulate(sizes)]


class ContainerDecoder:
    """Decodes containers, caching the head layout that containers of one table share."""

    def __init__(self) -> None:
        self._layout: HeadLayout | None = None

    def decode(self, source: ByteSource) -> dict[str, dict[str, ByteSource | None]]:
        """Return the indexes of a container by column and type.

        Raises :class:`UnsupportedError` for a newer version, and ``ValueError`` or
        ``struct.error`` for damaged data.
        """
        head = source.bytes(0, _read_head_length(source))
        layout = self._layout
        if layout is not None and layout.form.size == len(head):
            values = layout.form.unpack(head)
            if values[::3] == layout.constants:
                return _locate_indexes(source, layout, values)
        self._layout = _parse_head_layout(head)
        return _locate_indexes(source, self._layout, self._layout.form.unpack(head))


def decode_container(source: ByteSource) -> dict[str, dict[str, ByteSource | None]]:
    """Decode one container; see :meth:`ContainerDecoder.decode`."""
    return ContainerDecoder().decode(source)


def read_head_layout(source: ByteSource) -> HeadLayout:
    """Return the layout of a container's header.

    Raises :class:`UnsupportedError` for a newer version, and ``ValueError``, ``IndexError`` or
    ``struct.error`` for damaged data.
    """
    return _parse_head_layout(source.bytes(0, _read_head_length(source)))


def _read_head_length(source: ByteSource) -> int:
    magic, version, head_length = _PREFIX.unpack(source.bytes(0, _PREFIX.size))
    if magic != CONTAINER_MAGIC:
        raise ValueError(f"a file index has the unknown magic {magic:#x}")
    if version != CONTAINER_VERSION:
        raise UnsupportedError(f"file indexes of version {version} are not supported")
    if not _PREFIX.size + 4 <= head_length <= _MAX_HEAD_BYTES:
        raise ValueError(f"the header of a file index cannot have {head_length} bytes")
    return int(head_length)


def _parse_head_layout(head: bytes) -> HeadLayout:
    (count,), position = _COUNT.unpack_from(head, _PREFIX.size), _PREFIX.size + 4
    columns: list[tuple[str, list[str]]] = []
    sizes, begin = list[int](), 0
    for _ in range(count):
        name, position = _decode_name(head, position)
        (entries,), position = _COUNT.unpack_from(head, position), position + 4
        columns.append((name, []))
        for _ in range(entries):
            kind, position = _decode_name(head, position)
            columns[-1][1].append(kind)
            sizes.append(position - begin)
            position += _ENTRY.size
            begin = position
    if begin > len(head):
        raise ValueError("the header of a file index is truncated")
    form = struct.Struct(">" + "ii".join(f"{size}s" for size in [*sizes, len(head) - begin]))
    return HeadLayout(form, form.unpack(head)[::3], columns)


def _locate_indexes(
    source: ByteSource, layout: HeadLayout, values: tuple[int, ...]
) -> dict[str, dict[str, ByteSource | None]]:
    by_column: dict[str, dict[str, ByteSource | None]] = {}
    number = 1
    for name, kinds in layout.columns:
        indexes = by_column.setdefault(name, {})
        for kind in kinds:
            start, length = values[number], values[number + 1]
            indexes[kind] = None if start == _NO_INDEX else source.part(start, length)
            number += 3
    return by_column


def _encode_modified_utf8(text: str) -> bytes:
    """Return Java's modified UTF-8: NUL takes two bytes, UTF-16 units are encoded separately."""
    units = text.encode("utf-16-be", "surrogatepass")
    out = b"".join(
        b"\xc0\x80" if unit == 0 else chr(unit).encode("utf-8", "surrogatepass")
        for (unit,) in struct.iter_unpack(">H", units)
    )
    if len(out) > _MAX_NAME_BYTES:
        raise InputError(f"column name {text[:20]!r}... is too long for a file index")
    return len(out).to_bytes(2, "big") + out


def _decode_name(head: bytes, position: int) -> tuple[str, int]:
    size = head[position] << 8 | head[position + 1]
    data = head[position + 2 : position + 2 + size]
    if len(data) != size:
        raise ValueError("a name is truncated")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        units = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        text = units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    return text, position + 2 + size
