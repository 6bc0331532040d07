"""Kinds of tables, each with the steps that write it and the rows that readers must find.

Each step is a command of `peers` with its arguments, so that every implementation can run it. The
expected rows are computed from the steps, or listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Record = dict[str, Any]
Step = Mapping[str, Any]

COLUMNS = "k BIGINT NOT NULL, p STRING, s STRING, n INT, d DECIMAL(12, 2), t TIMESTAMP(3)"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of table; by default, the last written row of each key is expected."""

    name: str
    steps: Sequence[Step]
    columns: str = COLUMNS
    primary_key: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[Record] | None = None
    table: str = "db.t"
    read: Mapping[str, str] = field(default_factory=dict)
    traces: Sequence[str] = ()

    def expected(self) -> list[Record]:
        """Return the rows that every reader must find."""
        if self.rows is not None:
            return list(self.rows)
        rows: dict[Any, Record] = {}
        for step_number, step in enumerate(self.steps):
            for number, row in enumerate(step.get("rows", ())):
                key = tuple(row[name] for name in self.primary_key) or (step_number, number)
                if step["do"] == "delete":
                    # Without a key, all equal rows are deleted.
                    keys = [key] if self.primary_key else [k for k, r in rows.items() if r == row]
                    for deleted in keys:
                        del rows[deleted]
                else:
                    rows[key] = row
        return list(rows.values())


# --- Steps


def write(*parts: Sequence[Record]) -> Step:
    """Return a step that commits rows."""
    return {"do": "write", "rows": [row for part in parts for row in part]}


def delete(rows: Sequence[Record]) -> Step:
    """Return a step that deletes rows in one commit."""
    return {"do": "delete", "rows": rows}


def compact(*, full: bool = True) -> Step:
    """Return a compaction; we run it for peers that cannot compact."""
    return {"do": "compact", "full": full}


def alter(*changes: Sequence[Any]) -> Step:
    """Return a step that changes the schema."""
    return {"do": "alter", "changes": changes}


def rows(numbers: range, text: str, **fixed: Any) -> list[Record]:
    """Return rows of the default columns, some values null."""
    return [
        {
            "k": n,
            "p": ("eu", "us ca")[n % 2],
            "s": None if n % 7 == 0 else f"{text} {n} é",
            "n": None if n % 5 == 0 else n * 3,
            "d": f"{n - 20}.{n % 100:02}",
            "t": f"2024-02-{1 + n % 29:02}T12:00:00.{n % 1000:03}000000",
            **fixed,
        }
        for n in numbers
    ]


# --- Tables without a key


def _append(name: str, *traces: str, **options: str) -> Kind:
    steps = (write(rows(range(40), "a")), write(rows(range(30, 60), "b")))
    return Kind(
        name=name, steps=steps, options={"bucket": "-1"} | _to_option_keys(options), traces=traces
    )


def _to_option_keys(options: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}


def _partitioned_by(kind: str, values: Sequence[Any]) -> Kind:
    parts = [{"p": value, "k": n, "v": f"{n}"} for n in range(3) for value in values]
    return Kind(
        name=f"partitioned by {kind}",
        steps=(write(parts), write(parts[:1])),
        columns=f"p {kind}, k BIGINT NOT NULL, v STRING",
        partition_by=["p"],
        options={"bucket": "-1"},
    )


_PARTITIONS: dict[str, list[Any]] = {
    "INT": [1, -7],
    "BIGINT": [2**40, 0],
    "DATE": ["2024-05-14", "1969-12-31"],
    "BOOLEAN": [True, False],
    "DECIMAL(10, 2)": ["12.30", "-1.00"],
    "STRING": ["a b", "a/b", "=%:", "ü", "__x", None],
}

