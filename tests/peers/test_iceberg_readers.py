"""Iceberg readers find the rows of our tables in the Iceberg metadata that we publish.

The expected rows are those that this library reads from the same Paimon snapshot; other tests
compare these reads with Java's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from support.golden import assert_rows_equal, canonical_rows, records_to_rows
from support.iceberg_readers import (
    DUCKDB,
    IS_NULL,
    PYICEBERG,
    READERS,
    SPARK,
    Condition,
    DuckDbReader,
    IcebergReader,
    PyIcebergReader,
    SparkReader,
    load_metadata,
    open_reader,
)
from support.peers import ours
from support.peers.columns import COLUMNS
from support.peers.environments import PeerUnavailableError
from support.peers.kinds import Record, Step, alter, compact, delete, write
from support.peers.protocol import PeerError

from paimon_orch import Catalog
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.table.table import Table

TABLE = "db.t"
VERSIONS = (2, 3)
TableStep = Step | Callable[[Table], object]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table, and the Paimon snapshot whose rows each Iceberg snapshot has."""

    columns: str
    steps: Sequence[TableStep]
    visible: Sequence[int | None] = ()
    """By Iceberg snapshot, from 1; None if it has no rows. The default is each its own."""
    is_read_optimized: bool = False
    """Whether each Iceberg snapshot has the rows of the system table `ro` of its own snapshot."""
    primary_key: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    versions: Sequence[int] = VERSIONS
    readers: Sequence[str] = READERS


def create(warehouse: Path, case: Case, version: int) -> Table:
    """Create the table of a case and run its steps."""
    options = {
        "bucket": "-1" if not case.primary_key else "2",
        "metadata.iceberg.storage": "table-location",
        "metadata.iceberg.format-version": str(version),
    }
    options |= {
        key: text.replace("<warehouse>", str(warehouse)) for key, text in case.options.items()
    }
    Catalog(str(warehouse)).create_table(
        TABLE,
        case.columns,
        primary_key=case.primary_key,
        partition_by=case.partition_by,
        options=options,
    )
    for step in case.steps:
        if callable(step):
            step(open_table(warehouse))
        else:
            ours.run_step(warehouse, step)
    return open_table(warehouse)


def open_table(warehouse: Path) -> Table:
    return Catalog(str(warehouse)).table(TABLE)


def directory(table: Table) -> Path:
    return Path(table.paths.root)


def read_paimon(
    table: Table, snapshot_id: int | None = None, *, is_read_optimized: bool = False
) -> list[Record]:
    opened = table.system("ro") if is_read_optimized else table
    rows = opened.scan(snapshot_id=snapshot_id).to_arrow()
    return [dict(zip(rows.column_names, row, strict=True)) for row in canonical_rows(rows)]


def assert_same_rows(expected: Sequence[Record], actual: Sequence[Record]) -> None:
    names = list(expected[0]) if expected else []
    assert_rows_equal(records_to_rows(expected, names), records_to_rows(actual, names))


def list_snapshots(table: Table) -> list[int]:
    return [item["snapshot-id"] for item in load_metadata(directory(table))["snapshots"]]


def read_expected(table: Table, case: Case) -> list[list[Record]]:
    """Return the rows of each Iceberg snapshot, from 1."""
    latest = table.snapshot()
    assert latest is not None
    visible = case.visible or range(1, latest.id + 1)
    assert len(visible) == latest.id
    expected = [
        []
        if source is None
        else read_paimon(table, source, is_read_optimized=case.is_read_optimized)
        for source in visible
    ]
    assert any(expected)
    return expected


@pytest.fixture(scope="module")
def reader_named() -> Iterator[Callable[[str], IcebergReader]]:
    """Return a function from names to readers; each reader is started once."""
    running: dict[str, IcebergReader] = {}
    missing: dict[str, str] = {}

    def named(name: str) -> IcebergReader:
        if name not in running and name not in missing:
            try:
                running[name] = open_reader(name)
            except PeerUnavailableError as error:
                missing[name] = str(error)
        if name in missing:
            pytest.skip(missing[name])
        return running[name]

    yield named
    for reader in running.values():
        reader.close()


@pytest.fixture
def reader(
    request: pytest.FixtureRequest, reader_named: Callable[[str], IcebergReader]
) -> IcebergReader:
    """The reader whose name is the parameter of the test."""
    return reader_named(request.param)


