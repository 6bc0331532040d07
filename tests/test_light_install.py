"""The library, the command line and the local executor without PySpark and Dagster."""

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.light_environment import find_distributions, make_light_environment, read_requirements
from support.lower_bounds import OF_DEVELOPMENT

COLUMNS = "id BIGINT NOT NULL, name STRING"
OPTIONS = ["bucket=1", "deletion-vectors.enabled=true"]

LIST_REFUSALS = """
import importlib, json, pkgutil, sys
import paimon_orch
from paimon_orch import Catalog, MissingPackageError
from paimon_orch.files.stats.analyze_columns import DistinctCounter

EMPTY = Catalog(sys.argv[1]).create_table("db.t", "id INT").scan()
ACTIONS = {
    "airflow": lambda: importlib.import_module("paimon_orch.airflow.hooks"),
    "spark": lambda: importlib.import_module("paimon_orch.spark"),
    "dagster": lambda: importlib.import_module("paimon_orch.dagster"),
    "demo": lambda: importlib.import_module("paimon_orch.demo"),
    "s3": lambda: Catalog("s3://bucket/lake"),
    "gcs": lambda: Catalog("gs://bucket/lake"),
    "hive": lambda: Catalog(metastore="hive", uri="thrift://host:9083", warehouse="/lake"),
    "jdbc": lambda: Catalog(metastore="jdbc", uri="jdbc:sqlite:/c.db", warehouse="/lake"),
    "sketches": DistinctCounter,
    "pandas": EMPTY.to_pandas,
}
messages = {}
for name, action in ACTIONS.items():
    try:
        action()
    except MissingPackageError as error:
        messages[name] = str(error)
skipped = ("airflow", "spark", "dagster", "demo", "catalog.jdbc", "table.iceberg.rest_updates",
    "table.iceberg.confined_rest_catalog", "metastore.hive_stream", "__main__")
prefixes = tuple(f"paimon_orch.{name}" for name in skipped)
for module in pkgutil.walk_packages(paimon_orch.__path__, "paimon_orch.", lambda name: None):
    if not module.name.startswith(prefixes):
        importlib.import_module(module.name)
print(json.dumps(messages))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_light_environment(tmp_path_factory.mktemp("light"))


def run(python: Path, *arguments: str) -> str:
    finished = subprocess.run(
        [str(python), "-I", *arguments], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def run_command(python: Path, *arguments: str) -> str:
    return run(python, "-m", "paimon_orch", *arguments)


def test_an_installation_without_extras_has_neither_pandas_nor_spark_nor_dagster() -> None:
    installed = find_distributions(read_requirements()).keys()

    assert installed.isdisjoint({"dagster", "datasketches", "pandas", "pyspark", "sqlalchemy"})


def test_packages_that_own_the_folder_of_pyspark_are_installed_by_different_extras() -> None:
    def names(*extras: str) -> set[str]:
        return {Requirement(text).name for text in read_requirements(*extras)}

    assert names("airflow").isdisjoint({"pandas", "pyspark", "pyspark-client"})
    assert names("connect") & {"pyspark", "pyspark-client"} == {"pyspark-client"}
    assert names("all", "spark") & {"pyspark", "pyspark-client"} == {"pyspark"}


def test_the_extra_all_contains_each_extra_of_users_that_has_wheels_except_connect(
    repository: Path,
) -> None:
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    pending, contained = ["all"], set[str]()
    for extra in pending:
        own = [each for each in map(Requirement, extras[extra]) if each.name == "paimon-orch"]
        new = {name for each in own for name in each.extras} - contained
        contained |= new
        pending += new

    compiled = {"hive-kerberos"}
    assert contained == extras.keys() - {"all", "connect"} - compiled - OF_DEVELOPMENT


@pytest.mark.slow
def test_tables_are_created_loaded_compacted_and_read(python: Path, tmp_path: Path) -> None:
    lake, rows, more = str(tmp_path / "lake"), tmp_path / "rows.csv", tmp_path / "more.json"
    rows.write_text("id,name\n1,a\n2,b\n")
    more.write_text('{"id": 2, "name": "c"}\n')
    options = [text for option in OPTIONS for text in ("--option", option)]

    run_command(
        python, "create", lake, "db.t", "--columns", COLUMNS, "--primary-key", "id", *options
    )
    run_command(python, "ingest", lake, "db.t", "--from", str(rows))
    run_command(python, "ingest", lake, "db.t", "--from", str(more))
    compacted = json.loads(run_command(python, "compact", lake, "db.t", "--json"))
    printed = run_command(python, "read", lake, "db.t", "--format", "jsonl")

    assert compacted["rows_written"] == 2
    assert list(map(json.loads, printed.splitlines())) == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "c"},
    ]


@pytest.mark.slow
def test_features_that_need_another_package_name_the_command_to_install_it(
    python: Path, tmp_path: Path
) -> None:
    messages = json.loads(run(python, "-c", LIST_REFUSALS, str(tmp_path)))

    installs = {name: message.partition("; run: ")[2] for name, message in messages.items()}
    assert installs == {
        "airflow": "pip install 'paimon-orch[airflow]'",
        "spark": "pip install 'paimon-orch[spark]'",
        "dagster": "pip install 'paimon-orch[dagster]'",
        "demo": "pip install 'paimon-orch[demo]'",
        "pandas": "pip install 'pandas'",
        "s3": "pip install 'paimon-orch[s3]'",
        "gcs": "pip install 'paimon-orch[gcs]'",
        "hive": "pip install 'paimon-orch[hive]'",
        "jdbc": "pip install 'paimon-orch[jdbc]'",
        "sketches": "pip install 'paimon-orch[sketches]'",
    }