_OLD_ROWS: list[Record] = [
    {"k": 1, "gone": 1, "s": "a", "n": 7, "r": {"x": 1}},
    {"k": 2, "gone": None, "s": None, "n": None, "r": None},
]
_NEW_ROWS: list[Record] = [{"k": 3, "title": "c", "n": 2**40, "r": {"x": 2}, "more": 0.5}]
_EVOLVED = Kind(
    name="append, schema changed",
    steps=(
        write(_OLD_ROWS),
        alter(
            ("drop", "gone"),
            ("rename", "s", "title"),
            ("type", "n", "BIGINT"),
            ("add", "more", "DOUBLE"),
        ),
        write(_NEW_ROWS),
    ),
    columns="k BIGINT NOT NULL, gone INT, s STRING, n INT, r ROW<x INT>",
    options={"bucket": "-1"},
    rows=[
        *(
            {"k": o["k"], "title": o["s"], "n": o["n"], "r": o["r"], "more": None}
            for o in _OLD_ROWS
        ),
        *_NEW_ROWS,
    ],
)

_ROWS = rows(range(40), "a")
_DELETED_ROWS = [row for row in _ROWS if row["k"] % 3 == 0]


def _append_with_deletion_vectors(bits: str, **options: str) -> Kind:
    vectors = {
        "deletion-vectors.enabled": "true",
        "deletion-vectors.bitmap64": str(bits == "64").lower(),
    }
    name = f"append, {'fixed buckets, ' if options else ''}{bits}-bit deletion vectors"
    steps = (
        write(_ROWS[:20]),
        write(_ROWS[20:]),
        delete(_DELETED_ROWS[:6]),
        delete(_DELETED_ROWS[6:]),
    )
    every = {"bucket": "-1"} | vectors | _to_option_keys(options)
    return Kind(name=name, steps=steps, options=every, traces=[f"{bits}-bit deletion vectors"])


APPEND = [
    _append("append", "parquet files", "zstd"),
    _append("append, fixed buckets", "buckets", bucket="3", bucket_key="k"),
    _append(
        "append, buckets by mod", "buckets", bucket="3", bucket_key="k", bucket_function__type="mod"
    ),
    _append("append, ORC files", "orc files", file__format="orc"),
    _append("append, Avro files", "avro files", file__format="avro"),
    *(
        _append(f"append, {codec}", *traces, file__compression=codec)
        # Paimon writes the lz4 format of Hadoop, for which pyarrow has no name.
        for codec, *traces in [("lz4",), ("snappy", "snappy"), ("gzip", "gzip")]
    ),
    _append("append, no statistics", metadata__stats_mode="none"),
    _append("append, ORC manifests", "ORC manifests", manifest__format="orc"),
    _append("append, row tracking", "row ids", row_tracking__enabled="true"),
    *(_partitioned_by(kind, values) for kind, values in _PARTITIONS.items()),
    _EVOLVED,
    Kind(
        name="append, compacted",
        steps=(*(write(rows(range(n, n + 5), "a")) for n in range(0, 30, 5)), compact()),
        options={"bucket": "-1", "compaction.max.file-num": "5"},
        traces=["a snapshot of COMPACT"],
    ),
    Kind(
        name="append, a partition overwritten",
        steps=(
            write(rows(range(20), "a")),
            {"do": "overwrite", "rows": rows(range(1, 5, 2), "new")},
        ),
        partition_by=["p"],
        options={"bucket": "-1"},
        rows=rows(range(0, 20, 2), "a") + rows(range(1, 5, 2), "new"),
    ),
    _append_with_deletion_vectors("32"),
    _append_with_deletion_vectors("64"),
    _append_with_deletion_vectors("32", bucket="2", bucket_key="k"),
]


# --- Tables with a key


def _records(names: str, *lines: Sequence[Any]) -> list[Record]:
    return [dict(zip(names.split(), line, strict=True)) for line in lines]


def _keyed(
    name: str, *steps: Step, traces: Sequence[str] = (), partitioned: bool = False, **options: str
) -> Kind:
    return Kind(
        name=name,
        steps=steps or (write(rows(range(60), "a")), write(rows(range(30, 80), "b"))),
        primary_key=["p", "k"] if partitioned else ["k"],
        partition_by=["p"] if partitioned else [],
        options={"bucket": "2"} | _to_option_keys(options),
        traces=traces,
    )


