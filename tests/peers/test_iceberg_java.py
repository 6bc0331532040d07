"""Iceberg metadata of Java Paimon 2.0 and ours: field by field, and in turns on one table."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.golden import (
    GOLDEN,
    assert_rows_equal,
    copy_warehouse,
    golden_tables,
    records_to_rows,
    table_name,
)
from support.peers import ours
from support.peers.iceberg_comparison import compare_published
from support.peers.kinds import Kind, Record, Step, alter, compact, delete, write
from support.peers.peers import Peer, PeerError
from support.peers.published_iceberg import DELETED, PublishedTable

from paimon_orch import Catalog
from paimon_orch.table.table import Table

ICEBERG = {"metadata.iceberg.storage": "table-location"}
VERSION_3 = {"metadata.iceberg.format-version": "3"}
KEPT = {"metadata.iceberg.delete-after-commit.enabled": "false"}
VECTORS = {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"}
UNPARTITIONED = "k INT NOT NULL, a INT, b STRING"


def records(numbers: range, text: str, *partitions: Any) -> list[Record]:
    """Return records with columns k, a, b, and with column p if there are partitions."""
    return [
        {
            "k": n,
            "a": None if n % 5 == 0 else 100 - n,
            "b": None if n % 7 == 0 else f"{text} {n} é" * (1 + n % 3),
            **({"p": partitions[n % len(partitions)]} if partitions else {}),
        }
        for n in numbers
    ]


def overwrite(rows: Sequence[Record]) -> Step:
    return {"do": "overwrite", "rows": rows}


def tag(name: str) -> Step:
    return {"do": "tag", "name": name}


def published(warehouse: Path, name: str = "db.t") -> PublishedTable:
    return PublishedTable(Path(Catalog(str(warehouse)).table(name).paths.root, "metadata"))


def create_by_java(java20: Peer, warehouse: Path, kind: Kind) -> None:
    spec = ours.table_spec(kind)
    java20.run("create", warehouse, spec=spec)


# --- Field by field


def kind(name: str, columns: str, *steps: Step, **more: Any) -> Kind:
    options = {"bucket": "2" if "primary_key" in more else "-1"} | ICEBERG | KEPT
    options |= more.pop("options", {})
    return Kind(name=name, columns=columns, steps=steps, options=options, **more)


_TYPES: dict[str, list[Any]] = {
    "i8 TINYINT": [1, -128, None],
    "i16 SMALLINT": [None, 300, -32768],
    "i32 INT": [2**31 - 1, None, -(2**31)],
    "i64 BIGINT": [2**63 - 1, -(2**63), None],
    "f32 FLOAT": [1.5, -2.25, None],
    "f64 DOUBLE": [1e300, None, -0.5],
    "flag BOOLEAN": [True, False, None],
    "d1 DECIMAL(9, 2)": ["1.00", "-1234567.89", None],
    "d2 DECIMAL(38, 10)": ["0.0000000001", "-9999999999999999999999999999.9999999999", None],
    "day DATE": ["1969-12-31", "2024-02-29", None],
    "clock TIME(3)": ["00:00:00.000", "23:59:59.999", None],
    "ts3 TIMESTAMP(3)": ["1969-12-31T23:59:59.999000000", None, "2024-02-29T00:00:00.001000000"],
    "ts6 TIMESTAMP(6)": ["1969-12-31T23:59:59.999999000", None, "2024-02-29T00:00:00.000001000"],
    "ltz TIMESTAMP(6) WITH LOCAL TIME ZONE": [None, "2024-02-29T12:00:00.000001000Z", None],
    "c CHAR(5)": ["abc", "é", None],
    "v VARCHAR(30)": ["", "a long text that exceeds sixteen"[:30], None],
    "s STRING": ["ü", "𝄞 a long text that exceeds sixteen bytes", None],
    "by BYTES": ["00ff", "", None],
    "bin BINARY(3)": ["000102", None, "ffffff"],
    "arr ARRAY<INT>": [[1, None], [], None],
    "m MAP<STRING, ARRAY<INT>>": [[["a", [1]]], [], None],
    "r ROW<x INT NOT NULL, y ROW<z STRING>>": [{"x": 1, "y": {"z": "a"}}, None, {"x": 2, "y": None}],
    "nothing STRING": [None, None, None],
}  # fmt: skip
_TYPED_ROWS = [
    {column.split()[0]: values[n] for column, values in _TYPES.items()} for n in range(3)
]
_PARTITIONS: dict[str, list[Any]] = {
    "BOOLEAN": [True, False, None],
    "TINYINT": [-5, None, 7],
    "INT": [5, None, -5],
    "BIGINT": [2**40, None, -1],
    "FLOAT": [1.5, None, -0.5],
    "DOUBLE": [1e10, -2.25, None],
    "DATE": ["2024-02-29", None, "1969-12-31"],
    "TIMESTAMP(6)": ["2024-02-29T01:02:03.000004000", None, "1969-12-31T23:59:59.999999000"],
    "TIMESTAMP(3)": ["2024-02-29T01:02:03.004000000", None, "1969-12-31T23:59:59.999000000"],
    "STRING": ["a b/c=d%", None, "zürich 日本"],
    "CHAR(3)": ["abc", None, "ü"],
}
_NAMES = ("eu", None, "zürich/日本 =%", "us")
_PARTITIONED = [
    write(records(range(24), "a", *_NAMES)),
    write(records(range(24, 30), "b", "eu", "new")),
    overwrite(records(range(30, 33), "c", "eu")),
    write(records(range(33, 45), "d", *_NAMES)),
    compact(),
    overwrite(records(range(50, 53), "e", None, "us")),
]
_KEYED = [
    write(records(range(40), "a")),
    compact(),
    write(records(range(20, 60), "b")),
    write(records(range(55, 65), "c")),
    compact(full=False),
    delete(records(range(5), "a")),
    compact(),
    write(records(range(3), "d")),
]
_KEYED_PARTITIONS: list[Step] = [
    {**step, "rows": [{**row, "p": f"p{row['k'] % 3}"} for row in step["rows"]]}
    if "rows" in step
    else step
    for step in _KEYED
]
_APPENDED = records(range(40), "a")
_SMALL = [write(records(range(n, n + 3), "x")) for n in range(0, 30, 3)]

KINDS = [
    kind("types", ", ".join(_TYPES), write(_TYPED_ROWS), write(_TYPED_ROWS[:1]), write(_TYPED_ROWS[1:])),
    *(
        kind(
            f"partitioned by {data_type}",
            f"k INT, p {data_type}",
            write([{"k": n, "p": value} for n, value in enumerate(values)]),
            write([{"k": n, "p": value} for n, value in enumerate(values[:2])]),
            overwrite([{"k": 9, "p": values[0]}]),
            partition_by=["p"],
        )
        for data_type, values in _PARTITIONS.items()
    ),
    kind("append, partitioned", f"{UNPARTITIONED}, p STRING", *_PARTITIONED, partition_by=["p"], options={"compaction.min.file-num": "2"}),
    kind("append, manifests compacted", UNPARTITIONED, *_SMALL, options={"metadata.iceberg.compaction.min.file-num": "3", "metadata.iceberg.compaction.max.file-num": "5"}),
    kind("append, vectors", UNPARTITIONED, write(_APPENDED[:20]), write(_APPENDED[20:]), delete(_APPENDED[3:6]), delete(_APPENDED[5:25:4]), write(records(range(40, 50), "b")), options=VECTORS | VERSION_3),
    kind("schema changes", "k INT NOT NULL, gone INT, s STRING, n INT, f FLOAT, r ROW<x INT>", write([{"k": 1, "gone": 1, "s": "a", "n": 7, "f": 0.5, "r": {"x": 1}}]), alter(("drop", "gone"), ("rename", "s", "title"), ("type", "n", "BIGINT"), ("type", "f", "DOUBLE"), ("add", "more", "DOUBLE")), write([{"k": 3, "title": "c", "n": 2**40, "f": 0.25, "r": {"x": 2}, "more": 0.5}]), alter(("add", "gone", "STRING"), ("set", "snapshot.num-retained.min", "9")), write([{"k": 4, "title": "d", "n": 1, "f": None, "r": None, "more": 0.5, "gone": "x"}])),
    kind("tags", UNPARTITIONED, write(_APPENDED[:5]), tag("one"), write(_APPENDED[5:9]), write(_APPENDED[9:]), tag("three")),
    kind("legacy lists, zstd", f"{UNPARTITIONED}, p STRING", *_PARTITIONED[:3], partition_by=["p"], options={"metadata.iceberg.manifest-legacy-version": "true", "metadata.iceberg.manifest-compression": "zstd"}),
    kind("primary key", UNPARTITIONED, *_KEYED, primary_key=["k"]),
    kind("primary key, partitioned", f"{UNPARTITIONED}, p STRING", *_KEYED_PARTITIONS, primary_key=["k", "p"], partition_by=["p"]),
    kind("primary key, version 3", UNPARTITIONED, *_KEYED, primary_key=["k"], options=VERSION_3),
    kind("primary key, vectors", UNPARTITIONED, *_KEYED, primary_key=["k"], options=VECTORS | VERSION_3),
    kind("primary key, vectors, partitioned", f"{UNPARTITIONED}, p STRING", *_KEYED_PARTITIONS, primary_key=["k", "p"], partition_by=["p"], options=VECTORS | VERSION_3),
    kind("append, ORC", UNPARTITIONED, *_SMALL[:2], options={"file.format": "orc"}),
    kind("append, Avro", UNPARTITIONED, *_SMALL[:2], options={"file.format": "avro"}),
    kind("append, full statistics", UNPARTITIONED, *_SMALL[:2], options={"metadata.stats-mode": "full"}),
    kind("append, no statistics", UNPARTITIONED, *_SMALL[:2], options={"metadata.stats-mode": "none"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def made_by_java(open_peer: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the warehouse of a kind whose steps Java ran; each is made once."""
    made: dict[str, Path] = {}

    def make(kind: Kind) -> Path:
        if kind.name not in made:
            java20 = open_peer("java-2.0")
            made[kind.name] = warehouse = tmp_path_factory.mktemp("java") / "w"
            create_by_java(java20, warehouse, kind)
            for step in kind.steps:
                java20.run(warehouse=warehouse, **step)
        return made[kind.name]

    return make


