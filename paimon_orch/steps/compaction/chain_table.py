"""Writes merged partitions of a chain table to its snapshot branch.

See docs/format/chain-tables.md#compaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_orch.errors import InputError
from paimon_orch.format.display import Displayable
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.common.step import StepOutcome, build_metadata_step, plan_and_run
from paimon_orch.steps.common.step_declaration import take_fields
from paimon_orch.table.chain.chain_branches import ChainBranches, find_chain_branches
from paimon_orch.table.filter.partition_spec import (
    PartitionSpec,
    build_any_partition_matcher,
    format_partition,
    parse_partition_specs,
)
from paimon_orch.table.scan.partition_pruner import build_partition_filter, build_partition_table
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import load_newest_state
from paimon_orch.table.table_stores import TableStores
from paimon_orch.table.write.write_builder import WriteBuilder

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactChainTableRequest:
    """Selects the delta partitions to merge."""

    partition: str | PartitionSpec = field(kw_only=False)
    """One partition, or the values of some partition columns: ``dt=20260131``."""
    overwrite: bool = False
    """Whether to replace partitions that the snapshot branch has; else they are left as is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactChainTablePlan(Displayable):
    """The partitions to write to the snapshot branch. The plan is falsy if there are none."""

    request: CompactChainTableRequest
    partitions: tuple[bytes, ...] = ()
    names: tuple[str, ...] = ()
    has_old_rows: bool = False
    """Whether the snapshot branch has selected partitions."""

    def __bool__(self) -> bool:
        """Return whether any partition is written."""
        return bool(self.partitions)

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {"partitions": list(self.names), "has_old_rows": self.has_old_rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactChainTableResult(StepOutcome):
    """The result; ``snapshot`` is the new snapshot of the snapshot branch, or None."""

    plan: CompactChainTablePlan
    snapshot: Snapshot | None = None


def plan(table: Table, request: CompactChainTableRequest) -> CompactChainTablePlan:
    """Find the selected partitions of the delta branch.

    There is nothing to do if the snapshot branch has one of them, unless it is overwritten. Raises
    :class:`InputError` if the table is not a chain table or is one of its branches.
    """
    schema = table.stores.get_schema()
    branches = _find_branches(table, schema)
    anchors, deltas = (table.stores.of_branch(b) for b in (branches.snapshot, branches.delta))
    anchors.check_step(StepKind.WRITE_ROWS)
    [spec] = parse_partition_specs([request.partition], schema)
    matches = build_any_partition_matcher([spec], schema)
    has_old_rows = any(map(matches, _list_partitions(anchors)))
    if has_old_rows and not request.overwrite:
        return CompactChainTablePlan(request=request, has_old_rows=True)
    partitions = tuple(filter(matches, _list_partitions(deltas)))
    return CompactChainTablePlan(
        request=request,
        partitions=partitions,
        names=tuple(format_partition(partition, schema) for partition in partitions),
        has_old_rows=has_old_rows,
    )


def commit(
    table: Table, plan: CompactChainTablePlan, _results: Sequence[bytes] = ()
) -> CompactChainTableResult:
    """Write the merged rows; holds them in memory."""
    if not plan:
        return CompactChainTableResult(plan=plan)
    schema = table.stores.get_schema()
    branches = _find_branches(table, schema)
    deltas = table.stores.of_branch(branches.delta).snapshots
    read = deltas.latest_id()
    selected = build_partition_filter(plan.partitions, schema)
    rows = table.scan(filter=selected).build_chain_scan().to_arrow()
    builder = WriteBuilder(
        load_newest_state(table.stores.of_branch(branches.snapshot)),
        is_overwrite=plan.has_old_rows,
        partitions=build_partition_table(plan.partitions, schema).to_pylist()
        if plan.has_old_rows
        else None,
    )
    snapshot = builder.write(rows)
    if deltas.latest_id() != read:
        logger.warning(
            "%s: another commit changed the delta branch meanwhile; if it changed %s or earlier "
            "partitions, compact again with overwrite",
            table.identifier,
            ", ".join(plan.names),
        )
    return CompactChainTableResult(plan=plan, snapshot=snapshot)


def _find_branches(table: Table, schema: TableSchema) -> ChainBranches:
    branches = find_chain_branches(schema, table.paths.branch)
    if branches is None:
        raise InputError(
            f"{table.identifier} is not a chain table with a snapshot branch and a delta branch, "
            "or it is one of these branches; name the table itself"
        )
    return branches


def _list_partitions(stores: TableStores) -> list[bytes]:
    """Return the partitions of a branch with live files."""
    snapshot = stores.snapshots.latest()
    if snapshot is None:
        return []
    entries = stores.manifests.read_live_entries(snapshot)
    return list(dict.fromkeys(entry.partition for entry in entries))


COMPACT_CHAIN_TABLE = build_metadata_step("compact the chain of", plan, commit)


@take_fields(CompactChainTableRequest)
def compact_chain_table(table: Table, request: CompactChainTableRequest) -> CompactChainTableResult:
    """Merge delta partitions with the snapshot partition before them into the snapshot branch.

    Readers then need no merge, and older delta partitions can be dropped. A partition that the
    snapshot branch has is replaced only with ``overwrite``. As in Java Paimon, ``partition`` may
    name only some of the partition columns. Rows that are written to a delta partition later are
    not visible, because readers then read the partition of the snapshot branch.
    """
    return plan_and_run(COMPACT_CHAIN_TABLE, table, request)
