"""Which tests `make test` leaves to `make test-services`, and the times that a run prints."""

import re

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from support import run_times
from support.marks import mark_items, start_longest_first

def pytest_addoption(parser):
    run_times.add_options(parser)

def pytest_configure(config):
    run_times.register_plugins(config)

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mark_items(items)
    start_longest_first(items)

@pytest.fixture
def postgres():
    pass

@pytest.fixture(params=["sqlite", "postgresql"])
def jdbc_database(request):
    pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with the hooks of these tests."""
    pytester.makeini(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
        "markers =\n  services\n  slow\n  peers\n  spark\n  sampled\n  xdist_group\n"
    )
    pytester.makeconftest(CONFTEST)
    return pytester


def quick_tests(run: pytest.Pytester, text: str, folder: str = "table") -> list[str]:
    """Return the tests of a module that `make test` runs."""
    file = run.mkdir(folder) / "test_module.py"
    file.write_text(f"import pytest\n{text}", encoding="utf-8")
    result = run.inline_run("-m", "not services", "-p", "no:cacheprovider")
    return [report.nodeid.partition("::")[2] for report in result.getreports() if _is_call(report)]


def _is_call(report: object) -> bool:
    return isinstance(report, pytest.TestReport) and report.when == "call"


def test_slow_tests_and_those_with_a_server_are_left_out(run: pytest.Pytester) -> None:
    tests = """
def test_quick(): pass
@pytest.mark.slow
def test_slow(): pass
def test_server(postgres): pass
def test_database(jdbc_database): pass
"""
    assert quick_tests(run, tests) == ["test_quick", "test_database[sqlite]"]


@pytest.mark.parametrize("folder", ["peers", "live"])
def test_folders_with_other_processes_are_left_out(run: pytest.Pytester, folder: str) -> None:
    assert quick_tests(run, "def test_one(): pass", folder) == []


def test_sampled_cases_contain_each_value_of_each_parameter(run: pytest.Pytester) -> None:
    tests = """
@pytest.mark.sampled
@pytest.mark.parametrize("reader", "xy")
@pytest.mark.parametrize("table", "abc")
def test_read(table, reader): pass
"""
    assert quick_tests(run, tests) == ["test_read[a-x]", "test_read[b-y]", "test_read[c-x]"]


def test_a_number_of_sampled_cases_is_evenly_spread(run: pytest.Pytester) -> None:
    tests = """
@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", range(7))
def test_read(n): pass
"""
    assert quick_tests(run, tests) == ["test_read[0]", "test_read[2]", "test_read[4]"]


def test_the_longest_tests_start_first(run: pytest.Pytester) -> None:
    tests = """
def test_one(): pass
@pytest.mark.timeout(200)
def test_long(): pass
def test_two(): pass
@pytest.mark.timeout(300)
def test_longer(): pass
"""
    assert quick_tests(run, tests) == ["test_longer", "test_long", "test_one", "test_two"]


def test_the_times_of_folders_and_the_cpu_time_are_printed(run: pytest.Pytester) -> None:
    (run.mkdir("table") / "test_one.py").write_text("def test_one(): pass", encoding="utf-8")

    lines = run.runpytest("--cpu-budget", "700").outlines

    assert any(re.fullmatch(r" +\d\.\ds +1 tests  table", line) for line in lines)
    assert any(re.fullmatch(r" +[\d,]+s CPU time of a budget of 700s", line) for line in lines)


def test_tests_that_begin_after_the_limit_are_skipped_before_their_fixtures(
    run: pytest.Pytester,
) -> None:
    run.makepyfile("""
import pytest

@pytest.fixture
def slow_server():
    raise AssertionError("started")

def test_one(slow_server): pass
""")

    run.runpytest("--skip-after", "0").assert_outcomes(skipped=1)
    run.runpytest("--skip-after", "600").assert_outcomes(errors=1)
