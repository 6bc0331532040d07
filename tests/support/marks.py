"""Marks and order of tests: which need a service, and which one worker runs after each other.

`make test` leaves the tests with the marker ``services`` to `make test-services`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

COLLECTED_ITEMS = pytest.StashKey[Sequence[pytest.Item]]()
"""All collected tests, those included that options such as `-m` leave out later."""

_SERVICES = {"peers", "slow", "services"}
# They start another implementation, or a server that is not a Python package.
_SERVICE_FIXTURES = {
    "azurite",
    "catalog_under_test",
    "fake_gcs",
    "hdfs_cluster",
    "jdbc_database",
    "postgres",
    "rest_servers",
    "served",
    "start_hive_metastore",
    "start_rest_server",
}
_SHARED_BY_A_WORKER = {"catalog_under_test", "hdfs_cluster", "spark"}
_IN_PROCESS = "sqlite"  # the kind of catalog that needs no service


def mark_items(items: Iterable[pytest.Item]) -> None:
    """Mark the tests by their folders, fixtures and parameters."""
    samples = defaultdict(list)
    for item in items:
        _mark_group(item)
        sampled = item.get_closest_marker("sampled")
        if _is_served(item) or any(map(item.get_closest_marker, _SERVICES)):
            item.add_marker(pytest.mark.services)
        elif sampled is not None:
            samples[item.nodeid.partition("[")[0], *sampled.args].append(item)
    for (_, *count), cases in samples.items():
        chosen = _spread(cases, *count) if count else _cover(cases)
        for item in cases:
            if item not in chosen:
                item.add_marker(pytest.mark.services)


def start_longest_first(items: list[pytest.Item]) -> None:
    """Move the tests with the longest time limits to the front.

    Workers take tests in this order, after the groups of several tests. The last test to start
    should be a short one, because the run waits for one worker then.
    """
    items.sort(key=_get_time_limit, reverse=True)


def _get_time_limit(item: pytest.Item) -> float:
    limit = item.get_closest_marker("timeout")
    return limit.args[0] if limit else 0


def _mark_group(item: pytest.Item) -> None:
    """Let one worker run all tests that share a session, a peer, a server or a deployment."""
    folder = item.path.parent.name
    fixtures = getattr(item, "fixturenames", ())
    if folder == "peers":
        item.add_marker(pytest.mark.peers)
        item.add_marker(pytest.mark.xdist_group("peers"))
    elif folder == "live":
        item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.xdist_group("live"))
    if "spark" in fixtures:
        item.add_marker(pytest.mark.spark)
    # The tests of HDFS run where a session and a metastore are, which some of them use.
    if _SHARED_BY_A_WORKER.intersection(fixtures):
        item.add_marker(pytest.mark.xdist_group("spark"))


def _is_served(item: pytest.Item) -> bool:
    fixtures = _SERVICE_FIXTURES.intersection(getattr(item, "fixturenames", ()))
    return bool(fixtures) and _IN_PROCESS not in _parameters(item).values()


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def _spread(cases: Sequence[pytest.Item], count: int) -> list[pytest.Item]:
    """Return a number of cases that are evenly spread."""
    return [cases[n * len(cases) // count] for n in range(min(count, len(cases)))]


def _cover(cases: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return few cases that together contain each value of each parameter."""
    values = {
        case: {(name, repr(value)) for name, value in _parameters(case).items()} for case in cases
    }
    chosen, missing = [], set().union(*values.values())
    while missing:
        best = max(cases, key=lambda case: len(values[case] & missing))
        chosen.append(best)
        missing -= values[best]
    return chosen
