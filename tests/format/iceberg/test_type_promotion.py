"""Files of an older schema are published only if Iceberg reads what Paimon reads."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.schema_evolution.cast import cast
from paimon_orch.format.iceberg.type_promotion import check_promotable
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, Field, parse_columns, parse_type


def schemas_with(old: str, new: str) -> tuple[TableSchema, TableSchema]:
    """Return two versions of a schema, in which column ``c`` has these types."""
    first = build_table_schema(parse_columns("id INT"))
    columns = [(*first.fields, Field(id=1, name="c", type=parse_type(text))) for text in (old, new)]
    return replace(first, id=3, fields=columns[0]), replace(first, id=7, fields=columns[1])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("INT", "INT"),
        ("TINYINT", "SMALLINT"),
        ("TINYINT", "INT"),
        ("SMALLINT", "INT"),
        ("INT", "BIGINT"),
        ("FLOAT", "DOUBLE"),
        ("DECIMAL(8, 2)", "DECIMAL(12, 2)"),
        ("CHAR(3)", "VARCHAR(3)"),
        ("CHAR(3)", "STRING"),
        ("VARCHAR(3)", "STRING"),
        ("BINARY(3)", "BYTES"),
        ("TIME(0)", "TIME(3)"),
        ("TIMESTAMP(3)", "TIMESTAMP(6)"),
        ("TIMESTAMP_LTZ(4)", "TIMESTAMP_LTZ(5)"),
        ("INT NOT NULL", "INT"),
        ("ARRAY<INT>", "ARRAY<BIGINT>"),
        ("MULTISET<INT>", "MULTISET<BIGINT>"),
        ("MAP<INT, FLOAT>", "MAP<INT NOT NULL, DOUBLE>"),
        ("ROW<a INT>", "ROW<b BIGINT, c STRING>"),
        ("ROW<a INT, b STRING>", "ROW<a INT>"),
    ],
)
def test_changes_that_iceberg_reads_as_paimon_does_are_allowed(old: str, new: str) -> None:
    check_promotable(*schemas_with(old, new))


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("TINYINT", "BIGINT", "c"),
        ("SMALLINT", "BIGINT", "c"),
        ("INT", "SMALLINT", "c"),
        ("INT", "FLOAT", "c"),
        ("INT", "STRING", "c"),
        ("BIGINT", "INT", "c"),
        ("BIGINT", "DECIMAL(25, 0)", "c"),
        ("DOUBLE", "FLOAT", "c"),
        ("DECIMAL(8, 2)", "DECIMAL(12, 3)", "c"),
        ("DECIMAL(8, 2)", "DECIMAL(7, 2)", "c"),
        ("STRING", "VARCHAR(3)", "c"),
        ("CHAR(3)", "CHAR(5)", "c"),
        ("BINARY(3)", "BINARY(5)", "c"),
        ("STRING", "BYTES", "c"),
        ("DATE", "TIMESTAMP(6)", "c"),
        ("TIMESTAMP(6)", "TIMESTAMP(3)", "c"),
        ("TIMESTAMP(6)", "TIMESTAMP_LTZ(6)", "c"),
        ("TIME(3)", "TIME(0)", "c"),
        ("ARRAY<INT>", "ARRAY<STRING>", "c.element"),
        ("ARRAY<INT>", "STRING", "c"),
        ("MAP<INT, INT>", "MAP<STRING, INT>", "c.key"),
        ("MAP<INT, INT>", "MAP<INT, STRING>", "c.value"),
        ("MULTISET<INT>", "MULTISET<STRING>", "c.key"),
        ("MULTISET<INT>", "MAP<INT, INT NOT NULL>", "c"),
        ("ROW<a INT, b ARRAY<ROW<x INT>>>", "ROW<a INT, b ARRAY<ROW<x STRING>>>", "c.b.element.x"),
    ],
)
def test_other_changes_are_refused_by_name(old: str, new: str, path: str) -> None:
    with pytest.raises(UnsupportedError) as error:
        check_promotable(*schemas_with(old, new))

    assert f"column {path!r} changed from " in str(error.value)
    assert "(schema 3 of data files, schema 7 of the table)" in str(error.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("INT", "INT NOT NULL"),
        ("ARRAY<INT>", "ARRAY<INT NOT NULL>"),
        ("MAP<INT, INT>", "MAP<INT, INT NOT NULL>"),
        ("ROW<a INT>", "ROW<a INT NOT NULL>"),
    ],
)
def test_a_column_that_became_required_is_refused(old: str, new: str) -> None:
    with pytest.raises(UnsupportedError, match="may contain nulls"):
        check_promotable(*schemas_with(old, new))


def test_a_new_column_must_be_nullable() -> None:
    first = build_table_schema(parse_columns("id INT"))
    added = replace(
        first, id=1, fields=(*first.fields, Field(id=1, name="c", type=parse_type("INT")))
    )
    required = Field(id=1, name="c", type=parse_type("INT NOT NULL"))

    check_promotable(first, added)
    with pytest.raises(UnsupportedError, match=r"column 'c' of type INT NOT NULL is missing"):
        check_promotable(first, replace(added, fields=(*first.fields, required)))


def test_columns_are_matched_by_id() -> None:
    old, new = schemas_with("INT", "STRING")
    readded = replace(new.fields[1], id=2)

    check_promotable(old, replace(new, fields=(new.fields[0], readded)))
    check_promotable(old, replace(old, fields=(old.fields[0], replace(old.fields[1], name="d"))))


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("TINYINT", "INT", [-128, 127]),
        ("SMALLINT", "INT", [-32768, 32767]),
        ("INT", "BIGINT", [-(2**31), 2**31 - 1]),
        ("FLOAT", "DOUBLE", [1.1, -0.0, float("inf")]),
        ("DECIMAL(8, 2)", "DECIMAL(12, 2)", ["-999999.99", "0.01"]),
        ("CHAR(3)", "VARCHAR(3)", ["a", "abc"]),
        ("VARCHAR(3)", "STRING", ["", "äöü"]),
        ("BINARY(3)", "BYTES", [b"", b"abc"]),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", [-1, 1_704_164_645_123]),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(4)", [-1, 1_704_164_645_123]),
    ],
)
def test_allowed_changes_keep_the_values_in_paimon(
    old: str, new: str, values: list[object]
) -> None:
    """Iceberg keeps the values: it only reads them as a wider type."""
    old_type, new_type = parse_type(old), parse_type(new)
    assert isinstance(new_type, AtomicType)
    check_promotable(*schemas_with(old, new))
    column = pa.array(values).cast(to_arrow_type(old_type))

    assert cast(column, old_type, new_type).equals(column.cast(to_arrow_type(new_type)))
