"""Rows as text: JSON lines, CSV, Parquet or a table for people."""

import base64
import json
import math
import sys
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from rich.console import Console
from rich.table import Table as RichTable

from paimon_orch.errors import InputError

_SHOWN = 100


def json_value(value: Any) -> Any:
    """Return a Python value as JSON keeps it exactly.

    Binary is base64, decimals are text, dates, times and timestamps ISO 8601, maps lists of [key, value], NaN and
    infinities text.
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
            return {key: json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
    return value


def json_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """Yield one JSON object a row."""
    for batch in batches:
        for row in batch.to_pylist():
            yield json.dumps(json_value(row), ensure_ascii=False)


def write_rows(reader: pa.RecordBatchReader, form: str, sink: IO[bytes]) -> None:
    """Write rows as ``jsonl``, ``csv``, ``parquet`` or ``table``, in bounded memory but for the last."""
    if form == "jsonl":
        for line in json_lines(reader):
            sink.write(line.encode() + b"\n")
    elif form == "csv":
        with csv.CSVWriter(sink, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
    elif form == "parquet":
        if sink.isatty():
            raise InputError(
                "Parquet is not for a terminal; redirect it: ... --format parquet > rows.parquet"
            )
        with pq.ParquetWriter(sink, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
    else:
        _print_table(reader)
    sink.flush()


def _print_table(reader: pa.RecordBatchReader) -> None:
    """Print the first rows; how many more there are is told, not shown."""
    shown, total = RichTable(*reader.schema.names), 0
    for batch in reader:
        for row in batch.slice(0, max(0, _SHOWN - total)).to_pylist():
            shown.add_row(
                *("" if value is None else str(json_value(value)) for value in row.values())
            )
        total += batch.num_rows
    console = Console(file=sys.stdout)
    console.print(shown)
    more = f", the first {_SHOWN} shown" if total > _SHOWN else ""
    console.print(f"{total:,} rows{more}")
