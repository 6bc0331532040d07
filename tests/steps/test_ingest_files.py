"""Input files that are read without Spark: the expected rows are those that Spark 4.3 returned."""

from __future__ import annotations

import gzip
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tables import new_table

from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.steps import ingest_files
from paimon_orch.steps.ingest_files import CsvFormat, read_input_files
from paimon_orch.steps.source_files import SparkRequiredError


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> TableSchema:
    columns = "a STRING, b STRING, t TIMESTAMP(6), z TIMESTAMP(6) WITH LOCAL TIME ZONE"
    return new_table(tmp_path_factory.mktemp("t"), columns, key=(), bucket="-1").load().schema


def read(path: Path, schema: TableSchema) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and the rows of a file."""
    rows = read_input_files([str(path)], schema)
    read_rows = [tuple(row.values()) for batch in rows.read() for row in batch.to_pylist()]
    again = [tuple(row.values()) for batch in rows.read() for row in batch.to_pylist()]
    assert read_rows == again
    return list(rows.columns), read_rows


CSV_ROWS = {
    'a,b\n"",5\n,6\n" lead",7\n lead ,8\n': [(None, "5"), (None, "6"), (" lead", "7"), (" lead ", "8")],
    "a,b\n\n1,2\n\n3,4\n\n": [("1", "2"), ("3", "4")],
    '\n"a",b\r\n1,2\r\n"3",4\r\n': [("1", "2"), ("3", "4")],
    'a,b\n"1,2",""\n",",3': [("1,2", None), (",", "3")],
    "a,b\nnull,NULL\nNaN,N/A\n#1,01": [("null", "NULL"), ("NaN", "N/A"), ("#1", "01")],
    "a,b\n1,\x00x\n": [("1", "\x00x")],
    "\ufeffa,b\n\u00e9,\u20ac\n": [("\u00e9", "\u20ac")],
    "a,b\n": [],
}  # fmt: skip


@pytest.mark.parametrize("block_bytes", [1, 1 << 20], ids=["small blocks", "one block"])
@pytest.mark.parametrize("text", CSV_ROWS, ids=range(len(CSV_ROWS)))
def test_csv_rows_are_those_of_spark(
    tmp_path: Path, schema: TableSchema, monkeypatch: pytest.MonkeyPatch,
    text: str, block_bytes: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(ingest_files, "_BLOCK_BYTES", block_bytes)
    (tmp_path / "f.csv").write_bytes(text.encode())
    with gzip.open(tmp_path / "f.csv.gz", "wb") as file:
        file.write(text.encode())

    assert read(tmp_path / "f.csv", schema) == (["a", "b"], CSV_ROWS[text])
    assert read(tmp_path / "f.csv.gz", schema) == (["a", "b"], CSV_ROWS[text])


FORMATTED_ROWS: dict[str, tuple[CsvFormat, list[tuple[Any, ...]]]] = {
    "a\tb\n1\t'2'\n\t\"3\t4\"\n": (CsvFormat("\t"), [("1", "'2'"), (None, "3\t4")]),
    "a|b\n1,2|3\n": (CsvFormat("|"), [("1,2", "3")]),
    "1,2\n\n3,\n": (CsvFormat(columns=("a", "b")), [("1", "2"), ("3", None)]),
    "": (CsvFormat(columns=("a", "b")), []),
}


@pytest.mark.parametrize("block_bytes", [1, 1 << 20], ids=["small blocks", "one block"])
@pytest.mark.parametrize("text", FORMATTED_ROWS, ids=range(len(FORMATTED_ROWS)))
def test_csv_files_can_have_another_delimiter_and_no_header(
    tmp_path: Path, schema: TableSchema, monkeypatch: pytest.MonkeyPatch,
    text: str, block_bytes: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(ingest_files, "_BLOCK_BYTES", block_bytes)
    (tmp_path / "f.csv").write_text(text)
    csv_format, expected = FORMATTED_ROWS[text]

    rows = read_input_files([str(tmp_path / "f.csv")], schema, csv_format=csv_format)

    assert [tuple(row.values()) for batch in rows.read() for row in batch.to_pylist()] == expected


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\\", "\n", "\u20ac"])
def test_a_delimiter_that_cannot_separate_fields_is_refused(delimiter: str) -> None:
    with pytest.raises(InputError, match="must be one ASCII character"):
        CsvFormat(delimiter)


def test_options_of_csv_files_are_refused_for_other_files(
    tmp_path: Path, schema: TableSchema
) -> None:
    (tmp_path / "f.json").write_text('{"a": 1}')

    for option, csv_format in (
        ("--delimiter", CsvFormat(";")),
        ("--encoding", CsvFormat(encoding="latin-1")),
        ("--no-header", CsvFormat(columns=("a",))),
    ):
        with pytest.raises(InputError, match=f"{option} is for CSV only: the files are json"):
            read_input_files([str(tmp_path / "f.json")], schema, csv_format=csv_format)


def test_a_csv_file_of_one_column_can_have_empty_fields(
    tmp_path: Path, schema: TableSchema
) -> None:
    (tmp_path / "f.csv").write_text('a\n1\n\n""\n2\n')
    assert read(tmp_path / "f.csv", schema) == (["a"], [("1",), (None,), ("2",)])


@pytest.mark.parametrize(
    "text",
    [
        'a,b\n"x""y",1\n',
        'a,b\n"p\\"q",2\n',
        "a,b\nab\\,12\n",
        'a,b\nin"mid"dle,9\n',
        'a,b\n"he"llo,10\n',
        'a,b\nx","y\n',
        "a,b\n1,2\n   \n3,4\n",
        "a,b\r1,2\r3,4\r",
        'a,b\n"1\n2",3\n',
        "a,A\n1,2\n",
    ],
)
def test_csv_that_spark_reads_in_its_own_way_requires_spark(
    tmp_path: Path, schema: TableSchema, text: str
) -> None:
    (tmp_path / "f.csv").write_text(text, newline="")
    with pytest.raises(SparkRequiredError, match=r"f\.csv: .*only Spark can load it"):
        read(tmp_path / "f.csv", schema)


JSON_ROWS = {
    '{"a": 1.10, "b": true}\n{"a": 1e3, "b": null}\n\n{"a": -0, "b": "t\\u00e9\\n"}\n': [
        ("1.10", "true"), ("1e3", None), ("-0", "t\u00e9\n")],
    '{}\n  {"b": "", "a": 12345678901234567890123}  \n{"b": " "}': [
        (None, None), ("", "12345678901234567890123"), (" ", None)],
    '\ufeff{"a": false, "b": "false"}\r\n': [("false", "false")],
}  # fmt: skip


@pytest.mark.parametrize("text", JSON_ROWS, ids=range(len(JSON_ROWS)))
def test_json_values_are_the_text_of_the_file(
    tmp_path: Path, schema: TableSchema, text: str
) -> None:
    (tmp_path / "f.jsonl").write_bytes(text.encode())
    columns, rows = read(tmp_path / "f.jsonl", schema)
    assert sorted(columns) == ["a", "b"]
    assert rows == JSON_ROWS[text]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"x": 1}}',
        '{"a": [1]}',
        '{"a": 1, "a": 2}',
        '{"a": 1, "A": 2}',
        '{"a": NaN}',
        '{"a": "x"} {"a": "y"}',
        '[{"a": 1}]',
        "{'a': 'x'}",
    ],
)
def test_json_that_spark_reads_in_its_own_way_requires_spark(
    tmp_path: Path, schema: TableSchema, text: str
) -> None:
    (tmp_path / "f.jsonl").write_text(text)
    with pytest.raises(SparkRequiredError):
        read(tmp_path / "f.jsonl", schema)


@pytest.mark.parametrize("size", [0.5, 0.9], ids=["half of it", "without its end"])
@pytest.mark.parametrize("name", ["f.csv.gz", "f.jsonl.gz"])
def test_an_incomplete_compressed_file_is_named(
    tmp_path: Path, schema: TableSchema, name: str, size: float
) -> None:
    rows = {"f.csv.gz": "a,b\n" + "1,2\n" * 1000, "f.jsonl.gz": '{"a": 1}\n' * 1000}
    data = gzip.compress(rows[name].encode())
    (tmp_path / name).write_bytes(data[: int(len(data) * size)])
    with pytest.raises(InputError, match=rf"{name} cannot be decompressed as gzip: "):
        read(tmp_path / name, schema)


def test_a_file_that_is_not_compressed_is_named(tmp_path: Path, schema: TableSchema) -> None:
    (tmp_path / "f.csv.gz").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"f\.csv\.gz cannot be decompressed as gzip: "):
        read(tmp_path / "f.csv.gz", schema)


@pytest.mark.parametrize("text", ['{"a": 01}', "{a: 1}", '{"a": "tab\there"}', "x"])
def test_malformed_json_is_refused(tmp_path: Path, schema: TableSchema, text: str) -> None:
    (tmp_path / "f.jsonl").write_text(text)
    with pytest.raises(InputError, match=r"f\.jsonl cannot be read as json") as caught:
        read(tmp_path / "f.jsonl", schema)
    assert type(caught.value) is InputError


TIME = datetime(2026, 1, 31, 12)


@pytest.mark.parametrize(
    ("columns", "is_read"),
    [
        ({"a": pa.array(["x", None]), "b": pa.array([1, 2], pa.uint64())}, True),
        ({"t": pa.array([TIME], pa.timestamp("us"))}, True),
        ({"t": pa.array([TIME], pa.timestamp("us", "UTC"))}, False),
        ({"z": pa.array([TIME], pa.timestamp("us"))}, False),
        ({"z": pa.array([TIME], pa.timestamp("us", "UTC"))}, True),
        ({"a": pa.array([TIME], pa.timestamp("us"))}, False),
        ({"t": pa.array([TIME.date()])}, False),
        ({"a": pa.array([[1]])}, False),
    ],
)
def test_parquet_files_whose_casts_depend_on_the_session_require_spark(
    tmp_path: Path, schema: TableSchema, columns: dict[str, pa.Array], *, is_read: bool
) -> None:
    table, path = pa.table(columns), tmp_path / "f.parquet"
    pq.write_table(table, path)
    if is_read:
        assert read(path, schema) == (
            table.column_names,
            [tuple(row.values()) for row in table.to_pylist()],
        )
        return
    with pytest.raises(SparkRequiredError, match=r"f\.parquet: column"):
        read(path, schema)


def test_other_parquet_files_require_spark(tmp_path: Path, schema: TableSchema) -> None:
    times = pa.table({"t": pa.array([TIME], pa.timestamp("ns"))})
    pq.write_table(times, tmp_path / "f.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(SparkRequiredError, match="INT96"):
        read(tmp_path / "f.parquet", schema)
    dates = pa.table({"a": ["x"]}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    pq.write_table(dates, tmp_path / "f.parquet")
    with pytest.raises(SparkRequiredError, match="an old release of Spark"):
        read(tmp_path / "f.parquet", schema)
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "f.parquet")
    pq.write_table(pa.table({"b": ["x"]}), tmp_path / "g.parquet")
    with pytest.raises(SparkRequiredError, match=r"g\.parquet: its columns differ"):
        read_input_files([str(tmp_path / name) for name in ("f.parquet", "g.parquet")], schema)


@pytest.mark.parametrize("page_header", [b"\0" * 8, b"\xff" * 8], ids=["empty", "unknown type"])
def test_a_parquet_file_with_a_damaged_page_is_named(
    tmp_path: Path, schema: TableSchema, page_header: bytes
) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": ["x"]}), path)
    with path.open("r+b") as file:
        file.seek(len(b"PAR1"))
        file.write(page_header)
    with pytest.raises(InputError, match=r"f\.parquet cannot be read as parquet"):
        read(path, schema)


def test_directories_and_hidden_files_require_spark(tmp_path: Path, schema: TableSchema) -> None:
    (tmp_path / "_f.csv").write_text("a\n1\n")
    for path in (str(tmp_path), str(tmp_path / "_f.csv"), "s3://bucket/f.csv"):
        with pytest.raises(SparkRequiredError, match="not a visible file"):
            read_input_files([path], schema)
