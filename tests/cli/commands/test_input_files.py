"""Input of commands that run on Spark: encodings, malformed files, failing expressions."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.commands import invoke, run_command
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch.errors import InputError
from paimon_orch.spark.execution.job_failures import translate_failure
from paimon_orch.spark.input_files import _find_reason as find_reason
from paimon_orch.spark.input_files import read_files
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def table(tmp_path: Path) -> Table:
    created = new_table(tmp_path / "w", "p STRING, k BIGINT, v STRING, n DECIMAL(5, 2)", key=("p", "k"),
                     partition_by=("p",))  # fmt: skip
    created.upsert(table_of("p k v n", [("a", 1, "x", None), ("b", 2, "y", None)]))
    return created


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "w")


def write_file(tmp_path: Path, name: str, content: bytes | str) -> str:
    data = content.encode() if isinstance(content, str) else content
    (tmp_path / name).write_bytes(data)
    return str(tmp_path / name)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("l.csv", b"p,k,v,n\nc,3,caf\xe9,1\n", [], r"l\.csv: column 'v' has 'caf\xe9', which is not UTF-8; .*--encoding"),
        ("h.csv", b"p,k,v\xe9,n\n", [], "header has the column 'v\xe9', which is not UTF-8"),
        ("c.csv", b"p,k,v,n\nc,3,\x81,1\n", ["--encoding", "cp1252"], "column 'v' .* which is not cp1252"),
        ("u.csv", "p,k,v,n\n", ["--encoding", "utf-16"], "convert the files to UTF-8, .* iconv"),
        ("u.csv", "p,k,v,n\n", ["--encoding", "shift-jis"], "convert the files to UTF-8, .* iconv"),
        ("u.csv", "p,k,v,n\n", ["--encoding", "nope"], "unknown encoding 'nope'"),
        ("j.jsonl", "{}", ["--encoding", "latin-1"], "--encoding is for CSV only"),
        ("few.csv", "p,k,v,n\nc,3\n", [], "does not have the columns of the header"),
        ("many.csv", "p,k,v,n\nc,3,x,1,more\n", [], "does not have the columns of the header"),
        ("twice.csv", "p,k,v,v\nc,3,x,y\n", [], "the header has the column v more than once"),
        ("bad.jsonl", '{"p":"c","k":3,"v":\n', [], r"bad\.jsonl cannot be read as json"),
        ("l.jsonl", b'{"p":"c","k":3,"v":"caf\xe9","n":1}\n', [], r"l\.jsonl cannot be read as json"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_read_are_refused_before_anything_is_written(
    executor: str, table: Table, tmp_path: Path,
    name: str, content: bytes | str, options: list[str], message: str,
) -> None:  # fmt: skip
    before, root = stored_files(table), str(tmp_path / "w")

    with pytest.raises(InputError, match=message):
        run_command(
            "ingest",
            root,
            "db.t",
            "--executor",
            executor,
            "--from",
            write_file(tmp_path, name, content),
            *options,
        )

    assert stored_files(table) == before


@pytest.mark.sampled(1)
def test_encodings_are_decoded(executor: str, table: Table, root: str, tmp_path: Path) -> None:
    texts = {"utf-8": "\u20ac\u00e9\U0001f600\ufffd", "latin-1": "caf\u00e9", "cp1252": "\u20ac 5"}
    for number, (encoding, text) in enumerate(texts.items(), 10):
        content = f"p,k,v,n\nc,{number},{text},\n".encode(encoding)
        path = write_file(tmp_path, f"{encoding}.csv", content)
        run_command(
            "ingest", root, "db.t", "--executor", executor, "--from", path, "--encoding", encoding
        )
    path = write_file(tmp_path, "bom.csv", "\ufeffp,k,v,n\nc,13,z,\n")
    run_command("ingest", root, "db.t", "--executor", executor, "--from", path)

    assert [row[2] for row in rows_of(table) if row[0] == "c"] == [*texts.values(), "z"]


@pytest.mark.sampled(1)
def test_text_is_parsed_by_the_formats_of_the_command(executor: str, tmp_path: Path) -> None:
    table = new_table(tmp_path / "f", "k BIGINT, d DATE, t TIMESTAMP(3), v STRING")
    path = write_file(tmp_path, "f.csv", '1;31.1.2026;2026/02/01 03:04:05.678;"a;b"\n2;NULL;;caf\xe9\n'.encode("latin-1"))  # fmt: skip
    command = ["ingest", str(tmp_path / "f"), "db.t", "--executor", executor, "--from", path]
    command += ["--delimiter", ";", "--no-header", "--null", "NULL", "--encoding", "latin-1"]

    run_command(
        *command, "--date-format", "d.M.yyyy", "--timestamp-format", "yyyy/MM/dd HH:mm:ss.SSS"
    )

    assert rows_of(table) == [
        (1, date(2026, 1, 31), datetime(2026, 2, 1, 3, 4, 5, 678_000), "a;b"),
        (2, None, None, "caf\xe9"),
    ]
    before = stored_files(table)
    with pytest.raises(
        InputError, match=r"'31\.1\.2026', which does not have the format 'yyyyMMdd'"
    ):
        run_command(*command, "--date-format", "yyyyMMdd")
    narrow = write_file(tmp_path, "narrow.csv", "1;2\n")
    with pytest.raises(InputError, match="has 2 columns, but the table has 4"):
        run_command(*command[:6], narrow, *command[7:])
    assert stored_files(table) == before


@pytest.mark.sampled(1)
def test_columns_that_the_files_lack_are_null(
    executor: str, table: Table, root: str, tmp_path: Path
) -> None:
    path = write_file(tmp_path, "m.csv", "k,p\n7,c\n")
    command = ("ingest", root, "db.t", "--executor", executor, "--from", path)
    note = "the files lack v, n; null or the default value is written"

    assert note in run_command(*command, "--dry-run")
    answer = invoke(*command, "--json")

    assert json.loads(answer.stdout)["missing_columns"] == ["v", "n"]
    assert note in answer.stderr
    assert ("c", 7, None, None) in rows_of(table)
    without_key = write_file(tmp_path, "w.csv", "k,v\n7,c\n")
    with pytest.raises(InputError, match=r"missing p, n \(of the primary key: p\)"):
        run_command("ingest", root, "db.t", "--executor", executor, "--from", without_key)


def test_files_with_different_headers_are_refused(
    executor: str, table: Table, root: str, tmp_path: Path
) -> None:
    paths = [
        write_file(tmp_path, "one.csv", "p,k,v,n\nc,3,x,\n"),
        write_file(tmp_path, "two.csv", "p,v,k,n\nc,x,3,\n"),
    ]

    with pytest.raises(InputError, match=r"have different headers.*two\.csv"):
        run_command("ingest", root, "db.t", "--executor", executor, "--from", *paths)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("n = 'abc'", r"^column 'n' is string and cannot be stored as DECIMAL\(5, 2\)"),
        (
            "n = 1e30",
            r"^column 'n' is double and cannot be stored as DECIMAL\(5, 2\): .*overflow",
        ),
        ("n = 1/0", r"^column 'n' = 1/0: .*Division by zero, in the expression 1/0"),
        ("v = cast('x' as int)", "^column 'v' = .*The value 'x' of the type"),
        ("v = cast(unhex('ff') as string)", "column 'v' has text that is not UTF-8"),
    ],
)
def test_the_error_of_an_update_contains_its_column_and_expression(
    spark: SparkSession, table: Table, root: str, assignment: str, message: str
) -> None:
    before = stored_files(table)

    with pytest.raises(InputError, match=message) as raised:
        run_command("update", root, "db.t", "--set", assignment, "--yes")

    assert stored_files(table) == before
    assert ".py" not in str(raised.value)
    assert "^^^" not in str(raised.value)


@pytest.mark.sampled(1)
def test_a_dry_run_of_an_ingest_counts_and_checks_the_rows(
    executor: str, table: Table, root: str, tmp_path: Path
) -> None:
    before = stored_files(table)
    good = write_file(tmp_path, "good.csv", "p,k,v,n\nb,3,z,1\nc,4,z,\n")
    wrong = write_file(tmp_path, "wrong.csv", "p,k,v,n\nb,x,z,1\n")
    overwrite = ("--mode", "overwrite", "--dry-run")

    assert run_command(
        "ingest", root, "db.t", "--executor", executor, "--from", good, "--dry-run"
    ) == ("would load 2 rows into db.t; nothing was changed")
    assert run_command(
        "ingest", root, "db.t", "--executor", executor, "--from", good, *overwrite
    ) == (
        "would replace partition p=b\n"
        "would replace 1 row and 1 partition (p=b) of db.t by 2 rows; nothing was changed"
    )
    assert json.loads(
        run_command(
            "ingest", root, "db.t", "--executor", executor, "--from", good, *overwrite, "--json"
        )
    ) == {
        "rows": 2,
        "replaced_partitions": ["p=b"],
        "replaced_rows": 1,
        "added_columns": [],
        "missing_columns": [],
    }
    with pytest.raises(InputError, match=r"column 'k' .*'x'"):
        run_command("ingest", root, "db.t", "--executor", executor, "--from", wrong, *overwrite)
    assert stored_files(table) == before


@pytest.mark.slow
def test_a_dry_run_of_a_merge_counts_the_rows(
    spark: SparkSession, table: Table, root: str, tmp_path: Path
) -> None:
    before = stored_files(table)
    path = write_file(tmp_path, "m.csv", "p,k,v,n\na,1,new,1\nb,2,,1\nc,3,z,1\n")
    merge = ("merge-into", root, "db.t", "--from", path, "--on", "target.k = source.k", "--dry-run")
    clauses = ("--update", "v = source.v", "--delete", "source.v is null", "--insert", "*")

    assert run_command(*merge, *clauses) == (
        "would insert 1 row, update 1 row and delete 1 row of db.t; nothing was changed"
    )
    assert json.loads(run_command(*merge, *clauses, "--json"))["inserted"] == 1
    with pytest.raises(InputError, match=r"^column 'n' .* 'new' is not a valid decimal"):
        run_command(*merge, "--update", "n = source.v")
    twice = write_file(tmp_path, "m.csv", "p,k,v,n\na,1,new,1\na,1,newer,1\n")
    with pytest.raises(InputError, match="several rows of the source match"):
        run_command("merge-into", root, "db.t", "--from", twice, "--on", "target.k = source.k", "--dry-run", "--update", "v = source.v")  # fmt: skip
    assert stored_files(table) == before


@pytest.mark.slow
def test_a_merge_parses_decimal_text_exactly(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    table = new_table(tmp_path / "w", "k BIGINT, n DECIMAL(20, 2)")
    table.upsert(table_of("k n", [(1, None)]))
    path = write_file(tmp_path, "m.csv", "k,n\n1,123456789012345678.91\n2,123456789012345678.93\n")

    run_command("merge-into", root, "db.t", "--from", path, "--on", "target.k = source.k", "--update", "n = source.n", "--insert", "*")  # fmt: skip

    assert [str(row[1]) for row in rows_of(table)] == [
        "123456789012345678.91",
        "123456789012345678.93",
    ]


def test_spark_failures_not_caused_by_data_are_not_input_errors() -> None:
    failure = translate_failure(
        "load", RuntimeError("[TASK_LOST] An executor is gone SQLSTATE: XX000"), 3
    )

    assert not isinstance(failure, InputError)
    assert str(failure) == "load: the Spark job failed: [TASK_LOST] An executor is gone"


def test_a_file_that_spark_cannot_read_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path = write_file(tmp_path, "bad.jsonl", '{"k":3,"v":\n')
    with pytest.raises(InputError, match=r"bad\.jsonl cannot be read as json: "):
        read_files(spark, [path])


def test_the_reason_of_a_failure_is_its_root_cause_or_its_first_line() -> None:
    lines = ["[FAILED_READ_FILE] a file", "Caused by: a.B: no row", "Caused by: c.D: no end"]
    assert find_reason(RuntimeError("\n".join(lines))) == "c.D: no end"
    assert find_reason(RuntimeError("no file\n at a.B")) == "no file"


@pytest.mark.sampled(1)
def test_json_objects_and_arrays_are_loaded_into_variant_columns(
    executor: str, tmp_path: Path
) -> None:
    new_table(tmp_path / "n", "k BIGINT, v VARIANT, e VARIANT")
    file = write_file(
        tmp_path,
        "n.jsonl",
        '{"k":1,"v":{"a":1.10,"b":[true,null,"caf\u00e9"],"c":{"d":"1"}},"e":{}}\n'
        '{"k":2,"v":[12345678901234567890,{}]}\n'
        '{"k":3,"v":2}\n{"k":4,"v":"{\\"x\\":1}"}\n{"k":5,"v":null}\n{"k":6}\n',
    )

    run_command("ingest", str(tmp_path / "n"), "db.t", "--from", file, "--executor", executor)

    lines = run_command("read", str(tmp_path / "n"), "db.t", "--order-by", "k", "--format", "jsonl")
    assert [json.loads(line)["v"] for line in lines.splitlines()] == [
        '{"a":1.1,"b":[true,null,"caf\u00e9"],"c":{"d":"1"}}',
        "[12345678901234567890,{}]",
        "2",
        '{"x":1}',
        None,
        None,
    ]
    assert json.loads(lines.splitlines()[0])["e"] == "{}"


@pytest.mark.sampled(1)
def test_json_arrays_and_objects_are_loaded_into_nested_columns(
    executor: str, tmp_path: Path
) -> None:
    columns = (
        "k BIGINT, a ARRAY<INT>, m MAP<INT, DECIMAL(5, 2)>, r ROW<x DATE, y ARRAY<ROW<z BOOLEAN>>>"
    )
    table = new_table(tmp_path / "n", columns)
    file = write_file(
        tmp_path,
        "n.jsonl",
        '{"k":1,"a":[1,null,"3"],"m":{"7":1.10,"8":null},"r":{"y":[{"z":true},null],"x":"2026-01-31"}}\n'
        '{"k":2,"a":[],"m":{},"r":{}}\n{"k":3,"a":null}\n',
    )

    run_command("ingest", str(tmp_path / "n"), "db.t", "--from", file, "--executor", executor)

    rows = table.scan().to_arrow().sort_by("k").to_pylist()
    assert [tuple(row.values())[1:] for row in rows] == [
        (
            [1, None, 3],
            [(7, Decimal("1.10")), (8, None)],
            {"x": date(2026, 1, 31), "y": [{"z": True}, None]},
        ),
        ([], [], {"x": None, "y": None}),
        (None, None, None),
    ]


@pytest.mark.sampled(1)
def test_json_objects_and_arrays_are_loaded_into_nested_variants(
    executor: str, tmp_path: Path
) -> None:
    columns = "k BIGINT, r ROW<v VARIANT, n INT>, a ARRAY<VARIANT>, m MAP<STRING, ARRAY<VARIANT>>"
    new_table(tmp_path / "n", columns)
    file = write_file(
        tmp_path,
        "n.jsonl",
        '{"k":1,"r":{"v":{"x":[1.10,{}]},"n":2},"a":[{"y":1},[12345678901234567890],true,null,"2"],'
        '"m":{"p":[[1],{"z":null}]}}\n{"k":2,"r":{"v":[],"n":null}}\n',
    )

    run_command("ingest", str(tmp_path / "n"), "db.t", "--from", file, "--executor", executor)

    lines = run_command("read", str(tmp_path / "n"), "db.t", "--order-by", "k", "--format", "jsonl")
    assert [json.loads(line) for line in lines.splitlines()] == [
        {
            "k": 1,
            "r": {"v": '{"x":[1.1,{}]}', "n": 2},
            "a": ['{"y":1}', "[12345678901234567890]", "true", None, "2"],
            "m": [["p", ["[1]", '{"z":null}']]],
        },
        {"k": 2, "r": {"v": "[]", "n": None}, "a": None, "m": None},
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('{"a":{"x":1}}', "column 'a' has .* where the table has an array"),
        ('{"r":[1]}', "column 'r' has .* where the table has an object"),
        ('{"m":{"x":[1]}}', "column 'm' has .* where the table has a simple value"),
        ('{"r":{"x":1,"z":2}}', "column 'r' has objects with z; the row has the fields x"),
        ('{"a":"[1]"}', "where the table has an array|a record cannot be read"),
        ('{"a":[1.5]}', "column 'a' .*'1.5'"),
    ],
)
def test_json_of_another_nesting_is_refused(
    executor: str, tmp_path: Path, value: str, message: str
) -> None:
    table = new_table(
        tmp_path / "n", "a ARRAY<INT>, m MAP<STRING, INT>, r ROW<x INT>", key=(), bucket="-1"
    )
    file = write_file(tmp_path, "n.jsonl", value + "\n")

    with pytest.raises(InputError, match=message):
        run_command("ingest", str(tmp_path / "n"), "db.t", "--from", file, "--executor", executor)

    assert table.load().snapshot is None
