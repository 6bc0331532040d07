"""Keys are read from key columns, because Java 0.9 wrote rows without keys in value columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc
from pyarrow import parquet as pq
from support.tables import new_table

from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.binary_row import EMPTY_ROW

ROWS = pa.table(
    {
        "_KEY_k": pa.array([1, 2, 3], pa.int64()),
        "_SEQUENCE_NUMBER": pa.array([7, 8, 9], pa.int64()),
        "_VALUE_KIND": pa.array([0, 3, 0], pa.int8()),
        "k": pa.array([1, None, None], pa.int64()),
        "v": pa.array(["a", "b", "c"]),
    }
)


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_a_key_missing_in_value_columns_is_read_from_its_key_column(
    tmp_path: Path, file_format: str
) -> None:
    table = new_table(tmp_path, file__format=file_format)
    reader = table.stores.reader()
    name = f"data-0.{file_format}"
    path = Path(
        reader.path(
            BucketFile(EMPTY_ROW, 0, DataFileMeta(file_name=name, file_size=0, row_count=3))
        )
    )
    path.parent.mkdir(parents=True)
    (pq.write_table if file_format == "parquet" else orc.write_table)(ROWS, path)
    bucket_file = BucketFile(
        EMPTY_ROW, 0, DataFileMeta(file_name=name, file_size=path.stat().st_size, row_count=3)
    )

    rows = pa.Table.from_batches(reader.read(bucket_file, table.load().schema.fields))

    assert rows.to_pydict() == {"k": [1, 2, 3], "v": ["a", "b", "c"]}


def test_keys_are_read_from_value_columns_if_there_are_no_key_columns(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    reader = table.stores.reader()
    path = Path(
        reader.path(
            BucketFile(
                EMPTY_ROW, 0, DataFileMeta(file_name="data-0.parquet", file_size=0, row_count=3)
            )
        )
    )
    path.parent.mkdir(parents=True)
    keys = pa.array([1, 2, 3], pa.int64())
    pq.write_table(ROWS.drop_columns(["_KEY_k", "k"]).append_column("k", keys), path)
    bucket_file = BucketFile(
        EMPTY_ROW,
        0,
        DataFileMeta(file_name="data-0.parquet", file_size=path.stat().st_size, row_count=3),
    )

    (batch,) = reader.read(bucket_file, table.load().schema.fields)

    assert batch.column("k").to_pylist() == [1, 2, 3]
