"""Writes to a disk that is full: one error that names the file, and the table is unchanged."""

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_orch import Catalog
from paimon_orch.errors import StorageError


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the system refuse to make files of this process larger than ``size`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# An error inside pyarrow's writer of ORC would end the process.
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_write_to_a_full_disk_names_the_file_and_leaves_none(
    tmp_path: Path, file_format: str
) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "id BIGINT, v STRING", options={"file.format": file_format}
    )
    before = sorted(tmp_path.rglob("*"))
    generator = random.Random(1)  # noqa: S311
    texts = [f"{generator.getrandbits(200):x}" for _ in range(30_000)]
    rows = pa.table({"id": range(len(texts)), "v": texts})

    with (
        largest_file(100_000),
        pytest.raises(StorageError, match=rf"{file_format} cannot be written \(File too large\)"),
    ):
        table.append(rows)

    assert [path for path in sorted(tmp_path.rglob("*")) if path.is_file()] == [
        path for path in before if path.is_file()
    ]
    table.append(rows.slice(0, 10))
    assert table.scan().count() == 10