@pytest.fixture(scope="module")
def table_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Table]:
    """Return a function that returns the table of a case, by its name and format version."""

    @functools.cache
    def created(name: str, version: int) -> Table:
        return create(tmp_path_factory.mktemp("warehouse"), CASES[name], version)

    return created


every_reader = pytest.mark.parametrize("reader", [PYICEBERG, DUCKDB, SPARK], indirect=True)


# --- Tables whose snapshots are all compared

APPEND_COLUMNS = "k BIGINT NOT NULL, p STRING, s STRING, d DOUBLE"
PARTITIONS = ("eu", "a b/c=d%", "", "ä", None)


def numbered(numbers: range, text: str) -> list[Record]:
    return [
        {
            "k": n,
            "p": PARTITIONS[n % len(PARTITIONS)],
            "s": None if n % 7 == 0 else f"{text} {n} é",
            "d": n / 4,
        }
        for n in numbers
    ]


def keyed(numbers: range, text: str) -> list[Record]:
    return [record | {"p": record["p"] or "none"} for record in numbered(numbers, text)]


OLD_ROWS: list[Record] = [
    {"k": 1, "gone": 1, "s": "a", "n": 7, "f": 0.5, "d": "1.25", "again": "x", "r": {"x": 1}},
    {"k": 2, "gone": None, "s": None, "n": None, "f": None, "d": None, "again": None, "r": None},
]
PRIMARY_KEY_STEPS = (
    write(keyed(range(400), "a")),
    write(keyed(range(10, 30), "b")),
    compact(),
    delete(keyed(range(5), "a")),
    write(keyed(range(25, 35), "c")),
    compact(full=False),  # to a level between
    compact(),
    write(keyed(range(3), "d")),
)

VECTOR_STEPS = (
    write(keyed(range(400), "a")),
    compact(),
    write(keyed(range(10, 30), "b")),
    compact(full=False),  # deletes rows of the top level by deletion vectors
    delete(keyed(range(5), "a")),
    write(keyed(range(390, 410), "c")),
    compact(full=False),  # to the top level
    write(keyed(range(3), "d")),
)
WIDENED: list[tuple[str, Any, str, Any]] = [
    ("TINYINT", -128, "SMALLINT", 2**15 - 1),
    ("TINYINT", -128, "INT", 2**31 - 1),
    ("SMALLINT", -(2**15), "INT", 2**31 - 1),
    ("INT", -(2**31), "BIGINT", 2**63 - 1),
    ("FLOAT", 0.1, "DOUBLE", 1e300),
    ("DECIMAL(8, 2)", "-999999.99", "DECIMAL(12, 2)", "9" * 10 + ".99"),
    ("DECIMAL(12, 2)", "-999999.99", "DECIMAL(30, 2)", "9" * 28 + ".99"),
    ("CHAR(3)", "abc", "VARCHAR(5)", "abcde"),
    ("CHAR(3)", "äöü", "STRING", "ä" * 9),
    ("VARCHAR(3)", "abc", "STRING", "abcde"),
    ("BINARY(3)", "00ff00", "VARBINARY(5)", "ff" * 5),
    ("VARBINARY(3)", "00", "BYTES", "ff" * 5),
    ("TIMESTAMP(3)", "2020-06-01T00:00:00.001000000", "TIMESTAMP(6)", "2020-06-01T00:00:00.000001000"),
]  # fmt: skip


def widened_case(readers: Sequence[str], **options: str) -> Case:
    old, new = (
        {f"c{number}": row[position] for number, row in enumerate(WIDENED)} for position in (1, 3)
    )
    return Case(
        columns=", ".join(f"c{number} {row[0]}" for number, row in enumerate(WIDENED)),
        options={key.replace("_", "."): text for key, text in options.items()},
        steps=(
            write([old]),
            alter(*(("type", f"c{number}", row[2]) for number, row in enumerate(WIDENED))),
            write([new]),
        ),
        versions=(2,),
        readers=readers,
    )


def file_format_case(name: str) -> Case:
    return Case(
        columns=APPEND_COLUMNS,
        primary_key=["k"],
        options={"file.format": name},
        steps=(write(keyed(range(20), "a")), compact()),
        visible=(None, 2),
        versions=(2,),
        readers=(SPARK,),
    )


