"""Writes rows as JSON, JSON lines, CSV, Parquet, an Arrow stream or a table on the terminal.

Bytes that are not UTF-8 become U+FFFD in text columns, as in Java. Years before 1 or after 9999
have a sign and at least four digits (``+10000-01-01``), as in ISO 8601.
"""

import base64
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer
from pyarrow import csv

from paimon_orch.cli.screen import Output, escape_json, print_lines
from paimon_orch.cli.table_layout import Layout, print_rows
from paimon_orch.errors import InputError, StorageError
from paimon_orch.files.nested_arrays import replace_types
from paimon_orch.files.variant_text import format_variants, has_variants, to_readable_type
from paimon_orch.format.display import format_count
from paimon_orch.format.text import decode_readable_text
from paimon_orch.safe_text import escape_line

_MAX_TABLE_ROWS = 100
_FIRST_YEAR, _LAST_YEAR = 1, 9999  # the first and last year of Python's dates


class OutputFormat(StrEnum):
    """The formats for printing rows."""

    TABLE = "table"
    WIDE = "wide"
    VERTICAL = "vertical"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


def parse_file(option: str, text: str) -> Path:
    """Return the path of a file; raises :class:`InputError` for a text that cannot be one."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InputError(f"{option} {text!r} is no name of a file") from None
    return Path(text)


FormatOption = Annotated[OutputFormat, typer.Option("--format", help="Output format.")]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        parser=partial(parse_file, "--output"),
        help="Write to a file, in the format of its suffix: .json, .jsonl, .csv, .parquet, .arrow.",
        show_default="stdout",
    ),
]


def choose_format(form: OutputFormat, file: Path | None, output: Output) -> OutputFormat:
    """Return the format that ``--format``, ``--json`` and the suffix of ``--output`` select."""
    if output.is_json and form not in (OutputFormat.TABLE, OutputFormat.JSON):
        raise InputError(f"--json and --format {form} cannot be combined")
    if output.is_json:
        return OutputFormat.JSON
    layouts = (OutputFormat.TABLE, OutputFormat.WIDE, OutputFormat.VERTICAL)
    if file is None or form not in layouts:
        return form
    suffix = file.suffix.removeprefix(".").lower()
    written = [x for x in OutputFormat if x not in layouts]
    if form != OutputFormat.TABLE or suffix not in written:
        raise InputError(
            f"--output {file}: choose how to write it with --format {', '.join(written)}"
        )
    return OutputFormat(suffix)


def write_result(reader: pa.RecordBatchReader, form: OutputFormat, output: Path | None) -> None:
    """Write rows to a file, by default stdout; a file that is not complete is removed."""
    if output is None:
        write_rows(reader, form.value, sys.stdout.buffer)
        return
    try:
        with output.open("wb") as sink:
            write_rows(reader, form.value, sink)
    except BaseException as error:
        if output.is_file():  # and no device
            output.unlink()
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            _raise_for_output(error, output)
        raise


def _raise_for_output(error: OSError, output: Path) -> None:
    """Raise :class:`StorageError` if the output file, and no file of a table, has an error."""
    if error.errno and error.filename in (None, str(output)):
        raise StorageError(f"{output} was not written: {os.strerror(error.errno)}") from error


def to_json_value(value: Any) -> Any:
    """Convert a value to one that JSON represents without loss.

    Binary becomes base64; decimals, NaN and infinities become text; dates, times and timestamps
    become ISO 8601; a map becomes a list of [key, value].
    """
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return format(value, "f")
        case datetime() | date() | time():
            return value.isoformat()
        case dict():
            return {key: to_json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [to_json_value(item) for item in value]
    return value


def encode_json_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """Yield one JSON object per row."""
    for batch in batches:
        for row in _to_python_rows(batch):
            yield escape_json(json.dumps(to_json_value(row), ensure_ascii=False))


def write_rows(reader: pa.RecordBatchReader, form: str, sink: IO[bytes]) -> None:
    """Write rows as ``json``, ``jsonl``, ``csv``, ``parquet``, ``arrow`` or a :class:`Layout`.

    A layout prints the first 100 rows and the number of rows. All formats use bounded memory.
    VARIANT is JSON text, except in Parquet and Arrow.
    """
    if form not in ("parquet", "arrow"):
        reader = _format_variants(reader)
    if form == "json":
        _write_json_array(reader, sink)
    elif form == "jsonl":
        for line in encode_json_lines(reader):
            sink.write(line.encode() + b"\n")
    elif form == "csv":
        _write_csv(reader, sink)
    elif form == "parquet":
        _write_parquet(reader, sink)
    elif form == "arrow":
        _write_arrow_stream(reader, sink)
    else:
        _print_table(reader, Layout(form))
    sink.flush()


def _write_json_array(reader: pa.RecordBatchReader, sink: IO[bytes]) -> None:
    """Write one array, with a line for each row."""
    separator = b"["
    for line in encode_json_lines(reader):
        sink.write(separator + line.encode())
        separator = b",\n "
    sink.write(b"[]\n" if separator == b"[" else b"]\n")


def _format_variants(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the rows with JSON text in place of VARIANT."""
    kinds = reader.schema.types
    if not any(map(has_variants, kinds)):
        return reader
    schema = pa.schema([field.with_type(to_readable_type(field.type)) for field in reader.schema])

    def convert() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            try:
                columns = list(map(format_variants, batch.columns, kinds))
            except ValueError as error:
                raise InputError(f"a VARIANT value cannot be shown: {error}") from error
            yield pa.record_batch(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, convert())