@contextmanager
def copied_metadata(warehouse: Path, target: Path) -> Iterator[PublishedTable]:
    """Yield a copy of the metadata, and restore the original afterwards.

    Tables stay where they are, because the metadata has absolute paths.
    """
    directory = published(warehouse).directory
    shutil.copytree(directory, target)
    try:
        yield PublishedTable(target)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(target, directory)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_a_rebuild_lists_the_same_files_with_the_same_fields_as_java(
    made_by_java: Any, kind: Kind, tmp_path: Path
) -> None:
    warehouse = made_by_java(kind)
    ours = published(warehouse)
    with copied_metadata(warehouse, tmp_path / "java") as java:
        shutil.rmtree(ours.directory)
        Catalog(str(warehouse)).table("db.t").stores.iceberg.publish()
        compare_published(java, ours, first=0, has_key=False, rebuilt=True)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_each_snapshot_that_follows_a_snapshot_of_java_is_the_same_as_in_java(
    made_by_java: Any, kind: Kind, tmp_path: Path
) -> None:
    warehouse = made_by_java(kind)
    ours = published(warehouse)
    with copied_metadata(warehouse, tmp_path / "java") as java:
        for version in ours.versions()[1:]:
            ours.path(version).unlink()
        (ours.directory / "version-hint.text").write_text("1", encoding="utf-8")
        Catalog(str(warehouse)).table("db.t").stores.iceberg.publish()
        assert ours.load()["table-uuid"] == java.load()["table-uuid"]
        if "TIMESTAMP" in kind.name:  # Java's manifests have partitions in another unit
            assert list(ours.snapshots()) == [1, java.hint()]
        has_key = bool(kind.primary_key)
        compare_published(java, ours, first=2, has_key=has_key, rebuilt="TIMESTAMP" in kind.name)


