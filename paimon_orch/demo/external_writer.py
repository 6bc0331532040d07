"""Stands in for the engines that write while Dagster runs: each call is a day of 2013 in New York."""

import pendulum
import pyarrow.compute as pc

from paimon_orch.demo.flights import (
    ROW_KIND_COLUMN,
    WAVES,
    build_wave,
    create_live_board,
    create_weather,
    read_weather,
)
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.catalog import Catalog
from paimon_orch.table.commit.commit import CommitId

COMMIT_USER = "outside-writer"
_FIRST_DAY = pendulum.date(2013, 1, 1)
_DAYS_OF_2013 = 365


def write_next_day(catalog: Catalog) -> str | None:
    """Commit the day after the newest one on the live board, three upserts there and an append of its weather.

    Returns the day; None if the year is over. The tables are made by the first call.
    """
    board, measured = create_live_board(catalog), create_weather(catalog)
    number = len(inspect(board).partitions)
    if number == _DAYS_OF_2013:
        return None
    day = _FIRST_DAY.add(days=number).isoformat()
    hours = read_weather().filter(pc.equal(read_weather()["weather_date"], day))
    measured.append(hours.drop_columns("weather_date"), commit_id=CommitId(COMMIT_USER, number + 1))
    for count, name in enumerate(WAVES, 1):
        turn = CommitId(COMMIT_USER, number * len(WAVES) + count)
        board.upsert(build_wave(name, day), row_kind=ROW_KIND_COLUMN, commit_id=turn)
    return day
