"""Bounds of integers in ORC streams, compared with the streams of the ORC library."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from paimon_orch.format.orc.orc_integers import find_integer_bounds
from paimon_orch.format.orc.orc_metadata import OrcTail

_LENGTH_STREAM, _DATA_STREAM = 2, 1
CHANCE = np.random.default_rng(7)
LENGTHS = {
    "equal": np.full(5_000, 3),
    "zeros and ones": CHANCE.integers(0, 2, 5_000),
    "small": CHANCE.integers(0, 6, 20_000),
    "some large": np.where(CHANCE.random(5_000) < 0.03, 3_000, CHANCE.integers(0, 9, 5_000)),
    "all large": CHANCE.integers(300, 400, 2_000),
    "repeated large": np.repeat(CHANCE.integers(0, 900, 500), 4),
    "rising": np.sort(CHANCE.integers(0, 500, 3_000)),
    "falling": np.tile(np.arange(300, 0, -2), 20),
    "large outliers": np.where(
        CHANCE.random(5_000) < 0.02, 70_000, CHANCE.integers(100, 150, 5_000)
    ),
    "one very large": np.array([*[1] * 600, 3_000_000, *range(600)]),
}


def read_stream(column: pa.Array, kind: int) -> bytes:
    sink = io.BytesIO()
    orc.write_table(pa.table({"v": column}), sink, compression="uncompressed")
    data = sink.getvalue()
    tail = OrcTail(orc.ORCFile(io.BytesIO(data)).reader.serialized_file_tail())
    (stripe,) = tail.stripes
    streams = tail.read_footer(io.BytesIO(data), stripe).streams
    (stream,) = (each for each in streams if (each.kind, each.column) == (kind, 1))
    return tail.read_stream(io.BytesIO(data), stream)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", LENGTHS)
def test_the_sum_of_lengths_is_exact_and_their_bounds_are_right(name: str) -> None:
    lengths = LENGTHS[name]
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(ends), pa.nulls(int(ends[-1]), pa.int8()))

    data = read_stream(lists, _LENGTH_STREAM)
    rough = find_integer_bounds(data, version=2, is_signed=False, rough_total=1 << 60)
    low, high, total = find_integer_bounds(data, version=2, is_signed=False)

    assert low == rough.low == 0
    assert lengths.max() <= high == rough.high
    assert lengths.sum() == total <= rough.total


@pytest.mark.parametrize(
    ("values", "is_negative"),
    [
        ([5] * 700, False),
        (CHANCE.integers(0, 3, 5_000).tolist(), False),
        ([*CHANCE.integers(0, 90, 700).tolist(), -1], True),
        ([*[4] * 9, -2, 1, 3, *[4] * 9], True),
        ([-3] * 700, True),
        ([-3] * 5 + [8, 2, 30, 1], True),
    ],
)
def test_negative_values_of_signed_streams_are_found(
    values: Sequence[int], *, is_negative: bool
) -> None:
    data = read_stream(pa.array(values, pa.int64()), _DATA_STREAM)

    low, high, _ = find_integer_bounds(data, version=2, is_signed=True)

    assert (low < 0) == is_negative
    assert low <= min(values)
    assert max(values) <= high


def test_runs_of_version_1_have_their_values() -> None:
    # the examples of the specification of ORC: 100 times 7, 100 to 1, and five primes
    assert find_integer_bounds(bytes([0x61, 0, 7]), version=1, is_signed=False) == (0, 7, 700)
    falling = find_integer_bounds(bytes([0x61, 0xFF, 0x64]), version=1, is_signed=False)
    assert falling == (0, 100, 5_050)
    primes = bytes([0xFB, 2, 3, 4, 7, 11])
    assert find_integer_bounds(primes, version=1, is_signed=False) == (0, 11, 27)


@pytest.mark.parametrize(
    ("encoded", "values"),
    [
        ("0a2710", [10_000] * 5),
        ("5e035ca1ab1edeadbeef", [23_713, 43_806, 57_005, 48_879]),
        (
            "8e13 2b21 07d0 1e00 1470 2832 3c46 505a 646e 7882 8c96 a0aa b4be fce8",
            [2030, 2000, 2020, 1_000_000, *range(2040, 2200, 10)],
        ),
        ("c609020222424246", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]),
    ],
)
def test_runs_of_version_2_have_the_values_of_the_specification(
    encoded: str, values: Sequence[int]
) -> None:
    low, high, total = find_integer_bounds(bytes.fromhex(encoded), version=2, is_signed=False)
    assert low == 0
    assert max(values) <= high
    assert sum(values) == total


@pytest.mark.parametrize("run", ["7e00" + "ff" * 8, "c0050203", "3f" + "ff" * 8])
def test_lengths_that_no_writer_writes_are_negative_or_very_large(run: str) -> None:
    low, high, _ = find_integer_bounds(bytes.fromhex(run) + bytes(9), version=2, is_signed=False)
    assert low < 0 or high > 1 << 60