def golden_iceberg_tables() -> list[Any]:
    return [
        pytest.param(folder, table_name(entry), id=name.split("/")[1])
        for name, folder, entry in golden_tables(GOLDEN)
        if name.startswith("java-2.0/iceberg_")
    ]


@pytest.mark.parametrize(("folder", "name"), golden_iceberg_tables())
def test_a_rebuild_of_a_golden_table_has_the_same_files_and_fields_as_java(
    folder: Path, name: str, tmp_path: Path
) -> None:
    warehouse = copy_warehouse(folder, tmp_path / "w")
    ours = published(warehouse, name)
    java = PublishedTable(shutil.copytree(ours.directory, tmp_path / "java"))
    Catalog(str(warehouse)).table(name).stores.iceberg.publish()
    compare_published(java, ours, first=0, has_key=False, rebuilt=True)


# --- In turns


@dataclass(frozen=True, kw_only=True)
class Game:
    """A kind of table, and its allowed operations in addition to writes."""

    options: Mapping[str, str] = field(default_factory=dict)
    key: Sequence[str] = ()
    partitions: Sequence[Any] = ()
    operations: Sequence[str] = ("compact",)
    directory: str = "db.db/t/metadata"
    rows_of: str = "db.t"
    """The table whose rows Java reads as Iceberg readers should: with levels or without."""

    @property
    def kind(self) -> Kind:
        columns = "k INT NOT NULL, a INT, b STRING" + (", p STRING" if self.partitions else "")
        options = {"bucket": "2" if self.key else "-1", **ICEBERG, **self.options}
        partition_by = ["p"] if self.partitions else []
        return Kind(
            name="t",
            columns=columns,
            steps=(),
            primary_key=self.key,
            partition_by=partition_by,
            options=options,
        )


