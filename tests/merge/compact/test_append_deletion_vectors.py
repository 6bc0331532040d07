"""Index files of append tables whose deletion vectors change, and their deletion after an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.tables import new_table, stored_files, table_of

from paimon_orch.errors import StorageError
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.merge.compact.append_deletion_vectors import DeletionVectorRewrite
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.table import Table

TINY = {"deletion_vector__index_file__target_size": "1 b"}
"""With this option, a table without buckets has one index file per deletion vector."""


def make_table(root: Path, **options: str) -> Table:
    """Return a table with three files of four rows."""
    table = new_table(root, "k BIGINT", key=(), **{"bucket": "-1", "deletion_vectors__enabled": "true", **options})  # fmt: skip
    for _ in range(3):
        table.append(table_of("k", [(n,) for n in range(4)]))
    return table


def file_names(table: Table) -> list[str]:
    [split] = table.files()
    return [file.file_name for file in split.files]


def rewrite(table: Table, live: Sequence[str] | None = None) -> DeletionVectorRewrite:
    [split] = table.files()
    return DeletionVectorRewrite(
        reader=table.stores.reader(),
        partition=split.partition,
        bucket=split.bucket,
        index_files=split.vectors,
        live=file_names(table) if live is None else live,
    )


def vectors(deleted: Mapping[str, Sequence[int]]) -> dict[str, DeletionVector]:
    return {name: DeletionVector.of(positions) for name, positions in deleted.items()}


def delete(table: Table, deleted: Mapping[str, Sequence[int]]) -> None:
    index = rewrite(table).run(add=vectors(deleted))
    commit = table.stores.new_commit(StepKind.WRITE_ROWS)
    commit.commit(CommitChanges(kind=CommitKind.OVERWRITE, index=tuple(index)))


def count_changes(index: Sequence[IndexManifestEntry]) -> tuple[int, int]:
    """Return the number of deleted and of added index files."""
    added = sum(entry.kind.name == "ADD" for entry in index)
    return len(index) - added, added


def read_added(table: Table, index: Sequence[IndexManifestEntry]) -> dict[str, list[int]]:
    entries = [entry for entry in index if entry.kind.name == "ADD"]
    read = read_deletion_vectors(table.io, table.paths, table.load().schema, entries)
    return {name: vector.positions().tolist() for name, vector in read.items()}


def test_without_buckets_only_index_files_with_changed_vectors_are_replaced(tmp_path: Path) -> None:
    table = make_table(tmp_path, **TINY)
    first, second, third = file_names(table)
    delete(table, {first: [0], second: [1]})

    dropped = rewrite(table).run(drop=[first])
    assert (count_changes(dropped), read_added(table, dropped)) == ((1, 0), {})
    added = rewrite(table).run(add=vectors({first: [2], third: [3]}))
    assert (count_changes(added), read_added(table, added)) == ((1, 2), {first: [0, 2], third: [3]})
    assert rewrite(table).run(drop=[third]) == []


def test_other_vectors_of_a_replaced_index_file_are_kept_if_their_file_is_live(
    tmp_path: Path,
) -> None:
    table = make_table(tmp_path)
    first, second, third = file_names(table)
    delete(table, {first: [0], second: [1], third: [2]})

    index = rewrite(table, live=[first, second]).run(drop=[first])

    assert (count_changes(index), read_added(table, index)) == ((1, 1), {second: [1]})


def test_the_index_file_of_a_bucket_is_replaced(tmp_path: Path) -> None:
    table = make_table(tmp_path, bucket="1", bucket_key="k", **TINY)
    first, second, third = file_names(table)
    delete(table, {first: [0], second: [1]})

    added = rewrite(table).run(add=vectors({third: [2]}))
    assert count_changes(added) == (0, 1)
    assert read_added(table, added) == {first: [0], second: [1], third: [2]}
    changed = rewrite(table).run(drop=[first], add=vectors({second: [2]}))
    assert count_changes(changed) == (0, 1)
    assert read_added(table, changed) == {second: [1, 2]}


@pytest.mark.parametrize(("more_bytes", "files"), [(-1, 3), (0, 2)])
def test_an_index_file_ends_when_it_is_larger_than_the_target(
    tmp_path: Path, more_bytes: int, files: int
) -> None:
    added = {name: [0] for name in "abcde"}
    payload = len(DeletionVector.of([0]).encode_payload(bitmap64=False)) + 8
    size = f"{1 + 2 * payload + more_bytes} b"  # the file begins with one byte
    table = make_table(tmp_path, deletion_vector__index_file__target_size=size)

    index = rewrite(table).run(add=vectors(added))

    assert count_changes(index) == (0, files)
    assert read_added(table, index) == added


def write_and_raise(table: Table, error: BaseException | None) -> int:
    """Write an index file for each data file; return the number of new files."""
    before = stored_files(table)
    with rewrite(table) as index:
        index.run(add=vectors({name: [0] for name in file_names(table)}))
        if error is not None:
            raise error
    return len(stored_files(table) - before)


def test_written_index_files_are_deleted_after_an_error_only(tmp_path: Path) -> None:
    table = make_table(tmp_path, **TINY)
    before = stored_files(table)

    with pytest.raises(KeyboardInterrupt):
        write_and_raise(table, KeyboardInterrupt())

    assert stored_files(table) == before
    assert write_and_raise(table, None) == 3


def test_a_failed_deletion_of_index_files_does_not_hide_the_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path, **TINY)
    deleted: list[str] = []

    def fail(_io: LocalFileIO, path: str) -> None:
        deleted.append(path)
        raise OSError("the disk is gone")

    monkeypatch.setattr(LocalFileIO, "delete", fail)
    with pytest.raises(StorageError, match="the disk is full"):
        write_and_raise(table, StorageError("the disk is full"))

    assert len(deleted) == 3
