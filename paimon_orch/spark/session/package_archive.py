"""The package itself on its way to the workers, for clusters on whose nodes it is not installed."""

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs
from pyspark.sql import SparkSession

# now: the client of Spark Connect puts what it has sent on the path of this process too, and it would come from there
import pyspark_paimon
from paimon_orch.errors import InputError

_PACKAGE_ROOTS = (Path(__file__).parents[1], Path(pyspark_paimon.__file__).parent)
_FIXED_TIMESTAMP = (
    1980,
    1,
    1,
    0,
    0,
    0,
)  # the oldest date of the format: the same files are the same bytes


def ship_package(session: SparkSession) -> Path:
    """Give the workers of a session this very package, and return the archive that holds it.

    For each session once; on Spark Connect no other session sees it. What the package depends on (pyarrow and so on) must
    be on the nodes. Call :func:`paimon_orch.spark.register` too where the format ``paimon`` is wanted.
    """
    archive = package_archive()
    session.addArtifacts(str(archive), pyfile=True)
    return archive


def package_archive(directory: Path | None = None) -> Path:
    """Write the package into an archive for ``spark-submit --py-files``, and return its path.

    The name holds a hash of the content: a session refuses other bytes under a name that it knows.

    :param directory: where to put it; by default the user's cache
    :raises InputError: if the directory cannot be written
    """
    content = _build_zip()
    folder = directory or platformdirs.user_cache_path("paimon-orch") / "archives"
    archive = folder / f"paimon_orch-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    try:
        if not archive.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            # Put in place at once: another process may be reading the one there.
            handle, name = tempfile.mkstemp(dir=folder)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(name).replace(archive)
    except OSError as error:
        raise InputError(
            f"The archive for Spark's workers cannot be written to {archive}: {error.strerror}. "
            "Let XDG_CACHE_HOME name a directory that you can write."
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
            raise InputError(f"The package {root.name} is not here as files, so it cannot be sent.")
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                yield f"{root.name}/{path.relative_to(root).as_posix()}", path
