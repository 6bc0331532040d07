"""Parts of Parquet files: together they have all rows in order, and their sizes are similar."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_orch.errors import InputError
from paimon_orch.steps import parquet_parts
from paimon_orch.steps.parquet_parts import RowGroups, read_part, split_parquet_files


def write_files(folder: Path, seed: int) -> tuple[list[str], int]:
    """Write files with random sizes, row groups and empty row groups; number their rows."""
    random, paths, total = np.random.default_rng(seed), [], 0
    for index in range(int(random.integers(1, 6))):
        path = folder / f"{index}.parquet"
        with pq.ParquetWriter(path, pa.schema({"n": pa.int64(), "text": pa.string()})) as writer:
            for _ in range(int(random.integers(0, 6))):
                count = int(random.choice([0, 1, 30, 200]))
                text = [random.bytes(int(random.integers(0, 40))).hex() for _ in range(count)]
                rows = pa.table({"n": np.arange(total, total + count), "text": text})
                writer.write_table(rows.cast(writer.schema))
                total += count
        paths.append(str(path))
    return paths, total


@pytest.mark.parametrize("seed", range(8))
def test_parts_have_all_rows_in_the_order_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    paths, total = write_files(tmp_path, seed)
    monkeypatch.setattr(parquet_parts, "_MIN_PART_BYTES", 1_000)
    monkeypatch.setattr(parquet_parts, "_MAX_PART_BYTES", 20_000)
    monkeypatch.setattr(parquet_parts, "_MAX_BATCH_BYTES", 2_000)
    for parallelism in (1, 7):
        parts = split_parquet_files(paths, parallelism)
        read = [batch for part in parts for batch in read_part(part)]
        assert [n for batch in read for n in batch["n"].to_pylist()] == list(range(total))
        assert all(sum(batch.num_rows for batch in read_part(part)) for part in parts)
        # the decoded rows have other sizes than the encoded rows
        assert all(batch.nbytes < 10_000 for batch in read)


def test_parts_have_similar_sizes_and_do_not_split_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(tmp_path / f"{name}.parquet") for name in "ab"]
    for path in paths:
        pq.write_table(pa.table({"n": np.arange(10_000)}), path, row_group_size=1_000)
    monkeypatch.setattr(parquet_parts, "_MIN_PART_BYTES", 1)

    def count_row_groups(parallelism: int) -> list[int]:
        parts = split_parquet_files(paths, parallelism)
        return [sum(len(groups.numbers) for groups in part) for part in parts]

    assert count_row_groups(1) == [20]
    assert count_row_groups(2) == [10, 10]
    assert sum(count_row_groups(3)) == 20
    assert max(abs(one - two) for one, two in pairwise(count_row_groups(3))) <= 1
    assert count_row_groups(1_000) == [1] * 20
    assert split_parquet_files(paths, 2) == [[RowGroups(path, tuple(range(10)))] for path in paths]
    monkeypatch.setattr(parquet_parts, "_MIN_PART_BYTES", 1 << 30)
    monkeypatch.setattr(parquet_parts, "_MAX_PART_BYTES", 1 << 30)
    assert count_row_groups(1_000) == [20]


def test_a_file_that_is_named_twice_is_read_twice(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": [1, 2, 3]}), path, row_group_size=2)
    parts = split_parquet_files([path, path], 1)
    rows = [n for part in parts for batch in read_part(part) for n in batch["n"].to_pylist()]
    assert rows == [1, 2, 3, 1, 2, 3]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": np.arange(1_000)}), path)
    (part,) = split_parquet_files([str(path)], 2)
    path.write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"a\.parquet cannot be read as parquet"):
        list(read_part(part))
    with pytest.raises(InputError, match=r"a\.parquet cannot be read as parquet"):
        split_parquet_files([str(path)], 2)
