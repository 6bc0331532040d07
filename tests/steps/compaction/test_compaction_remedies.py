"""A command that doctor, checks, why, the sensor or the autopilot name changes something and heals."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from support.commands import Run

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.orchestration.health_limits import evaluate_health
from paimon_orch.steps.compaction.decide import decide
from paimon_orch.steps.compaction.scan_cost import explain
from paimon_orch.steps.inspection.doctor import examine_opened_table
from paimon_orch.table.table import Table

COMMANDS = {"compact", "compact-manifests", "expire-snapshots", "repair", "rewrite-file-index"}
MAX_COMMANDS = 5


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
    "file index": Kind({"bucket": "-1", "file-index.bloom-filter.columns": "id"}, has_key=False),
}
QUICK = [("high trigger", 3), ("many small files", 1), ("append with buckets", 0)]
CASES = [pytest.param(name, seed, marks=() if (name, seed) in QUICK else pytest.mark.slow)
         for name in KINDS for seed in range(4)]  # fmt: skip


def build_table(run: Run, root: Path, kind: Kind, seed: int) -> Table:
    """Return a table after random writes, deletes and compactions."""
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
    return table


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
    run: Run, tmp_path: Path, name: str, seed: int
) -> None:
    table = build_table(run, tmp_path, KINDS[name], seed)

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
    run: Run, tmp_path: Path, name: str, seed: int
) -> None:
    table = build_table(run, tmp_path, KINDS[name], seed)

    for decision in decide(table, overdue=None):
        if decision.compact:
            partition = ["--partitions", decision.partition] if decision.partition else []
            strategy = ["--strategy", decision.strategy]
            run_on_table(run, tmp_path, table, " ".join(["compact", *strategy, *partition]))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_the_command_that_why_names_saves_about_what_it_says(
    run: Run, tmp_path: Path, name: str, seed: int
) -> None:
    table = build_table(run, tmp_path, KINDS[name], seed)

    for _ in range(MAX_COMMANDS):
        before = explain(table)
        if before.command is None:
            break
        assert before.after is not None
        program, command, location, identifier, *options = shlex.split(before.command)
        assert (program, location, identifier) == ("paimon-orch", str(tmp_path), "db.t")
        run_on_table(run, tmp_path, table, " ".join([command, *options]))
        now = explain(table)
        assert now.now.files <= before.after.files * 1.2 + 1  # it is an estimate
        assert now.now.requests <= before.after.requests * 1.2 + 2
        if command == "compact":
            assert now.rows_not_visible == 0
    else:
        pytest.fail("there is a command after each command")
    answer = run("why", tmp_path, "db.t", "--json").json
    files = [file for split in table.scan().plan() for file in split.files]
    assert (answer["command"], answer["now"]["files"]) == (None, len(files))


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
