"""Limits of the memory that decoders use, which follow from the size of what is stored.

See docs/storage.md#limits-of-decoders.
"""

import errno
import math
import os
from typing import IO

from paimon_orch.errors import CorruptFileError, DecodeLimitError, InputError

LIMIT_FACTOR_VARIABLE = "PAIMON_ORCH_DECODE_LIMIT_FACTOR"
"""The environment variable that multiplies all limits, for valid files that exceed them."""
MAX_NESTING = 128
"""The number of types or JSON values inside of each other."""
_BYTES_PER_ROW, _BYTES_PER_VALUE = 24, 8
_MIN_BATCH_ROWS = 1_024
_MAX_WHOLE_FILE_BYTES = 1 << 30
_BASE_BYTES, _BYTES_PER_STORED_BYTE = 512 << 20, 5_000
_SMALL_FILE_BYTES, _MAX_SMALL_FILE_GROWTH = 1 << 20, 384 << 20
_MAX_NAMES, _MAX_NULL_BYTES = 8 << 20, 4 << 30
_MAX_EXTENTS = 1_000
_BASE_DECOMPRESSED_BYTES, _MAX_COMPRESSION = 256 << 20, 256


def get_allowed_bytes(stored_bytes: int) -> int:
    """Return how much memory the decoded content of ``stored_bytes`` may need."""
    return int(_read_factor() * (_BASE_BYTES + _BYTES_PER_STORED_BYTE * stored_bytes))


def get_allowed_batch_bytes(stored_bytes: int) -> int:
    """Return how much memory the rows of ``stored_bytes`` that are read at once may need.

    This is less than 1 GiB for files below 1 MiB, because a batch is copied while it is read: a
    small file must not take several gigabytes.
    """
    growth = min(_BYTES_PER_STORED_BYTE * stored_bytes, _MAX_SMALL_FILE_GROWTH)
    growth += _BYTES_PER_STORED_BYTE * max(0, stored_bytes - _SMALL_FILE_BYTES)
    return int(_read_factor() * (_BASE_BYTES + growth))


