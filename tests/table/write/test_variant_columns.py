"""VARIANT columns: written, merged, compacted and shown.

See docs/format/variant.md.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import VariantVal
from support.golden import GOLDEN, copy_warehouse

from paimon_orch import Catalog
from paimon_orch.cli.output import write_rows
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.types.arrow import VARIANT_TYPE
from paimon_orch.format.types.cast_rules import can_cast
from paimon_orch.format.types.data_types import (
    VariantType,
    parse_type,
    type_from_json,
    type_to_json,
)
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

TEXTS = ['{"a":1,"b":[null,"x"]}', None, "12.5", '"text"', "null"]
ROWS = pa.table({"k": range(5), "v": TEXTS})


def create(path: Path, columns: str = "k BIGINT NOT NULL, v VARIANT", **keys: Any) -> Table:
    bucket = "1" if "primary_key" in keys else "-1"
    options = {"bucket": bucket, **keys.pop("options", {})}
    return Catalog(str(path)).create_table("db.t", columns, options=options, **keys)


def shown(rows: pa.Table, form: str = "jsonl") -> list[Any]:
    sink = BytesIO()
    write_rows(rows.to_reader(), form, sink)
    return [json.loads(line) for line in sink.getvalue().decode().splitlines()]


def read(table: Table) -> list[Any]:
    rows = table.scan().to_arrow()
    assert rows.schema.field("v").type == VARIANT_TYPE
    return [row["v"] for row in shown(rows.sort_by("k"))]


def test_a_type_is_read_and_written_without_change() -> None:
    for text in ("VARIANT", "VARIANT NOT NULL"):
        assert type_to_json(type_from_json(text)) == text
        assert parse_type(text) == VariantType("NOT" not in text)


@pytest.mark.parametrize("keys", [{}, {"primary_key": ["k"]}], ids=["append", "keyed"])
def test_json_text_is_stored_as_variants_and_kept_by_compactions(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    table = create(tmp_path, **keys)
    write = table.upsert if keys else table.append
    write(ROWS)
    write(pa.table({"k": [5], "v": ["[1]"]}))
    assert read(table) == [*TEXTS, "[1]"]

    compact(table, InProcessExecutor(), strategy="full")

    assert read(table) == [*TEXTS, "[1]"]
    assert check(table, deep=True).findings == ()
    [split] = table.files()
    [name] = [file.file_name for file in split.files]
    [path] = tmp_path.glob(f"**/{name}")
    assert "required binary field_id=0 value" in str(pq.ParquetFile(path).schema)
    assert "required binary field_id=1 metadata" in str(pq.ParquetFile(path).schema)


@pytest.mark.parametrize("engine", ["partial-update", "aggregation", "first-row"])
def test_merge_engines_take_a_variant_as_one_value(tmp_path: Path, engine: str) -> None:
    columns = "k BIGINT NOT NULL, v VARIANT, w BIGINT"
    table = create(tmp_path, columns, primary_key=["k"], options={"merge-engine": engine})
    table.upsert(pa.table({"k": [1, 2], "v": ['{"a":1}', "1"], "w": [1, 1]}))
    table.upsert(pa.table({"k": [1, 2], "v": [None, '{"b":2}'], "w": [2, 2]}))
    compact(table, InProcessExecutor(), strategy="full")

    assert read(table) == ['{"a":1}', "1" if engine == "first-row" else '{"b":2}']


def test_a_variant_in_nested_columns_is_kept_and_shown(tmp_path: Path) -> None:
    columns = "k BIGINT, v ROW<x VARIANT>, a ARRAY<VARIANT>, m MAP<STRING, VARIANT>"
    table = create(tmp_path, columns)
    row = {"k": 1, "v": {"x": "[1]"}, "a": ["1", None], "m": [("n", '{"a":true}')]}
    kind = pa.schema(
        [
            ("k", pa.int64()),
            ("v", pa.struct([("x", pa.string())])),
            ("a", pa.list_(pa.string())),
            ("m", pa.map_(pa.string(), pa.string())),
        ]
    )
    table.append(pa.Table.from_pylist([row, {"k": 2}], kind))

    expected = [
        {**row, "m": [["n", '{"a":true}']]},
        {"k": 2, "v": None, "a": None, "m": None},
    ]
    assert shown(table.scan().to_arrow()) == expected


def test_structs_of_pyspark_and_of_other_orders_are_stored(tmp_path: Path) -> None:
    table = create(tmp_path)
    variant = VariantVal.parseJson('{"a":1}')
    parts = {"metadata": bytes(variant.metadata), "value": bytes(variant.value)}
    table.append(pa.table({"k": [1, 2], "v": [parts, None]}))

    assert read(table) == ['{"a":1}', None]


@pytest.mark.parametrize(
    "value",
    [
        "{",
        7,
        {"value": b"\x00"},
        {"value": b"", "metadata": b"\x01\x00\x00"},
        {"value": b"\x00", "metadata": b"\x03\x00\x00"},
        {"value": None, "metadata": b"\x01\x00\x00"},
    ],
)
def test_values_that_are_no_variants_are_refused(tmp_path: Path, value: Any) -> None:
    table = create(tmp_path)

    with pytest.raises(InputError, match="column 'v'"):
        table.append(pa.table({"k": [1], "v": [value]}))
    assert table.stores.snapshots.latest_id() is None


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_other_file_formats_are_refused_by_name(tmp_path: Path, file_format: str) -> None:
    with pytest.raises(UnsupportedError, match=r"'v' of type VARIANT.*(ORC|Avro)"):
        create(tmp_path, options={"file.format": file_format})


@pytest.mark.parametrize("keys", [{"primary_key": ["v"]}, {"partition_by": ["v"]}])
def test_a_variant_is_no_key(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="'v' must have a simple type"):
        create(tmp_path, **keys)


def test_a_variant_has_no_casts() -> None:
    assert not can_cast(parse_type("VARIANT"), parse_type("STRING"))
    assert not can_cast(parse_type("STRING"), parse_type("VARIANT"))


def test_a_table_from_an_arrow_schema_has_variants(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", VARIANT_TYPE)])

    assert Catalog(str(tmp_path)).create_table("db.t", schema).load().schema.field("v").type == (
        VariantType()
    )


def test_a_compaction_keeps_the_values_of_shredded_files(tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "variant", tmp_path / "w")
    table = Catalog(str(warehouse)).table("db.t_shredded")
    before = shown(table.scan().to_arrow().sort_by("id"))
    table.append(pa.table({"id": [1000], "va": ['{"a":"no integer","new":[1]}'], "s": ["x"]}))

    compact(table, InProcessExecutor(), strategy="full")

    added = {"id": 1000, "va": '{"a":"no integer","new":[1]}', "s": "x"}
    assert shown(table.scan().to_arrow().sort_by("id")) == [*before, added]
    assert check(table, deep=True).findings == ()


@pytest.mark.parametrize("form", ["csv", "table"])
def test_other_forms_show_json_text(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table, sink = create(tmp_path), BytesIO()
    table.append(ROWS)
    write_rows(table.scan().to_arrow().to_reader(), form, sink)

    assert "12.5" in sink.getvalue().decode() + capsys.readouterr().out
