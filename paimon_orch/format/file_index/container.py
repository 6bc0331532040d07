"""The container of all indexes of one data file (file-index section 2)."""

import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from paimon_orch.errors import InputError, UnsupportedError

MAGIC = 1493475289347502
VERSION = 1
_FRONT = struct.Struct(">qii")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">ii")
_EMPTY = -1
_MAX_NAME = 65535
_MAX_HEAD = 64 << 20


class Blob:
    """Bytes that are read on demand, in an embedded index or in a file."""

    __slots__ = ("_data", "_read", "_start", "length")

    def __init__(
        self, read: Callable[[int, int], bytes] | bytes, length: int, start: int = 0
    ) -> None:
        """Take what is read from, the number of bytes, and where they start."""
        if isinstance(read, bytes):
            self._data: bytes | None = read
        else:
            self._data, self._read = None, read
        self.length, self._start = length, start

    @classmethod
    def of(cls, data: bytes) -> "Blob":
        """Return bytes that are there already."""
        return cls(data, len(data))

    def bytes(self, at: int = 0, size: int | None = None) -> bytes:
        """Return ``size`` bytes at ``at``; raises ``ValueError`` if not all of them are there."""
        size = self.length - at if size is None else size
        start = self._start + at
        if not 0 <= at <= at + size <= self.length:
            raise ValueError(f"{size} bytes at {at} do not fit into {self.length}")
        if self._data is not None:
            found = self._data[start : start + size]
        else:
            found = self._read(start, size)
        if len(found) != size:
            raise ValueError(f"{size} bytes at {start} are cut off")
        return found

    def part(self, at: int, size: int) -> "Blob":
        """Return a part that counts from 0."""
        if not 0 <= at <= at + size <= self.length:
            raise ValueError(f"{size} bytes at {at} do not fit into {self.length}")
        return Blob(self._read if self._data is None else self._data, size, self._start + at)

    def ints(self, at: int, count: int) -> tuple[int, ...]:
        """Return 32-bit numbers."""
        return struct.unpack(f">{count}i", self.bytes(at, 4 * count))


Indexes = Mapping[str, Mapping[str, Blob | None]]
"""By column (``m[k]`` for a key of a map) and index type; None is an index that no value was offered to."""


def encode_container(columns: Iterable[tuple[str, Iterable[tuple[str, bytes | None]]]]) -> bytes:
    """Return a container of the columns' indexes, in this order."""
    named = [(_modified_utf8(name), [*indexes]) for name, indexes in columns]
    types = [[(_modified_utf8(kind), blob) for kind, blob in indexes] for _, indexes in named]
    head = _FRONT.size + 4 + 4  # the count of columns in front, the redundant length behind
    for (name, _), entries in zip(named, types, strict=True):
        head += len(name) + 4 + sum(len(kind) + 8 for kind, _ in entries)
    out, body, at = bytearray(_FRONT.pack(MAGIC, VERSION, head)), bytearray(), head
    out += _COUNT.pack(len(named))
    for (name, _), entries in zip(named, types, strict=True):
        out += name + _COUNT.pack(len(entries))
        for kind, blob in entries:
            start = (_EMPTY, 0) if blob is None else (at, len(blob))
            out += kind + _ENTRY.pack(*start)
            body += blob or b""
            at = head + len(body)
    return bytes(out + _COUNT.pack(0) + body)


class HeadLayout(NamedTuple):
    """The form of a head: texts, which say what is where, and between them the two numbers of each entry."""

    form: struct.Struct
    texts: tuple[bytes, ...]
    columns: list[tuple[str, list[str]]]

    @property
    def entries(self) -> list[int]:
        """Return where the numbers of each entry are."""
        sizes = [len(text) + _ENTRY.size for text in self.texts[:-1]]
        return [end - _ENTRY.size for end in accumulate(sizes)]


