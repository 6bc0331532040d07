"""Rows with BLOB columns are written as data files and BLOB files, as Java Paimon does.

See docs/format/blob.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.golden import GOLDEN, copy_warehouse
from support.tables import stored_files

from paimon_orch import Catalog
from paimon_orch.errors import InputError, StorageError
from paimon_orch.files.blob.blob_file import _decode_varints
from paimon_orch.files.blob.blob_writer import encode_lengths
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

EVOLUTION = {"bucket": "-1", "row-tracking.enabled": "true", "data-evolution.enabled": "true"}


def create(root: Path, columns: str = "k BIGINT, a BLOB, b BLOB", **options: str) -> Table:
    values = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    return Catalog(str(root)).create_table("db.t", columns, options={**EVOLUTION, **values})


def rows_of(table: Table) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = table.scan().to_arrow().sort_by("k").to_pylist()
    return rows


def files_of(table: Table) -> list[tuple[object, ...]]:
    files = [file for split in table.stores.files() for file in split.files]
    return sorted((f.write_cols, f.first_row_id, f.row_count) for f in files)


def make_rows(start: int, end: int) -> pa.Table:
    keys = range(start, end)
    a = [None if k % 3 == 0 else bytes([k]) * k for k in keys]
    return pa.table({"k": keys, "a": pa.array(a, pa.binary()), "b": [b"b%d" % k for k in keys]})


@settings(max_examples=50)
@given(st.lists(st.sampled_from([-2, -1]) | st.integers(16, 2**62)))
def test_the_index_of_a_file_is_read_as_it_was_written(lengths: list[int]) -> None:
    encoded = encode_lengths(np.array(lengths, np.int64))
    assert np.cumsum(_decode_varints(encoded, "")).tolist() == lengths


def test_written_files_have_the_bytes_of_java(tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "blob", tmp_path / "w")
    table = Catalog(str(warehouse)).table("db.t_two")
    rows = table.scan(snapshot_id=1).to_arrow().sort_by("id")
    bucket = Path(table.paths.root) / "bucket-0"
    of_java = {path.read_bytes() for path in bucket.glob("*.blob")}
    copy = Catalog(str(tmp_path)).create_table(
        "db.copy", "id INT, one BLOB, two BLOB, v BIGINT", options=EVOLUTION
    )

    copy.append(rows)

    ours = [path.read_bytes() for path in (Path(copy.paths.root) / "bucket-0").glob("*.blob")]
    assert len(ours) == 2
    assert set(ours) < of_java


def test_appended_rows_are_read_compacted_and_overwritten(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.append(make_rows(0, 5))
    table.append(make_rows(5, 9))
    expected = make_rows(0, 9).to_pylist()
    assert files_of(table) == [
        (("a",), 0, 5), (("a",), 5, 4), (("b",), 0, 5), (("b",), 5, 4), (("k",), 0, 5), (("k",), 5, 4)
    ]  # fmt: skip
    assert rows_of(table) == expected

    compact(table, InProcessExecutor(), strategy="full")
    assert files_of(table)[-1] == (("k",), 0, 9)
    assert rows_of(table) == expected

    table.overwrite(make_rows(3, 4))
    assert rows_of(table) == make_rows(3, 4).to_pylist()
    assert check(table, deep=True).findings == ()


def test_blob_files_and_data_files_end_at_their_target_sizes(tmp_path: Path) -> None:
    table = create(tmp_path, blob_target__file__size="50 b", target__file__row__num="6")
    table.append(make_rows(0, 10))

    files = files_of(table)
    assert [each[1:] for each in files if each[0] == ("k",)] == [(0, 6), (6, 4)]
    assert [each[1:] for each in files if each[0] == ("a",)] == [(0, 5), (5, 1), (6, 4)]
    assert [each[1:] for each in files if each[0] == ("b",)] == [(0, 3), (3, 3), (6, 3), (9, 1)]
    assert rows_of(table) == make_rows(0, 10).to_pylist()
    assert check(table, deep=True).findings == ()


def test_rows_of_partitions_are_numbered_with_their_blobs(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "p INT, k BIGINT, a BLOB", partition_by=["p"], options=EVOLUTION
    )
    rows = pa.table(
        {
            "p": pa.array([1, 2, 1, 2], pa.int32()),
            "k": [0, 1, 2, 3],
            "a": pa.array([b"0", b"1", None, b"3"]),
        }
    )
    table.append(rows)
    table.append(rows.set_column(1, "k", pa.array([4, 5, 6, 7])))

    assert [(row["k"], row["a"]) for row in rows_of(table)] == [
        *((key, value) for key, value in zip(range(8), [b"0", b"1", None, b"3"] * 2, strict=True))
    ]
    assert check(table, deep=True).findings == ()


def test_a_failed_write_deletes_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path)
    table.append(make_rows(0, 2))
    before = stored_files(table)

    def fail(*_: object) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr("paimon_orch.files.blob.blob_writer._OpenBlobFile.close", fail)
    with pytest.raises(StorageError, match="no space left"):
        table.append(make_rows(2, 4))

    assert stored_files(table) == before
    assert rows_of(table) == make_rows(0, 2).to_pylist()


def test_descriptors_are_not_written_as_values(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.append(make_rows(0, 3))
    before = stored_files(table)
    descriptor = b"\x02CSEDBOLB" + bytes(20)

    with pytest.raises(InputError, match="is a BLOB descriptor"):
        table.append(pa.table({"k": [1], "a": [descriptor], "b": [b"b"]}))

    assert stored_files(table) == before
