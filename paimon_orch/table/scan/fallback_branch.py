"""Finds the branches that provide the partitions that a table lacks.

See docs/format/chain-tables.md#branches.
"""

from dataclasses import dataclass, replace

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.options.core_options import DELETION_VECTORS_MERGE_ON_READ
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import type_to_sql
from paimon_orch.safe_text import get_logger
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.metadata.time_travel import SnapshotSelector, find_at_time
from paimon_orch.table.table_state import TableState, build_table_state
from paimon_orch.table.table_stores import TableStores

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackBranch:
    """The state of the branch that provides missing partitions."""

    state: TableState
    merge_level_0: bool | None = None

    anchors: "FallbackBranch | None" = None
    """The snapshot branch, if this is the delta branch of a chain table."""

    @classmethod
    def of(
        cls,
        stores: TableStores,
        schema: TableSchema,
        *,
        option: str,
        selector: SnapshotSelector,
        snapshot: Snapshot | None,
    ) -> "FallbackBranch | None":
        """Return the state of the branch that ``option`` names at the time of ``snapshot``.

        Logs a warning and returns None if the branch does not exist. Raises :class:`InputError` if
        its columns differ from those of the table. A time selects the branch's snapshot at that
        time, or no rows. A tag that the branch lacks, because it was
        created on the table only, selects the branch's snapshot at the time of the tagged one.
        """
        branch, schemas = stores.paths.branch, stores.schemas
        if not schemas.ids():
            logger.warning(
                "%s: the branch %r of option %r does not exist; only the table itself is read",
                stores.paths.root,
                branch,
                option,
            )
            return None
        newest = find_branch_snapshot(stores.snapshots, selector, snapshot)
        past = selector and newest is not None
        read = schemas.get(newest.schema_id) if past and newest is not None else schemas.latest()
        _check_same_columns(schema, read, option, branch)
        return cls(state=build_table_state(stores, read, newest))

    def with_level_0(self, requested: bool | None) -> "FallbackBranch":  # noqa: FBT001 - the option's value
        """Return a copy that includes level 0 or not; None means the options of the branch."""
        options = self.state.schemas.latest().typed_options
        if requested is None and options.has_deletion_vectors:
            requested = options.get(DELETION_VECTORS_MERGE_ON_READ)
        return replace(self, merge_level_0=requested)


def find_branch_snapshot(
    snapshots: SnapshotStore, selector: SnapshotSelector, snapshot: Snapshot | None
) -> Snapshot | None:
    """Return the branch's snapshot that fits a snapshot of the table, as Java Paimon selects it."""
    if snapshot is None or not selector:
        return snapshots.latest()
    if selector.tag is not None and selector.tag in snapshots.tags():
        return snapshots.tag(selector.tag)
    if snapshots.latest_id() is None:
        return None
    time = snapshot.time_millis if selector.timestamp is None else selector.timestamp
    try:
        return find_at_time(snapshots, time)
    except NotFoundError:  # the branch was created later
        earliest = snapshots.earliest_id()
        if earliest is None or selector.timestamp is not None:
            return None
        return snapshots.get(earliest)


def _check_same_columns(schema: TableSchema, other: TableSchema, option: str, branch: str) -> None:
    def columns(of: TableSchema) -> list[tuple[str, str]]:
        return [(field.name, str(field.type.with_nullable(True))) for field in of.fields]

    if columns(schema) != columns(other) or schema.partition_keys != other.partition_keys:
        raise InputError(
            f"option {option!r} = {branch!r}: the branch has the columns "
            f"{_format_columns(other)}, the table has {_format_columns(schema)}; both must have "
            "the same columns and partition columns to be read together"
        )


def _format_columns(schema: TableSchema) -> str:
    return ", ".join(f"{field.name} {type_to_sql(field.type)}" for field in schema.fields)
