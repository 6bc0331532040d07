"""Java and we use the same directory for partition values of every type."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.steps import (
    check,
    compact,
    expire_partitions,
    remove_orphan_files,
    remove_unexisting_files,
)
from paimon_orch.table.table import Table

TIMES = [
    "0001-01-01T00:00:00",
    "0999-05-05T01:02:03",
    "1582-10-10T00:00:00",
    "1899-12-31T23:59:59.999",
    "1969-12-31T23:59:59.001",
    "2024-05-06T01:02:00",
    "2024-05-06T01:02:00.120",
    "2024-05-06T01:02:03.100",
    "9999-12-31T23:59:59.999",
    "+10000-01-01T00:00:00",
    "+12345-06-07T08:09:10",
    "0000-01-01T00:00:00",
    "-0001-12-31T23:59:59",
    "-9999-01-01T00:00:00",
    "-12345-01-01T00:00:01",
]
NANOS = ["2024-05-06T01:02:03.000000001", "1677-09-22T00:00:00.1", "2262-04-11T01:02:03.123456"]
BLANKS = [" ", "\t", "\u000b", "\u001c", "\u001f", "\u0085", "\u00a0", "\u1680", "\u180e", "\u2000"]
BLANKS += [
    "\u2007",
    "\u2028",
    "\u202f",
    "\u205f",
    "\u3000",
    "\ufeff",
    "\u2007 ",
    " \u00a0",
    "",
    "a ",
]
VALUES: dict[str, Sequence[object]] = {
    "DATE": [time.partition("T")[0] for time in TIMES],
    "TIME(0)": ["00:00", "01:02:03", "23:59:59"],
    "TIME(3)": ["00:00", "01:02", "01:02:03", "01:02:03.004", "01:02:03.100", "23:59:59.999"],
    "TIMESTAMP(0)": [time.partition(".")[0] for time in TIMES],
    "TIMESTAMP(3)": TIMES,
    "TIMESTAMP(6)": [*TIMES, "2024-05-06T01:02:03.000001", "0001-01-01T00:00:00.123456"],
    "TIMESTAMP(9)": NANOS,
    "TIMESTAMP_LTZ(3)": TIMES,
    "TIMESTAMP_LTZ(6)": TIMES,
    "STRING": [*BLANKS, "a/b", "a=b", "%", "\u00e9", "\U0001f600", "\x7f", "null"],
    "CHAR(3)": ["a", "a  ", "abc", "\u2007"],
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-1],
    "INT": [-(2**31), 0],
    "BIGINT": [-(2**63), 2**63 - 1],
    "FLOAT": ["0.1", "-0.0", "1e10", "1e-5", "NaN", "Infinity", "3.4028235e38", "1.4e-45", "100", "2e7", "7.118777e11"],
    "DOUBLE": ["0.1", "-0.0", "1e10", "1e-5", "NaN", "-Infinity", "4.9e-324", "1e7", "123456789.125", "2e-3", "1e23", "2e23"],
    "DECIMAL(9, 2)": ["0.00", "-1.50", "1234567.89"],
    "DECIMAL(38, 10)": ["0.0000000001", "-1234567890123456789012345678.1234567890"],
}  # fmt: skip


@pytest.mark.parametrize("legacy", ["true", "false"])
@pytest.mark.parametrize("kind", VALUES)
def test_a_partition_value_has_the_directory_of_java(
    java20: Peer, tmp_path: Path, kind: str, legacy: str
) -> None:
    options = {
        "bucket": "-1",
        "partition.legacy-name": legacy,
        "file.format": "orc" if kind == "TIMESTAMP(9)" else "avro",
    }
    table = Catalog(str(tmp_path)).create_table(
        "db.t", f"k INT, p {kind}", partition_by=["p"], options=options
    )
    rows = [{"_kind": "+I", "k": k, "p": value} for k, value in enumerate(VALUES[kind])]

    java20.run("write", tmp_path, rows=rows)

    root = Path(table.paths.root)
    stored = {path.parent.parent.name for path in root.glob("*/bucket-0/*")}
    state = table.load()
    ours = {
        Path(state.paths.bucket_dir(state.schema, split.partition, 0)).parent.name
        for split in table.files()
    }
    assert ours == stored
    assert check(table, deep=True).findings == ()

    written = read_values(table)
    assert len(written) == len(rows)
    compact(table, strategy="full")
    remove_orphan_files(table, older_than=int(time.time() * 1000))
    expire_partitions(table, expiration_time=timedelta(days=1), strategy="update-time")
    assert read_values(table) == written
    assert check(table, deep=True).findings == ()
    partitions = {split.partition for split in table.files()}
    assert len(table.system("partitions").scan().to_arrow()) == len(partitions)
    assert not remove_unexisting_files(table)
    read_by_java = [(row["k"], row["p"]) for row in java20.read(tmp_path)]
    assert [k for k, _ in sorted(read_by_java, key=lambda row: row[0])] == [k for k, _ in written]
    if kind == "STRING":
        assert sorted(read_by_java) == written


def read_values(table: Table) -> list[tuple[int, object]]:
    """Return all rows; a NaN is a text, so that it equals itself."""
    rows = table.scan().to_arrow().sort_by("k")
    values = rows["p"].cast(pa.string()) if pa.types.is_floating(rows["p"].type) else rows["p"]
    if pa.types.is_temporal(values.type):  # Python has no years before 1 and after 9999
        values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return list(zip(rows["k"].to_pylist(), values.to_pylist(), strict=True))
