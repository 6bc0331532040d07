"""The Hive types of columns, which Java's types are compared with in `test_hive_catalog.py`."""

import pytest

from paimon_orch.format.types.data_types import TypeRoot, has_atom, parse_type
from paimon_orch.metastore.hive_types import LOCAL_TIMESTAMP, TIMESTAMP, to_hive_type


@pytest.mark.parametrize(
    ("paimon", "hive"),
    [
        ("BOOLEAN", "boolean"),
        ("TINYINT NOT NULL", "tinyint"),
        ("DECIMAL(10, 2)", "decimal(10,2)"),
        ("CHAR(255)", "char(255)"),
        ("CHAR(256)", "string"),
        ("VARCHAR(65535)", "varchar(65535)"),
        ("VARCHAR(65536)", "string"),
        ("STRING", "string"),
        ("BYTES", "binary"),
        ("TIME(3)", "string"),
        ("TIMESTAMP(9)", "timestamp"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "timestamp with local time zone"),
        ("MULTISET<STRING>", "map<string,int>"),
        ("MAP<STRING, ARRAY<INT>>", "map<string,array<int>>"),
        ("ROW<Ab INT, c ROW<d DATE>>", "struct<Ab:int,c:struct<d:date>>"),
    ],
)
def test_types_of_hive_3(paimon: str, hive: str) -> None:
    assert to_hive_type(parse_type(paimon), LOCAL_TIMESTAMP) == hive


def test_hive_2_has_one_type_of_timestamps() -> None:
    nested = parse_type("MAP<INT, ROW<a ARRAY<TIMESTAMP_LTZ(3)>>>")
    assert has_atom(nested, TypeRoot.TIMESTAMP_LTZ)
    assert to_hive_type(nested, TIMESTAMP) == "map<int,struct<a:array<timestamp>>>"
    assert not has_atom(parse_type("MAP<INT, TIMESTAMP(3)>"), TypeRoot.TIMESTAMP_LTZ)
