"""Where the indexes of a file are looked for, and what becomes of those that are not there or not sound."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_orch.errors import CorruptFileError
from paimon_orch.files.file_index_reader import FileIndexEvaluator, index_file_name, open_indexes
from paimon_orch.format.file_index.build import FileIndexBuilder
from paimon_orch.format.file_index.container import encode_container
from paimon_orch.format.file_index.index_options import parse_index_specs
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.format.types.predicate import Leaf, Operator
from paimon_orch.storage import LocalFileIO

FIELDS = tuple(parse_columns("k INT, s CHAR(3)"))
NAME = "data-0.parquet"


def container() -> bytes:
    builder = FileIndexBuilder(parse_index_specs({"file-index.bitmap.columns": "k,s"}), FIELDS)
    builder.add(pa.table({"k": pa.array([5, 6, 5], pa.int32()), "s": ["a", "b", "c"]}))
    return builder.finish()


def meta(name: str = NAME, rows: int = 3, **parts: object) -> DataFileMeta:
    return DataFileMeta(file_name=name, file_size=100, row_count=rows, **parts)  # type: ignore[arg-type]


K_IS_5 = Leaf("k", Operator.EQUAL, (pa.scalar(5, pa.int32()),))


def asked(predicate: Leaf = K_IS_5, *, strict: bool = False) -> FileIndexEvaluator:
    schema = TableSchema(
        id=0,
        fields=FIELDS,
        highest_field_id=1,
        partition_keys=(),
        primary_keys=(),
        options={"file-index.strict": str(strict).lower()},
    )
    return FileIndexEvaluator(schema, lambda _: schema, predicate)


def test_embedded_indexes_come_before_a_file(tmp_path: Path) -> None:
    file = meta(embedded_index=container(), extra_files=(f"{NAME}.index",))

    found = asked().evaluate(file, str(tmp_path / NAME), LocalFileIO())

    assert index_file_name(file) is None
    assert found.rows is not None
    assert list(found.rows) == [0, 2]


def test_an_index_file_is_not_opened_without_storage(tmp_path: Path) -> None:
    file = meta(extra_files=(f"{NAME}.index", f"{NAME}.other"))

    assert asked().evaluate(file, NAME).rows is None
    assert index_file_name(file) == f"{NAME}.index"
    (tmp_path / f"{NAME}.index").write_bytes(container())
    found = asked().evaluate(file, str(tmp_path / NAME), LocalFileIO()).rows
    assert found is not None
    assert list(found) == [0, 2]


@pytest.mark.parametrize("names", [("a.index", "b.index"), ("../a.index",), ("x/a.index",)])
def test_index_files_with_names_that_cannot_be_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(CorruptFileError, match="one file in the same directory"):
        index_file_name(meta(extra_files=names))


NEWER = container()[:11] + b"\x02" + container()[12:]
DAMAGED = [container()[:-9], b"", b"x" * 200, NEWER]


@pytest.mark.parametrize("data", DAMAGED, ids=["cut", "empty", "other", "newer"])
def test_what_is_wrong_with_an_embedded_index_is_a_warning_or_an_error(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"data-{len(data)}-{data[:12].hex()}.parquet"
    with caplog.at_level(logging.WARNING):
        assert asked().evaluate(meta(embedded_index=data), path).rows is None

    assert [path in record.getMessage() for record in caplog.records] == [True]
    with pytest.raises(CorruptFileError, match=path):
        asked(strict=True).evaluate(meta(embedded_index=data), path)


def test_an_index_with_another_row_count_is_ignored() -> None:
    with pytest.raises(CorruptFileError, match="has 3 rows"):
        asked(strict=True).evaluate(meta(rows=4, embedded_index=container()), NAME)


def test_storage_that_fails_is_no_damage(tmp_path: Path) -> None:
    class Failing(LocalFileIO):
        def open_input(self, path: str) -> object:  # type: ignore[override]
            raise OSError(5, "input/output error", path)

    with pytest.raises(OSError, match="input/output"):
        asked().evaluate(meta(extra_files=(f"{NAME}.index",)), str(tmp_path / NAME), Failing())  # type: ignore[arg-type]


def test_char_columns_of_orc_files_are_not_asked_for() -> None:
    text = Leaf("s", Operator.EQUAL, (pa.scalar("a"),))
    inside = container()

    assert asked(text).evaluate(meta("a.orc", embedded_index=inside), "a.orc").rows is None
    found = asked(text).evaluate(meta("a.avro", embedded_index=inside), "a.avro").rows
    assert found is not None
    assert list(found) == [0]


def test_files_that_hold_some_columns_alone_are_not_asked_for() -> None:
    file = meta(embedded_index=container(), write_cols=("k",))

    assert asked().evaluate(file, NAME).rows is None


def test_a_file_without_indexes_has_none(tmp_path: Path) -> None:
    with open_indexes(LocalFileIO(), str(tmp_path / NAME), meta()) as found:
        assert found is None


def test_a_container_without_columns_tells_nothing() -> None:
    assert asked().evaluate(meta(embedded_index=encode_container([])), NAME).rows is None
