"""The other implementations use the file indexes that we write, and we use theirs."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.golden import GOLDEN, canonical_rows, copy_warehouse, records_to_rows
from support.peers.peers import PEERS, Peer
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.files.file_index_reader import open_indexes
from paimon_orch.format.file_index.bitmap import BitmapIndex
from paimon_orch.format.file_index.build import FileIndexBuilder
from paimon_orch.format.file_index.container import ByteSource, decode_container
from paimon_orch.format.file_index.index_options import IndexSpec, parse_index_specs
from paimon_orch.format.types.predicate import Leaf, Operator
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.maintenance.rewrite_file_index import rewrite_file_index
from paimon_orch.table.schema_change.schema_changes import ResetOption, SetOption
from paimon_orch.table.table import Table

COLUMNS = "k INT, s STRING, b BIGINT, d DATE, f DOUBLE, ts TIMESTAMP(3), dec DECIMAL(10, 2)"
ROWS = 60


def rows(first: int, target: pa.Schema) -> pa.Table:
    """Return rows with wide bounds: every column has low and high values in every file."""
    numbers = [first + 4 * n if n % 2 else 10_000 - first - 4 * n for n in range(ROWS)]
    texts = [None if n % 11 == 0 else f"{'az'[n % 2]}-é-{value}" for n, value in enumerate(numbers)]
    columns = {
        "k": pa.array(numbers, pa.int32()),
        "s": pa.array(texts),
        "b": pa.array([value * 2**33 for value in numbers]),
        "d": pa.array(numbers, pa.int32()).view(pa.date32()),
        "f": pa.array([value / 4 for value in numbers]),
        "ts": pa.array([value * 1000 for value in numbers]).view(pa.timestamp("ms")),
        "dec": pa.array([Decimal(value) for value in numbers], target.field("dec").type),
    }
    return pa.table(columns)


def write(root: Path, **options: str) -> Table:
    table = new_table(root, COLUMNS, key=(), bucket="-1", metadata__stats_mode="none", **options)
    for first in range(3):
        table.append(rows(first, table.scan().arrow_schema))
    return table


KINDS: dict[str, dict[str, str]] = {
    "bloom-filter": {
        "file_index__bloom_filter__columns": "k,s,b,d,f,ts",
        **{
            f"file_index__bloom_filter__{name}__items": "100"
            for name in ("k", "s", "b", "d", "f", "ts")
        },
        **{
            f"file_index__bloom_filter__{name}__fpp": "0.0001"
            for name in ("k", "s", "b", "d", "f", "ts")
        },
    },
    "bitmap 1": {
        "file_index__bitmap__columns": "k,s,b,d,ts",
        **{f"file_index__bitmap__{name}__version": "1" for name in ("k", "s", "b", "d", "ts")},
    },
    "bitmap 2": {"file_index__bitmap__columns": "k,s,b,d,f,ts"},
    "range-bitmap": {"file_index__range_bitmap__columns": "k,s,b,d,f,ts,dec"},
    "bsi": {"file_index__bsi__columns": "k,b,d,ts,dec"},
}
TESTS: list[list[Any]] = [
    ["k", "=", 5],
    ["s", "=", "z-é-5"],
    ["b", "=", 5 * 2**33],
    ["d", "=", "1970-01-06"],
]
READERS = [
    ("java-0.9", "bloom-filter"), ("java-0.9", "bitmap 1"), ("java-1.4", "bloom-filter"), ("java-1.4", "bitmap 1"),
    ("java-1.4", "bitmap 2"), ("java-1.4", "range-bitmap"), ("java-1.4", "bsi"),
]  # fmt: skip


@pytest.mark.parametrize("place", ["0 b", "1 mb"], ids=["index file", "embedded"])
@pytest.mark.parametrize(("peer", "kind"), READERS, indirect=["peer"])
def test_java_filters_rows_by_our_file_indexes(
    tmp_path: Path, peer: Peer, kind: str, place: str
) -> None:
    options = {"metadata__stats_dense_store": "false", "file_index__in_manifest_threshold": place}
    table = write(tmp_path, **KINDS[kind], **options)
    names = table.scan().arrow_schema.names
    for where in [test for test in TESTS if test[0] != "s" or kind != "bsi"]:
        expected = [
            r
            for r in records_to_rows(peer.read(tmp_path), names)
            if matches(r[names.index(where[0])], where[2])
        ]

        rows_found = records_to_rows(peer.find(tmp_path, where), names)

        assert len(expected) == 1, where
        assert all(row in rows_found for row in expected), where
        # Bloom filters and old bitmaps exclude whole files; other indexes also exclude rows.
        assert len(rows_found) <= ROWS, where


def matches(value: Any, literal: Any) -> bool:
    return bool(value == literal)


@pytest.mark.parametrize("peer", ["pypaimon-rust"], indirect=True)
@pytest.mark.parametrize("place", ["0 b", "1 mb"], ids=["index file", "embedded"])
@pytest.mark.parametrize("kind", KINDS)
def test_rust_filters_rows_by_our_file_indexes(
    tmp_path: Path, peer: Peer, kind: str, place: str
) -> None:
    table = write(tmp_path, **KINDS[kind], file_index__in_manifest_threshold=place)
    names = table.scan().arrow_schema.names
    for where in (["k", "=", 5], ["s", "=", "z-é-5"], ["b", "=", 5 * 2**33], ["k", ">=", 9_990]):
        text = f"{where[0]} {where[1]} {where[2]!r}"
        rows_found = records_to_rows(peer.find(tmp_path, where), names)
        assert sorted(map(repr, rows_found)) == sorted(
            map(repr, canonical_rows(table.scan(filter=text).to_arrow()))
        )


PAGED = (
    "k INT, s STRING, n TIMESTAMP(9), a ARRAY<STRING>, m MAP<STRING, INT>, r ROW<x INT, y STRING>"
)


@pytest.mark.parametrize("peer", PEERS, indirect=True)
def test_files_of_many_small_pages_are_read(tmp_path: Path, peer: Peer) -> None:
    table = new_table(
        tmp_path, PAGED, key=(), bucket="-1", file_index__bitmap__columns="k",
        file_index__bitmap__k__version="1", metadata__stats_dense_store="false",
    )  # fmt: skip
    schema, numbers = table.scan().arrow_schema, range(5_000)
    columns = {
        "k": numbers,
        "s": [None if n % 7 == 0 else f"{n % 5} é" for n in numbers],
        "n": pa.array([n * 10**15 + n for n in numbers], schema.field("n").type),
        "a": [[str(n)] * (n % 3) for n in numbers],
        "m": pa.array([[(str(n), n)] * (n % 2) for n in numbers], schema.field("m").type),
        "r": [{"x": n, "y": "y" * (n % 20)} for n in numbers],
    }
    table.append(pa.table(columns, schema=schema))
    (path,) = tmp_path.rglob("data-*.parquet")
    group = pq.read_metadata(path).row_group(0)
    assert all(group.column(leaf).has_offset_index for leaf in range(8))

    expected = canonical_rows(table.scan().to_arrow())
    assert records_to_rows(peer.read(tmp_path), schema.names) == expected
    if peer.name != "pypaimon":  # the peer scans without file indexes
        assert expected[4_321] in records_to_rows(
            peer.find(tmp_path, ["k", "=", 4_321]), schema.names
        )


@pytest.mark.parametrize("kind", ["bloom-filter", "bitmap 1"])
def test_the_java_checker_finds_no_error_in_our_file_indexes(
    tmp_path: Path, referee: Peer, kind: str
) -> None:
    write(
        tmp_path, **KINDS[kind], file_index__in_manifest_threshold="300 b",
        metadata__stats_dense_store="false",
    )  # fmt: skip

    assert referee.check(tmp_path) == []


@pytest.mark.parametrize("peer", ["java-1.4"], indirect=True)
def test_java_filters_a_table_with_deletion_vectors_by_our_file_indexes(
    tmp_path: Path, peer: Peer
) -> None:
    table = new_table(
        tmp_path,
        "k INT, s STRING",
        deletion_vectors__enabled="true",
        file_index__bitmap__columns="s",
    )
    table.upsert(
        table_of("k s", [(n, f"v{n % 5}") for n in range(50)]).cast(table.scan().arrow_schema)
    )
    compact(table, InProcessExecutor())
    table.upsert(table_of("k s", [(n, "new") for n in range(10)]).cast(table.scan().arrow_schema))
    compact(table, InProcessExecutor())

    rows_found = peer.find(tmp_path, ["s", "=", "v3"])

    assert sorted(row["k"] for row in rows_found) == list(range(13, 50, 5))


@pytest.mark.parametrize("peer", PEERS, indirect=True)
def test_adding_and_removing_file_indexes_repeatedly_loses_no_row(
    tmp_path: Path, peer: Peer
) -> None:
    table = new_table(
        tmp_path, "k INT, s STRING", key=(), bucket="-1", metadata__stats_dense_store="false"
    )
    target = table.scan().arrow_schema
    for first in (0, 100):
        table.append(table_of("k s", [(first + n, f"v{n % 5}") for n in range(20)]).cast(target))
    expected = sorted(canonical_rows(table.scan().to_arrow()))
    option = "file-index.bloom-filter.columns"
    items = SetOption("file-index.bloom-filter.k.items", "30")
    catalog = Catalog(str(tmp_path))
    for turn in range(4):
        on, off = [SetOption(option, "k"), items], [ResetOption(option), ResetOption(items.key)]
        catalog.alter_table("db.t", off if turn % 2 else on)
        rewrite_file_index(catalog.table("db.t"), InProcessExecutor())

        assert sorted(records_to_rows(peer.read(tmp_path), ["k", "s"])) == expected, turn


# Java 0.9 writes no file indexes in primary-key tables.
GOLDEN_TABLES = [
    ("java-0.9/fileindex_bitmap", "db.t_emb"), ("java-0.9/fileindex_bitmap", "db.t_ext"),
    ("java-0.9/fileindex_bloom", "db.t_emb"), ("java-0.9/fileindex_bloom", "db.t_ext"),
    ("pypaimon-rust-0.4/fileindex", "db.emb"), ("pypaimon-rust-0.4/fileindex", "db.ext"),
]  # fmt: skip


@pytest.mark.parametrize(("folder", "name"), GOLDEN_TABLES)
def test_filters_with_file_indexes_of_other_writers_return_the_rows_of_a_plain_scan(
    tmp_path: Path, folder: str, name: str
) -> None:
    warehouse = copy_warehouse(GOLDEN / folder, tmp_path / "w")
    table = Catalog(str(warehouse)).table(name)
    everything = table.scan().to_arrow()
    indexed = {
        spec.column for spec in parse_index_specs(table.load().schema.options) if spec.key is None
    }
    evaluated_indexes = 0
    for column in sorted(indexed):
        for value in everything.column(column).unique().drop_null()[:12]:
            scan = table.scan(filter=Leaf(column, Operator.EQUAL, (value,)))
            expected = sum(other == value for other in everything.column(column))
            assert scan.to_arrow().num_rows == expected, (column, value)
            evaluated_indexes += len(scan.explain().indexes)
    assert evaluated_indexes > 0


@pytest.mark.parametrize(("folder", "name"), GOLDEN_TABLES)
def test_our_file_indexes_equal_those_of_other_writers(
    tmp_path: Path, folder: str, name: str
) -> None:
    """Compare bytes, but of bitmaps the rows of each value: others order values by hash tables."""
    warehouse = copy_warehouse(GOLDEN / folder, tmp_path / "w")
    table = Catalog(str(warehouse)).table(name)
    options = dict(table.load().schema.options)
    if folder.startswith("java-0.9"):  # Java 0.9 supports only version 1 of bitmaps
        named = [c.strip() for c in options.get("file-index.bitmap.columns", "").split(",") if c]
        options |= {f"file-index.bitmap.{column}.version": "1" for column in named}
    compared = 0
    for spec, ours, stored_blob in blobs_of(table, options):
        compared += 1
        if spec.index != "bitmap":
            assert ours.bytes() == stored_blob.bytes(), spec
        else:
            data_type = spec.value_type(table.load().schema.fields)
            assert dict(BitmapIndex(ours, data_type).items()) == dict(
                BitmapIndex(stored_blob, data_type).items()
            )
    assert compared


def blobs_of(
    table: Table, options: dict[str, str]
) -> Iterator[tuple[IndexSpec, ByteSource, ByteSource]]:
    """Yield every index of every file: the bytes that we build, and the stored bytes."""
    specs, reader = parse_index_specs(options), table.stores.reader()
    for split in table.files():
        for file in split.files:
            bucket_file = BucketFile(split.partition, split.bucket, file)
            builder = FileIndexBuilder(specs, table.load().schema.fields)
            for batch in reader.read(bucket_file, table.load().schema.fields):
                builder.add(pa.Table.from_batches([batch]))
            ours = decode_container(ByteSource.of(builder.finish()))
            with open_indexes(table.io, reader.path(bucket_file), file) as stored_indexes:
                assert stored_indexes is not None
                assert stored_indexes.keys() == ours.keys()
                for spec in specs:
                    our_blob, stored_blob = (
                        ours[spec.name][spec.index],
                        stored_indexes[spec.name][spec.index],
                    )
                    assert our_blob is not None
                    assert stored_blob is not None
                    yield spec, our_blob, stored_blob
