"""ORC files: conversions that the reader and writer of pyarrow do not make."""

from __future__ import annotations

import io
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.file_format import open_reader
from paimon_orch.files.orc import OrcFileReader, OrcFileWriter
from paimon_orch.files.orc_instants import refuse_unnamed_zone
from paimon_orch.files.orc_times import find_time_correction
from paimon_orch.files.row_selection import take_selected_rows
from paimon_orch.format.orc.orc_metadata import OrcTail, StripeFooter
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import AtomicType, parse_columns


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


def test_a_multiset_is_a_map_from_its_elements_to_their_counts() -> None:
    columns = "k INT, m ARRAY<MULTISET<INT>>"
    values = [[[(1, 2), (3, 1)], None], [], None]
    data = write_file(columns, [range(3), values])
    assert orc.ORCFile(data).schema.field("m").type.value_type == pa.map_(pa.int32(), pa.int32())
    [batch] = OrcFileReader(data, parse_columns(columns)).batches(["m"], 10)
    assert batch.column("m").to_pylist() == values


def test_the_error_for_a_variant_contains_the_column() -> None:
    with pytest.raises(UnsupportedError, match=r"column 'm' of type ARRAY<VARIANT>.*VARIANT"):
        write_file("m ARRAY<VARIANT>", [[]])


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


COLUMNS = "k INT, t TIMESTAMP(3), i TIMESTAMP(3) WITH LOCAL TIME ZONE"


def write_stripes(codec: str, rows: int) -> bytes:
    """Write each minute since 2020 in small stripes; the writer's zone is UTC."""
    fields = parse_columns(COLUMNS)
    sink = io.BytesIO()
    writer = OrcFileWriter(sink, fields, codec, 1 << 16)
    times = 1_577_836_800_000 + 60_000 * np.random.default_rng(1).permutation(rows)
    for start in range(0, rows, 10_000):
        part = times[start : start + 10_000]
        writer.write(pa.table([np.arange(len(part)), part, part], to_arrow_schema(fields)))
    writer.close()
    return sink.getvalue()


def read_footers(data: bytes) -> tuple[OrcTail, list[StripeFooter]]:
    tail = OrcTail(orc.ORCFile(io.BytesIO(data)).reader.serialized_file_tail())
    return tail, [tail.read_footer(io.BytesIO(data), stripe) for stripe in tail.stripes]


def list_sizes(footer: StripeFooter) -> list[tuple[int, int, int]]:
    return [(stream.kind, stream.column, stream.size) for stream in footer.streams]


