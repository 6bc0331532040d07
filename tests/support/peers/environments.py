"""The releases of other implementations of Paimon, and the commands that start them as peers."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.peers import downloads
from support.peers.downloads import (
    cache_folder,
    digest,
    file_of_source,
    make_once,
    maven_jar,
    maven_jars,
    python_environment,
    run,
)

PeerUnavailableError = downloads.PeerUnavailableError

REQUIREMENTS = {
    "pypaimon": ["pypaimon==2.1.0"],
    # The wheel declares no requirements, but uses pyarrow for all batches.
    "pypaimon-rust": ["pypaimon-rust==0.4.0", "pyarrow==19.0.1"],
}
# Each connector of Paimon requires one release of Spark. The variable overrides the newest jar.
SPARK, OLD_SPARK = "paimon-spark", "paimon-spark-0.9"
_SPARKS = {
    SPARK: ("org.apache.paimon:paimon-spark-4.0_2.13:1.4.2", ["pyspark==4.0.2", "pyarrow==19.0.1"]),
    OLD_SPARK: (
        "org.apache.paimon:paimon-spark-3.5:0.9.0",
        ["pyspark==3.5.3", "pyarrow==19.0.1", "pandas==2.2.3", "setuptools==80.9.0"],
    ),
}
_CONNECTOR_VARIABLE = "PAIMON_SPARK_JAR"

# Readers of Iceberg tables. Newer releases of DuckDB and Spark have no Iceberg extension yet.
ICEBERG_DUCKDB, ICEBERG_SPARK = "iceberg-duckdb", "iceberg-spark"
_ICEBERG_DUCKDB_REQUIREMENTS = [
    "duckdb==1.5.5",
    # The wheels contain the binaries, which DuckDB itself downloads from a server of its own.
    "duckdb-extension-avro==1.5.5",
    "duckdb-extension-iceberg==1.5.5",
    "pyarrow==19.0.1",
]
ICEBERG_SPARK_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"

_HERE = Path(__file__).parent
_JAVA = _HERE / "java"
_BRIDGE_SOURCE = "pypaimon==0.2.0"
_BRIDGE = "/deps/jars/paimon-python-java-bridge-0.9.0.jar"
PAIMON_JARS = {
    "java-1.4": "org.apache.paimon:paimon-bundle:1.4.2",
    # There is no bundle of 2.0 in Maven repositories; the jar for Flink contains all of Paimon too.
    "java-2.0": "org.apache.paimon:paimon-flink-2.0:2.0.0",
}
JAVA_WITH_S3 = "java-2.0-s3"
# There is no plugin of 2.0 in Maven repositories.
S3_PLUGIN = "org.apache.paimon:paimon-s3:1.4.2"
TITLES = {
    **{name: needs[0].replace("==", " ") for name, needs in REQUIREMENTS.items()},
    "java-0.9": "Java 0.9.0",
    **{name: f"Java {jar.rpartition(':')[2]}" for name, jar in PAIMON_JARS.items()},
}
_PYSPARK = _SPARKS[SPARK][1][0].replace("==", " ")
ENGINE_TITLES = {
    **TITLES,
    SPARK: f"paimon-spark {_SPARKS[SPARK][0].rpartition(':')[2]} on {_PYSPARK}",
    ICEBERG_DUCKDB: _ICEBERG_DUCKDB_REQUIREMENTS[0].replace("==", " "),
    ICEBERG_SPARK: f"Iceberg {ICEBERG_SPARK_RUNTIME.rpartition(':')[2]} on {_PYSPARK}",
}
"""All engines with their releases."""

JDBC_DRIVERS = ("org.xerial:sqlite-jdbc:3.50.3.0", "org.postgresql:postgresql:42.7.7")
# What the client of Hive 2.3 requires in a Java peer. It works with both metastores.
_HIVE_CLIENT_JARS = (
    "hive-metastore",
    "hive-exec",
    "hive-common",
    "hive-serde",
    "hive-shims*",
    "hive-storage-api",
    "libthrift",
    "libfb303",
    "guava",
    "failureaccess",
    "commons-lang",
    "commons-lang3",
    "log4j-1.2-api",
    "log4j-api",
)
_JAVA_MINIMUM = 17


@dataclass(frozen=True, slots=True)
class PeerCommand:
    """The command and the environment variables of a peer."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


@functools.cache
def peer_start(name: str) -> PeerCommand:
    """Return the command of a peer; builds its environment if it does not exist."""
    if name in JAVA:
        jar, sources = JAVA[name]()
        return java_command("JavaPeer", sources, [jar], _catalog_jars())
    if name == JAVA_WITH_S3:
        jar, sources = _java_2_0()
        return java_command("JavaPeer", sources, [jar], [maven_jar(S3_PLUGIN), *_catalog_jars()])
    if name == ICEBERG_DUCKDB:
        python = python_environment(name, _ICEBERG_DUCKDB_REQUIREMENTS)
        return PeerCommand(_script(name, python), dict(os.environ))
    if name == ICEBERG_SPARK:
        return _iceberg_spark_start()
    if name in _SPARKS:
        connector, needs = _SPARKS[name]
        connector_jar = os.environ.get(_CONNECTOR_VARIABLE) if name == SPARK else None
        # The jar is downloaded before Spark, because Spark is much larger.
        jar = Path(connector_jar) if connector_jar else maven_jar(connector)
        command = _script(SPARK, python_environment(name, needs))
        return PeerCommand((*command, str(jar)), {**os.environ, "PATH": _java_path()})
    return PeerCommand(
        _script(name, python_environment(name, REQUIREMENTS[name])), dict(os.environ)
    )


