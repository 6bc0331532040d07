"""The tests that pytest collects, with the engines and services that they use."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

import pytest
from support.peers.exchanges import (
    EXCHANGES,
    FIXTURES,
    GOLDEN_WRITERS,
    PARAMETERS,
    SERVICE_PARAMETERS,
    Direction,
    Exchange,
)

TESTS = Path(__file__).resolve().parents[2]
FOLDERS = ("peers", "catalog")
_GOLDEN = re.compile(rf"({'|'.join(map(re.escape, GOLDEN_WRITERS))})/")


@dataclass(frozen=True, slots=True)
class CollectedTest:
    """A test with its parameters."""

    file: str
    """Below tests/."""
    function: str
    engines: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()


class _Collector:
    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = session.items


def list_files(more: Iterable[str]) -> list[str]:
    """Return the test files of peers and catalogs, those of the exchanges, and more files."""
    paths = chain(*((TESTS / folder).rglob("test_*.py") for folder in FOLDERS))
    files = {path.relative_to(TESTS).as_posix() for path in paths}
    return sorted(files.union(more, (exchange.file for exchange in EXCHANGES)))


def collect_tests(files: Iterable[str]) -> list[CollectedTest]:
    """Collect the tests of files below tests/."""
    collector = _Collector()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        paths = (str(TESTS / file) for file in files)
        code = pytest.main(["--collect-only", "-q", *paths], [collector])
    assert code == pytest.ExitCode.OK, printed.getvalue()
    return describe_tests(collector.items)


def describe_tests(items: Iterable[pytest.Item]) -> list[CollectedTest]:
    """Describe collected tests."""
    return [_describe(item) for item in items if isinstance(item, pytest.Function)]


def _describe(item: pytest.Function) -> CollectedTest:
    file = item.path.relative_to(TESTS).as_posix()
    return CollectedTest(
        file=file,
        function=item.originalname,
        engines=frozenset(_find_engines(item)),
        services=frozenset(_find_services(item, is_rest=item.path.name.startswith("test_rest"))),
    )


def _find_engines(item: pytest.Function) -> Iterator[str]:
    yield from (FIXTURES[name] for name in item.fixturenames if name in FIXTURES)
    texts = chain(*_list_parameters(item).values())
    engines = [PARAMETERS[text] for text in texts if text in PARAMETERS]
    # In the name of a golden table, an engine is the writer of the table.
    yield from engines or [GOLDEN_WRITERS[name] for name in _GOLDEN.findall(item.name)]


def _find_services(item: pytest.Function, *, is_rest: bool) -> Iterator[str]:
    names = (*SERVICE_PARAMETERS, "name") if is_rest else SERVICE_PARAMETERS
    for name, texts in _list_parameters(item).items():
        if name in names:
            yield from (text.removeprefix("hive-") for text in texts)


def _list_parameters(item: pytest.Function) -> dict[str, list[str]]:
    """Return the texts in the parameters of a test, which are texts or lists of texts."""
    callspec = getattr(item, "callspec", None)
    values = {} if callspec is None else callspec.params
    lists = {name: value if isinstance(value, list) else [value] for name, value in values.items()}
    return {
        name: [text for text in texts if isinstance(text, str)] for name, texts in lists.items()
    }


def match_exchanges(
    tests: Iterable[CollectedTest], exchanges: Sequence[Exchange] = EXCHANGES
) -> dict[tuple[str, Direction], list[CollectedTest]]:
    """Return the tests of each feature and direction.

    Raises AssertionError if a test of peers has no exchange, or an exchange has no tests.
    """
    matched: dict[Exchange, list[CollectedTest]] = {exchange: [] for exchange in exchanges}
    for test in tests:
        exchange = _find_exchange(test, exchanges)
        if exchange is not None:
            engines = test.engines | set(exchange.engines)
            assert engines or exchange.direction is None, f"{test} names no engine"
            matched[exchange].append(replace(test, engines=engines))
    assert all(matched.values()), [exchange for exchange in exchanges if not matched[exchange]]
    features = list(dict.fromkeys(exchange.feature for exchange in exchanges))
    return {
        (feature, direction): found
        for feature in features
        for direction in Direction
        if (found := _merge(matched, feature, direction))
    }


def _find_exchange(test: CollectedTest, exchanges: Sequence[Exchange]) -> Exchange | None:
    in_file = [exchange for exchange in exchanges if exchange.file == test.file]
    for exchange in in_file:
        if fnmatchcase(test.function, exchange.pattern):
            return exchange
    is_peer = bool(in_file) or test.file.startswith("peers/")
    assert not is_peer, f"EXCHANGES has no row for {test.function} of tests/{test.file}"
    return None


def _merge(
    matched: Mapping[Exchange, list[CollectedTest]], feature: str, direction: Direction
) -> list[CollectedTest]:
    rows = (row for row in matched if (row.feature, row.direction) == (feature, direction))
    return list(chain(*(matched[row] for row in rows)))