def fit_batch_rows(batch_rows: int, columns: int, stored_bytes: int, *, copies: int) -> int:
    """Return how many rows of a file to read at once; fewer than usual only with many columns.

    ``copies``: how many batches the reader holds in memory.
    """
    row_bytes = copies * _BYTES_PER_VALUE * max(1, columns)
    return min(batch_rows, max(_MIN_BATCH_ROWS, get_allowed_batch_bytes(stored_bytes) // row_bytes))


def get_max_decompressed_bytes(stored_bytes: int) -> int:
    """Return how many bytes a compressed part of a file of ``stored_bytes`` may have."""
    return int(_read_factor() * (_BASE_DECOMPRESSED_BYTES + _MAX_COMPRESSION * stored_bytes))


def get_max_whole_file_bytes() -> int:
    """Return the size up to which a file is read into memory at once."""
    return int(_read_factor() * _MAX_WHOLE_FILE_BYTES)


def check_whole_file(size: int, path: str) -> None:
    """Raise :class:`CorruptFileError` for a file that is too large to be read into memory at once."""
    limit = get_max_whole_file_bytes()
    if size > limit:
        raise CorruptFileError(
            path,
            f"has more than {limit} bytes, but is read at once; the environment variable "
            f"{LIMIT_FACTOR_VARIABLE} multiplies this limit",
        )


def check_decoded_bytes(needed_bytes: float, stored_bytes: int, content: str) -> None:
    """Raise ``ValueError`` if the decoded content of ``stored_bytes`` needs too much memory.

    ``content`` describes what the file declares.
    """
    _check_limit(needed_bytes, get_allowed_bytes(stored_bytes), stored_bytes, content)


def check_batch_bytes(needed_bytes: float, stored_bytes: int, content: str) -> None:
    """Raise ``ValueError`` if rows of ``stored_bytes`` that are read at once need too much memory.

    ``content`` describes what the file declares.
    """
    _check_limit(needed_bytes, get_allowed_batch_bytes(stored_bytes), stored_bytes, content)


class DecodeBudget:
    """The memory that all parts of one file may need that are decoded.

    Limits of each part do not limit a file, in which many names can stand for the same bytes.
    """

    def __init__(self, stored_bytes: int) -> None:
        self._stored_bytes, self._needed_bytes = stored_bytes, 0

    def spend(self, needed_bytes: int, content: str) -> None:
        """Raise ``ValueError`` if one more part exceeds the budget.

        ``content`` describes the part.
        """
        self._needed_bytes += needed_bytes
        content = f"{content} besides other parts of the file"
        check_batch_bytes(self._needed_bytes, self._stored_bytes, content)


def _check_limit(needed_bytes: float, allowed: int, stored_bytes: int, content: str) -> None:
    if needed_bytes > allowed:
        raise build_limit_error(content, allowed, stored_bytes)


def check_read(size: int, content: str) -> None:
    """Raise ``ValueError`` for a part of a file that is too large to be read into memory at once.

    ``content`` describes what the file declares.
    """
    limit = get_max_whole_file_bytes()
    if size > limit:
        raise DecodeLimitError(
            f"{content}, but at most {limit} are read at once; the environment variable "
            f"{LIMIT_FACTOR_VARIABLE} multiplies this limit"
        )


def measure_stored_bytes(source: IO[bytes], size: int) -> int:
    """Return the size of an open file without its holes, on which no limit may depend.

    A sparse file on a disk has any size for free.
    """
    try:
        descriptor = source.fileno()
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
    except (AttributeError, OSError):  # a file of a store, or in memory
        return size
    stored = end = 0
    try:
        for _ in range(_MAX_EXTENTS):
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
            stored += end - start
    except OSError as error:
        if error.errno != errno.ENXIO:  # there is no more data
            return size
    finally:
        os.lseek(descriptor, position, os.SEEK_SET)
    return stored


def check_row_count(row_count: int, file_size: int, path: str) -> None:
    """Raise :class:`CorruptFileError` if the positions of all rows of a file need too much memory.

    Call it before an array with one item for each row is built: the metadata may state any count.
    """
    if not 0 <= row_count <= get_allowed_bytes(file_size) // _BYTES_PER_ROW:
        raise CorruptFileError(
            path,
            f"has {file_size} bytes, but its metadata states {row_count} rows, whose positions need "
            f"too much memory. If this is right, set the environment variable "
            f"{LIMIT_FACTOR_VARIABLE} to a number above 1",
        )


def build_limit_error(content: str, allowed: int, stored_bytes: int) -> DecodeLimitError:
    """Return the error for content that needs too much memory."""
    return DecodeLimitError(
        f"{content}, which needs more than the {allowed} bytes of memory that are allowed for "
        f"{stored_bytes} stored bytes. If the file is valid, set the environment variable "
        f"{LIMIT_FACTOR_VARIABLE} to a number above 1, which multiplies the limit"
    )


def check_nesting(depth: int) -> None:
    """Raise ``ValueError`` for types or values that are nested too deeply."""
    if depth > MAX_NESTING:
        raise ValueError(f"more than {MAX_NESTING} types or values are nested in each other")


def check_nulls(rows: int, row_bytes: int) -> None:
    """Raise ``ValueError`` for the nulls of columns that need too much memory.

    ``row_bytes`` is the size of their values, which is stored for nulls too if all values have one
    size: a VECTOR of any length is a few bytes of a schema.
    """
    limit = int(_read_factor() * _MAX_NULL_BYTES)
    if rows * row_bytes > limit:
        raise DecodeLimitError(
            f"the columns that {rows} rows lack need {row_bytes} bytes for each row, but at most {limit} bytes are "
            f"used; the environment variable {LIMIT_FACTOR_VARIABLE} multiplies this limit"
        )


def fit_null_rows(batch_rows: int, row_bytes: int) -> int:
    """Return how many rows to read at once if the nulls of a row need ``row_bytes``.

    Raises ``ValueError`` if the nulls of a small batch need too much memory.
    """
    rows = int(_read_factor() * _MAX_NULL_BYTES) // max(1, row_bytes)
    rows = min(batch_rows, max(_MIN_BATCH_ROWS, rows))
    check_nulls(rows, row_bytes)
    return rows


def check_names(count: int) -> None:
    """Raise ``ValueError`` for too many names in the metadata of variants that are read at once.

    Each name is an object, however few bytes its file has for it.
    """
    limit = int(_read_factor() * _MAX_NAMES)
    if count > limit:
        raise DecodeLimitError(
            f"the metadata of variants that are read at once has {count} names, but at most {limit} "
            f"are decoded; the environment variable {LIMIT_FACTOR_VARIABLE} multiplies this limit"
        )


def _read_factor() -> float:
    text = os.environ.get(LIMIT_FACTOR_VARIABLE, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor < math.inf:
        raise InputError(
            f"the environment variable {LIMIT_FACTOR_VARIABLE} is {text!r}, but must be a number of "
            "at least 1, such as 4"
        )
    return factor
