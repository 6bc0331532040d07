"""Reports the partitions that the catalog of a table, such as a Hive metastore, lacks."""

import dagster as dg

from paimon_orch.dagster.run_metadata import Metadata, PaimonMetadata
from paimon_orch.errors import PaimonError
from paimon_orch.table.table import Table


def report_missing_partitions(
    context: dg.OpExecutionContext | dg.AssetExecutionContext | dg.OutputContext, table: Table
) -> Metadata:
    """Return the number of partitions or tags that the catalog lacks; log a warning if there are any.

    Returns no metadata for tables without partitions in a catalog.
    """
    if table.environment.partitions is None:
        return {}
    reports = table.stores.catalog_reports
    if reports.partitions is None and reports.tag_partitions is None:
        return {}
    try:
        missing = len(reports.compare().missing)
    except (PaimonError, OSError) as error:
        # The run has changed the table, so a catalog that does not answer must not fail it.
        context.log.warning("%s: cannot list its partitions: %s", table.identifier, error)
        return {}
    if missing:
        context.log.warning(
            "%s: its catalog lacks %d partitions; run sync_partitions", table.identifier, missing
        )
    return PaimonMetadata(missing_partitions=missing).to_dagster()