KEEP_9 = {"metadata.iceberg.previous-versions-max": "9"}
KEEP_2 = {"metadata.iceberg.previous-versions-max": "2"}
RETAIN = {
    "snapshot.num-retained.min": "2",
    "snapshot.num-retained.max": "3",
    "snapshot.time-retained": "1 ms",
}
_ALL = ("compact", "overwrite", "tag", "delete_tag", "expire")
_PARTITIONS_OF_KEYS = ("eu", "zürich 日本 =%")
_READ_OPTIMIZED = "db.t$ro"
GAMES = {
    "append": Game(options=KEEP_2, operations=_ALL),
    "append, partitioned": Game(partitions=("eu", None, "zürich/日本 =%"), operations=_ALL),
    "append, vectors": Game(options=VECTORS | VERSION_3 | KEEP_2, operations=("compact", "delete", "delete", "tag", "expire")),
    "append, schema changes": Game(operations=("alter", "compact", "alter", "overwrite")),
    "append, in a catalog": Game(options={"metadata.iceberg.storage": "hadoop-catalog"}, operations=_ALL, directory="iceberg/db/t/metadata"),
    "append, legacy lists, zstd": Game(options=KEEP_2 | {"metadata.iceberg.manifest-legacy-version": "true", "metadata.iceberg.manifest-compression": "zstd"}, operations=_ALL),
    "append, manifests compacted": Game(options={"metadata.iceberg.compaction.min.file-num": "2", "metadata.iceberg.compaction.max.file-num": "3"}, operations=("overwrite", "write")),
    "append, few snapshots": Game(options=KEEP_2 | RETAIN, operations=_ALL),
    "append, rollbacks": Game(options=KEEP_9, operations=("rollback", "rollback", "compact", "expire")),
    "append, vectors, rollbacks": Game(options=VECTORS | VERSION_3 | KEEP_9, operations=("rollback", "delete")),
    "primary key, rollbacks": Game(key=("k",), rows_of=_READ_OPTIMIZED, options=KEEP_9, operations=("rollback", "full", "full")),
    "primary key, vectors, rollbacks": Game(key=("k",), options=VECTORS | VERSION_3 | KEEP_9, operations=("rollback", "compact", "delete")),
    "primary key": Game(key=("k",), rows_of=_READ_OPTIMIZED, options=KEEP_2, operations=("compact", "full", "delete", "tag", "expire")),
    "primary key, partitioned": Game(key=("k", "p"), partitions=_PARTITIONS_OF_KEYS, rows_of=_READ_OPTIMIZED, operations=("compact", "full", "delete")),
    "primary key, schema changes": Game(key=("k",), rows_of=_READ_OPTIMIZED, operations=("full", "alter", "full")),
    "primary key, vectors": Game(key=["k"], options=VECTORS | VERSION_3 | KEEP_2, operations=("compact", "full", "delete", "tag", "expire")),
    "primary key, vectors, partitioned": Game(key=("k", "p"), partitions=_PARTITIONS_OF_KEYS, options=VECTORS | VERSION_3, operations=("compact", "full", "delete")),
}  # fmt: skip
TURNS = 10
SEEDS = (1, 2)
_SCHEMA_CHANGES = [
    ("add", "c1", "INT"),
    ("rename", "b", "b1"),
    ("type", "a", "BIGINT"),
    ("drop", "c1"),
    ("add", "c1", "STRING"),
    ("set", "snapshot.num-retained.min", "9"),
]


