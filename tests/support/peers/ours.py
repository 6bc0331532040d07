"""This library with the commands of the peers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.golden import arrow_table, canonical_rows
from support.peers.kinds import Kind, Record, Step

from paimon_orch import Catalog
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.data_types import field_to_json, parse_columns
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.delete_tag import delete_tag
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetOption,
    UpdateType,
)
from paimon_orch.table.table import Table

CHANGES: dict[str, Callable[..., SchemaChange]] = {
    "add": lambda name, data_type: AddColumn(column=name, type=data_type),
    "drop": DropColumn,
    "rename": RenameColumn,
    "type": UpdateType,
    "set": SetOption,
    "reset": ResetOption,
}


def create(warehouse: Path, kind: Kind) -> Table:
    """Create a table of a kind, without rows."""
    return Catalog(str(warehouse)).create_table(
        "db.t",
        kind.columns,
        primary_key=kind.primary_key,
        partition_by=kind.partition_by,
        options=kind.options,
    )


def table_spec(kind: Kind) -> Record:
    """Return the arguments with which a peer creates a table of a kind."""
    schema = build_table_schema(
        parse_columns(kind.columns),
        primary_key=kind.primary_key,
        partition_by=kind.partition_by,
        options=kind.options,
        time_millis=0,
    )
    return {
        "fields": [field_to_json(field) for field in schema.fields],
        "primary_keys": kind.primary_key,
        "partition_keys": kind.partition_by,
        "options": kind.options,
    }


def run_step(warehouse: Path, step: Step) -> None:
    """Run a step."""
    table = Catalog(str(warehouse)).table("db.t")
    match step:
        case {"do": "delete", "rows": records} if not table.load().schema.primary_keys:
            keys = ", ".join(str(record["k"]) for record in records)
            row_level.delete(table, InProcessExecutor(), f"k IN ({keys})")
        case {"do": "write" | "overwrite" | "delete" as do, "rows": records}:
            change = getattr(table, "append" if do == "write" else do)
            change(arrow_table(records, table.scan().arrow_schema))
        case {"do": "compact", "full": full}:
            compact(table, InProcessExecutor(), strategy="full" if full else "minor")
        case {"do": "alter", "changes": changes}:
            parsed = [CHANGES[kind_of_change](*arguments) for kind_of_change, *arguments in changes]
            Catalog(str(warehouse)).alter_table("db.t", parsed)
        case {"do": "tag", "name": name}:
            table.tags.create(name)
        case {"do": "delete_tag", "name": name}:
            delete_tag(table, name)
        case {"do": "rollback", "snapshot": snapshot_id}:
            table.rollback(snapshot_id, delete_tags=True)
        case {"do": "expire", "retain": retain}:
            expire_snapshots(table, retain_max=retain)
        case {"do": "branch", "name": name, "at": at}:
            table.branches.create(name, at)
        case _:
            raise ValueError(f"no such step: {step}")


def create_and_run_steps(warehouse: Path, kind: Kind) -> None:
    """Create a table of a kind, and run its steps."""
    create(warehouse, kind)
    for step in kind.steps:
        run_step(warehouse, step)


def read(warehouse: Path, kind: Kind, filter: str | None = None) -> list[Record]:
    """Return the rows of a table of a kind, optionally filtered."""
    moments = {"scan.snapshot-id": "snapshot_id", "scan.tag-name": "tag"}
    scan_options: dict[str, Any] = {moments[name]: text for name, text in kind.read.items()}
    if "snapshot_id" in scan_options:
        scan_options["snapshot_id"] = int(scan_options["snapshot_id"])
    rows = Catalog(str(warehouse)).table(kind.table).scan(filter=filter, **scan_options).to_arrow()
    return [dict(zip(rows.column_names, row, strict=True)) for row in canonical_rows(rows)]
