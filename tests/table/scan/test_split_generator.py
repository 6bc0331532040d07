"""Buckets and splits are divided into tasks by the sizes of their files."""

from __future__ import annotations

import os

import pytest

from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.table.scan import split_generator
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.split_generator import pack_splits, split_bucket_by_size


def split_of(*sizes: int) -> BucketSplit:
    """Return a bucket whose files are listed from the newest to the oldest."""
    files = [
        DataFileMeta(file_name=f"f{n}", file_size=size, row_count=1, min_sequence_number=n)
        for n, size in enumerate(sizes)
    ]
    return BucketSplit(
        partition=b"", bucket=0, total_buckets=1, files=tuple(reversed(files)), vectors=()
    )


def schema_of(target: int = 100) -> TableSchema:
    options = {"source.split.open-file-cost": "10 b", "source.split.target-size": f"{target} b"}
    return build_table_schema(parse_columns("k INT"), options=options)


def names_of(split: BucketSplit) -> str:
    return " ".join(file.file_name for file in split.files)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], []),
        ([1] * 12, ["f0 f1 f2 f3 f4 f5 f6 f7 f8 f9", "f10 f11"]),
        ([100, 1, 99, 1], ["f0", "f1 f2", "f3"]),
        ([60, 30, 10, 9], ["f0 f1 f2", "f3"]),
        ([60, 30, 9, 9], ["f0 f1 f2", "f3"]),
        ([250], ["f0"]),
    ],
)
def test_a_part_of_a_bucket_ends_when_it_is_large_enough(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], parts: list[str]
) -> None:
    """A file counts as at least 10 bytes; the oldest rows come first."""
    monkeypatch.setattr(split_generator, "_TARGET_UNIT_BYTES", 100)
    split = split_of(*sizes)

    assert [names_of(part) for part in split_bucket_by_size(split, schema_of())] == parts


@pytest.mark.parametrize(
    ("target", "cores", "sizes", "tasks"),
    [
        (100, 1, [60, 40, 1, 99], [2, 1, 1]),
        (100, 1, [1] * 12, [10, 2]),
        (1_000, 4, [100, 100, 100, 100], [1, 1, 1, 1]),
        (1_000, 2, [100, 100, 100, 100], [2, 2]),
        (1_000, 100, [1, 1, 1], [1, 1, 1]),
        (50, 1, [200, 10, 10], [1, 2]),
    ],
)
def test_a_task_has_at_most_the_target_size_and_all_cores_have_tasks(
    monkeypatch: pytest.MonkeyPatch, target: int, cores: int, sizes: list[int], tasks: list[int]
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    splits = [split_of(size) for size in sizes]

    assert [len(task) for task in pack_splits(splits, schema_of(target))] == tasks
