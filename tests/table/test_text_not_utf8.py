"""Text that is not UTF-8, as Java and C++ writers store it, is processed by its bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.commands import run_command
from support.steps import commit_plan
from support.tables import new_table

from paimon_orch.format.row.binary_row import deserialize_row, serialize_row
from paimon_orch.format.row.stats_mode import truncate_max
from paimon_orch.format.text import RawText, decode_readable_text, decode_text, encode_text
from paimon_orch.format.types.data_types import AtomicType, TypeRoot
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance import analyze, rescale
from paimon_orch.table.table import Table
from paimon_orch.table.write import conform_rows

TEXTS = [b"\xff\xe9a", b"\x80", b"\xc3\xa9", b"ok", b"\xf0("]


def text_of(values: list[bytes]) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def bytes_of(table: Table, name: str, **scan: Any) -> list[bytes]:
    column = table.scan(**scan).to_arrow().column(name).combine_chunks()
    return sorted(column.view(pa.binary()).to_pylist())


@pytest.fixture(params=["parquet", "orc", "avro"])
def table(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Return a table with keys and values that are not UTF-8; checks of our writer are disabled."""
    monkeypatch.setattr(conform_rows, "_check_utf8", lambda *_: None)
    created = new_table(
        tmp_path, "s STRING, v STRING", key=("s",), file__format=request.param, metadata__stats_mode="full",
    )  # fmt: skip
    for values in (TEXTS, TEXTS[::-1]):
        created.upsert(pa.table({"s": text_of(TEXTS), "v": text_of(values)}))
    return created


def test_invalid_text_is_merged_compacted_and_filtered_by_its_bytes(table: Table) -> None:
    assert bytes_of(table, "s") == sorted(TEXTS)

    compact(table, InProcessExecutor(), strategy="full")

    assert bytes_of(table, "s") == bytes_of(table, "v") == sorted(TEXTS)
    assert bytes_of(table, "v", filter="s = 'ok'") == [TEXTS[::-1][3]]


def test_a_deep_check_names_the_file_and_analyze_counts_invalid_text(table: Table) -> None:
    compact(table, InProcessExecutor(), strategy="full")

    findings = check(table, deep=True).findings
    planned = analyze.plan(table, analyze.AnalyzeRequest(columns=["v"]))
    statistics = commit_plan(analyze.ANALYZE, table, planned).statistics

    assert {finding.rule for finding in findings} == {"text"}
    assert "has text that is not UTF-8" in findings[0].text
    assert statistics is not None
    assert statistics.columns["v"].distinct_count == len(TEXTS)


@pytest.mark.parametrize("form", ["table", "jsonl", "csv"])
def test_invalid_text_is_shown_with_replacement_characters(
    table: Table, tmp_path: Path, form: str
) -> None:
    shown = run_command("read", str(tmp_path), "db.t", "--format", form)

    assert "\ufffd\ufffda" in shown


def test_invalid_text_is_ordered_by_its_bytes() -> None:
    texts = [decode_text(data) for data in TEXTS]

    assert [encode_text(text) for text in sorted(texts)] == sorted(TEXTS)
    assert isinstance(texts[0], RawText)
    assert not isinstance(texts[3], RawText)


@pytest.mark.parametrize("data", [b"\xff\xe9a", b"ab\xff", b"\xff" * 9, b"a" * 9 + b"\xfe"])
def test_rows_and_bounds_keep_invalid_text(data: bytes) -> None:
    types = [AtomicType(name=TypeRoot.VARCHAR, params=(100,))]

    (text,) = deserialize_row(serialize_row([decode_text(data)], types), types)

    assert isinstance(text, str)
    assert encode_text(text) == data
    for length in range(1, 10):
        bound = truncate_max(text, length)
        assert bound is None or encode_text(bound) >= data