CASES = {
    "append": Case(
        columns=APPEND_COLUMNS,
        steps=(
            write(numbered(range(10), "a")),
            write(numbered(range(10, 20), "b")),
            {"do": "overwrite", "rows": numbered(range(5), "new")},
            write(numbered(range(20, 30), "c")),
        ),
        readers=READERS,
    ),
    "partitions overwritten and dropped": Case(
        columns=APPEND_COLUMNS,
        partition_by=["p"],
        steps=(
            write(numbered(range(10), "a")),
            write(numbered(range(10, 20), "b")),
            {"do": "overwrite", "rows": numbered(range(1), "new")},
            lambda table: table.drop_partitions([{"p": "ä"}]),
            lambda table: table.drop_partitions([{"p": None}]),
            write(numbered(range(20, 30), "c")),
        ),
    ),
    "append, compacted": Case(
        columns=APPEND_COLUMNS,
        steps=(
            *(write(numbered(range(n, n + 4), "a")) for n in range(0, 12, 4)),
            compact(),
            compact_manifests,
            write(numbered(range(12, 16), "b")),
        ),
        versions=(3,),
    ),
    "schema changed": Case(
        columns=(
            "k BIGINT NOT NULL, gone INT, s STRING, n INT, f FLOAT, d DECIMAL(9, 2), "
            "again STRING, r ROW<x INT>"
        ),
        steps=(
            write(OLD_ROWS),
            alter(("add", "more", "DOUBLE"), ("rename", "s", "title")),
            write([{"k": 3, "gone": 3, "title": "c", "n": 9, "more": 0.5}]),
            alter(
                ("drop", "gone"),
                ("type", "n", "BIGINT"),
                ("type", "f", "DOUBLE"),
                ("type", "d", "DECIMAL(20, 2)"),
                ("drop", "again"),
                ("add", ("r", "y"), "STRING"),
            ),
            alter(("add", "again", "INT")),
            write([{"k": 4, "n": 2**40, "f": 1e300, "d": "9" * 18 + ".01", "again": 1}]),
            write([{"k": 5, "title": "e", "r": {"x": 2, "y": "z"}}]),
        ),
    ),
    "fixed buckets, files in other directories": Case(
        columns=APPEND_COLUMNS,
        partition_by=["p"],
        options={
            "bucket": "2",
            "bucket-key": "k",
            "data-file.external-paths": "file://<warehouse>/one,file://<warehouse>/two",
            "data-file.external-paths.strategy": "round-robin",
        },
        steps=(
            write(numbered(range(20), "a")),
            {"do": "overwrite", "rows": numbered(range(0, 10, 5), "new")},
        ),
        versions=(2,),
    ),
    "unusual names": Case(
        columns="`k-1` BIGINT NOT NULL, `Über` STRING, `a b` INT, `a.b` INT, `1st` STRING",
        partition_by=["Über", "1st", "a b"],
        steps=[
            write([{"k-1": n, "Über": "ü", "a b": n % 2, "a.b": n, "1st": "x"} for n in part])
            for part in (range(3), range(3, 5))
        ],
        versions=(2,),
        # DuckDB 1.5 aborts if the name of a partition column is no ASCII identifier.
        readers=(PYICEBERG, SPARK),
    ),
    # Only Spark reads these formats without field ids.
    "ORC files": file_format_case("orc"),
    "Avro files": file_format_case("avro"),
    "types widened": widened_case(READERS),
    "types widened, ORC files": widened_case([SPARK], file_format="orc"),
    "types widened, Avro files": widened_case([SPARK], file_format="avro"),
    "row tracking": Case(
        columns=APPEND_COLUMNS,
        options={"row-tracking.enabled": "true"},
        steps=[write(numbered(range(n, n + 5), "a")) for n in (0, 5)],
        versions=(3,),
    ),
    "first-row": Case(
        columns=APPEND_COLUMNS,
        primary_key=["k"],
        options={"merge-engine": "first-row"},
        steps=(
            write(keyed(range(10), "a")),
            compact(),
            write(keyed(range(5, 15), "b")),
            compact(),
        ),
        visible=(None, 2, 2, 4),
        versions=(2,),
    ),
    "primary key": Case(
        columns=APPEND_COLUMNS,
        primary_key=["k"],
        steps=PRIMARY_KEY_STEPS,
        visible=(None, None, 3, 3, 3, 3, 7, 7),
        options={"num-sorted-run.compaction-trigger": "2"},
    ),
    "primary key, deletion vectors that are not published": Case(
        columns=APPEND_COLUMNS,
        primary_key=["k"],
        options={"deletion-vectors.enabled": "true", "num-sorted-run.compaction-trigger": "3"},
        steps=VECTOR_STEPS,
        visible=(None, 2, 2, 2, 2, 2, 7, 7),
        versions=(2,),
    ),
    "primary key, partitioned": Case(
        columns=APPEND_COLUMNS,
        primary_key=["k", "p"],
        partition_by=["p"],
        steps=PRIMARY_KEY_STEPS,
        is_read_optimized=True,
        options={"num-sorted-run.compaction-trigger": "2"},
        versions=(2,),
    ),
}
COMPARED = [
    pytest.param(reader, name, version, id=f"{name}, version {version}, {reader}")
    for name, case in CASES.items()
    for version in case.versions
    for reader in case.readers
]


