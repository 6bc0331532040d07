"""Statistics of other writers enclose the values of their files, if they are trusted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.golden import golden_tables, table_name
from support.golden_limits import MERGED_BY_ENGINES, refusal_pattern

from paimon_orch import Catalog
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.files.stats.file_stats import FileStats
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, Field, is_blob
from paimon_orch.format.types.predicate import Leaf, Not, Operator, Predicate, to_arrow_expression
from paimon_orch.table.table import Table

READ = [
    case
    for case in golden_tables()
    if case[0] not in MERGED_BY_ENGINES and not refusal_pattern(case[0])
]
FOLDERS = sorted({folder for _, folder, _ in READ})
ASKED = [
    folder
    for folder in FOLDERS
    if folder.parent.name != "java-0.9"
    or folder.name.startswith(("alltypes_append", "schema_evo", "append_part_types"))
    or folder.name in ("stats_modes", "pk_bucket_key", "pk_part_b2", "pk_composite_types")
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f"{f.parent.name}/{f.name}")
def test_statistics_enclose_the_values(folder: Path) -> None:
    for _, of, entry in READ:
        if of == folder:
            _check_table(Catalog(str(folder / "warehouse")).table(table_name(entry)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("folder", ASKED, ids=lambda f: f"{f.parent.name}/{f.name}")
def test_filters_return_the_rows_of_a_filtered_full_scan(folder: Path) -> None:
    # Every column has an equality filter, which excludes files by both limits. The first column of
    # each type class has filters with all operators, as partition key, primary key and other.
    classes: set[tuple[object, ...]] = set()
    for _, of, entry in READ:
        if of == folder:
            table = Catalog(str(folder / "warehouse")).table(table_name(entry))
            everything = table.scan().to_arrow()
            for field in table.load().schema.fields:
                if isinstance(field.type, AtomicType) and not is_blob(field.type):
                    column, type_class = everything.column(field.name), _type_class(table, field)
                    is_new = type_class not in classes
                    if column.null_count < len(column):
                        classes.add(type_class)
                    columns = sorted({table.load().schema.names[0], field.name})
                    for condition in _filters(column, field.name, all_operators=is_new):
                        expected = everything.filter(to_arrow_expression(condition)).select(columns)
                        result = table.scan(columns, condition).to_arrow()
                        assert _texts(result) == _texts(expected), (table.identifier, condition)


def _type_class(table: Table, field: Field) -> tuple[object, ...]:
    name, arrow_type = field.name, to_arrow_type(field.type)
    kind = next(
        (f for f in (pa.types.is_integer, pa.types.is_floating) if f(arrow_type)), arrow_type
    )
    return (
        name in table.load().schema.partition_keys,
        name in table.load().schema.primary_keys,
        kind,
    )


def _filters(column: pa.ChunkedArray, name: str, *, all_operators: bool) -> Iterator[Predicate]:
    values = column.drop_null()
    if pa.types.is_floating(column.type):  # filters find NaN by another test
        yield Leaf(name, Operator.IS_NAN)
        values = values.filter(pc.invert(pc.is_nan(values)))
    if len(values) and not all_operators:
        yield Leaf(name, Operator.EQUAL, (values[len(values) // 2],))
        return
    yield Leaf(name, Operator.IS_NULL)
    yield Not(Leaf(name, Operator.IS_NULL))
    if len(values):
        value = (values[len(values) // 2],)
        for op in (
            (Operator.EQUAL, Operator.LESS, Operator.GREATER)
            if not pa.types.is_boolean(column.type)
            else (Operator.EQUAL,)
        ):
            yield Leaf(name, op, value)
        yield Not(Leaf(name, Operator.EQUAL, value))


def _texts(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def _check_table(table: Any) -> None:
    schema = table.load().schema
    reader, stats = table.stores.reader(), FileStats(schema, table.stores.schemas.get)
    fields = [field for field in schema.fields if isinstance(field.type, AtomicType)]
    checked = set()
    for snapshot in table.stores.snapshots.walk_back():
        for split in table.files(snapshot):
            for file in split.files:
                if file.file_name in checked:
                    continue
                checked.add(file.file_name)
                batches = reader.read(BucketFile(split.partition, split.bucket, file), fields)
                rows = pa.Table.from_batches(batches)
                stats_of = stats.of(split.partition, file)
                for field in fields:
                    where = (table.identifier, file.file_name, field.name)
                    _check_column(rows.column(field.name), stats_of(field.name), where)


def _check_column(column: pa.ChunkedArray, stats: ColumnStats, where: tuple[str, ...]) -> None:
    nulls = stats.null_count  # null counts of partition columns can exceed the row count
    assert nulls is None or min(nulls, len(column)) == column.null_count, where
    if pa.types.is_floating(column.type):
        column = column.filter(pc.invert(pc.is_nan(column)))
    if column.null_count == len(column):
        return
    extremes = pc.min_max(column)
    low, high = to_internal_value(extremes["min"]), to_internal_value(extremes["max"])
    assert stats.min is None or stats.min <= low, (where, stats.min, low)
    assert stats.max is None or stats.max >= high, (where, stats.max, high)