class Match:
    """One table that Java and we change in turns."""

    def __init__(self, java20: Peer, warehouse: Path, game: Game, seed: str) -> None:
        self.java, self.warehouse, self.game = java20, warehouse, game
        self.chance = random.Random(seed)  # noqa: S311 - data, not a secret
        self.published = PublishedTable(warehouse / game.directory)
        self.changes = list(_SCHEMA_CHANGES)
        self.tags: list[str] = []
        self.is_stale = self.was_abandoned = False
        create_by_java(java20, warehouse, game.kind)

    @property
    def table(self) -> Table:
        return Catalog(str(self.warehouse)).table("db.t")

    def records(self, turn: int) -> list[Record]:
        """Return records of the present schema."""
        keys = self.chance.sample(range(40), 9)
        values: dict[str, Callable[[int], Any]] = {
            "int32": lambda k: None if k % 5 == 0 else turn * k,
            "int64": lambda k: turn * 2**33 + k,
            "string": lambda k: None if k % 7 == 0 else f"é {turn}",
        }
        columns = self.table.scan().arrow_schema
        records = [{c.name: values[str(c.type)](k) for c in columns} for k in keys]
        for number, (key, record) in enumerate(zip(keys, records, strict=True)):
            record["k"] = key
            if self.game.partitions:
                record["p"] = self.game.partitions[number % len(self.game.partitions)]
        return records

    def choose(self, turn: int) -> Step:
        """Return the next operation."""
        operation = self.chance.choice(["write", "write", *self.game.operations]) if turn else ""
        rows = self.java.read(self.warehouse) if operation == "delete" else []
        match operation:
            case "compact" | "full":
                return compact(full=operation == "full")
            case "delete" if rows:
                return delete(self.chance.sample(rows, min(4, len(rows))))
            case "overwrite":
                return overwrite(self.records(turn))
            case "tag":
                self.tags.append(f"t{turn}")
                return tag(self.tags[-1])
            case "delete_tag" if self.tags:
                return {"do": "delete_tag", "name": self.tags.pop(0)}
            case "alter" if self.changes:
                return alter(self.changes.pop(0))
            case "expire" | "rollback":
                target = self.chance.choice(self.table.stores.snapshots.ids())
                return {"do": operation, "retain": 3, "snapshot": target}
        return write(self.records(turn))

    def run(self, step: Step, *, by_java: bool) -> bool:
        """Run a step; return whether it made a snapshot."""
        previous = self.table.snapshot()
        if not by_java:
            ours.run_step(self.warehouse, step)
        elif step["do"] == "expire":
            self.java.expire(self.warehouse, step["retain"])
        else:
            self.run_in_java(step)
        has_committed = self.table.snapshot() != previous
        if step["do"] == "alter":
            self.is_stale = by_java  # Java publishes it with the next commit
        elif step["do"] == "rollback":
            self.is_stale = self.was_abandoned = by_java  # and a rollback never
        elif has_committed and not (by_java and self.was_abandoned):
            self.is_stale = self.was_abandoned = False
        return has_committed

    def run_in_java(self, step: Step) -> None:
        try:
            self.java.run(warehouse=self.warehouse, **step)
        except PeerError as error:
            # The Java program does not expect tables without files.
            if step["do"] != "compact" or "EndOfScanException" not in str(error):
                raise

    def read(self, **options: str) -> list[Record]:
        """Return the rows that Iceberg readers should see."""
        return self.java.read(self.warehouse, self.game.rows_of, **options)

    def check(self) -> None:
        """Compare the published rows with the table."""
        metadata = self.published.load()
        assert metadata["current-snapshot-id"] == self.table.stores.snapshots.latest_id()
        assert_same_rows(self.read(), self.published.read_rows())


def assert_same_rows(expected: Sequence[Record], actual: Sequence[Record]) -> None:
    columns = list(expected[0]) if expected else []
    assert_rows_equal(records_to_rows(expected, columns), records_to_rows(actual, columns))


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("seed", SEEDS)
def test_java_and_we_publish_alternately(
    java20: Peer, tmp_path: Path, name: str, seed: int
) -> None:
    match = Match(java20, tmp_path / "w", GAMES[name], seed=f"{name} {seed}")
    uuid = None
    for turn in range(TURNS):
        # Java publishes too many files in the first version of a table with a primary key.
        by_java = match.chance.random() < 0.5 and not (turn == 0 and match.game.key)
        has_committed = match.run(match.choose(turn), by_java=by_java)
        if match.is_stale:
            continue
        match.check()
        metadata = match.published.load()
        assert metadata["table-uuid"] == (uuid or metadata["table-uuid"])  # no rebuild by Java
        uuid = metadata["table-uuid"]
        if has_committed and not by_java:
            assert match.published.find_missing_lists() == []
    match.table.stores.iceberg.publish()
    match.check()
    if "alter" not in match.game.operations:
        check_history(match)


def check_history(match: Match) -> None:
    """Compare each published snapshot that the table still has with the table."""
    available = set(match.table.stores.snapshots.ids())
    listed = set(match.published.snapshots())
    assert available & listed
    for number in sorted(available & listed):
        expected = match.read(scan__snapshot_id=str(number))
        assert_same_rows(expected, match.published.read_rows(number))


# --- Threads of users in apache/paimon

DISABLED = {"options": {"metadata.iceberg.storage": "disabled"}}
STEPS = [write(records(range(n, n + 10), f"step {n}")) for n in range(0, 100, 10)]


