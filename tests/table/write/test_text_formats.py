"""Text of files: nulls, and dates and timestamps in formats of Java."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest

from paimon_orch.errors import InputError
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.table.write.conform_rows import convert_rows
from paimon_orch.table.write.text_formats import TextFormats

SCHEMA = build_table_schema(parse_columns("d DATE, t TIMESTAMP(3), v STRING"))


def convert(formats: TextFormats, *row: str | None) -> list[Any]:
    rows = pa.table({name: pa.array([row[n]], pa.string()) for n, name in enumerate("dtv")})
    [values] = convert_rows(formats.apply(rows, SCHEMA), SCHEMA).select(list("dtv")).to_pylist()
    return list(values.values())


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("dd.MM.yyyy HH:mm:ss.SSS", "01.02.2026 03:04:05.678", datetime(2026, 2, 1, 3, 4, 5, 678_000)),
        ("yyyyMMdd'T'HHmm", "20260201T0304", datetime(2026, 2, 1, 3, 4)),
        ("M/d/yyyy H:m", "2/1/2026 3:04", datetime(2026, 2, 1, 3, 4)),
        ("uuuu-MM-dd", "2026-02-01", datetime(2026, 2, 1)),
        ("'at' d.M.yyyy", "at 1.12.2026", datetime(2026, 12, 1)),
    ],
)  # fmt: skip
def test_timestamps_are_read_in_a_format(form: str, text: str, expected: datetime) -> None:
    assert convert(TextFormats(timestamp=form), None, text, None)[1] == expected


def test_each_format_applies_to_columns_of_its_type() -> None:
    formats = TextFormats("NA", date="d.M.yyyy")

    assert convert(formats, "1.2.2026", "2026-02-01 03:04:05", "1.2.2026") == [
        date(2026, 2, 1),
        datetime(2026, 2, 1, 3, 4, 5),
        "1.2.2026",
    ]
    assert convert(formats, "NA", "NA", "NA") == [None, None, None]
    assert convert(formats, None, None, "") == [None, None, ""]


@pytest.mark.parametrize("text", ["1-2-2026", "31.02.2026", "1.2.26", "x1.2.2026", "1.2.2026x"])
def test_dates_in_another_format_and_days_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="column 'd'"):
        convert(TextFormats(date="d.M.yyyy"), text, None, None)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("yy-MM-dd", "'yy' is not supported"),
        ("yyyy-MMM-dd", "'MMM' is not supported"),
        ("yyyy-MM", "must have year, month and day"),
        ("yyyy-MM-dd dd", "must have year, month and day, each once"),
    ],
)
def test_unsupported_formats_are_refused_by_name(form: str, message: str) -> None:
    with pytest.raises(InputError, match=f"--date-format .*{message}"):
        TextFormats(date=form)
