"""Simulates another engine that writes while Dagster runs: each call commits one day of 2013."""

import pendulum
import pyarrow.compute as pc

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.demo.flights import (
    ROW_KIND_COLUMN,
    WAVES,
    build_wave,
    create_live_board,
    create_weather,
    read_weather,
)
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.commit.commit_id import CommitId

COMMIT_USER = "outside-writer"
_FIRST_DAY = pendulum.date(2013, 1, 1)
_LAST_DAY = pendulum.date(2013, 12, 31)


def write_next_day(catalog: Catalog, last_day: pendulum.Date = _LAST_DAY) -> str | None:
    """Commit the next day: three upserts to the live board, and one append to the weather.

    Returns the day, or None if it would be after ``last_day``. Creates the tables if they do not
    exist.
    """
    board, weather = create_live_board(catalog), create_weather(catalog)
    day_count = len(inspect(board).partitions)
    date = _FIRST_DAY.add(days=day_count)
    if date > last_day:
        return None
    day = date.isoformat()
    hours = read_weather().filter(pc.equal(read_weather()["weather_date"], day))
    commit_id = CommitId(COMMIT_USER, day_count + 1)
    weather.append(hours.drop_columns("weather_date"), commit_id=commit_id)
    for number, wave in enumerate(WAVES, day_count * len(WAVES) + 1):
        commit_id = CommitId(COMMIT_USER, number)
        board.upsert(build_wave(wave, day), row_kind=ROW_KIND_COLUMN, commit_id=commit_id)
    return day
