"""Commits, dropped partitions and tags are reported to the catalog of a table."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.clocks import replace_time
from support.recorded_partitions import RecordedPartitions, through_catalog

from paimon_orch import Catalog, Table
from paimon_orch.errors import CommitConflictError, NotFoundError, StorageError, UnsupportedError
from paimon_orch.steps import InProcessExecutor, analyze, compact, expire_partitions
from paimon_orch.steps.expiration.delete_tag import delete_tag
from paimon_orch.table import catalog_reports
from paimon_orch.table.catalog_environment import CatalogEnvironment
from paimon_orch.table.commit.commit import TableCommit
from paimon_orch.table.commit.commit_id import CommitId

LISTED = {"metastore.partitioned-table": "true"}
TAGS = {"metastore.tag-to-partition": "tag"}


@pytest.fixture
def catalog() -> RecordedPartitions:
    return RecordedPartitions()


def new_table(
    root: Path, catalog: RecordedPartitions, *, by: str = "dt hr", **options: str
) -> Table:
    named = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
    table = Catalog(str(root)).create_table(
        "db.t",
        "dt DATE, hr INT, v INT",
        partition_by=by.split(),
        options=LISTED | named if by else TAGS | named,
    )
    return through_catalog(table, catalog)


def rows(*items: tuple[int | None, int]) -> pa.Table:
    """Return rows of days since 1970 and hours; the null day is the default partition."""
    days, hours = zip(*items, strict=True)
    return pa.table(
        {
            "dt": pa.array(days, pa.int32()).cast(pa.date32()),
            "hr": pa.array(hours, pa.int32()),
            "v": pa.array([1] * len(items), pa.int32()),
        }
    )


@pytest.fixture
def table(tmp_path: Path, catalog: RecordedPartitions) -> Table:
    return new_table(tmp_path, catalog)


def test_a_commit_adds_the_partitions_of_its_files(
    table: Table, catalog: RecordedPartitions
) -> None:
    table.append(rows((20000, 1), (20000, 2), (None, 3)))
    # Values are those of the paths: day numbers with partition.legacy-name, and the default name.
    assert catalog.values() == [("20000", "1"), ("20000", "2"), ("__DEFAULT_PARTITION__", "3")]
    assert [name for name, _ in catalog.calls] == ["add"]
    table.append(rows((20001, 1)))
    assert catalog.calls[1] == ("add", [{"dt": "20001", "hr": "1"}])


def test_names_follow_the_option_legacy_name(tmp_path: Path, catalog: RecordedPartitions) -> None:
    table = new_table(tmp_path, catalog, partition__legacy_name="false")
    table.append(rows((20000, 1)))
    assert catalog.values() == [("2024-10-04", "1")]


def test_compactions_and_overwrites_add_but_never_drop(
    table: Table, catalog: RecordedPartitions
) -> None:
    for _ in range(2):
        table.append(rows((1, 1)))
    catalog.specs.clear()
    result = compact(table, InProcessExecutor(), strategy="full")
    assert result.snapshot_id == 3
    assert catalog.values() == [("1", "1")]
    table.overwrite(rows((2, 2)), partitions={})
    assert catalog.values() == [("1", "1"), ("2", "2")]


def test_without_the_option_nothing_is_reported(
    tmp_path: Path, catalog: RecordedPartitions, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(tmp_path, catalog, metastore__partitioned_table="false")
    table.append(rows((1, 1)))
    table.drop_partitions(["dt=1/hr=1"])
    assert catalog.calls == []
    assert "Run sync-partitions" not in caplog.text, "no report has failed"


def test_a_change_without_partitions_calls_no_catalog(
    tmp_path: Path, catalog: RecordedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, catalog, partition__idle_time_to_report_statistic="1 h")
    table.append(rows((1, 1)))
    table.tags.create("base")
    table.branches.create("dev", tag="base")
    calls = len(catalog.calls)
    analyze(table, InProcessExecutor())  # its snapshot changes no file
    assert len(catalog.calls) == calls
    table.truncate()
    assert [name for name, _ in catalog.calls[calls:]] == ["update"]

    def fail(*_: object) -> None:
        raise CommitConflictError("another commit was first each time")

    table.append(rows((1, 1)))
    calls = len(catalog.calls)
    monkeypatch.setattr(TableCommit, "commit", fail)
    with pytest.raises(CommitConflictError):
        table.drop_partitions(["dt=1"])  # the branch has rows in it
    assert len(catalog.calls) == calls


def test_a_repeated_commit_reports_again(table: Table, catalog: RecordedPartitions) -> None:
    commit_id = CommitId("nightly", 1)
    table.append(rows((1, 1)), commit_id=commit_id)
    catalog.specs.clear()
    snapshot = table.append(rows((1, 1)), commit_id=commit_id)
    assert snapshot is not None
    assert snapshot.id == 1
    assert catalog.values() == [("1", "1")]


def test_a_failed_report_is_a_warning_that_names_the_repair(
    table: Table, catalog: RecordedPartitions, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.failure = "the metastore is down"
    with caplog.at_level(logging.WARNING):
        snapshot = table.append(rows((1, 1)))
    assert snapshot is not None
    assert table.scan().to_arrow().num_rows == 1
    assert "db.t: the catalog does not list all partitions of the table" in caplog.text
    assert "the metastore is down. Run sync-partitions" in caplog.text


def test_dropped_partitions_are_dropped_from_the_catalog_first(
    table: Table, catalog: RecordedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append(rows((1, 1), (1, 2), (2, 1)))
    listed_at_commit = []
    commit = TableCommit.commit

    def observed(self: TableCommit, changes: object) -> object:
        listed_at_commit.append(catalog.values())
        return commit(self, changes)  # type: ignore[arg-type]

    monkeypatch.setattr(TableCommit, "commit", observed)
    table.drop_partitions(["dt=1"])
    assert listed_at_commit == [[("2", "1")]]
    assert catalog.values() == [("2", "1")]


def test_a_listed_partition_without_files_can_be_dropped(
    table: Table, catalog: RecordedPartitions
) -> None:
    table.append(rows((1, 1)))
    catalog.add([{"dt": "7", "hr": "7"}, {"dt": "8", "hr": "8"}])
    assert table.drop_partitions([{"dt": "1970-01-08"}]) is None
    assert catalog.values() == [("1", "1"), ("8", "8")]


def test_only_listed_partitions_that_match_a_whole_spec_are_dropped(
    table: Table, catalog: RecordedPartitions
) -> None:
    catalog.add([{"dt": "7", "hr": "7"}, {"dt": "8", "hr": "8"}, {"dt": "9", "hr": "9"}])
    with pytest.raises(NotFoundError, match="no partition dt=8/hr=9"):
        table.drop_partitions(["dt=7/hr=7", "dt=8/hr=9", "hr=9"])
    assert len(catalog.values()) == 3
    table.drop_partitions(["dt=7/hr=7", "hr=9"])
    assert catalog.values() == [("8", "8")]


def test_nothing_is_deleted_if_the_catalog_cannot_drop(
    table: Table, catalog: RecordedPartitions
) -> None:
    table.append(rows((1, 1)))
    catalog.failure = "the metastore is down"
    with pytest.raises(StorageError, match="metastore is down"):
        table.drop_partitions(["dt=1"])
    assert table.scan().to_arrow().num_rows == 1


def test_the_catalog_lists_partitions_again_if_their_rows_are_not_deleted(
    table: Table, catalog: RecordedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append(rows((1, 1)))

    def fail(*_: object) -> None:
        raise CommitConflictError("another commit was first each time")

    monkeypatch.setattr(TableCommit, "commit", fail)
    with pytest.raises(CommitConflictError):
        table.drop_partitions(["dt=1"])
    assert catalog.calls[1:] == [
        ("drop", [{"dt": "1", "hr": "1"}]),
        ("add", [{"dt": "1", "hr": "1"}]),
    ]


def test_the_catalog_does_not_list_partitions_again_if_an_interrupt_follows_the_commit(
    table: Table, catalog: RecordedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append(rows((1, 1)))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TableCommit, "_update_hint", interrupt)
    with pytest.raises(KeyboardInterrupt):
        table.drop_partitions(["dt=1"])
    assert table.scan().to_arrow().num_rows == 0
    assert catalog.calls[1:] == [("drop", [{"dt": "1", "hr": "1"}])]


def test_partitions_with_rows_in_another_branch_are_kept(
    tmp_path: Path, table: Table, catalog: RecordedPartitions
) -> None:
    table.append(rows((1, 1), (2, 2)))
    table.tags.create("base")
    table.branches.create("dev", tag="base")
    branch = through_catalog(Catalog(str(tmp_path)).table("db.t$branch_dev"), catalog)
    branch.drop_partitions(["dt=1"])
    assert catalog.values() == [("1", "1"), ("2", "2")]
    table.drop_partitions(["dt=1", "dt=2"])
    assert catalog.values() == [("2", "2")]


def test_an_incomplete_branch_has_no_partitions(table: Table, catalog: RecordedPartitions) -> None:
    table.append(rows((1, 1)))
    (Path(table.paths.root) / "branch" / "branch-new").mkdir(parents=True)
    table.drop_partitions(["dt=1"])
    assert catalog.values() == []


def test_truncate_leaves_the_partitions_as_java_does(
    table: Table, catalog: RecordedPartitions
) -> None:
    table.append(rows((1, 1)))
    table.truncate()
    assert catalog.values() == [("1", "1")]


def test_expired_partitions_and_their_marks_are_dropped(
    tmp_path: Path, catalog: RecordedPartitions
) -> None:
    table = new_table(tmp_path, catalog, partition__expiration_time="30 d")
    table.append(rows((1, 1), (99999, 1)))
    catalog.add([{"dt": "1", "hr": "1.done"}, {"dt": "99999", "hr": "1.done"}])
    plan = expire_partitions(table)
    assert plan.names == ("dt=1/hr=1",)
    assert catalog.values() == [("99999", "1"), ("99999", "1.done")]


def test_a_table_that_is_not_listed_has_no_marks(
    tmp_path: Path, catalog: RecordedPartitions, caplog: pytest.LogCaptureFixture
) -> None:
    unlisted = {"metastore__partitioned_table": "false"}
    table = new_table(tmp_path, catalog, partition__expiration_time="30 d", **unlisted)
    table.append(rows((1, 1)))
    assert expire_partitions(table).names == ("dt=1/hr=1",)
    assert "Run sync-partitions" not in caplog.text, "no report has failed"


def test_no_marks_are_dropped_without_partitions(table: Table, catalog: RecordedPartitions) -> None:
    table.stores.build_catalog_reports().drop_marks([])
    assert catalog.calls == []


def test_statistics_are_totals_of_the_changed_partitions(
    tmp_path: Path, catalog: RecordedPartitions
) -> None:
    table = new_table(tmp_path, catalog, partition__idle_time_to_report_statistic="1 h")
    table.append(rows((1, 1), (2, 2)))
    snapshot = table.append(rows((1, 1), (1, 1)))
    assert snapshot is not None
    last = catalog.statistics[-1]
    files = [split for split in table.files() if split.row_count == 3]
    assert last.spec == {"dt": "1", "hr": "1"}
    assert (last.record_count, last.file_count, last.total_buckets) == (3, 2, -1)
    assert last.file_size == sum(file.file_size for split in files for file in split.files)
    assert last.last_file_creation_millis == snapshot.time_millis
    assert len(catalog.statistics) == 3


def test_a_late_report_of_statistics_has_the_totals_of_the_newest_snapshot(
    tmp_path: Path, catalog: RecordedPartitions
) -> None:
    table = new_table(tmp_path, catalog, partition__idle_time_to_report_statistic="1 h")
    first = table.append(rows((1, 1)))
    table.append(rows((1, 1), (1, 1)))
    assert first is not None
    table.stores.build_catalog_reports().report_statistics(first)
    last = catalog.statistics[-1]
    assert (last.record_count, last.last_file_creation_millis) == (3, first.time_millis)


def test_no_statistics_by_default(table: Table, catalog: RecordedPartitions) -> None:
    table.append(rows((1, 1)))
    assert catalog.statistics == []


def test_tags_are_partitions(tmp_path: Path, catalog: RecordedPartitions) -> None:
    table = new_table(tmp_path, catalog, by="")
    table.append(rows((1, 1)))
    table.tags.create("a")
    table.tags.replace("a")
    table.tags.create("b")
    table.tags.rename("b", "c")
    assert catalog.specs == [{"tag": "a"}, {"tag": "c"}]
    table.tags.delete("c")
    delete_tag(table, "a")
    assert catalog.specs == []


def test_a_rollback_drops_the_partitions_of_later_tags(
    tmp_path: Path, catalog: RecordedPartitions
) -> None:
    table = new_table(tmp_path, catalog, by="")
    for name in ("a", "b"):
        table.append(rows((1, 1)))
        table.tags.create(name)
    table.rollback(tag="a", delete_tags=True)
    assert catalog.specs == [{"tag": "a"}]


def test_a_tag_that_cannot_be_reported_exists(
    tmp_path: Path, catalog: RecordedPartitions, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(tmp_path, catalog, by="")
    table.append(rows((1, 1)))
    catalog.failure = "the metastore is down"
    table.tags.create("a")
    assert table.tags.names() == ["a"]
    assert "the catalog does not show the tag 'a'" in caplog.text


def test_commits_add_the_preview_of_the_tag_of_this_period(
    tmp_path: Path, catalog: RecordedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(
        tmp_path,
        catalog,
        by="",
        metastore__tag_to_partition__preview="process-time",
        sink__process_time_zone="UTC",
        tag__creation_period="hourly",
    )
    replace_time(monkeypatch, catalog_reports.__name__, time=lambda: 1_700_000_000.0)
    table.append(rows((1, 1)))
    assert catalog.specs == [{"tag": "2023-11-14 22"}]


PREVIEW = {"metastore__tag_to_partition__preview": "process-time", "sink__process_time_zone": "UTC"}


def test_a_table_with_partitions_has_no_preview_of_a_tag(
    tmp_path: Path, catalog: RecordedPartitions
) -> None:
    table = new_table(tmp_path, catalog, metastore__tag_to_partition="tag", **PREVIEW)
    table.append(rows((1, 1)))
    assert catalog.specs == [{"dt": "1", "hr": "1"}]


def test_a_table_without_partitions_and_tags_in_its_catalog_has_no_preview(
    tmp_path: Path, catalog: RecordedPartitions, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"metastore.tag-to-partition.preview": "process-time"}
    created = Catalog(str(tmp_path)).create_table("db.t", "v INT", options=options)
    through_catalog(created, catalog).append(pa.table({"v": pa.array([1], pa.int32())}))
    assert catalog.calls == []
    assert "preview of the next tag: " not in caplog.text, "no report has failed"


def test_a_preview_by_watermark_needs_a_watermark(
    tmp_path: Path, catalog: RecordedPartitions
) -> None:
    table = new_table(tmp_path, catalog, by="", metastore__tag_to_partition__preview="watermark")
    snapshot = table.append(rows((1, 1)))
    assert snapshot is not None
    assert catalog.specs == []
    table.stores.build_catalog_reports().report_commit(
        replace(snapshot, watermark=1_700_000_000_000)
    )
    assert catalog.specs == [{"tag": "2023-11-14"}]


@pytest.mark.parametrize(
    "options", [LISTED, TAGS | {"metastore.tag-to-partition.preview": "batch"}]
)
def test_options_of_a_metastore_stop_steps_only_on_tables_of_a_directory(
    options: dict[str, str], tmp_path: Path
) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", "p INT, v INT", partition_by=["p"])
    table.append(pa.table({"p": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32())}))
    from paimon_orch.table.schema_change.schema_changes import SetOption

    Catalog(str(tmp_path)).alter_table("db.t", [SetOption(*item) for item in options.items()])
    with pytest.raises(UnsupportedError, match=r"metastore\..*opened by its directory"):
        table.tags.create("a") if options != LISTED else table.drop_partitions(["p=1"])
    # Another catalog service lists no partitions, and nothing is reported, as in Java Paimon.
    service = replace(table, environment=CatalogEnvironment(is_service=True))
    service.tags.create("a")
    service.drop_partitions(["p=1"])
    assert service.stale_external_options() == []
