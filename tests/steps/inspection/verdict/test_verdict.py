"""A command that doctor, checks, why, the sensor or the autopilot name changes something and heals."""

from __future__ import annotations

import shlex
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from support.commands import Run
from support.golden import GOLDEN, copy_warehouse
from support.tables import catalog_of, new_table, table_of

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.orchestration.health_limits import evaluate_health
from paimon_orch.steps.autopilot.action_outcome import OutcomeKind
from paimon_orch.steps.autopilot.decisions import ActionKind
from paimon_orch.steps.autopilot.maintenance_plan import plan_maintenance
from paimon_orch.steps.autopilot.maintenance_request import MaintenanceRequest
from paimon_orch.steps.autopilot.run_maintenance import run_maintenance
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.compaction.decide import decide
from paimon_orch.steps.inspection.doctor.doctor import examine_opened_table
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorRule, Severity
from paimon_orch.steps.inspection.health_metrics import COMPACTIONS
from paimon_orch.steps.inspection.verdict.verdict import judge
from paimon_orch.table.table import Table

COMMANDS = {
    "compact",
    "compact-manifests",
    "expire-snapshots",
    "materialize-deletion-vectors",
    "repair",
    "rewrite-file-index",
}
MAX_COMMANDS = 5
COMPACTED = {"level0_backlog": 100, "sorted_runs": 10, "small_files": 0.5}
COMPACTED_RULES = {
    DoctorRule.LEVEL0_BACKLOG,
    DoctorRule.SORTED_RUNS,
    DoctorRule.SMALL_FILES,
    DoctorRule.DELETED_ROWS,
}
COMPACTION_KINDS = {ActionKind.MINOR_COMPACTION, ActionKind.FULL_COMPACTION}


class Kind(NamedTuple):
    """A kind of table."""

    options: dict[str, str]
    has_key: bool = True


EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
KINDS = {
    "merge on read": Kind({"bucket": "1"}),
    "high trigger": Kind({"bucket": "2", "num-sorted-run.compaction-trigger": "100"}),
    "deletion vectors": Kind({"bucket": "1", "deletion-vectors.enabled": "true"}),
    "first row": Kind({"bucket": "2", "merge-engine": "first-row"}),
    "dynamic buckets": Kind({"bucket": "-1"}),
    "postpone": Kind({"bucket": "-2"}),
    "append": Kind({"bucket": "-1"}, has_key=False),
    "many small files": Kind({"bucket": "-1", "compaction.min.file-num": "100"}, has_key=False),
    "append with buckets": Kind({"bucket": "2", "bucket-key": "id"}, has_key=False),
    "data evolution": Kind(
        {"bucket": "-1", "deletion-vectors.enabled": "true", **EVOLVING}, has_key=False
    ),
    "no merges": Kind({"bucket": "1", "num-sorted-run.compaction-trigger": "1000"}),
    "file index": Kind({"bucket": "-1", "file-index.bloom-filter.columns": "id"}, has_key=False),
}
QUICK = [("high trigger", 3), ("many small files", 1), ("append with buckets", 0)]
# One worker runs the tests of a case, which copy one table.
CASES = [pytest.param(name, seed, marks=[
             pytest.mark.xdist_group(f"verdict of {name} {seed}"),
             *([] if (name, seed) in QUICK else [pytest.mark.slow]),
         ])
         for name in KINDS for seed in range(4)]  # fmt: skip


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tables that are copied."""
    return tmp_path_factory.mktemp("originals")


@pytest.fixture
def table(run: Run, originals: Path, tmp_path: Path, name: str, seed: int) -> Table:
    """A copy of the table of a case."""
    original = originals / f"{name} {seed}"
    if not original.exists():
        build_table(run, original, KINDS[name], seed)
    shutil.copytree(original, tmp_path, copy_function=shutil.copy2, dirs_exist_ok=True)
    return Catalog(str(tmp_path)).table("db.t")


def build_table(run: Run, root: Path, kind: Kind, seed: int) -> None:
    """Create a table with random writes, deletes and compactions."""
    chance = np.random.default_rng(seed)
    partitions = int(chance.choice([0, 3]))
    keys = [*(["dt"] if partitions else []), "id"]
    table = Catalog(str(root)).create_table(
        "db.t",
        "id BIGINT NOT NULL, dt STRING NOT NULL, v STRING",
        primary_key=keys if kind.has_key else [],
        partition_by=["dt"] if partitions else [],
        options=kind.options,
    )
    for _ in range(chance.choice([3, 12, 30])):
        ids = chance.choice(50, chance.choice([1, 5]), replace=False).tolist()
        partition = f"p{chance.integers(max(1, partitions))}"
        columns: dict[str, Any] = {"id": ids, "dt": [partition] * len(ids), "v": ["x"] * len(ids)}
        (table.upsert if kind.has_key else table.append)(pa.table(columns))
        if chance.random() < 0.05:
            run("compact", root, "db.t", "--executor", "local")
    if chance.random() < 0.4 and kind.options["bucket"] != "-2":
        run("delete", root, "db.t", "--where", "id < 30", "--executor", "local")
    if chance.random() < 0.3:  # deletion vectors, and rows of level 0 after them
        run("compact", root, "db.t", "--executor", "local")
        rows = pa.table({"id": [100], "dt": ["p0"], "v": ["new"]})
        (table.upsert if kind.has_key else table.append)(rows)


def run_on_table(run: Run, root: Path, table: Table, command: str) -> None:
    """Run a command; it must succeed and commit a snapshot."""
    before = table.stores.snapshots.latest_id()
    name, *options = command.split()
    answer = run(name, root, "db.t", *options, *(["--yes"] if name == "repair" else []))
    assert answer.status == 0, answer
    assert table.stores.snapshots.latest_id() != before, command


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_each_command_that_doctor_names_changes_the_table_and_ends_the_finding(
    run: Run, tmp_path: Path, table: Table, name: str, seed: int
) -> None:
    for _ in range(MAX_COMMANDS):
        findings = [
            finding
            for finding in examine_opened_table(table)
            if finding.command is not None and finding.command.split()[0] in COMMANDS
        ]
        if not findings:
            break
        run_on_table(run, tmp_path, table, findings[0].command or "")
        assert findings[0].rule not in {each.rule for each in examine_opened_table(table)}
    else:
        pytest.fail("doctor has a finding after each command")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_each_compaction_that_the_sensor_requests_changes_the_table(
    run: Run, tmp_path: Path, table: Table, name: str, seed: int
) -> None:
    for decision in decide(table, overdue=None):
        if decision.compact:
            partition = ["--partitions", decision.partition] if decision.partition else []
            strategy = ["--strategy", decision.strategy]
            run_on_table(run, tmp_path, table, " ".join(["compact", *strategy, *partition]))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_the_command_that_why_names_saves_about_what_it_says(
    run: Run, tmp_path: Path, table: Table, name: str, seed: int
) -> None:
    for _ in range(MAX_COMMANDS):
        before = judge(table)
        if before.command is None:
            break
        assert before.remedy is not None
        program, command, location, identifier, *options = shlex.split(before.command)
        assert (program, location, identifier) == ("paimon-orch", str(tmp_path), "db.t")
        run_on_table(run, tmp_path, table, " ".join([command, *options]))
        now = judge(table)
        assert now.now.files <= before.remedy.after.files * 1.2 + 1  # it is an estimate
        assert now.now.requests <= before.remedy.after.requests * 1.2 + 2
        if command == "compact":
            assert now.rows_not_visible == 0
    else:
        pytest.fail("there is a command after each command")
    answer = run("why", tmp_path, "db.t", "--json").json
    files = [file for split in table.scan().plan() for file in split.files]
    assert (answer["command"], answer["now"]["files"]) == (None, len(files))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_all_tools_name_one_compaction(
    run: Run, tmp_path: Path, table: Table, name: str, seed: int
) -> None:
    named = {
        finding.command
        for finding in examine_opened_table(table)
        if finding.command is not None and finding.command.startswith("compact ")
    } | ({"compact"} & {finding.command for finding in examine_opened_table(table)})

    assert len(named) <= 1
    why = run("why", tmp_path, "db.t", "--json").json
    shown = run("inspect", tmp_path, "db.t", "--json").json["verdict"]
    if why["problems"] or why["rows_not_visible"]:
        assert shown["command"] == why["command"]
    else:
        assert shown is None
    for command in named:
        name, *options = command.split()
        assert shlex.split(why["command"])[1:] == [name, str(tmp_path), "db.t", *options]
        texts = {"compact": "run the compaction.", "compact --strategy full": "strategy: full."}
        for outcome in evaluate_health(table, COMPACTED):
            assert outcome.passed or outcome.description.endswith(texts[command])
    text = run("compact", tmp_path, "db.t", "--dry-run").out
    if named == {"compact"}:
        assert "nothing to compact" not in text.splitlines()[0]
    elif named and text.startswith("nothing"):
        assert "with --strategy full" in text


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_the_autopilot_ends_what_doctor_calls_due(
    run: Run, tmp_path: Path, table: Table, name: str, seed: int
) -> None:
    def find_due() -> set[DoctorRule]:
        return {
            finding.rule
            for finding in examine_opened_table(table)
            if finding.rule in COMPACTED_RULES
            and finding.severity is Severity.WARNING
            and finding.command in COMPACTIONS
        }

    for _ in range(MAX_COMMANDS):
        due = find_due()
        planned = plan_maintenance(catalog_of(table), MaintenanceRequest(history_table=None))
        compactions = [each for each in planned.actions if each.action in COMPACTION_KINDS]
        assert compactions or not due, [str(skip) for skip in planned.skips]
        if not compactions:
            break
        done = run_maintenance(catalog_of(table), planned)
        assert all(outcome.kind is OutcomeKind.DONE for outcome in done.outcomes), done.outcomes
    else:
        pytest.fail("the autopilot has a compaction after each run")


def test_a_failed_check_names_the_compaction_after_which_it_passes(
    run: Run, tmp_path: Path
) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "id BIGINT NOT NULL", primary_key=["id"], options={"bucket": "1"}
    )
    for number in range(2):
        table.upsert(pa.table({"id": [number]}))

    def describe(**limits: float) -> list[str]:
        return [each.description for each in evaluate_health(table, limits)]

    assert describe(sorted_runs=1) == ["To fix this, run the compaction with strategy: full."]
    assert "num-sorted-run.compaction-trigger" in describe(sorted_runs=0)[0]
    explained = run("compact", tmp_path, "db.t").out
    assert explained.startswith("nothing to compact by the table's options; with --strategy full, ")
    run_on_table(run, tmp_path, table, "compact --strategy full")
    assert describe(sorted_runs=1) == ["Within the limit."]
    assert run("compact", tmp_path, "db.t").out == "nothing to compact\n"


def test_a_compaction_of_level_0_is_not_named_for_deleted_rows_of_other_files(
    run: Run, tmp_path: Path
) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(number, "a") for number in range(100)]))
    run("compact", tmp_path, "db.t", "--strategy", "full", "--executor", "local")
    table.delete(table_of("k", [(number,) for number in range(40)]))
    run("compact", tmp_path, "db.t", "--executor", "local")
    table.upsert(table_of("k v", [(500, "new")]))

    findings = examine_opened_table(table)

    assert {finding.rule: finding.command for finding in findings} == {
        DoctorRule.ROWS_NOT_VISIBLE: "compact --strategy full",
        DoctorRule.DELETED_ROWS: "compact --strategy full",
    }
    run_on_table(run, tmp_path, table, "compact --strategy full --executor local")
    assert examine_opened_table(table) == []


def test_why_names_a_compaction_for_rows_that_readers_do_not_see(run: Run, tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(1, "a")]))

    paragraph = run("why", tmp_path, "db.t").out

    assert f"After paimon-orch compact {tmp_path} db.t: all rows visible. " in paragraph


def test_a_compaction_that_shows_rows_is_due_for_all_that_it_heals(tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(1, "a")]))

    findings = examine_opened_table(table, now=time.time() + 3 * 24 * 3600)

    assert {finding.rule: finding.severity for finding in findings} == {
        DoctorRule.ROWS_NOT_VISIBLE: Severity.WARNING,
        DoctorRule.NO_COMPACTION: Severity.WARNING,
    }
    assert len({finding.command for finding in findings}) == 1


def test_a_compaction_that_saves_too_little_is_advice(tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(number, "a") for number in range(100)]))
    compact(table, strategy="full")
    table.delete(table_of("k", [(number,) for number in range(40)]))
    compact(table)

    [finding] = examine_opened_table(table)

    assert (finding.rule, finding.severity) == (DoctorRule.DELETED_ROWS, Severity.ADVICE)
    assert finding.text.endswith(", which saves a scan too little to be due")
    planned = plan_maintenance(catalog_of(table), MaintenanceRequest(history_table=None))
    assert not planned.actions


def test_a_compaction_to_several_small_files_is_named_for_the_sorted_runs_that_it_merges(
    tmp_path: Path,
) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-0.9" / "pk_multi_file_runs", tmp_path / "lake")
    table = Catalog(str(warehouse)).table("db.t")  # target-file-size = 3 kb

    [finding] = examine_opened_table(table)
    assert (finding.rule, finding.command) == (DoctorRule.NO_COMPACTION, "compact --strategy full")
    compact(table, strategy="full")
    assert examine_opened_table(table) == []


def test_doctor_and_the_autopilot_score_a_compaction_alike(tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-0.9" / "alltypes_pk", tmp_path / "lake")
    catalog = Catalog(str(warehouse))

    [finding] = examine_opened_table(catalog.table("db.t"))
    planned = plan_maintenance(catalog, MaintenanceRequest(history_table=None))

    assert (finding.rule, finding.severity) == (DoctorRule.NO_COMPACTION, Severity.WARNING)
    assert ActionKind.FULL_COMPACTION in {action.action for action in planned.actions}


def test_the_expiration_that_doctor_names_ends_its_finding(run: Run, tmp_path: Path) -> None:
    retained = {"snapshot__num_retained__min": "1", "snapshot__num_retained__max": "1"}
    table = new_table(tmp_path, **retained, snapshot__expire__limit="2")
    for number in range(6):
        table.upsert(table_of("k v", [(number, "a")]))

    [finding] = examine_opened_table(table)

    assert finding.command == "expire-snapshots --max-deletes 5"
    text = "files of 5 snapshots that expired by the table's options are still stored"
    assert finding.text == text
    assert [each.description for each in evaluate_health(table, {"snapshot_count": 1})] == [
        "To fix this, run expire_snapshots."
    ]
    name, *options = finding.command.split()
    assert run(name, tmp_path, "db.t", *options).status == 0
    assert examine_opened_table(table) == []


def test_a_check_names_no_expiration_that_retains_the_snapshots(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(3):
        table.upsert(table_of("k v", [(number, "a")]))

    [outcome] = evaluate_health(table, {"snapshot_count": 2})

    assert not outcome.passed
    assert outcome.description.startswith("To fix this, lower snapshot.num-retained.min ")


def test_consumers_that_retain_only_changelogs_hold_no_expiration(run: Run, tmp_path: Path) -> None:
    options = {"snapshot__num_retained__min": "1", "snapshot__num_retained__max": "1"}
    table = new_table(tmp_path, **options, consumer__changelog_only="true")
    for number in range(3):
        table.upsert(table_of("k v", [(number, "a")]))
    table.stores.open_consumers().record("reader", 1)

    [finding] = examine_opened_table(table)
    [outcome] = evaluate_health(table, {"snapshot_count": 1})

    assert finding.command == "expire-snapshots"
    assert outcome.description == "To fix this, run expire_snapshots."
    assert run("expire-snapshots", tmp_path, "db.t").status == 0
    assert table.stores.snapshots.ids() == [3]
    assert examine_opened_table(table) == []


def test_partitions_that_are_beyond_a_limit_only_together_are_compacted_in_one_action(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, "p INT, k BIGINT", key=("p", "k"), partition_by=["p"])
    for _ in range(2):
        table.upsert(table_of("p k", [(number, 1) for number in range(60)]))
    catalog, request = catalog_of(table), MaintenanceRequest(history_table=None)
    [rule, *_] = (finding.rule for finding in examine_opened_table(table))
    assert rule is DoctorRule.LEVEL0_BACKLOG

    planned = plan_maintenance(catalog, request)

    [action] = planned.actions
    assert (action.partition, action.is_full, action.saved_requests) == ("", True, 60)
    assert action.reason.startswith("120 files in level 0 (limit 100); ")
    run_maintenance(catalog, planned)
    assert examine_opened_table(table) == []
    assert not plan_maintenance(catalog, request).actions


def test_the_sensor_names_the_command_for_a_partition_that_the_options_leave_beyond_a_limit(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, num_sorted_run__compaction_trigger="100")
    for number in range(11):
        table.upsert(table_of("k v", [(number, "a")]))

    [decision] = decide(table)

    assert not decision.compact
    assert decision.reason.startswith(
        "nothing to compact by the table's options, although readers merge up to 11 sorted runs in "
        f"a bucket (limit 10): `paimon-orch compact {tmp_path} db.t --strategy full` would rewrite "
        "11 files of "
    )


def test_the_command_of_the_sensor_quotes_the_partition(tmp_path: Path) -> None:
    options = {"num_sorted_run__compaction_trigger": "100"}
    table = new_table(tmp_path, "p STRING, k INT", key=("p", "k"), partition_by=["p"], **options)
    for number in range(11):
        table.upsert(table_of("p k", [("a b", number)]))

    [decision] = decide(table)

    command = f"paimon-orch compact {tmp_path} db.t --strategy full --partitions 'p=a b'"
    assert f"`{command}` would" in decision.reason


def test_the_autopilot_removes_the_deleted_rows_that_compactions_keep(tmp_path: Path) -> None:
    options = {**KINDS["data evolution"].options, "compaction.min.file-num": "100"}
    table = Catalog(str(tmp_path)).create_table("db.t", "id BIGINT, v STRING", options=options)
    for start in range(0, 400, 10):
        table.append(table_of("id v", [(number, "x") for number in range(start, start + 10)]))
    table.delete("id >= 100")
    catalog, request = catalog_of(table), MaintenanceRequest(history_table=None)
    [finding] = (f for f in examine_opened_table(table) if f.rule is DoctorRule.DELETED_ROWS)
    assert (finding.command, finding.severity) == (
        "materialize-deletion-vectors",
        Severity.WARNING,
    )
    assert not any(decision.strategy == "full" for decision in decide(table))

    result = run_maintenance(catalog, plan_maintenance(catalog, request))

    [action] = (o for o in result.outcomes if o.decision.action is ActionKind.MATERIALIZATION)
    assert action.kind is OutcomeKind.DONE
    assert DoctorRule.DELETED_ROWS not in {each.rule for each in examine_opened_table(table)}
    again = plan_maintenance(catalog, request)
    assert not any(each.action is ActionKind.MATERIALIZATION for each in again.actions)
