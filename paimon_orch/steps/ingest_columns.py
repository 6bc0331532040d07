"""Finds the columns of the input files of an ingest before Spark starts.

The columns are those that Spark would find in files, directories and URLs. If the files leave a
doubt, nothing is known, and Spark reads the columns.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import pyarrow as pa

from paimon_orch.errors import InputError, PaimonError
from paimon_orch.steps.ingest_files import (
    DEFAULT_CSV_FORMAT,
    CsvFormat,
    check_equal_headers,
    detect_common_format,
    detect_file_format,
    find_local_path,
    read_csv_header,
    read_parquet_footer,
)
from paimon_orch.steps.source_files import SparkRequiredError, open_decompressed
from paimon_orch.storage import FileInfo, FileIO, LocalFileIO

_MAX_FILES = 16
_MAX_JSON_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class InputColumns:
    """The columns of files."""

    names: tuple[str, ...]
    is_complete: bool = True
    """Whether the files have no other columns."""
    has_types: bool = field(default=False, compare=False)
    """Whether the files have types; the values of other files are text."""
    parquet_schema: pa.Schema | None = field(default=None, compare=False)
    """The types of the columns of Parquet files, if all files have the same."""


def find_columns(
    paths: Sequence[str], table_io: FileIO, *, csv_format: CsvFormat = DEFAULT_CSV_FORMAT
) -> InputColumns | None:
    """Return the columns of files, directories and URLs, or None if only Spark can find them.

    Reads some of the files: headers, and the first megabytes of JSON lines. URLs are read if they
    are in the store of the table.
    """
    form = detect_common_format(paths)
    csv_format.check_file_format(form)
    try:
        files = [file for path in paths for file in _list_files(path, form, table_io)]
        if not files or len({file.partition_keys for file in files}) > 1:
            return None
        if form == "json":
            columns = _find_json_columns(files)
        elif form == "csv":
            columns = _find_csv_columns(files, csv_format)
        else:
            columns = _find_parquet_columns(files)
    except (_UnknownColumnsError, SparkRequiredError, OSError):
        return None
    except InputError:
        raise
    except PaimonError:  # Spark may have other credentials
        return None
    folded = {name.lower() for name in columns.names}
    if not folded or len(folded) < len(columns.names):
        return None
    keys = [key for key in files[0].partition_keys if key.lower() not in folded]
    return replace(columns, names=(*columns.names, *keys))


class _UnknownColumnsError(Exception):
    """Only Spark can find the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _InputFile:
    io: FileIO
    path: str
    given_path: str
    """The path for messages."""
    partition_keys: tuple[str, ...] = ()
    """The names in its directories, such as ``dt=1``; Spark adds a column for each."""

    def open(self) -> IO[bytes]:
        return self.io.open_input(self.path)


def _list_files(path: str, form: str, table_io: FileIO) -> Iterator[_InputFile]:
    io, location = _resolve(path, table_io)
    try:
        entries = list(io.list_dir(location))
    except NotADirectoryError:
        entries = []
    if entries:
        for file in _walk(io, entries, ()):
            if detect_file_format(file.path) != form:
                raise _UnknownColumnsError
            yield file
    elif not Path(location).name.startswith(("_", ".")):
        yield _InputFile(io=io, path=location, given_path=path)


def _resolve(path: str, table_io: FileIO) -> tuple[FileIO, str]:
    local = find_local_path(path)
    if local is not None:
        return LocalFileIO(), str(local.resolve())
    if table_io.capabilities.is_local:
        raise _UnknownColumnsError
    return table_io, path


def _walk(io: FileIO, entries: Sequence[FileInfo], keys: tuple[str, ...]) -> Iterator[_InputFile]:
    """Yield the visible files of a directory in the order of Spark.

    Spark ignores files in nested directories, except in those of partitions.
    """
    for entry in sorted(entries, key=lambda entry: entry.path):
        key, separator, _ = entry.name.partition("=")
        if entry.name in ("_metadata", "_common_metadata") or entry.is_link:
            raise _UnknownColumnsError
        if entry.name.startswith(".") or (entry.name.startswith("_") and not separator):
            continue
        if not entry.is_dir:
            yield _InputFile(io=io, path=entry.path, given_path=entry.path, partition_keys=keys)
        elif separator and "%" not in key:
            yield from _walk(io, list(io.list_dir(entry.path)), (*keys, key))
        else:
            raise _UnknownColumnsError


def _find_parquet_columns(files: Sequence[_InputFile]) -> InputColumns:
    schemas = list[pa.Schema]()
    for file in files[:_MAX_FILES]:
        with file.open() as opened:
            schemas.append(read_parquet_footer(opened, file.given_path)[1].remove_metadata())
    if len({tuple(schema.names) for schema in schemas}) > 1:  # Spark chooses one of the schemas
        raise _UnknownColumnsError
    first = schemas[0]
    have_same_types = all(schema.equals(first) for schema in schemas)
    return InputColumns(
        names=tuple(first.names),
        has_types=True,
        parquet_schema=first if have_same_types else None,
    )


def _find_csv_columns(files: Sequence[_InputFile], csv_format: CsvFormat) -> InputColumns:
    headers = dict[str, list[str]]()
    for file in files[:_MAX_FILES]:
        with file.open() as opened, open_decompressed(opened, file.given_path) as text:
            header = read_csv_header(text, file.given_path, csv_format)
        if header:  # Spark ignores empty files
            headers[file.given_path] = header
    if len({tuple(map(str.lower, header)) for header in headers.values()}) > 1:
        check_equal_headers(headers)
    return InputColumns(names=tuple(next(iter(headers.values()), ())))


def _find_json_columns(files: Sequence[_InputFile]) -> InputColumns:
    names = dict[str, None]()
    remaining, are_known = _MAX_JSON_BYTES, True
    for file in files[:_MAX_FILES]:
        with file.open() as opened, open_decompressed(opened, file.given_path) as lines:
            while are_known and (line := lines.readline(remaining)):
                remaining -= len(line)
                are_known = _add_record_columns(line, names) and remaining > 0
    is_complete = are_known and len(files) <= _MAX_FILES
    return InputColumns(names=tuple(names), is_complete=is_complete)


def _add_record_columns(line: bytes, names: dict[str, None]) -> bool:
    """Add the columns of a record; return False if Spark may find other columns."""
    try:
        record = json.loads(line) if line.strip() else {}
    except ValueError:
        return False
    if not isinstance(record, dict):
        return False
    columns = {name: None for name, value in record.items() if _has_type(value)}
    names.update(columns)
    return len(columns) == len(record)


def _has_type(value: object) -> bool:
    """Return whether Spark finds a type for a value; it drops columns with empty objects only."""
    if isinstance(value, dict):
        return any(item is not None and _has_type(item) for item in value.values())
    if isinstance(value, list):
        return any(item is not None and _has_type(item) for item in value)
    return True
