"""A table of a million files in 10,000 partitions: manifests only, without data files.

    python benchmarks/many_files.py [FOLDER] [--files 1000000] [--spread]

Each partition has 16 buckets. A bucket has one sorted run on level 5 and one or two files on level
0; each twentieth bucket has only files of level 0, enough for a compaction. Manifests list the files
by partition, as in a table that is written in the order of time; with ``--spread``, each manifest
lists files of all partitions. Other benchmarks call :func:`open_many_files`, which creates the table
once. From the second million on, manifests are copies with other partitions and file names.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import fastavro
import numpy as np
import typer
from fastavro.write import Writer
from listed_files import (
    BUCKETS,
    FILES_PER_PARTITION,
    MAX_ENCODED,
    build_file_name,
    build_partition_name,
    compute_file_size,
    get_copy_letter,
)
from measurement import console

from paimon_orch import Catalog
from paimon_orch.format.manifest.columnar_manifest import ColumnarManifest
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.row.binary_row import deserialize_row, serialize_row
from paimon_orch.format.row.simple_stats import SimpleStats
from paimon_orch.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from paimon_orch.table.metadata.manifest_io import ManifestWriter
from paimon_orch.table.table import Table

FOLDER = Path(tempfile.gettempdir(), "many_files")
TABLE = "db.t"
COLUMNS = "id BIGINT NOT NULL, dt STRING NOT NULL, amount BIGINT, status STRING, price DOUBLE, note STRING"
ROWS_PER_FILE = 1_000
_FIRST_MILLIS = 1_767_225_600_000
_CHUNK = 200_000


def open_many_files(
    folder: Path = FOLDER, files: int = 1_000_000, *, spread: bool = False
) -> Table:
    """Return the table in a folder; creates it if it does not exist or has another size."""
    warehouse = folder / f"{files}{'-spread' if spread else ''}"
    marker = warehouse / "complete"
    if not marker.exists():
        shutil.rmtree(warehouse, ignore_errors=True)
        create_many_files(warehouse, files, spread=spread)
        marker.touch()
    return Catalog(str(warehouse)).table(TABLE)


def create_many_files(warehouse: Path, files: int, *, spread: bool = False) -> Table:
    """Create a table with manifests of made-up files, in one snapshot."""
    table = Catalog(str(warehouse)).create_table(
        TABLE,
        COLUMNS,
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": str(BUCKETS)},
    )
    writer = ManifestWriter(table.io, table.paths, table.load().schema)
    copies, rest = divmod(files, min(files, MAX_ENCODED))
    assert not rest, f"{files} is not a multiple of {MAX_ENCODED}"
    encoded = _write_entries(table, writer, files // copies, spread=spread)
    manifests = [*encoded]
    for copy in range(1, copies):
        manifests += [_copy_manifest(table, meta, copy) for meta in encoded]
    base = writer.manifest_list(manifests)
    delta = writer.manifest_list([])
    writer.flush()
    snapshot = Snapshot(
        id=1,
        schema_id=0,
        base_manifest_list=base[0],
        delta_manifest_list=delta[0],
        commit_user="bench",
        commit_identifier=BATCH_COMMIT_IDENTIFIER,
        commit_kind=CommitKind.APPEND,
        time_millis=_FIRST_MILLIS,
        total_record_count=files * ROWS_PER_FILE,
        delta_record_count=0,  # the delta has no files
        base_manifest_list_size=base[1],
        delta_manifest_list_size=delta[1],
    )
    store = table.stores.snapshots
    store.io.write(store.path(1), snapshot.to_json())
    store.write_hint("LATEST", 1)
    return table


def _write_entries(
    table: Table, writer: ManifestWriter, files: int, *, spread: bool
) -> list[ManifestFileMeta]:
    maker = _EntryMaker(table)
    partitions = -(-files // FILES_PER_PARTITION)
    numbers = (
        (p * FILES_PER_PARTITION + i for i in range(FILES_PER_PARTITION) for p in range(partitions))
        if spread
        else iter(range(partitions * FILES_PER_PARTITION))
    )
    manifests: list[ManifestFileMeta] = []
    entries: list[ManifestEntry] = []
    for chunk in _iterate_chunks(number for number in numbers if number < files):
        if manifests:  # only the last manifest may be small, as commits merge the others
            last = manifests.pop()
            table.io.delete(f"{table.paths.manifest_dir}/{last.file_name}")
            entries = entries[-last.num_added_files :]
        entries += [maker.make(number) for number in chunk]
        manifests += writer.manifests(entries)
        writer.flush()
    return manifests


def _copy_manifest(table: Table, meta: ManifestFileMeta, copy: int) -> ManifestFileMeta:
    """Write a manifest with the same files in later partitions, and with other names."""
    data = table.io.read_bytes(f"{table.paths.manifest_dir}/{meta.file_name}")
    manifest = ColumnarManifest.decode(data, meta.file_name)
    assert manifest is not None
    content = np.frombuffer(manifest.data, np.uint8).copy()
    names = manifest.columns["_FILE._FILE_NAME"].values
    content[names + len("data-")] = ord(get_copy_letter(copy))
    types = [field.type for field in table.load().schema.partition_fields]

    def read_day(partition: bytes) -> str:
        [day] = deserialize_row(partition, types)
        return str(day)

    def move_day(day: str) -> str:
        moved = date.fromisoformat(day).toordinal() + copy * MAX_ENCODED // FILES_PER_PARTITION
        return date.fromordinal(moved).isoformat()

    partitions, codes = manifest.encode_partitions()
    days = [read_day(partition) for partition in partitions]
    old, new = (
        np.array([list(day.encode()) for day in each], np.uint8)[codes]
        for each in (days, map(move_day, days))
    )
    for column in (
        "_PARTITION",
        "_FILE._VALUE_STATS._MIN_VALUES",
        "_FILE._VALUE_STATS._MAX_VALUES",
    ):
        values = manifest.columns[column]
        offset = values.slices(manifest.data)[0].index(days[codes[0]].encode())
        places = (values.values + offset)[:, None] + np.arange(old.shape[1])
        assert np.array_equal(content[places], old), column
        content[places] = new
    name = f"{meta.file_name}-{copy}"
    size = _write_manifest(table, name, data, content.tobytes())
    stats = meta.partition_stats
    low, high = (
        serialize_row([move_day(read_day(row))], types)
        for row in (stats.min_values, stats.max_values)
    )
    stats = replace(stats, min_values=low, max_values=high)
    return replace(meta, file_name=name, file_size=size, partition_stats=stats)


def _write_manifest(table: Table, name: str, original: bytes, content: bytes) -> int:
    """Write a container with the block sizes of another one and other content."""
    reader, target = fastavro.block_reader(io.BytesIO(original)), io.BytesIO()
    writer = Writer(target, reader.writer_schema, codec="zstandard", compression_level=1)
    start = 0
    block: Any
    for block in reader:
        size = len(block.bytes_.getvalue())
        block.bytes_ = io.BytesIO(content[start : start + size])
        writer.write_block(block)
        start += size
    writer.flush()
    table.io.write(f"{table.paths.manifest_dir}/{name}", target.getvalue())
    return len(target.getvalue())


def _iterate_chunks(numbers: Iterator[int]) -> Iterator[list[int]]:
    chunk: list[int] = []
    for number in numbers:
        chunk.append(number)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class _EntryMaker:
    def __init__(self, table: Table) -> None:
        schema = table.load().schema
        self._types = [field.type for field in schema.fields]
        self._key_types = [field.type for field in schema.key_fields]
        self._partition_types = [field.type for field in schema.partition_fields]
        self._serialize_partition = lru_cache(16_384)(
            lambda name: serialize_row([name], self._partition_types)
        )

    def make(self, number: int) -> ManifestEntry:
        position, bucket = divmod(number % FILES_PER_PARTITION, BUCKETS)
        is_due = (number // FILES_PER_PARTITION * BUCKETS + bucket) % 20 == 0
        day = build_partition_name(number)
        low = position * 1_000_000 + number % 1_009
        high = low + ROWS_PER_FILE - 1
        first_sequence = (position + 1) * ROWS_PER_FILE
        min_values, max_values = (
            serialize_row([n, day, n * 3, "PENDING", n / 7, f"note {n:09d}"], self._types)
            for n in (low, high)
        )
        min_key, max_key = (serialize_row([n], self._key_types) for n in (low, high))
        file = DataFileMeta(
            file_name=build_file_name(number),
            file_size=compute_file_size(number),
            row_count=ROWS_PER_FILE,
            min_key=min_key,
            max_key=max_key,
            key_stats=SimpleStats(min_key, max_key, (0,)),
            value_stats=SimpleStats(min_values, max_values, (0, 0, number % 17, 0, number % 5, 0)),
            min_sequence_number=first_sequence,
            max_sequence_number=first_sequence + ROWS_PER_FILE - 1,
            level=0 if is_due or position >= 5 else 5,
            creation_time=_FIRST_MILLIS + number,
            delete_row_count=0,
            file_source=0,
        )
        return ManifestEntry(
            kind=FileKind.ADD,
            partition=self._serialize_partition(day),
            bucket=bucket,
            total_buckets=BUCKETS,
            file=file,
        )


def main(
    folder: Annotated[Path, typer.Argument(help="Where to create the table.")] = FOLDER,
    files: Annotated[int, typer.Option(help="Number of data files.")] = 1_000_000,
    spread: Annotated[  # noqa: FBT002
        bool, typer.Option(help="Whether each manifest lists files of all partitions.")
    ] = False,
) -> None:
    """Create the table and print its folder."""
    console.print(open_many_files(folder, files, spread=spread).paths.root)


if __name__ == "__main__":
    typer.run(main)
