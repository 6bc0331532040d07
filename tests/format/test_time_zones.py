"""Local times and instants agree with the time zone database, in each zone and around each change."""

from __future__ import annotations

import datetime as dt
import re
from zoneinfo import ZoneInfo, available_timezones

import pyarrow as pa
import pytest

from paimon_orch.errors import InputError
from paimon_orch.format.time_zones import to_instants, to_local_times

ZONES = sorted(zone for zone in available_timezones() if "/" in zone)
QUARTERS = [dt.datetime(2024, 1, 1) + dt.timedelta(minutes=15 * n) for n in range(366 * 96)]
UNITS = ["s", "ms", "us", "ns"]


def near_changes(zone: ZoneInfo) -> list[dt.datetime]:
    """Return the quarters of an hour, in UTC, on both sides of the changes of a year."""
    days = range(0, len(QUARTERS), 96)
    offsets = [QUARTERS[day].replace(tzinfo=dt.UTC).astimezone(zone).utcoffset() for day in days]
    changes = [day for day, a, b in zip(days, offsets, offsets[1:], strict=False) if a != b]
    times = [QUARTERS[n] for day in [0, *changes] for n in range(day, day + 120)]
    return [*times, *(time.replace(year=2048) for time in times)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("zones", [ZONES[n::32] for n in range(32)], ids=lambda zones: zones[0])
def test_regions_have_the_times_of_the_database(zones: list[str]) -> None:
    for zone in zones:
        check_times(zone)


def check_times(zone: str) -> None:
    info = ZoneInfo(zone)
    utc = near_changes(info)
    local = [t.replace(tzinfo=dt.UTC).astimezone(info).replace(tzinfo=None) for t in utc]
    # with fold=0, a repeated time is the first, and a skipped time has the offset before the change
    instants = [t.replace(tzinfo=info).astimezone(dt.UTC) for t in utc]
    unit = UNITS[len(zone) % 4]
    naive = pa.array([*utc, None], pa.timestamp("us")).cast(pa.timestamp(unit))

    assert to_local_times(naive.view(pa.timestamp(unit, zone))).to_pylist() == [*local, None], zone
    found = to_instants(naive, zone)
    assert found.type == pa.timestamp(unit, "UTC")
    assert found.cast(pa.timestamp("us", "UTC")).to_pylist() == [*instants, None], zone


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("Z", "+00:00"),
        ("UTC", "+00:00"),
        ("GMT+05:30", "+05:30"),
        ("UTC+1", "+01:00"),
        ("UT-3", "-03:00"),
        ("+8", "+08:00"),
        ("-0330", "-03:30"),
        ("+5:3", "+05:03"),
        ("+053015", "+05:30:15"),
        ("+01:02:03", "+01:02:03"),
        ("-18:00", "-18:00"),
        ("EST", "-05:00"),
        ("IST", "+05:30"),
        ("PST", "-07:00"),
    ],
)
def test_offsets_and_short_names_of_java_are_known(name: str, offset: str) -> None:
    noon = pa.array([dt.datetime(2024, 7, 1, 12)], pa.timestamp("us"))
    [instant] = to_instants(noon, name).to_pylist()

    assert instant == dt.datetime.fromisoformat(f"2024-07-01T12:00:00{offset}")
    [local] = to_local_times(noon.view(pa.timestamp("us", name))).to_pylist()
    assert local - noon[0].as_py() == noon[0].as_py() - instant.replace(tzinfo=None)


@pytest.mark.parametrize("zone", ["Mars/Base", "+18:01", "UTC+25", "+05:60", "+123"])
def test_an_unknown_zone_is_refused_by_name(zone: str) -> None:
    noon = pa.array([dt.datetime(2048, 7, 1, 12)], pa.timestamp("us"))

    with pytest.raises(InputError, match=f"'{re.escape(zone)}' is not a time zone"):
        to_instants(noon, zone)
    with pytest.raises(InputError, match=f"'{re.escape(zone)}' is not a time zone"):
        to_local_times(noon.view(pa.timestamp("us", zone)))
