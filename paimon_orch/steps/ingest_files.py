"""Reads the files of an ingest in this process: Parquet, CSV, and JSON lines.

The rows are those that Spark returns. Content that Spark reads in its own way, such as backslashes
in CSV, raises :class:`SparkRequiredError`.
"""

import codecs
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.files.parquet import Footer, read_batches
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.safe_text import format_names
from paimon_orch.steps.ingest_json import JsonTypes, open_json_lines
from paimon_orch.steps.source_files import SparkRequiredError, open_file, open_text

_BATCH_ROWS = 1 << 16
_FORMAT_BY_SUFFIX = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_ASCII_SIZE = 128
_NO_DELIMITERS = '"\\\r\n\0'
_BLOCK_BYTES = 8 << 20
_BLANK_LINE = re.compile(rb"^[\x00-\x09\x0b-\x20]+$", re.MULTILINE)
_BARE_CARRIAGE_RETURN = re.compile(rb"\r(?!\n)")


@dataclass(frozen=True, slots=True)
class InputRows:
    """The rows of files; ``read`` may be called repeatedly."""

    columns: Sequence[str]
    read: Callable[[], Iterator[pa.RecordBatch]]

    def to_arrow(self) -> pa.Table:
        """Read all rows; columns of files without rows are text."""
        batches = list(self.read())
        if not batches:
            return pa.table({name: pa.nulls(0, pa.string()) for name in self.columns})
        return pa.Table.from_batches(batches)


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How to parse CSV files."""

    delimiter: str = ","
    """The ASCII character between fields."""
    encoding: str | None = None
    """UTF-8 by default, or an encoding with one byte per character."""
    columns: Sequence[str] | None = None
    """The columns of files without a header."""

    def __post_init__(self) -> None:
        text = self.delimiter
        if len(text) != 1 or not text.isascii() or text in _NO_DELIMITERS:
            raise InputError(
                f"delimiter {text!r} must be one ASCII character, and no quote, backslash or line "
                "break"
            )

    @property
    def upper_bytes(self) -> list[str] | None:
        """Return the characters of the bytes 128 to 255, or None if the encoding is UTF-8.

        The character of an invalid byte is an empty string.
        """
        return None if self.encoding is None else _decode_upper_bytes(self.encoding)

    @property
    def decoder(self) -> str | None:
        """Return the encoding, or None if it is UTF-8."""
        return None if self.upper_bytes is None else self.encoding

    def check_file_format(self, form: str) -> None:
        """Raise :class:`InputError` for options of CSV that do not apply, or are not supported."""
        if form == "csv":
            _ = self.upper_bytes
            return
        for is_set, option in (
            (self.encoding is not None, "--encoding"),
            (self.delimiter != ",", "--delimiter"),
            (self.columns is not None, "--no-header"),
        ):
            if is_set:
                raise InputError(f"{option} is for CSV only: the files are {form}")


DEFAULT_CSV_FORMAT = CsvFormat()


def check_files_exist(paths: Sequence[str]) -> None:
    """Check the files to read.

    Raises :class:`NotFoundError` for a local file that does not exist; URLs are not checked.
    Raises :class:`InputError` if there are no files.
    """
    if not paths:
        raise InputError("there is no file to read: name at least one")
    for path in paths:
        if "://" not in path and not Path(path).exists():
            raise NotFoundError(f"{path}: no such file or directory; nothing was written")


def measure_files(paths: Iterable[str]) -> int:
    """Return the size of local files in bytes; other files and directories count as 0."""
    return sum(Path(path).stat().st_size for path in paths if Path(path).is_file())


def read_input_files(
    paths: Sequence[str], schema: TableSchema, *, csv_format: CsvFormat = DEFAULT_CSV_FORMAT
) -> InputRows:
    """Return the rows of local files of one format, to be written to a table with a schema.

    CSV and JSON values are text, which a write casts to the table's types, also inside of nested
    columns. Empty CSV fields are null. Errors in rows are raised when the rows are read.
    """
    form = detect_common_format(paths)
    csv_format.check_file_format(form)
    for path in paths:
        if not Path(path).is_file() or Path(path).name.startswith(("_", ".")):
            raise SparkRequiredError(path, "it is not a visible file of this machine")
    if form == "parquet":
        rows = _open_parquet(paths, schema)
    elif form == "csv":
        rows = _open_csv(paths, csv_format)
    else:
        columns, read = open_json_lines(paths, JsonTypes.of(schema))
        rows = InputRows(columns, read)
    folded = [name.lower() for name in rows.columns]
    if len(set(folded)) < len(folded):
        raise SparkRequiredError(paths[0], "two columns have the same name")
    return rows


def detect_common_format(paths: Sequence[str]) -> str:
    """Return ``parquet``, ``csv`` or ``json``.

    Raises :class:`InputError` for several formats, and for local pipes, sockets and devices, which
    could block a reader or never end.
    """
    for path in paths:
        _check_special_files(path)
    formats = {_detect_format(path) for path in paths}
    if len(formats) != 1:
        raise InputError(
            f"all files must have the same format: {', '.join(paths)} are "
            f"{', '.join(sorted(formats))}"
        )
    return formats.pop()


def detect_file_format(name: str) -> str | None:
    """Return the format that the name of a file ends with, or None."""
    return _FORMAT_BY_SUFFIX.get(Path(name.removesuffix(".gz")).suffix.lower())


def _check_special_files(path: str) -> None:
    location = find_local_path(path)
    if location is None or not location.exists():
        return
    for file in location.rglob("*") if location.is_dir() else (location,):
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise InputError(
                f"{file} is a special file ({stat.filemode(file.stat().st_mode)[0]}), not a file; "
                "nothing was written"
            )


def find_local_path(path: str) -> Path | None:
    """Return the path of a file of this machine, or None for a URL of a store."""
    if "://" not in path and not path.startswith("file:"):
        return Path(path)
    url = urlparse(path)
    return Path(unquote(url.path)) if url.scheme == "file" and not url.netloc else None


def _detect_format(path: str) -> str:
    location = find_local_path(path)
    names = [path]
    if location is not None and location.is_dir():
        names = [file.name for file in location.rglob("*") if file.is_file()] or [path]
    formats = {form for form in map(detect_file_format, names) if form is not None}
    if len(formats) != 1:
        raise InputError(
            f"{path}: the file name must end with its format: {', '.join(_FORMAT_BY_SUFFIX)}"
        )
    return formats.pop()


@cache
def _decode_upper_bytes(encoding: str) -> list[str] | None:
    try:
        name = codecs.lookup(encoding).name
        if name in ("utf-8", "utf-8-sig"):
            return None
        decoded = [bytes([byte]).decode(encoding, "ignore") for byte in range(256)]
    except (LookupError, UnicodeError):
        raise InputError(
            f"unknown encoding {encoding!r}; examples are utf-8, latin-1, cp1252 and iso-8859-15"
        ) from None
    pairs = (
        bytes([first, second])
        for first in range(_ASCII_SIZE, 256)
        for second in range(_ASCII_SIZE // 2, 256)
        if not decoded[first]
    )
    if decoded[:_ASCII_SIZE] != [chr(byte) for byte in range(_ASCII_SIZE)] or any(
        _is_decodable(pair, encoding) for pair in pairs
    ):
        raise InputError(
            f"encoding {encoding!r} does not have one byte for each character; convert the files "
            f"to UTF-8, for example with: iconv -f {encoding} -t UTF-8"
        )
    return decoded[_ASCII_SIZE:]


def _is_decodable(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeError:
        return False
    return True


def _open_parquet(paths: Sequence[str], table_schema: TableSchema) -> InputRows:
    types = {field.name: to_arrow_type(field.type) for field in table_schema.fields}
    schemas = [_read_parquet_schema(path) for path in paths]
    for path, schema in zip(paths, schemas, strict=True):
        if not schema.equals(schemas[0]):
            raise SparkRequiredError(path, f"its columns differ from those of {paths[0]}")
        for field in schema:
            if not _is_plain(field.type, types.get(field.name, field.type)):
                raise SparkRequiredError(path, f"column {field.name!r} is {field.type}")
    return InputRows(schemas[0].names, lambda: chain.from_iterable(map(_read_parquet, paths)))


def read_parquet_footer(file: IO[bytes], path: str) -> tuple[pq.FileMetaData, pa.Schema]:
    """Return the metadata and the schema of a Parquet file; ``path`` is for messages."""
    try:
        with pq.ParquetFile(file, metadata=Footer(file).metadata) as reader:
            return reader.metadata, reader.schema_arrow
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise InputError(f"{path} cannot be read as parquet: {error}") from error


def _read_parquet_schema(path: str) -> pa.Schema:
    with open_file(path) as file:
        metadata, schema = read_parquet_footer(file, path)
    columns = metadata.schema
    if any(columns.column(number).physical_type == "INT96" for number in range(len(columns))):
        raise SparkRequiredError(path, "it has timestamps of type INT96")
    if any(key.startswith(b"org.apache.spark.legacy") for key in metadata.metadata or ()):
        raise SparkRequiredError(path, "an old release of Spark wrote its dates")
    return schema.remove_metadata()


def _read_parquet(path: str) -> Iterator[pa.RecordBatch]:
    try:
        with pa.OSFile(path) as file:
            yield from read_batches(file, _BATCH_ROWS, use_threads=True)
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise InputError(f"{path} cannot be read as parquet: {error}") from error


def _is_plain(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow casts a type as Spark, which uses the time zone of its session."""
    if pa.types.is_timestamp(source):
        return pa.types.is_timestamp(target) and (source.tz is None) == (target.tz is None)
    if pa.types.is_date(source) and pa.types.is_timestamp(target):
        return False
    return any(is_kind(source) for is_kind in _PLAIN_KINDS)


