"""Files of every format have about the target size and correct metadata."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.files.file_format import open_reader
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption, UpdateNullability

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


@pytest.mark.parametrize(
    ("file_format", "column", "message"),
    [
        ("avro", "TIMESTAMP(9)", "column 'c' of type TIMESTAMP.9.: Avro supports"),
        ("avro", "ARRAY<TIMESTAMP_LTZ(7)>", "Avro supports"),
        ("avro", "TIME(6)", "Avro supports TIME with up to 3"),
        ("avro", "ROW<v VARIANT>", "Avro does not support VARIANT"),
        ("orc", "MAP<INT, VARIANT>", "ORC does not support VARIANT"),
        ("orc", "VECTOR<FLOAT, 3>", "ORC does not support VECTOR"),
    ],
)
def test_types_that_a_format_cannot_hold_are_refused_before_the_first_row(
    file_format: str, column: str, message: str, tmp_path: Path
) -> None:
    catalog = Catalog(str(tmp_path))
    columns, key = f"id BIGINT NOT NULL, c {column}", ["id"]
    for option, value in (
        ("file.format", file_format),
        ("file.format.per.level", f"0:{file_format}"),
        ("changelog-file.format", file_format),
    ):
        options = {"bucket": "1", option: value}
        with pytest.raises(UnsupportedError, match=message):
            catalog.create_table("db.t", columns, primary_key=key, options=options)
    table = catalog.create_table("db.t", columns, primary_key=key, options={"bucket": "1"})
    with pytest.raises(UnsupportedError, match=message):
        catalog.alter_table("db.t", [SetOption("file.format", file_format)])
    catalog.create_table("db.u", "id BIGINT", options={"file.format": file_format})
    with pytest.raises(UnsupportedError, match=message):
        catalog.alter_table("db.u", [AddColumn(column="c", type=column)])
    assert table.load().schema.id == catalog.table("db.u").load().schema.id == 0


def test_a_table_of_another_writer_with_such_a_type_can_be_altered(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.t", "id BIGINT, c TIMESTAMP(9)")
    path = Path(table.paths.root, "schema", "schema-0")
    content = json.loads(path.read_text())
    content["options"]["file.format"] = "avro"
    path.write_text(json.dumps(content))

    catalog.alter_table("db.t", [SetOption("snapshot.num-retained.min", "2")])
    catalog.alter_table("db.t", [SetOption("file.format", "parquet")])


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


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("key", [(), ("k",)])
def test_null_of_an_older_file_in_a_not_null_column_is_not_written_again(
    tmp_path: Path, file_format: str, key: tuple[str, ...]
) -> None:
    options = {"file__format": file_format, "alter_column_null_to_not_null__disabled": "false"}
    table = new_table(tmp_path, "k INT, v INT", key=key, bucket="1" if key else "-1", **options)
    table.append(table_of("k v", [(1, None), (2, 2)]))
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [UpdateNullability("v", nullable=False)])
    table.append(table_of("k v", [(3, 3)]))

    with pytest.raises(InputError, match="'v' is NOT NULL, but rows to write again have null"):
        table.compact(strategy="full")

    catalog.alter_table("db.t", [UpdateNullability("v", nullable=True)])
    table.compact(strategy="full")
    assert rows_of(table) == [(1, None), (2, 2), (3, 3)]