def _write_csv(reader: pa.RecordBatchReader, sink: IO[bytes]) -> None:
    """Write CSV with binary as base64; raises :class:`InputError` for nested columns."""
    nested = [field for field in reader.schema if pa.types.is_nested(field.type)]
    if nested:
        raise InputError(
            f"CSV does not support nested values: column {nested[0].name!r} is {nested[0].type}; "
            "exclude it with --columns, or use --format jsonl or parquet"
        )
    header = [pa.array([], field.type) for field in reader.schema]
    _write_csv_batch(pa.record_batch(header, names=reader.schema.names), sink, header=True)
    for batch in reader:
        columns = [_convert_csv_column(column) for column in batch.columns]
        rows = pa.record_batch(columns, names=batch.schema.names)
        _write_csv_batch(rows, sink, header=False)


def _write_csv_batch(rows: pa.RecordBatch, sink: IO[bytes], *, header: bool) -> None:
    # The type of a column may differ between batches, so each batch has its own writer.
    options = csv.WriteOptions(include_header=header)
    buffer = BytesIO() if sink.isatty() else None
    with csv.CSVWriter(buffer or sink, rows.schema, write_options=options) as writer:
        writer.write_batch(rows)
    if buffer is not None:
        lines = map(escape_line, buffer.getvalue().decode(errors="replace").split("\n"))
        sink.write("\n".join(lines).encode())