_WAVES = (
    write(rows(range(60), "scheduled")),
    compact(full=False),
    write(rows(range(20, 50), "departed")),
    compact(full=False),
    write(rows(range(55, 70), "late")),
    compact(full=False),
)
_ROW_KIND_STEPS = (
    write(_records("k v op", (1, "a", "+I"), (2, "a", "+I"))),
    write(_records("k v op", (1, "b", "+U"), (2, None, "-D"), (3, "c", "+I"))),
)
_LONG_KEY = "a BIGINT NOT NULL, b STRING NOT NULL, c DATE NOT NULL, d DECIMAL(20, 3) NOT NULL, e TIMESTAMP(6) NOT NULL, f BOOLEAN NOT NULL, v DOUBLE"
_LONG_KEYS = [
    {
        "a": n,
        "b": "" if n % 5 == 0 else "é" * (n % 20),
        "c": f"{1960 + n}-01-01",
        "d": f"{n - 30}.000",
        "e": f"{1960 + n}-01-01T00:00:00.{n:06}000",
        "f": n % 2 == 0,
        "v": n / 4,
    }
    for n in range(60)
]

KEYED = [
    _keyed("primary key", traces=["parquet files", "buckets"]),
    _keyed("primary key, compacted", *_WAVES[:1], *_WAVES[2:3], compact(), traces=["a snapshot of COMPACT"]),
    _keyed("primary key, partitioned", partitioned=True),
    _keyed("primary key, rows deleted", *_WAVES[:1], delete(rows(range(5, 15), "scheduled"))),
    _keyed("primary key, buckets by mod", traces=["buckets"], bucket_function__type="mod"),
    _keyed("primary key, buckets by hive", traces=["buckets"], bucket_function__type="hive"),
    _keyed("primary key, ORC files", file__format="orc", traces=["orc files"]),
    _keyed("primary key, Avro files", file__format="avro", traces=["avro files"]),
    _keyed("primary key, a format per level", *_WAVES[:1], *_WAVES[2:3], compact(), *_WAVES[4:5], file__format__per__level="0:avro,5:orc", traces=["avro files", "orc files"]),
    _keyed("primary key, thin files", data_file__thin_mode="true", traces=["no key columns"]),
    _keyed("primary key, input changelog", changelog_producer="input", traces=["changelog"]),
    _keyed("primary key, dynamic buckets", bucket="-1", dynamic_bucket__target_row_num="15", traces=["hash index", "buckets"]),
    _keyed("primary key, dynamic buckets, partitioned", partitioned=True, bucket="-1", dynamic_bucket__target_row_num="15", traces=["hash index", "buckets"]),
    _keyed("primary key, 32-bit deletion vectors", *_WAVES, deletion_vectors__enabled="true", traces=["32-bit deletion vectors"]),
    _keyed("primary key, 64-bit deletion vectors", *_WAVES, deletion_vectors__enabled="true", deletion_vectors__bitmap64="true", traces=["64-bit deletion vectors"]),
    _keyed("primary key, ORC, 32-bit deletion vectors", *_WAVES, deletion_vectors__enabled="true", file__format="orc", traces=["orc files", "32-bit deletion vectors"]),
    _keyed("primary key, deletion vectors, partitioned dynamic buckets", *_WAVES, partitioned=True, bucket="-1", dynamic_bucket__target_row_num="15", deletion_vectors__enabled="true", traces=["hash index", "32-bit deletion vectors"]),
    Kind(name="primary key, rowkind.field", steps=_ROW_KIND_STEPS, columns="k BIGINT NOT NULL, v STRING, op STRING", primary_key=["k"], options={"bucket": "1", "rowkind.field": "op"}, rows=_records("k v op", (1, "b", "+U"), (3, "c", "+I"))),
    Kind(name="primary key of six columns", steps=(write(_LONG_KEYS), write(_LONG_KEYS[10:30])), columns=_LONG_KEY, primary_key=list("abcdef"), options={"bucket": "4"}),
    replace(_EVOLVED, name="primary key, schema changed", primary_key=["k"], options={"bucket": "1"}),
]  # fmt: skip


