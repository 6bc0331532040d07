"""Changes that conflict with a commit, and changes that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from paimon_orch.errors import CommitConflictError
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import (
    DELETION_VECTORS_INDEX,
    HASH_INDEX,
    IndexManifestEntry,
)
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.row.binary_row import EMPTY_ROW, serialize_row
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.format.types.data_types import parse_columns, parse_type
from paimon_orch.table.commit.conflict_detection import (
    BucketGuard,
    check_bucket_guards,
    check_conflicts,
)
from paimon_orch.table.commit.kind_conflicts import CommitDelta, find_conflicts

BIGINT = parse_type("BIGINT NOT NULL")
KEYED = build_table_schema(
    parse_columns("k BIGINT, v INT"), primary_key=["k"], options={"bucket": "2"}
)
APPEND = build_table_schema(parse_columns("k BIGINT, v INT"))


def entry(
    name: str, low: int = 0, high: int = 9, *, level: int = 0, bucket: int = 0, buckets: int = 2
) -> ManifestEntry:
    first, last = (serialize_row([key], [BIGINT]) for key in (low, high))
    file = DataFileMeta(
        file_name=name, file_size=1, row_count=1, min_key=first, max_key=last, level=level
    )
    return ManifestEntry(
        kind=FileKind.ADD, partition=EMPTY_ROW, bucket=bucket, total_buckets=buckets, file=file
    )


def conflict(
    base: list[ManifestEntry],
    delta: list[ManifestEntry],
    kind: CommitKind = CommitKind.COMPACT,
    schema: TableSchema = KEYED,
) -> str:
    """Return the message of the conflict with the current files, or "" if there is none."""

    def check() -> None:
        changes = CommitDelta(
            kind=kind,
            base=base,
            entries=delta,
            live=check_conflicts(kind, base, delta),
            previous_index=[],
            index=[],
            next_row_ids=(0, 0),
        )
        find_conflicts(schema).check(changes)

    return refusal(check)


def refusal(check: Callable[[], object]) -> str:
    """Return the message of a check that fails, or "" if the check passes."""
    try:
        check()
    except CommitConflictError as error:
        return str(error)
    return ""


def test_files_can_be_added_and_deleted() -> None:
    assert not conflict([entry("a"), entry("b")], [entry("a").deleted(), entry("c", level=5)])


def test_a_deleted_file_cannot_be_deleted_again() -> None:
    assert "file a was removed by another commit" in conflict([entry("b")], [entry("a").deleted()])


def test_a_file_of_the_same_name_on_a_different_level_is_a_different_file() -> None:
    assert "file a was removed" in conflict([entry("a", level=4)], [entry("a", level=0).deleted()])


def test_a_move_to_a_higher_level_is_a_delete_and_an_add() -> None:
    assert not conflict([entry("a")], [entry("a").deleted(), entry("a", level=5)])


def test_a_live_file_cannot_be_added_again() -> None:
    assert "already part of the table" in conflict([entry("a")], [entry("a")])
    assert "already part of the table" in conflict([], [entry("a"), entry("a")])


@pytest.mark.parametrize(("low", "high"), [(9, 20), (3, 4), (-5, 30)])
def test_files_of_one_level_must_not_overlap(low: int, high: int) -> None:
    assert "would overlap on level 5" in conflict(
        [entry("a", 0, 9, level=5)], [entry("b", low, high, level=5)]
    )


def test_files_on_other_levels_or_buckets_can_overlap() -> None:
    base = [entry("a", level=5)]
    assert not conflict(base, [entry("b", level=4)])
    assert not conflict(base, [entry("b", level=0)])
    assert not conflict(base, [entry("b", level=5, bucket=1)])
    assert not conflict(base, [entry("b", 10, 12, level=5)])
    elsewhere = replace(entry("b", level=5), partition=serialize_row([1], [BIGINT]))
    assert not conflict(base, [elsewhere])
    assert not conflict(base, [entry("b", level=5)], schema=APPEND)


def test_a_partition_keeps_its_bucket_count_unless_it_is_overwritten() -> None:
    base, delta = [entry("a", buckets=2)], [entry("b", buckets=4)]
    assert "has 2 buckets, but a file was written for 4" in conflict(base, delta)
    assert not conflict(base, delta, CommitKind.OVERWRITE)
    assert not conflict(base, [entry("b", buckets=-1)])


# --- guards of compactions with deletion vectors


def vectors(
    name: str, bucket: int = 0, index_type: str = DELETION_VECTORS_INDEX
) -> IndexManifestEntry:
    return IndexManifestEntry(
        kind=FileKind.ADD,
        partition=EMPTY_ROW,
        bucket=bucket,
        index_type=index_type,
        file_name=name,
        file_size=1,
        row_count=1,
    )


GUARD = BucketGuard.of(
    PartitionBucket(EMPTY_ROW, 0),
    [entry("top", level=5).file, entry("new").file],
    [vectors("index-1")],
)


def test_a_compaction_of_an_unchanged_bucket_is_accepted() -> None:
    base = [entry("top", level=5), entry("new")]
    index = [vectors("index-1")]
    assert not refusal(lambda: check_bucket_guards([GUARD], base, index))


def test_new_files_on_level_0_and_in_other_buckets_are_accepted() -> None:
    base = [entry("top", level=5), entry("newer"), entry("x", level=5, bucket=1)]
    index = [
        vectors("index-1"),
        vectors("index-2", bucket=1),
        vectors("hash", index_type=HASH_INDEX),
    ]
    assert not refusal(lambda: check_bucket_guards([GUARD], base, index))


@pytest.mark.parametrize(
    ("base", "index"),
    [
        ([entry("other", level=5)], [vectors("index-1")]),
        ([entry("top", level=5), entry("more", level=4)], [vectors("index-1")]),
        ([], [vectors("index-1")]),
        ([entry("top", level=5)], [vectors("index-2")]),
        ([entry("top", level=5)], []),
    ],
    ids=["another file", "a further file", "no file", "other vectors", "no vectors"],
)
def test_a_bucket_that_changed_above_level_0_is_refused(
    base: list[ManifestEntry], index: list[IndexManifestEntry]
) -> None:
    with pytest.raises(CommitConflictError, match="bucket 0 was compacted by another commit"):
        check_bucket_guards([GUARD], base, index)


def test_only_a_compaction_must_keep_the_order_of_files_of_level_0() -> None:
    remaining, compacted = entry("a"), entry("b")
    changes = [replace(compacted, kind=FileKind.DELETE), entry("c", level=5)]

    message = conflict([remaining, compacted], changes)

    assert "file a was added to level 0 since this compaction was planned" in message
    assert conflict([remaining, compacted], changes, CommitKind.OVERWRITE) == ""
    assert conflict([compacted, entry("d")], changes) == ""
