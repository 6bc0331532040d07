"""Columns of input files that are found without Spark; what is found is what Spark 4.3 finds."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_orch.errors import InputError
from paimon_orch.steps import ingest_columns
from paimon_orch.steps.ingest_columns import InputColumns, find_columns
from paimon_orch.steps.ingest_files import CsvFormat
from paimon_orch.storage import FsspecFileIO, LocalFileIO, resolve_warehouse


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(pa.table({column: [1] for column in text.split(",")}), path)
        elif path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)


def find(*paths: object, encoding: str | None = None) -> InputColumns | None:
    return find_columns(
        [str(path) for path in paths], LocalFileIO(), csv_format=CsvFormat(encoding=encoding)
    )


FOLDERS: dict[str, tuple[dict[str, str], tuple[str, ...] | None]] = {
    "parquet": ({"a.parquet": "x,y", "b.parquet": "x,y"}, ("x", "y")),
    "different parquet": ({"a.parquet": "x,y", "b.parquet": "x"}, None),
    "parquet with merged metadata": ({"a.parquet": "x", "_metadata": ""}, None),
    "csv": ({"a.csv": "x,y\n1,2\n", "b.csv.gz": "x,y\n3,4\n"}, ("x", "y")),
    "csv with quotes in fields": ({"a.csv": 'x,y\n"a ""b""",2\n'}, ("x", "y")),
    "csv with quotes in the header": ({"a.csv": 'x,"y ""b"""\n1,2\n'}, None),
    "an empty csv file": ({"a.csv": "", "b.csv": "x,y\n3,4\n"}, ("x", "y")),
    "only an empty csv file": ({"a.csv": ""}, None),
    "headers in other cases": ({"a.csv": "x,y\n", "b.csv": "X,y\n"}, ("x", "y")),
    "a column twice": ({"a.csv": "x,X\n1,2\n"}, None),
    "json": ({"a.json": '{"x": 1}\n\n{"y": null}\n', "b.json": '{"z": [1]}'}, ("x", "y", "z")),
    "hidden files": ({"a.csv": "x\n1\n", "_SUCCESS": "", ".a.csv.crc": "?"}, ("x",)),
    "files of another kind": ({"a.csv": "x\n1\n", "README": "no"}, None),
    "partitions": ({"d=1/h=2/a.csv": "x\n", "d=1/h=3/b.csv": "x\n"}, ("x", "d", "h")),
    "a partition column in files": ({"d=1/a.csv": "x,D\n"}, ("x", "D")),
    "partitions of two depths": ({"d=1/a.csv": "x\n", "d=1/h=3/b.csv": "x\n"}, None),
    "an escaped partition column": ({"d%2F=1/a.csv": "x\n"}, None),
    "nested directories": ({"a.csv": "x\n", "n/b.csv": "y\n"}, None),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_columns_of_directories_are_found_unless_only_spark_can_find_them(
    tmp_path: Path, name: str
) -> None:
    files, columns = FOLDERS[name]
    folder = tmp_path / "in.parquet" if "a.parquet" in files else tmp_path / "in.csv"
    folder = tmp_path / "in.json" if "a.json" in files else folder
    write(folder, files)

    expected = None if columns is None else InputColumns(names=columns)
    assert find(folder) == expected
    assert find(folder.as_uri()) == expected


JSON_LINES = {
    '{"x": {"p": 1}, "y": [{"q": "v"}]}': (("x", "y"), True),
    '{"x": 1, "y": {}}\n{"y": [], "z": {"p": []}}': (("x",), False),
    '{"x": 1, "n": {"p": null}}': (("x",), False),
    '{"x": 1}\n{"y": ': (("x",), False),
    '{"x": 1}\n[{"y": 2}]': (("x",), False),
    '\ufeff{"x": 1}': (("x",), True),
    "[]": None,
    "": None,
}


@pytest.mark.parametrize("text", JSON_LINES)
def test_columns_of_json_lines_are_complete_if_all_lines_are_understood(
    tmp_path: Path, text: str
) -> None:
    write(tmp_path, {"a.json": text, "b.json.gz": text})
    known = JSON_LINES[text]

    expected = None if known is None else InputColumns(names=known[0], is_complete=known[1])
    assert find(tmp_path / "a.json") == expected
    assert find(tmp_path / "b.json.gz") == expected


def test_large_json_files_are_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_columns, "_MAX_JSON_BYTES", 20)
    write(tmp_path, {"a.json": '{"x": 1}\n' * 3, "b.json": '{"y": 1}'})

    assert find(tmp_path) == InputColumns(names=("x",), is_complete=False)


def test_many_files_are_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_columns, "_MAX_FILES", 1)
    for name in ("json", "csv"):
        write(tmp_path / name, {f"a.{name}": '{"x": 1}' if name == "json" else "x\n"})
        write(tmp_path / name, {f"b.{name}": "not read"})

    assert find(tmp_path / "json") == InputColumns(names=("x",), is_complete=False)
    assert find(tmp_path / "csv") == InputColumns(names=("x",))


def test_different_headers_in_a_directory_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a.csv": "x,y\n", "b.csv": "y,x\n"})

    with pytest.raises(InputError, match=r"have different headers.*a\.csv: x, y; .*b\.csv: y, x"):
        find(tmp_path)


def test_names_are_decoded(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("caf\u00e9\n1\n".encode("latin-1"))

    assert find(tmp_path / "a.csv", encoding="latin-1") == InputColumns(names=("caf\u00e9",))
    with pytest.raises(InputError, match="which is not UTF-8; set the encoding"):
        find(tmp_path / "a.csv")


def test_urls_are_read_from_the_store_of_the_table() -> None:
    io, root = resolve_warehouse("memory://warehouse")
    assert isinstance(io, FsspecFileIO)
    lines = json.dumps({"x": 1}).encode()
    io._fs.pipe_file("/in/b.json/d=1/part-0.json", lines)
    io._fs.pipe_file("/in/c.csv", b"x,y\n1,2\n")

    assert find_columns([f"{root[:9]}in/b.json"], io) == InputColumns(names=("x", "d"))
    assert find_columns([f"{root[:9]}in/c.csv"], io) == InputColumns(names=("x", "y"))
    assert find_columns([f"{root[:9]}in/missing.csv"], io) is None
    assert find_columns(["s3://other/store.csv"], io) is None
    assert find_columns([f"{root[:9]}in/c.csv"], LocalFileIO()) is None


def test_unread_columns_of_a_spark_only_file_are_unknown(tmp_path: Path) -> None:
    assert find(tmp_path / "missing.csv") is None
