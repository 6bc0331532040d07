"""Arguments of wrong types: one sentence that says what to pass; and times of all kinds."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.tables import catalog_of, new_table, table_of

from paimon_orch import Catalog, InputError
from paimon_orch.format.times import to_epoch_millis
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    created = new_table(tmp_path)
    created.upsert(table_of("k v", [(1, "a")]))
    return created


WRONG: list[tuple[str, Callable[[Any], object], str]] = [
    ("limit", lambda t: t.scan(limit="5"), "limit must be a whole number, such as 5, not '5'"),
    ("limit 2.5", lambda t: t.scan(limit=2.5), "limit must be a whole number"),
    ("limit True", lambda t: t.scan(limit=True), "limit must be a whole number"),
    ("columns", lambda t: t.scan("id"), "must be a list of names: write ['id'], not 'id'"),
    ("columns 1", lambda t: t.scan([1]), "columns must be a list of names, such as ['id']"),
    ("order_by", lambda t: t.scan(order_by=1), "order_by must be a list of names"),
    ("snapshot_id", lambda t: t.scan(snapshot_id="1"), "snapshot_id must be a whole number"),
    ("snapshot", lambda t: t.snapshot("1"), "snapshot_id must be a whole number"),
    ("rollback", lambda t: t.rollback("1"), "snapshot_id must be a whole number"),
    ("tag", lambda t: t.scan(tag=1), "tag must be text, such as '2026-01-31', not 1"),
    (
        "timestamp",
        lambda t: t.scan(timestamp=1.5),
        "timestamp 1.5 is not a point in time; write epoch milliseconds",
    ),
    ("timestamp text", lambda t: t.scan(timestamp="soon"), "'soon' is not a point in time"),
    ("watermark", lambda t: t.scan(watermark=[]), "watermark [] is not a point in time"),
    ("history", lambda t: t.history("1"), "limit must be a whole number"),
    ("start", lambda t: t.incremental(None, 1), "None and 1 must be two snapshot ids or two tags"),
    ("end", lambda t: t.incremental(1, 1.5), "1 and 1.5 must be two snapshot ids or two tags"),
    ("tag name", lambda t: t.tags.create(1), "a tag name must be text"),
]
WRONG_OF_CATALOG: list[tuple[str, Callable[[Any], object], str]] = [
    ("table", lambda c: c.table(None), "a table name must be text, such as 'database.table'"),
    ("open", lambda c: c.open(1), "a table name must be text"),
    ("catalog", lambda _: Catalog(1), "location of a catalog must be text"),  # type: ignore[arg-type]
    ("columns", lambda c: c.create_table("db.a", None), "columns must be text, such as 'id BIG"),
    ("dict", lambda c: c.create_table("db.a", {"id": "INT"}), "or an Arrow schema, not {'id'"),
    ("key", lambda c: c.create_table("db.a", "id INT", primary_key="id"), "write ['id'], not 'id'"),
    ("days", lambda c: c.create_table("db.a", "d INT", partition_by="d"), "write ['d'], not 'd'"),
    ("options", lambda c: c.create_table("db.a", "d INT", options=["x"]), "must be a mapping"),
    (
        "option",
        lambda c: c.create_table("db.a", "d INT", options={"bucket": None}),
        "option 'bucket' must be text or a number, not None",
    ),
    ("changes", lambda c: c.alter_table("db.t", None), "changes must be a list of schema changes"),
    ("change", lambda c: c.alter_table("db.t", ["x"]), "'x' is none"),
]


@pytest.mark.parametrize(("call", "message"), [x[1:] for x in WRONG], ids=[x[0] for x in WRONG])
def test_a_wrong_type_is_refused_by_a_table(
    table: Table, call: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        call(table)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [x[1:] for x in WRONG_OF_CATALOG],
    ids=[x[0] for x in WRONG_OF_CATALOG],
)
def test_a_wrong_type_is_refused_by_a_catalog(
    table: Table, call: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        call(catalog_of(table))

    assert message in str(caught.value)


def test_options_may_be_numbers_and_booleans(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "bucket": 2,
        "deletion-vectors.enabled": True,
        "file.compression": "zstd",
    }

    table = Catalog(tmp_path).create_table(
        "db.t", pa.schema([pa.field("k", pa.int32(), nullable=False)]),
        primary_key=["k"], options=options,
    )  # fmt: skip

    assert (
        table.load().schema.options.items()
        >= {
            "bucket": "2",
            "deletion-vectors.enabled": "true",
        }.items()
    )


@pytest.mark.parametrize(
    "time",
    ["2126-01-01", "2126-01-01T00:00:00+01:00", date(2126, 1, 1), datetime(2126, 1, 1, tzinfo=UTC)],
)
def test_a_time_is_iso_text_a_date_or_a_datetime(table: Table, time: Any) -> None:
    assert table.scan(timestamp=time).snapshot == table.snapshot()


def test_a_time_is_the_number_of_its_milliseconds() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)

    assert to_epoch_millis("t", moment) == 1_769_860_800_000
    assert to_epoch_millis("t", "2026-01-31T12:00:00Z") == 1_769_860_800_000
    assert to_epoch_millis("t", 5) == 5
    local = datetime(2026, 1, 31)
    assert to_epoch_millis("t", date(2026, 1, 31)) == int(local.timestamp() * 1000)
    with pytest.raises(InputError, match="t True is not a point in time"):
        to_epoch_millis("t", True)


def test_whole_numbers_of_numpy_are_taken(table: Table) -> None:
    assert table.scan(limit=np.int64(1)).to_arrow().num_rows == 1  # type: ignore[arg-type]
