"""Expiration, deletion and automatic creation of tags (invariant 30)."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.damage import edit_snapshot
from support.histories import (
    Operation,
    make_table,
    operations,
    read_all_branches,
    select_retained,
    unreferenced_files,
)
from support.tables import new_table, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import (
    CommitConflictError,
    CorruptFileError,
    InputError,
    NotFoundError,
    UnsupportedError,
)
from paimon_orch.steps.common.step import EmptyRequest, run_step
from paimon_orch.steps.expiration.delete_tag import (
    DELETE_TAG,
    DeleteTagRequest,
    delete_tag,
    delete_tags,
)
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.expiration.expire_tags import (
    EXPIRE_TAGS,
    ExpireTagsRequest,
    expire_tags,
    plan,
)
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.trigger_tag_automatic_creation import CREATE_TAGS, create_tags
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.table import Table


def test_deleting_a_tag_of_a_retained_snapshot_deletes_no_other_file(tmp_path: Path) -> None:
    """Invariant 30, for a retained snapshot."""
    table = make_table(tmp_path, "vectors", [("tag", 0), ("full", 0), ("upsert", 1)])
    before = stored_files(table)

    garbage = delete_tag(table, "t0")

    assert len(garbage) == 0
    assert before - stored_files(table) == {table.tags.path("t0")}
    with pytest.raises(NotFoundError, match="t0"):
        delete_tag(table, "t0")


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(operations())
def test_deleting_a_tag_deletes_the_files_that_only_it_references(history: list[Operation]) -> None:
    """Invariant 30."""
    with tempfile.TemporaryDirectory() as root:
        history = [("tag", 0), *history, ("tag", 1)]
        table = make_table(Path(root), "vectors", history, batch_rows=3)
        # These tags are deleted without their files, which become orphans.
        for name in table.tags.names():
            if name not in ("t0", "t1"):
                delete_tag(table, name)
        expire_snapshots(table, retain_max=1)
        loose, before = unreferenced_files(table), read_all_branches(table)

        for name in table.tags.names():
            delete_tag(table, name)
            after = read_all_branches(table)
            assert after == select_retained(before, after)
            assert unreferenced_files(table) <= loose
            assert check(table, deep=True).findings == ()


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(operations(), st.data())
def test_several_tags_are_deleted_together_as_one_after_the_other(
    history: list[Operation], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as root:
        history = [("tag", 0), *history, ("tag", 1)]
        table = make_table(Path(root, "together"), "vectors", history, batch_rows=3)
        names = table.tags.names()
        for number, name in enumerate(names):  # a snapshot can have several tags
            table.tags.create(f"again{number}", table.tags.get(name).id)
        expire_snapshots(table, retain_max=1)
        shutil.copytree(Path(root, "together"), Path(root, "in turn"))
        other = Catalog(str(Path(root, "in turn"))).table(table.identifier)
        chosen = data.draw(st.lists(st.sampled_from(table.tags.names()), min_size=1, unique=True))
        before = read_all_branches(table)

        delete_tags(table, chosen)
        for name in chosen:
            delete_tag(other, name)

        after = read_all_branches(table)
        assert after == select_retained(before, after)
        assert check(table, deep=True).findings == ()
        assert list_relative(table) == list_relative(other)


def list_relative(table: Table) -> set[str]:
    return {path.removeprefix(table.paths.root) for path in stored_files(table)}


def test_no_tag_is_deleted_if_one_of_them_is_missing_or_changed_meanwhile(tmp_path: Path) -> None:
    table = make_table(tmp_path, "vectors", [("tag", 0), ("full", 0), ("tag", 1), ("upsert", 1)])
    expire_snapshots(table, retain_max=1)
    before = stored_files(table)

    with pytest.raises(NotFoundError, match="has no tag 'missing'"):
        delete_tags(table, ["t0", "missing"])
    moving = _AtTagRead(table.paths.tag_dir, lambda: table.tags.replace("t1"))
    with pytest.raises(CommitConflictError, match="tag 't1' was changed during its deletion"):
        delete_tags(Table(table.identifier, moving, table.paths), ["t0", "t1"])
    assert stored_files(table) == before


class _AtTagRead(LocalFileIO):
    """Calls a function once, when the tags are read for the second time."""

    def __init__(self, tag_dir: str, function: Callable[[], object]) -> None:
        self._path, self._function, self._reads = f"{tag_dir}/tag-t0", function, 0

    def read_bytes(self, path: str) -> bytes:
        self._reads += path == self._path
        if self._reads == 2 and path == self._path:
            self._function()
        return super().read_bytes(path)


def test_an_unreadable_adjacent_version_stops_the_deletion(tmp_path: Path) -> None:
    """Files that the earliest snapshot needs were deleted with a tag (apache/paimon#6479)."""
    table = make_table(tmp_path, "plain", [("tag", 0), ("upsert", 1), ("full", 0), ("tag", 1), ("upsert", 2)])  # fmt: skip
    expire_snapshots(table, retain_max=1)
    other = Path(table.paths.manifest_dir) / table.tags.get("t1").base_manifest_list
    other.write_bytes(b"damaged")
    before = stored_files(table)

    with pytest.raises(CorruptFileError, match=other.name):
        delete_tag(table, "t0")
    assert stored_files(table) == before


def test_tags_expire_after_their_retention_time(tmp_path: Path) -> None:
    table = make_table(tmp_path, "plain", [])
    table.tags.create("day", time_retained=timedelta(days=1))
    table.tags.create("month", time_retained=timedelta(days=30))
    table.tags.create("ever")
    now = datetime.now()

    assert plan(table, ExpireTagsRequest(now=now)).names == []
    assert plan(table, ExpireTagsRequest(now=now + timedelta(days=2))).names == ["day"]
    assert plan(table, ExpireTagsRequest(now=now + timedelta(days=90))).names == ["day", "month"]
    assert plan(table, ExpireTagsRequest(older_than=now - timedelta(hours=1))).names == []
    os.utime(table.tags.path("ever"), (0, 0))
    assert expire_tags(table, older_than=now - timedelta(hours=1)) == ["ever"]
    assert table.tags.names() == ["day", "month"]


def old_tags(table: Table, *names: str) -> None:
    """Create tags whose files were written long ago."""
    for name in names:
        table.tags.create(name)
        os.utime(table.tags.path(name), (0, 0))


def test_only_the_tags_of_the_plan_expire(tmp_path: Path) -> None:
    table = make_table(tmp_path, "plain", [])
    old_tags(table, "shown")
    request = ExpireTagsRequest(older_than=datetime.now() - timedelta(hours=1))
    shown = plan(table, request)
    old_tags(table, "late")

    result = run_step(EXPIRE_TAGS, table, shown)

    assert (result.plan, result.attempts) == (shown, 1)
    assert table.tags.names() == ["late"]


@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_a_tag_that_changed_since_the_plan_leads_to_a_new_plan(tmp_path: Path, change: str) -> None:
    table = make_table(tmp_path, "plain", [])
    old_tags(table, "changed", "old")
    shown = plan(table, ExpireTagsRequest(older_than=datetime.now() - timedelta(hours=1)))
    assert shown.names == ["changed", "old"]
    if change == "replaced":
        table.tags.replace("changed")
    else:
        table.tags.delete("changed")

    result = run_step(EXPIRE_TAGS, table, shown)

    assert (result.plan.names, result.attempts) == (["old"], 2)
    assert table.tags.names() == (["changed"] if change == "replaced" else [])


def test_a_tag_that_was_moved_since_the_plan_is_planned_again(tmp_path: Path) -> None:
    table = make_table(tmp_path, "vectors", [("tag", 0), ("full", 0), ("upsert", 1)])
    expire_snapshots(table, retain_max=1)
    shown = DELETE_TAG.plan(table, DeleteTagRequest(name="t0"))
    table.tags.replace("t0")
    before = stored_files(table)

    result = run_step(DELETE_TAG, table, shown)

    assert (len(result.plan.files_to_delete), result.attempts) == (0, 2)
    assert len(shown.files_to_delete) > 0
    assert before - stored_files(table) == {table.tags.path("t0")}


@pytest.mark.parametrize(
    ("created", "retained"), [([2026, 1, 1, 0, 0], 3600), ("2026-01-01T00:00:00", "PT1H")]
)
def test_times_of_other_writers_are_read(tmp_path: Path, created: object, retained: object) -> None:
    table = make_table(tmp_path, "plain", [("tag", 0)])
    path = Path(table.tags.path("t0"))
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | {"tagCreateTime": created, "tagTimeRetained": retained}))

    assert plan(table, ExpireTagsRequest(now=datetime(2026, 1, 1, 1))).names == []
    assert plan(table, ExpireTagsRequest(now=datetime(2026, 1, 1, 1, 0, 1))).names == ["t0"]


