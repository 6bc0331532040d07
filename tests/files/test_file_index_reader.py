"""Indexes of a file are embedded or in an index file; missing and damaged indexes are handled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest

from paimon_orch.errors import CorruptFileError, InputError, StorageError, UnsupportedError
from paimon_orch.files import file_index_reader
from paimon_orch.files.file_index_reader import FileIndexEvaluator, index_file_name, open_indexes
from paimon_orch.format.file_index.build import FileIndexBuilder
from paimon_orch.format.file_index.container import encode_container
from paimon_orch.format.file_index.evaluation import IndexEvaluation, TopN
from paimon_orch.format.file_index.index_options import parse_index_specs
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.format.types.predicate import Leaf, Operator
from paimon_orch.storage import LocalFileIO

FIELDS = tuple(parse_columns("k INT, s CHAR(3)"))
NAME = "data-0.parquet"


def build_container() -> bytes:
    builder = FileIndexBuilder(parse_index_specs({"file-index.bitmap.columns": "k,s"}), FIELDS)
    builder.add(pa.table({"k": pa.array([5, 6, 5], pa.int32()), "s": ["a", "b", "c"]}))
    return builder.finish()


def file_meta(name: str = NAME, rows: int = 3, **parts: object) -> DataFileMeta:
    return DataFileMeta(file_name=name, file_size=100, row_count=rows, **parts)  # type: ignore[arg-type]


K_IS_5 = Leaf("k", Operator.EQUAL, (pa.scalar(5, pa.int32()),))


EMPTY_SCHEMA = TableSchema(
    id=0, fields=FIELDS, highest_field_id=1, partition_keys=(), primary_keys=(), options={}
)


def evaluator_of(predicate: Leaf = K_IS_5, *, strict: bool = False) -> FileIndexEvaluator:
    schema = replace(EMPTY_SCHEMA, options={"file-index.strict": str(strict).lower()})
    return FileIndexEvaluator(schema, lambda _: schema, predicate)


def test_embedded_indexes_take_precedence_over_an_index_file(tmp_path: Path) -> None:
    file = file_meta(embedded_index=build_container(), extra_files=(f"{NAME}.index",))

    result = evaluator_of().evaluate(file, str(tmp_path / NAME), LocalFileIO())

    assert index_file_name(file) is None
    assert result.rows is not None
    assert list(result.rows) == [0, 2]


def test_an_index_file_is_not_opened_without_a_file_io(tmp_path: Path) -> None:
    file = file_meta(extra_files=(f"{NAME}.index", f"{NAME}.other"))

    assert evaluator_of().evaluate(file, NAME).rows is None
    assert index_file_name(file) == f"{NAME}.index"
    (tmp_path / f"{NAME}.index").write_bytes(build_container())
    rows = evaluator_of().evaluate(file, str(tmp_path / NAME), LocalFileIO()).rows
    assert rows is not None
    assert list(rows) == [0, 2]


@pytest.mark.parametrize("names", [("a.index", "b.index"), ("../a.index",), ("x/a.index",)])
def test_index_files_with_invalid_names_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(CorruptFileError, match="one file in the same directory"):
        index_file_name(file_meta(extra_files=names))


NEWER = build_container()[:11] + b"\x02" + build_container()[12:]
DAMAGED = [build_container()[:-9], b"", b"x" * 200, NEWER]


@pytest.mark.parametrize(
    "data", DAMAGED, ids=["truncated", "empty", "other content", "newer version"]
)
def test_a_damaged_embedded_index_logs_a_warning_and_is_refused_in_strict_mode(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"data-{len(data)}-{data[:12].hex()}.parquet"
    with caplog.at_level(logging.WARNING):
        assert evaluator_of().evaluate(file_meta(embedded_index=data), path).rows is None

    assert [path in record.getMessage() for record in caplog.records] == [True]
    with pytest.raises(CorruptFileError, match=path):
        evaluator_of(strict=True).evaluate(file_meta(embedded_index=data), path)


def test_an_index_with_another_row_count_is_refused_in_strict_mode() -> None:
    with pytest.raises(CorruptFileError, match="has 3 rows"):
        evaluator_of(strict=True).evaluate(
            file_meta(rows=4, embedded_index=build_container()), NAME
        )


def test_a_storage_failure_is_not_reported_as_damage(tmp_path: Path) -> None:
    class Failing(LocalFileIO):
        def open_input(self, path: str, size: int | None = None) -> IO[bytes]:  # noqa: ARG002
            raise OSError(5, "input/output error", path)

    file = file_meta(extra_files=(f"{NAME}.index",))
    with pytest.raises(OSError, match="input/output"):
        evaluator_of().evaluate(file, str(tmp_path / NAME), Failing())


def evaluate(evaluator: FileIndexEvaluator, file: DataFileMeta, path: str) -> IndexEvaluation:
    return evaluator.evaluate(file, path, LocalFileIO())


def find_first(evaluator: FileIndexEvaluator, file: DataFileMeta, path: str) -> IndexEvaluation:
    return evaluator.first(TopN(column="k", k=1), file, path, LocalFileIO(), None)


@pytest.fixture(
    params=[(True, evaluate), (False, evaluate), (True, find_first), (False, find_first)]
)
def read_index(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[bool], IndexEvaluation]:
    """Read an index that is embedded, or in a file."""
    is_embedded, read = request.param
    (tmp_path / f"{NAME}.index").write_bytes(build_container())
    parts = (
        {"embedded_index": build_container()}
        if is_embedded
        else {"extra_files": (f"{NAME}.index",)}
    )
    return lambda strict: read(
        evaluator_of(strict=strict), file_meta(**parts), str(tmp_path / NAME)
    )


def fail_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    for name in ("evaluate_rows", "select_rows"):
        monkeypatch.setattr(file_index_reader, name, fail)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("error", [StorageError("busy"), OSError(5, "busy"), InputError("busy")])
def test_an_error_that_is_no_damage_is_raised_unchanged(
    read_index: Callable[[bool], IndexEvaluation],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    strict: bool,
) -> None:
    fail_with(error, monkeypatch)

    with pytest.raises(type(error), match="busy") as caught:
        read_index(strict)
    assert caught.value is error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnsupportedError("version 9"), "the file index cannot be used: version 9"),
        (FileNotFoundError("gone"), "the file index cannot be used: gone"),
        (ValueError("no runs"), "the file index is damaged: ValueError: no runs"),
        (TypeError("no bytes"), "the file index is damaged: TypeError: no bytes"),
    ],
)
def test_an_error_of_a_decoder_is_damage(
    read_index: Callable[[bool], IndexEvaluation],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    reason: str,
) -> None:
    fail_with(error, monkeypatch)

    assert read_index(False).rows is None
    with pytest.raises(CorruptFileError, match=f"{NAME}.*{reason}"):
        read_index(True)


def test_indexes_of_char_columns_in_orc_files_are_not_used() -> None:
    predicate = Leaf("s", Operator.EQUAL, (pa.scalar("a"),))
    data = build_container()

    assert (
        evaluator_of(predicate).evaluate(file_meta("a.orc", embedded_index=data), "a.orc").rows
        is None
    )
    rows = evaluator_of(predicate).evaluate(file_meta("a.avro", embedded_index=data), "a.avro").rows
    assert rows is not None
    assert list(rows) == [0]


def test_indexes_of_files_with_a_subset_of_columns_are_not_used() -> None:
    file = file_meta(embedded_index=build_container(), write_cols=("k",))

    assert evaluator_of().evaluate(file, NAME).rows is None


def test_opening_a_file_without_indexes_returns_none(tmp_path: Path) -> None:
    with open_indexes(LocalFileIO(), str(tmp_path / NAME), file_meta()) as indexes:
        assert indexes is None


def test_a_container_without_columns_excludes_no_rows() -> None:
    assert (
        evaluator_of().evaluate(file_meta(embedded_index=encode_container([])), NAME).rows is None
    )


ORDERED = tuple(parse_columns("k INT, f FLOAT"))


def build_ordered() -> DataFileMeta:
    """Return a file of three rows with range indexes."""
    builder = FileIndexBuilder(parse_index_specs({"file-index.range-bitmap.columns": "k,f"}), ORDERED)  # fmt: skip
    builder.add(pa.table({"k": pa.array([5, 6, 4], pa.int32()), "f": pa.array([2, 1, 3], pa.float32())}))  # fmt: skip
    return file_meta(embedded_index=builder.finish())


def select_first(
    top: TopN,
    file: DataFileMeta,
    columns: str = "k INT, f FLOAT",
    options: Mapping[str, str] | None = None,
) -> list[int] | None:
    """Select the first rows, with the columns of the newest schema, in the order of the ids."""
    newest = replace(EMPTY_SCHEMA, fields=tuple(parse_columns(columns)), options=options or {})
    stored = replace(newest, fields=ORDERED)
    evaluator = FileIndexEvaluator(newest, lambda _: stored, None)
    rows = evaluator.first(top, file, NAME, LocalFileIO(), None).rows
    return None if rows is None else list(rows)


def test_the_first_rows_are_selected_by_an_index_that_has_the_same_order() -> None:
    file, by_k, by_f = build_ordered(), TopN(column="k", k=1), TopN(column="f", k=1)
    assert (select_first(by_k, file), select_first(by_f, file)) == ([2], [1])
    # The next sort key orders 0.0 and -0.0, which the index distinguishes.
    assert select_first(replace(by_k, sort_keys=2), file) == [2]
    assert select_first(replace(by_f, sort_keys=2), file) is None
    assert select_first(by_k, file, "k BIGINT, f FLOAT") is None
    assert select_first(replace(by_k, column="n"), file, "n INT, f FLOAT") is None
    assert select_first(by_k, replace(file, write_cols=("k", "f"))) is None


@pytest.mark.parametrize(
    "options",
    [
        {"file-index.read.enabled": "false"},
        {"data-evolution.enabled": "true"},
        {"file-index.read.enabled": "false", "data-evolution.enabled": "true"},
    ],
)
def test_indexes_are_not_read_if_the_table_does_not_allow_it(options: dict[str, str]) -> None:
    assert select_first(TopN(column="k", k=1), build_ordered(), options=options) is None