@pytest.mark.parametrize(("reader", "name", "version"), COMPARED, indirect=["reader"])
def test_readers_find_the_rows_of_each_snapshot(
    reader: IcebergReader, table_of: Callable[[str, int], Table], name: str, version: int
) -> None:
    table = table_of(name, version)
    expected = read_expected(table, CASES[name])
    assert list_snapshots(table) == list(range(1, len(expected) + 1))
    assert_same_rows(expected[-1], reader.read_rows(directory(table)))
    for snapshot_id, rows in enumerate(expected, 1):
        assert_same_rows(rows, reader.read_rows(directory(table), snapshot_id))


# --- Types and filters

REFUSED = {"seconds", "nanos", "recent_nanos", "array_of_nanos"}
TIMES = {"time", "array_of_times"}
TYPES = {name: kind for name, (kind, _) in COLUMNS.items() if name not in REFUSED | TIMES}


def records_of_columns(names: Sequence[str]) -> list[Record]:
    """Return a record with the first values of the columns, one with the second, and so on."""
    return [{"id": n} | {name: COLUMNS[name][1][n] for name in names} for n in range(3)]


def create_with_columns(
    warehouse: Path, names: Sequence[str], version: int, **options: str
) -> Table:
    """Create a table with a file of each record, and a file of all."""
    records = records_of_columns(names)
    columns = ", ".join(f"{name} {COLUMNS[name][0]}" for name in names)
    return create(
        warehouse,
        Case(
            columns=f"id INT NOT NULL, {columns}",
            options={key.replace("_", "."): text for key, text in options.items()},
            steps=(
                *(write([record]) for record in records),
                write([record | {"id": record["id"] + 10} for record in records]),
            ),
        ),
        version,
    )


def assert_columns_found(names: Sequence[str], rows: list[Record]) -> None:
    expected = [
        record | {"id": record["id"] + base}
        for base in (0, 10)
        for record in records_of_columns(names)
    ]
    types = ["INT", *(COLUMNS[name][0] for name in names)]
    header = ["id", *names]
    assert_rows_equal(records_to_rows(expected, header), records_to_rows(rows, header), types)


@pytest.fixture(scope="module")
def table_of_types(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Table]:
    """Return a function that returns the table with all types, by format version."""

    @functools.cache
    def created(version: int) -> Table:
        return create_with_columns(tmp_path_factory.mktemp("types"), list(TYPES), version)

    return created


@pytest.mark.parametrize("version", VERSIONS)
@every_reader
def test_readers_find_values_of_all_types(
    reader: IcebergReader, version: int, table_of_types: Callable[[int], Table]
) -> None:
    path, names = directory(table_of_types(version)), list(TYPES)
    if isinstance(reader, SparkReader):
        # PySpark cannot return null rows with fields that are NOT NULL.
        names.remove("row_not_null")
        assert_columns_found(names, reader.read_columns(path, ["id", *names]))
        return
    rows = reader.read_rows(path)
    if isinstance(reader, PyIcebergReader):
        # pyiceberg 0.12 returns null maps of rows as empty ones.
        names.remove("map_of_rows")
        rows = [{name: row[name] for name in ("id", *names)} for row in rows]
    assert_columns_found(names, rows)


# The types that we do not write in ORC files, and those that Iceberg cannot read in Avro files.
LACKING = {
    "orc": {"millis", "micros", "instant", "exact_instant"},
    "avro": {"instant", "exact_instant", "recent_instant", "array_of_instants"},
}


