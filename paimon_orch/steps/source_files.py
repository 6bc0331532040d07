"""Opens the files that an ingest of this process loads."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from paimon_orch.errors import InputError
from paimon_orch.storage import LocalFileIO


class SparkRequiredError(InputError):
    """The content of a file can only be read by Spark."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}; only Spark can load it (--executor spark)")


@contextmanager
def open_text(path: str) -> Iterator[IO[bytes]]:
    """Open a file of text, which may be compressed."""
    with open_file(path) as file, open_decompressed(file, path) as opened:
        yield opened


def open_file(path: str) -> IO[bytes]:
    """Open a file of this machine."""
    return LocalFileIO().open_input(str(Path(path).resolve()))


@contextmanager
def open_decompressed(file: IO[bytes], path: str) -> Iterator[IO[bytes]]:
    """Decompress a file if its name says so; start after its byte order mark, if it has one."""
    opened = gzip.open(file) if path.endswith(".gz") else file  # noqa: SIM115 - closed below
    try:
        with cast("IO[bytes]", opened) as content:
            if content.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
                content.seek(0)
            yield content
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(
            f"{path} cannot be decompressed as gzip: {error}. Nothing was committed"
        ) from error
