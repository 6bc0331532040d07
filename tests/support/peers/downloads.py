"""Packages that tests download from the registries of this machine, built on first use and cached.

A file or folder is built under a lock in a temporary directory and then renamed: concurrent
processes build it once, and a killed process leaves nothing incomplete.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import platformdirs

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy"
_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>paimon-orch</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId>
    <artifactId>maven-dependency-plugin</artifactId>
    <configuration><artifactItems>{items}</artifactItems></configuration>
  </plugin></plugins></build>
</project>
"""
_BUILD_SECONDS = 900
_failures: dict[str, str] = {}


class PeerUnavailableError(Exception):
    """A peer cannot run on this machine. The message contains the missing program or file."""


def cache_folder() -> Path:
    """Return the folder with all environments, jars and classes."""
    return platformdirs.user_cache_path("paimon-orch") / "peers"


def digest(*parts: str) -> str:
    """Return a short hash for the name of a folder."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def make_once(final: Path, make: Callable[[Path], None]) -> Path:
    """Build the path `final` with `make(temporary path)` if it does not exist, and return it."""
    if final.exists():
        return final
    with _locked(final):
        if final.exists():
            return final
        with _temporary_folder() as folder:
            temporary = folder / final.name
            make(temporary)
            temporary.rename(final)
    return final


def python_environment(name: str, requirements: Sequence[str]) -> Path:
    """Return the interpreter of an environment with the requirements, the first of them pinned."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = f"{name}-{requirements[0].split('==')[1]}-{digest(*requirements, python)}"
    environment = make_once(cache_folder() / folder, lambda target: _build(target, requirements))
    return environment / "bin" / "python"


def _build(target: Path, requirements: Sequence[str]) -> None:
    # Only the interpreter is used: the environment's scripts contain the temporary path.
    run([sys.executable, "-m", "venv", "--without-pip", str(target)], "a virtual environment")
    # Packages are not compiled: most modules are never imported.
    pip = [sys.executable, "-m", "pip", "--python", str(target), "install", "--no-compile"]
    run([*pip, "--quiet", *requirements], " and ".join(requirements))


def file_of_source(requirement: str, suffix: str) -> Path:
    """Return the file of a source distribution whose path ends with a suffix."""
    name = suffix.rpartition("/")[2]
    return make_once(
        cache_folder() / name, lambda target: _download_source(target, requirement, suffix)
    )


def _download_source(target: Path, requirement: str, suffix: str) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        # Only this package is built from source, not the tools that read its metadata. The build is
        # isolated from the setuptools of this environment.
        package = requirement.partition("==")[0]
        options = ["--no-deps", "--no-binary", package, "--use-pep517", "--quiet"]
        pip = [sys.executable, "-m", "pip", "download", *options, "--dest", folder]
        run([*pip, requirement], f"the source distribution of {requirement}")
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            [name] = [name for name in tar.getnames() if name.endswith(suffix)]
            content = tar.extractfile(name)
            assert content is not None, name
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file)


def npm_package(requirement: str) -> Path:
    """Return the folder of a package of npm, such as `name@version`, with those that it needs."""
    folder = make_once(
        cache_folder() / requirement.replace("@", "-"),
        lambda target: _install_npm_package(target, requirement),
    )
    return folder / "node_modules" / requirement.partition("@")[0]


def _install_npm_package(target: Path, requirement: str) -> None:
    if shutil.which("npm") is None:
        raise PeerUnavailableError(f"{requirement} is a package of npm: no npm on PATH")
    target.mkdir()
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
    run(["npm", "install", "--prefix", str(target), *options, requirement], requirement)


def maven_jar(artifact: str) -> Path:
    """Return a jar from the Maven repository that is configured on this machine.

    The artifact is `group:name:version`, or `group:name:version:jar:classifier`.
    """
    [jar] = maven_jars([artifact])
    return jar


def maven_jars(artifacts: Iterable[str]) -> list[Path]:
    """Return several jars; one process downloads those that are missing."""
    files = {artifact: _jar_file(artifact) for artifact in artifacts}
    if missing := sorted(artifact for artifact, file in files.items() if not file.exists()):
        with ExitStack() as locks:
            # The order of the locks is that of all processes.
            for artifact in missing:
                locks.enter_context(_locked(files[artifact]))
            _download_jars([artifact for artifact in missing if not files[artifact].exists()])
    return list(files.values())


def _jar_file(artifact: str) -> Path:
    _, name, version, *kind = artifact.split(":")
    return cache_folder() / ("-".join([name, version, *kind[1:]]) + ".jar")


def _download_jars(artifacts: Sequence[str]) -> None:
    if not artifacts:
        return
    product = " and ".join(artifacts)
    if shutil.which("mvn") is None:
        raise PeerUnavailableError(f"{product} comes from a Maven repository: no mvn on PATH")
    with _temporary_folder() as folder:
        pom = folder / "pom.xml"
        pom.write_text(_POM.format(items="".join(map(_artifact_item, artifacts))), encoding="utf-8")
        options = ["--batch-mode", "--quiet", "--file", str(pom), f"-DoutputDirectory={folder}"]
        run(["mvn", *options, _COPY], product)
        for file in map(_jar_file, artifacts):
            (folder / file.name).rename(file)


def _artifact_item(artifact: str) -> str:
    names = ("groupId", "artifactId", "version", "type", "classifier")
    fields = zip(names, artifact.split(":"), strict=False)
    return f"<artifactItem>{''.join(f'<{name}>{text}</{name}>' for name, text in fields)}</artifactItem>"


@contextmanager
def _locked(final: Path) -> Iterator[None]:
    final.parent.mkdir(parents=True, exist_ok=True)
    with (final.parent / f".{final.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".building-") as folder:
        yield Path(folder)


def run(command: Sequence[str], product: str, environment: Mapping[str, str] | None = None) -> None:
    """Run a command, or raise `PeerUnavailableError` with the reason that it prints.

    What failed, such as a download without a network, is not tried again by this process.
    """
    if product in _failures:
        raise PeerUnavailableError(_failures[product])
    try:
        _run(command, product, environment)
    except PeerUnavailableError as error:
        _failures[product] = str(error)
        raise


def _run(command: Sequence[str], product: str, environment: Mapping[str, str] | None) -> None:
    try:
        finished = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_BUILD_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailableError(
            f"cannot build {product} within {_BUILD_SECONDS} s (is the network available?)"
        ) from error
    if finished.returncode != 0:
        # Maven prints codes that reset colors even if colors are disabled.
        text = re.sub(r"\x1b\[[\d;]*m", "", finished.stderr + finished.stdout)
        lines = [line for line in text.strip().splitlines() if not line.startswith("WARNING: ")]
        # Maven prints the reason in the first line that is not empty, and pip in the last line.
        error_lines = (
            line for line in lines if line.startswith("[ERROR] ") and line.strip() != "[ERROR]"
        )
        last = next(error_lines, "; ".join(lines[-3:]))
        raise PeerUnavailableError(f"cannot build {product} (is the network available?): {last}")
