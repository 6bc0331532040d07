"""Test data of other implementations: the archives in `tests/data`, unpacked on first use.

`golden_folder()` returns the unpacked golden tables. They are unpacked once per checkout into
`.test-data/`, a folder that Git ignores, under a name that contains the checksum of the archives: a
changed archive is unpacked again. A missing or damaged archive is an error, never a skipped test.

To repack: `python tests/support/packed_data.py FOLDER` writes one archive for each folder in FOLDER
(see `tests/data/README.md`).

Scripts in the environments of other implementations import this module through `golden`, so it
requires only the standard library, and filelock for unpacking.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import lzma
import os
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

_TESTS = next(folder for folder in Path(__file__).resolve().parents if folder.name == "tests")
DATA = _TESTS / "data"
CACHE = _TESTS.parent / ".test-data"
WRITERS = ("java-0.9", "java-2.0", "pypaimon-2.1", "pypaimon-rust-0.4")
"""The golden archives, one for each implementation that wrote tables."""

_SUFFIX = ".tar.xz"
_READ_ONLY = 0o444
_RESTORE = "restore it with `git checkout -- tests/data`"


class TestDataError(Exception):
    """A file of `tests/data` is missing or damaged."""

    __test__ = False


def data_file(name: str, data: Path = DATA) -> bytes:
    """Return the content of a file of `tests/data`, unpacked if only `name`.xz is there."""
    path = data / name
    try:
        if path.exists():
            return path.read_bytes()
        return lzma.decompress(path.with_name(f"{path.name}.xz").read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise TestDataError(f"cannot read tests/data/{name}: {error}; {_RESTORE}") from error


def golden_folder(data: Path = DATA, cache: Path = CACHE) -> Path:
    """Return the folder of the unpacked golden tables, one folder per writer.

    Example of a warehouse in it: `java-0.9/append_simple/warehouse`.

    Files in it are read-only. Copy a warehouse before you change it.
    """
    archives = [data / "golden" / f"{writer}{_SUFFIX}" for writer in WRITERS]
    target = cache / f"golden-{_checksum(archives)}"
    if not target.is_dir():
        _unpack_once(archives, target)
    return target


def _checksum(archives: Sequence[Path]) -> str:
    checksum = hashlib.sha256()
    for archive in archives:
        try:
            content = archive.read_bytes()
        except OSError as error:
            raise TestDataError(f"cannot read {archive}: {error}; {_RESTORE}") from error
        checksum.update(hashlib.sha256(content).digest())
    return checksum.hexdigest()[:16]


def _unpack_once(archives: Sequence[Path], target: Path) -> None:
    from filelock import FileLock

    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.parent / "unpack.lock"):
        if target.is_dir():
            return
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="unpacking-") as folder:
            # The context deletes the temporary folder, so the data is unpacked into a subfolder.
            unpacked = Path(folder) / target.name
            names = [name for archive in archives for name in _unpack(archive, unpacked)]
            for name in names:
                (unpacked / name).chmod(_READ_ONLY)
            unpacked.rename(target)


def _unpack(archive: Path, target: Path) -> list[str]:
    """Unpack an archive, and return the names of its files."""
    try:
        with tarfile.open(archive, "r:xz") as tar:
            for entry in tar.getmembers():
                entry.mode = 0o644  # until all archives are unpacked
            # Python 3.11.3 and older have no filters.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(target)  # noqa: S202 - the repository's own archive
            names = tar.getnames()
    except (OSError, EOFError, lzma.LZMAError, tarfile.TarError) as error:
        raise TestDataError(f"{archive} is damaged: {error}; {_RESTORE}") from error
    if not names:
        raise TestDataError(f"{archive} is empty; {_RESTORE}")
    return names


def tar_bytes(folder: Path) -> bytes:
    """Return a tar file of a folder's files that depends only on their names and contents.

    Names begin with the name of the folder. Owners, times and modes are constants, and only files
    are stored.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            data = path.read_bytes()
            entry = tarfile.TarInfo(path.relative_to(folder.parent).as_posix())
            entry.size = len(data)
            entry.mode = _READ_ONLY
            tar.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def pack(folder: Path, archive: Path) -> None:
    """Write a folder as an archive; the same files give the same archive."""
    packed = lzma.compress(tar_bytes(folder), preset=9 | lzma.PRESET_EXTREME)
    archive.parent.mkdir(parents=True, exist_ok=True)
    temporary = archive.with_name(f".{archive.name}.{os.getpid()}")
    temporary.write_bytes(packed)
    temporary.replace(archive)


def main(arguments: Sequence[str] | None = None) -> None:
    """Pack the golden tables of a folder that holds one folder per writer."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, help="holds java-0.9, java-2.0, ...")
    parser.add_argument("--data", type=Path, default=DATA, help="where the archives are written")
    options = parser.parse_args(arguments)
    for writer in WRITERS:
        folder = options.folder.resolve() / writer
        if not folder.is_dir():
            parser.error(f"no folder {folder}")
        pack(folder, options.data / "golden" / f"{writer}{_SUFFIX}")


if __name__ == "__main__":
    main()
