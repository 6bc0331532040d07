"""Reads the files of an ingest in this process: Parquet, CSV, and JSON lines.

The rows are those that Spark returns. Content that Spark reads in its own way, such as backslashes
in CSV or nested JSON, raises :class:`SparkRequiredError`.
"""

import codecs
import gzip
import json
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from paimon_orch.errors import InputError
from paimon_orch.files.parquet import Footer, read_batches
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import VariantType
from paimon_orch.storage import LocalFileIO

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


class SparkRequiredError(InputError):
    """The content of a file can only be read by Spark."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}; only Spark can load it (--executor spark)")


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


def measure_files(paths: Iterable[str]) -> int:
    """Return the size of local files in bytes; other files and directories count as 0."""
    return sum(Path(path).stat().st_size for path in paths if Path(path).is_file())


def read_input_files(
    paths: Sequence[str], schema: TableSchema, *, csv_format: CsvFormat = DEFAULT_CSV_FORMAT
) -> InputRows:
    """Return the rows of local files of one format, to be written to a table with a schema.

    CSV and JSON values are text, which a write casts to the table's types; objects and arrays of
    JSON are text only in VARIANT columns. Empty CSV fields are null. Errors in rows are raised when
    the rows are read.
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
        rows = _open_json(paths, list_variant_columns(schema))
    folded = [name.lower() for name in rows.columns]
    if len(set(folded)) < len(folded):
        raise SparkRequiredError(paths[0], "two columns have the same name")
    return rows


def list_variant_columns(schema: TableSchema) -> frozenset[str]:
    """Return the names of VARIANT columns in lower case: JSON objects are loaded into them."""
    return frozenset(f.name.lower() for f in schema.fields if isinstance(f.type, VariantType))


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
    with _open_file(path) as file:
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
        with _open(path) as file:
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
            return [_decode_name(name.as_py() or b"", encoding) for name in chain(*names)]
    return []


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
    with _open(path) as file:
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


def _open_json(paths: Sequence[str], variants: frozenset[str]) -> InputRows:
    columns: dict[str, None] = {}
    for path in paths:
        for records in _read_records(path, variants):
            for record in records:
                columns.update(dict.fromkeys(record))
    schema = pa.schema([(name, pa.string()) for name in columns])

    def read() -> Iterator[pa.RecordBatch]:
        for path in paths:
            for records in _read_records(path, variants):
                yield pa.RecordBatch.from_pylist(records, schema=schema)

    return InputRows(list(columns), read)


class _NumberText(str):
    """The text of a JSON number, to be written into JSON again without rounding."""

    __slots__ = ()


def _read_records(path: str, variants: frozenset[str]) -> Iterator[list[dict[str, str | None]]]:
    number = _NumberText if variants else str
    parse = json.JSONDecoder(
        object_pairs_hook=partial(_build_record, path),
        parse_float=number,
        parse_int=number,
        parse_constant=partial(_refuse_constant, path),
    ).decode
    with _open(path) as file:
        while lines := file.readlines(_BLOCK_BYTES):
            yield [_parse_record(path, line, parse, variants) for line in lines if line.strip()]


def _parse_record(
    path: str, line: bytes, parse: Callable[[str], Any], variants: frozenset[str]
) -> dict[str, str | None]:
    """Return the values of a line as text."""
    try:
        record = parse(line.decode())
        if not isinstance(record, dict):
            raise SparkRequiredError(path, "a line is not one JSON object")
        return {name: _to_text(path, name, item, variants) for name, item in record.items()}
    except UnicodeError as error:
        raise InputError(f"{path} cannot be read as json: {error}") from error
    except RecursionError:
        raise InputError(f"{path} cannot be read as json: a value is nested too deeply") from None
    except json.JSONDecodeError as error:
        if b"'" in line or error.msg == "Extra data":
            raise SparkRequiredError(path, f"a line is not one JSON object: {error}") from error
        raise InputError(f"{path} cannot be read as json: {error}") from error


def _to_text(path: str, name: str, value: Any, variants: frozenset[str]) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        if name.lower() not in variants:
            raise SparkRequiredError(path, "it has nested values")
        return _format_json(value)
    text: str | None = value
    return text


def _format_json(value: Any) -> str:
    match value:
        case dict():
            return f"{{{','.join(f'{json.dumps(k)}:{_format_json(v)}' for k, v in value.items())}}}"
        case list():
            return f"[{','.join(map(_format_json, value))}]"
        case _NumberText():
            return str(value)
    return json.dumps(value)


def _build_record(path: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise SparkRequiredError(path, "an object has a key twice")
    return record


def _refuse_constant(path: str, name: str) -> None:
    raise SparkRequiredError(path, f"it has the value {name}")


@contextmanager
def _open(path: str) -> Iterator[IO[bytes]]:
    with _open_file(path) as file, open_decompressed(file, path) as opened:
        yield opened


def _open_file(path: str) -> IO[bytes]:
    return LocalFileIO().open_input(str(Path(path).resolve()))


@contextmanager
def open_decompressed(file: IO[bytes], path: str) -> Iterator[IO[bytes]]:
    """Decompress a file if its name says so; start after its byte order mark, if it has one."""
    opened = gzip.open(file) if path.endswith(".gz") else file  # noqa: SIM115 - closed below
    try:
        with cast("IO[bytes]", opened) as content:
            if content.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
                content.seek(0)
            yield content
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(
            f"{path} cannot be decompressed as gzip: {error}. Nothing was committed"
        ) from error