def replace_zones(data: bytes, zone: str) -> bytes:
    tail, footers = read_footers(data)
    parts = tail.replace_zones(footers, zone)
    return b"".join(
        data[part.start : part.stop] if isinstance(part, range) else part for part in parts
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("codec", ["none", "zstd", "snappy", "zlib", "lz4"])
def test_the_zone_of_all_stripes_is_replaced_without_other_changes(codec: str) -> None:
    data = write_stripes(codec, 60_000)
    _, footers = read_footers(data)
    assert len(footers) > 1
    assert {footer.zone for footer in footers} == {"GMT"}

    changed = replace_zones(data, "Asia/Kolkata")

    _, changed_footers = read_footers(changed)
    assert {footer.zone for footer in changed_footers} == {"Asia/Kolkata"}
    assert list(map(list_sizes, changed_footers)) == list(map(list_sizes, footers))
    original = orc.ORCFile(io.BytesIO(data)).read()
    # the ORC library returns local times of the zone, which has no summer time
    assert orc.ORCFile(io.BytesIO(changed)).read().equals(original)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("zone", ["Asia/Kolkata", "GMT+05:30", "IST"])
@pytest.mark.parametrize("legacy", [True, False])
def test_times_are_those_of_the_zone_of_the_writer(zone: str, *, legacy: bool) -> None:
    data = write_stripes("zstd", 60_000)
    source = io.BytesIO(replace_zones(data, zone))
    reader = OrcFileReader(source, parse_columns(COLUMNS), legacy_instants=legacy)

    found = pa.Table.from_batches(reader.batches(["k", "t", "i"], 10_000))

    expected = orc.ORCFile(io.BytesIO(data)).read()
    assert found["t"].to_pylist() == expected["t"].to_pylist()
    shift = np.timedelta64(330 if legacy else 0, "m")
    assert (found["i"].to_numpy() - expected["i"].to_numpy() == shift).all()


def test_stripes_may_have_different_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_stripes("zstd", 60_000)
    _, footers = read_footers(data)
    zones = ["Asia/Kolkata", "GMT", *("Etc/GMT-3" for _ in footers[2:])]
    named = [replace(footer, zone=zone) for footer, zone in zip(footers, zones, strict=True)]
    reader = OrcFileReader(io.BytesIO(data), parse_columns(COLUMNS))
    monkeypatch.setitem(reader.__dict__, "_footers", named)

    batches = list(reader.batches(["i"], 10_000))

    stored = orc.ORCFile(io.BytesIO(data))
    for number, (batch, minutes) in enumerate(zip(batches, [330, 0, *[180] * 99], strict=False)):
        instants = stored.read_stripe(number, ["i"]).column("i").to_numpy()
        shifts = batch.column("i").to_numpy() - instants
        assert (shifts == np.timedelta64(minutes, "m")).all()
    assert len(batches) == len(footers)


def test_times_before_1900_have_the_standard_offset_of_today_as_in_java() -> None:
    correct = find_time_correction("Asia/Shanghai", legacy_instants=True)
    assert correct is not None
    kind = pa.timestamp("ns", tz="UTC")
    [field] = parse_columns("i TIMESTAMP(3) WITH LOCAL TIME ZONE")
    stored = pa.array(["1899-12-31T12:00:00", "1900-06-01T00:00:00", "1901-06-01T00:00:00"])
    stored = stored.cast(pa.timestamp("ns")).view(kind)

    assert isinstance(field.type, AtomicType)
    local = correct(stored, field.type, kind)

    offsets = local.view(pa.int64()).to_numpy() - stored.view(pa.int64()).to_numpy()
    assert (offsets // 10**9).tolist() == [8 * 3600, 8 * 3600 + 5 * 60 + 43, 8 * 3600]


@pytest.mark.parametrize(
    ("zone", "times", "hours"),
    [
        # Ramadan is in the database until 2087
        (
            "Africa/Casablanca",
            ["2036-11-01", "2042-09-12", "2061-02-08", "2100-01-01"],
            [0, 1, 1, 1],
        ),
        ("Asia/Gaza", ["2036-07-01", "2053-05-01", "2053-12-31"], [3, 3, 2]),
        # the last Saturday instead of the last one up to the 30th, and without Ramadan
        ("Asia/Gaza", ["2037-10-20", "2040-03-28", "2043-10-27", "2043-11-01"], [3, 2, 3, 2]),
        ("Africa/Windhoek", ["1890-01-01", "2036-12-31", "2037-01-02"], [1, 2, 1]),
        ("America/New_York", ["2037-07-01", "2038-01-02", "2100-07-01"], [-4, -5, -4]),
    ],
)
def test_changes_of_single_years_after_2037_are_left_out_as_in_java(
    zone: str, times: list[str], hours: list[int]
) -> None:
    [field], kind = parse_columns("t TIMESTAMP_LTZ(6)"), pa.timestamp("ns", "UTC")
    correct = find_time_correction(zone, legacy_instants=True)
    assert correct is not None
    stored = pa.array(times).cast(pa.timestamp("ns")).view(kind)

    assert isinstance(field.type, AtomicType)
    local = correct(stored, field.type, kind)

    offsets = local.view(pa.int64()).to_numpy() - stored.view(pa.int64()).to_numpy()
    assert (offsets // 3_600_000_000_000).tolist() == hours


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("CET", "Europe/Brussels"),
        ("CST6CDT", "America/Chicago"),
        ("EET", "Europe/Athens"),
        ("EST5EDT", "America/New_York"),
        ("MET", "Europe/Brussels"),
        ("MST7MDT", "America/Denver"),
        ("PST8PDT", "America/Los_Angeles"),
        ("WET", "Europe/Lisbon"),
    ],
)
def test_short_names_have_the_rules_of_their_region_as_in_java(zone: str, region: str) -> None:
    [field], kind = parse_columns("t TIMESTAMP_LTZ(6)"), pa.timestamp("ns", "UTC")
    data_type = field.type
    assert isinstance(data_type, AtomicType)
    months = pa.array(np.arange("1905", "2050", dtype="datetime64[M]").astype("datetime64[ns]"))

    def convert(name: str) -> pa.Array:
        correct = find_time_correction(name, legacy_instants=True)
        assert correct is not None
        return correct(months.view(kind), data_type, kind)

    assert convert(zone).equals(convert(region))


def test_an_unknown_zone_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="in the time zone 'Mars/Olympus', which the time z"):
        find_time_correction("Mars/Olympus", legacy_instants=True)


