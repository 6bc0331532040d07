"""Which snapshots and changelogs the limits of an expiration retain."""

from __future__ import annotations

import pytest

from paimon_orch.format.options import Options
from paimon_orch.steps.expiration.retention import (
    Retention,
    RetentionRequest,
    find_first_retained_changelog,
    is_changelog_decoupled,
)

HOUR = 3_600_000
TIMES = {1: 10, 3: 30, 4: 40, 7: 70}
"""The times of changelogs; the others have expired, or were never written."""


@pytest.mark.parametrize(
    ("limits", "consumers", "first"),
    [
        # everything is old: the newest one is retained
        (Retention(1, 1, 1_000, 99), (), 7),
        (Retention(1, 3, 1_000, 99), (), 7),
        # of the newest four of the snapshots 1 to 9, those since a time
        (Retention(1, 4, 70, 99), (), 7),
        (Retention(1, 6, 40, 99), (), 4),
        (Retention(1, 6, 41, 99), (), 7),
        # the maximum applies to young ones, too
        (Retention(1, 2, 35, 99), (), 7),
        # the minimum, the limit of deletions, and a consumer
        (Retention(7, 9, 1_000, 99), (), 3),
        (Retention(1, 9, 1_000, 3), (), 4),
        (Retention(1, 9, 1_000, 99), (3, 4), 3),
        (Retention(1, 9, 5, 99), (), 1),
    ],
)
def test_the_oldest_retained_changelog_exists(
    limits: Retention, consumers: tuple[int, ...], first: int
) -> None:
    assert find_first_retained_changelog(TIMES, 9, limits, consumers) == first


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"changelog.num-retained.max": "21"}, True),
        ({"changelog.num-retained.max": "20"}, False),
        ({"changelog.num-retained.min": "6"}, True),
        ({"changelog.num-retained.min": "5"}, False),
        ({"changelog.time-retained": "61 min"}, True),
        ({"changelog.time-retained": "1 h"}, False),
    ],
    ids=str,
)
def test_changelogs_are_separate_if_a_limit_is_above_that_of_snapshots(
    options: dict[str, str], expected: bool
) -> None:
    snapshots = {
        "snapshot.num-retained.max": "20",
        "snapshot.num-retained.min": "5",
        "snapshot.time-retained": "1 h",
    }
    limits = Retention.of_snapshots(Options(snapshots | options), 0, RetentionRequest())

    assert is_changelog_decoupled(Options(snapshots | options), limits) is expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, (5, 20)),
        ({"retain_max": 3}, (3, 3)),
        ({"retain_max": 30}, (5, 30)),
        ({"retain_min": 25}, (25, 25)),
        ({"retain_min": 2}, (2, 20)),
        ({"retain_min": 2, "retain_max": 4}, (2, 4)),
    ],
    ids=str,
)
def test_an_argument_moves_the_other_limit_of_the_options(
    limits: dict[str, int], expected: tuple[int, int]
) -> None:
    options = Options({"snapshot.num-retained.max": "20", "snapshot.num-retained.min": "5"})

    retention = Retention.of_snapshots(options, 5 * HOUR, RetentionRequest(**limits))

    assert (retention.retain_min, retention.retain_max) == expected
    assert retention.older_than == 4 * HOUR
