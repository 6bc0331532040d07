"""VARIANT and VECTOR columns are exchanged with Java 2.0, also in shredded files."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.golden import canonical_rows
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.format.types.arrow import VARIANT_TYPE
from paimon_orch.format.variant.value import Single, Timestamp, encode_value
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

VALUES: list[Any] = [
    None,
    True,
    *(sign * (1 << bits) for bits in (0, 7, 15, 31, 62) for sign in (1, -1)),
    "x" * 63,
    "日本" * 40,
    1e300,
    -0.0,
    float("nan"),
    Single(0.1),
    Decimal("12.50"),
    Decimal(10**17),
    Decimal("-0." + "1" * 38),
    b"\x00\xff",
    date(1969, 2, 28),
    Timestamp(-1, has_zone=True),
    Timestamp(1_500_000, has_zone=False),
    [],
    {},
    {"\ue000": 1, "\U00010000": 2, "a": {"a": [None]}},
    {f"name {number}": number for number in range(300)},
    list(range(300)),
]
SHREDDED_TEXTS = [
    '{"i":1,"s":"x","d":1.25,"b":true,"r":{"x":1,"y":"z"},"a":[1,2,3]}',
    '{"i":"text","s":7,"d":"no","b":null,"r":[1],"a":{"k":1}}',
    '{"i":9223372036854775807,"r":{"x":null,"more":[{}]},"a":["x",1,null],"other":1.0E300}',
    '{"i":300,"d":99999999.99,"a":[]}',
    '{"other":{"i":1},"and":"more"}',
    "{}",
    "[1,2]",
    "null",
    '"text"',
    None,
]
SHREDDING = {
    "i": "BIGINT",
    "s": "STRING",
    "d": "DECIMAL(18, 2)",
    "b": "BOOLEAN",
    "r": {"x": "INT", "y": "STRING"},
    "a": ["BIGINT"],
    "absent": "DOUBLE",
}


def shredding_type(shape: Any) -> Any:
    if isinstance(shape, dict):
        fields = [
            {"id": number, "name": name, "type": shredding_type(child)}
            for number, (name, child) in enumerate(shape.items())
        ]
        return {"type": "ROW", "fields": fields}
    if isinstance(shape, list):
        return {"type": "ARRAY", "element": shredding_type(shape[0])}
    return shape


def create(root: Path, columns: str, **options: str) -> Table:
    keys = ["k"] if options.get("bucket") == "1" else []
    return Catalog(str(root)).create_table("db.t", columns, options=options, primary_key=keys)


def rows_of_java(java20: Peer, root: Path) -> list[list[Any]]:
    lines = java20._oracle("dump", root, "db.t")
    records = [json.loads(line) for line in lines if line.startswith("{")]
    return sorted([record["k"], record["v"]] for record in records)


def our_rows(table: Table) -> list[list[Any]]:
    return sorted(canonical_rows(table.scan().to_arrow()))


@pytest.mark.parametrize("bucket", ["-1", "1"])
def test_java_reads_the_variants_that_we_write(java20: Peer, tmp_path: Path, bucket: str) -> None:
    table = create(tmp_path, "k BIGINT NOT NULL, v VARIANT", bucket=bucket)
    rows = [dict(zip(("value", "metadata"), encode_value(value), strict=True)) for value in VALUES]
    variants = pa.array([*rows, None], VARIANT_TYPE)
    (table.upsert if bucket == "1" else table.append)(
        pa.table({"k": range(len(variants)), "v": variants})
    )

    assert our_rows(table) == rows_of_java(java20, tmp_path)
    compact(table, InProcessExecutor(), strategy="full")
    assert our_rows(table) == rows_of_java(java20, tmp_path)


@pytest.mark.parametrize("bucket", ["-1", "1"])
@pytest.mark.parametrize("shredding", ["schema", "inferred"])
def test_we_read_and_compact_the_shredded_variants_of_java(
    java20: Peer, tmp_path: Path, bucket: str, shredding: str
) -> None:
    schema = json.dumps(shredding_type({"v": SHREDDING}))
    options = {
        "schema": {"variant.shreddingSchema": schema},
        "inferred": {"variant.inferShreddingSchema": "true"},
    }
    table = create(tmp_path, "k BIGINT NOT NULL, v VARIANT", bucket=bucket, **options[shredding])
    file = tmp_path / "rows.jsonl"
    texts = SHREDDED_TEXTS * 3
    if shredding == "inferred":  # objects are shredded, if all values are objects
        texts = [text for text in texts if text is not None and text[0] == "{"]
    file.write_text("\n".join(json.dumps({"k": k, "v": text}) for k, text in enumerate(texts)))
    java20._oracle("write", tmp_path, "db.t", str(file))
    [path] = tmp_path.glob("db.db/t/bucket-0/*.parquet")
    assert "typed_value" in str(pq.ParquetFile(path).schema)

    expected = rows_of_java(java20, tmp_path)
    assert our_rows(table) == expected
    assert [None if v is None else json.loads(v) for _, v in expected] == [
        None if text is None else json.loads(text) for text in texts
    ]
    compact(table, InProcessExecutor(), strategy="full")
    (table.upsert if bucket == "1" else table.append)(pa.table({"k": [1000], "v": ['{"i":1}']}))
    compact(table, InProcessExecutor(), strategy="full")
    expected = [*expected, [1000, '{"i":1}']]
    assert our_rows(table) == rows_of_java(java20, tmp_path) == expected
    assert check(table, deep=True).findings == ()
    assert java20.check(tmp_path, "db.t") == []


@pytest.mark.parametrize("bucket", ["-1", "1"])
@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_vectors_are_exchanged_with_java(
    java20: Peer, tmp_path: Path, bucket: str, file_format: str
) -> None:
    columns = "k BIGINT NOT NULL, v VECTOR<FLOAT, 3>"
    table = create(tmp_path, columns, bucket=bucket, **{"file.format": file_format})
    vectors = [[1.0, -0.5, 1e30], None, [0.25, 2.0, 3.0]]
    (table.upsert if bucket == "1" else table.append)(pa.table({"k": range(3), "v": vectors}))
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps({"k": k + 3, "v": v}) for k, v in enumerate(vectors)))
    java20._oracle("write", tmp_path, "db.t", str(file))

    expected = [[k, vector] for k, vector in enumerate(vectors * 2)]
    assert our_rows(table) == rows_of_java(java20, tmp_path) == expected
    compact(table, InProcessExecutor(), strategy="full")
    assert our_rows(table) == rows_of_java(java20, tmp_path) == expected


@pytest.mark.parametrize("peer", ["pypaimon", "pypaimon-rust"], indirect=True)
def test_other_peers_read_what_we_write(peer: Peer, tmp_path: Path) -> None:
    table = create(tmp_path, "k BIGINT, v VARIANT, e VECTOR<FLOAT, 2>", bucket="-1")
    table.append(pa.table({"k": [1, 2], "v": ['{"a":1}', None], "e": [[1.0, 2.0], None]}))

    value, metadata = encode_value({"a": 1})
    variant = {"value": value.hex(), "metadata": metadata.hex()}
    assert sorted(peer.read(tmp_path), key=lambda row: row["k"]) == [
        {"k": 1, "v": variant, "e": [1.0, 2.0]},
        {"k": 2, "v": None, "e": None},
    ]
