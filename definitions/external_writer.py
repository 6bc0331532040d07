"""A job that simulates another engine: it commits to tables without reporting to Dagster."""

import dagster as dg

from paimon_orch.dagster import PaimonCatalogResource
from paimon_orch.demo.external_writer import write_next_day


@dg.op
def commit_next_day(context: dg.OpExecutionContext, paimon: PaimonCatalogResource) -> None:
    """Commit one more day of flights and weather."""
    day = write_next_day(paimon.catalog())
    context.log.info("committed %s", day or "nothing: the year has ended")


@dg.job(
    description="Simulates another engine, such as Flink: each run commits one more day of 2013 to "
    "`nyc.live_board` and `nyc.weather`. The sensors of these tables detect the commits, add "
    "partitions and request compactions."
)
def external_writer() -> None:
    """Commit without a pool and without an asset, as another engine does."""
    commit_next_day()


external_writer_schedule = dg.ScheduleDefinition(
    job=external_writer,
    cron_schedule="*/5 * * * *",
    description="Commits one day of 2013 every five minutes. Stop the schedule to pause new data; "
    "run the job to add a day.",
)
