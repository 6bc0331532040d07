"""Reads metadata files; converts storage errors to library errors that contain the path."""

from collections.abc import Iterator
from contextlib import contextmanager

from paimon_orch.errors import StorageError, wrap_decode_errors
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.table_statistics import TableStatistics
from paimon_orch.format.text import parse_json_object
from paimon_orch.storage import FileIO
from paimon_orch.storage.base import FileInfo


@contextmanager
def wrap_read_errors(path: str) -> Iterator[None]:
    """Convert storage errors to :class:`StorageError`; does not convert ``FileNotFoundError``."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error.strerror or error})") from error


def read_metadata_file(io: FileIO, path: str) -> bytes:
    """Return the content of a file; raises ``FileNotFoundError``."""
    with wrap_read_errors(path):
        return io.read_bytes(path)


def read_json_to_copy(io: FileIO, path: str) -> bytes:
    """Return the content of a JSON file that will be written elsewhere.

    A store may send only the beginning of a file. Raises :class:`CorruptFileError` unless the
    content is complete, ``FileNotFoundError`` if there is no such file.
    """
    data = read_metadata_file(io, path)
    with wrap_decode_errors(path):
        parse_json_object(data)
    return data


def list_metadata_directory(io: FileIO, directory: str) -> list[FileInfo]:
    """Return the entries of a directory; an empty list if it does not exist."""
    with wrap_read_errors(directory):
        return list(io.list_dir(directory))


def read_statistics(io: FileIO, paths: TablePaths, name: str) -> TableStatistics:
    """Read a statistics file."""
    path = f"{paths.statistics_dir}/{name}"
    return TableStatistics.from_json(read_metadata_file(io, path), path)
