"""Generates docs/trust.md from the collected tests and from the stored figures of benchmarks.

PYTHONPATH=tests:. python -m support.docs.trust > docs/trust.md
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.docs.collected_tests import (
    FOLDERS,
    CollectedTest,
    collect_tests,
    list_files,
    match_exchanges,
)
from support.docs.trust_text import FUZZ, HEAD, KILLS, NOT_TESTED, RACES, SECTIONS, VERSIONS
from support.iceberg_readers import PYICEBERG
from support.lower_bounds import lower_bound
from support.peers.environments import ENGINE_TITLES
from support.peers.exchanges import ICEBERG_ENGINES, PAIMON_ENGINES, SERVICES, Direction

ROOT = Path(__file__).resolve().parents[3]
FIGURES = ROOT / "benchmarks"
FUZZ_TESTS = "format/test_fuzz.py"
RACE_TESTS = {
    "Eight processes create one file": ("storage/test_back_ends.py", "test_exactly_one*"),
    "Processes commit in each kind of storage": (
        "storage/test_back_ends.py",
        "test_concurrent_commits*",
    ),
    "Processes commit to one table": ("table/commit/test_commit.py", "test_concurrent*"),
    "Processes commit with one id": ("table/commit/test_commit.py", "test_many_processes*"),
    "Processes write, compact, expire, tag and clean up one table": (
        "steps/test_maintenance_at_once.py",
        "*",
    ),
    "The same in object stores": ("storage/test_maintenance_in_a_store.py", "*"),
    "Servers of stores are killed during commits": ("storage/test_killed_servers.py", "*"),
    "Commits during a compaction": ("steps/compaction/test_compact_races.py", "*"),
    "Commits and reads during an expiration": ("steps/expiration/test_expire_races.py", "*"),
    "Changes that conflict with a commit": ("table/commit/test_conflict_detection.py", "*"),
    "Processes commit to a REST catalog": ("catalog/rest/test_rest_commit_races.py", "*"),
    "Lost, late and repeated answers of a REST catalog": (
        "catalog/rest/test_rest_commit_faults.py",
        "*",
    ),
    "Eight processes commit with locks of a Hive metastore": (
        "catalog/test_hive_locks.py",
        "*eight_processes*",
    ),
    "Eight processes commit with locks of a SQL database": (
        "catalog/jdbc/test_jdbc_lock.py",
        "test_eight_processes*",
    ),
    "Java and our processes commit with locks of a SQL database": (
        "peers/test_jdbc_turns.py",
        "*commit_at_once",
    ),
}
"""Files and patterns of the names of test functions."""

Matched = dict[tuple[str, Direction], list[CollectedTest]]


def list_sources() -> list[str]:
    """Return the files whose tests the page counts."""
    races = [file for file, _ in RACE_TESTS.values()]
    return list_files([*races, *_read_figures("kills.json")["killed"], FUZZ_TESTS])


def page(tests: Sequence[CollectedTest]) -> str:
    """Return the page; ``tests`` are all tests of :func:`list_sources`, and possibly others."""
    matched = match_exchanges(tests)
    parts = [
        HEAD,
        SECTIONS["paimon"],
        *_matrix(matched, PAIMON_ENGINES),
        SECTIONS["iceberg"],
        *_matrix(matched, ICEBERG_ENGINES),
        SECTIONS["services"],
        *_services(tests),
        VERSIONS,
        *_versions(),
        KILLS,
        *_kills(tests),
        RACES,
        *_races(tests),
        FUZZ.format(count=_count(tests, FUZZ_TESTS)),
        *_fuzz_runs(),
        NOT_TESTED,
    ]
    return "\n".join(parts)


def _matrix(matched: Matched, engines: Sequence[str]) -> Iterator[str]:
    titles = ENGINE_TITLES | {PYICEBERG: f"pyiceberg {_read_pins()[PYICEBERG]}"}
    yield from _head("feature", "direction", *(titles[engine] for engine in engines), "tests")
    is_iceberg = engines is ICEBERG_ENGINES
    for (feature, direction), tests in matched.items():
        if feature.startswith("Iceberg") == is_iceberg:
            counts = Counter(engine for test in tests for engine in test.engines)
            cells = (str(counts[engine] or "") for engine in engines)
            yield _line(feature, direction, *cells, _files(tests))


def _services(tests: Sequence[CollectedTest]) -> Iterator[str]:
    yield from _head("service", "tests", "in")
    for name, title in SERVICES.items():
        of_service = [
            test for test in tests if test.file.startswith(FOLDERS) and name in test.services
        ]
        yield _line(title, str(len(of_service)), _files(of_service))


def _versions() -> Iterator[str]:
    yield from _head("", "supported", "tested")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [text.rpartition(" ")[2] for text in project["classifiers"] if ":: 3." in text]
    yield _line("Python", project["requires-python"], ", ".join(pythons))
    pins = _read_pins()
    extras = project["optional-dependencies"]
    of_extras = [extras[name] for name in ("dagster", "spark", "s3", "iceberg-rest")]
    listed = [*project["dependencies"], *chain(*of_extras)]
    for name in ("pyspark", "dagster", "pyarrow", "numpy", "pandas", "s3fs"):
        [requirement] = [r for r in map(Requirement, listed) if r.name == name]
        oldest = [lower_bound(requirement)] if name != "s3fs" else []  # `make oldest` has no S3
        tested = ", ".join([*oldest, pins[canonicalize_name(name)]])
        yield _line(name, str(requirement.specifier), tested)


def _read_pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines)


def _kills(tests: Sequence[CollectedTest]) -> Iterator[str]:
    figures = _read_figures("kills.json")
    killed = figures["killed"]
    yield from _head("in", "tests", "killed processes")
    for file, count in killed.items():
        yield _line(f"`{file}`", str(_count(tests, file)), str(count))
    yield _line("all", "", str(sum(killed.values())))
    yield f"\nMeasured on {figures['day']}."


def _races(tests: Sequence[CollectedTest]) -> Iterator[str]:
    yield from _head("race", "tests", "in")
    for title, (file, pattern) in RACE_TESTS.items():
        yield _line(title, str(_count(tests, file, pattern)), f"`{file}`")


def _fuzz_runs() -> Iterator[str]:
    yield from _head("seed", "inputs", "seconds", "covered branches", "day", "versions")
    for run in _read_figures("fuzz.json"):
        figures = (f"{run[name]:,}" for name in ("seed", "cases", "seconds", "covered"))
        yield _line(*figures, run["day"], run["versions"])


def _read_figures(name: str) -> Any:
    return json.loads((FIGURES / name).read_text(encoding="utf-8"))


def _count(tests: Iterable[CollectedTest], file: str, pattern: str = "*") -> int:
    count = sum(test.file == file and fnmatchcase(test.function, pattern) for test in tests)
    assert count, f"tests/{file} has no tests {pattern}"
    return count


def _files(tests: Iterable[CollectedTest]) -> str:
    return ", ".join(f"`{file}`" for file in sorted({test.file for test in tests}))


def _head(*titles: str) -> Iterator[str]:
    yield _line(*titles)
    yield _line(*["---"] * len(titles))


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(page(collect_tests(list_sources())))
