"""An environment with Airflow and this package's wheel, without Dagster and Spark, kept in the cache.

It also has the client of Spark Connect, which Airflow's Spark provider requires.

Its pytest runs the tests of ``tests/airflow_provider/inside``; the tests of this project start it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.docs.page_run import BLOCK
from support.light_environment import ROOT, read_requirements
from support.peers.downloads import python_environment, run

_VARIABLE = "AIRFLOW_VERSION"
_SPARK_PROVIDER = "apache-airflow-providers-apache-spark==6.3.4"
INSIDE = ROOT / "tests" / "airflow_provider" / "inside"


def airflow_version() -> str:
    """Return the release to test: the pinned one, or that of the environment variable."""
    return os.environ.get(_VARIABLE) or _read_pins()["apache-airflow"]


def airflow_python() -> Path:
    """Return the interpreter of the environment; builds it if it does not exist."""
    pins = _read_pins()
    own = [_pin(text, pins) for text in read_requirements("connect")]
    others = [_SPARK_PROVIDER, f"pytest=={pins['pytest']}"]
    return python_environment("airflow", [f"apache-airflow=={airflow_version()}", *own, *others])


def _read_pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines)


def _pin(text: str, pins: dict[str, str]) -> str:
    requirement = Requirement(text)
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}=={pins[canonicalize_name(requirement.name)]}"


def install_package(site: Path) -> None:
    """Install the wheel into a folder, with its entry points and without its requirements."""
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--quiet"]
    run([*pip, "--no-compile", "--target", str(site), str(ROOT)], "the wheel of this package")


def build_environment(home: Path, site: Path) -> dict[str, str]:
    """Return the environment variables of Airflow with a database in a folder."""
    inherited = {
        name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ
    }
    return inherited | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(site),
    }


def run_in_airflow(
    python: Path, environment: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in the environment, and return its output."""
    return subprocess.run(
        [str(python), "-X", "utf8", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@dataclass(frozen=True)
class Airflow:
    """An environment with a migrated database."""

    python: Path
    variables: dict[str, str]

    def run(self, *arguments: str) -> str:
        """Run Python in the environment, and return its output; it must succeed."""
        finished = run_in_airflow(self.python, self.variables, *arguments)
        assert finished.returncode == 0, f"{finished.stdout}\n{finished.stderr}"
        return finished.stdout

    @property
    def dags(self) -> Path:
        """The folder of the DAG files."""
        return Path(self.variables["AIRFLOW__CORE__DAGS_FOLDER"])


def read_example(text: str) -> str:
    """Return the only Python example of the page about Airflow that contains a text."""
    page = (ROOT / "docs" / "airflow.md").read_text(encoding="utf-8")
    examples = [str(code) for language, code in BLOCK.findall(page) if language == "python"]
    [found] = [code for code in examples if text in code]
    return found