def _convert_csv_column(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return pa.array(map(to_json_value, column.to_pylist()), pa.string())
    if pa.types.is_string(column.type):
        return _replace_invalid_text(column)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        bounds = pc.min_max(column)
        try:
            bounds.as_py()
        except (ValueError, OverflowError):
            return pa.array([_format_time(value, " ") for value in column], pa.string())
    return column


def _write_parquet(reader: pa.RecordBatchReader, sink: IO[bytes]) -> None:
    _refuse_terminal(sink, "parquet")
    with pq.ParquetWriter(sink, reader.schema) as writer:
        for batch in reader:
            columns = list(map(_replace_invalid_text, batch.columns))
            writer.write_batch(pa.record_batch(columns, schema=reader.schema))


def _write_arrow_stream(reader: pa.RecordBatchReader, sink: IO[bytes]) -> None:
    _refuse_terminal(sink, "arrow")
    with pa.ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def _refuse_terminal(sink: IO[bytes], form: str) -> None:
    if sink.isatty():
        raise InputError(
            f"{form.capitalize()} is binary; write it to a file: ... --output rows.{form}"
        )


def _print_table(reader: pa.RecordBatchReader, layout: Layout) -> None:
    """Print the first rows, and the number of all rows."""
    shown, total = list[list[str]](), 0
    for batch in reader:
        for row in _to_python_rows(batch.slice(0, max(0, _MAX_TABLE_ROWS - total))):
            shown.append(
                ["" if value is None else str(to_json_value(value)) for value in row.values()]
            )
        total += batch.num_rows
    print_rows(reader.schema.names, shown, layout)
    suffix = f", the first {_MAX_TABLE_ROWS} shown" if total > _MAX_TABLE_ROWS else ""
    print_lines(f"{format_count(total, 'row')}{suffix}")


def _to_python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    batch = _shorten_floats(batch)
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
        return rows
    except (ValueError, OverflowError):  # text is not UTF-8, or a year is not in Python's range
        columns = [map(_to_python_value, column) for column in batch.columns]
        names = batch.schema.names
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _shorten_floats(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return DOUBLE in place of FLOAT, with as few digits as identify the FLOAT: 0.1."""
    for number, column in enumerate(batch.columns):
        texts, doubles = (
            replace_types(column.type, pa.types.is_float32, to)
            for to in (pa.string(), pa.float64())
        )
        if doubles != column.type:
            shortened = column.cast(texts).cast(doubles)
            batch = batch.set_column(number, batch.schema.names[number], shortened)
    return batch


def _replace_invalid_text(column: pa.Array) -> pa.Array:
    """Return a column with U+FFFD instead of bytes that are not UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        convert = partial(_to_python_value, times_as_text=False)
        return pa.array(list(map(convert, column)), column.type)
    return column


def _to_python_value(scalar: "pa.Scalar[Any]", *, times_as_text: bool = True) -> Any:
    """Convert a value; invalid UTF-8 becomes U+FFFD, times out of Python's range become text."""
    convert = partial(_to_python_value, times_as_text=times_as_text)
    match scalar:
        case _ if not scalar.is_valid:
            return None
        case pa.StringScalar():
            return decode_readable_text(scalar.as_buffer().to_pybytes())
        case pa.TimestampScalar() | pa.Date32Scalar():
            return _to_python_time(scalar) if times_as_text else scalar
        case pa.MapScalar():
            pairs = scalar.values
            return [
                (convert(key), convert(item)) for key, item in zip(*pairs.flatten(), strict=True)
            ]
        case pa.ListScalar():
            return list(map(convert, scalar.values))
        case pa.StructScalar():
            return {field.name: convert(scalar[n]) for n, field in enumerate(scalar.type)}
    return scalar.as_py()


def _to_python_time(scalar: "pa.Scalar[Any]") -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return _format_time(scalar, "T")


def _format_time(scalar: "pa.Scalar[Any]", separator: str) -> str | None:
    """Return a date or timestamp in ISO 8601; Arrow's CSV uses a blank as separator."""
    if not scalar.is_valid:
        return None
    data_type = scalar.type
    if isinstance(data_type, pa.TimestampType):
        text = str(np.datetime64(scalar.value, data_type.unit))
        zone = "" if data_type.tz is None else "Z" if separator == " " else "+00:00"
    else:
        text, zone = str(np.datetime64(scalar.value, "D")), ""
    year, suffix = text[: text.index("-", 1)], text[text.index("-", 1) :]
    if not _FIRST_YEAR <= int(year) <= _LAST_YEAR:
        year = f"{int(year):+05d}"
    if separator == "T":  # Python omits a fraction of zero
        has_fraction = suffix.partition(".")[2].strip("0")
        suffix = suffix if has_fraction else suffix.partition(".")[0]
    return f"{year}{suffix.replace('T', separator)}{zone}"