# --- Merge engines


def _merge_engine_kind(
    name: str, columns: str, steps: Sequence[Step], expected_rows: Sequence[Record], **options: str
) -> Kind:
    return Kind(
        name=name,
        steps=steps,
        columns=columns,
        primary_key=["k"],
        rows=expected_rows,
        options={"bucket": "1"} | _to_option_keys(options),
    )


_MERGE_COLUMNS = "k BIGINT NOT NULL, a INT, b STRING, g INT, x STRING"
_FIRST_ROWS = _records(
    "k a b g x", (1, 1, "p", 5, "five"), (2, None, "q", 5, "five"), (3, 3, None, None, None)
)
_SECOND_ROWS = _records(
    "k a b g x", (1, None, "r", 4, "four"), (2, 9, None, 6, "six"), (4, None, None, 1, None)
)
_TWO_WRITES = (write(_FIRST_ROWS), write(_SECOND_ROWS))
_MERGED_ROWS = _records(
    "k a b g x",
    (1, 1, "r", 4, "four"),
    (2, 9, "q", 6, "six"),
    (3, 3, None, None, None),
    (4, None, None, 1, None),
)

ENGINES = [
    _merge_engine_kind("partial-update", _MERGE_COLUMNS, _TWO_WRITES, _MERGED_ROWS, merge_engine="partial-update"),
    _merge_engine_kind(
        "partial-update, sequence group",
        _MERGE_COLUMNS,
        _TWO_WRITES,
        [_MERGED_ROWS[0] | {"g": 5, "x": "five"}, *_MERGED_ROWS[1:]],
        merge_engine="partial-update",
        fields__g__sequence_group="x",
    ),
    _merge_engine_kind(
        "aggregation",
        _MERGE_COLUMNS,
        _TWO_WRITES,
        _records("k a b g x", (1, 1, "r", 5, "five,four"), (2, 9, "q", 6, "five,six"), (3, 3, None, None, None), (4, None, None, 1, None)),
        merge_engine="aggregation",
        fields__a__aggregate_function="sum",
        fields__b__aggregate_function="last_non_null_value",
        fields__g__aggregate_function="max",
        fields__x__aggregate_function="listagg",
    ),
    _merge_engine_kind("first-row", _MERGE_COLUMNS, (write(_FIRST_ROWS), compact(), write(_SECOND_ROWS), compact()), [*_FIRST_ROWS, _SECOND_ROWS[2]], merge_engine="first-row"),
    _merge_engine_kind(
        "deduplicate, sequence field",
        _MERGE_COLUMNS,
        (write(_SECOND_ROWS), write(_FIRST_ROWS)),
        [_FIRST_ROWS[0], _SECOND_ROWS[1], _FIRST_ROWS[2], _SECOND_ROWS[2]],
        sequence__field="g",
    ),
]  # fmt: skip


# --- Tags, older snapshots and branches

_TAGGED = (write(rows(range(10), "a")), {"do": "tag", "name": "x"}, write(rows(range(5, 15), "b")))


def _state(name: str, *steps: Step, table: str = "db.t", **read: str) -> Kind:
    return Kind(
        name=name,
        steps=(*_TAGGED, *steps),
        primary_key=["k"],
        options={"bucket": "1"},
        rows=rows(range(10), "a"),
        table=table,
        read=_to_option_keys(read),
    )


STATES = [
    _state("an older snapshot", scan__snapshot_id="1"),
    _state("a tag", scan__tag_name="x"),
    _state("a branch", {"do": "branch", "name": "dev", "at": "x"}, table="db.t$branch_dev"),
]

KINDS = {kind.name: kind for kind in [*APPEND, *KEYED, *ENGINES, *STATES]}
