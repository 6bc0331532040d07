"""Rules of what other systems know of a table: Iceberg metadata, partitions of the catalog."""

from collections.abc import Iterator

from paimon_orch.format.display import format_count
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorFinding, DoctorRule, Severity
from paimon_orch.steps.inspection.doctor.rule_context import RuleContext
from paimon_orch.table.iceberg.iceberg_settings import is_iceberg_enabled
from paimon_orch.table.iceberg.status import read_iceberg_status
from paimon_orch.table.table_state import TableState


def check_iceberg(context: RuleContext, state: TableState) -> Iterator[DoctorFinding]:
    """Yield a finding if the Iceberg metadata does not show the newest snapshot."""
    if not is_iceberg_enabled(state.schema):
        return
    # not from what is held: a commit during the comparison explains a difference
    status = read_iceberg_status(context.table.stores.iceberg)
    if status is not None and status.problem is not None:
        yield context.find(
            DoctorRule.STALE_ICEBERG_METADATA,
            Severity.ADVICE if status.is_current else Severity.WARNING,
            status.problem,
            "sync-iceberg",
            None,
            **({} if not status.missing_snapshots else {"snapshots": status.missing_snapshots}),
        )


def check_catalog_partitions(context: RuleContext, state: TableState) -> Iterator[DoctorFinding]:
    """Yield a finding if the catalog has other partitions than the table."""
    reports = state.build_catalog_reports()
    if reports.partitions is None and reports.tag_partitions is None:
        return
    difference = reports.compare()
    missing, surplus = len(difference.missing), len(difference.surplus)
    if missing or surplus:
        yield context.find(
            DoctorRule.STALE_CATALOG_PARTITIONS,
            Severity.WARNING if missing else Severity.ADVICE,
            f"the catalog lacks {format_count(missing, 'partition')} of the table, which "
            f"other engines do not read, and has {surplus} without rows",
            "sync-partitions" if missing else "sync-partitions --drop",
            partitions=missing + surplus,
        )
