"""docs/trust.md: what is tested against which release of which engine."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import trust
from support.docs.collected_tests import CollectedTest, describe_tests, match_exchanges
from support.marks import COLLECTED_ITEMS
from support.peers.exchanges import JAVA_2_0, Direction, Exchange

READ = CollectedTest("peers/test_a.py", "test_java_reads", frozenset([JAVA_2_0]))
TURNS = CollectedTest("peers/test_a.py", "test_in_turns", frozenset([JAVA_2_0]))
EXCHANGES = (
    Exchange("peers/test_a.py", "a", Direction.TURNS, "*turns"),
    Exchange("peers/test_a.py", "a", Direction.THEY_READ),
)


def test_the_page_is_generated_from_the_collected_tests(
    repository: Path, pytestconfig: pytest.Config
) -> None:
    stored = (repository / "docs" / "trust.md").read_text(encoding="utf-8")

    assert generate_page(pytestconfig) == stored, "run: make reference"


def generate_page(config: pytest.Config) -> str:
    """Generate the page from the tests of this session, or collect them if it has only some."""
    items = config.stash[COLLECTED_ITEMS]
    tests = describe_tests(items)
    if {test.file for test in tests}.issuperset(trust.list_sources()):
        return trust.page(tests)
    command = [sys.executable, "-m", "support.docs.trust"]
    folder = trust.ROOT / "tests"
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_the_first_row_that_matches_counts_a_test() -> None:
    other = CollectedTest("catalog/test_b.py", "test_b")

    assert match_exchanges([READ, TURNS, other], EXCHANGES) == {
        ("a", Direction.THEY_READ): [READ],
        ("a", Direction.TURNS): [TURNS],
    }


def test_a_test_of_peers_without_a_row_is_refused() -> None:
    unknown = CollectedTest("peers/test_new.py", "test_new", frozenset([JAVA_2_0]))

    with pytest.raises(AssertionError, match=r"no row for test_new of tests/peers/test_new\.py"):
        match_exchanges([READ, TURNS, unknown], EXCHANGES)


def test_a_row_without_tests_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"\*turns"):
        match_exchanges([READ], EXCHANGES)


def test_a_counted_test_without_an_engine_is_refused() -> None:
    without = CollectedTest("peers/test_a.py", "test_java_reads")

    with pytest.raises(AssertionError, match="names no engine"):
        match_exchanges([without, TURNS], EXCHANGES)
