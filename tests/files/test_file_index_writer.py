"""Names of index files."""

from __future__ import annotations

import pytest

from paimon_orch.files.file_index_writer import next_index_name


@pytest.mark.parametrize(
    ("name", "following"),
    [
        ("data-0.parquet.index", "data-0.parquet-1.index"),
        ("data-0.parquet-1.index", "data-0.parquet-2.index"),
        ("data-0.parquet-9.index", "data-0.parquet-10.index"),
    ],
)
def test_the_name_of_a_replaced_index_file_is_numbered(name: str, following: str) -> None:
    assert next_index_name(name) == following