def _iceberg_spark_start() -> PeerCommand:
    runtime = maven_jar(ICEBERG_SPARK_RUNTIME)
    # The environment is that of the peer with Paimon's connector.
    command = _script(ICEBERG_SPARK, python_environment(SPARK, _SPARKS[SPARK][1]))
    return PeerCommand((*command, str(runtime)), {**os.environ, "PATH": _java_path()})


def _script(name: str, python: Path) -> tuple[str, ...]:
    script = _HERE / f"{name.replace('-', '_')}_peer.py"
    # With -I, the peer cannot import from the environment of the tests.
    return (str(python), "-I", "-X", "utf8", str(script))


def _java_0_9() -> tuple[Path, list[Path]]:
    return file_of_source(_BRIDGE_SOURCE, _BRIDGE), _java_sources("checks", "0.9")


def _java_1_4() -> tuple[Path, list[Path]]:
    return maven_jar(PAIMON_JARS["java-1.4"]), _java_sources("1.4")


def _java_2_0() -> tuple[Path, list[Path]]:
    # The classes that append tables and catalogs need have not changed since 1.4.
    return maven_jar(PAIMON_JARS["java-2.0"]), _java_sources("checks", "1.4", "2.0")


def _catalog_jars() -> list[Path]:
    """Return the jars that catalogs in Hive require, and the drivers of databases if possible."""
    try:
        return [*hive_client_jars(), *jdbc_drivers()]
    except PeerUnavailableError:
        return hive_client_jars()


def hive_client_jars() -> list[Path]:
    """Return the jars that a Java peer requires for a Hive catalog."""
    folder = spark_jars()
    jars = [jar for name in _HIVE_CLIENT_JARS for jar in sorted(folder.glob(f"{name}-[0-9]*.jar"))]
    if not any(jar.name.startswith("hive-metastore") for jar in jars):
        raise PeerUnavailableError(f"a Hive catalog needs the jars of Hive: none are in {folder}")
    return jars


def jdbc_drivers() -> list[Path]:
    """Return the jars that a Java peer requires for a JDBC catalog."""
    return maven_jars(JDBC_DRIVERS)


def _java_sources(*folders: str) -> list[Path]:
    """Return the sources of all releases and of some folders; later folders replace files."""
    paths = [_JAVA, *(_JAVA / folder for folder in folders)]
    return [*{file.name: file for path in paths for file in sorted(path.glob("*.java"))}.values()]


JAVA: dict[str, Callable[[], tuple[Path, list[Path]]]] = {
    "java-0.9": _java_0_9,
    "java-1.4": _java_1_4,
    "java-2.0": _java_2_0,
}


def java_command(
    main: str, sources: list[Path], jars: Sequence[Path], more_jars: Sequence[Path] = ()
) -> PeerCommand:
    """Compile the sources with the jars and Hadoop once, and return the command of a main class.

    More jars are added to the class path of the program only.
    """
    environment = {**os.environ, "PATH": _java_path()}
    path = os.pathsep.join(map(str, [*jars, *_hadoop_jars()]))
    names = (jar.name for jar in jars)
    version = digest(*names, *(source.read_text(encoding="utf-8") for source in sources))
    compiled = make_once(
        cache_folder() / f"{jars[0].stem}-classes-{version}",
        lambda target: _compile(target, path, sources, environment),
    )
    opened = ("java.nio", "sun.nio.ch", "java.lang", "java.util")
    command = (
        "java",
        "-Xmx1g",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        # the verification of classes takes a fifth of the start
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-BytecodeVerificationRemote",
        "-Dfile.encoding=UTF-8",
        "-Duser.timezone=UTC",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in opened),
        "-cp",
        os.pathsep.join([str(compiled), path, *map(str, more_jars)]),
        main,
    )
    return PeerCommand(command, environment)


def _compile(target: Path, path: str, sources: list[Path], environment: Mapping[str, str]) -> None:
    command = ["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(target), "-cp", path]
    run([*command, *map(str, sources)], f"the classes {target.name}", environment)


def _java_path() -> str:
    """Return a PATH with java and javac of a sufficiently new JDK."""
    path = os.environ.get("PATH", "")
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "javac").exists():
        path = f"{home}/bin{os.pathsep}{path}"
    _check_java(path)
    return path


@functools.cache
def _check_java(path: str) -> None:
    """Start java and javac once for all commands, to read their versions."""
    for tool in ("java", "javac"):
        program = shutil.which(tool, path=path)
        if program is None:
            raise PeerUnavailableError(
                f"a Java peer needs {tool} {_JAVA_MINIMUM}: none on PATH or in JAVA_HOME"
            )
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
        # Variables with options of Java are listed before it.
        version = re.search(r'(?:version "|javac )(\d+)', answer.stderr + answer.stdout)
        if version is None or int(version[1]) < _JAVA_MINIMUM:
            raise PeerUnavailableError(
                f"a Java peer needs {tool} {_JAVA_MINIMUM}: {program} is {answer.stderr.strip()}"
            )


def spark_jars() -> Path:
    """Return the folder with the jars of pyspark, among them those of Hadoop and Hive."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PeerUnavailableError(
            "the Java peers take Hadoop's jars from pyspark, which is not installed here"
        )
    return Path(spec.origin).parent / "jars"


def _hadoop_jars() -> list[Path]:
    """Return the Hadoop jars that Paimon's jars require."""
    folder = spark_jars()
    names = (
        "hadoop-client-api",
        "hadoop-client-runtime",
        "slf4j-api",
        "jcl-over-slf4j",
        "commons-io",
        "snappy-java",
        "lz4-java",
    )
    jars = [jar for name in names for jar in sorted(folder.glob(f"{name}-*.jar"))]
    if len(jars) < len(names):
        raise PeerUnavailableError(
            f"the Java peers need {', '.join(names)}: not all are in {folder}"
        )
    return jars
