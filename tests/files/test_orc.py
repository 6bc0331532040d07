"""ORC files: conversions that the reader and writer of pyarrow do not make."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.orc import OrcFileReader, OrcFileWriter
from paimon_orch.files.row_selection import take_selected_rows
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import parse_columns


def write_file(columns: str, rows: list[Any]) -> io.BytesIO:
    fields = parse_columns(columns)
    sink = io.BytesIO()
    writer = OrcFileWriter(sink, fields, "zstd", 1 << 16)
    writer.write(pa.table(rows, schema=to_arrow_schema(fields)))
    writer.close()
    return io.BytesIO(sink.getvalue())


def test_char_values_are_read_without_trailing_blanks() -> None:
    columns = "c CHAR(5), v VARCHAR(5), a ARRAY<CHAR(3)>"
    rows: list[Any] = [["a    ", "     ", None], ["a    ", None, ""], [["x  ", None], None, []]]
    reader = OrcFileReader(write_file(columns, rows), parse_columns(columns))
    [batch] = reader.batches(["c", "v", "a"], 10)
    assert batch.column("c").to_pylist() == ["a", "", None]
    assert batch.column("v").to_pylist() == ["a    ", None, ""]
    assert batch.column("a").to_pylist() == [["x", None], None, []]


def test_times_are_written_as_integers_and_time_zones_are_kept() -> None:
    data = write_file(
        "t TIME(3), a TIMESTAMP(3), b TIMESTAMP(3) WITH LOCAL TIME ZONE", [[1], [1], [1]]
    )
    schema = orc.ORCFile(data).schema
    assert schema.field("t").type == pa.int32()
    assert schema.field("a").type == pa.timestamp("ns")
    assert schema.field("b").type == pa.timestamp("ns", tz="UTC")


def test_a_stripe_is_read_in_batches() -> None:
    reader = OrcFileReader(write_file("id INT", [range(1000)]), parse_columns("id INT"))
    assert reader.num_rows == 1000
    batches = list(reader.batches(["id"], 300))
    assert [batch.num_rows for batch in batches] == [300, 300, 300, 100]
    assert pa.Table.from_batches(batches).column("id").to_pylist() == list(range(1000))


def test_stripes_without_selected_rows_are_not_read() -> None:
    fields, rows = parse_columns("k INT, c CHAR(9)"), 200_000
    sink = io.BytesIO()
    writer = OrcFileWriter(sink, fields, "none", 1 << 16)
    numbers = np.random.default_rng(1).permutation(rows)
    table = pa.table([numbers, [f"{n} " for n in numbers.tolist()]], schema=to_arrow_schema(fields))
    for start in range(0, rows, 10_000):
        writer.write(table.slice(start, 10_000))
    writer.close()
    reader = OrcFileReader(io.BytesIO(sink.getvalue()), fields)
    selected = np.array([120_000, 120_001, 199_999])

    results = list(reader.read_selected(["c", "k"], 1_000, selected))

    assert sum(batch.num_rows for _, batch in results) < rows / 2
    batches = [take_selected_rows(positions, batch, selected)[1] for positions, batch in results]
    assert pa.Table.from_batches(batches).column("k").to_pylist() == numbers[selected].tolist()
    assert batches[0].column("c")[0].as_py() == str(numbers[120_000])
    assert len(sink.getvalue()) / 2 < reader.count_unread_bytes(selected) < len(sink.getvalue())
    assert reader.count_unread_bytes(np.arange(rows)) == 0
    every = [batch for _, batch in reader.read_selected(["k"], 1_000, np.arange(rows))]
    # Batches are smaller than stripes.
    assert {batch.num_rows for batch in every[:-1]} <= set(range(1, 1_001))


def test_the_error_for_a_multiset_contains_the_column() -> None:
    with pytest.raises(
        UnsupportedError, match=r"column 'm' of type ARRAY<MULTISET<INT>>.*MULTISET"
    ):
        write_file("m ARRAY<MULTISET<INT>>", [[]])


@pytest.mark.parametrize("moment", [-1, -1_500_000])
def test_fractional_seconds_before_1970_are_refused(moment: int) -> None:
    with pytest.raises(InputError, match=r"column 't'.*before 1970"):
        write_file("t TIMESTAMP(6)", [[moment]])


def test_timestamps_beyond_the_nanosecond_range_are_refused() -> None:
    with pytest.raises(InputError, match="column 't' cannot be written to ORC"):
        write_file("t TIMESTAMP(3)", [[253_402_300_799_000]])


def test_values_inside_null_rows_do_not_shift_later_values() -> None:
    columns = "c ROW<r ROW<flag BOOLEAN NOT NULL, text STRING NOT NULL>>"
    kind = to_arrow_schema(parse_columns(columns)).field("c").type
    inner = pa.StructArray.from_arrays(
        [pa.array([False, False, True]), pa.array(["", "", "seen"])],
        fields=list(kind.field("r").type),
        mask=pa.array([True, True, False]),
    )
    rows = [pa.StructArray.from_arrays([inner], fields=list(kind))]

    [batch] = OrcFileReader(write_file(columns, rows), parse_columns(columns)).batches(["c"], 10)

    last_row = {"r": {"flag": True, "text": "seen"}}
    assert batch.column("c").to_pylist() == [{"r": None}, {"r": None}, last_row]
