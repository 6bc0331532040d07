from __future__ import annotations

from datetime import timedelta

import pytest

from paimon_orch.errors import InputError
from paimon_orch.format.times import parse_cutoff, parse_duration, parse_timestamp

NOW = 1_769_860_800_000  # 2026-01-31T12:00:00Z
DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("3 d", timedelta(days=3)),
        (" 12H ", timedelta(hours=12)),
        ("30 min", timedelta(minutes=30)),
        ("0 s", timedelta(0)),
    ],
)
def test_durations_have_a_number_and_a_unit(text: str, duration: timedelta) -> None:
    assert parse_duration("--older-than", text) == duration


@pytest.mark.parametrize("text", ["", "3", "d", "-3 d", "3 weeks", "1.5 d", "3 d 4 h", "P1D"])
def test_invalid_durations_are_refused_with_the_name_of_the_option(text: str) -> None:
    with pytest.raises(InputError, match=f"^--older-than '{text}' is not a duration; write"):
        parse_duration("--older-than", text)


def test_a_duration_that_overflows_is_refused() -> None:
    with pytest.raises(InputError, match=r"^retain_for '99999999999999 d' is too long"):
        parse_duration("retain_for", "99999999999999 d")


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2026-01-31T12:00:00Z", NOW),
        ("2026-01-31T12:00:00.5+01:00", NOW - 3_599_500),
    ],
)
def test_points_in_time_are_iso_8601_or_epoch_milliseconds(text: str, millis: int) -> None:
    assert parse_timestamp("--timestamp", text) == millis


@pytest.mark.parametrize("text", ["", "now", "12:30", "2026-13-01", "12:00/13:00", "P1D", "3 d"])
def test_invalid_points_in_time_are_refused_with_the_name_of_the_option(text: str) -> None:
    with pytest.raises(InputError, match=f"^--timestamp '{text}' is not a point in time; write"):
        parse_timestamp("--timestamp", text)


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("3 d", NOW - 3 * DAY),
        ("3d", NOW - 3 * DAY),
        ("0 s", NOW),
        ("9000000 d", 0),
        ("2026-01-31T12:00:00Z", NOW),
        ("1769860800000", NOW),
    ],
)
def test_a_cutoff_is_an_age_or_a_point_in_time(text: str, millis: int) -> None:
    assert parse_cutoff("--older-than", text, NOW) == millis


@pytest.mark.parametrize(
    "text", ["", "soon", "-3 d", "20260131", "2026", "1769817600", "99999999999999999999"]
)
def test_a_cutoff_that_is_neither_an_age_nor_a_point_in_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"^--older-than '{text}' is neither a duration"):
        parse_cutoff("--older-than", text, NOW)


def test_a_cutoff_in_an_unknown_unit_is_refused() -> None:
    with pytest.raises(InputError, match=r"^older_than '3 weeks' is not a duration"):
        parse_cutoff("older_than", "3 weeks", NOW)
