"""File selection in append tables: small files are packed in order; deleted rows are considered."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from support.live_files import live_files_of

from paimon_orch.errors import InputError
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options import Options
from paimon_orch.merge.tree.append_compact_strategy import (
    AppendCompactStrategy,
    DeletionVectorRef,
    FileGroup,
)

OPTIONS = {
    "target-file-size": "100 b",
    "source.split.open-file-cost": "10 b",
    "compaction.min.file-num": "3",
}


def picker(**more: str) -> AppendCompactStrategy:
    named = {name.replace("__", ".").replace("_", "-"): text for name, text in more.items()}
    return AppendCompactStrategy.of(Options(OPTIONS | named))


def files(*sizes: int) -> list[DataFileMeta]:
    """Return files of 100 rows each, named f0, f1 and so on."""
    return [
        DataFileMeta(
            file_name=f"f{number}", file_size=size, row_count=100, min_sequence_number=100 * number
        )
        for number, size in enumerate(sizes)
    ]


def names(groups: list[FileGroup]) -> list[str]:
    return [" ".join(file.file_name for file in group) for group in groups]


def deletion_vectors_from(**cardinalities: int | None) -> dict[str, DeletionVectorRef]:
    """Return deletion vectors of files; each ``f0=5`` has a separate index file."""
    return {
        name: DeletionVectorRef(f"index-{name}", count) for name, count in cardinalities.items()
    }


@pytest.mark.parametrize(
    ("sizes", "minor", "full"),
    [
        ([], [], []),
        ([1, 1], [], ["f0 f1"]),
        ([1, 1, 1], ["f0 f1 f2"], ["f0 f1 f2"]),
        ([3, 2, 1], ["f2 f1 f0"], ["f2 f1 f0"]),
        ([70, 71, 200], [], []),
        ([69, 69, 69], ["f0 f1 f2"], ["f0 f1 f2"]),
        ([60, 60, 60, 1], ["f3 f0 f1 f2"], ["f3 f0 f1 f2"]),
        ([60, 60, 60, 60, 60], ["f0 f1 f2"], ["f0 f1 f2", "f3 f4"]),
        ([1], [], []),
    ],
)
def test_small_files_of_a_partition_are_packed_smallest_first(
    sizes: list[int], minor: list[str], full: list[str]
) -> None:
    assert names(picker().select_bucket_unaware(files(*sizes), {})) == minor
    assert names(picker().select_bucket_unaware(files(*sizes), {}, full=True)) == full


@pytest.mark.parametrize(
    ("deleted_rows", "is_rewritten"),
    [(20, False), (21, True), (None, True)],
    ids=["20 %", "21 %", "unknown"],
)
def test_a_large_file_is_rewritten_if_its_delete_ratio_is_exceeded(
    deleted_rows: int | None, is_rewritten: bool
) -> None:
    assert names(
        picker().select_bucket_unaware(files(500), deletion_vectors_from(f0=deleted_rows))
    ) == (["f0"] if is_rewritten else [])
    assert names(
        picker().select_bucket_unaware(
            files(500), deletion_vectors_from(f0=deleted_rows), full=True
        )
    ) == ["f0"]


def test_files_with_deletion_vectors_in_one_index_file_are_compacted_together() -> None:
    candidates = files(60, 60, 60, 60, 5, 5)
    first_index, second_index = DeletionVectorRef("index-1", 1), DeletionVectorRef("index-2", 1)
    deletion_vectors = {"f0": first_index, "f2": first_index, "f3": first_index, "f1": second_index}

    assert names(picker().select_bucket_unaware(candidates, deletion_vectors)) == ["f1 f0 f2 f3"]


def test_remaining_files_with_deletion_vectors_are_rewritten_individually() -> None:
    assert names(picker().select_bucket_unaware(files(5, 5, 5), deletion_vectors_from(f1=1))) == [
        "f1"
    ]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([1, 1], []),
        ([1, 1, 1, 1], ["f0 f1 f2"]),
        ([1, 1, 1, 1, 1, 1], ["f0 f1 f2", "f3 f4 f5"]),
        ([150, 150, 1, 1], ["f1 f2 f3"]),
        ([200, 1, 1], []),
        ([200, 1, 1, 1], ["f1 f2 f3"]),
    ],
)
def test_a_bucket_is_compacted_in_groups_of_adjacent_files(
    sizes: list[int], groups: list[str]
) -> None:
    assert names(picker().select_bucketed(reversed(files(*sizes)), {})) == groups


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([1, 1], []),
        ([1, 1, 1], ["f0 f1 f2"]),
        ([100, 1, 1, 1], ["f1 f2 f3"]),
        ([1, 100, 1], ["f0 f1 f2"]),
        ([1, 100, 100, 1], []),
        ([100, 100, 100], []),
    ],
)
def test_a_full_compaction_of_a_bucket_keeps_leading_large_files(
    sizes: list[int], groups: list[str]
) -> None:
    assert names(picker().select_bucketed(files(*sizes), {}, full=True)) == groups


def test_a_full_compaction_rewrites_from_the_first_small_file_or_deletion_vector() -> None:
    file_picker = picker(deletion_vectors__enabled="true")

    assert names(
        file_picker.select_bucketed(files(100, 100, 100), deletion_vectors_from(f1=1), full=True)
    ) == ["f1 f2"]
    assert names(file_picker.select_bucketed(files(100, 1, 100), {}, full=True)) == ["f1 f2"]
    assert names(file_picker.select_bucketed(files(100, 100, 1), {}, full=True)) == []


def test_a_forced_full_compaction_rewrites_everything() -> None:
    forced = picker(compaction__force_rewrite_all_files="true")

    assert names(forced.select_bucket_unaware(files(500), {}, full=True)) == ["f0"]
    assert names(forced.select_bucketed(files(500, 1), {}, full=True)) == ["f0 f1"]


def test_a_ratio_that_is_not_a_number_is_refused_with_its_key() -> None:
    with pytest.raises(InputError, match=r"'compaction\.small-file-ratio' = 'most'"):
        picker(compaction__small_file_ratio="most")


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("force", ["false", "true"])
def test_candidates_include_all_files_and_buckets_to_rewrite(*, full: bool, force: str) -> None:
    strategy = picker(compaction__force_rewrite_all_files=force)
    random = Random(f"{full} {force}")  # noqa: S311
    buckets = [
        files(*(random.choice([1, 20, 60, 69, 70, 150, 300]) for _ in range(random.randint(1, 8))))
        for _ in range(400)
    ]
    vectors = [
        deletion_vectors_from(**{random.choice(bucket).file_name: random.choice([1, 90, None])})
        if random.random() < 0.2
        else {}
        for bucket in buckets
    ]
    groups = live_files_of(buckets).group_by_bucket()
    with_vectors = np.array([bool(refs) for refs in vectors])

    def find_candidates(*, is_unaware: bool) -> tuple[list[bool], list[bool]]:
        rows, found = strategy.find_candidates(
            groups, with_vectors, full=full, is_unaware=is_unaware
        )
        masks: tuple[list[bool], list[bool]] = rows.tolist(), found.tolist()
        return masks

    may_rewrite, unaware = find_candidates(is_unaware=True)
    _, bucketed = find_candidates(is_unaware=False)
    outcomes, row = set(), 0
    for number, bucket in enumerate(buckets):
        refs = vectors[number]
        kept = [file for index, file in enumerate(bucket) if may_rewrite[row + index]]
        row += len(bucket)
        selected = strategy.select_bucket_unaware(bucket, refs, full=full)
        assert strategy.select_bucket_unaware(kept, refs, full=full) == selected
        assert unaware[number] or not selected
        ordered = strategy.select_bucketed(bucket, refs, full=full)
        assert bucketed[number] or not ordered
        outcomes |= {(bool(selected), unaware[number]), (bool(ordered), bucketed[number])}
    assert (True, True) in outcomes
    assert (False, False) in outcomes or (full and force == "true")
