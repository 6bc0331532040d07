"""The statement that creates a table in Flink SQL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.schema_ddl import build_create_statement
from paimon_orch.format.schema_definition import build_table_schema
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


def test_texts_with_characters_that_cannot_be_seen_are_unicode_literals() -> None:
    schema = build_table_schema(
        parse_columns("v INT"), options={"x": "\\a\x1b'\U000e0041"}, comment="a\n);"
    )

    statement = build_create_statement("db.t", schema)

    assert "COMMENT U&'a\\000a);'" in statement
    assert "'x' = U&'\\005ca\\001b''\\db40\\dc41'" in statement
    assert all(line.isprintable() for line in statement.split("\n"))


def test_names_with_characters_that_cannot_be_seen_are_refused() -> None:
    fields = [replace(parse_columns("v INT")[0], name="a\u202eb")]
    with pytest.raises(UnsupportedError, match=r"the name 'a\\u202eb' has characters"):
        build_create_statement("db.t", build_table_schema(fields))


def test_a_table_of_columns_only_has_a_short_statement() -> None:
    schema = build_table_schema(parse_columns("v INT"))

    assert build_create_statement("db.t", schema) == "CREATE TABLE `db`.`t` (\n  `v` INT\n);"
