"""Levels of many buckets agree with those of each bucket."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import numpy as np
import pytest
from support.live_files import live_files_of
from support.tables import new_table

from paimon_orch.errors import CorruptFileError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.tree.bucket_levels import BucketLevels
from paimon_orch.merge.tree.compact_strategy import plan_full_compaction, plan_minor_compaction
from paimon_orch.merge.tree.levels import build_bucket_runs

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MILLIS = int(NOW.timestamp() * 1000)
OPTIONS: list[dict[str, str]] = [
    {},
    {"num_levels": "3"},
    {"num_sorted_run__compaction_trigger": "2"},
    {"compaction__optimization_interval": "1 h"},
    {"compaction__total_size_threshold": "300 b"},
    {"compaction__incremental_size_threshold": "200 b"},
    {"compaction__force_up_level_0": "true"},
    {"force_lookup": "true"},
    {"force_lookup": "true", "lookup_compact": "gentle", "lookup_compact__max_interval": "3"},
    {"deletion_vectors__enabled": "true"},
    {"compaction__force_rewrite_all_files": "true"},
]


def random_bucket(random: Random, schema: TableSchema) -> list[DataFileMeta]:
    types = [field.type for field in schema.key_fields]
    files = []
    for number in range(random.randint(1, 8)):
        low = random.randint(0, 3_000)
        high = low + random.choice([0, 5, 300])
        files.append(
            DataFileMeta(
                file_name=f"f{number}",
                file_size=random.choice([1, 50, 100, 5_000]),
                row_count=10,
                min_key=serialize_row([low], types),
                max_key=serialize_row([high], types),
                level=random.choice([0, 0, 0, 1, 2, 5, 7]),
                min_sequence_number=number,
                max_sequence_number=number,
                creation_time=random.choice([None, MILLIS, MILLIS - 7_200_000, MILLIS - 10**9]),
            )
        )
    return files


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_buckets_agree_with_their_runs(tmp_path: Path, options: dict[str, str]) -> None:
    table = new_table(tmp_path, "k BIGINT NOT NULL", key=("k",), **options)
    schema = table.load().schema
    reader = FileReader(table.io, table.paths, schema, table.stores.schemas.get_all([0]))
    random = Random(str(options))  # noqa: S311
    buckets = [random_bucket(random, schema) for _ in range(300)]
    files = live_files_of(buckets, [field.type for field in schema.key_fields])
    levels = BucketLevels(files.group_by_bucket(), schema)
    overlapping = set(levels.find_possible_overlaps().tolist())
    minor = levels.may_compact(is_full=False, now=NOW)
    full = levels.may_compact(is_full=True, now=NOW)

    outcomes = set()
    for number, bucket in enumerate(buckets):
        try:
            runs = build_bucket_runs(bucket, schema)
        except CorruptFileError:
            assert number in overlapping
            continue
        assert number not in overlapping
        assert levels.level0_files[number] == sum(file.level == 0 for file in bucket)
        assert levels.sorted_runs[number] == len(runs)
        num_levels = max(schema.typed_options.num_levels, 1 + max(f.level for f in bucket))
        selection, files_to_rewrite = plan_minor_compaction(
            schema.typed_options, runs, (), num_levels, NOW
        )
        has_work = selection.count > 0 or bool(files_to_rewrite)
        outcomes.add((has_work, bool(minor[number])))
        selection, files_to_rewrite = plan_full_compaction(reader, runs, (), num_levels, NOW)
        assert bool(full[number]) == (selection.count > 0 or bool(files_to_rewrite))
    assert (True, False) not in outcomes
    assert {(True, True), (False, False)} <= outcomes
    assert overlapping


def test_clustered_files_are_one_run(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        "k BIGINT NOT NULL, v INT",
        key=("k",),
        pk_clustering_override="true",
        clustering__columns="v",
        deletion_vectors__enabled="true",
    )
    random = Random(1)  # noqa: S311
    buckets = [random_bucket(random, table.load().schema) for _ in range(50)]
    levels = BucketLevels(live_files_of(buckets, ()).group_by_bucket(), table.load().schema)
    assert levels.sorted_runs.tolist() == [
        len(build_bucket_runs(bucket, table.load().schema)) for bucket in buckets
    ]
    assert not len(levels.find_possible_overlaps())
    assert np.all(levels.may_compact(is_full=False, now=NOW))
