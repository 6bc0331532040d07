"""The environments of other implementations of Paimon, built on first use and cached.

An environment is built under a lock in a temporary directory and then renamed: concurrent processes
build it once, and a killed process leaves no incomplete environment.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs

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
_ICEBERG_SPARK_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"

_HERE = Path(__file__).parent
_JAVA = _HERE / "java"
_BRIDGE_SOURCE = "pypaimon==0.2.0"
_BRIDGE = "paimon-python-java-bridge-0.9.0.jar"
_BUNDLE = "org.apache.paimon:paimon-bundle:1.4.2"
# There is no bundle of 2.0 in Maven repositories; the jar for Flink contains all of Paimon, too.
_FLINK_JAR = "org.apache.paimon:paimon-flink-2.0:2.0.0"
TITLES = {
    **{name: needs[0].replace("==", " ") for name, needs in REQUIREMENTS.items()},
    "java-0.9": "Java 0.9.0",
    "java-1.4": f"Java {_BUNDLE.rpartition(':')[2]}",
    "java-2.0": f"Java {_FLINK_JAR.rpartition(':')[2]}",
}
_PYSPARK = _SPARKS[SPARK][1][0].replace("==", " ")
ENGINE_TITLES = {
    **TITLES,
    SPARK: f"paimon-spark {_SPARKS[SPARK][0].rpartition(':')[2]} on {_PYSPARK}",
    ICEBERG_DUCKDB: _ICEBERG_DUCKDB_REQUIREMENTS[0].replace("==", " "),
    ICEBERG_SPARK: f"Iceberg {_ICEBERG_SPARK_RUNTIME.rpartition(':')[2]} on {_PYSPARK}",
}
"""All engines with their releases."""

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy"
_JDBC_DRIVERS = ("org.xerial:sqlite-jdbc:3.50.3.0", "org.postgresql:postgresql:42.7.7")
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
_BUILD_SECONDS = 900


class PeerUnavailableError(Exception):
    """A peer cannot run on this machine. The message contains the missing program or file."""


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
    runtime = maven_jar(_ICEBERG_SPARK_RUNTIME)
    # The environment is that of the peer with Paimon's connector.
    command = _script(ICEBERG_SPARK, python_environment(SPARK, _SPARKS[SPARK][1]))
    return PeerCommand((*command, str(runtime)), {**os.environ, "PATH": _java_path()})


def _script(name: str, python: Path) -> tuple[str, ...]:
    script = _HERE / f"{name.replace('-', '_')}_peer.py"
    # With -I, the peer cannot import from the environment of the tests.
    return (str(python), "-I", "-X", "utf8", str(script))


def python_environment(name: str, requirements: list[str]) -> Path:
    """Return the interpreter of an environment with the requirements, the first of them pinned."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = f"{name}-{requirements[0].split('==')[1]}-{_digest(*requirements, python)}"
    environment = _make_once(_cache() / folder, lambda target: _build(target, requirements))
    return environment / "bin" / "python"


def _java_0_9() -> tuple[Path, list[Path]]:
    return _make_once(_cache() / _BRIDGE, _download_bridge), _java_sources("checks", "0.9")


def _java_1_4() -> tuple[Path, list[Path]]:
    return paimon_jar("java-1.4"), _java_sources("1.4")


def _java_2_0() -> tuple[Path, list[Path]]:
    # The classes that append tables and catalogs need have not changed since 1.4.
    return paimon_jar("java-2.0"), _java_sources("checks", "1.4", "2.0")


