"""Remote reads send few requests and need at most the memory of a row group."""

from __future__ import annotations

import io
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.files.parquet.parquet import ParquetFileReader
from paimon_orch.files.row_selection import read_parquet_rows
from paimon_orch.storage.streams import READ_AHEAD_BYTES, ObjectInput

ROWS, GROUPS = 40_000, 4


class CountingObject:
    """An object in memory that counts its requests."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.requests: list[int] = []

    def fetch(self, start: int, end: int) -> bytes:
        self.requests.append(end - start)
        return self.content[start:end]

    def open(self, *, read_ahead: int = READ_AHEAD_BYTES, end: bytes = b"") -> ObjectInput:
        return ObjectInput(self.fetch, len(self.content), read_ahead=read_ahead, end=end)


Ranges = list[tuple[int, int]]


@given(
    content=st.binary(max_size=200),
    steps=st.lists(st.tuples(st.integers(0, 220), st.integers(-1, 220)), max_size=10),
    read_ahead=st.integers(1, 50),
    end=st.integers(0, 220),
    ranges=st.lists(st.lists(st.tuples(st.integers(0, 220), st.integers(0, 220)), max_size=4)),
)
def test_random_reads_equal_reads_of_a_local_file(
    content: bytes, steps: Ranges, read_ahead: int, end: int, ranges: list[Ranges]
) -> None:
    counted, expected = CountingObject(content), io.BytesIO(content)
    source = counted.open(read_ahead=read_ahead, end=content[end:])
    for number, (position, size) in enumerate(steps):
        if number < len(ranges):
            source.expect(ranges[number])
        if number % 3 == 2:
            source = source.reopen()
        assert source.seek(position) == expected.seek(position)
        assert source.read(size) == expected.read(size)
        assert source.read(1) == expected.read(1)


def test_sequential_small_reads_send_no_additional_requests() -> None:
    counted = CountingObject(bytes(3 << 20))
    with counted.open() as source:
        while source.read(1000):
            pass
    assert len(counted.requests) <= 5


def test_bytes_that_are_known_or_expected_are_not_fetched_again() -> None:
    content = np.random.default_rng(1).bytes(20 << 20)
    counted = CountingObject(content)
    source = counted.open(end=content[-1000:])

    source.expect([(0, 9 << 20), (10 << 20, 10 << 20), (11 << 20, 12 << 20)])
    assert counted.requests == [8 << 20, 1 << 20, 1 << 20], "long ranges are fetched in parts"
    assert source.read(9 << 20) == content[: 9 << 20]
    source.expect([(11 << 20, 12 << 20), (len(content) - 2000, len(content))])
    assert counted.requests[3:] == [1000]
    source.seek(11 << 20)
    assert source.read(1 << 20) == content[11 << 20 : 12 << 20]
    source.seek(-2000, io.SEEK_END)
    assert source.read() == content[-2000:]
    assert len(counted.requests) == 4

    again = source.reopen()
    source.close()
    again.seek(-1000, io.SEEK_END)
    assert again.read() == content[-1000:]
    assert len(counted.requests) == 4


def test_a_small_object_that_was_read_as_a_whole_is_not_read_again() -> None:
    content = bytes(2 << 20)
    counted = CountingObject(content)
    source = counted.open(end=content[-1000:])
    assert source.read() == content
    assert source.reopen().read() == content
    assert counted.requests == [len(content) - 1000]


def test_a_sequence_of_small_reads_fetches_longer_and_longer_blocks() -> None:
    counted = CountingObject(bytes(40 << 20))
    with counted.open() as source:
        while source.read(1 << 16):
            pass
    assert [count >> 20 for count in counted.requests] == [1, 2, 4, 8, 8, 8, 8, 1]


def test_reading_a_remote_parquet_file_sends_few_requests() -> None:
    columns = {f"c{number}": pa.array(range(number, number + ROWS)) for number in range(6)}
    rows, sink = pa.table(columns), io.BytesIO()
    pq.write_table(
        rows, sink, row_group_size=ROWS // GROUPS, compression="none", use_dictionary=False
    )
    counted = CountingObject(sink.getvalue())
    names = ["c0", "c2", "c4", "c5"]

    with counted.open() as source:
        batches = list(ParquetFileReader(cast(IO[bytes], source), remote=True).batches(names, 1000))

    assert pa.Table.from_batches(batches) == rows.select(names)
    assert len(counted.requests) <= 1 + 3 * GROUPS
    assert max(batch.num_rows for batch in batches) == 1000


def test_reading_selected_rows_of_a_remote_parquet_file_sends_few_requests() -> None:
    random, rows, selected = np.random.default_rng(4), 150_000, np.arange(70_000, 70_050)
    text = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(80), rows, [None, pa.py_buffer(random.bytes(80 * rows))]
    )
    sink = io.BytesIO()
    table = pa.table({"k": random.permutation(rows), "v": text})
    pq.write_table(table, sink, write_page_index=True, max_rows_per_page=1_000)
    counted = CountingObject(sink.getvalue())

    with counted.open() as source:
        opened = ParquetFileReader(cast(IO[bytes], source), remote=True)
        ((numbers, batch),) = read_parquet_rows(
            opened, "f", columns=["k", "v"], batch_rows=1_000, groups=[0], selected=selected
        )

    assert numbers.tolist() == selected.tolist()
    assert pa.Table.from_batches([batch]) == table.take(pa.array(selected))
    assert len(counted.requests) <= 4
    assert sum(counted.requests) < len(sink.getvalue()) / 3