_PLAIN_KINDS = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


def _open_csv(paths: Sequence[str], csv_format: CsvFormat) -> InputRows:
    headers = dict[str, list[str]]()
    for path in paths:
        with open_text(path) as file:
            headers[path] = read_csv_header(file, path, csv_format)
    check_equal_headers(headers)
    read = partial(_read_csv, columns=headers[paths[0]], csv_format=csv_format)
    return InputRows(headers[paths[0]], lambda: chain.from_iterable(map(read, paths)))


def check_equal_headers(headers: Mapping[str, Sequence[str]]) -> None:
    """Raise :class:`InputError` if the headers of files differ."""
    [(first, expected), *others] = headers.items()
    for path, header in others:
        if header != expected:
            raise InputError(
                "the CSV files have different headers; load them one at a time "
                f"({first}: {', '.join(expected)}; {path}: {', '.join(header)}). "
                "Nothing was committed"
            )


def read_csv_header(file: IO[bytes], path: str, csv_format: CsvFormat) -> list[str]:
    """Return the columns of a CSV file, or no columns if it is empty; ``path`` is for messages."""
    for line in file:
        _check_csv(path, line, csv_format.delimiter)
        if line.strip():
            names = _parse_csv(path, line, None, csv_format.delimiter).to_batches()[0].columns
            if csv_format.columns is not None:
                check_column_count(path, len(names), csv_format.columns)
                return list(csv_format.columns)
            encoding = csv_format.decoder
            header = [_decode_name(name.as_py() or b"", encoding) for name in chain(*names)]
            _refuse_repeated(path, header)
            return header
    return []


