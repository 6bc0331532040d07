"""Checks streams of ORC files with which the ORC library would end the process, or not end.

See docs/format/data-files.md#orc-and-avro.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from paimon_orch.decode_limits import check_batch_bytes
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.orc.orc_integers import decode_bits, find_highest, find_integer_bounds
from paimon_orch.format.orc.orc_metadata import (
    ORC_DECIMAL,
    ORC_LIST,
    ORC_MAP,
    OrcStream,
    OrcStripe,
    OrcTail,
    StripeFooter,
)

_STRINGS = {7, 8, 16, 17}  # kinds of types
_PRESENT, _LENGTH, _SECONDARY = 0, 2, 5  # kinds of streams; those above are indexes
_MAX_STREAMS = 4  # of a column
_DICTIONARIES, _VERSION_2 = {1, 3}, {2, 3}  # kinds of encodings
_BYTES_PER_COLUMN = 64 << 10  # of the buffers that the ORC library needs for each column
_BYTES_PER_ITEM = 16  # of a list, a map or a dictionary
_MAX_ROUGH_BYTES, _MAX_ROUGH_LENGTH = 1 << 27, 255
_MAX_SCALE = 128  # more than that of any type


class OrcStreamCheck:
    """Checks the stripes of one open file before some columns are read."""

    def __init__(
        self, source: Any, tail: OrcTail, columns: Mapping[int, int], file_size: int
    ) -> None:
        """Check columns, of which the kinds of types are given by id.

        Raises ``ValueError`` for too many columns.
        """
        content = f"{len(columns)} columns of an ORC file are read"
        check_batch_bytes(len(columns) * _BYTES_PER_COLUMN, file_size, content)
        self._source, self._tail, self._columns = source, tail, columns
        self._file_size = file_size
        self._items = tail.find_items(columns)
        self._keys = {
            items[0] for column, items in self._items.items() if columns[column] == ORC_MAP
        }
        self._value_counts = tail.read_value_counts(source) if self._items else {}
        self.is_needed = any(
            kind in {ORC_LIST, ORC_MAP, ORC_DECIMAL, *_STRINGS} for kind in columns.values()
        ) or tail.may_have_large_blocks(_MAX_STREAMS * len(columns), file_size)

    def check(self, stripe: OrcStripe, footer: StripeFooter) -> int:
        """Check one stripe; return the bytes of the longest texts of its dictionaries.

        Each row can have these texts. Raises :class:`UnsupportedError` for a null key of a map, and
        ``ValueError`` or ``MemoryError`` for damaged streams, and for lists that repeat long texts.
        """
        read = [s for s in footer.streams if s.column in self._columns and s.kind <= _SECONDARY]
        self._tail.check_blocks(self._source, read, self._file_size)
        longest, elements = 0, 0
        for stream in footer.streams:
            kind = self._columns.get(stream.column)
            if stream.kind == _PRESENT and stream.column in self._keys:
                raise UnsupportedError(
                    "a map in this ORC file has a null key, which the ORC library cannot read; "
                    "read the file with Java, or rewrite it there as Parquet"
                )
            if stream.kind == _LENGTH and kind is not None:
                high, total = self._check_lengths(stream, stripe, footer)
                if kind not in _STRINGS:
                    self._check_items(stream.column, total, stripe, footer)
                    elements += total
                elif footer.encodings[stream.column][0] in _DICTIONARIES:
                    longest += high
            if stream.kind == _SECONDARY and kind == ORC_DECIMAL:
                self._check_scales(stream, footer)
        content = f"lists of {elements} elements can have texts of {longest} bytes each"
        check_batch_bytes(longest * elements, stripe.size, content)
        return longest

    def _check_lengths(
        self, stream: OrcStream, stripe: OrcStripe, footer: StripeFooter
    ) -> tuple[int, int]:
        """Return bounds of the longest length and of the sum of the lengths; that of lists is exact."""
        encoding, dictionary_size = footer.encodings[stream.column]
        data = self._tail.read_stream(self._source, stream)
        is_text = self._columns[stream.column] in _STRINGS
        item_bytes = 1 if is_text else _BYTES_PER_ITEM
        low, high, total = find_integer_bounds(
            data,
            version=_get_version(encoding),
            is_signed=False,
            rough_total=_MAX_ROUGH_BYTES if is_text else 0,
        )
        if low < 0:
            raise ValueError(f"ORC column {stream.column} has the length {low}")
        content = f"the lengths of ORC column {stream.column} are up to {total} in sum"
        _reserve(total * item_bytes, stripe, content)
        if encoding in _DICTIONARIES:
            if high > _MAX_ROUGH_LENGTH:  # bounds of longer texts are up to 256 times too high
                high = find_highest(data, version=_get_version(encoding))
            content = f"the dictionary of ORC column {stream.column} has {dictionary_size} values"
            _reserve(dictionary_size * _BYTES_PER_ITEM, stripe, content)
        return high, total

    def _check_items(
        self, column: int, total: int, stripe: OrcStripe, footer: StripeFooter
    ) -> None:
        """Raise ``ValueError`` if lists or maps have not as many items as the stripe stores.

        The ORC library would return the items of other rows.
        """
        counts = self._value_counts.get(stripe.offset, [])
        for item in self._items[column]:
            stored = counts[item] if item < len(counts) else None
            number = total
            for stream in footer.streams:
                if (stream.kind, stream.column) == (_PRESENT, item):
                    bits = decode_bits(self._tail.read_stream(self._source, stream), total)
                    number = int(bits.sum())
            if stored is not None and number != stored:
                raise ValueError(
                    f"the lengths of ORC column {column} say that its {total} items contain {number} "
                    f"values, but there are {stored}"
                )

    def _check_scales(self, stream: OrcStream, footer: StripeFooter) -> None:
        version = _get_version(footer.encodings[stream.column][0])
        data = self._tail.read_stream(self._source, stream)
        low, high, _ = find_integer_bounds(data, version=version, is_signed=True)
        if low < 0 or high > _MAX_SCALE:
            raise ValueError(
                f"decimals of ORC column {stream.column} have scales between {low} and {high}"
            )


def _get_version(encoding: int) -> int:
    """Return the version of the run-length encoding."""
    return 2 if encoding in _VERSION_2 else 1


def _reserve(size: int, stripe: OrcStripe, content: str) -> None:
    """Raise an error if memory that the ORC library will allocate is too large or not available."""
    check_batch_bytes(size, stripe.size, content)
    np.empty(size, np.uint8)
