"""Names of the Dagster objects of a table: asset keys, groups, pools, sensors and schedules."""

import re
from collections.abc import Sequence
from enum import StrEnum

import dagster as dg

from paimon_orch.errors import InputError
from paimon_orch.orchestration.planned_runs import COMPACTION

FILE_INDEX = "file_index"
TABLE_TAG = "paimon/table"
"""The tag of all runs that maintain a table."""


class TableAssetKind(StrEnum):
    """The assets of a table."""

    TABLE = "table"
    COMPACTION = COMPACTION
    FILE_INDEX = FILE_INDEX


def table_asset_key(table: str, prefix: Sequence[str] = ()) -> dg.AssetKey:
    """Return the key of a table's asset, ``[*prefix, database, table]``."""
    return dg.AssetKey([*prefix, *split_table_name(table)])


def compaction_asset_key(table: str, prefix: Sequence[str] = ()) -> dg.AssetKey:
    """Return the key of a table's compaction asset.

    Its last part names the table, because lists in the UI show only this part.
    """
    return _maintenance_asset_key(table, prefix, COMPACTION)


def file_index_asset_key(table: str, prefix: Sequence[str] = ()) -> dg.AssetKey:
    """Return the key of a table's file index asset."""
    return _maintenance_asset_key(table, prefix, FILE_INDEX)


def _maintenance_asset_key(table: str, prefix: Sequence[str], action: str) -> dg.AssetKey:
    path = table_asset_key(table, prefix).path
    return dg.AssetKey([*path, f"{path[-1]}_{action}"])


def group_name(table: str) -> str:
    """Return the asset group of a table: its database."""
    return _sanitize_name(split_table_name(table)[0])


def table_label(table: str, prefix: Sequence[str] = ()) -> str:
    """Return the value of :data:`TABLE_TAG`, ``prefix/database.table``.

    The prefix of the asset keys distinguishes tables of several catalogs.
    """
    return "/".join([*prefix, table])


def pool_name(table: str, prefix: Sequence[str] = ()) -> str:
    """Return the pool of all ops that commit to a table, ``paimon/prefix/database.table``."""
    return f"paimon/{table_label(table, prefix)}"


def definition_name(action: str, table: str, prefix: Sequence[str] = ()) -> str:
    """Return the name of a sensor, job or schedule, such as ``latest_snapshot__lake__orders``."""
    return join_definition_name(action, *table_asset_key(table, prefix).path)


def join_definition_name(*parts: str) -> str:
    """Return the parts as one name that Dagster accepts."""
    return _sanitize_name("__".join(parts))


def check_table_name(table: str) -> None:
    """Raise :class:`InputError` for a table name that cannot be part of an asset key.

    Dagster derives the names of ops from the keys of assets.
    """
    if not all(re.fullmatch(r"[\w-]+", part, re.ASCII) for part in split_table_name(table)):
        raise InputError(
            f"table name {table!r} cannot be part of an asset key: Dagster allows only letters, "
            "digits, _ and -"
        )


def split_table_name(table: str) -> tuple[str, str]:
    """Return the database and the name of ``database.table``."""
    database, dot, name = table.partition(".")
    if not (database and dot and name) or "." in name:
        raise InputError(f"table name {table!r} must be 'database.table'")
    return database, name


def _sanitize_name(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)