def create_table_with_times(root: Path, times: list[datetime], **options: str) -> Table:
    """A table with a snapshot at each local time."""
    table = new_table(root, **{f"tag__{name}": text for name, text in options.items()})
    for number, time in enumerate(times, 1):
        table.upsert(table_of("k v", [(number, "x")]))
        edit_snapshot(table, number, time_millis=int(time.timestamp() * 1000))
    return table


def tags(table: Table) -> dict[str, int]:
    return {name: table.tags.get(name).id for name in table.tags.names()}


DAYS = [datetime(2026, 1, 1, 9), datetime(2026, 1, 1, 18), datetime(2026, 1, 2, 0, 5), datetime(2026, 1, 5, 7)]  # fmt: skip


def test_daily_tags_are_created_from_the_first_snapshot_after_the_day(tmp_path: Path) -> None:
    table = create_table_with_times(tmp_path, DAYS, automatic_creation="process-time")

    assert create_tags(table) == ["2025-12-31", "2026-01-01", "2026-01-04"]
    assert tags(table) == {"2025-12-31": 1, "2026-01-01": 3, "2026-01-04": 4}
    assert create_tags(table) == []
    table.tags.delete("2026-01-01")
    assert create_tags(table) == [], "a tag that a user deleted is not created again"


def test_tags_are_created_after_the_delay_and_missing_days_get_tags(tmp_path: Path) -> None:
    table = create_table_with_times(tmp_path, DAYS, automatic_creation="process-time", creation_delay="10 min", automatic_completion="true")  # fmt: skip

    assert create_tags(table) == ["2025-12-31", "2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"]  # fmt: skip
    assert tags(table)["2026-01-01"] == 4


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"creation_period": "hourly"}, "2026-01-01 08"),
        ({"creation_period": "two-hours", "period_formatter": "without_dashes"}, "20260101 06"),
        ({"period_formatter": "without_dashes_and_spaces"}, "20251231"),
        (
            {"creation_period": "hourly", "period_formatter": "without_dashes_and_spaces"},
            "2026010108",
        ),
        ({"creation_period_duration": "5 min"}, "202601010855"),
    ],
)
def test_each_period_has_its_length_and_its_tag_names(
    tmp_path: Path, options: dict[str, str], name: str
) -> None:
    table = create_table_with_times(
        tmp_path, DAYS[:1], automatic_creation="process-time", **options
    )

    assert create_tags(table) == [name]


