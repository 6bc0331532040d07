"""JSON files of VECTOR columns; `tests/table/scan/test_golden_read.py` reads those of Java."""

from __future__ import annotations

from io import BytesIO

import pyarrow as pa
import pytest

from paimon_orch.files.json_vectors import JsonVectorReader, is_vector_file
from paimon_orch.format.types.data_types import parse_columns


def read(data: bytes, columns: str, batch_rows: int = 100) -> list[list[object]]:
    reader = JsonVectorReader(BytesIO(data), parse_columns(columns))
    return [batch.column(0).to_pylist() for batch in reader.batches(["v"], batch_rows)]


@pytest.mark.parametrize(
    ("kind", "line", "expected"),
    [
        ("DOUBLE", '["NaN","-Infinity","1.5E-5"]', "[nan, -inf, 1.5e-05]"),
        ("BIGINT", '["-9223372036854775808","0","7"]', "[-9223372036854775808, 0, 7]"),
        ("BOOLEAN", '["true","false","true"]', "[True, False, True]"),
    ],
)
def test_elements_are_text(kind: str, line: str, expected: str) -> None:
    [[vector, null]] = read(
        f'{{"v":{line}}}\n{{"v":null}}\n'.encode(), f"k INT, v VECTOR<{kind}, 3>"
    )

    assert (str(vector), null) == (expected, None)


def test_batches_have_the_rows_in_order() -> None:
    data = b"".join(b'{"w":["0"],"v":["%d"]}\n' % number for number in range(5))

    batches = read(data, "v VECTOR<INT, 1>, w VECTOR<INT, 1>", batch_rows=2)

    assert batches == [[[0], [1]], [[2], [3]], [[4]]]


def test_a_read_without_columns_has_the_number_of_rows() -> None:
    reader = JsonVectorReader(BytesIO(b'{"v":["1"]}\n' * 5), parse_columns("v VECTOR<INT, 1>"))

    assert [batch.num_rows for batch in reader.batches([], 2)] == [2, 2, 1]


def test_an_empty_file_has_no_rows() -> None:
    assert read(b"", "v VECTOR<INT, 1>") == []


@pytest.mark.parametrize(
    "data", [b"{", b'{"v":["x"]}\n', b'{"v":[1]}\n', b'{"x":["1"]}\n', b"\x00\xff\n"]
)
def test_other_content_is_refused(data: bytes) -> None:
    with pytest.raises(pa.ArrowInvalid):
        read(data, "v VECTOR<INT, 1>")


def test_only_names_of_vector_files_are_accepted() -> None:
    assert is_vector_file("/t.vector.x/bucket-0/data-1-1.vector.json")
    assert not is_vector_file("/t.vector.x/bucket-0/data-1-1.json")