def _refuse_repeated(path: str, header: Sequence[str]) -> None:
    """Raise :class:`InputError` for a name that stands twice; Spark would rename both columns."""
    repeated = [name for name, count in Counter(header).items() if count > 1]
    if repeated:
        raise InputError(
            f"{path}: the header has the column {format_names(repeated)} more than once; rename or "
            "remove the others. Nothing was committed"
        )


def check_column_count(path: str, count: int, columns: Sequence[str]) -> None:
    """Raise :class:`InputError` if a file without a header does not have these columns."""
    if count != len(columns):
        raise InputError(
            f"{path} has {count} columns, but the table has {len(columns)}; a file without a "
            f"header needs the columns {', '.join(columns)}. Nothing was committed"
        )


def _decode_name(name: bytes, encoding: str | None) -> str:
    try:
        return name.decode(encoding or "utf-8")
    except UnicodeError:
        raise InputError(
            f"the header has the column {name.decode('latin-1')!r}, which is not "
            f"{encoding or 'UTF-8'}; set the encoding of the files with --encoding, for example "
            "latin-1. Nothing was committed"
        ) from None


def _read_csv(path: str, columns: list[str], csv_format: CsvFormat) -> Iterator[pa.RecordBatch]:
    encoding, delimiter = csv_format.decoder, csv_format.delimiter
    with open_text(path) as file:
        is_first = csv_format.columns is None
        while lines := file.readlines(_BLOCK_BYTES):
            block = b"".join(lines)
            _check_csv(path, block, delimiter)
            table = _parse_csv(path, block, columns, delimiter)
            if is_first and table.num_rows:  # without the header
                table, is_first = table.slice(1), False
            decoded = [
                _decode_column(column.combine_chunks(), f"{path}: column {name!r}", encoding)
                for name, column in zip(columns, table.columns, strict=True)
            ]
            yield from pa.table(decoded, names=columns).to_batches()


