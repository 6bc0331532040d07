"""Each finding of the doctor names a command that heals it, or says why no command does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.commands import Run
from support.damage import data_files, edit_snapshot
from support.damaged_tables import CORPUS
from support.golden import GOLDEN, copy_warehouse
from support.tables import catalog_of, new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.decode_limits import LIMIT_FACTOR_VARIABLE, build_limit_error
from paimon_orch.errors import AccessDeniedError
from paimon_orch.files.parquet import page_check
from paimon_orch.steps import compact_manifests
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection import snapshot_chain
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.inspection.damage import way_back
from paimon_orch.steps.inspection.doctor.doctor import examine_table
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorFinding, DoctorRule, Severity
from paimon_orch.steps.repairs.repair import RepairRequest, plan
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.table import Table

MAX_COMMANDS = 4
ASKS = {"repair", "rollback", "expire-snapshots"}


def examine(table: Table) -> list[DoctorFinding]:
    return examine_table(catalog_of(table), table.identifier, deep=True)


def run_command(run: Run, table: Table, finding: DoctorFinding) -> None:
    """Run the command of a finding; it must succeed and end the finding."""
    command = finding.command
    assert command is not None
    name, *options = command.split()
    warehouse = Path(table.paths.root).parents[1]
    confirmed = ["--yes"] if name in ASKS else []
    answer = run(name, warehouse, table.identifier, *options, *confirmed)
    assert answer.status == 0 or "not repaired" in answer.out, (command, answer)
    assert all(each.text != finding.text for each in examine(table)), (finding, answer)


def heal(run: Run, table: Table, accepted: Sequence[DoctorFinding]) -> list[DoctorFinding]:
    """Run the commands of the findings one after the other; return the findings without one."""
    known = {(finding.rule, finding.text) for finding in accepted}
    for _ in range(MAX_COMMANDS):
        findings = [f for f in examine(table) if (f.rule, f.text) not in known]
        for finding in findings:
            assert (finding.command is None) != (finding.advice is None), finding
        fixable = [finding for finding in findings if finding.command is not None]
        if not fixable:
            return findings
        run_command(run, table, fixable[0])
    pytest.fail(f"findings remain after {MAX_COMMANDS} commands: {findings}")


NOT_HEALED = {
    # All snapshots need the schema.
    "the schema is deleted": DoctorRule.UNREADABLE_TABLE,
    # Somebody has to decide, or to write again.
    "a writer overwrites a snapshot": DoctorRule.OVERWRITTEN_SNAPSHOT,
    "a writer overwrites the newest snapshot": DoctorRule.LOST_COMMIT,
    "the clock of a writer is slow": DoctorRule.CLOCK_SKEW,
    "an option is misspelled": DoctorRule.OPTION,
    "rows are written for another number of buckets (#3841)": DoctorRule.DAMAGED_FILES,
}
"""The damage that no command heals, and the rule whose finding says so."""
LEFT_IN_HISTORY = {DoctorRule.DAMAGED_FILES}
"""Older snapshots and the tag of the state before a repair still need what is damaged."""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CORPUS)
def test_each_damage_of_the_corpus_is_walked_to_its_end(
    run: Run, tmp_path: Path, name: str
) -> None:
    case = CORPUS[name]
    table = case.open(tmp_path / "lake")
    sound = examine(table)
    case.damage(table)
    assert case.rule in {finding.rule for finding in examine(table)}

    rest = {finding.rule for finding in heal(run, table, sound)}

    if name in NOT_HEALED:
        assert NOT_HEALED[name] in rest
    else:
        assert rest <= LEFT_IN_HISTORY
        table.scan().to_arrow()


def truncate(path: Path | str) -> None:
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: len(data) // 2])


def metadata_path(table: Table, field: str) -> str:
    latest = table.stores.snapshots.latest()
    return f"{table.paths.manifest_dir}/{getattr(latest, field)}"


def manifest_path(table: Table, index: int) -> str:
    latest = table.stores.snapshots.latest()
    assert latest is not None
    name = table.stores.manifests.manifests(latest)[index].file_name
    return f"{table.paths.manifest_dir}/{name}"


def tag_path(table: Table) -> str:
    table.tags.create("release", 2)
    return f"{table.paths.tag_dir}/tag-release"


def changelog_path(table: Table) -> Path:
    path = Path(table.paths.changelog_dir) / "changelog-1"
    path.parent.mkdir()
    path.write_bytes(Path(table.stores.snapshots.path(1)).read_bytes())
    return path


def consumer_path(table: Table) -> str:
    table.stores.open_consumers().record("reader", 3)
    return f"{table.paths.root}/consumer/consumer-reader"


TRUNCATED: dict[str, tuple[Callable[[Table], Path | str], DoctorRule]] = {
    "newest snapshot": (
        lambda table: table.stores.snapshots.path(4),
        DoctorRule.UNREADABLE_TABLE,
    ),
    "older snapshot": (
        lambda table: table.stores.snapshots.path(2),
        DoctorRule.UNREADABLE_SNAPSHOT,
    ),
    "base manifest list": (
        lambda table: metadata_path(table, "base_manifest_list"),
        DoctorRule.UNREADABLE_TABLE,
    ),
    "delta manifest list": (
        lambda table: metadata_path(table, "delta_manifest_list"),
        DoctorRule.UNREADABLE_TABLE,
    ),
    "index manifest": (
        lambda table: metadata_path(table, "index_manifest"),
        DoctorRule.UNREADABLE_TABLE,
    ),
    "newest manifest": (lambda table: manifest_path(table, -1), DoctorRule.MISSING_MANIFESTS),
    "manifest of all snapshots": (
        lambda table: manifest_path(table, 0),
        DoctorRule.MISSING_MANIFESTS,
    ),
    "hint": (lambda table: f"{table.paths.snapshot_dir}/LATEST", DoctorRule.WRONG_HINT),
    "tag": (tag_path, DoctorRule.UNREADABLE_REFERENCES),
    "changelog": (changelog_path, DoctorRule.UNREADABLE_REFERENCES),
    "consumer": (consumer_path, DoctorRule.UNREADABLE_REFERENCES),
    "data file": (lambda table: data_files(table)[0], DoctorRule.UNREADABLE_FILES),
}


def write_deletes(root: Path) -> Table:
    """Return a table whose fourth and newest snapshot has deletion vectors."""
    table = new_table(root, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(number, "a") for number in range(10)]))
    compact(table, InProcessExecutor(), strategy="full")
    table.delete(table_of("k", [(1,)]))
    compact(table, InProcessExecutor())
    assert table.stores.snapshots.ids() == [1, 2, 3, 4]
    return table


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", TRUNCATED)
def test_each_truncated_file_is_found_and_healed(run: Run, tmp_path: Path, kind: str) -> None:
    find_path, rule = TRUNCATED[kind]
    table = write_deletes(tmp_path)
    sound = examine(table)
    truncate(find_path(table))

    findings = examine(table)
    assert rule in {finding.rule for finding in findings}
    assert not any("JSONDecodeError" in finding.text for finding in findings)

    rest = {finding.rule for finding in heal(run, table, sound)}

    assert rest <= LEFT_IN_HISTORY
    table.scan().to_arrow()
    table.upsert(table_of("k v", [(99, "new")]))
    compact(table, InProcessExecutor(), strategy="full")
    assert (99, "new") in rows_of(table)


def write_merged_manifests(root: Path) -> Table:
    """Return a table whose snapshots 7 to 9 need no manifest and no index file of those before."""
    table = write_deletes(root)
    table.upsert(table_of("k v", [(20, "b")]))
    compact(table, InProcessExecutor(), strategy="full")
    compact_manifests(table)
    for number in range(2):
        table.upsert(table_of("k v", [(30 + number, "c")]))
    return table


def name_manifest(table: Table, snapshot: int) -> str:
    """Return the name of the last manifest of a snapshot."""
    stores = table.stores
    return stores.manifests.manifests(stores.snapshots.get(snapshot))[-1].file_name


SHARED: dict[str, tuple[Callable[[Table], str | None], DoctorRule]] = {
    "manifest of all older snapshots": (
        lambda table: name_manifest(table, 1),
        DoctorRule.UNREADABLE_SNAPSHOT,
    ),
    "manifest of two older snapshots": (
        lambda table: name_manifest(table, 5),
        DoctorRule.UNREADABLE_SNAPSHOT,
    ),
    "index manifest of older snapshots": (
        lambda table: table.stores.snapshots.get(4).index_manifest,
        DoctorRule.UNREADABLE_SNAPSHOT,
    ),
    "manifest of the newest snapshots": (
        lambda table: name_manifest(table, 7),
        DoctorRule.MISSING_MANIFESTS,
    ),
}
"""Files of metadata that several snapshots need, and the rule that finds their damage."""


@pytest.mark.parametrize("examined", [5, 20])
@pytest.mark.parametrize("kind", SHARED)
def test_a_damaged_file_that_several_snapshots_need_is_one_finding_with_a_repair(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, examined: int
) -> None:
    for module in (snapshot_chain, way_back):
        monkeypatch.setattr(module, "MAX_SNAPSHOTS", examined)
    find_name, rule = SHARED[kind]
    table = write_merged_manifests(tmp_path)
    sound = examine(table)
    truncate(f"{table.paths.manifest_dir}/{find_name(table)}")

    findings = [each for each in examine(table) if each.severity is Severity.ERROR]

    assert [(each.rule, each.command) for each in findings] == [(rule, "repair")]
    rest = {finding.rule for finding in heal(run, table, sound)}
    assert rest <= LEFT_IN_HISTORY


def test_a_lost_data_file_is_one_finding_of_a_check(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    [path] = data_files(table)
    path.unlink()

    [finding] = check(table, deep=True).findings

    assert (finding.rule, finding.text) == ("missing-file", f"{path} does not exist")


def test_the_truncated_newest_snapshot_is_kept_in_the_quarantine(run: Run, tmp_path: Path) -> None:
    table = write_deletes(tmp_path)
    before = table.stores.snapshots.get(3)
    truncate(table.stores.snapshots.path(4))

    answer = run("repair", tmp_path, "db.t", "--dry-run")
    assert "roll back to snapshot 3" in answer.out
    assert table.stores.snapshots.exists(4)
    run("repair", tmp_path, "db.t", "--yes")

    assert table.stores.snapshots.latest() == before
    [folder] = Quarantine.of(table).list_folders()
    assert [p.name for p in (Path(table.paths.root) / ".quarantine" / folder).rglob("s*-4")] == [
        "snapshot-4"
    ]


def test_a_tag_replaces_the_truncated_file_of_its_snapshot(run: Run, tmp_path: Path) -> None:
    table = write_deletes(tmp_path)
    rows = rows_of(table)
    table.tags.create("release", 4)
    truncate(table.stores.snapshots.path(4))

    assert "snapshot 4 of the tag release" in examine(table)[0].text
    assert "no row is lost" in run("repair", tmp_path, "db.t", "--yes").out

    assert rows_of(table) == rows
    assert not plan(table, RepairRequest())


def test_a_table_without_a_readable_snapshot_has_no_command(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    truncate(table.stores.snapshots.path(1))

    [finding] = examine(table)

    assert finding.command is None
    assert finding.advice is not None
    assert "restore the file from a backup" in finding.advice


def flip_bytes(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for index in range(4, 60):
        data[index] ^= 0xFF
    path.write_bytes(bytes(data))


def test_flipped_bytes_of_a_data_file_are_found_by_reading_it(run: Run, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(2):
        table.upsert(table_of("k v", [(1, f"a{number}"), (number + 10, "b")]))
    [path] = [path for path in data_files(table) if path.name not in names_of(table, 1)]
    flip_bytes(path)
    assert examine_table(catalog_of(table), "db.t", check_files=True) == []

    [finding] = examine(table)

    assert finding.rule is DoctorRule.UNREADABLE_FILES
    assert path.name in finding.text
    assert "bucket 0, 2 rows" in finding.text
    assert finding.cost["rows"] == 2
    planned = run("repair", tmp_path, "db.t", "--rule", "unreadable-files", "--dry-run").out
    assert "2 rows of them are lost" in planned
    assert "--snapshot 1 --as-latest" in planned
    run_command(run, table, finding)
    assert rows_of(table) == [(1, "a0"), (10, "b")]
    assert path.exists(), "the tag of the state before keeps the file"


def names_of(table: Table, snapshot: int) -> set[str]:
    entries = table.stores.manifests.read_live_entries(table.stores.snapshots.get(snapshot))
    return {entry.file.file_name for entry in entries}


def test_a_damaged_file_of_a_compaction_is_replaced_by_its_inputs(run: Run, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(2):
        table.upsert(table_of("k v", [(1, f"a{number}"), (number + 10, "b")]))
    rows = rows_of(table)
    compact(table, InProcessExecutor(), strategy="full")
    flip_bytes(data_files(table)[0])

    answer = run("repair", tmp_path, "db.t", "--rule", "unreadable-files", "--yes")

    assert "no row is lost" in answer.out
    assert rows_of(table) == rows
    compact(table, InProcessExecutor(), strategy="full")
    assert rows_of(table) == rows


@pytest.mark.parametrize("number", [1, 3])
def test_a_snapshot_of_a_newer_format_version_is_no_damage(
    tmp_path: Path, run: Run, number: int
) -> None:
    table = new_table(tmp_path)
    for key in range(3):
        table.upsert(table_of("k v", [(key, "x")]))
    edit_snapshot(table, number, version=99)
    before = stored_files(table)

    findings = examine(table)
    answer = run("repair", tmp_path, table.identifier, "--yes", "--rule", "unreadable-table")
    run("repair", tmp_path, table.identifier, "--yes")

    assert [finding.rule for finding in findings] == [DoctorRule.UNSUPPORTED_TABLE]
    assert "roll back" not in answer.out
    assert stored_files(table) == before


def test_a_refused_access_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path)
    for key in range(3):
        table.upsert(table_of("k v", [(key, "x")]))

    def refuse(*_: object) -> None:
        raise AccessDeniedError("the user may not read manifest lists")

    monkeypatch.setattr(ManifestReader, "manifests", refuse)

    planned = plan(table, RepairRequest(rules=(DoctorRule.UNREADABLE_TABLE,)))

    assert planned.actions == ()
    assert [finding.command for finding in examine(table)] == [None]


def test_a_file_that_exceeds_the_memory_limit_is_no_damage(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "x" * 10_000)]))

    def refuse(_needed: float, stored_bytes: int, content: str) -> None:
        raise build_limit_error(content, 0, stored_bytes)

    monkeypatch.setattr(page_check, "check_batch_bytes", refuse)
    before = stored_files(table)

    answer = run("repair", tmp_path, "db.t", "--rule", "unreadable-files", "--yes")

    assert answer.status == 1
    assert LIMIT_FACTOR_VARIABLE in answer.out
    assert "The file may be valid" in answer.out
    assert stored_files(table) == before
    assert DoctorRule.UNREADABLE_FILES not in {finding.rule for finding in examine(table)}


def test_a_damaged_oldest_snapshot_is_one_finding_and_stops_no_other_tool(
    run: Run, tmp_path: Path
) -> None:
    table = new_table(tmp_path)
    for text in "abc":
        table.upsert(table_of("k v", [(1, text)]))
    Path(table.paths.root, "snapshot", "snapshot-1").write_bytes(b"")

    [finding] = examine(table)

    assert finding.rule is DoctorRule.UNREADABLE_SNAPSHOT
    for command in ("why", "inspect", "compact"):
        assert run(command, tmp_path, "db.t", *(["--dry-run"] * (command == "compact"))).status == 0
    assert run("repair", tmp_path, "db.t", "--yes").status == 0
    assert examine(table) == []


def test_a_repair_asks_for_another_run_only_if_there_is_more_to_repair(
    run: Run, tmp_path: Path
) -> None:
    table = new_table(tmp_path)
    for text in "abc":
        table.upsert(table_of("k v", [(1, text)]))
    Path(table.paths.root, "snapshot", "snapshot-3").write_bytes(b"{")
    assert "run repair again for: " in run("repair", tmp_path, "db.t", "--dry-run").out

    repaired = run("repair", tmp_path, "db.t", "--yes", "--json").json

    assert repaired["deferred"]
    assert repaired["next"] == []
    assert examine(table) == []


@pytest.mark.parametrize("damage", [Path.unlink, truncate])
def test_index_files_that_are_missing_or_damaged_are_rewritten(
    run: Run, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-0.9/fileindex_bloom", tmp_path / "lake")
    table = Catalog(str(warehouse)).table("db.t_ext")
    rows = sorted(map(str, table.scan().to_arrow().to_pylist()))
    sound = examine(table)
    for path in Path(table.paths.root).rglob("*.index"):
        damage(path)
    known = {finding.text for finding in sound}
    [finding] = [each for each in examine(table) if each.text not in known]
    assert finding.rule is DoctorRule.MISSING_FILE_INDEXES

    rest = heal(run, table, sound)

    assert {each.rule for each in rest} <= {DoctorRule.MISSING_FILE_INDEXES}  # of old snapshots
    assert sorted(map(str, table.scan().to_arrow().to_pylist())) == rows
    compact(table, strategy="full")
    assert (
        run(
            "expire-snapshots",
            warehouse,
            "db.t_ext",
            "--retain-max",
            "1",
            "--retain-min",
            "1",
            "--yes",
        ).status
        == 0
    )
    assert examine(table) == []
