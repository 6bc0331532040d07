"""Where the other implementations of Paimon live: one cached environment each, made on first use.

Everything is built in a temporary directory beside its final place and renamed, under a lock: two processes that need
the same environment make it once, and one that dies half way leaves nothing that looks ready.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from golden import SHARED

REQUIREMENTS = {
    "pypaimon": ["pypaimon==2.1.0"],
    # The wheel declares no requirements, yet every batch goes through pyarrow.
    "pypaimon-rust": ["pypaimon-rust==0.4.0", "pyarrow==19.0.1"],
}

_JAR_SOURCE = "pypaimon==0.2.0"
_JAR = "paimon-python-java-bridge-0.9.0.jar"
_JAVA_MINIMUM = 17
_BUILD_SECONDS = 900


class PeerUnavailableError(Exception):
    """A peer cannot run on this machine; the text names what is missing."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """How to start the Java oracle."""

    command: Path
    environment: Mapping[str, str]


@functools.cache
def peer_python(name: str) -> Path:
    """The interpreter of a peer's virtual environment, made when it is not there yet."""
    requirements = REQUIREMENTS[name]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = f"{name}-{requirements[0].split('==')[1]}-{_digest(*requirements, python)}"
    environment = _make_once(_cache() / folder, lambda target: _build(target, requirements))
    return environment / "bin" / "python"


@functools.cache
def java_oracle() -> Oracle:
    """The oracle with its jars and compiled classes, ready to run."""
    script = SHARED / "oracle" / "oracle"
    if not script.exists():
        raise PeerUnavailableError(
            "the Java oracle is missing: no ../shared/oracle beside the repository"
        )
    path = _java_path()
    environment = {
        **os.environ,
        "PATH": path,
        "PAIMON_JAR": str(_make_once(_cache() / _JAR, _download_jar)),
        "HADOOP_JARS": str(_hadoop_jars()),
    }
    source = script.with_name("Oracle.java")
    # The script compiles again when the source is newer than the classes, so its time belongs to the name.
    digest = _digest(source.read_text(encoding="utf-8"), str(source.stat().st_mtime_ns))
    classes = _make_once(
        _cache() / f"oracle-classes-{digest}",
        lambda target: _compile(Oracle(script, {**environment, "ORACLE_BUILD": str(target)})),
    )
    return Oracle(script, {**environment, "ORACLE_BUILD": str(classes)})


def _cache() -> Path:
    return platformdirs.user_cache_path("paimon-orch") / "peers"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _make_once(final: Path, make: Callable[[Path], None]) -> Path:
    """The file or directory at `final`, made by `make(temporary path)` when it is not there yet."""
    if final.exists():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    with _locked(final.parent / f".{final.name}.lock"):
        if final.exists():
            return final
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".building-") as folder:
            made = Path(folder) / final.name
            make(made)
            made.rename(final)
    return final


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(target: Path, requirements: list[str]) -> None:
    # Scripts of the environment keep the temporary path in their first line; only its interpreter is used.
    _run([sys.executable, "-m", "venv", str(target)], "a virtual environment")
    install = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements]
    _run(install, " and ".join(requirements))


def _download_jar(target: Path) -> None:
    """Takes the jar out of the source distribution; isolation keeps this environment's setuptools out of it."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        # Only this package has to come as source, not the tools that read its metadata.
        options = ["--no-deps", "--no-binary", "pypaimon", "--use-pep517", "--quiet"]
        download = [
            sys.executable,
            "-m",
            "pip",
            "download",
            *options,
            "--dest",
            folder,
            _JAR_SOURCE,
        ]
        _run(download, f"the source distribution of {_JAR_SOURCE}")
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            [name] = [name for name in tar.getnames() if name.endswith(f"/deps/jars/{_JAR}")]
            content = tar.extractfile(name)
            assert content is not None, name
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file)


def _compile(oracle: Oracle) -> None:
    _run([str(oracle.command), "scenarios"], "the classes of the Java oracle", oracle.environment)


def _java_path() -> str:
    """PATH that finds java and javac of a JDK that is new enough."""
    path = os.environ.get("PATH", "")
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "javac").exists():
        path = f"{home}/bin{os.pathsep}{path}"
    for tool in ("java", "javac"):
        found = shutil.which(tool, path=path)
        if found is None:
            raise PeerUnavailableError(
                f"the Java oracle needs {tool} {_JAVA_MINIMUM}: none on PATH or in JAVA_HOME"
            )
        answer = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
        version = re.search(r"\d+", answer.stderr + answer.stdout)
        if version is None or int(version[0]) < _JAVA_MINIMUM:
            raise PeerUnavailableError(
                f"the Java oracle needs {tool} {_JAVA_MINIMUM}: {found} is {answer.stderr.strip()}"
            )
    return path


def _hadoop_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PeerUnavailableError(
            "the Java oracle takes Hadoop's jars from pyspark, which is not installed here"
        )
    jars = Path(spec.origin).parent / "jars"
    if not list(jars.glob("hadoop-client-runtime-*.jar")):
        raise PeerUnavailableError(f"the Java oracle needs Hadoop's client jars: none in {jars}")
    return jars


def _run(command: list[str], wanted: str, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_SECONDS,
    )
    if done.returncode != 0:
        last = "; ".join(done.stderr.strip().splitlines()[-3:])
        raise PeerUnavailableError(f"cannot make {wanted} (is the network there?): {last}")
