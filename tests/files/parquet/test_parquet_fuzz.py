"""Parquet bytes of any kind end in rows or in an own error, also those that are copied."""

from __future__ import annotations

import io
import random
from collections.abc import Callable

import pyarrow as pa
import pytest
from support.fuzz_samples import mutate
from support.limited_process import run_limited

from paimon_orch.errors import PaimonError, wrap_decode_errors
from paimon_orch.files.batch_sizes import BatchSizes
from paimon_orch.files.parquet import (
    SMALL_PAGES,
    FileLayout,
    Footer,
    ParquetFileReader,
    ParquetFileWriter,
    RowGroupSource,
    read_batches,
)
from paimon_orch.format.types.data_types import parse_columns

SEED, MUTATIONS = 20261129, 150
FIELDS = parse_columns("k BIGINT, s STRING, l ARRAY<INT>, t TIMESTAMP(9), d DECIMAL(28, 2)")
ROWS = range(120)
TABLE = pa.table(
    {
        "k": pa.array(ROWS, pa.int64()),
        "s": [f"s{number % 5}" for number in ROWS],
        "l": pa.array([[number] * (number % 3) for number in ROWS], pa.list_(pa.int32())),
        "t": pa.array(ROWS, pa.timestamp("ns")),
        "d": pa.array(ROWS, pa.decimal128(28, 2)),
    }
)
ANY_SIZE = BatchSizes(min_copied_group_bytes=1, min_copied_chunk_bytes=1)


def write(*, small_pages: bool = False) -> bytes:
    sink = io.BytesIO()
    writer = ParquetFileWriter(sink, FIELDS, "zstd", 1, pages=SMALL_PAGES if small_pages else None)
    for start in range(0, len(TABLE), 40):
        writer.write(TABLE.slice(start, 40))
    writer.close()
    return sink.getvalue()


def find_layout() -> FileLayout:
    layout = ParquetFileWriter(io.BytesIO(), FIELDS, "zstd", 1).copied_layout
    assert layout is not None
    return layout


def read(data: bytes) -> pa.Table | None:
    """Return the rows of a file, or None for a file that is refused."""
    try:
        with wrap_decode_errors("file"):
            reader = ParquetFileReader(io.BytesIO(data))
            return pa.Table.from_batches(list(reader.batches(TABLE.column_names, 64)))
    except PaimonError:
        return None


def read_all(data: bytes) -> None:
    """Read the rows of a file as a manifest or an input of an ingestion."""
    with wrap_decode_errors("file"):
        assert Footer(io.BytesIO(data)).size >= 0
        for batch in read_batches(io.BytesIO(data), 64):
            batch.validate(full=True)


def copy(data: bytes) -> None:
    """Copy the row groups of a file; the copy must have its rows."""
    sink = io.BytesIO()
    writer = ParquetFileWriter(sink, FIELDS, "zstd", 1)
    with wrap_decode_errors("file"):
        source = RowGroupSource.open(io.BytesIO(data), LAYOUT, ANY_SIZE, remote=False)
        if source is None:
            return
        writer.copy(source)
        writer.close()
    rows, copied = read(data), read(sink.getvalue())
    assert rows is None or (copied is not None and copied.equals(rows)), "the copy has other rows"


def mutate_footer(data: bytes, source: random.Random) -> bytes:
    """Return a file with some changes in its footer."""
    end = len(data) - 8
    start = end - int.from_bytes(data[end : end + 4], "little")
    footer = mutate(data[start:end], source)
    return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


LAYOUT = find_layout()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("small_pages", [False, True], ids=["pages", "page index"])
@pytest.mark.parametrize("change", [mutate, mutate_footer], ids=["any byte", "footer"])
@pytest.mark.parametrize("use", [read_all, copy], ids=["read", "copy"])
def test_mutated_files_end_in_the_same_rows_or_an_own_error(
    use: Callable[[bytes], None],
    change: Callable[[bytes, random.Random], bytes],
    small_pages: bool,
) -> None:
    sample = write(small_pages=small_pages)
    use(sample)

    def fuzz() -> int:
        source = random.Random(SEED)  # noqa: S311 - repeatable damage
        for _ in range(MUTATIONS):
            data = change(sample, source)
            try:
                use(data)
            except PaimonError:
                continue
            except BaseException as error:
                raise RuntimeError(f"{data!r}: {error!r}") from error
        return MUTATIONS

    assert run_limited(fuzz) == MUTATIONS
