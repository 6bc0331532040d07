"""The metadata of a lake's report: a page with links, tables, the trend, and numbers."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import dagster as dg

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.dagster.names import TABLE_TAG, table_asset_key, table_label
from paimon_orch.dagster.run_metadata import Metadata, build_metadata_table
from paimon_orch.errors import InputError
from paimon_orch.format.display import format_size
from paimon_orch.orchestration.lake_report import (
    FINDING_COLUMNS,
    STATES,
    TABLE_COLUMNS,
    LakeReport,
    Rows,
    build_lake_report,
    read_costs_per_day,
)
from paimon_orch.safe_text import escape_markdown
from paimon_orch.steps.inspection.doctor.doctor import examine_catalog
from paimon_orch.steps.inspection.doctor.doctor_findings import Severity

_MAX_ROWS = 1_000
_MAX_TABLES_OF_PAGE = 50
_MAX_REPORTS = 30
"""The number of earlier reports in the trend."""
_TABLES, _FINDINGS = "paimon/tables_by_cost", "paimon/findings_by_table"
_MARKS = dict(zip(STATES, "🔴🟡🔵🟢", strict=True))
_TREND_COLUMNS = {
    "time": "string",
    **{f"tables_{state}": "int" for state in STATES},
    "findings": "int",
    "requests": "int",
    "saved_requests": "int",
    "bytes": "int",
    "cost_per_day": "float",
    "run": "string",
}
_PAGE_HEADER = (
    "| | table | requests of a scan | of these saved | size | cost per day | findings | command | "
    "last run |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


class LakePage:
    """The asset of a lake's report, with its earlier materializations."""

    def __init__(
        self,
        instance: dg.DagsterInstance,
        asset_key: dg.AssetKey,
        *,
        key_prefix: Sequence[str],
        ui_url: str,
    ) -> None:
        self._instance, self._key_prefix = instance, key_prefix
        self._asset_key, self._ui_url = asset_key, ui_url.rstrip("/")
        records = instance.fetch_materializations(asset_key, limit=_MAX_REPORTS).records
        self._reports = [
            (record, record.asset_materialization.metadata)
            for record in records
            if record.asset_materialization is not None
        ]

    def examine(
        self,
        catalog: Catalog,
        names: list[str],
        history_table: str,
        *,
        check_files: bool,
        deep: bool,
    ) -> LakeReport:
        """Examine tables, and compare them with the last materialization."""
        last = self._reports[0][1] if self._reports else {}
        findings = _read_rows(last, _FINDINGS)
        if findings is not None and len(findings) >= _MAX_ROWS:
            findings = None  # there may have been others
        return build_lake_report(
            examine_catalog(catalog, names, check_files=check_files, deep=deep),
            catalog.label,
            previous_tables=_read_rows(last, _TABLES),
            previous_findings=findings,
            costs=read_costs_per_day(catalog, history_table),
        )

    def build_metadata(self, report: LakeReport) -> Metadata:
        """Return the metadata of a materialization."""
        return {
            "paimon/summary": report.summary,
            "paimon/page": dg.MetadataValue.md(self._build_page(report)),
            _TABLES: build_metadata_table(report.tables, TABLE_COLUMNS, max_records=_MAX_ROWS),
            _FINDINGS: build_metadata_table(
                report.findings, FINDING_COLUMNS, max_records=_MAX_ROWS
            ),
            "paimon/trend": build_metadata_table(self._list_trend(report), _TREND_COLUMNS),
            **{f"paimon/{name}": value for name, value in report.figures.items()},
        }

    def build_check(self, report: LakeReport) -> dg.AssetCheckResult:
        """Return the result of the check ``healthy``."""
        states = {row["state"] for row in report.tables}
        is_error = Severity.ERROR in states
        return dg.AssetCheckResult(
            passed=not is_error and Severity.WARNING not in states,
            severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
            description=report.summary,
        )

    def _list_trend(self, report: LakeReport) -> Iterable[dict[str, Any]]:
        """Yield the figures of this report and of the earlier ones, the newest first."""
        names = [name for name in _TREND_COLUMNS if name not in ("time", "run")]
        yield {
            "time": _format_time(datetime.now(UTC).timestamp()),
            **{name: report.figures.get(name) for name in names},
            "run": None,
        }
        for record, metadata in self._reports:
            values = {name: metadata.get(f"paimon/{name}") for name in names}
            yield {
                "time": _format_time(record.timestamp),
                **{name: None if value is None else value.value for name, value in values.items()},
                "run": record.run_id,
            }

    def _build_page(self, report: LakeReport) -> str:
        """Return the page; names and errors come from storage, so all text is escaped."""
        shown = report.tables[:_MAX_TABLES_OF_PAGE]
        rules: dict[str, list[str]] = {}
        for finding in report.findings:
            mark = " (new)" if finding["is_new"] else ""
            rules.setdefault(finding["table"], []).append(f"{finding['rule']}{mark}")
        lines = [escape_markdown(report.summary), "", _PAGE_HEADER]
        lines += [self._build_line(row, rules.get(row["table"], ())) for row in shown]
        if len(report.tables) > len(shown):
            lines += ["", f"and {len(report.tables) - len(shown)} other tables"]
        return "\n".join(lines)

    def _build_line(self, row: Mapping[str, Any], rules: Iterable[str]) -> str:
        cost, change = row["cost_per_day"], row["requests_change"]
        name, key = escape_markdown(row["table"]), self._find_key(row["table"])
        run = self._find_last_run(row["table"], key)
        cells = [
            _MARKS[row["state"]],
            name if key is None else f"[{name}]({self._ui_url}{_build_asset_path(key)})",
            f"{row['requests']:,}" + (f" ({change:+,})" if change else ""),
            f"{row['saved_requests']:,}",
            format_size(row["bytes"]),
            "" if cost is None else f"{cost:,.2f}",
            ", ".join(dict.fromkeys(rules)),
            escape_markdown(row["command"] or ""),
            "" if run is None else f"[{_format_time(run[0])}]({self._ui_url}/runs/{run[1]})",
        ]
        return f"| {' | '.join(cells)} |"

    def _find_key(self, table: str) -> dg.AssetKey | None:
        """Return the key of a table's asset, or None if the instance has none."""
        try:
            key = table_asset_key(table, self._key_prefix)
        except InputError:  # Dagster does not accept all names of tables
            return None
        return key if self._instance.has_asset_key(key) else None

    def _find_last_run(self, table: str, key: dg.AssetKey | None) -> tuple[float, str] | None:
        """Return the time and the id of the last run that maintained a table."""
        tagged = self._instance.get_run_records(
            dg.RunsFilter(tags={TABLE_TAG: table_label(table, self._key_prefix)}), limit=1
        )
        runs = [(run.create_timestamp.timestamp(), run.dagster_run.run_id) for run in tagged]
        if key is not None:  # the job of a catalog has no tag of a table; sensors have no run
            events = self._instance.fetch_observations(key, limit=_MAX_REPORTS).records
            runs += [(event.timestamp, event.run_id) for event in events if event.run_id][:1]
        return max(runs, default=None)


def _build_asset_path(key: dg.AssetKey) -> str:
    return "/".join(["/assets", *(quote(part, safe="") for part in key.path)])


def _read_rows(metadata: Mapping[str, Any], name: str) -> Rows | None:
    value = metadata.get(name)
    if not isinstance(value, dg.TableMetadataValue):
        return None
    return [record.data for record in value.records]


def _format_time(timestamp: float) -> str:
    return f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d %H:%M} UTC"