def _check_csv(path: str, block: bytes, delimiter: str) -> None:
    """Raise an error if Spark may parse a block of lines differently."""
    rest = _compile_quoted_field(delimiter).sub(b"", block) if b'"' in block else block
    if b'"' in rest or b"\\" in block:
        raise SparkRequiredError(path, "it has quotes inside of fields, or backslashes")
    if _BARE_CARRIAGE_RETURN.search(block) or _BLANK_LINE.search(block.replace(b"\r\n", b"\n")):
        raise SparkRequiredError(path, "it has lines of spaces, or lines that end with CR only")


@cache
def _compile_quoted_field(delimiter: str) -> re.Pattern[bytes]:
    """Return a pattern of quoted fields without quotes, backslashes and line breaks."""
    end = rb"[" + re.escape(delimiter.encode()) + rb"\r\n]"
    return re.compile(rb"(?:(?<=" + end + rb')|\A)"[^"\\\r\n]*"(?=' + end + rb"|\Z)")


def _parse_csv(path: str, block: bytes, columns: list[str] | None, delimiter: str) -> pa.Table:
    """Parse lines; the values are bytes, and empty fields are null."""
    count = 0 if columns is None else len(columns)
    names = [str(number) for number in range(count)]
    try:
        return csv.read_csv(
            pa.BufferReader(block),
            read_options=csv.ReadOptions(
                column_names=names or None, autogenerate_column_names=not names, use_threads=False
            ),
            parse_options=csv.ParseOptions(delimiter=delimiter, double_quote=False),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names or _ANY_COLUMNS, pa.binary()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{path}: a record cannot be read, or does not have the columns of the header "
            f"(line breaks in quotes are not supported): {error}. Nothing was committed"
        ) from error


_ANY_COLUMNS = [f"f{number}" for number in range(20_000)]  # Arrow's names of unnamed columns


def _decode_column(values: pa.Array, place: str, encoding: str | None) -> pa.Array:
    try:
        if encoding is None:
            text = values.cast(pa.string())
            text.validate(full=True)
            return text
        return pa.array(
            [None if value is None else value.decode(encoding) for value in values.to_pylist()],
            pa.string(),
        )
    except (pa.ArrowInvalid, UnicodeError):
        name = encoding or "UTF-8"
        wrong = next(v for v in values.to_pylist() if v is not None and not _is_decodable(v, name))
        raise InputError(
            f"{place} has {wrong.decode('latin-1')!r}, which is not {name}; set the encoding of "
            "the files with --encoding, for example latin-1. Nothing was committed"
        ) from None
