import os
import shlex
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkValueError
from pyspark.sql import SparkSession
from support.tables import new_table, table_of

from paimon_orch.dagster import SparkSessionResource
from paimon_orch.errors import InputError, TransientError
from paimon_orch.spark import java_in_use, spark_session, stop_session
from paimon_orch.spark.session.session import add_task_retries

TOKEN = "very-secret-value=="  # noqa: S105 - opens nothing

ROUND_TRIP = """
import json, os, sys
from paimon_orch.spark import java_in_use, spark_session, stop_session

session = spark_session({arguments})
def python_of(batches):
    import sys
    import pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pydict({{"python": [sys.executable] * batch.num_rows}})
rows = session.range(0, 2, 1, 2).mapInArrow(python_of, "python string").toArrow()
session.sql("SHOW TABLES").collect()
java = java_in_use(session)
stop_session(session)
print(json.dumps([java, rows["python"].to_pylist(), os.listdir(".")]))
"""


def run_in_a_process(
    directory: Path, code: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """A folder with the programs that Spark's scripts call, but without Java."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    for folder in os.get_exec_path():
        for program in Path(folder).iterdir() if os.access(folder, os.R_OK | os.X_OK) else ():
            link = bin_directory / program.name
            if not program.name.startswith(("java", "python")) and not link.is_symlink():
                link.symlink_to(program)
    return str(bin_directory)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)  # the start of a session is slow on a busy machine
def test_a_session_without_an_installed_java_uses_this_interpreter_and_leaves_no_files(
    tmp_path: Path, path_without_java: str
) -> None:
    directory = tmp_path / "work"
    directory.mkdir()

    process = run_in_a_process(
        directory, ROUND_TRIP.format(arguments="'local[2]'"), PATH=path_without_java
    )

    assert "Java 21." in process.stdout
    assert process.stdout.count(sys.executable) == 2
    assert process.stdout.rstrip().endswith("[]]")
    assert process.stderr == ""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_format_is_found_if_python_is_in_a_folder_with_a_blank(tmp_path: Path) -> None:
    """Spark itself does not look for it then."""
    table = new_table(tmp_path / "lake")
    table.append(table_of("k v", [(1, "a")]))
    python = tmp_path / "a python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    code = (
        "from paimon_orch.spark import spark_session, stop_session; s = spark_session('local[1]');"
        f"print(s.read.format('paimon').load({table.paths.root!r}).count()); stop_session(s)"
    )

    assert run_in_a_process(tmp_path, code, PYSPARK_PYTHON=str(python)).stdout == "1\n"


@pytest.mark.slow
def test_an_active_session_is_used_unchanged_and_not_stopped(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.shuffle.partitions", "7")

    again = spark_session("local[1]", config={"spark.sql.shuffle.partitions": "9"})
    stop_session(other)

    assert again is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.range(3).count() == 3


def test_the_time_zone_of_the_session_is_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.slow
def test_the_java_in_use_is_reported_with_its_home(spark: SparkSession) -> None:
    assert java_in_use(spark).startswith("Java ")
    assert java_in_use(spark).endswith(")")


@pytest.mark.parametrize(
    ("master", "used"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2]", "local[2,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_local_masters_allow_task_retries(master: str, used: str) -> None:
    assert add_task_retries(master) == used


@pytest.mark.parametrize(
    ("master", "remote", "error", "message"),
    [
        ("foo", None, InputError, "'foo' is not a Spark master"),
        ("sc://host", None, InputError, "sc://host is an address of Spark Connect; pass it as 're"),
        ("local", "spark://host:1", InputError, "is not an address of Spark Connect; use sc://ho"),
        ("spark://127.0.0.1:1", None, TransientError, r"cannot be reached .* connection refused"),
        ("local", "sc://127.0.0.1:1", TransientError, r"cannot be reached .* connection refused"),
    ],
)
def test_an_address_is_checked_before_java_and_clients_start(
    monkeypatch: pytest.MonkeyPatch,
    master: str,
    remote: str | None,
    error: type[Exception],
    message: str,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    module = "paimon_orch.spark.session.session"
    monkeypatch.setattr(f"{module}.active_session", lambda: None)
    for name in ("find_java", "_start"):
        monkeypatch.setattr(f"{module}.{name}", Mock(side_effect=AssertionError(name), spec=()))

    with pytest.raises(error, match=message):
        spark_session(master, remote)


@pytest.mark.timeout(60)
def test_a_server_that_is_not_spark_connect_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc")
    monkeypatch.setattr("paimon_orch.spark.session.session.active_session", lambda: None)
    monkeypatch.setattr("paimon_orch.spark.session.session._HANDSHAKE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        with pytest.raises(TransientError, match=f"no Spark Connect server answers at .*{port}"):
            spark_session(remote=f"sc://127.0.0.1:{port}")


def test_an_interrupted_start_stops_the_jvm_that_it_launched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = list[subprocess.Popen[bytes]]()

    def launch(*_: object) -> SparkSession:
        process = subprocess.Popen(["sleep", "60"])
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("paimon_orch.spark.session.session.active_session", lambda: None)
    monkeypatch.setattr("paimon_orch.spark.session.session._start", launch)
    for name in ("_gateway", "_jvm"):
        monkeypatch.setattr(SparkContext, name, None)

    with pytest.raises(KeyboardInterrupt):
        spark_session("local[1]")

    [process] = started
    assert process.returncode == -signal.SIGTERM


def test_the_error_of_a_failed_start_names_the_server_and_a_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("paimon_orch.spark.session.session.active_session", lambda: None)

    monkeypatch.setattr("paimon_orch.spark.session.session.require_reachable", lambda _: None)

    def refuse(*_: object) -> SparkSession:
        raise ModuleNotFoundError("No module named 'grpc'")

    monkeypatch.setattr("paimon_orch.spark.session.session._start_connect", refuse)

    with pytest.raises(InputError, match=r"sc://nowhere did not start.*pyspark\[connect\]"):
        spark_session(remote="sc://nowhere")


def test_errors_do_not_contain_the_token_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_orch.spark.session.session.active_session", lambda: None)
    monkeypatch.setattr("paimon_orch.spark.session.session.require_reachable", lambda _: None)
    # Spark raises this error for a token that ends in equal signs.
    invalid = PySparkValueError(f"Parameter 'token={TOKEN}' should be a key and a value")
    monkeypatch.setattr(
        "paimon_orch.spark.session.session._start_connect", Mock(side_effect=invalid, spec=())
    )

    with pytest.raises(InputError, match=r"sc://nowhere/ did not start: .*token=\*\*\*") as caught:
        spark_session(remote=f"sc://nowhere/;user_id=me;token={TOKEN}")

    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    resource = SparkSessionResource(remote=f"sc://nowhere/;token={TOKEN}")
    assert TOKEN not in repr(resource) + str(resource)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of a session that is built but not started."""
    monkeypatch.setattr("paimon_orch.spark.session.session.active_session", lambda: None)
    monkeypatch.setattr("paimon_orch.spark.session.session._started_sessions", [])
    monkeypatch.setenv("PYSPARK_PYTHON", "/somewhere/python")
    settings: dict[str, str] = {}

    def keep(builder: SparkSession.Builder, added: dict[str, str]) -> None:
        settings.update(builder._options)
        settings.update(added)

    monkeypatch.setattr("paimon_orch.spark.session.session._start", keep)
    return settings


def test_settings_of_spark_submit_are_kept(
    built: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")

    spark_session(config={"spark.sql.shuffle.partitions": "7"})

    assert "spark.master" not in built
    assert all(name.startswith("spark.sql.") for name in built)
    assert built["spark.sql.shuffle.partitions"] == "7"


def test_the_python_of_workers_can_be_configured(
    built: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)

    monkeypatch.setattr("paimon_orch.spark.session.session.require_reachable", lambda _: None)

    spark_session("spark://host:7077", config={"spark.pyspark.python": "/nodes/python"})

    assert os.environ["PYSPARK_PYTHON"] == "/nodes/python"
    assert built["spark.master"] == "spark://host:7077"


def test_a_python_named_by_the_user_is_kept(built: dict[str, str]) -> None:
    spark_session("local[1]")

    assert os.environ["PYSPARK_PYTHON"] == "/somewhere/python"
