"""Columns that repeat the values of earlier columns of a Parquet file.

Primary-key files hold each key column twice, as ``_KEY_x`` and ``x``. The pages of both are equal,
so only the first is encoded: its bytes are written again where the second one belongs, and the
footer gets a column chunk for them.

See docs/format/data-files.md#parquet.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from paimon_orch.files.parquet.thrift_compact import decode_integer, decode_struct
from paimon_orch.format.schema import KEY_PREFIX
from paimon_orch.format.types.data_types import Field

NOTHING_REPEATED: Mapping[str, str] = {}

# field numbers of a page header, and of the headers of data pages in it
_COMPRESSED_SIZE, _DATA_PAGE, _DATA_PAGE_V2, _NUM_VALUES = 3, 5, 8, 1


def find_repeated_keys(fields: Iterable[Field]) -> dict[str, str]:
    """Return the columns that have the values and the type of a key column before them."""
    keys: dict[str, Field] = {}
    repeated = {}
    for field in fields:
        key = keys.get(KEY_PREFIX + field.name)
        if key is not None and key.type == field.type:
            repeated[field.name] = key.name
        keys[field.name] = field
    return repeated


@dataclass(frozen=True, slots=True)
class RepeatedColumns:
    """The columns of a file, some of which repeat others."""

    names: tuple[str, ...]
    """All columns, in the order of the file."""

    sources: Mapping[str, str]
    """The repeated columns by name, with the names of the columns that are encoded."""

    @classmethod
    def of(cls, schema: pa.Schema, repeated: Mapping[str, str]) -> "RepeatedColumns":
        """Return the columns that can be repeated by their pages.

        The end of a nested column cannot be found by the number of its rows.
        """
        flat_names = set[str]()
        for field in schema:
            if pa.types.is_nested(field.type):
                break
            flat_names.add(field.name)
        sources = {name: source for name, source in repeated.items() if name in flat_names}
        return cls(tuple(schema.names), sources)

    @property
    def encoded_names(self) -> list[str]:
        """Return the columns that are encoded."""
        return [name for name in self.names if name not in self.sources]

    def find_equal_names(self, encoded: str) -> list[str]:
        """Return an encoded column and the columns that repeat it."""
        return [encoded, *(name for name, source in self.sources.items() if source == encoded)]


class ChunkRepeater:
    """Follows the pages of a row group while they are written, and repeats column chunks.

    ``write`` writes to the file; ``repeat`` writes bytes that the Parquet writer does not know.
    """

    def __init__(
        self,
        columns: RepeatedColumns,
        rows: int,
        write: Callable[[bytes], object],
        repeat: Callable[[bytes], object],
    ) -> None:
        self._sources, self._rows = columns.sources, rows
        self._write, self._repeat = write, repeat
        last = max(columns.names.index(name) for name in columns.sources)
        self._columns = list(columns.names[: last + 1])
        self._chunks: dict[str, bytearray] = {name: bytearray() for name in self._sources.values()}
        self._header = b""
        self._page_bytes = self._page_values = self._values = 0

    @property
    def is_finished(self) -> bool:
        """Return whether all repeated columns are written."""
        return not self._columns

    def write(self, data: bytes) -> None:
        """Write the next bytes of the row group."""
        while data and self._columns:
            if not self._page_bytes:
                data, self._header = self._header + data, b""
                if not self._decode_header(data):
                    self._header = data
                    return
            part, data = data[: self._page_bytes], data[self._page_bytes :]
            self._write(part)
            if self._columns[0] in self._chunks:
                self._chunks[self._columns[0]] += part
            self._page_bytes -= len(part)
            if not self._page_bytes:
                self._finish_page()
        if data:
            self._write(data)

    def _decode_header(self, data: bytes) -> bool:
        """Find the end of the next page; return False if its header is not complete."""
        try:
            header, end = decode_struct(data)
        except IndexError:
            return False
        self._page_bytes = end + decode_integer(data, header[_COMPRESSED_SIZE].start)
        self._page_values = 0  # of a dictionary
        for number in (_DATA_PAGE, _DATA_PAGE_V2):
            if number in header:
                fields, _ = decode_struct(data, header[number].start)
                self._page_values = decode_integer(data, fields[_NUM_VALUES].start)
        return True

    def _finish_page(self) -> None:
        self._values += self._page_values
        if self._values < self._rows:
            return
        self._values = 0
        del self._columns[0]
        while self._columns and self._columns[0] in self._sources:
            self._repeat(bytes(self._chunks[self._sources[self._columns.pop(0)]]))
