"""The Spark session: use the caller's, or start one that is quiet, in UTC, and tries tasks again.

A session that is already there belongs to somebody else: it is used as it is, no setting is written
into it, and :func:`stop_session` leaves it alone.
"""

import logging
import os
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import platformdirs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from paimon_orch.errors import InputError
from paimon_orch.spark.datasource.batch_read import register
from paimon_orch.spark.session import package_archive as archive
from paimon_orch.spark.session.java_home import find_java

logger = logging.getLogger(__name__)

TASK_ATTEMPTS = 4
"""How often a task runs before its transient error counts: Spark's own default on clusters."""

_SQL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}

_SUBMIT_VARIABLE = "PYSPARK_GATEWAY_PORT"  # where spark-submit tells its program to find the JVM

_started_sessions: list[SparkSession] = []


def spark_session(
    master: str = "local[*]",
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
    *,
    ship_package: bool = False,
) -> SparkSession:
    """Return the active session as it is, or start one.

    In a program that ``spark-submit`` started the master is the one of ``spark-submit``, and of our settings
    only those of ``spark.sql`` are added to its own.

    :param master: a Spark master; ``local[...]`` gets the retries that Spark leaves out there
    :param remote: a Spark Connect address (``sc://host:port``) instead of a master; of ``config`` only
        ``spark.sql.*`` settings reach it. ``local[...]`` starts a server in this process, on loopback
    :param config: settings over ours; they are for a new session only. ``spark.pyspark.python`` names the
        workers' Python, which Spark itself overlooks here
    :param ship_package: send this package to the workers of a new session, as
        :func:`paimon_orch.spark.ship_package` does, and make ``paimon`` one of its formats
    :raises InputError: if there is no usable Java, the client of Spark Connect is not installed, or
        Spark does not start
    """
    active = active_session()
    if active is not None:
        logger.info("using the Spark session that is already running, with its own settings")
        return active
    settings = dict(config or {})
    _set_worker_python(settings)
    submitted = _SUBMIT_VARIABLE in os.environ and remote is None
    if not submitted and (remote is None or remote.startswith("local")):
        java = find_java()
        os.environ["JAVA_HOME"] = str(java.home)
        logger.info("Spark runs on %s", java)
    try:
        if submitted:
            session = _start(SparkSession.builder, _SQL_SETTINGS | settings)
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
        # a cause with a token would put into the traceback what the text leaves out
        cause = error if _mask_parameters(target, text) == text else None
        raise InputError(_describe_start_failure(target, error)) from cause
    return session


def _set_worker_python(settings: Mapping[str, str]) -> None:
    """Say which Python the workers run; it is read once, when the context is made."""
    if python := settings.get("spark.pyspark.python"):
        os.environ["PYSPARK_PYTHON"] = python
    # A value of the user's own (a path on the nodes) wins.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def active_session() -> SparkSession | None:
    """Return the session of this process, whichever thread or library started it.

    None if a Spark Connect server has ended it, as one does after an hour without use: the next one is a new one.
    """
    try:
        session = SparkSession.active()
    except PySparkException:
        return None
    if is_remote() and _is_ended(session):
        _started_sessions[:] = [own for own in _started_sessions if own is not session]
        session.stop()
        return None
    return session


def _is_ended(session: SparkSession) -> bool:
    """Ask the server, as the client does not know."""
    try:
        session.conf.get("spark.sql.session.timeZone")
    except PySparkException as error:
        return "INVALID_HANDLE.SESSION" in str(error)
    return False


def stop_session(session: SparkSession) -> None:
    """Stop a session that :func:`spark_session` started; any other is left running.

    On classic Spark this ends the one context of the process; starting again afterwards is quick.
    """
    for index, own in enumerate(_started_sessions):
        if own is session:
            del _started_sessions[index]
            session.stop()
            return


def java_in_use(session: SparkSession) -> str:
    """Return the Java under a running session, such as ``Java 21.0.8 (/opt/java)``."""
    row = session.sql(
        "SELECT java_method('java.lang.System', 'getProperty', 'java.version') AS version, "
        "java_method('java.lang.System', 'getProperty', 'java.home') AS home"
    ).collect()[0]
    return f"Java {row['version']} ({row['home']})"


def _start_classic(master: str, config: Mapping[str, str]) -> SparkSession:
    if master.startswith("local"):
        # Spark warns about a host name that means loopback, and nothing outside has to reach us.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(add_task_retries(master)).appName("paimon-orch")
    return _start(builder, _SQL_SETTINGS | _build_quiet_settings() | dict(config))


def _start_connect(remote: str, config: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.remote(add_task_retries(remote))
    if remote.startswith("local"):
        # the server is one that is started for us, and for nobody outside
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        own = _build_quiet_settings() | {"spark.connect.grpc.binding.address": "127.0.0.1"}
        with warnings.catch_warnings():
            # settings that the server was started with are sent once more, which it refuses
            warnings.filterwarnings("ignore", "Failed to set", UserWarning)
            return _start(builder, _SQL_SETTINGS | own | dict(config))
    # Static settings belong to the server; sending them gives a warning for each.
    settings = {key: value for key, value in config.items() if key.startswith("spark.sql.")}
    return _start(builder, _SQL_SETTINGS | settings)


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
        # Left alone, the first look at the catalog makes a spark-warehouse in the working directory.
        "spark.sql.warehouse.dir": (
            platformdirs.user_cache_path("paimon-orch") / "spark-warehouse"
        ).as_uri(),
    }


def add_task_retries(master: str) -> str:
    """Return a local master with task retries (``local[2]`` has none), any other as it is."""
    match = re.fullmatch(r"local(?:\[([\d*]+)\])?", master)
    return f"local[{match[1] or 1},{TASK_ATTEMPTS}]" if match else master


def _describe_start_failure(target: str, error: Exception) -> str:
    if isinstance(error, ImportError):
        remedy = "Spark Connect needs more packages: pip install 'paimon-orch[connect]'."
    else:
        remedy = "Check the address, that JAVA_HOME is a working Java, and what Spark wrote above."
    address, _ = _split_target(target)
    reason = _mask_parameters(target, str(error).strip().rstrip("."))
    return f"A Spark session on {address} did not start: {reason}. {remedy}"


def _split_target(target: str) -> tuple[str, list[str]]:
    """Return an address and the parameters behind it; one of them may be a token, so that no text repeats them."""
    address, *parameters = target.split(";")
    return address, [one for one in parameters if one]


def _mask_parameters(target: str, text: str) -> str:
    for parameter in _split_target(target)[1]:
        text = text.replace(parameter, parameter.partition("=")[0] + "=***")
    return text
