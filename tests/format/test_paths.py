"""Names of files."""

import pytest

from paimon_orch.format.paths import parse_file_format


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("data-1-0.parquet", "parquet"),
        ("data-1-0.ORC", "orc"),
        ("part-0.csv.gz", "csv"),
        ("part-0.json.ZST", "json"),
        ("data-1.0.avro", "avro"),
        ("data.gz", "gz"),
    ],
)
def test_the_format_stands_in_the_name_before_the_compression(name: str, form: str) -> None:
    assert parse_file_format(name) == form
