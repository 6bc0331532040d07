"""System tables about what refers to snapshots and columns: branches, consumers, aggregation.

See docs/format/system-tables.md.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import type_to_sql
from paimon_orch.table.metadata_tables import (
    TIME_TYPE,
    build_arrow_schema,
    build_rows,
    to_local_time,
)

if TYPE_CHECKING:
    from paimon_orch.table.table import Table

BRANCHES_COLUMNS = build_arrow_schema(branch_name_=pa.string(), create_time_=TIME_TYPE)
CONSUMERS_COLUMNS = build_arrow_schema(consumer_id_=pa.string(), next_snapshot_id_=pa.int64())
AGGREGATION_FIELDS_COLUMNS = build_arrow_schema(
    field_name_=pa.string(),
    field_type_=pa.string(),
    function=pa.string(),
    function_options=pa.string(),
    comment=pa.string(),
)


def build_branches_table(table: "Table", _: Snapshot | None) -> pa.Table:
    """Return one row per branch except main, sorted by name.

    As in Java Paimon, ``create_time`` is the modification time of the directory.
    """
    times = table.branches.read_modification_times()
    rows = [
        {"branch_name": name, "create_time": to_local_time(seconds * 1000)}
        for name, seconds in times.items()
    ]
    return build_rows(rows, BRANCHES_COLUMNS)


def build_consumers_table(table: "Table", _: Snapshot | None) -> pa.Table:
    """Return one row per consumer, sorted by id; includes consumers whose time has expired."""
    next_snapshots = table.stores.open_consumers().read_all()
    rows = [
        {"consumer_id": name, "next_snapshot_id": number} for name, number in next_snapshots.items()
    ]
    return build_rows(rows, CONSUMERS_COLUMNS)


def build_aggregation_fields_table(table: "Table", _: Snapshot | None) -> pa.Table:
    """Return one row per column, with the values and the keys of its ``fields.`` options."""
    schema = table.stores.get_schema()
    options = _group_field_options(schema.options)
    rows = [
        {
            "field_name": field.name,
            "field_type": type_to_sql(field.type),
            "function": _format_list(value for _, value in options.get(field.name, ())),
            "function_options": _format_list(key for key, _ in options.get(field.name, ())),
            "comment": field.description,
        }
        for field in schema.fields
    ]
    return build_rows(rows, AGGREGATION_FIELDS_COLUMNS)


def _group_field_options(options: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Return the options ``fields.<column>.<name>`` as (key, value), by column."""
    groups = dict[str, list[tuple[str, str]]]()
    for key, value in options.items():
        match key.rstrip(".").split("."):
            case ["fields", column, _, *_]:
                groups.setdefault(column, []).append((key, value))
    return groups


def _format_list(values: Iterable[str]) -> str:
    return f"[{', '.join(values)}]"
