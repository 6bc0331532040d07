"""Conversions between numpy and Arrow agree with those of pyarrow, and import no pandas."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from paimon_orch.format.arrays import AnyArray, to_arrow_array, to_numpy

ARRAYS = [
    np.arange(20, dtype=kind)
    for kind in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64, np.float32, np.float64)
] + [np.arange(20) % 3 == 0, np.arange(40)[::-2], np.array([0.0, np.nan]), np.array([], bool)]


@pytest.mark.parametrize("values", ARRAYS, ids=lambda values: f"{values.dtype}-{len(values)}")
def test_arrays_become_arrow_arrays_with_and_without_nulls(values: AnyArray) -> None:
    mask = np.arange(len(values)) % 3 == 1

    for actual, expected in (
        (to_arrow_array(values), pa.array(values)),
        (to_arrow_array(values, mask), pa.array(values, mask=mask)),
    ):
        actual.validate(full=True)
        assert actual.type == expected.type
        assert actual.null_count == expected.null_count
        assert repr(actual.to_pylist()) == repr(expected.to_pylist())  # NaN does not equal NaN


@pytest.mark.parametrize("values", ARRAYS, ids=lambda values: f"{values.dtype}-{len(values)}")
@pytest.mark.parametrize("offset", [0, 1, 9])
def test_arrow_arrays_become_arrays_in_which_a_value_replaces_nulls(
    values: AnyArray, offset: int
) -> None:
    array = pa.array(values).slice(offset)
    holes = pa.array(values, mask=np.arange(len(values)) % 3 == 1).slice(offset)
    chunks = pa.chunked_array([holes, array, array.slice(2, 3)])

    for column in (array, holes, chunks, pa.chunked_array([holes]), holes.slice(3, 4)):
        for null in (0, 1):
            filled = column.fill_null(values.dtype.type(null).item())
            expected = np.array(filled.to_pylist(), values.dtype)
            actual = to_numpy(column, null)
            assert actual.dtype == values.dtype
            np.testing.assert_array_equal(actual, expected)
    assert to_numpy(pa.chunked_array([], array.type)).dtype == values.dtype


def test_big_endian_numbers_keep_their_values() -> None:
    for kind in (">i4", ">f8"):
        assert to_arrow_array(np.array([1, -2], kind)).to_pylist() == [1, -2]


def test_other_types_are_refused() -> None:
    with pytest.raises(KeyError):
        to_numpy(pa.array([1], pa.timestamp("ms")))


def test_conversions_import_no_pandas() -> None:
    code = (
        "import sys, numpy as np; from paimon_orch.format.arrays import to_arrow_array, to_numpy;"
        "to_numpy(to_arrow_array(np.arange(3), np.arange(3) == 1), 7);"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
