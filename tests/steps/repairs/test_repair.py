"""Damage of the corpus is repaired: the doctor no longer finds it, and the rows are right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.damage import edit_files
from support.damaged_tables import CORPUS, DamagedTable, stop_to_merge_levels
from support.golden import canonical_rows
from support.kill import MARKS, kill_at_each_change
from support.recorded_partitions import RecordedPartitions, through_catalog
from support.storage_state import read_storage_state
from support.tables import levels_of, new_table, rows_of, table_of

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.bucket.hash_index import decode_hash_index
from paimon_orch.format.manifest.index_manifest import HASH_INDEX
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.inspection.doctor.doctor import examine_opened_table
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorRule, Severity
from paimon_orch.steps.repairs.repair import REPAIRABLE_RULES, RepairRequest, plan, repair
from paimon_orch.table.iceberg.publish import IcebergPublisher
from paimon_orch.table.table import Table

REPAIRED = {name: case for name, case in CORPUS.items() if case.is_repaired}
REFUSED = {name: case for name, case in CORPUS.items() if not case.is_repaired}
RESTORED = {
    "a snapshot in the middle is deleted (#4743)",
    "LATEST is deleted",
    "EARLIEST names an expired snapshot",
    "LATEST names a late snapshot",
    "files of one level overlap (#3520)",
    "deletion vectors of replaced files stay (#8778)",
    "a commit loses the hash index",
    "a hash index is deleted",
    "an expiration is killed (#6978)",
}
"""The cases without lost rows."""
ROLLED_BACK = {"the index manifest is deleted"}
"""The cases in which rows appear again that the lost commits deleted."""


def find_rules(table: Table, case: DamagedTable) -> set[DoctorRule]:
    findings = examine_opened_table(table, check_files=case.needs_check)
    return {finding.rule for finding in findings}


def read_rows(table: Table) -> Counter[str]:
    return Counter(map(str, canonical_rows(table.scan().to_arrow())))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", REPAIRED)
def test_damage_is_repaired(name: str, tmp_path: Path) -> None:
    case = REPAIRED[name]
    table = case.open(tmp_path / "lake")
    rows, sound = read_rows(table), find_rules(table, case)
    lost = case.damage(table)
    before = read_storage_state(tmp_path)

    selected = [case.rule] if case.is_selected else None
    planned = plan(table, RepairRequest(rules=tuple(selected) if selected else None))

    assert [action.rule for action in planned.actions] == [case.rule]
    assert planned.refused == ()
    assert read_storage_state(tmp_path) == before, "a plan must change nothing"
    assert len(repair(table, selected).results) == 1
    # Older snapshots and the tag of the state before still need missing files.
    remaining = {DoctorRule.UNREADABLE_SNAPSHOT, DoctorRule.DAMAGED_FILES}
    assert find_rules(table, case) - sound <= remaining - {case.rule}
    actions = plan(table, RepairRequest()).actions
    assert {action.rule for action in actions} <= {DoctorRule.UNREADABLE_SNAPSHOT}
    after = read_rows(table)
    if name in RESTORED:
        assert after == rows
    elif name not in ROLLED_BACK:
        assert after < rows
    if lost is not None:
        assert lost == (rows - after).total()
    latest = table.stores.snapshots.latest_id()
    findings = check(table, deep=True).findings
    assert [finding for finding in findings if f"snapshot {latest}" in finding.where] == []


@pytest.mark.parametrize("name", REFUSED)
def test_damage_that_cannot_be_repaired_is_refused_by_name(name: str, tmp_path: Path) -> None:
    case = REFUSED[name]
    table = case.open(tmp_path / "lake")
    case.damage(table)
    findings = examine_opened_table(table)
    errors = {finding.rule for finding in findings if finding.severity is Severity.ERROR}

    planned = plan(table, RepairRequest())

    assert planned.actions == ()
    assert {refusal.rule for refusal in planned.refused} == errors
    if case.rule not in REPAIRABLE_RULES:
        with pytest.raises(InputError, match=f"{case.rule}: not repaired by this command"):
            repair(table, [case.rule])


@pytest.mark.parametrize("name", ["a commit loses the hash index", "a hash index is deleted"])
def test_a_rebuilt_hash_index_has_the_hashes_that_java_wrote_for_live_keys(
    name: str, tmp_path: Path
) -> None:
    case = CORPUS[name]
    table = case.open(tmp_path / "lake")
    expected = read_hashes(table)
    case.damage(table)

    repair(table)

    actual = read_hashes(table)
    assert expected.keys() == actual.keys()
    # Java Paimon also keeps the hashes of keys whose rows a compaction dropped.
    assert all(set(actual[key]) <= set(expected[key]) for key in expected)
    assert sum(map(len, actual.values())) >= table.scan().to_arrow().num_rows


def read_hashes(table: Table) -> dict[object, list[int]]:
    entries = table.stores.manifests.read_index_entries(table.stores.snapshots.latest())
    paths = {e.partition_bucket: table.paths.index_file(table.load().schema, e) for e in entries
             if e.index_type == HASH_INDEX}  # fmt: skip
    return {
        key: decode_hash_index(Path(path).read_bytes(), path).tolist()
        for key, path in paths.items()
    }


def overlap(root: Path, **options: str) -> Table:
    """Return a table whose newest file overlaps the one before on the highest level."""
    table = new_table(root, **options)
    table.upsert(table_of("k v", [(1, "old"), (2, "old"), (3, "old")]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(2, "new"), (3, "new"), (4, "new")]))
    edit_files(table, 3, level=5)
    return table


EXPECTED = [(1, "old"), (2, "new"), (3, "new"), (4, "new")]


@pytest.mark.parametrize("with_vectors", ["true", "false"])
def test_the_newest_row_of_a_key_wins_and_the_others_are_put_aside(
    tmp_path: Path, with_vectors: str
) -> None:
    table = overlap(tmp_path, deletion_vectors__enabled=with_vectors)
    assert len(rows_of(table)) == 6, "readers do not merge files of one level"

    repair(table, ["overlapping-files"])

    assert rows_of(table) == EXPECTED
    [folder] = Quarantine.of(table).list_folders()
    [path] = (Path(table.paths.root) / ".quarantine" / folder / "rows").rglob("*.parquet")
    replaced = pq.read_table(path)
    assert replaced.select(["k", "v"]).to_pylist() == [{"k": 2, "v": "old"}, {"k": 3, "v": "old"}]
    assert Quarantine.of(table).restore(folder) == 0, "rows are not files of the table"
    assert path.exists()


VECTORS = {"deletion-vectors.enabled": "true"}
VECTORS_OF_NEW_TABLES = {"deletion_vectors__enabled": "true"}
SUMS = {
    "merge_engine": "aggregation",
    "fields__v__aggregate_function": "sum",
    "fields__w__aggregate_function": "sum",
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("newer", "options", "changed"),
    [
        (VECTORS, {}, [(2, 7, None), (3, 90, 5)]),
        (VECTORS, {"changelog_producer": "lookup"}, [(2, 7, None), (3, 90, 5)]),
        (VECTORS, {"merge_engine": "partial-update"}, [(2, 7, 2), (3, 90, 5)]),
        (VECTORS, SUMS, [(2, 27, 2), (3, 120, 8)]),
        (VECTORS, {**SUMS, "changelog_producer": "lookup"}, [(2, 7, None), (3, 90, 5)]),
        ({"merge-engine": "first-row"}, {}, [(2, 20, 2), (3, 30, 3)]),
    ],
)
def test_levels_that_readers_do_not_merge_any_more_are_merged_as_before(
    tmp_path: Path, newer: dict[str, str], options: dict[str, str], changed: list[object]
) -> None:
    table = stop_to_merge_levels(tmp_path, newer=newer, **options)
    assert len(rows_of(table)) == 8
    [finding] = [f for f in examine_opened_table(table) if f.severity is Severity.ERROR]
    assert (finding.rule, finding.command) == (DoctorRule.OVERLAPPING_FILES, "repair")

    result = repair(table)

    assert result.tag is not None
    expected = [(k, 10 * k, k) for k in (0, 1)] + changed + [(k, 10 * k, k) for k in (4, 5)]
    assert rows_of(table) == expected
    assert not plan(table, RepairRequest())
    table.upsert(table_of("k v w", [(9, 9, 9)]))
    compact(table, InProcessExecutor(), strategy="minor")
    assert rows_of(table) == [*expected, (9, 9, 9)]
    assert examine_opened_table(table) == []


@pytest.mark.parametrize("options", [{}, {"merge_engine": "partial-update"}, SUMS])
def test_a_compaction_is_refused_before_such_levels_are_repaired(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = stop_to_merge_levels(tmp_path, newer=VECTORS, **options)
    table.upsert(table_of("k v w", [(2, 1, 1), (3, 1, 1)]))
    before = table.snapshot()

    with pytest.raises(UnsupportedError, match=r"paimon-orch repair .* first. Nothing was changed"):
        compact(table, InProcessExecutor(), strategy="minor")
    if options:
        with pytest.raises(UnsupportedError, match="overlapping files on several levels"):
            compact(table, InProcessExecutor(), strategy="full")
    assert table.snapshot() == before


@pytest.mark.parametrize("options", [{}, {"changelog_producer": "full-compaction"}])
def test_a_full_compaction_keeps_the_newest_row_of_such_levels(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = stop_to_merge_levels(tmp_path, newer=VECTORS, **options)

    compact(table, InProcessExecutor(), strategy="full")

    unchanged = [(k, 10 * k, k) for k in (0, 1, 4, 5)]
    assert rows_of(table) == sorted([*unchanged, (2, 7, None), (3, 90, 5)])
    assert examine_opened_table(table) == []


@pytest.mark.parametrize(
    ("options", "fix"), [({}, "run a full compaction"), (SUMS, "overwrite the partition")]
)
def test_levels_whose_changelog_would_be_lost_are_not_merged(
    tmp_path: Path, options: dict[str, str], fix: str
) -> None:
    table = stop_to_merge_levels(
        tmp_path, newer=VECTORS, changelog_producer="full-compaction", **options
    )

    planned = plan(table, RepairRequest())

    assert planned.actions == ()
    assert fix in planned.refused[0].reason


def test_levels_of_tables_with_vectors_may_have_the_same_keys(tmp_path: Path) -> None:
    table = new_table(tmp_path, **VECTORS_OF_NEW_TABLES)
    for number in range(3):
        table.upsert(table_of("k v", [(k, str(number)) for k in range(0, 9, number + 1)]))
        compact(table, InProcessExecutor(), strategy="minor" if number else "full")
    assert len(set(levels_of(table))) > 1

    assert examine_opened_table(table) == []
    assert not plan(table, RepairRequest())


def write_newest_rows_below_older_ones(root: Path, **options: str) -> Table:
    """Return a table whose newest file is on level 5, and an older one on level 4."""
    table = new_table(root, "k BIGINT, a STRING, b STRING", **options)
    table.upsert(table_of("k a b", [(1, "a1", "b1"), (2, "a1", "b1")]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k a b", [(1, "a2", "b2"), (2, "a2", "b2")]))
    table.upsert(table_of("k a b", [(1, None, "b3"), (2, "a3", None)]))
    edit_files(table, 3, level=4)
    edit_files(table, 4, level=5)
    return table


def test_files_of_other_levels_are_kept_where_only_the_newest_row_counts(tmp_path: Path) -> None:
    table = write_newest_rows_below_older_ones(tmp_path)

    repair(table, ["overlapping-files"])

    assert sorted(levels_of(table)) == [4, 5]
    assert rows_of(table) == [(1, None, "b3"), (2, "a3", None)]


def test_values_of_a_key_are_merged_in_the_order_of_their_sequence(tmp_path: Path) -> None:
    table = write_newest_rows_below_older_ones(tmp_path, merge_engine="partial-update")

    repair(table)

    assert rows_of(table) == [(1, "a2", "b3"), (2, "a3", "b2")]
    assert [file.level for split in table.files() for file in split.files] == [5]


def test_an_order_that_a_merge_cannot_keep_is_refused(tmp_path: Path) -> None:
    table = write_newest_rows_below_older_ones(
        tmp_path, merge_engine="partial-update", changelog_producer="full-compaction"
    )

    planned = plan(table, RepairRequest())

    assert planned.actions == ()
    assert "'changelog-producer' = full-compaction" in planned.refused[0].reason


def test_a_deleted_row_stays_deleted_if_another_level_has_an_older_row(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "old"), (2, "old")]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(1, "new"), (2, "new")]))
    table.delete(table_of("k", [(1,)]))
    edit_files(table, 3, level=4)
    edit_files(table, 4, level=5)

    repair(table)

    assert rows_of(table) == [(2, "new")]


def test_duplicate_keys_on_several_levels_are_deleted_on_request(tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(0, "gone"), (1, "old"), (2, "old"), (3, "old")]))
    compact(table, InProcessExecutor(), strategy="full")
    table.delete(table_of("k", [(0,)]))
    compact(table, InProcessExecutor())
    table.upsert(table_of("k v", [(2, "new"), (3, "new"), (4, "new")]))
    edit_files(table, 5, level=4)
    assert len(rows_of(table)) == 6
    assert [f.rule for f in check(table, deep=True).findings] == ["live-twice"]
    assert not plan(table, RepairRequest())

    result = repair(table, ["duplicate-keys"])

    assert [action.text for action in result.plan.actions] == [
        "delete 2 rows of keys with a newer row in 1 bucket; the rows are put into the quarantine"
    ]
    assert rows_of(table) == EXPECTED
    assert not plan(table, RepairRequest(rules=(DoctorRule.DUPLICATE_KEYS,)))
    assert [f.where for f in check(table, deep=True).findings if "snapshot 6" in f.where] == []
    [path] = Path(table.paths.root).rglob("duplicates.parquet")
    assert sorted(pq.read_table(path)["k"].to_pylist()) == [2, 3]


def test_duplicate_keys_of_a_merge_on_read_table_are_no_damage(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))

    planned = plan(table, RepairRequest(rules=(DoctorRule.DUPLICATE_KEYS,)))

    assert "no damage" in planned.refused[0].reason


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_merging_overlapping_files_writes_no_changelog(tmp_path: Path, producer: str) -> None:
    table = overlap(tmp_path, changelog_producer=producer)

    repair(table)

    newest = table.snapshot()
    assert newest is not None
    assert (newest.changelog_manifest_list, newest.commit_kind.value) == (None, "COMPACT")
    assert rows_of(table) == EXPECTED


def test_a_first_row_table_keeps_the_first_row(tmp_path: Path) -> None:
    table = overlap(tmp_path, merge_engine="first-row")

    repair(table)

    assert rows_of(table) == [(1, "old"), (2, "old"), (3, "old"), (4, "new")]


def test_partitions_that_the_catalog_lacks_are_found_and_added(tmp_path: Path) -> None:
    recorded = RecordedPartitions(failure="down")
    created = new_table(
        tmp_path, key=(), partition_by=["v"], bucket="-1", metastore__partitioned_table="true"
    )
    table = through_catalog(created, recorded)
    table.append(table_of("k v", [(1, "a"), (2, "b")]))
    recorded.failure = None
    [finding] = examine_opened_table(table)
    assert (finding.rule, finding.command) == (
        DoctorRule.STALE_CATALOG_PARTITIONS,
        "sync-partitions",
    )

    repair(table)

    assert recorded.values() == [("a",), ("b",)]
    assert examine_opened_table(table) == []


def test_stale_iceberg_metadata_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, metadata__iceberg__storage="table-location")
    with monkeypatch.context() as patch:
        patch.setattr(IcebergPublisher, "publish", lambda _: None)
        table.upsert(table_of("k v", [(1, "a")]))

    [action] = repair(table).plan.actions

    assert action.rule is DoctorRule.STALE_ICEBERG_METADATA
    assert examine_opened_table(table) == []


def delete_file_of_snapshot(table: Table, snapshot_id: int) -> None:
    snapshot = table.stores.snapshots.get(snapshot_id)
    [entry] = table.stores.manifests.entries(
        table.stores.manifests.manifest_list(snapshot.delta_manifest_list)
    )
    path = table.paths.data_file(table.load().schema, entry.partition, entry.bucket, entry.file)
    Path(path).unlink()


def test_missing_and_overlapping_files_of_one_bucket_are_repaired(tmp_path: Path) -> None:
    table = overlap(tmp_path)
    table.upsert(table_of("k v", [(1, "lost"), (4, "lost")]))
    edit_files(table, 4, level=5)
    delete_file_of_snapshot(table, 4)

    result = repair(table)

    assert [action.rule for action in result.plan.actions] == [
        DoctorRule.MISSING_FILES,
        DoctorRule.OVERLAPPING_FILES,
    ]
    assert result.results[0].startswith("committed snapshot 5; 6 rows that readers now see in ")
    assert result.results[1] == "committed snapshot 6"
    assert result.tag is not None
    assert table.tags.get(result.tag).id == 4
    assert rows_of(table) == EXPECTED
    assert not plan(table, RepairRequest())


def test_a_repair_that_an_earlier_one_made_needless_is_left_out(tmp_path: Path) -> None:
    table = overlap(tmp_path)
    delete_file_of_snapshot(table, 3)

    result = repair(table)

    assert result.results[0].startswith("committed snapshot 4; 2 rows that readers now see in ")
    assert result.results[1] == "not needed any more"
    assert rows_of(table) == [(1, "old"), (2, "old"), (3, "old")]


def test_a_wrong_hint_is_put_aside(tmp_path: Path) -> None:
    case = CORPUS["EARLIEST names an expired snapshot"]
    table = case.open(tmp_path / "lake")
    case.damage(table)

    repair(table)

    quarantine = Quarantine.of(table)
    [folder] = quarantine.list_folders()
    aside = Path(quarantine.path) / folder / "snapshot" / "EARLIEST"
    assert aside.read_text() == "1"
    assert quarantine.restore() == 0, "a restore replaces no file"
    assert table.stores.snapshots.hint("EARLIEST") == table.stores.snapshots.ids()[0]


def test_a_repair_that_needs_an_earlier_one_is_deferred(tmp_path: Path) -> None:
    table = CORPUS["the newest snapshot is deleted"].open(tmp_path / "lake")
    CORPUS["the newest snapshot is deleted"].damage(table)

    planned = plan(table, RepairRequest())

    assert [action.rule for action in planned.actions] == [DoctorRule.WRONG_HINT]
    assert DoctorRule.MISSING_FILES in planned.deferred
    assert planned.refused == ()


class TestKills:
    """A killed repair leaves a table that can be read, and repeating it completes it."""

    pytestmark = MARKS

    @pytest.mark.slow
    def test_a_killed_repair_is_completed_by_repeating_it(self, tmp_path: Path) -> None:
        table = overlap(tmp_path / "lake")
        (Path(table.paths.root) / "snapshot" / "LATEST").unlink()
        damaged = rows_of(table)

        for number, dead in enumerate(kill_at_each_change(table, tmp_path, repair)):
            assert rows_of(dead) in (damaged, EXPECTED)
            if number % 4 == 0:  # between the repairs, and within the second one
                repair(dead)
                assert rows_of(dead) == EXPECTED
