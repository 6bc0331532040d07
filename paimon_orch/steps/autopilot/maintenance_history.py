"""The history of maintenance: a table of the catalog with one row for each decision about work.

The database ``sys`` is reserved for tables that a catalog computes, so the history is in a database
of its own by default. It is an append table, partitioned by day, and is maintained like the others.
"""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.times import to_epoch_millis
from paimon_orch.steps.autopilot.action_outcome import ActionOutcome, OutcomeKind
from paimon_orch.table.metadata_tables import build_rows
from paimon_orch.table.table import Table

_TIME = pa.timestamp("ms", tz="UTC")
HISTORY_SCHEMA = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("started_at", _TIME, nullable=False),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("error", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("estimated_saved_bytes", pa.int64(), nullable=False),
        pa.field("estimated_rewrite_bytes", pa.int64(), nullable=False),
        pa.field("bytes_read", pa.int64(), nullable=False),
        pa.field("bytes_written", pa.int64(), nullable=False),
        pa.field("bytes_deleted", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("cost", pa.float64(), nullable=False),
        pa.field("snapshot_id", pa.int64()),
    ]
)
"""Times are in UTC, also the day."""
_HISTORY_OPTIONS = {"bucket": "-1"}
_WHOLE_TABLE = "maintenance"
"""The action of a decision about all actions of a table."""
_NOT_EXECUTED = (OutcomeKind.SKIPPED, OutcomeKind.REFUSED)


def append_history(catalog: Catalog, name: str, outcomes: Sequence[ActionOutcome]) -> str:
    """Append the outcomes of a run in one snapshot; return the id of the run.

    Creates the table if it does not exist. Raises :class:`InputError` if it has other columns.
    """
    table = catalog.create_table(
        name,
        HISTORY_SCHEMA,
        partition_by=["day"],
        options=_HISTORY_OPTIONS,
        comment="Executed and skipped maintenance actions",
        if_not_exists=True,
    )
    _check_columns(table)
    run_id = uuid.uuid4().hex
    table.append(build_history_rows(run_id, outcomes))
    return run_id


def build_history_rows(run_id: str, outcomes: Sequence[ActionOutcome]) -> pa.Table:
    """Return one row for each outcome."""
    rows = [_build_row(run_id, outcome) for outcome in outcomes]
    return build_rows(rows, HISTORY_SCHEMA)


def _build_row(run_id: str, outcome: ActionOutcome) -> dict[str, object]:
    decision, started_at = outcome.decision, outcome.started_at.astimezone(UTC)
    values = outcome.to_dict()
    names = [name for name in HISTORY_SCHEMA.names if name in values]
    return {
        **{name: values[name] for name in names},
        "action": decision.action or _WHOLE_TABLE,
        "day": started_at.date().isoformat(),
        "run_id": run_id,
        "started_at": started_at,
        "table_name": decision.table,
        "estimated_saved_bytes": decision.saved_bytes,
        "estimated_rewrite_bytes": decision.rewrite_bytes,
    }


def read_maintenance_history(
    catalog: Catalog,
    name: str,
    *,
    since: datetime | None = None,
    table: str | None = None,
    include_skipped: bool = False,
) -> pa.Table:
    """Return the recorded actions, oldest first; none if the table does not exist.

    :param since: the time of the first start, with a time zone
    :param table: ``database.table``
    :param include_skipped: return skipped and refused actions too
    """
    try:
        history = catalog.table(name)
    except NotFoundError:
        return HISTORY_SCHEMA.empty_table()
    _check_columns(history)
    start = None
    if since is not None:
        start = datetime.fromtimestamp(to_epoch_millis("since", since) / 1000, UTC)
    day = None if start is None else f"day >= '{start.date().isoformat()}'"
    rows = history.scan(HISTORY_SCHEMA.names, filter=day).to_arrow()
    if start is not None:
        rows = rows.filter(pc.field("started_at") >= pa.scalar(start, _TIME))
    if table is not None:
        rows = rows.filter(pc.field("table_name") == table)
    if not include_skipped:
        rows = rows.filter(~pc.field("outcome").isin([str(kind) for kind in _NOT_EXECUTED]))
    return rows.sort_by("started_at")


def read_bytes_of_last_hour(catalog: Catalog, name: str | None, now: datetime | None) -> int:
    """Return the size of the files that actions of the last hour read."""
    assert name is not None, "a request with a budget of an hour has a history table"
    since = (now or datetime.now()).astimezone() - timedelta(hours=1)
    size = pc.sum(read_maintenance_history(catalog, name, since=since)["bytes_read"]).as_py()
    return size or 0


def _check_columns(table: Table) -> None:
    names = table.stores.get_schema().names
    missing = [name for name in HISTORY_SCHEMA.names if name not in names]
    if missing:
        raise InputError(
            f"{table.identifier} cannot be the history of maintenance: it has no column "
            f"{', '.join(missing)}"
        )