@pytest.mark.parametrize(
    ("shift", "is_refused"), [(0, False), (1000, False), (8 * 3_600_000, True)]
)
def test_instants_without_a_zone_must_have_the_bounds_of_the_manifest(
    shift: int, is_refused: bool
) -> None:
    fields = parse_columns("i TIMESTAMP(3) WITH LOCAL TIME ZONE")
    sink = io.BytesIO()
    writer = OrcFileWriter(sink, fields, "none", 1 << 16)
    writer.write(pa.table([[1_577_836_800_000, None]], to_arrow_schema(fields)))
    writer.close()
    unnamed = sink.getvalue().replace(b"\x1a\x03GMT", b"\x7a\x03GMT")  # an unknown field
    reader = OrcFileReader(io.BytesIO(unnamed), fields)
    shown = 1_577_836_800_000 + shift
    stats = ColumnStats(shown, shown, 1)

    with (
        pytest.raises(UnsupportedError, match=r"column 'i' in a time zone \+480 minutes")
        if is_refused
        else nullcontext()
    ):
        refuse_unnamed_zone("f.orc", reader, ["i"], lambda _: stats)


def write_column(column: pa.Array) -> bytes:
    sink = io.BytesIO()
    orc.write_table(pa.table({"v": column}), sink, compression="uncompressed")
    return sink.getvalue()


def replace_stream(data: bytes, kind: int, column: int, changed: str) -> bytes:
    """Overwrite the first bytes of a stream; it keeps its size."""
    _, [footer] = read_footers(data)
    [stream] = [each for each in footer.streams if (each.kind, each.column) == (kind, column)]
    new = bytes.fromhex(changed)
    assert len(new) <= stream.size
    return data[: stream.offset] + new + data[stream.offset + len(new) :]


TEXTS = pa.array([f"{'x' * (number % 7)}" for number in range(99)])
LISTS = pa.array([[number] * (number % 7) for number in range(99)], pa.list_(pa.int32()))
MAPS = pa.array(
    [[(k, k) for k in range(number % 7)] for number in range(99)], pa.map_(pa.int32(), pa.int32())
)


@pytest.mark.parametrize(
    ("column", "ddl"),
    [(TEXTS, "v STRING"), (LISTS, "v ARRAY<INT>"), (MAPS, "v MAP<INT, INT>")],
)
@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ("c062007f", "has the length -"),  # falling by 64
        ("390000ffffffffffff", "which needs more than"),  # 281474976710655, four times
        ("7e00ffffffffffffffff", "which needs more than"),  # -1 as a number of 64 bits
    ],
)
def test_lengths_with_which_the_orc_library_ends_the_process_are_refused(
    column: pa.Array, ddl: str, run: str, reason: str
) -> None:
    data = replace_stream(write_column(column), 2, 1, run)
    reader = OrcFileReader(io.BytesIO(data), parse_columns(ddl))
    with pytest.raises(ValueError, match=reason):
        list(reader.batches(["v"], 1024))


WITH_NULLS = pa.array([[None, number] * (number % 4) for number in range(99)])
NESTED = pa.array([[[1] * (number % 4)] for number in range(99)])
ROWS = pa.array([[{"a": 1}] * (number % 4) for number in range(99)])


@pytest.mark.parametrize(
    ("values", "ddl", "column", "changed"),
    [
        (LISTS, "ARRAY<INT>", 1, -1),
        (LISTS, "ARRAY<INT>", 1, 1),
        (MAPS, "MAP<INT, INT>", 1, -1),
        (WITH_NULLS, "ARRAY<BIGINT>", 1, -1),
        (NESTED, "ARRAY<ARRAY<BIGINT>>", 2, -1),
        (ROWS, "ARRAY<ROW<a BIGINT>>", 1, -1),
    ],
    ids=["list", "long list", "map", "nulls", "nested", "rows"],
)
def test_lengths_whose_sum_is_not_the_number_of_items_are_refused(
    values: pa.Array, ddl: str, column: int, changed: int
) -> None:
    data = write_column(values)
    _, [footer] = read_footers(data)
    [stream] = [each for each in footer.streams if (each.kind, each.column) == (2, column)]
    last = stream.offset + 4  # a byte of packed lengths
    damaged = data[:last] + bytes([data[last] + changed]) + data[last + 1 :]
    fields = parse_columns(f"v {ddl}")
    healthy = OrcFileReader(io.BytesIO(data), fields).batches(["v"], 99)
    assert (
        pa.concat_arrays([batch.column(0) for batch in healthy]).to_pylist() == values.to_pylist()
    )

    reader = OrcFileReader(io.BytesIO(damaged), fields)
    with pytest.raises(ValueError, match=f"the lengths of ORC column {column} say that its"):
        list(reader.batches(["v"], 9))


