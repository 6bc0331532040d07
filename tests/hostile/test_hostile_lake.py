"""A lake with hostile tables: each is refused with one sentence, and the others are maintained."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.damage import edit_partitions
from support.limited_process import refuse, run_limited
from support.tables import rows_of, table_of
from support.tables_with_deletion_vectors import EXECUTOR

from paimon_orch import Catalog
from paimon_orch.format.manifest.avro_blocks import AVRO_MAGIC
from paimon_orch.steps.autopilot.decisions import DecisionState
from paimon_orch.steps.autopilot.maintenance_plan import plan_maintenance
from paimon_orch.steps.autopilot.maintenance_request import MaintenanceRequest
from paimon_orch.steps.inspection.doctor.doctor import examine_catalog
from paimon_orch.table.table import Table

ROWS = [(1, "a"), (2, "b")]
RECURSIVE = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]}
SYNC = b"s" * 16


def write_recursive_manifests(table: Table) -> None:
    """Replace the manifest lists by files whose schema contains itself."""
    schema = json.dumps(RECURSIVE).encode()
    head = AVRO_MAGIC + b"\2\x16avro.schema" + bytes([2 * len(schema) & 0x7F | 0x80, 1])
    data = head + schema + b"\0" + SYNC + b"\2\x82\x01" + b"\2" * 65 + SYNC
    for path in Path(table.paths.manifest_dir).glob("manifest-list-*"):
        path.write_bytes(data)


def replace_by(target: str) -> Callable[[Table], None]:
    """Return an attack that replaces the newest schema by another kind of file."""

    def attack(table: Table) -> None:
        path = Path(table.paths.schema_dir) / "schema-0"
        path.unlink()
        if target == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(target)

    return attack


def edit_schema(**options: str) -> Callable[[Table], None]:
    """Return an attack that sets options of the schema file."""

    def attack(table: Table) -> None:
        path = Path(table.paths.schema_dir) / "schema-0"
        value = json.loads(path.read_bytes())
        value["options"] |= {
            name.replace("__", ".").replace("_", "-"): text for name, text in options.items()
        }
        path.write_text(json.dumps(value))

    return attack


def write_deep_schema(table: Table) -> None:
    """Replace the schema by deep JSON."""
    (Path(table.paths.schema_dir) / "schema-0").write_bytes(b"[" * 100_000 + b"]" * 100_000)


def write_far_snapshot(table: Table) -> None:
    """Add a snapshot with a number that Java cannot read."""
    newest = Path(table.stores.snapshots.path(1))
    (newest.parent / f"snapshot-{2**63}").write_bytes(newest.read_bytes())
    for name in ("LATEST", "EARLIEST"):
        (newest.parent / name).unlink(missing_ok=True)


def write_damaged_partition(table: Table) -> None:
    """Give the files of the newest snapshot a partition that ends within its first value."""
    edit_partitions(table, 1, b"\0\0\0\1" + bytes(8))


ATTACKS: dict[str, Callable[[Table], None]] = {
    "recursive_manifests": write_recursive_manifests,
    "pipe_as_schema": replace_by("pipe"),
    "device_as_schema": replace_by("/dev/zero"),
    "deep_schema": write_deep_schema,
    "far_snapshot": write_far_snapshot,
    "damaged_partition": write_damaged_partition,
    "long_option": edit_schema(deletion_vectors__enabled="9" * 5_000),
}


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """Return a lake with one table for each attack, and two other tables."""
    catalog = Catalog(str(tmp_path))
    for name in (*ATTACKS, "a_first", "z_last"):
        options = {"bucket": "1", "write-only": "true"}
        table = catalog.create_table(
            f"db.{name}", "k BIGINT NOT NULL, v STRING", primary_key=["k"], options=options
        )
        for _ in range(6 if name not in ATTACKS else 1):
            table.upsert(table_of("k v", ROWS))
        if name in ATTACKS:
            ATTACKS[name](table)
    return Catalog(str(tmp_path))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_table_is_refused_with_one_sentence(lake: Catalog, name: str) -> None:
    message = refuse(lambda: rows_of(lake.table(f"db.{name}")))
    assert "\n" not in message
    assert len(message) < 1_000
    assert name in message or "deletion-vectors.enabled" in message


def test_the_doctor_examines_the_other_tables(lake: Catalog) -> None:
    def examine() -> dict[str, list[str]]:
        report = examine_catalog(lake, list(lake.find_tables()))
        return {
            table.name: [f.text for f in report.findings if f.table == table.name]
            for table in report.tables
        }

    findings = run_limited(examine, seconds=60)
    assert isinstance(findings, dict)
    assert findings.keys() == {f"db.{name}" for name in (*ATTACKS, "a_first", "z_last")}
    assert all(findings[f"db.{name}"] for name in ATTACKS)
    assert "internal error" not in str(findings)
    assert "damaged" not in str(findings["db.a_first"] + findings["db.z_last"])


def test_the_autopilot_maintains_the_other_tables(lake: Catalog) -> None:
    def plan() -> tuple[set[str], dict[str, str]]:
        refused = DecisionState.REFUSED
        planned = plan_maintenance(lake, MaintenanceRequest(), EXECUTOR)
        decisions = (*planned.actions, *planned.skips)
        return (
            {each.table for each in decisions if each.state is not refused},
            {each.table: each.reason for each in decisions if each.state is refused},
        )

    outcome = run_limited(plan, seconds=60)
    assert isinstance(outcome, tuple)
    examined, failed = outcome
    assert {"db.a_first", "db.z_last"} <= examined
    assert failed.keys() == {f"db.{name}" for name in ATTACKS}
    assert "internal error" not in str(failed)
