"""Builds an archive of this package for workers of clusters on which it is not installed."""

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs
from pyspark.sql import SparkSession

# The paths are read at the import of this module, because the client of Spark Connect later adds
# archives with the same packages to sys.path.
import paimon_orch
import pyspark_paimon
from paimon_orch.errors import InputError
from paimon_orch.user_cache import make_cache_folder

_PACKAGE_ROOTS = tuple(Path(package.__path__[0]) for package in (paimon_orch, pyspark_paimon))
# All files get the earliest timestamp of the format, so that the archive depends only on their
# content.
_FIXED_TIMESTAMP = (1980, 1, 1, 0, 0, 0)


def ship_package(session: SparkSession) -> Path:
    """Send this package to the workers of a session, and return its archive.

    Call this function once per session; on Spark Connect, other sessions do not use the archive.
    The dependencies of the package (pyarrow and others) must be installed on the nodes. To use the
    format ``paimon``, also call :func:`paimon_orch.spark.register`.
    """
    archive = package_archive()
    session.addArtifacts(str(archive), pyfile=True)
    return archive


def package_archive(directory: Path | None = None) -> Path:
    """Write the package to an archive for ``spark-submit --py-files``, and return its path.

    The name contains a hash of the content, because a session refuses other content with the same
    name.

    :param directory: the directory for the archive; by default the user's cache
    :raises InputError: if the directory cannot be written
    """
    content = _build_zip()
    folder = directory or platformdirs.user_cache_path("paimon-orch") / "archives"
    archive = folder / f"paimon_orch-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    try:
        if directory is None:
            make_cache_folder("archives")
        if not archive.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            # the file is renamed atomically, because another process may read it at the same time
            handle, name = tempfile.mkstemp(dir=folder)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(name).replace(archive)
    except OSError as error:
        raise InputError(
            f"The archive for Spark's workers cannot be written to {archive}: {error.strerror}. "
            "Set XDG_CACHE_HOME to a writable directory."
        ) from error
    return archive


def _build_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in _list_package_files():
            archive.writestr(
                zipfile.ZipInfo(name, _FIXED_TIMESTAMP), path.read_bytes(), zipfile.ZIP_DEFLATED
            )
    return buffer.getvalue()


def _list_package_files() -> Iterator[tuple[str, Path]]:
    for root in _PACKAGE_ROOTS:
        if not (root / "__init__.py").is_file():
            raise InputError(
                f"The package {root.name} is not installed as files in a directory, so it cannot "
                "be sent to the workers."
            )
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                yield f"{root.name}/{path.relative_to(root).as_posix()}", path