@pytest.mark.parametrize("file_format", LACKING)
def test_spark_finds_values_of_all_types_in_other_formats(
    reader_named: Callable[[str], IcebergReader], file_format: str, tmp_path: Path
) -> None:
    reader = reader_named(SPARK)
    assert isinstance(reader, SparkReader)
    names = [name for name in TYPES if name not in {*LACKING[file_format], "row_not_null"}]
    table = create_with_columns(tmp_path, names, 2, file_format=file_format)
    assert_columns_found(names, reader.read_columns(directory(table), ["id", *names]))


def finds_nan(reader: IcebergReader) -> bool:
    """Return whether a reader considers that bounds of files and partitions exclude NaN."""
    return not isinstance(reader, DuckDbReader)


def conditions_on(columns: Mapping[str, tuple[str, list[Any]]]) -> list[Condition]:
    """Return a condition for each value of each column that is not nested."""
    return [
        Condition(column=name, operator=IS_NULL if value is None else "=", value=value, type=kind)
        for name, (kind, values) in columns.items()
        if not kind.startswith(("ARRAY", "MAP", "ROW", "MULTISET"))
        for value in values
    ]


@every_reader
def test_filters_find_values_of_all_types(
    reader: IcebergReader, table_of_types: Callable[[int], Table]
) -> None:
    conditions = conditions_on({name: COLUMNS[name] for name in TYPES})
    conditions = [item for item in conditions if item.value != "NaN" or finds_nan(reader)]
    found = reader.find_keys(directory(table_of_types(2)), "id", conditions)
    for condition, keys in zip(conditions, found, strict=True):
        position = COLUMNS[condition.column][1].index(condition.value)
        assert sorted(keys) == [position, position + 10], condition


def test_duckdb_reads_times(reader_named: Callable[[str], IcebergReader], tmp_path: Path) -> None:
    reader = reader_named(DUCKDB)
    table = create_with_columns(tmp_path, sorted(TIMES), 2)
    assert_columns_found(sorted(TIMES), reader.read_rows(directory(table)))


BOUND_VALUES: dict[str, tuple[str, list[list[Any]]]] = {
    # The values of each file. Bounds are truncated to 16 characters.
    "long_text": (
        "STRING",
        [["x" * 16 + "a"], ["x" * 16 + "b", "x" * 17], ["x" * 15], [None, "x" * 40]],
    ),
    "unicode": (
        "STRING",
        [
            ["é" * 20, "\U0001f600" * 20],
            ["\U0010ffff" * 17],
            ["\uffff" * 17],
            ["\U00010000", "\uffff", ""],
        ],
    ),
    "number": ("DOUBLE", [["NaN", 1.5, 2.5], ["NaN"], [-0.0], [0.0, "Infinity"]]),
    "single": ("FLOAT", [[0.0], [-3e38, "NaN", 0.25], [-0.0, 3.5], [None]]),
    "amount": ("DECIMAL(20, 3)", [["-0.001"], ["0.000", "99999999999999999.999"], ["127.999"], ["128.000", "-128.001"]]),
    "data": ("BYTES", [["ff" * 16], ["ff" * 17, "ff" * 20], ["", "00"], ["fe" + "ff" * 30]]),
}  # fmt: skip


def bound_files() -> list[list[Record]]:
    """Return the records of each file; their key is file * 10 + position."""
    files = []
    for number in range(4):
        columns = {name: values[number] for name, (_, values) in BOUND_VALUES.items()}
        files.append(
            [
                {
                    "id": number * 10 + position,
                    **{
                        name: values[position] if position < len(values) else None
                        for name, values in columns.items()
                    },
                }
                for position in range(3)
            ]
        )
    return files


def order_of(value: Any, kind: str) -> Any:
    """Return an object with the order of the column's values."""
    if kind in ("DOUBLE", "FLOAT"):
        return float(value)
    if kind.startswith("DECIMAL"):
        return Decimal(value)
    return bytes.fromhex(value) if kind == "BYTES" else value


def matches(value: Any, condition: Condition) -> bool:
    if value is None:
        return False
    if "NaN" in (value, condition.value):
        return bool(value == condition.value and condition.operator == "=")
    left, right = (order_of(item, condition.type) for item in (value, condition.value))
    if condition.operator == "=":
        return bool(left == right)
    return bool(left < right if condition.operator == "<" else left > right)


