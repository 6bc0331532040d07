"""The tables of benchmarks/soak.py, the operations on them, and the rows that these leave.

Each writer has keys of its own and writes one operation after the other, so the order of the
operations on a key is known. If a writer is killed, or if its commit is refused, the operation was
applied as a whole or not at all: one row of each write has a key that no other write has, and tells
which.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Record = dict[str, Any]

COLUMNS = "k BIGINT NOT NULL, p STRING NOT NULL, n BIGINT, a BIGINT, b BIGINT, s STRING"
_KEYS_OF_WRITER, _FIRST_SINGLE_KEY = 10**12, 10**6
_SHARED_KEYS, _ROWS = 40, 8
_OPTIONS = {
    "snapshot.num-retained.min": "5",
    "snapshot.num-retained.max": "40",
    "snapshot.time-retained": "20 s",
    "source.split.open-file-cost": "16 mb",
}


@dataclass(frozen=True, kw_only=True)
class SoakTable:
    """A table, and how its rows merge."""

    name: str
    kind: str
    primary_key: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    options: Mapping[str, str]
    engine: str = ""
    """The merge engine; empty for tables without a primary key."""
    has_deletes: bool = False
    writers: int | None = None
    """The maximum number of writers, as the format allows it; None for any number."""

    @property
    def identifier(self) -> str:
        """Return the name with the database."""
        return f"soak.{self.name}"

    @property
    def is_postponed(self) -> bool:
        """Return whether writers leave the choice of buckets to a compaction."""
        return self.options.get("bucket") == "-2"

    @property
    def all_options(self) -> dict[str, str]:
        """Return the options of the table, with those that all tables have."""
        return _OPTIONS | dict(self.options)


def _append(name: str, kind: str, *, deletes: bool = False, **options: str) -> SoakTable:
    named = {"bucket": "-1"} | _to_option_keys(options)
    return SoakTable(name=name, kind=kind, options=named, has_deletes=deletes)


def _keyed(
    name: str,
    kind: str,
    *,
    engine: str = "deduplicate",
    partitioned: bool = False,
    writers: int | None = None,
    deletes: bool = True,
    **options: str,
) -> SoakTable:
    merge = {} if engine == "deduplicate" else {"merge-engine": engine}
    return SoakTable(
        name=name,
        kind=kind,
        primary_key=["p", "k"] if partitioned else ["k"],
        partition_by=["p"] if partitioned else [],
        options={"bucket": "2", "write-only": "true"} | merge | _to_option_keys(options),
        engine=engine,
        has_deletes=deletes and engine == "deduplicate",
        writers=writers,
    )


def _to_option_keys(options: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}


TABLES = (
    _keyed("deduplicate", "primary key"),
    _append("append", "append"),
    _keyed("key_vectors", "primary key, deletion vectors", deletion_vectors__enabled="true"),
    _append("vectors", "append, deletion vectors", deletes=True, deletion_vectors__enabled="true"),
    _keyed("first_row", "first-row", engine="first-row"),
    _keyed("postpone", "postpone bucket", bucket="-2", deletes=False),
    _append("buckets", "append, fixed buckets", bucket="2", bucket_key="k"),
    _keyed(
        "aggregation",
        "aggregation",
        engine="aggregation",
        fields__a__aggregate_function="sum",
        fields__b__aggregate_function="max",
    ),
    _keyed("partial_update", "partial-update", engine="partial-update"),
    _append("row_tracking", "append, row tracking", row_tracking__enabled="true"),
    _keyed("partitioned", "primary key, partitions", partitioned=True),
    _keyed("changelog_lookup", "changelog by lookup", changelog_producer="lookup"),
    _keyed("changelog_full", "changelog by full compaction", changelog_producer="full-compaction"),
    _keyed("changelog_input", "changelog of the input", changelog_producer="input"),
    _keyed("writers_compact", "primary key, writers compact", write_only="false"),
    _append(
        "data_evolution",
        "append, data evolution",
        row_tracking__enabled="true",
        data_evolution__enabled="true",
    ),
    _keyed("sequence_field", "primary key, sequence field", sequence__field="n"),
    _keyed("orc", "primary key, ORC files", file__format="orc"),
    # only one writer at a time may assign keys to buckets
    _keyed("dynamic_buckets", "dynamic buckets", bucket="-1", writers=1),
    SoakTable(
        name="append_partitions",
        kind="append, partitions",
        partition_by=["p"],
        options={"bucket": "-1"},
    ),
)


@dataclass(kw_only=True)
class Operation:
    """What a writer did or tried to do."""

    number: int
    do: str
    """``write`` or ``delete``."""
    rows: list[Record]
    is_acknowledged: bool = False

    @property
    def single(self) -> Record:
        """Return the row with a key that no other write has."""
        return self.rows[0]


@dataclass(kw_only=True)
class TableHistory:
    """The operations of one writer on one table; the writer number is below 1,000."""

    table: SoakTable
    writer: int
    operations: list[Operation] = field(default_factory=list)
    _deletable: list[Operation] = field(default_factory=list)

    def make_operation(self, number: int, rng: random.Random, *, deletes: bool) -> Operation:
        """Return the next operation, and remember it as not acknowledged."""
        if deletes and self.table.has_deletes and self._deletable and rng.random() < 0.2:
            target = self._deletable.pop(rng.randrange(len(self._deletable)))
            operation = Operation(number=number, do="delete", rows=self._delete(target, number))
        else:
            operation = Operation(number=number, do="write", rows=self._write(number, rng))
        self.operations.append(operation)
        return operation

    def acknowledge(self, operation: Operation) -> None:
        """Note that the commit of an operation succeeded."""
        operation.is_acknowledged = True
        if operation.do == "write":
            self._deletable.append(operation)

    def find_applied(self, actual: Mapping[int, Record]) -> list[Operation]:
        """Return the operations that were applied to a table with these rows by key."""
        return [
            each for each in self.operations if each.is_acknowledged or _was_applied(each, actual)
        ]

    def find_absent(self, actual: Mapping[int, Record]) -> list[Operation]:
        """Return the acknowledged operations that a table with these rows by key does not have.

        A write is absent if the table has none of the rows that only it wrote and nobody deleted.
        """
        writes = Counter(
            row["k"] for each in self.operations if each.do == "write" for row in each.rows
        )
        deleted = {row["k"] for each in self.operations if each.do == "delete" for row in each.rows}

        def is_absent(operation: Operation) -> bool:
            if operation.do == "delete":
                return not _was_applied(operation, actual)
            own = {row["k"] for row in operation.rows if writes[row["k"]] == 1} - deleted
            return bool(own) and own.isdisjoint(actual)

        return [each for each in self.operations if each.is_acknowledged and is_absent(each)]

    def replay(self, operations: Iterable[Operation]) -> list[Record]:
        """Return the rows that operations leave."""
        state: dict[int, Record] = {}
        for operation in operations:
            _apply(self.table, operation, state)
        return list(state.values())

    def _write(self, number: int, rng: random.Random) -> list[Record]:
        first = self.writer * _KEYS_OF_WRITER
        single = first + _FIRST_SINGLE_KEY + number * _ROWS
        if not self.table.primary_key:
            return [self._row(single + n, number, rng) for n in range(_ROWS)]
        shared = rng.sample(range(_SHARED_KEYS), _ROWS - 1)
        rows = [
            self._row(single, number, rng),
            *(self._row(first + k, number, rng) for k in shared),
        ]
        if self.table.engine == "partial-update":
            for row in rows[1:]:
                row[rng.choice(["a", "b", "s"])] = None
        return rows

    def _row(self, key: int, number: int, rng: random.Random) -> Record:
        text = f"writer {self.writer}, write {number}"
        amounts = {"a": rng.randrange(1000), "b": rng.randrange(1000)}
        return {"k": key, "p": f"p{key % 3}", "n": number, **amounts, "s": text}

    def _delete(self, target: Operation, number: int) -> list[Record]:
        if not self.table.primary_key:
            return target.rows[: _ROWS // 2]
        # the sequence field of a delete must be the newest
        return [{**row, "n": number} for row in target.rows[: _ROWS // 2]]


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The differences between the rows of a table and those that its operations leave."""

    rows: int
    """The rows of the table."""
    lost: int
    """Acknowledged rows that are not in the table, or not with their newest values."""
    duplicated: int
    """Rows that are in the table a second time, or that were deleted, or that no operation wrote."""
    replaced: int
    """Rows of acknowledged operations whose snapshot another implementation replaced."""
    examples: tuple[str, ...]
    """Some of these rows."""


