"""Values that are longer than the length of their type are stored as they are, except in ORC."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables import new_table, table_of


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_longer_values_are_not_truncated(tmp_path: Path, file_format: str) -> None:
    columns = "k VARCHAR(2), c CHAR(2), b BINARY(2), v VARBINARY(2), a ARRAY<VARCHAR(1)>"
    table = new_table(tmp_path, columns, key=("k",), file__format=file_format)
    long = ("abc", "defg", b"hijk", b"lmn", ["op"])
    short = ("ab", "d", b"h", b"", ["o"])

    table.upsert(table_of("k c b v a", [long, short]))
    table.upsert(table_of("k c b v a", [short]))

    rows = [tuple(row.values()) for row in table.scan().to_arrow().sort_by("k").to_pylist()]
    assert rows == [short, long]