def test_tags_can_be_created_by_watermark(tmp_path: Path) -> None:
    table = create_table_with_times(tmp_path, [DAYS[0]] * 4, automatic_creation="watermark")
    assert create_tags(table) == []
    for number, time in enumerate(DAYS, 1):
        millis = (time - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
        edit_snapshot(table, number, watermark=millis)

    assert create_tags(table) == ["2025-12-31", "2026-01-01", "2026-01-04"]


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        ("UTC", "2026-01-01 11"),
        ("Z", "2026-01-01 11"),
        ("+02", "2026-01-01 13"),
        ("-0330", "2026-01-01 08"),
        ("GMT+08:00", "2026-01-01 19"),
        ("UTC-13", "2025-12-31 22"),
        ("Asia/Shanghai", "2026-01-01 19"),
    ],
)
@pytest.mark.parametrize("mode", ["process-time", "watermark"])
def test_tags_are_named_in_the_time_zone_of_the_table(
    mode: str, zone: str, name: str, tmp_path: Path
) -> None:
    key = "sink.process-time-zone" if mode == "process-time" else "sink.watermark-time-zone"
    table = create_table_with_times(
        tmp_path, DAYS[:1], automatic_creation=mode, creation_period="hourly"
    )
    set_option(table, key, zone)
    millis = int(datetime(2026, 1, 1, 12, 30, tzinfo=UTC).timestamp() * 1000)
    edit_snapshot(table, 1, time_millis=millis, watermark=millis)

    assert create_tags(table) == [name]