@pytest.mark.parametrize("key", [(), ("p", "k")])
def test_partitions_of_invalid_text_keep_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...]
) -> None:
    monkeypatch.setattr(conform_rows, "_check_utf8", lambda *_: None)
    values = [b"\xff\xe9a", b"ok", b"\xff\xe8a"]
    bucket = {"bucket": "1", "bucket_key": "k"}
    table = new_table(
        tmp_path, "p STRING, k INT", key=key, partition_by=("p",), **({} if key else bucket)
    )
    rows = pa.table({"p": text_of(values), "k": pa.array([1, 2, 3], pa.int32())})
    for _ in range(3):
        table.upsert(rows) if key else table.append(rows)
    expected = sorted(values * (1 if key else 3))

    compact(table, InProcessExecutor(), strategy="full")
    rescale.rescale(table, 2)

    assert bytes_of(table, "p") == expected
    assert {path.name for path in Path(table.paths.root).glob("p=*")} == {"p=ok", "p=\ufffd\ufffda"}
    assert "p=\ufffd\ufffda" in run_command("inspect", str(tmp_path), "db.t")
    assert "\ufffd\ufffda" in run_command(
        "read", str(tmp_path), "db.t$partitions", "--format", "jsonl"
    )


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\xed\xa0\x80x", "\ufffdx"),
        (b"\xed\xbf", "\ufffd"),
        (b"\xed\xa0\xc2", "\ufffd\ufffd"),
        (b"\xf0(", "\ufffd("),
        (b"\xf5\xed\xa0\xf1", "\ufffd\ufffd\ufffd"),
        (b"\xc3\xa9", "\u00e9"),
    ],
)
def test_partition_directories_of_invalid_text_have_the_same_names_as_in_java(
    data: bytes, shown: str
) -> None:
    """The expected names were created with Java 17."""
    assert decode_readable_text(data) == shown


def test_nested_text_of_avro_files_keeps_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conform_rows, "_check_utf8", lambda *_: None)
    table = new_table(
        tmp_path, "k INT, m MAP<STRING, STRING>, a ARRAY<STRING>", key=("k",), file__format="avro"
    )
    texts = text_of(TEXTS)
    offsets = pa.array([0, 2, 5], pa.int32())
    rows = pa.table(
        {
            "k": pa.array([1, 2], pa.int32()),
            "m": pa.MapArray.from_arrays(offsets, texts, texts),
            "a": pa.ListArray.from_arrays(offsets, texts),
        }
    )
    table.upsert(rows)
    table.upsert(rows.slice(0, 1))

    compact(table, InProcessExecutor(), strategy="full")

    read_rows = table.scan().to_arrow().sort_by("k")
    entries = read_rows.column("m").combine_chunks()
    lists = read_rows.column("a").combine_chunks()
    for column in (entries.keys, entries.items, lists.values):
        assert column.view(pa.binary()).to_pylist() == TEXTS


def test_a_commit_user_with_a_lone_surrogate_is_shown(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT", key=("k",))
    table.upsert(pa.table({"k": pa.array([1], pa.int32())}))
    file = Path(table.paths.snapshot_dir) / "snapshot-1"
    content = json.loads(file.read_bytes()) | {"commitUser": "job \ud800"}
    file.write_text(json.dumps(content))

    assert "job \ufffd" in run_command("read", str(tmp_path), "db.t$snapshots", "--format", "jsonl")
    assert (
        json.loads(run_command("inspect", str(tmp_path), "db.t", "--json"))["snapshot"][
            "commit_user"
        ]
        == "job \ufffd"
    )
    table.tags.create("kept")
    assert table.tags.get("kept").id == 1


def test_properties_with_a_lone_surrogate_are_kept(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT", key=("k",))
    table.upsert(pa.table({"k": pa.array([1], pa.int32())}))
    file = Path(table.paths.snapshot_dir) / "snapshot-1"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"properties": {"a": "\ud800"}}))
    table.tags.create("kept")

    table.branches.create("b", "kept")

    (copied,) = Path(table.paths.root).glob("branch/branch-b/snapshot/snapshot-1")
    assert json.loads(copied.read_bytes())["properties"] == {"a": "\ud800"}
