"""Returns the active Spark session, or starts one in UTC, with little output and task retries.

An active session belongs to its creator: its settings are not changed, and :func:`stop_session`
does not stop it.
"""

import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from traceback import walk_tb

import platformdirs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote
from pyspark.util import is_remote_only

from paimon_orch.errors import InputError, TransientError
from paimon_orch.optional_packages import require_package
from paimon_orch.safe_text import get_logger
from paimon_orch.spark.datasource.register import register
from paimon_orch.spark.session import package_archive as archive
from paimon_orch.spark.session.java_home import find_java
from paimon_orch.spark.session.master_url import (
    CONNECT_PORT,
    check_master,
    hide_parameters,
    require_reachable,
)

if not is_remote_only():  # the client of Spark Connect has no contexts
    from pyspark import SparkContext

logger = get_logger(__name__)

TASK_ATTEMPTS = 4
"""The number of attempts of a task with transient errors: Spark's default on clusters."""

_SQL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}

_SUBMIT_VARIABLE = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it to the port of the JVM

_HANDSHAKE_SECONDS = 10
_STOP_SECONDS = 5  # for the end of a JVM that is asked to stop

_started_sessions: list[SparkSession] = []


def spark_session(
    master: str = "local[*]",
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
    *,
    ship_package: bool = False,
    use_vector_module: bool = True,
) -> SparkSession:
    """Return the active session unchanged, or start one.

    A program that ``spark-submit`` started uses its master and its settings, with our ``spark.sql``
    settings in addition.

    :param master: a Spark master; ``local[...]`` gets task retries, which Spark disables by default
    :param remote: a Spark Connect address (``sc://host:port``) instead of a master; only the
        ``spark.sql.*`` settings of ``config`` are sent to it. ``local[...]`` starts a server in
        this process, on loopback
    :param config: settings of a new session, which override ours. ``spark.pyspark.python`` sets the
        Python of the workers; Spark itself would ignore it in this case
    :param ship_package: send this package to the workers of a new session, as
        :func:`paimon_orch.spark.ship_package` does, and register the format ``paimon``
    :param use_vector_module: load Java's module ``jdk.incubator.vector``, which MLlib uses, and
        about which Java prints a warning
    :raises InputError: if the address has no known form, no Java installation is usable, the client
        of Spark Connect is not installed, or Spark does not start
    :raises TransientError: if the hosts of the address cannot be reached
    """
    active = active_session()
    if active is not None:
        logger.info("using the active Spark session with its settings")
        return active
    settings = dict(config or {})
    _set_worker_python(settings)
    if remote is not None or _SUBMIT_VARIABLE not in os.environ:
        _check_address(master, remote)
        if remote is None or remote.startswith("local"):
            _choose_java(remote or master, use_vector_module=use_vector_module)
    return _start_session(master, remote, settings, ship_package=ship_package)


def _start_session(
    master: str, remote: str | None, settings: dict[str, str], *, ship_package: bool
) -> SparkSession:
    """Start a session; stop the processes that an interrupted start leaves."""
    try:
        if remote is None and _SUBMIT_VARIABLE in os.environ:
            session = _start_jvm(SparkSession.builder, _SQL_SETTINGS | settings)
        elif remote is None:
            session = _start_classic(master, settings)
        else:
            session = _start_connect(remote, settings)
        _started_sessions.append(session)
        if ship_package:
            archive.ship_package(session)
            register(session)
    except (PySparkException, Py4JError, ImportError, OSError) as error:
        target, text = remote or master, str(error)
        # the cause is dropped if its text contains parameters, which can include a token
        cause = error if _mask_parameters(target, text) == text else None
        raise InputError(_describe_start_failure(target, error)) from cause
    except BaseException as error:
        if not isinstance(error, Exception):  # an interrupt
            _stop_started_processes(error)
        raise
    return session


def _choose_java(address: str, *, use_vector_module: bool) -> None:
    """Set the Java installation of a JVM that this process starts."""
    require_package(
        "pyspark.core", f"Spark on {address}", install="paimon-orch[spark]", package="pyspark"
    )
    java = find_java(use_vector_module=use_vector_module)
    os.environ["JAVA_HOME"] = str(java.home)
    logger.info("Spark runs on %s", java)


def _check_address(master: str, remote: str | None) -> None:
    """Check an address before anything starts; see :mod:`paimon_orch.spark.session.master_url`."""
    if remote is None and master.startswith("sc://"):
        raise InputError(
            f"{hide_parameters(master)} is an address of Spark Connect; pass it as 'remote', not "
            "as 'master'"
        )
    if remote is not None and not remote.startswith(("local", "sc://")):
        raise InputError(
            f"{hide_parameters(remote)!r} is not an address of Spark Connect; use "
            f"sc://host:{CONNECT_PORT}, or local[*] for a server in this process"
        )
    check_master(remote or master)
    require_reachable(remote or master)


def _set_worker_python(settings: Mapping[str, str]) -> None:
    """Set the Python of the workers, which Spark reads only when it creates the context."""
    if python := settings.get("spark.pyspark.python"):
        os.environ["PYSPARK_PYTHON"] = python
    # a value of the user has priority: it is a path on the nodes of the cluster
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def active_session() -> SparkSession | None:
    """Return the session of this process, even if another thread or library started it.

    Returns None if there is no session, or if a Spark Connect server has ended it; servers do so
    after an hour without use.
    """
    try:
        session = SparkSession.active()
    except PySparkException:
        return None
    if is_remote() and _is_ended(session):
        _started_sessions[:] = [started for started in _started_sessions if started is not session]
        session.stop()
        return None
    return session


