"""Builds scans from requests: resolves the snapshot, its schema, the filter and the order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_orch.errors import InputError, NotFoundError, UnsupportedError
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.options.core_options import (
    CHAIN_TABLE_ENABLED,
    DELETION_VECTORS_MERGE_ON_READ,
    SCAN_FALLBACK_BRANCH,
    SCAN_FALLBACK_DELTA_BRANCH,
    SCAN_FALLBACK_SNAPSHOT_BRANCH,
)
from paimon_orch.format.options.table_option import StepKind, TableOption
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.table.blob_gate import refuse_blob_columns
from paimon_orch.table.chain.chain_branches import find_chain_branches
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.filter.variant_column import select_columns
from paimon_orch.table.metadata.time_travel import SnapshotSelector
from paimon_orch.table.scan.fallback_branch import FallbackBranch
from paimon_orch.table.scan.incremental_scan import IncrementalScan, SnapshotRange
from paimon_orch.table.scan.order_by import parse_order
from paimon_orch.table.scan.postponed_rows import should_merge_postponed
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.step_gate import warn_of_unknown_options
from paimon_orch.table.table_state import TableState, build_table_state, load_newest_state
from paimon_orch.table.table_stores import TableStores


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """The arguments of :meth:`Table.scan`."""

    selector: SnapshotSelector
    columns: Sequence[str] | None = None
    filter: str | Predicate | None = None
    limit: int | None = None
    order_by: str | Sequence[str] | None = None
    merge_level_0: bool | None = None


def build_scan(stores: TableStores, request: ScanRequest) -> Scan:
    """Return the scan of one snapshot; see :meth:`Table.scan` for the errors."""
    if request.columns is not None and not request.columns:
        raise InputError(f"a scan of {stores.identifier} needs at least one column")
    selector = request.selector
    if selector:  # the newest snapshot is not needed, and may be lost
        snapshot, newest = selector.find(stores.snapshots), stores.get_schema()
    else:
        state = load_newest_state(stores, with_lists=True)
        snapshot, newest = state.snapshot, state.schema
    if snapshot is not None:
        stores.schemas.get(snapshot.schema_id)  # this fails if the schema is missing
    stores.check_step(StepKind.READ if selector else StepKind.READ | StepKind.DEFAULT_READ, newest)
    warn_of_unknown_options(stores.identifier, newest.options)
    schema = stores.schemas.get(snapshot.schema_id) if selector and snapshot else newest
    readable = replace(schema, fields=(*schema.fields, *row_tracking_fields(schema)))
    predicate = bind_filter(request.filter, readable)
    columns = schema.names if request.columns is None else request.columns
    fields, variants = select_columns(readable, columns)
    return Scan(
        state=build_table_state(stores, schema, snapshot),
        fields=fields,
        variant_columns=variants,
        predicate=predicate,
        limit=request.limit,
        fallback=_find_fallback(stores, schema, newest, request, snapshot),
        order=parse_order(request.order_by, schema),
        merge_level_0=_choose_level_0(request.merge_level_0, schema, newest),
        merge_postponed=should_merge_postponed(newest),
    )


def build_loaded_scan(state: TableState, columns: Sequence[str]) -> Scan:
    """Return the scan of columns of a loaded table, by its schema, without a fallback branch."""
    schema = state.schema
    return Scan(
        state=state,
        fields=tuple(schema.select(columns)),
        merge_level_0=_choose_level_0(None, schema, schema),
        merge_postponed=should_merge_postponed(schema),
    )


def _choose_level_0(
    requested: bool | None,  # noqa: FBT001 - an argument of the scan
    schema: TableSchema,
    newest: TableSchema,
) -> bool | None:
    if requested is None and schema.typed_options.has_deletion_vectors:
        # Time travel also uses the newest options.
        return newest.typed_options.get(DELETION_VECTORS_MERGE_ON_READ)
    return requested


def _find_fallback(
    stores: TableStores,
    schema: TableSchema,
    newest: TableSchema,
    request: ScanRequest,
    snapshot: Snapshot | None,
) -> FallbackBranch | None:
    def find(option: TableOption[str | None], branch: str) -> FallbackBranch | None:
        fallback = FallbackBranch.of(
            stores.of_branch(branch),
            schema,
            option=option.key,
            selector=request.selector,
            snapshot=snapshot,
        )
        if fallback is None:
            return None
        stores.check_step(StepKind.READ, fallback.state.schema)
        return fallback.with_level_0(request.merge_level_0)

    if (chained := find_chain_branches(newest, stores.paths.branch)) is not None:
        anchors = find(SCAN_FALLBACK_SNAPSHOT_BRANCH, chained.snapshot)
        deltas = find(SCAN_FALLBACK_DELTA_BRANCH, chained.delta)
        if anchors is None or deltas is None:
            raise NotFoundError(
                f"{stores.identifier}: the branch {chained.snapshot!r} or {chained.delta!r} of "
                "this chain table does not exist; create it"
            )
        return replace(deltas, anchors=anchors)
    if newest.typed_options.get(CHAIN_TABLE_ENABLED):
        return None
    branch = (newest.typed_options.get(SCAN_FALLBACK_BRANCH) or "").strip()
    if not branch or branch == stores.paths.branch:
        return None
    return find(SCAN_FALLBACK_BRANCH, branch)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalRequest:
    """The arguments of :meth:`Table.incremental`."""

    start: int | str
    end: int | str
    mode: str
    columns: Sequence[str] | None
    filter: str | Predicate | None
    merge_level_0: bool | None


def build_incremental_scan(stores: TableStores, request: IncrementalRequest) -> IncrementalScan:
    """Return the scan of changes; see :meth:`Table.incremental` for the errors."""
    schema = stores.get_schema()
    stores.check_step(StepKind.READ, schema)
    _check_incremental_support(stores.identifier, schema, stores.paths.branch)
    fields = schema.fields if request.columns is None else tuple(schema.select(request.columns))
    return IncrementalScan(
        state=build_table_state(stores, schema, None),
        snapshot_range=SnapshotRange.of(
            stores.snapshots, request.start, request.end, request.mode, schema
        ),
        fields=fields,
        predicate=bind_filter(request.filter, schema),
        merge_level_0=request.merge_level_0,
    )


def _check_incremental_support(identifier: str, schema: TableSchema, branch_read: str) -> None:
    if find_chain_branches(schema, branch_read) is not None:
        raise UnsupportedError(
            f"{identifier}: incremental reads of chain tables are not supported; read the changes "
            "of the delta branch, for example db.t$branch_delta"
        )
    branch = schema.typed_options.get(SCAN_FALLBACK_BRANCH) or ""
    if branch.strip():
        raise UnsupportedError(
            f"{identifier}: incremental reads do not support the fallback branch of option "
            f"{SCAN_FALLBACK_BRANCH.key!r} = {branch!r}; scan the two snapshots and "
            "compare their rows"
        )
    if schema.primary_keys:
        refuse_blob_columns(identifier, schema, "an incremental read by primary key")
    if should_merge_postponed(schema):
        raise UnsupportedError(
            f"{identifier}: incremental reads are not supported with 'postpone.merge-on-read' = "
            "true, as the changes of rows in postpone buckets are unknown; scan whole snapshots"
        )