def start(
    java20: Peer, tmp_path: Path, options: Mapping[str, str] | None = None, **more: Any
) -> Match:
    """Return an empty table that Java created."""
    return Match(java20, tmp_path / "w", Game(options=options or {}, **more), seed="")


def operations(match: Match) -> dict[int, str]:
    """Return the operation of each published snapshot."""
    snapshots = match.published.snapshots()
    return {number: s.json["summary"]["operation"] for number, s in snapshots.items()}


def test_7683_a_compaction_replaces_files_and_is_no_overwrite(java20: Peer, tmp_path: Path) -> None:
    match = start(java20, tmp_path, {"compaction.min.file-num": "2"})
    for step in STEPS[:2]:
        match.run(step, by_java=True)
    match.run(compact(), by_java=False)
    match.run(STEPS[2], by_java=False)
    match.run(compact(), by_java=True)
    match.run(overwrite(STEPS[0]["rows"]), by_java=False)

    match.check()
    assert list(operations(match).values()) == [
        "append",
        "append",
        "replace",
        "append",
        "replace",
        "overwrite",
    ]


def test_6425_a_tag_of_an_expired_snapshot_remains_readable(java20: Peer, tmp_path: Path) -> None:
    match = start(java20, tmp_path)
    match.run(STEPS[0], by_java=False)
    match.run(tag("first"), by_java=True)
    match.run(tag("also first"), by_java=False)
    for step in STEPS[1:4]:
        match.run(step, by_java=False)
    match.run({"do": "expire", "retain": 1}, by_java=False)
    match.run(STEPS[4], by_java=False)

    metadata = match.published.load()
    assert {name: ref["snapshot-id"] for name, ref in metadata["refs"].items()} == {
        "first": 1,
        "also first": 1,
    }
    assert list(match.published.snapshots(metadata)) == [1, 4, 5]
    assert_same_rows(match.read(scan__tag_name="first"), match.published.read_rows(1))

    # Java, too, never leaves a ref whose snapshot is not listed: Iceberg would reject the metadata.
    match.run(STEPS[5], by_java=True)
    match.check()
    metadata = match.published.load()
    referenced = {ref["snapshot-id"] for ref in metadata["refs"].values()}
    assert referenced <= set(match.published.snapshots(metadata))


def test_5228_readers_of_the_previous_metadata_find_all_its_files(
    java20: Peer, tmp_path: Path
) -> None:
    match = start(java20, tmp_path, {"metadata.iceberg.previous-versions-max": "2"} | RETAIN)
    for turn, step in enumerate(STEPS[:6]):
        match.run(step, by_java=turn == 2)
        match.check()
    assert match.published.versions() == [4, 5, 6]
    assert match.published.find_missing_lists() == []


def test_9036_a_rollback_publishes_its_target(java20: Peer, tmp_path: Path) -> None:
    match = start(java20, tmp_path, {"metadata.iceberg.previous-versions-max": "3"})
    for turn, step in enumerate(STEPS[:4]):
        match.run(step, by_java=bool(turn % 2))
    uuid = match.published.load()["table-uuid"]
    match.run({"do": "rollback", "snapshot": 2}, by_java=False)
    match.check()
    assert match.published.versions()[-1] == match.published.hint() == 2
    for turn, step in enumerate(STEPS[4:8]):
        match.run(step, by_java=bool(turn % 2))
        match.check()
    assert match.published.load()["table-uuid"] == uuid
    assert match.published.find_missing_lists() == []
    check_history(match)


ROLLBACKS = {
    "append": Game(),
    "append, vectors": Game(options=VECTORS | VERSION_3),
    "primary key": Game(key=("k",), rows_of=_READ_OPTIMIZED),
    "primary key, vectors": Game(key=("k",), options=VECTORS | VERSION_3),
}


@pytest.mark.parametrize("name", ROLLBACKS)
@pytest.mark.parametrize("commits", [0, 1, 3])
@pytest.mark.parametrize("has_expired", [False, True])
def test_9036_rows_after_a_rollback_by_java_are_those_of_the_table(
    java20: Peer, tmp_path: Path, name: str, commits: int, has_expired: bool
) -> None:
    """Java 2.0 keeps the metadata of snapshots that it removed, and extends it later."""
    game = ROLLBACKS[name]
    kept = {"metadata.iceberg.previous-versions-max": "9"}
    match = Match(java20, tmp_path / "w", replace(game, options={**game.options, **kept}), seed="")
    removed = [STEPS[1], delete(STEPS[0]["rows"][:3]) if "vectors" in name else STEPS[2]]
    match.run(STEPS[0], by_java=False)
    for step in (*removed, compact(), compact()) if game.key else removed:
        match.run(step, by_java=True)
    match.run({"do": "rollback", "snapshot": 1}, by_java=True)
    for step in STEPS[3 : 3 + commits]:
        match.run(step, by_java=True)
        if game.key:
            match.run(compact(), by_java=True)
    if has_expired:  # the abandoned snapshots cannot be compared with those of the table
        match.run({"do": "expire", "retain": 1}, by_java=True)

    match.table.stores.iceberg.publish()
    match.check()
    for by_java in (False, True):
        match.run(STEPS[8], by_java=by_java)
        match.check()
    check_history(match)