@every_reader
def test_column_bounds_hide_no_rows(reader: IcebergReader, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in BOUND_VALUES.items())
    files = bound_files()
    case = Case(columns=f"id INT NOT NULL, {columns}", steps=[write(rows) for rows in files])
    table = create(tmp_path, case, 2)
    records = [record for rows in files for record in rows]
    conditions = [
        Condition(column=name, operator=operator, value=value, type=kind)
        for name, (kind, values) in BOUND_VALUES.items()
        for value in dict.fromkeys(value for file in values for value in file)
        for operator in "=<>"
        if value is not None and (operator == "=" or value != "NaN")
    ]
    conditions = [item for item in conditions if item.value != "NaN" or finds_nan(reader)]
    found = reader.find_keys(directory(table), "id", conditions)
    for condition, keys in zip(conditions, found, strict=True):
        # SQL orders NaN above all numbers, pyiceberg does not.
        compared = [
            record
            for record in records
            if condition.operator == "=" or record[condition.column] != "NaN"
        ]
        expected = [row["id"] for row in compared if matches(row[condition.column], condition)]
        assert sorted(set(keys) & {row["id"] for row in compared}) == expected, condition


PARTITION_TYPES = (
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "char",
    "varchar",
    "string",
    "date",
    "millis",
    "micros",
)


def create_with_partitions(warehouse: Path, names: Sequence[str]) -> Table:
    records = records_of_columns(names)
    columns = ", ".join(f"{name} {COLUMNS[name][0]}" for name in names)
    # Each commit writes one manifest, so one of them has only nulls.
    steps = [write([record]) for record in records]
    case = Case(columns=f"id INT NOT NULL, {columns}", partition_by=names, steps=steps)
    return create(warehouse, case, 2)


def assert_partitions_found(reader: IcebergReader, table: Table, names: Sequence[str]) -> None:
    types = ["INT", *(COLUMNS[name][0] for name in names)]
    header = ["id", *names]
    expected = records_to_rows(records_of_columns(names), header)
    actual = records_to_rows(reader.read_rows(directory(table)), header)
    assert_rows_equal(expected, actual, types)
    # The compiled Avro decoder of pyiceberg 0.12 rounds 64-bit partition values to 32 bits.
    rounded = {"double"} if isinstance(reader, PyIcebergReader) else set()
    conditions = conditions_on({name: COLUMNS[name] for name in names if name not in rounded})
    conditions = [item for item in conditions if item.value != "NaN" or finds_nan(reader)]
    found = reader.find_keys(directory(table), "id", conditions)
    for condition, keys in zip(conditions, found, strict=True):
        assert keys == [COLUMNS[condition.column][1].index(condition.value)], condition


@every_reader
def test_readers_find_partitions_of_all_types(reader: IcebergReader, tmp_path: Path) -> None:
    table = create_with_partitions(tmp_path, PARTITION_TYPES)
    assert_partitions_found(reader, table, PARTITION_TYPES)


# --- Options, tags and manifests


def small_case(**options: str) -> Case:
    return Case(
        columns=APPEND_COLUMNS,
        steps=[write(numbered(range(n, n + 5), "a")) for n in range(0, 20, 5)],
        options={name.replace("__", "."): text for name, text in options.items()},
    )


@every_reader
def test_readers_find_tags_whose_snapshots_would_expire(
    reader: IcebergReader, tmp_path: Path
) -> None:
    case = small_case()
    steps = list(case.steps)
    steps[1:1] = [{"do": "tag", "name": "first"}, {"do": "tag", "name": "also first"}]
    retained = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
    table = create(tmp_path, replace(case, steps=steps, options=retained), 2)
    table.tags.create("last")
    table.stores.iceberg.publish()
    assert list_snapshots(table) == [1, 3, 4]
    for tag, snapshot_id in (("first", 1), ("also first", 1), ("last", 4)):
        expected = read_paimon(table, snapshot_id)
        assert_same_rows(expected, reader.read_rows(directory(table), tag=tag))