def _is_ended(session: SparkSession) -> bool:
    """Return whether the server has ended a session; only the server has this information."""
    try:
        session.conf.get("spark.sql.session.timeZone")
    except PySparkException as error:
        return "INVALID_HANDLE.SESSION" in str(error)
    return False


def stop_session(session: SparkSession) -> None:
    """Stop a session that :func:`spark_session` started; any other session continues to run.

    On classic Spark, this ends the only context of the process; starting another one is fast.
    """
    for index, started in enumerate(_started_sessions):
        if started is session:
            del _started_sessions[index]
            session.stop()
            return


def stop_jvm() -> None:
    """Stop the JVM that this process started, with its jobs; without a JVM, do nothing."""
    if is_remote_only():
        return
    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - there is no public name
    if process is not None:
        _stop_process(process)


def _stop_started_processes(interrupt: BaseException) -> None:
    """Stop the JVM of an interrupted start; a later start then launches another one.

    PySpark keeps the process only in a local variable until the JVM answers. If it does not answer
    then, because PySpark has deleted the directory for the answer, it would not stop by itself.
    """
    for frame, _ in walk_tb(interrupt.__traceback__):
        for value in list(frame.f_locals.values()):
            if isinstance(value, subprocess.Popen):
                _stop_process(value)
    stop_jvm()
    if not is_remote_only():
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


def _stop_process(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()  # Spark deletes its temporary files
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def java_in_use(session: SparkSession) -> str:
    """Return the Java version and path that a running session uses.

    For example ``Java 21.0.8 (/opt/java)``.
    """
    row = session.sql(
        "SELECT java_method('java.lang.System', 'getProperty', 'java.version') AS version, "
        "java_method('java.lang.System', 'getProperty', 'java.home') AS home"
    ).collect()[0]
    return f"Java {row['version']} ({row['home']})"


def _start_classic(master: str, config: Mapping[str, str]) -> SparkSession:
    if master.startswith("local"):
        # this prevents a warning about a loopback address, which is enough for one machine
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(add_task_retries(master)).appName("paimon-orch")
    return _start_jvm(builder, _SQL_SETTINGS | _build_quiet_settings() | dict(config))


def _start_connect(remote: str, config: Mapping[str, str]) -> SparkSession:
    if not remote.startswith("local"):
        _require_server(remote)
    builder = SparkSession.builder.remote(add_task_retries(remote))
    if remote.startswith("local"):
        # only this process uses the server
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        server_settings = _build_quiet_settings() | {
            "spark.connect.grpc.binding.address": "127.0.0.1"
        }
        with warnings.catch_warnings():
            # The client also sends the settings that only the server can have. The server refuses
            # them, and the client warns about this.
            warnings.filterwarnings("ignore", "Failed to set", UserWarning)
            return _start_jvm(builder, _SQL_SETTINGS | server_settings | dict(config))
    # other settings are static: the server refuses to change them, with a warning for each
    settings = {key: value for key, value in config.items() if key.startswith("spark.sql.")}
    return _start(builder, _SQL_SETTINGS | settings)


def _require_server(remote: str) -> None:
    """Complete the handshake with a server, because Spark's client retries it for ten minutes."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(remote).toChannel()
    try:
        grpc.channel_ready_future(channel).result(_HANDSHAKE_SECONDS)
    except grpc.FutureTimeoutError:
        raise TransientError(
            f"no Spark Connect server answers at {hide_parameters(remote)} within "
            f"{_HANDSHAKE_SECONDS} seconds. Check the port, and use_ssl and token of the address."
        ) from None
    finally:
        channel.close()


def _start_jvm(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    """Start a session in a JVM of this machine, with the format ``paimon``."""
    session = _start(builder, settings)
    # Spark looks for formats in Python modules only if a shell finds the path of Python, unquoted
    python = os.environ.get("PYSPARK_DRIVER_PYTHON") or os.environ["PYSPARK_PYTHON"]
    if shlex.quote(python) != python:
        register(session)
    return session


def _start(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _build_quiet_settings() -> dict[str, str]:
    log4j = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        # otherwise, Spark creates the directory spark-warehouse in the working directory
        "spark.sql.warehouse.dir": (
            platformdirs.user_cache_path("paimon-orch") / "spark-warehouse"
        ).as_uri(),
    }


def add_task_retries(master: str) -> str:
    """Add task retries to a local master without them, such as ``local[2]``."""
    match = re.fullmatch(r"local(?:\[([\d*]+)\])?", master)
    return f"local[{match[1] or 1},{TASK_ATTEMPTS}]" if match else master


def _describe_start_failure(target: str, error: Exception) -> str:
    if isinstance(error, ImportError):
        remedy = "Spark Connect needs more packages: pip install 'pyspark[connect]'."
    else:
        remedy = "Check the address, JAVA_HOME, and the output of Spark above."
    address, _ = _split_target(target)
    reason = _mask_parameters(target, str(error).strip().rstrip("."))
    return f"A Spark session on {address} did not start: {reason}. {remedy}"


def _split_target(target: str) -> tuple[str, list[str]]:
    """Split a target into its address and its parameters, which may contain a token."""
    address, *parameters = target.split(";")
    return address, [parameter for parameter in parameters if parameter]


def _mask_parameters(target: str, text: str) -> str:
    for parameter in _split_target(target)[1]:
        text = text.replace(parameter, parameter.partition("=")[0] + "=***")
    return text