class ContainerDecoder:
    """Decodes containers. Those of one table are alike but for the places of their indexes, and then it is quick."""

    def __init__(self) -> None:
        self._layout: HeadLayout | None = None

    def decode(self, source: Blob) -> dict[str, dict[str, Blob | None]]:
        """Return the indexes of a container by column and type.

        Raises :class:`UnsupportedError` for a newer version and ``ValueError`` or ``struct.error`` for garbage.
        """
        head = source.bytes(0, _head_length(source))
        layout = self._layout
        if layout is not None and layout.form.size == len(head):
            values = layout.form.unpack(head)
            if values[::3] == layout.texts:
                return _placed(source, layout, values)
        self._layout = _layout_of(head)
        return _placed(source, self._layout, self._layout.form.unpack(head))


def decode_container(source: Blob) -> dict[str, dict[str, Blob | None]]:
    """Decode one container; see :meth:`ContainerDecoder.decode`."""
    return ContainerDecoder().decode(source)


def head_layout(source: Blob) -> HeadLayout:
    """Return the form of a container's head.

    Raises :class:`UnsupportedError` for a newer version and ``ValueError``, ``IndexError`` or ``struct.error`` for
    garbage.
    """
    return _layout_of(source.bytes(0, _head_length(source)))


def _head_length(source: Blob) -> int:
    magic, version, head_length = _FRONT.unpack(source.bytes(0, _FRONT.size))
    if magic != MAGIC:
        raise ValueError(f"unknown magic {magic:#x} of a file index")
    if version != VERSION:
        raise UnsupportedError(f"file indexes of version {version} are not supported")
    if not _FRONT.size + 4 <= head_length <= _MAX_HEAD:
        raise ValueError(f"a head of {head_length} bytes is not believed")
    return int(head_length)


def _layout_of(head: bytes) -> HeadLayout:
    (count,), at = _COUNT.unpack_from(head, _FRONT.size), _FRONT.size + 4
    columns: list[tuple[str, list[str]]] = []
    texts, begin = list[int](), 0
    for _ in range(count):
        name, at = _name(head, at)
        (entries,), at = _COUNT.unpack_from(head, at), at + 4
        columns.append((name, []))
        for _ in range(entries):
            kind, at = _name(head, at)
            columns[-1][1].append(kind)
            texts.append(at - begin)
            at += _ENTRY.size
            begin = at
    if begin > len(head):
        raise ValueError("the head of a file index is cut off")
    form = struct.Struct(">" + "ii".join(f"{size}s" for size in [*texts, len(head) - begin]))
    return HeadLayout(form, form.unpack(head)[::3], columns)


def _placed(
    source: Blob, layout: HeadLayout, values: tuple[int, ...]
) -> dict[str, dict[str, Blob | None]]:
    found: dict[str, dict[str, Blob | None]] = {}
    at = 1
    for name, kinds in layout.columns:
        indexes = found.setdefault(name, {})
        for kind in kinds:
            start, length = values[at], values[at + 1]
            indexes[kind] = None if start == _EMPTY else source.part(start, length)
            at += 3
    return found


def _modified_utf8(text: str) -> bytes:
    """Return a name as the reference writes it: NUL as two bytes, UTF-16 units one by one."""
    units = text.encode("utf-16-be", "surrogatepass")
    out = b"".join(
        b"\xc0\x80" if unit == 0 else chr(unit).encode("utf-8", "surrogatepass")
        for (unit,) in struct.iter_unpack(">H", units)
    )
    if len(out) > _MAX_NAME:
        raise InputError(f"column name {text[:20]!r}... is too long for a file index")
    return len(out).to_bytes(2, "big") + out


def _name(head: bytes, at: int) -> tuple[str, int]:
    size = head[at] << 8 | head[at + 1]
    data = head[at + 2 : at + 2 + size]
    if len(data) != size:
        raise ValueError("a name is cut off")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        units = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        text = units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    return text, at + 2 + size