@pytest.mark.parametrize("has_expired", [False, True])
def test_9036_deletion_vectors_after_a_rollback_by_java_are_those_of_the_table(
    java20: Peer, tmp_path: Path, has_expired: bool
) -> None:
    """The data files are the right ones, but Java carries the vectors of the removed snapshot."""
    match = start(java20, tmp_path, VECTORS | VERSION_3 | KEEP_9)
    rows = STEPS[0]["rows"]
    match.run(STEPS[0], by_java=False)
    match.run(delete(rows[:3]), by_java=True)
    match.run({"do": "rollback", "snapshot": 1}, by_java=True)
    match.run(delete(rows[5:6]), by_java=True)
    match.run(STEPS[1], by_java=True)
    assert len(match.published.read_rows()) == 17  # the table has 19
    if has_expired:
        match.run({"do": "expire", "retain": 1}, by_java=True)

    match.table.stores.iceberg.publish()
    match.check()
    match.run(STEPS[2], by_java=True)
    match.check()


def test_commits_of_java_to_a_branch_are_removed_from_the_metadata_of_main(
    java20: Peer, tmp_path: Path
) -> None:
    match = start(java20, tmp_path)
    for step in STEPS[:2]:
        match.run(step, by_java=True)
    match.run(tag("base"), by_java=True)
    java20.run("branch", match.warehouse, name="dev", at="base")
    for step in STEPS[2:4]:
        java20.run(warehouse=match.warehouse, table="db.t$branch_dev", **step)
    assert match.published.hint() == 4  # main has two snapshots

    match.table.stores.iceberg.publish()
    match.check()
    for by_java in (False, True):
        match.run(STEPS[5], by_java=by_java)
        match.check()


def test_java_can_read_the_manifest_lists_after_we_changed_the_names_of_their_counts(
    java20: Peer, tmp_path: Path
) -> None:
    match = start(java20, tmp_path, {"metadata.iceberg.previous-versions-max": "9"})
    for by_java in (True, False):
        match.run(STEPS[0], by_java=by_java)
    match.run(alter(("set", "metadata.iceberg.manifest-legacy-version", "true")), by_java=False)
    for by_java in (True, False, True):
        match.run(STEPS[1], by_java=by_java)
        match.check()
    names = {name for file in match.published.current().list_file.records for name in file}
    assert "added_data_files_count" in names


def test_a_table_of_version_2_continues_in_version_3_with_its_vectors(
    java20: Peer, tmp_path: Path
) -> None:
    match = start(java20, tmp_path, VECTORS, key=("k",), rows_of=_READ_OPTIMIZED)
    match.run(STEPS[0], by_java=False)
    match.run(compact(), by_java=True)
    match.check()
    uuid = match.published.load()["table-uuid"]
    match.run(alter(("set", "metadata.iceberg.format-version", "3")), by_java=False)
    match.game = replace(match.game, rows_of="db.t")
    for by_java in (True, False):
        match.run(write(records(range(5), "newer")), by_java=by_java)
        match.run(compact(full=False), by_java=by_java)
        match.check()
    assert match.published.current().vectors != {}
    assert match.published.load()["table-uuid"] == uuid


@pytest.mark.parametrize("first_by_java", [True, False])
def test_9244_format_version_3_has_the_keys_that_iceberg_requires(
    java20: Peer, tmp_path: Path, first_by_java: bool
) -> None:
    match = start(java20, tmp_path, VERSION_3)
    match.run(STEPS[0], by_java=first_by_java)
    match.run(STEPS[1], by_java=not first_by_java)
    assert ("next-row-id" in match.published.load()) == first_by_java
    match.run(STEPS[2], by_java=False)

    metadata = match.published.load()
    assert metadata["next-row-id"] >= 30
    current = metadata["snapshots"][-1]
    assert current["first-row-id"] + current["added-rows"] == metadata["next-row-id"]
    match.check()


