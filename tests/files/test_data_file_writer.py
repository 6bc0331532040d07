"""Files of every format have about the target size and correct metadata."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.files.file_format import open_reader
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.row.binary_row import EMPTY_ROW

ROWS = 120_000


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_writers_start_a_new_file_near_the_target_size(kind: str, tmp_path: Path) -> None:
    options = {"file.format": kind, "target-file-size": "256 kb"}
    table = Catalog(str(tmp_path)).create_table("db.t", "id BIGINT, v BIGINT", options=options)
    noise = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, ROWS)
    table.append(pa.table({"id": range(ROWS), "v": noise}))
    [split] = table.files()
    assert 3 <= len(split.files) <= 10
    for file in split.files:
        path = Path(table.paths.data_file(table.load().schema, split.partition, split.bucket, file))
        assert path.stat().st_size == file.file_size
        assert file.file_size < 768 << 10
        with path.open("rb") as source:
            opened = open_reader(source, str(path), table.load().schema.fields)
            rows = sum(batch.num_rows for batch in opened.batches(["id"], 10_000))
        assert rows == file.row_count
    assert sum(file.row_count for file in split.files) == ROWS
    assert table.scan().to_arrow().column("v").to_pylist() == noise.tolist()


def test_a_row_group_has_at_most_128_mebibytes_before_compression(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "v BYTES", options={"target-file-size": "1 gb"}
    )
    factory = FileWriterFactory(table.io, table.paths, table.load().schema)
    writer = factory.writer(PartitionBucket(EMPTY_ROW, 0))
    writer.write(pa.table({"v": [bytes(65_532)]}))  # and an offset of four bytes

    assert writer._rows_per_group() == 2_048


def test_each_level_can_have_its_own_format(tmp_path: Path) -> None:
    options = {"file.format.per.level": "0:avro,5:orc", "bucket": "1"}
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "id BIGINT NOT NULL, v BIGINT", primary_key=["id"], options=options
    )
    table.upsert(pa.table({"id": [1, 2], "v": [1, 2]}))
    table.upsert(pa.table({"id": [2, 3], "v": [20, 30]}))
    assert {Path(f.file_name).suffix for split in table.files() for f in split.files} == {".avro"}
    assert table.scan().to_arrow().to_pydict() == {"id": [1, 2, 3], "v": [1, 20, 30]}


def test_an_unsupported_column_type_leaves_no_file(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "id BIGINT, m MULTISET<INT>", options={"file.format": "orc"}
    )
    with pytest.raises(UnsupportedError, match="column 'm'"):
        table.append(
            pa.table({"id": [1], "m": pa.array([[(1, 1)]], pa.map_(pa.int32(), pa.int32()))})
        )
    assert list(tmp_path.rglob("data-*")) == []
    assert table.snapshot() is None


@pytest.mark.parametrize(("index", "pages"), [("bitmap", True), ("bloom-filter", False)])
def test_files_with_a_row_selecting_index_have_small_pages(
    index: str, pages: bool, tmp_path: Path
) -> None:
    options = {f"file-index.{index}.columns": "id", f"file-index.{index}.id.items": "100"}
    table = Catalog(str(tmp_path)).create_table("db.t", "id BIGINT, v BIGINT", options=options)
    table.append(pa.table({"id": range(ROWS), "v": range(ROWS)}))
    (path,) = tmp_path.rglob("data-*.parquet")
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups == 1
    assert metadata.row_group(0).column(1).has_offset_index == pages