def verify(
    histories: Sequence[TableHistory], rows: Sequence[Record], replaced: int = 0
) -> Verification:
    """Compare the rows of a table with the operations of all its writers.

    Up to ``replaced`` acknowledged operations may be absent as a whole, because another process
    replaced their snapshots.
    """
    counts = Counter(row["k"] for row in rows)
    actual = {row["k"]: row for row in rows}
    absent = [each for history in histories for each in history.find_absent(actual)]
    if len(absent) > replaced:
        absent = []  # not all of them were in these snapshots
    expected: dict[int, Record] = {}
    for history in histories:
        applied = [each for each in history.find_applied(actual) if each not in absent]
        expected |= {row["k"]: row for row in history.replay(applied)}
    lost = [f"lost: {row}" for key, row in expected.items() if key not in actual]
    changed = [
        f"expected {row}, found {actual[key]}"
        for key, row in expected.items()
        if key in actual and actual[key] != row
    ]
    extra = [f"unexpected: {row}" for key, row in actual.items() if key not in expected]
    again = [f"{count} rows with the key {key}" for key, count in counts.items() if count > 1]
    return Verification(
        rows=len(rows),
        lost=len(lost) + len(changed),
        duplicated=len(extra) + len(rows) - len(actual),
        replaced=sum(len(each.rows) for each in absent),
        examples=(*lost[:5], *changed[:5], *extra[:5], *again[:5]),
    )


def _was_applied(operation: Operation, actual: Mapping[int, Record]) -> bool:
    # only acknowledged writes are deleted, each by one operation
    return (operation.single["k"] in actual) == (operation.do == "write")


def _apply(table: SoakTable, operation: Operation, state: dict[int, Record]) -> None:
    for row in operation.rows:
        key = row["k"]
        if operation.do == "delete":
            state.pop(key, None)
        elif table.engine == "first-row":
            state.setdefault(key, row)
        elif key in state and table.engine in ("partial-update", "aggregation"):
            state[key] = _merge(table.engine, state[key], row)
        else:
            state[key] = row


def _merge(engine: str, old: Record, new: Record) -> Record:
    merged = old | {name: value for name, value in new.items() if value is not None}
    if engine == "aggregation":
        merged |= {"a": old["a"] + new["a"], "b": max(old["b"], new["b"])}
    return merged


def count_rows(operations: Iterable[Operation]) -> int:
    """Return the number of acknowledged rows."""
    return sum(len(each.rows) for each in operations if each.is_acknowledged)


def choose_tables(count: int | None) -> Iterator[SoakTable]:
    """Yield the first tables, by default all."""
    yield from TABLES[:count]
