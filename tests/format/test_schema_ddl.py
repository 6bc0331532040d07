"""The statement that creates a table in Flink SQL."""

from __future__ import annotations

from dataclasses import replace

from paimon_orch.format.schema import build_table_schema
from paimon_orch.format.schema_ddl import build_create_statement
from paimon_orch.format.types.data_types import parse_columns


def test_names_and_texts_are_quoted_and_defaults_are_comments() -> None:
    fields = parse_columns(
        "k BIGINT NOT NULL, dt STRING COMMENT 'the ''day''', "
        "`a b` ROW<`from` INT NOT NULL, m MAP<STRING, ARRAY<INT>>>, t TIMESTAMP(3)"
    )
    fields[2] = replace(fields[2], name="a`b")
    fields[3] = replace(fields[3], default_value="2026\nDROP TABLE x")
    schema = build_table_schema(
        fields,
        primary_key=["dt", "k"],
        partition_by=["dt"],
        options={"file.format": "orc", "bucket": "2"},
        comment="it's",
    )

    assert build_create_statement("db.t.x", schema).splitlines() == [
        "-- the column 't' has the default value '2026\\nDROP TABLE x'",
        "CREATE TABLE `db`.`t.x` (",
        "  `k` BIGINT NOT NULL,",
        "  `dt` STRING NOT NULL COMMENT 'the ''day''',",
        "  `a``b` ROW<`from` INT NOT NULL, `m` MAP<STRING, ARRAY<INT>>>,",
        "  `t` TIMESTAMP(3),",
        "  PRIMARY KEY (`dt`, `k`) NOT ENFORCED",
        ")",
        "COMMENT 'it''s'",
        "PARTITIONED BY (`dt`)",
        "WITH (",
        "  'bucket' = '2',",
        "  'file.format' = 'orc'",
        ");",
    ]


def test_a_table_of_columns_only_has_a_short_statement() -> None:
    schema = build_table_schema(parse_columns("v INT"))

    assert build_create_statement("db.t", schema) == "CREATE TABLE `db`.`t` (\n  `v` INT\n);"