def row_ids(match: Match) -> dict[str, int]:
    """Return the first row id of each live file, explicit or inherited from its manifest."""
    snapshot = match.published.current()
    ids = {}
    for listed, manifest in snapshot.manifests:
        following = listed["first_row_id"]
        for entry in manifest.records:
            file = entry["data_file"]
            if entry["status"] == DELETED or file["content"] == 1:
                continue
            first = file["first_row_id"]
            if first is None:
                first = following
                following += file["record_count"]
            ids[snapshot.relative(file["file_path"])] = first
    return ids


def test_9245_rows_keep_their_ids_when_manifests_are_rewritten(
    java20: Peer, tmp_path: Path
) -> None:
    options = (
        VECTORS
        | VERSION_3
        | {
            "metadata.iceberg.compaction.min.file-num": "3",
            "metadata.iceberg.compaction.max.file-num": "3",
        }
    )
    match = start(java20, tmp_path, options, partitions=("eu", "us"))
    known: dict[str, int] = {}
    for n in range(5):
        rows = records(range(10 * n, 10 * n + 10), "x", "eu", "us")
        match.run(overwrite(rows[::2]) if n == 3 else write(rows), by_java=False)
        ids = row_ids(match)
        assert {path: ids[path] for path in ids if path in known} == {
            path: known[path] for path in known if path in ids
        }
        counts = {
            path: e["data_file"]["record_count"]
            for path, e in match.published.current().data_files.items()
        }
        used = sorted((first, first + counts[path]) for path, first in ids.items())
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(used))
        assert used[-1][1] <= match.published.load()["next-row-id"]
        known |= ids
    match.check()


@pytest.mark.parametrize("kept", [2, 9])
def test_9342_java_can_commit_after_gaps_in_the_versions(
    java20: Peer, tmp_path: Path, kept: int
) -> None:
    """A rebuild of Java 2.0 leaves versions whose lists are missing, so the next one fails."""
    match = start(java20, tmp_path, {"metadata.iceberg.previous-versions-max": str(kept)})
    for step in STEPS[:3]:
        match.run(step, by_java=True)
    match.run({**STEPS[3], **DISABLED}, by_java=True)
    match.run(STEPS[4], by_java=True)
    assert match.published.find_missing_lists() != []

    match.run(STEPS[5], by_java=False)
    assert match.published.find_missing_lists() == []
    match.run({**STEPS[6], **DISABLED}, by_java=True)
    match.run(STEPS[7], by_java=True)
    match.check()


def test_a_gap_that_java_leaves_is_filled(java20: Peer, tmp_path: Path) -> None:
    """#6107: a rebuild by Java loses the history, and the UUID of the table changes."""
    match = start(java20, tmp_path)
    match.run(STEPS[0], by_java=True)
    for step in STEPS[1:3]:
        match.run({**step, **DISABLED}, by_java=True)
    match.run(STEPS[3], by_java=False)
    assert list(match.published.snapshots()) == [1, 2, 3, 4]
    match.run(STEPS[4], by_java=True)
    assert list(match.published.snapshots()) == [1, 2, 3, 4, 5]
    match.check()
    check_history(match)


def test_files_of_level_0_that_java_published_remain_visible_until_a_compaction(
    java20: Peer, tmp_path: Path
) -> None:
    match = start(java20, tmp_path, key=["k"], rows_of="db.t$ro")
    match.run(STEPS[0], by_java=True)
    assert match.read() == []
    assert_same_rows(STEPS[0]["rows"], match.published.read_rows())
    match.run(write(records(range(5), "newer")), by_java=False)
    assert_same_rows(STEPS[0]["rows"], match.published.read_rows())
    match.run(compact(), by_java=True)
    match.check()
    assert len(match.read()) == 10


def test_a_commit_of_only_null_partitions_that_java_cannot_publish_is_published_by_the_next(
    java20: Peer, tmp_path: Path
) -> None:
    """#9152: Java 2.0 cannot write a manifest in which all values of a partition column are null."""
    match = start(java20, tmp_path, partitions=("eu", None))
    rows = records(range(10), "a", "eu", None)
    only_null = write([row for row in rows if row["p"] is None])
    match.run(write(rows), by_java=True)
    match.run(only_null, by_java=False)
    match.check()
    match.run(overwrite(rows[::2]), by_java=True)
    match.check()
    with pytest.raises(PeerError, match="NullPointerException"):
        match.run(only_null, by_java=True)
    assert match.table.stores.snapshots.latest_id() == match.published.hint() + 1
    match.run(write(rows), by_java=False)
    match.check()
    check_history(match)
