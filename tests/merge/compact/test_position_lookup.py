"""Lookup of keys in higher levels: every older row is found with few reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import (
    assert_healthy,
    deletion_vectors_of,
    new_table,
    rows_of,
    small_batches,
    table_of,
)

from paimon_orch.files.data_file_reader import ROW_POSITION, RowGroup
from paimon_orch.files.parquet.parquet import ParquetFileReader
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.types.data_types import Field, parse_type
from paimon_orch.merge.compact.position_lookup import PositionLookup
from paimon_orch.merge.sort.key_order import KeyColumns
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact

BIGINT = parse_type("BIGINT NOT NULL")
KEY = [Field(id=0, name="k", type=BIGINT)]
VALUE = Field(id=1, name="v", type=parse_type("STRING"))


class RecordingFiles:
    """Files of sorted keys; records the row groups from which keys and values were read."""

    def __init__(
        self,
        levels: dict[int, list[list[int]]],
        batch_rows: int = 3,
        group_rows: int = 6,
        *,
        tells_bounds: bool = True,
    ) -> None:
        self.batch_rows, self.group_rows = batch_rows, group_rows
        self.tells_bounds = tells_bounds
        self.keys: dict[str, list[int]] = {}
        self.files: list[DataFileMeta] = []
        self.opened = set[str]()
        self.keys_read: dict[str, list[int]] = {}
        self.values_read: dict[str, list[int]] = {}
        for level, files in levels.items():
            for number, keys in enumerate(files):
                name = f"L{level}-{number}"
                self.keys[name] = keys
                low, high = (serialize_row([key], [BIGINT]) for key in (keys[0], keys[-1]))
                self.files.append(
                    DataFileMeta(
                        file_name=name,
                        file_size=1,
                        row_count=len(keys),
                        min_key=low,
                        max_key=high,
                        level=level,
                    )
                )

    def row_groups(self, file: DataFileMeta, vector: DeletionVector | None) -> Iterator[RowGroup]:
        deleted_positions = set() if vector is None else set(vector.positions().tolist())
        name, keys = file.file_name, self.keys[file.file_name]
        self.opened.add(name)
        for first in range(0, len(keys), self.group_rows):
            rows = [*enumerate(keys)][first : first + self.group_rows]

            def read(
                fields: Sequence[Field], first: int = first, rows: list[tuple[int, int]] = rows
            ) -> Iterator[pa.RecordBatch]:
                read = self.keys_read if fields == KEY else self.values_read
                read.setdefault(name, []).append(first // self.group_rows)
                rows_of_file = pa.table(
                    {
                        "k": pa.array([key for _, key in rows], pa.int64()),
                        "v": [f"{name}: {key}" for _, key in rows],
                        ROW_POSITION: pa.array([position for position, _ in rows], pa.int64()),
                    }
                )
                live_rows = rows_of_file.filter(
                    pa.array([position not in deleted_positions for position, _ in rows])
                )
                names = [*(field.name for field in fields), ROW_POSITION]
                rows_of_batch = self.batch_rows if fields == KEY else self.batch_rows + 1
                yield from live_rows.select(names).combine_chunks().to_batches(rows_of_batch)

            bounds = ColumnStats(rows[0][1], rows[-1][1]) if self.tells_bounds else ColumnStats()
            positions = [position for position, _ in rows]
            yield RowGroup(range(positions[0], positions[-1] + 1), bounds, read)

    def lookup(
        self, vectors: dict[str, DeletionVector] | None = None, values: Sequence[Field] = ()
    ) -> PositionLookup:
        return PositionLookup(
            self.files, KEY, read=self.row_groups, vectors=vectors or {}, values=values
        )


def keys_of(*keys: int) -> KeyColumns:
    return KeyColumns.of(pa.table({"k": pa.array(keys, pa.int64())}), ["k"])


def found_positions(lookup: PositionLookup) -> dict[str, list[int]]:
    return {name: vector.positions().tolist() for name, vector in lookup.vectors().items()}


def cut(keys: list[int], ends: set[int]) -> list[list[int]]:
    """Split sorted keys into files."""
    files: list[list[int]] = [[]]
    for key in keys:
        if key in ends and files[-1]:
            files.append([])
        files[-1].append(key)
    return [file for file in files if file]


sorted_keys = st.lists(st.integers(0, 80), unique=True, max_size=40).map(sorted)


@given(
    st.dictionaries(st.integers(1, 5), sorted_keys, max_size=4),
    st.sets(st.integers(0, 80), max_size=6),
    sorted_keys,
    st.integers(1, 8),
    st.tuples(st.integers(1, 8), st.integers(1, 8)),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_lookup_finds_the_nearest_older_row_of_every_key(
    levels: dict[int, list[int]],
    ends: set[int],
    searched: list[int],
    window: int,
    sizes: tuple[int, int],
    tells_bounds: bool,
    random: Any,
) -> None:
    files = {level: cut(keys, ends) for level, keys in levels.items()}
    files_by_level = RecordingFiles(files, *sizes, tells_bounds=tells_bounds)
    vectors = {
        name: DeletionVector.of(
            np.array(random.sample(range(len(keys)), random.randint(1, len(keys))))
        )
        for name, keys in files_by_level.keys.items()
        if random.random() < 0.4
    }
    expected: dict[str, list[int]] = {}
    for key in searched:
        for file in sorted(files_by_level.files, key=lambda file: file.level):
            name = file.file_name
            if key not in files_by_level.keys[name]:
                continue
            position = files_by_level.keys[name].index(key)
            if name in vectors and position in vectors[name].positions():
                continue  # this row is deleted, and the live row is on a higher level
            expected.setdefault(name, []).append(position)
            break

    lookup, rows = files_by_level.lookup(vectors, [*KEY, VALUE]), []
    for start in range(0, len(searched), window):
        rows += lookup.mark_replaced_rows(keys_of(*searched[start : start + window]))

    assert found_positions(lookup) == expected
    values = sorted(row["v"] for _, batch in rows for row in batch.to_pylist())
    assert values == sorted(
        f"{name}: {files_by_level.keys[name][at]}"
        for name, marked in expected.items()
        for at in marked
    )
    group_rows = files_by_level.group_rows
    for name, groups in files_by_level.keys_read.items():
        first = [min(files_by_level.keys[name][group * group_rows :]) for group in groups]
        last = [max(files_by_level.keys[name][: (group + 1) * group_rows]) for group in groups]
        ranges = zip(first, last, strict=True)
        in_bounds = [any(low <= key <= high for key in searched) for low, high in ranges]
        assert all(in_bounds) or not tells_bounds
        assert groups == sorted(set(groups)), "a row group is read twice"
    for name, groups in files_by_level.values_read.items():
        assert groups == sorted({at // group_rows for at in expected[name]})


def test_files_outside_the_key_range_are_not_opened() -> None:
    files = RecordingFiles({5: [[0, 9], [10, 19], [20, 29]]})

    lookup = files.lookup()
    lookup.mark_replaced_rows(keys_of(10, 15))

    assert found_positions(lookup) == {"L5-1": [0]}
    assert files.opened == {"L5-1"}


def test_a_file_is_read_once_in_order() -> None:
    files = RecordingFiles({5: [list(range(30))]}, group_rows=10)

    lookup = files.lookup()
    for key in (0, 1, 14, 15, 29):
        lookup.mark_replaced_rows(keys_of(key))

    assert found_positions(lookup) == {"L5-0": [0, 1, 14, 15, 29]}
    assert files.keys_read == {"L5-0": [0, 1, 2]}


def test_keys_are_read_from_matching_row_groups_and_values_only_for_found_keys() -> None:
    keys = [key for key in range(0, 60, 2) if key not in (22, 24)]
    files = RecordingFiles({5: [keys]}, group_rows=5)  # keys 0-8, 10-18, 20-32, 34-42, 44-52, 54-58

    lookup = files.lookup(values=[*KEY, VALUE])
    lookup.mark_replaced_rows(keys_of(4, 9, 24))
    (found_row,) = lookup.mark_replaced_rows(keys_of(33, 50, 70))

    assert files.keys_read == {"L5-0": [0, 2, 4]}
    assert files.values_read == {"L5-0": [0, 4]}
    assert found_row[1].to_pylist() == [{"v": "L5-0: 50", "k": 50}]


def test_the_search_for_a_key_ends_at_the_first_match() -> None:
    files = RecordingFiles({2: [[1, 2]], 5: [[1, 2, 3]]})

    lookup = files.lookup()
    lookup.mark_replaced_rows(keys_of(1, 3))

    assert found_positions(lookup) == {"L2-0": [0], "L5-0": [2]}


def test_a_lookup_without_keys_or_files_finds_no_rows() -> None:
    assert found_positions(RecordingFiles({}).lookup()) == {}
    lookup = RecordingFiles({5: [[1]]}).lookup()
    lookup.mark_replaced_rows(keys_of())
    assert found_positions(lookup) == {}


@pytest.mark.parametrize("engine", ["deduplicate", "aggregation"])
def test_a_compaction_reads_only_row_groups_that_contain_updated_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    table = new_table(
        tmp_path,
        "a STRING, b INT, v BIGINT",
        key=("a", "b"),
        merge_engine=engine,
        deletion_vectors__enabled="true",
    )
    table = small_batches(table, 10)
    rows = [(f"{n // 4:03}", n % 4, n) for n in range(400)]
    table.upsert(table_of("a b v", rows))
    compact(table, InProcessExecutor(), strategy="full")
    at_top = {file.file_name for split in table.files() for file in split.files}
    table.upsert(table_of("a b v", [("010", 2, -1), ("052", 9, -2), ("052x", 1, -3)]))
    read: list[tuple[int, tuple[str, ...]]] = []
    batches = ParquetFileReader.batches

    def counted(self: Any, columns: Any, size: int, groups: Any = None) -> Any:
        read.extend((group, tuple(columns)) for group in groups or ())
        return batches(self, columns, size, groups)

    monkeypatch.setattr(ParquetFileReader, "batches", counted)
    compact(table, InProcessExecutor())

    keys = ("_KEY_a", "_KEY_b")
    of_keys = [group for group, columns in read if columns == keys]
    of_values = [group for group, columns in read if "v" in columns]
    assert of_keys == [4, 20, 21]  # ("052", 9) may be in two row groups
    assert of_values == ([] if engine == "deduplicate" else [4])
    assert deletion_vectors_of(table).keys() == at_top
    assert_healthy(table)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_values_of_found_rows_are_read_while_keys_are_read(
    tmp_path: Path, file_format: str
) -> None:
    """Reads of keys and values of one file alternate, keys first."""
    table = new_table(
        tmp_path,
        "k BIGINT, v BIGINT",
        file__format=file_format,
        merge_engine="aggregation",
        fields__v__aggregate_function="sum",
        deletion_vectors__enabled="true",
    )
    table = small_batches(table, 10)
    table.upsert(table_of("k v", [(k, k) for k in range(100)]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(k, 1000) for k in range(5, 100, 7)]))
    compact(table, InProcessExecutor())

    assert len(deletion_vectors_of(table)) == 1
    assert rows_of(table) == [(k, k + 1000 * (k % 7 == 5)) for k in range(100)]
