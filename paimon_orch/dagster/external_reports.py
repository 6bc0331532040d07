"""Reports what external systems know of a table: Iceberg readers and a catalog's partitions."""

from typing import TYPE_CHECKING

import dagster as dg

from paimon_orch.dagster.run_metadata import Metadata, to_metadata
from paimon_orch.errors import PaimonError
from paimon_orch.orchestration.run_reports import RunReport
from paimon_orch.safe_text import clean_line

if TYPE_CHECKING:  # runs import the library
    from paimon_orch.table.iceberg.status import IcebergStatus
    from paimon_orch.table.table_stores import TableStores


def report_iceberg_snapshot(
    context: dg.OpExecutionContext | dg.AssetExecutionContext | dg.OutputContext,
    stores: "TableStores",
) -> Metadata:
    """Return the snapshot that Iceberg readers see; log a warning if it is not the newest one.

    Returns no metadata for tables that are not published as Iceberg metadata.
    """
    from paimon_orch.table.iceberg.iceberg_settings import is_iceberg_enabled
    from paimon_orch.table.iceberg.status import read_iceberg_status

    if not is_iceberg_enabled(stores.get_schema()):
        return {}
    status = read_iceberg_status(stores.iceberg)
    if status is None:
        return {}
    if not status.is_current:
        context.log.warning(
            "%s: the Iceberg metadata is stale: %s; run sync_iceberg",
            stores.identifier,
            status.problem,
        )
    return to_metadata(RunReport(iceberg_snapshot_id=status.published_id))


def build_iceberg_metadata(status: "IcebergStatus") -> Metadata:
    """Return the published snapshot, the newest snapshot and the place of the Iceberg metadata."""
    metadata = to_metadata(
        RunReport(snapshot_id=status.latest_id, iceberg_snapshot_id=status.published_id)
    )
    if status.metadata_path is not None:
        metadata["paimon/iceberg_metadata"] = dg.MetadataValue.path(
            clean_line(status.metadata_path)
        )
    return metadata


def report_missing_partitions(
    context: dg.OpExecutionContext | dg.AssetExecutionContext | dg.OutputContext,
    stores: "TableStores",
) -> Metadata:
    """Return the number of partitions or tags that the catalog lacks; log a warning if there are any.

    Returns no metadata for tables without partitions in a catalog.
    """
    if stores.environment.partitions is None:
        return {}
    reports = stores.build_catalog_reports()
    if reports.partitions is None and reports.tag_partitions is None:
        return {}
    try:
        missing = len(reports.compare().missing)
    except (PaimonError, OSError) as error:
        # The run has changed the table, so a catalog that does not answer must not fail it.
        context.log.warning("%s: cannot list its partitions: %s", stores.identifier, error)
        return {}
    if missing:
        context.log.warning(
            "%s: its catalog lacks %d partitions; run sync_partitions", stores.identifier, missing
        )
    return to_metadata(RunReport(missing_partitions=missing))
