"""Schema changes by which readers see other values of existing rows are described."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.commands import run_command
from support.tables import catalog_of, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.format.types.cast_rules import may_lose_values
from paimon_orch.format.types.data_types import parse_type
from paimon_orch.steps import compact
from paimon_orch.table.schema_change.schema_changes import SchemaChange, SetOption, UpdateType
from paimon_orch.table.table import Table

SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}


def create(root: Path, options: dict[str, str]) -> Table:
    settings = {"bucket": "1", **options}
    table = Catalog(str(root)).create_table(
        "db.t", "k INT, v INT, s INT", primary_key=["k"], options=settings
    )
    table.upsert(table_of("k v s", [(1, 1, 9), (2, 2, 9)]))
    table.upsert(table_of("k v s", [(1, 3, 8)]))
    return table


@pytest.mark.parametrize(
    ("options", "change", "effect"),
    [
        ({}, SetOption("sequence.field", "s"), "option 'sequence.field'"),
        ({}, SetOption("ignore-delete", "true"), "option 'ignore-delete'"),
        (SUM, SetOption("fields.v.aggregate-function", "max"), "option 'fields.v.aggregate-fun"),
        (SUM, SetOption("changelog-producer", "lookup"), "option 'changelog-producer'"),
        (
            {"sequence.field": "s"},
            SetOption("sequence.field.sort-order", "descending"),
            "option 'sequence.field.sort-order'",
        ),
        (SUM, UpdateType("v", "SMALLINT"), "the type of column 'v'"),
    ],
)
def test_another_merge_of_files_is_described_until_they_are_compacted(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    change: SchemaChange,
    effect: str,
) -> None:
    table = create(tmp_path, options)
    with caplog.at_level(logging.WARNING):
        catalog_of(table).alter_table("db.t", [change])
    assert f"the merge of rows by {effect}" in caplog.text
    assert "bucket 0 of" in caplog.text

    compacted = create(tmp_path / "compacted", options)
    compact(compacted, strategy="full")
    before = rows_of(compacted)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        catalog_of(compacted).alter_table("db.t", [change])
    assert "the merge of rows" not in caplog.text
    assert rows_of(catalog_of(compacted).table("db.t")) == before


def test_the_command_asks_before_readers_see_other_rows(tmp_path: Path) -> None:
    table = create(tmp_path, {})
    arguments = [
        "alter",
        str(tmp_path),
        "db.t",
        "--set",
        "sequence.field=s",
        "--type",
        "v=SMALLINT",
    ]

    dry_run = run_command(*arguments, "--dry-run")
    assert "readers see other rows: the values of column 'v' in 3 rows as SMALLINT" in dry_run
    assert "readers see other rows: the merge of rows by option 'sequence.field'" in dry_run
    with pytest.raises(InputError, match=r"change the values of column 'v' .* and the merge of"):
        run_command(*arguments)
    assert catalog_of(table).table("db.t").load().schema == table.load().schema

    run_command(*arguments, "--yes")
    assert rows_of(catalog_of(table).table("db.t")) == [(1, 1, 9), (2, 2, 9)]


def test_the_command_does_not_ask_if_no_row_changes(tmp_path: Path) -> None:
    create(tmp_path, {})
    assert "other rows" not in run_command("alter", str(tmp_path), "db.t", "--type", "v=BIGINT")


@pytest.mark.parametrize(
    ("old", "new", "loses"),
    [
        ("INT", "BIGINT", False),
        ("BIGINT", "INT", True),
        ("INT", "DOUBLE", False),
        ("BIGINT", "DOUBLE", True),
        ("SMALLINT", "FLOAT", False),
        ("FLOAT", "DOUBLE", False),
        ("DOUBLE", "FLOAT", True),
        ("DOUBLE", "STRING", False),
        ("STRING", "VARCHAR(5)", True),
        ("CHAR(5)", "VARCHAR(7)", False),
        ("BINARY(5)", "BYTES", False),
        ("BOOLEAN", "INT", False),
        ("INT", "BOOLEAN", True),
        ("DECIMAL(10, 2)", "DECIMAL(12, 2)", False),
        ("DECIMAL(10, 2)", "DECIMAL(10, 3)", True),
        ("DECIMAL(9, 0)", "INT", False),
        ("INT", "DECIMAL(10, 0)", False),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", False),
        ("TIMESTAMP(6)", "TIMESTAMP(3)", True),
        ("TIMESTAMP(6)", "DATE", True),
        ("DATE", "TIMESTAMP(3)", False),
        ("ARRAY<BIGINT>", "ARRAY<INT>", True),
        ("MAP<INT, INT>", "MAP<INT, BIGINT>", False),
        ("ROW<a BIGINT>", "ROW<a INT>", True),
    ],
)
def test_types_that_hold_fewer_values_are_found(old: str, new: str, *, loses: bool) -> None:
    assert may_lose_values(parse_type(old), parse_type(new)) == loses
