"""Compactions of primary-key tables copy row groups, with the same result as decoding them."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.damage import data_files
from support.golden import GOLDEN, copy_warehouse
from support.tables import assert_healthy, new_table, rows_of, small_batches

from paimon_orch import Catalog
from paimon_orch.files import row_group_copier
from paimon_orch.files.batch_sizes import BatchSizes
from paimon_orch.files.data_file_reader import SYSTEM_FIELDS, BucketFile
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, ManifestEntry
from paimon_orch.format.options.core_options import COMPACTION_FORCE_UP_LEVEL_0
from paimon_orch.merge.compact.sorted_row_groups import SortedRowGroup, SortedRowGroupCopier
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.compaction.primary_key import PrimaryKeyCompactionUnit
from paimon_orch.table.schema_change.schema_changes import AddColumn, SchemaChange, SetOption
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files

EXECUTOR = InProcessExecutor()
GROUP_ROWS = 8
NEVER_COPY = 1 << 60
DAY = date(2020, 1, 1)
KEYS: dict[str, Any] = {
    "k INT": lambda n: (n,),
    "k STRING": lambda n: (f"{n:05}",),
    "k DECIMAL(12, 2)": lambda n: (Decimal(n - 50).scaleb(-2),),
    "k DATE": lambda n: (DAY + timedelta(days=n),),
    "k TIMESTAMP(3)": lambda n: (datetime(2020, 1, 1) + timedelta(milliseconds=n),),
    "k STRING, l INT": lambda n: (f"{n // 40}", n),
    "k INT, l STRING": lambda n: (7, f"{n:05}"),
    "k DOUBLE": lambda n: (float(n),),
}
VALUES = "v BIGINT, d DOUBLE, s STRING, w STRING, b BYTES, n TIMESTAMP(9), a ARRAY<INT>, t INT"
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "first-row": {},
    "partial-update": {"partial_update__remove_record_on_delete": "true"},
    "aggregation": {
        "fields__v__aggregate_function": "sum",
        "fields__s__aggregate_function": "listagg",
        "fields__default_aggregate_function": "last_non_null_value",
        "aggregation__remove_record_on_delete": "true",
    },
}
OPTIONS: list[dict[str, str]] = [
    {},
    {"deletion_vectors__enabled": "true"},
    {"data_file__thin_mode": "true"},
    {"metadata__stats_mode": "full", "metadata__stats_dense_store": "false"},
    {"metadata__stats_mode": "none"},
    {"metadata__stats_mode": "counts", "fields__s__stats_mode": "truncate(1)"},
    {"file_index__bloom_filter__columns": "s"},
    {"sequence__field": "v"},
    {"ignore_delete": "true"},
    {"force_lookup": "true"},
    {"record_level__expire_time": "1 d", "record_level__time_field": "t"},
    {"target_file_size": "6 kb"},
]


def make_rows(key: str, numbers: np.ndarray, seed: int, *, has_nan: bool) -> pa.Table:
    random, count = np.random.default_rng(seed), len(numbers)
    names = [part.split()[0] for part in key.replace("(12, 2)", "").split(", ")]
    keys = dict(zip(names, zip(*map(KEYS[key], numbers.tolist()), strict=True), strict=True))
    texts = np.array(["", "a", "b?", "ü" * 3, "long text " * 20])
    floats = np.round(random.normal(size=count), 1)
    floats[random.random(count) < 0.1] *= 0
    if has_nan:
        floats[random.random(count) < 0.02] = np.nan
    return pa.table({
        **{name: list(values) for name, values in keys.items()},
        "v": pa.array(random.integers(-99, 99, count), mask=random.random(count) < 0.2),
        "d": pa.array(floats, mask=random.random(count) < 0.2),
        "s": pa.array(texts[random.integers(0, len(texts), count)], mask=random.random(count) < 0.3),
        "w": [f"w{seed}-{number % 90}" for number in numbers],
        "b": [bytes([number % 256]) for number in numbers.tolist()],
        "n": pa.array(numbers, pa.timestamp("ns"), mask=random.random(count) < 0.1),
        "a": pa.array([[n % 3] * (n % 4) for n in numbers.tolist()], pa.list_(pa.int32())),
        "t": pa.array(numbers.astype(np.int32)),
    })  # fmt: skip


@contextmanager
def counted_row_groups() -> Iterator[dict[bool, int]]:
    """Yield the number of row groups that were copied, and of those that could not be."""
    counts, copy = {True: 0, False: 0}, SortedRowGroupCopier.copy

    def count(copier: SortedRowGroupCopier, group: SortedRowGroup) -> bool:
        is_copied = copy(copier, group)
        counts[is_copied] += 1
        return is_copied

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SortedRowGroupCopier, "copy", count)
        yield counts


def describe(table: Table, entry: ManifestEntry) -> tuple[DataFileMeta, list[Any]]:
    """Return the metadata of a new file, and its rows with their sequence numbers and kinds."""
    fields = [*SYSTEM_FIELDS, *table.load().schema.fields]
    batches = table.stores.reader().read(
        BucketFile(entry.partition, entry.bucket, entry.file), fields
    )
    rows = pa.Table.from_batches(batches).to_pylist()
    meta = replace(entry.file, file_name="", file_size=0, creation_time=None, extra_files=())
    return meta, [tuple(map(str, row.values())) for row in rows]


def run_both(table: Table, sizes: BatchSizes) -> dict[bool, int]:
    """Run the full compaction with and without copies, compare, and commit nothing."""
    plan = compact.plan(table, compact.CompactRequest(strategy="full"))
    counts = {True: 0, False: 0}
    for unit in plan.units:
        assert isinstance(unit, PrimaryKeyCompactionUnit)
        assert plan.reader is not None
        results = []
        for min_bytes in (1, NEVER_COPY):
            limits = replace(sizes, min_copied_group_bytes=min_bytes)
            with counted_row_groups() as counted:
                message = CommitMessage.decode(unit.run(replace(plan.reader, batch_sizes=limits)))
            added = [describe(table, entry) for entry in message.added]
            if "target-file-size" in table.load().schema.options:  # the files may end at other rows
                added = [row for _, rows in added for row in rows]
            changelog = [describe(table, entry) for entry in message.changelog]
            names = sorted(entry.file.file_name for entry in message.deleted)
            results.append((names, added, changelog))
            discard_written_files(table.stores.reader(), [message])
            if min_bytes == 1:
                counts = {key: counts[key] + counted[key] for key in counts}
            else:
                assert not any(counted.values())
        assert results[0] == results[1]
    return counts


@st.composite
def histories(draw: st.DrawFn, engine: str) -> tuple[str, dict[str, str], bool, list[Any]]:
    """A key, options, whether there are NaN, and rounds of steps before each full compaction."""
    producers = ["none", "none", "lookup", "full-compaction"]
    options = {
        "merge_engine": engine,
        "changelog_producer": draw(st.sampled_from(producers[: 3 if engine == "first-row" else 4])),
        **draw(st.sampled_from(OPTIONS)),
    }
    if engine in ("first-row", "aggregation") or options["changelog_producer"] != "none":
        options.pop("sequence__field", None)
    if engine == "first-row" or options["changelog_producer"] == "full-compaction":
        options.pop("deletion_vectors__enabled", None)
    if "ignore_delete" not in options:
        options |= ENGINES[engine]
    step = st.tuples(
        st.sampled_from(["upsert", "upsert", "upsert", "delete", "minor"]),
        st.integers(0, 110),
        st.integers(1, 30),
        st.integers(1, 20),
    )
    rounds = draw(st.lists(st.lists(step, min_size=1, max_size=3), min_size=1, max_size=2))
    return draw(st.sampled_from(list(KEYS))), options, draw(st.booleans()), rounds


def create(root: Path, key: str, **options: str) -> Table:
    """Create a table with 100 rows on the highest level, in row groups of 8 rows."""
    names = [part.split()[0] for part in key.replace("(12, 2)", "").split(", ")]
    columns = f"{key}, {VALUES}"
    table = new_table(root, columns, key=names, write_only="true", **options)
    return small_batches(table, GROUP_ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_copied_row_groups_have_the_rows_and_the_metadata_of_encoded_ones(engine: str) -> None:
    copied = 0

    @settings(max_examples=5, deadline=None)
    @given(histories(engine))
    def check(drawn: tuple[str, dict[str, str], bool, list[Any]]) -> None:
        nonlocal copied
        key, options, has_nan, rounds = drawn
        with tempfile.TemporaryDirectory() as folder:
            table = create(Path(folder), key, **options)
            table.upsert(make_rows(key, np.arange(100), 0, has_nan=has_nan))
            compact.compact(table, EXECUTOR, strategy="full")
            for number, steps in enumerate(rounds, start=1):
                for kind, start, width, count in steps:
                    random = np.random.default_rng(start)
                    numbers = np.unique(random.integers(start, start + width, count))
                    rows = make_rows(key, numbers, number, has_nan=has_nan)
                    if kind == "minor":
                        compact.compact(table, EXECUTOR, strategy="minor")
                    elif kind == "upsert" or engine == "first-row":
                        table.upsert(rows)
                    else:
                        table.delete(rows)
                copied += run_both(table, table.batch_sizes)[True]
                compact.compact(table, EXECUTOR, strategy="full")
                assert_healthy(table)

    check()
    assert copied


def row_groups_of(table: Table) -> list[list[int]]:
    """Return the rows of the row groups of each file."""
    result = []
    for path in data_files(table):
        metadata = pq.read_metadata(path)
        groups = range(metadata.num_row_groups)
        result.append([metadata.row_group(group).num_rows for group in groups])
    return result


def upsert(table: Table, *numbers: int, seed: int = 1, has_nan: bool = False) -> None:
    table.upsert(make_rows("k INT", np.array(numbers), seed, has_nan=has_nan))


def create_compacted(root: Path, **options: str) -> Table:
    table = create(root, "k INT", **options)
    upsert(table, *range(0, 200, 2), seed=0)
    compact.compact(table, EXECUTOR, strategy="full")
    assert row_groups_of(table) == [[8] * 12 + [4]]
    return table


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ENGINES)
def test_row_groups_without_keys_of_other_runs_are_copied(engine: str, tmp_path: Path) -> None:
    table = create_compacted(tmp_path, merge_engine=engine, **ENGINES[engine])
    before = pq.ParquetFile(data_files(table)[0]).metadata
    upsert(table, 34, 50)  # one row of the third and of the fourth row group
    upsert(table, 300, 302)

    with counted_row_groups() as counts:
        compact.compact(table, EXECUTOR, strategy="full")

    assert counts[True] >= 10
    assert_healthy(table)
    after = pq.ParquetFile(data_files(table)[0]).metadata
    for group in (0, 1, 4, 11):
        old, new = (metadata.row_group(group).column(0) for metadata in (before, after))
        assert old.statistics == new.statistics
        assert old.total_compressed_size == new.total_compressed_size
    assert len(rows_of(table)) == 102
    assert len(rows_of(table, filter="k >= 48 and k < 66")) == 9


def test_rows_between_copied_row_groups_do_not_become_small_row_groups(tmp_path: Path) -> None:
    """A row between two row groups joins the next one, and both together are divided evenly."""
    table = small_batches(new_table(tmp_path, "k INT, v STRING", write_only="true"), 100)
    table = replace(table, batch_sizes=replace(table.batch_sizes, min_copied_group_bytes=1_500))
    texts = [uuid.UUID(int=number**9).hex for number in range(1_000)]
    table.upsert(pa.table({"k": range(0, 2_000, 2), "v": texts}))
    compact.compact(table, EXECUTOR, strategy="full")
    assert row_groups_of(table) == [[100] * 10]
    table.upsert(pa.table({"k": [199, 999], "v": texts[:2]}))

    with counted_row_groups() as counts:
        compact.compact(table, EXECUTOR, strategy="full")

    assert counts == {True: 8, False: 2}
    assert row_groups_of(table) == [[100, 51, 50, 100, 100, 100, 51, 50, *[100] * 4]]
    assert_healthy(table)


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"file_index__bloom_filter__columns": "s"}, None),
        ({"file__format": "orc"}, None),
        ({"record_level__expire_time": "1 d", "record_level__time_field": "t"}, None),
        ({"merge_engine": "first-row", "sequence__snapshot_ordering": "true"}, None),
        ({}, SetOption("file.compression", "snappy")),
        ({}, SetOption("file.compression.zstd-level", "9")),
        ({}, SetOption("data-file.thin-mode", "true")),
        ({}, SetOption("file.format", "orc")),
        ({}, AddColumn(column="z", type="INT")),
    ],
    ids=str,
)
def test_row_groups_are_decoded_if_a_new_file_would_have_others(
    options: dict[str, str], change: SchemaChange | None, tmp_path: Path
) -> None:
    table = create(tmp_path, "k INT", **options)
    upsert(table, *range(50), seed=0)
    compact.compact(table, EXECUTOR, strategy="full")
    if change is not None:
        Catalog(str(tmp_path)).alter_table("db.t", [change])
    table = replace(Catalog(str(tmp_path)).table("db.t"), batch_sizes=table.batch_sizes)
    rows = make_rows("k INT", np.array([20]), 1, has_nan=False)
    for name in set(table.load().schema.names) - set(rows.column_names):
        rows = rows.append_column(name, pa.nulls(1, pa.int32()))
    table.upsert(rows)

    with counted_row_groups() as counts:
        compact.compact(table, EXECUTOR, strategy="full")

    assert counts == {True: 0, False: 0}
    if table.load().schema.typed_options.file_format(5) == "parquet":
        assert_healthy(table)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("folder", "name", "row_groups"),
    [
        ("java-0.9/overwrite", "db.tpk", 2),
        ("java-0.9/pk_dv_part_b4", "db.t", 2),
        ("java-2.0/changelog_options", "db.t_full", 2),
        ("java-2.0/dv_bitmap64", "db.t_part", 3),
        ("java-2.0/thin_mode", "db.t_dv", 4),
        ("pypaimon-2.1/pk_part_b2", "db.t", 1),
    ],
)
def test_row_groups_of_other_writers_are_copied(
    folder: str, name: str, row_groups: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # These tables have one run each, of which only a forced rewrite, which decodes it, reads rows.
    monkeypatch.setattr(
        row_group_copier, "COMPACTION_FORCE_REWRITE_ALL_FILES", COMPACTION_FORCE_UP_LEVEL_0
    )
    catalog = Catalog(str(copy_warehouse(GOLDEN / folder, tmp_path / "w")))
    catalog.alter_table(name, [SetOption("compaction.force-rewrite-all-files", "true")])
    table = small_batches(catalog.table(name), 1_000)

    assert run_both(table, table.batch_sizes) == {True: row_groups, False: 0}
