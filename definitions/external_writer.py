"""Another engine, as far as the demo's tables are concerned: it commits, and says nothing to Dagster."""

import dagster as dg

from paimon_orch.dagster import PaimonCatalogResource
from paimon_orch.demo.external_writer import write_next_day


@dg.op
def commit_next_day(context: dg.OpExecutionContext, paimon: PaimonCatalogResource) -> None:
    """Commit one more day of flights and weather."""
    day = write_next_day(paimon.catalog())
    context.log.info("committed %s", day or "nothing: the year is over")


@dg.job(
    description="Stands in for Flink, say: each run commits another day of 2013 to `nyc.live_board` and `nyc.weather`. "
    "Their sensors see the commits, add partitions and request compaction."
)
def external_writer() -> None:
    """Write as others do: in no pool, and without an asset."""
    commit_next_day()


external_writer_schedule = dg.ScheduleDefinition(
    job=external_writer,
    cron_schedule="*/5 * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="A day of 2013 every five minutes. Stop it to have quiet, run the job to have more.",
)
