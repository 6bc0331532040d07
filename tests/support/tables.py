"""Small tables for tests, their files, and the invariants of a healthy table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_orch import Catalog
from paimon_orch.catalog.file_system import FileSystemBackend
from paimon_orch.files.batch_sizes import BatchSizes
from paimon_orch.files.data_file_reader import SYSTEM_FIELDS, BucketFile, FileReader
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.live_entries import filter_live_entries
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.merge.sort.key_order import KeyColumns, decode_key
from paimon_orch.merge.tree.levels import build_sorted_runs
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.table import Table

Row = tuple[Any, ...]


def small_batches(table: Table, rows: int) -> Table:
    """Return the table with row groups and batches of few rows, so that small files have several.

    Compactions copy row groups of any size.
    """
    sizes = BatchSizes(
        row_group_rows=rows,
        min_row_group_rows=rows,
        batch_rows=rows,
        min_merge_batch_rows=1,
        min_copied_group_bytes=1,
        min_copied_chunk_bytes=1,
    )
    return replace(table, batch_sizes=sizes)


def new_table(
    root: Path,
    columns: str = "k BIGINT, v STRING",
    *,
    key: Sequence[str] = ("k",),
    partition_by: Sequence[str] = (),
    **options: str,
) -> Table:
    """Create ``db.t``; in names of options ``__`` is a dot and ``_`` a dash (``file__format``).

    ``root`` is a warehouse or the name of a configured catalog.
    """
    named = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
    return Catalog(str(root)).create_table(
        "db.t", columns, primary_key=key, partition_by=partition_by, options={"bucket": "1"} | named
    )


def rows_of(table: Table, **scan: Any) -> list[Row]:
    """Return the rows of a scan, sorted."""
    result = table.scan(**scan).to_arrow()
    rows = zip(*(column.to_pylist() for column in result.columns), strict=True)
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def table_of(names: str, rows: Iterable[Row]) -> pa.Table:
    """Return an Arrow table of rows; ``names`` are separated by spaces."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names.split())
    return pa.table(dict(zip(names.split(), map(list, columns), strict=True)))


def levels_of(table: Table) -> list[int]:
    """Return the level of every live file, sorted."""
    return sorted(file.level for split in table.files() for file in split.files)


def deletion_vectors_of(table: Table) -> dict[str, DeletionVector]:
    """Return the deletion vectors of the newest snapshot by data file."""
    index = table.stores.manifests.read_index_entries(table.snapshot())
    return read_deletion_vectors(table.io, table.paths, table.load().schema, index)


def stored_files(table: Table) -> set[str]:
    """Return every file below the table's directory."""
    root = Path(table.paths.root)
    return {str(path) for path in root.rglob("*") if path.is_file()}


def assert_healthy(table: Table) -> None:
    """Check that files exist, metadata equals their contents, and keys above level 0 are unique."""
    snapshot = table.snapshot()
    assert snapshot is not None
    entries = filter_live_entries(
        table.stores.manifests.entries(table.stores.manifests.manifests(snapshot))
    )
    assert snapshot.total_record_count == sum(entry.file.row_count for entry in entries)
    vectors, reader = deletion_vectors_of(table), table.stores.reader()
    rows = {entry.file.file_name: entry.file.row_count for entry in entries}
    assert set(vectors) <= set(rows), "a vector names a file that is not live"
    for name, vector in vectors.items():
        positions = vector.positions()
        assert len(positions)
        assert 0 <= positions[0] <= positions[-1] < rows[name]
    for split in table.files():
        _assert_bucket_healthy(reader, split, vectors)


def _assert_bucket_healthy(
    reader: FileReader, split: BucketSplit, vectors: Mapping[str, DeletionVector]
) -> None:
    schema = reader.schema
    if schema.primary_keys:
        # This fails if files of one level overlap.
        build_sorted_runs(split.files, schema.key_fields)
    live: Counter[Row] = Counter()
    for file in split.files:
        bucket_file = BucketFile(split.partition, split.bucket, file)
        path = Path(reader.path(bucket_file))
        assert path.stat().st_size == file.file_size
        assert pq.ParquetFile(path).metadata.num_rows == file.row_count
        if not schema.primary_keys:
            continue
        names = schema.trimmed_primary_keys
        rows = pa.Table.from_batches(reader.read(bucket_file, [*SYSTEM_FIELDS, *schema.key_fields]))
        keys = _keys(rows, names)
        assert len(set(keys)) == len(keys), "a file holds a key twice"
        kinds = rows["_VALUE_KIND"].to_pylist()
        assert file.delete_row_count == sum(kind in (1, 3) for kind in kinds)
        numbers = pc.min_max(rows["_SEQUENCE_NUMBER"]).as_py()
        assert (file.min_sequence_number, file.max_sequence_number) == tuple(numbers.values())
        ends = [decode_key(data, schema.key_fields) for data in (file.min_key, file.max_key)]
        columns = KeyColumns.of(rows, names)
        assert ends == [columns.at(0), columns.at(len(columns) - 1)]
        if file.level > 0 and schema.typed_options.has_deletion_vectors:
            vector = vectors.get(file.file_name)
            for batch in reader.read(bucket_file, schema.key_fields, vector):
                live.update(_keys(batch, names))
    assert not [key for key, count in live.items() if count > 1], "a key is live twice"


def _keys(rows: pa.Table | pa.RecordBatch, names: Sequence[str]) -> list[Row]:
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def catalog_of(table: Table) -> Catalog:
    """Return the catalog of a table: a configured one, or the warehouse of its path."""
    name = table.environment.command_argument
    return Catalog(name or str(Path(table.paths.root).parents[1]))


def get_file_system(catalog: Catalog) -> FileSystemBackend:
    """Return the backend of a catalog that is a warehouse directory."""
    assert isinstance(catalog.backend, FileSystemBackend), catalog
    return catalog.backend
