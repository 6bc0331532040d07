"""Output of values that need a conversion: invalid UTF-8, years out of range, nested values."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_orch.cli.output import write_rows
from paimon_orch.errors import InputError

NOT_UTF8 = pa.array([b"\xff\xe9a", b"ok", None], pa.binary()).view(pa.string())
SHOWN = ["\ufffd\ufffda", "ok", None]
FAR = pa.array([10**18, 1_600_000_000_123_000, -(10**17)])  # the years are 33658, 2020 and -1199
FAR_DAYS = pa.array([10**7, 0, -(10**6)], pa.int32()).view(pa.date32())


def written(rows: dict[str, Any], form: str) -> bytes:
    sink = io.BytesIO()
    write_rows(pa.table(rows).to_reader(), form, sink)
    return sink.getvalue()


def lines(rows: dict[str, Any]) -> list[Any]:
    return [json.loads(line) for line in written(rows, "jsonl").splitlines()]


def test_text_that_is_not_utf_8_is_shown_with_replacement_characters() -> None:
    assert [row["v"] for row in lines({"v": NOT_UTF8})] == SHOWN
    assert written({"v": NOT_UTF8}, "csv").decode() == '"v"\n"\ufffd\ufffda"\n"ok"\n\n'
    rows = pq.read_table(pa.BufferReader(written({"v": NOT_UTF8}, "parquet")))
    assert rows["v"].to_pylist() == SHOWN


def test_nested_text_that_is_not_utf_8_is_shown_with_replacement_characters() -> None:
    nested = {
        "list": pa.ListArray.from_arrays([0, 1, 2, 3], NOT_UTF8),
        "map": pa.MapArray.from_arrays([0, 1, 2, 3], pa.array(["a", "b", "c"]), NOT_UTF8),
        "row": pa.StructArray.from_arrays([NOT_UTF8, FAR.view(pa.timestamp("us"))], ["v", "t"]),
    }

    first = lines(nested)[0]
    rows = pq.read_table(pa.BufferReader(written(nested, "parquet")))

    assert first == {
        "list": [SHOWN[0]],
        "map": [["a", SHOWN[0]]],
        "row": {"v": SHOWN[0], "t": "+33658-09-27T01:46:40"},
    }
    assert rows["list"].to_pylist() == [[text] for text in SHOWN]
    assert rows["row"].combine_chunks().field("t").view(pa.int64()) == FAR


@pytest.mark.parametrize(("zone", "suffix", "csv_suffix"), [(None, "", ""), ("UTC", "+00:00", "Z")])
def test_timestamps_of_all_years_are_written(
    zone: str | None, suffix: str, csv_suffix: str
) -> None:
    column = FAR.view(pa.timestamp("us", zone))

    assert [row["t"] for row in lines({"t": column})] == [
        f"+33658-09-27T01:46:40{suffix}",
        f"2020-09-13T12:26:40.123000{suffix}",
        f"-1199-02-15T14:13:20{suffix}",
    ]
    assert written({"t": column}, "csv").decode().splitlines()[1:] == [
        f'"+33658-09-27 01:46:40.000000{csv_suffix}"',
        f'"2020-09-13 12:26:40.123000{csv_suffix}"',
        f'"-1199-02-15 14:13:20.000000{csv_suffix}"',
    ]


def test_milliseconds_out_of_the_range_of_arrow_are_written() -> None:
    column = pa.array([2**62], pa.int64()).view(pa.timestamp("ms"))

    assert lines({"t": column}) == [{"t": "+146140482-04-24T15:36:27.904"}]
    assert b"out of range" not in written({"t": column}, "csv")


def test_dates_of_all_years_are_written() -> None:
    texts = ["+29349-01-26", "1970-01-01", "-0768-02-04"]

    assert [row["d"] for row in lines({"d": FAR_DAYS})] == texts
    assert written({"d": FAR_DAYS}, "csv").decode().split() == ['"d"', *(f'"{t}"' for t in texts)]


def test_a_row_with_text_that_is_not_utf_8_keeps_its_other_values() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)
    rows = {"v": NOT_UTF8, "t": pa.array([moment] * 3), "n": pa.array([1.5] * 3)}

    assert lines(rows)[0] == {"v": SHOWN[0], "t": "2026-01-31T12:00:00.500000+00:00", "n": 1.5}


def test_csv_contains_binary_values_as_base64() -> None:
    rows = {"b": pa.array([b"\xff\x00", None])}

    assert written(rows, "csv").decode() == '"b"\n"/wA="\n\n'


def test_csv_of_nested_columns_is_refused_before_anything_is_written() -> None:
    sink = io.BytesIO()
    rows = pa.table({"id": [1], "tags": [["a"]]})

    with pytest.raises(InputError, match=r"column 'tags' is list<.*; exclude it with --columns"):
        write_rows(rows.to_reader(), "csv", sink)

    assert sink.getvalue() == b""


def test_brackets_and_colons_of_the_data_are_not_interpreted_as_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    rows = pa.table({"[red]": ["[/foo] :smile: [bold]x"]})

    write_rows(rows.to_reader(), "table", io.BytesIO())

    shown = capsys.readouterr().out
    assert "[/foo] :smile: [bold]x" in shown
    assert "[red]" in shown