@every_reader
def test_readers_find_rows_after_manifests_were_compacted(
    reader: IcebergReader, tmp_path: Path
) -> None:
    steps: list[TableStep] = [write(numbered(range(n, n + 2), "a")) for n in range(0, 32, 2)]
    steps.insert(4, lambda table: table.drop_partitions([{"p": "eu"}]))
    options = {"metadata.iceberg.compaction.max.file-num": "10"}
    case = Case(columns=APPEND_COLUMNS, partition_by=["p"], steps=steps, options=options)
    table = create(tmp_path, case, 2)
    opened = PyIcebergReader().open(directory(table))
    counts = [len(snapshot.manifests(opened.io)) for snapshot in opened.metadata.snapshots]
    # Appends add a manifest each, and one of them also merges all.
    [merged] = [number for number in range(6, 18) if counts[number - 1] < counts[number - 2]]
    for snapshot_id in (merged - 1, merged, len(counts)):
        expected = read_paimon(table, snapshot_id)
        assert_same_rows(expected, reader.read_rows(directory(table), snapshot_id))


CODECS = {
    "null": "null",
    "deflate": "deflate",
    "snappy": "snappy",
    "bzip2": "bzip2",
    "xz": "xz",
    "zstandard": "zstandard",
    "zstd": "zstandard",
}
UNREADABLE_CODECS = {
    (PYICEBERG, "xz"),
    *((DUCKDB, codec) for codec in ("bzip2", "xz", "zstandard", "zstd")),
}


@pytest.mark.parametrize(
    ("reader", "codec"),
    [
        (reader, codec)
        for reader in (PYICEBERG, DUCKDB, SPARK)
        for codec in CODECS
        if (reader, codec) not in UNREADABLE_CODECS
    ],
    indirect=["reader"],
)
def test_readers_find_rows_with_each_compression_of_manifests(
    reader: IcebergReader, codec: str, tmp_path: Path
) -> None:
    table = create(tmp_path, small_case(**{"metadata.iceberg.manifest-compression": codec}), 2)
    files = list((directory(table) / "metadata").glob("*.avro"))
    assert files
    for path in files:
        with path.open("rb") as file:
            assert fastavro.reader(file).codec == CODECS[codec]
    assert_same_rows(read_paimon(table), reader.read_rows(directory(table)))


@every_reader
def test_readers_find_rows_with_lists_of_the_old_names(
    reader: IcebergReader, tmp_path: Path
) -> None:
    table = create(tmp_path, small_case(**{"metadata.iceberg.manifest-legacy-version": "true"}), 2)
    [path, *_] = (directory(table) / "metadata").glob("snap-*.avro")
    with path.open("rb") as file:
        manifest = next(iter(fastavro.reader(file)))
    assert isinstance(manifest, dict)
    assert "added_data_files_count" in manifest
    assert_same_rows(read_paimon(table), reader.read_rows(directory(table)))


@every_reader
def test_readers_open_the_previous_versions_that_are_kept(
    reader: IcebergReader, tmp_path: Path
) -> None:
    table = create(tmp_path, small_case(**{"metadata.iceberg.previous-versions-max": "2"}), 2)
    metadata = directory(table) / "metadata"
    names = sorted(path.name for path in metadata.glob("v*.json"))
    assert names == ["v2.metadata.json", "v3.metadata.json", "v4.metadata.json"]
    for version in (2, 3, 4):
        rows = reader.read_rows(metadata / f"v{version}.metadata.json")
        assert_same_rows(read_paimon(table, version), rows)


@pytest.mark.parametrize("version", VERSIONS)
@every_reader
def test_readers_open_tables_of_a_hadoop_catalog(
    reader: IcebergReader, version: int, tmp_path: Path
) -> None:
    case = small_case(**{"metadata.iceberg.storage": "hadoop-catalog"})
    warehouse = tmp_path / "a b%20ü"
    table = create(warehouse, case, version)
    expected = read_paimon(table)
    assert_same_rows(expected, reader.read_rows(warehouse / "iceberg" / "db" / "t"))
    if isinstance(reader, SparkReader):
        location = str(warehouse / "iceberg")
        rows = reader.read_from_catalog(TABLE, type="hadoop", warehouse=location)
        assert_same_rows(expected, rows)


# --- Deletion vectors