def test_scales_with_which_the_orc_library_does_not_end_are_refused() -> None:
    column = pa.array([Decimal(number).scaleb(-5) for number in range(99)], pa.decimal128(30, 5))
    data = replace_stream(write_column(column), 5, 1, "c0620d00")  # -7
    reader = OrcFileReader(io.BytesIO(data), parse_columns("v DECIMAL(30, 5)"))
    with pytest.raises(ValueError, match="have scales between -7 and"):
        list(reader.batches(["v"], 1024))


def test_a_precision_with_which_pyarrow_ends_the_process_is_refused() -> None:
    data = write_column(pa.array([Decimal(1)], pa.decimal128(33, 0)))
    precision = bytes([5 << 3, 33, 6 << 3, 0])  # and the scale
    assert data.count(precision) == 1
    damaged = data.replace(precision, bytes([5 << 3, 39, 6 << 3, 0]))
    with pytest.raises(
        ValueError, match=r"the precision 39 or the scale \d+ of column 1 is above 38"
    ):
        OrcFileReader(io.BytesIO(damaged), parse_columns("v DECIMAL(33, 0)"))


def test_a_block_size_with_which_pyarrow_ends_the_process_is_refused() -> None:
    sink = io.BytesIO()
    orc.write_table(pa.table({"v": [1]}), sink, compression="zstd")
    data = sink.getvalue()
    postscript = data[-1 - data[-1] : -1]
    block_size = bytes([3 << 3, 0x80, 0x80, 0x04])
    assert postscript.count(block_size) == 1
    changed = postscript.replace(block_size, bytes([3 << 3, *[0x80] * 8, 0x19]))
    damaged = data[: -1 - data[-1]] + changed + bytes([len(changed)])
    with pytest.raises(ValueError, match="the compressed blocks of an ORC file cannot have"):
        OrcFileReader(io.BytesIO(damaged), parse_columns("v BIGINT"))


def test_large_healthy_lengths_are_read() -> None:
    texts = pa.array([b"x" * (300 + number % 99) for number in range(20_000)])
    reader = OrcFileReader(io.BytesIO(write_column(texts)), parse_columns("v BYTES"))
    assert pa.concat_arrays([batch.column(0) for batch in reader.batches(["v"], 1024)]) == texts


def test_long_texts_of_a_dictionary_beside_lists_are_read() -> None:
    """The lengths of the texts are packed in 16 bits, so that their bound is 65,535."""
    texts = pa.array([chr(97 + n % 26) * (20 + n) for n in range(280)])
    rows = pa.table(
        {
            "d": texts.take(pa.array(np.arange(100_000) % 280)),
            "l": pa.array([[1, 2, 3]]).take(pa.array(np.zeros(100_000, np.int32))),
        }
    )
    sink = io.BytesIO()
    orc.write_table(rows, sink, compression="zstd", dictionary_key_size_threshold=1.0)
    columns = parse_columns("d STRING, l ARRAY<BIGINT>")

    reader = open_reader(io.BytesIO(sink.getvalue()), "bucket-0/data-1.orc", columns)

    assert sum(batch.num_rows for batch in reader.batches(["d", "l"], 65_536)) == 100_000


@pytest.mark.parametrize(
    ("column", "text", "stored"),
    [
        ("VARCHAR(3)", "abc", True),
        ("VARCHAR(3)", "a\u00e9\U0001f600", True),
        ("VARCHAR(3)", "abcd", False),
        ("CHAR(3)", "abc ", False),
        ("ARRAY<VARCHAR(3)>", ["abcd"], False),
        ("STRING", "abcd", True),
    ],
)
def test_text_that_java_would_truncate_is_refused(column: str, text: Any, *, stored: bool) -> None:
    if stored:
        file = write_file(f"v {column}", [[text, None]])
        assert orc.read_table(file)["v"].to_pylist() == [text, None]
    else:
        with pytest.raises(
            InputError, match=r"'v' cannot be written to ORC: .* as (VAR)?CHAR\(3\)"
        ):
            write_file(f"v {column}", [[text, None]])
