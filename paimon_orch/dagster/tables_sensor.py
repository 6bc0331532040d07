"""A sensor that requests compactions of many tables."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

import dagster as dg

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.dagster.names import compaction_asset_key, definition_name, join_definition_name
from paimon_orch.dagster.resources import PaimonCatalogResource, rename_catalog_parameter
from paimon_orch.dagster.run_requests import limit_pools
from paimon_orch.dagster.sensor import (
    MAX_REQUESTS_PER_TICK,
    TableTick,
    WatchedTable,
    describe_action,
)
from paimon_orch.errors import PaimonError
from paimon_orch.format.display import format_count
from paimon_orch.orchestration.cursor import Cursor
from paimon_orch.orchestration.table_watch import AwaitedTableError, TableEvaluation
from paimon_orch.orchestration.tables_watch import TablesCursor, evaluate_tables, share_requests
from paimon_orch.safe_text import format_names

_MAX_SECONDS = 10.0
"""After this time, a tick leaves the other tables to the next one; Dagster ends it after 60 s."""
_MAX_EVENTS = 500
"""The daemon stores the events of a tick one by one."""
_MAX_REASONS = 3


def build_tables_sensor(
    name: Sequence[str],
    watched_tables: Iterable[WatchedTable],
    *,
    minimum_interval_seconds: int,
    max_requests_per_tick: int = MAX_REQUESTS_PER_TICK,
    default_status: dg.DefaultSensorStatus,
) -> dg.SensorDefinition:
    """Return one sensor for several tables; ``name`` follows ``latest_snapshot`` in its name.

    A tick evaluates as many tables as its time allows, and shares its run requests among those that
    need runs; the next tick begins with the next table. A table that fails does not stop the
    others: its error is logged, and the tick fails only if no other table has news. The first tick
    continues from the cursors of the sensors of the single tables, if there were any.
    """
    tables = {watched.table: watched for watched in watched_tables}
    first = next(iter(tables.values()))
    keys = [compaction_asset_key(each.table, each.key_prefix) for each in tables.values()]

    @dg.sensor(
        name=join_definition_name("latest_snapshot", *name),
        description=f"{describe_action(first)} of {format_count(len(tables), 'table')} that new "
        "snapshots changed.",
        # The assets have different partitions, so they cannot be the target, which is one job.
        asset_selection=dg.AssetSelection.assets(*keys) if first.request_runs else None,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
    )
    @rename_catalog_parameter(first.resource_prefix)
    def latest_snapshots(
        context: dg.SensorEvaluationContext, paimon: PaimonCatalogResource
    ) -> dg.SensorResult:
        cursor = TablesCursor.from_text(context.cursor) or _adopt_cursors(context, tables)
        tick = _TablesTick(context, tables, cursor, max_requests_per_tick)
        return tick.evaluate(paimon.catalog())

    return latest_snapshots


def _adopt_cursors(
    context: dg.SensorEvaluationContext, tables: Mapping[str, WatchedTable]
) -> TablesCursor:
    """Return the cursors of sensors of single tables, which the instance keeps by their names.

    A cursor of another table with the same name has no effect: it names the table's path and time.
    """
    if context.instance.schedule_storage is None:  # an instance in memory keeps no cursors
        return TablesCursor()
    names = {
        definition_name("latest_snapshot", table, watched.key_prefix): table
        for table, watched in tables.items()
    }
    states = {
        state.name: state.instigator_data for state in context.instance.all_instigator_state()
    }
    texts = {table: getattr(states.get(name), "cursor", None) for name, table in names.items()}
    adopted = {table: str(text) for table, text in texts.items() if Cursor.from_json(text)}
    if adopted:
        context.log.info("continuing from the cursors of %s", format_count(len(adopted), "table"))
    return TablesCursor(adopted)


class _TablesTick:
    """One tick of a sensor of several tables."""

    def __init__(
        self,
        context: dg.SensorEvaluationContext,
        tables: Mapping[str, WatchedTable],
        cursor: TablesCursor,
        max_requests: int,
    ) -> None:
        self._context, self._tables, self._cursor = context, tables, cursor
        self._max_requests, self._deadline = max_requests, time.monotonic() + _MAX_SECONDS
        self._ticks: dict[str, TableTick] = {}
        self._errors: dict[str, Exception] = {}

    def evaluate(self, catalog: Catalog) -> dg.SensorResult:
        """Evaluate tables until the budget is used, and return the result."""
        order = self._cursor.rotate(self._tables)
        watches = (self._tables[table].watch for table in order)
        evaluated = 0
        with closing(evaluate_tables(catalog, watches, self._cursor)) as evaluations:
            for table, evaluation in evaluations:
                self._add(table, evaluation)
                evaluated += 1
                if self._is_budget_used():
                    break
        self._raise_if_failed()
        following = order[evaluated] if evaluated < len(order) else ""
        return self._build_result(following, evaluated)

    def _add(self, table: str, evaluation: TableEvaluation | Exception | None) -> None:
        try:
            if evaluation is None or isinstance(evaluation, AwaitedTableError):
                return
            if isinstance(evaluation, Exception):
                raise evaluation
            tick = self._tables[table].plan_tick(
                self._context, evaluation, is_first=table not in self._cursor.texts
            )
        except Exception as error:
            self._errors[table] = error
            self._context.log.exception("%s could not be evaluated", table)
            return
        if tick is not None:
            self._ticks[table] = tick

    def _is_budget_used(self) -> bool:
        return (
            time.monotonic() > self._deadline
            or sum(bool(tick.runs) for tick in self._ticks.values()) >= self._max_requests
            or sum(len(tick.events) for tick in self._ticks.values()) >= _MAX_EVENTS
        )

    def _raise_if_failed(self) -> None:
        """Fail the tick if tables failed and nothing would be lost by it."""
        if self._errors and not self._ticks:
            table, error = next(iter(self._errors.items()))
            raise PaimonError(
                f"{format_count(len(self._errors), 'table')} could not be evaluated: "
                f"{format_names(self._errors)}. The first error: {table}: {error}"
            ) from error

    def _build_result(self, following: str, evaluated: int) -> dg.SensorResult:
        shares = share_requests(
            {table: len(tick.runs) for table, tick in self._ticks.items()}, self._max_requests
        )
        results = {table: tick.build_result(shares[table]) for table, tick in self._ticks.items()}
        limit_pools(
            self._context.instance,
            [tick.target.pool for tick in self._ticks.values() if tick.needs_pool_limit],
        )
        texts = {table: text for table, text in self._cursor.texts.items() if table in self._tables}
        texts |= {table: str(result.cursor) for table, result in results.items()}
        requests = [request for each in results.values() for request in each.run_requests or ()]
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else self._explain_no_run(evaluated),
            cursor=TablesCursor(texts, following).to_text(),
            dynamic_partitions_requests=[
                request for tick in self._ticks.values() for request in tick.partitions_requests
            ],
            asset_events=[event for tick in self._ticks.values() for event in tick.events],
        )

    def _explain_no_run(self, evaluated: int) -> str:
        total = format_count(len(self._tables), "table")
        parts = [f"no runs for {evaluated} of {total}; {len(self._ticks)} with news"]
        if self._errors:
            parts.append(f"{len(self._errors)} failed: {format_names(self._errors)}")
        parts += [tick.no_run_reason for tick in self._ticks.values()][:_MAX_REASONS]
        return "; ".join(parts)
