"""All steps find, write and delete data and index files outside the table's directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.steps import run_units
from support.tables import deletion_vectors_of, new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.conflict_retry import discard_messages
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as compact_step
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.rewrite_file_index import rewrite_file_index
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

STRATEGIES = ("round-robin", "entropy-inject", "weight-robin", "specific-fs")


@pytest.fixture(autouse=True)
def _allowed_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories = ",".join(f"{tmp_path}/{name}/*" for name in "abc")
    monkeypatch.setenv("PAIMON_ALLOWED_EXTERNAL_PATHS", directories)


def with_external_paths(tmp_path: Path, strategy: str = "round-robin", **options: Any) -> Table:
    paths = f"file://{tmp_path}/a/t,file:{tmp_path}/b/t"
    return new_table(
        tmp_path / "w",
        data_file__external_paths=paths,
        data_file__external_paths__strategy=strategy,
        data_file__external_paths__specific_fs="file",
        data_file__external_paths__weights="1,2",
        **options,
    )


def files_outside(tmp_path: Path) -> set[Path]:
    return {p for name in "abc" for p in (tmp_path / name).rglob("*") if p.is_file()}


def live_files(table: Table) -> set[Path]:
    reader = table.stores.reader()
    return {
        Path(reader.path(BucketFile(split.partition, split.bucket, file)))
        for split in table.files()
        for file in split.files
    }


def fill(table: Table) -> None:
    for round_ in range(3):
        table.upsert(table_of("k v", [(key, f"{round_}") for key in range(round_, 9)]))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_external_data_files_are_deleted_when_they_expire(
    tmp_path: Path, strategy: str, producer: str
) -> None:
    table = with_external_paths(tmp_path, strategy, changelog_producer=producer)
    fill(table)
    expected = rows_of(table)

    compact(table, InProcessExecutor(), strategy="full")

    assert rows_of(table) == expected
    assert not list(Path(table.paths.root).rglob("bucket-*"))
    assert check(table, deep=True).findings == ()
    result = expire_snapshots(table, retain_max=1)
    assert result.refused == ()
    changelog = {path for path in files_outside(tmp_path) if path.name.startswith("changelog-")}
    assert files_outside(tmp_path) - changelog == live_files(table)
    assert len(changelog) == (producer == "lookup")
    assert rows_of(table) == expected


def test_index_files_follow_the_data_files(tmp_path: Path) -> None:
    table = with_external_paths(
        tmp_path,
        file_index__bloom_filter__columns="v",
        file_index__in_manifest_threshold="1 B",
        deletion_vectors__enabled="true",
        index_file_in_data_file_dir="true",
    )
    fill(table)
    for _ in range(2):
        compact(table, InProcessExecutor())
        table.upsert(table_of("k v", [(1, "new")]))
        compact(table, InProcessExecutor())

    assert {path.name + ".index" for path in live_files(table)} <= {
        path.name for path in files_outside(tmp_path)
    }
    assert deletion_vectors_of(table)
    assert not (Path(table.paths.root) / "index").exists()
    assert expire_snapshots(table, retain_max=1).refused == ()
    assert check(table, deep=True).findings == ()
    rewrite_file_index(table, InProcessExecutor())
    assert (1, "new") in rows_of(table)


@pytest.mark.parametrize("bucket", ["1", "-1"])
def test_index_files_are_below_the_external_path_for_indexes(tmp_path: Path, bucket: str) -> None:
    table = new_table(
        tmp_path / "w",
        bucket=bucket,
        global_index__external_path=f"file://{tmp_path}/c",
        deletion_vectors__enabled=str(bucket == "1"),
    )
    fill(table)
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(1, "new"), (10, "more")]))
    compact(table, InProcessExecutor())

    assert files_outside(tmp_path)
    assert not (Path(table.paths.root) / "index").exists()
    assert expire_snapshots(table, retain_max=1).refused == ()
    used = {item.file_name for item in table.stores.manifests.read_index_entries(table.snapshot())}
    assert {path.name for path in files_outside(tmp_path)} == used
    assert (1, "new") in rows_of(table)


def test_external_files_of_a_failed_compaction_are_deleted(tmp_path: Path) -> None:
    table = with_external_paths(tmp_path, changelog_producer="lookup")
    fill(table)
    before = files_outside(tmp_path)
    planned = compact_step.plan(table, compact_step.CompactRequest(strategy="full"))

    discard_messages(table, run_units(compact_step.COMPACT, table, planned))

    assert files_outside(tmp_path) == before


def test_only_orphans_are_deleted_from_external_paths(tmp_path: Path) -> None:
    table = with_external_paths(
        tmp_path, deletion_vectors__enabled="true", index_file_in_data_file_dir="true"
    )
    fill(table)
    compact(table, InProcessExecutor())
    table.upsert(table_of("k v", [(1, "new")]))
    compact(table, InProcessExecutor())
    orphan = next(iter(live_files(table))).with_name("data-lost-0.parquet")
    orphan.write_bytes(b"")
    for path in files_outside(tmp_path):
        os.utime(path, (1, 1))

    assert remove_orphan_files(table).files == 1
    assert not orphan.exists()
    assert check(table, deep=True).findings == ()


def test_files_in_a_former_external_path_expire(tmp_path: Path) -> None:
    table = with_external_paths(tmp_path)
    fill(table)
    Catalog(str(tmp_path / "w")).alter_table(
        "db.t", [SetOption("data-file.external-paths", f"file:{tmp_path}/c/t")]
    )
    compact(table, InProcessExecutor(), strategy="full")

    assert expire_snapshots(table, retain_max=1).refused == ()
    assert files_outside(tmp_path) == live_files(table)
    assert {path.relative_to(tmp_path).parts[0] for path in live_files(table)} == {"c"}


def test_dropping_a_table_names_the_external_paths_whose_files_remain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = with_external_paths(tmp_path)
    fill(table)
    Catalog(str(tmp_path / "w")).drop_table("db.t")
    assert f"{tmp_path}/a/t, {tmp_path}/b/t" in caplog.text
    assert files_outside(tmp_path)


def test_a_path_in_another_store_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIMON_ALLOWED_EXTERNAL_PATHS", "s3://other/t/*")
    table = new_table(
        tmp_path / "w",
        data_file__external_paths="s3://other/t",
        data_file__external_paths__strategy="round-robin",
    )
    with pytest.raises(UnsupportedError, match=r"s3://other/t.*different store"):
        fill(table)
    assert table.snapshot() is None