def test_a_time_zone_that_does_not_exist_is_refused_with_the_name_of_the_option(
    tmp_path: Path,
) -> None:
    table = create_table_with_times(tmp_path, DAYS[:1], automatic_creation="process-time")
    set_option(table, "sink.process-time-zone", "Mars/Olympus")

    with pytest.raises(InputError, match=r"sink\.process-time-zone.*Mars/Olympus.*GMT\+08:00"):
        create_tags(table)
    assert tags(table) == {}


def set_option(table: Table, key: str, value: str) -> None:
    path = Path(table.stores.schemas.path(table.load().schema.id))
    schema = json.loads(path.read_text())
    schema["options"][key] = value
    path.write_text(json.dumps(schema))


def test_the_number_of_automatic_tags_is_limited_and_they_have_a_retention_time(
    tmp_path: Path,
) -> None:
    table = create_table_with_times(tmp_path, DAYS, automatic_creation="process-time", num_retained_max="2", default_time_retained="1 d")  # fmt: skip
    table.tags.create("mine", 1)

    create_tags(table)

    assert sorted(tags(table)) == ["2026-01-01", "2026-01-04", "mine"]
    assert plan(table, ExpireTagsRequest(now=datetime.now() + timedelta(days=2))).names == [
        "2026-01-01",
        "2026-01-04",
    ]


def test_the_plan_names_the_tags_to_create_and_those_above_the_limit(tmp_path: Path) -> None:
    table = create_table_with_times(
        tmp_path, DAYS, automatic_creation="process-time", num_retained_max="2"
    )

    planned = CREATE_TAGS.plan(table, EmptyRequest())

    assert planned.due == {"2025-12-31": 1, "2026-01-01": 3, "2026-01-04": 4}
    assert planned.excess == ("2025-12-31",)
    assert tags(table) == {}


def test_only_the_tags_of_the_plan_are_created(tmp_path: Path) -> None:
    table = create_table_with_times(tmp_path, DAYS[:3], automatic_creation="process-time")
    shown = CREATE_TAGS.plan(table, EmptyRequest())
    table.upsert(table_of("k v", [(4, "x")]))
    edit_snapshot(table, 4, time_millis=int(DAYS[3].timestamp() * 1000))

    result = run_step(CREATE_TAGS, table, shown)

    assert (result.plan, result.attempts) == (shown, 1)
    assert tags(table) == {"2025-12-31": 1, "2026-01-01": 3}
    assert create_tags(table) == ["2026-01-04"]


def test_a_due_tag_that_another_process_created_leads_to_a_new_plan(tmp_path: Path) -> None:
    table = create_table_with_times(tmp_path, DAYS, automatic_creation="process-time")
    shown = CREATE_TAGS.plan(table, EmptyRequest())
    table.tags.create("2025-12-31", 1)

    result = run_step(CREATE_TAGS, table, shown)

    assert (result.plan.names, result.attempts) == (["2026-01-01", "2026-01-04"], 2)
    assert tags(table) == {"2025-12-31": 1, "2026-01-01": 3, "2026-01-04": 4}


def test_tables_without_automatic_creation_get_no_tags_and_invalid_options_are_refused(
    tmp_path: Path,
) -> None:
    assert create_tags(create_table_with_times(tmp_path / "a", DAYS)) == []
    for name, options in (("b", {"creation_period": "weekly"}), ("c", {"creation_delay": "2 d"})):
        table = create_table_with_times(
            tmp_path / name, DAYS, automatic_creation="process-time", **options
        )
        with pytest.raises((InputError, UnsupportedError), match=r"tag\.creation-"):
            create_tags(table)


def test_deleting_a_tag_deletes_the_changelog_that_only_it_references(tmp_path: Path) -> None:
    table = new_table(tmp_path, changelog_producer="input")
    for text in "ab":
        table.upsert(table_of("k v", [(1, text)]))
    table.tags.create("t", 1)
    expire_snapshots(table, retain_max=1)

    delete_tag(table, "t")

    assert unreferenced_files(table) == set()


def test_a_tag_with_a_retention_time_beyond_the_year_9999_is_retained(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table.tags.create("t", time_retained=timedelta(days=9_000_000))

    assert plan(table, ExpireTagsRequest()).names == []
