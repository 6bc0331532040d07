"""Text that is not UTF-8, as writers of Java and C++ store it: it is merged, compacted and filtered by its bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from commands import said
from tables import new_table

from paimon_orch.format.binary_row import deserialize_row, serialize_row
from paimon_orch.format.statistics import truncate_max
from paimon_orch.format.text import RawText, decode_text, encode_text
from paimon_orch.format.types import AtomicType
from paimon_orch.steps import analyze
from paimon_orch.steps.check import check
from paimon_orch.steps.compact import compact
from paimon_orch.steps.executor import InProcessExecutor
from paimon_orch.table import write
from paimon_orch.table.table import Table

TEXTS = [b"\xff\xe9a", b"\x80", b"\xc3\xa9", b"ok", b"\xf0("]


def text_of(values: list[bytes]) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def bytes_of(table: Table, name: str, **scan: Any) -> list[bytes]:
    column = table.scan(**scan).to_arrow().column(name).combine_chunks()
    return sorted(column.view(pa.binary()).to_pylist())


@pytest.fixture(params=["parquet", "orc"])
def table(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Keys and values are not UTF-8; our writer, which would refuse them, does not look."""
    monkeypatch.setattr(write, "_check_text", lambda *_: None)
    made = new_table(
        tmp_path, "s STRING, v STRING", key=("s",), file__format=request.param, metadata__stats_mode="full",
    )  # fmt: skip
    for values in (TEXTS, TEXTS[::-1]):
        made.upsert(pa.table({"s": text_of(TEXTS), "v": text_of(values)}))
    return made


def test_it_is_merged_compacted_and_filtered_by_its_bytes(table: Table) -> None:
    assert bytes_of(table, "s") == sorted(TEXTS)

    compact(table, InProcessExecutor(), strategy="full")

    assert bytes_of(table, "s") == bytes_of(table, "v") == sorted(TEXTS)
    assert bytes_of(table, "v", filter="s = 'ok'") == [TEXTS[::-1][3]]


def test_a_deep_check_names_the_file_and_analyze_counts_it(table: Table) -> None:
    compact(table, InProcessExecutor(), strategy="full")

    found = check(table, deep=True).findings
    planned = analyze.plan(table, ["v"])
    results = [analyze.run(unit) for unit in planned.units]
    statistics = analyze.commit(table, planned, results).statistics

    assert {finding.rule for finding in found} == {"text"}
    assert "has text that is not UTF-8" in found[0].text
    assert statistics is not None
    assert statistics.columns["v"].distinct_count == len(TEXTS)


@pytest.mark.parametrize("form", ["table", "jsonl", "csv"])
def test_it_is_shown_with_replacement_characters(table: Table, tmp_path: Path, form: str) -> None:
    shown = said("read", str(tmp_path), "db.t", "--format", form)

    assert "\ufffd\ufffda" in shown


def test_it_is_ordered_by_its_bytes() -> None:
    texts = [decode_text(data) for data in TEXTS]

    assert [encode_text(text) for text in sorted(texts)] == sorted(TEXTS)
    assert isinstance(texts[0], RawText)
    assert not isinstance(texts[3], RawText)


@pytest.mark.parametrize("data", [b"\xff\xe9a", b"ab\xff", b"\xff" * 9, b"a" * 9 + b"\xfe"])
def test_rows_keep_it_and_bounds_enclose_it(data: bytes) -> None:
    types = [AtomicType(name="VARCHAR", params=(100,))]

    (text,) = deserialize_row(serialize_row([decode_text(data)], types), types)

    assert isinstance(text, str)
    assert encode_text(text) == data
    for length in range(1, 10):
        bound = truncate_max(text, length)
        assert bound is None or encode_text(bound) >= data
