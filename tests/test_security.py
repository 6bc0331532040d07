"""Statements of SECURITY.md that hold for the whole package."""

import re
from pathlib import Path

UNPICKLING = re.compile(r"\b(?:cloud)?pickle\.loads?\(|\bUnpickler\b")
EXECUTING = re.compile(r"(?<![\w.])(?:eval|exec)\(|\bmarshal\.|\byaml\.(?!safe_)\w*load")
BETWEEN_PROCESSES = {
    "spark/execution/spark_executor.py",
    "spark/frame_reader.py",
    "spark/sort_compact.py",
    "spark/update_and_merge.py",
    "steps/common/local_executor.py",
    "steps/common/local_worker.py",
    "steps/inspection/check_report.py",
}
"""Modules that exchange work units or results with processes of the same job."""


def find_modules(repository: Path, pattern: re.Pattern[str]) -> set[str]:
    package = repository / "paimon_orch"
    return {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if pattern.search(path.read_text(encoding="utf-8"))
    }


def test_only_work_units_and_results_are_unpickled(repository: Path) -> None:
    assert find_modules(repository, UNPICKLING) == BETWEEN_PROCESSES


def test_no_text_is_executed(repository: Path) -> None:
    assert find_modules(repository, EXECUTING) == set()


def test_the_security_page_names_existing_tests(repository: Path) -> None:
    page = (repository / "SECURITY.md").read_text(encoding="utf-8")

    files = re.findall(r"`(tests/[\w/]+\.py)`", page)
    assert len(files) > 10
    assert [file for file in files if not (repository / file).exists()] == []