VECTORS = {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"}
VECTOR_CASES = {
    "append": Case(
        columns=APPEND_COLUMNS,
        options=VECTORS,
        steps=(
            write(numbered(range(40), "a")),
            write(numbered(range(40, 60), "b")),
            delete(numbered(range(3, 50, 7), "a")),
            delete(numbered(range(4, 30, 7), "a")),
            write(numbered(range(60, 70), "c")),
            compact(),
        ),
    ),
    "append, partitioned": Case(
        columns=APPEND_COLUMNS,
        partition_by=["p"],
        options=VECTORS,
        steps=(
            write(numbered(range(40), "a")),
            delete(numbered(range(0, 40, 3), "a")),
            lambda table: table.drop_partitions([{"p": "eu"}]),
            write(numbered(range(60, 70), "c")),
            delete(numbered(range(1, 70, 3), "a")),
        ),
    ),
    "files in other directories": Case(
        columns=APPEND_COLUMNS,
        options=VECTORS
        | {
            "data-file.external-paths": "file://<warehouse>/one",
            "data-file.external-paths.strategy": "round-robin",
        },
        steps=(write(numbered(range(20), "a")), delete(numbered(range(3, 9), "a"))),
    ),
    "primary key": Case(
        columns=APPEND_COLUMNS,
        primary_key=["k"],
        options=VECTORS | {"num-sorted-run.compaction-trigger": "2"},
        steps=VECTOR_STEPS,
    ),
}


@pytest.mark.parametrize("name", VECTOR_CASES)
def test_spark_applies_deletion_vectors(
    reader_named: Callable[[str], IcebergReader], name: str, tmp_path: Path
) -> None:
    reader, case = reader_named(SPARK), VECTOR_CASES[name]
    assert isinstance(reader, SparkReader)
    table = create(tmp_path, case, 3)
    expected = read_expected(table, case)
    summaries = [item["summary"] for item in load_metadata(directory(table))["snapshots"]]
    assert any(summary["total-position-deletes"] != "0" for summary in summaries)
    for snapshot_id, rows in enumerate(expected, 1):
        assert_same_rows(rows, reader.read_rows(directory(table), snapshot_id))
    # Files of Paimon have columns with the field ids of Iceberg's `_file` and `_pos`.
    places = reader.read_columns(directory(table), ["_file", "_pos", "_row_id"])
    assert all(row["_file"].endswith(".parquet") for row in places)
    assert len({(row["_file"], row["_pos"]) for row in places}) == len(expected[-1])
    assert len({row["_row_id"] for row in places} - {None}) == len(expected[-1])


@pytest.mark.parametrize(
    ("reader", "reason"), [(PYICEBERG, "PFA1"), (DUCKDB, "uffin")], indirect=["reader"]
)
def test_other_readers_refuse_deletion_vectors_in_index_files(
    reader: IcebergReader, reason: str, tmp_path: Path
) -> None:
    # They parse the whole index file, which is no Puffin file; Spark reads only the vector.
    table = create(tmp_path, VECTOR_CASES["append"], 3)
    assert_same_rows(read_paimon(table, 2), reader.read_rows(directory(table), 2))
    with pytest.raises((ValueError, PeerError), match=reason):
        reader.read_rows(directory(table), 3)


# --- Row lineage


def test_rows_keep_their_row_ids_until_they_are_rewritten(
    reader_named: Callable[[str], IcebergReader], tmp_path: Path
) -> None:
    reader = reader_named(SPARK)
    assert isinstance(reader, SparkReader)
    steps: list[TableStep] = [write(numbered(range(n, n + 10), "a")) for n in (0, 10, 20)]
    steps += [
        lambda table: table.drop_partitions([{"p": "eu"}]),
        write(numbered(range(30, 35), "b")),
    ]
    options = {
        "metadata.iceberg.compaction.min.file-num": "2",
        "metadata.iceberg.compaction.max.file-num": "3",
    }
    case = Case(columns=APPEND_COLUMNS, partition_by=["p"], steps=steps, options=options)
    table = create(tmp_path, case, 3)
    known: dict[int, int] = {}
    for snapshot_id in range(1, 6):
        rows = reader.read_columns(directory(table), ["k", "_row_id"], str(snapshot_id))
        ids = {row["k"]: row["_row_id"] for row in rows}
        assert None not in ids.values()
        assert len(set(ids.values())) == len(ids) == len(rows)
        assert {k: ids[k] for k in ids.keys() & known.keys()} == {
            k: known[k] for k in ids.keys() & known.keys()
        }
        assert not {ids[k] for k in ids.keys() - known.keys()} & set(known.values())
        known |= ids