def paimon_jar(name: str) -> Path:
    """Return the jar with all of Paimon, of the peer `java-1.4` or `java-2.0`."""
    return maven_jar(_FLINK_JAR if name == "java-2.0" else _BUNDLE)


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
    return [maven_jar(artifact) for artifact in _JDBC_DRIVERS]


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
    digest = _digest(*names, *(source.read_text(encoding="utf-8") for source in sources))
    compiled = _make_once(
        _cache() / f"{jars[0].stem}-classes-{digest}",
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


def _cache() -> Path:
    return platformdirs.user_cache_path("paimon-orch") / "peers"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _make_once(final: Path, make: Callable[[Path], None]) -> Path:
    """Build the path `final` with `make(temporary path)` if it does not exist, and return it."""
    if final.exists():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    with _locked(final.parent / f".{final.name}.lock"):
        if final.exists():
            return final
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".building-") as folder:
            temporary = Path(folder) / final.name
            make(temporary)
            temporary.rename(final)
    return final


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(target: Path, requirements: list[str]) -> None:
    # Only the interpreter is used: the environment's scripts contain the temporary path.
    _run([sys.executable, "-m", "venv", str(target)], "a virtual environment")
    install = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements]
    _run(install, " and ".join(requirements))


def _download_bridge(target: Path) -> None:
    """Extract the jar from the source distribution, isolated from this environment's setuptools."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        # Build only this package from source, not the tools that read its metadata.
        options = ["--no-deps", "--no-binary", "pypaimon", "--use-pep517", "--quiet"]
        pip = [sys.executable, "-m", "pip", "download", *options, "--dest", folder]
        _run([*pip, _BRIDGE_SOURCE], f"the source distribution of {_BRIDGE_SOURCE}")
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            [name] = [name for name in tar.getnames() if name.endswith(f"/deps/jars/{_BRIDGE}")]
            content = tar.extractfile(name)
            assert content is not None, name
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file)


def maven_jar(artifact: str) -> Path:
    """Return a jar from the Maven repository that is configured on this machine.

    The artifact is `group:name:version`, or `group:name:version:jar:classifier`.
    """
    _, name, version, *kind = artifact.split(":")
    file = "-".join([name, version, *kind[1:]]) + ".jar"
    return _make_once(_cache() / file, lambda target: _download_jar(target, artifact))


def _download_jar(target: Path, artifact: str) -> None:
    if shutil.which("mvn") is None:
        raise PeerUnavailableError(f"{artifact} comes from a Maven repository: no mvn on PATH")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        options = [f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        _run(["mvn", "--batch-mode", "--quiet", _COPY, *options], artifact)
        [jar] = Path(folder).glob("*.jar")
        jar.rename(target)


def _compile(target: Path, path: str, sources: list[Path], environment: Mapping[str, str]) -> None:
    command = ["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(target), "-cp", path]
    _run([*command, *map(str, sources)], "the classes of a Java peer", environment)


def _java_path() -> str:
    """Return a PATH with java and javac of a sufficiently new JDK."""
    path = os.environ.get("PATH", "")
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "javac").exists():
        path = f"{home}/bin{os.pathsep}{path}"
    for tool in ("java", "javac"):
        program = shutil.which(tool, path=path)
        if program is None:
            raise PeerUnavailableError(
                f"a Java peer needs {tool} {_JAVA_MINIMUM}: none on PATH or in JAVA_HOME"
            )
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
        version = re.search(r"\d+", answer.stderr + answer.stdout)
        if version is None or int(version[0]) < _JAVA_MINIMUM:
            raise PeerUnavailableError(
                f"a Java peer needs {tool} {_JAVA_MINIMUM}: {program} is {answer.stderr.strip()}"
            )
    return path


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


def _run(command: list[str], product: str, environment: Mapping[str, str] | None = None) -> None:
    finished = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_SECONDS,
    )
    if finished.returncode != 0:
        # Maven prints codes that reset colors even if colors are disabled.
        lines = re.sub(r"\x1b\[[\d;]*m", "", finished.stderr + finished.stdout).strip().splitlines()
        # Maven prints the reason in the first line that is not empty, and pip in the last line.
        error_lines = (
            line for line in lines if line.startswith("[ERROR] ") and line.strip() != "[ERROR]"
        )
        last = next(error_lines, "; ".join(lines[-3:]))
        raise PeerUnavailableError(f"cannot build {product} (is the network available?): {last}")
