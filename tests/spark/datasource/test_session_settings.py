"""The data source follows settings of the session: case of names, time zone, default catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pendulum
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from support.spark.second_session import open_second_session
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import InputError
from paimon_orch.spark.datasource import session_settings
from paimon_orch.spark.datasource.batch_read import build_reader
from paimon_orch.spark.datasource.batch_write import PaimonWriter, build_writer
from paimon_orch.spark.datasource.register import register
from paimon_orch.spark.datasource.session_settings import (
    PlannedSettings,
    match_columns,
    read_default_location,
)
from paimon_orch.spark.frame_writer import match_frame_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return new_table(tmp_path, "id BIGINT, v STRING", key=("id",))


def locate(table: Table) -> dict[str, str]:
    return {"warehouse": table.paths.root.removesuffix("/db.db/t"), "table": "db.t"}


def test_column_names_ignore_case_unless_the_session_is_case_sensitive(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"spark.sql.caseSensitive": "false"}
    monkeypatch.setattr(session_settings, "get_task_property", settings.get)
    writer = build_writer(locate(table), ["V", "ID"], overwrite=False)
    assert isinstance(writer, PaimonWriter)
    batches = table_of("V ID", [("a", 1)]).to_batches()

    writer.commit([writer.write(iter(batches))])

    assert rows_of(table) == [(1, "a")]
    reader = build_reader(locate(table), StructType().add("V", "string"))
    (part,) = reader.partitions()
    assert pa.Table.from_batches(reader.read(part)).to_pylist() == [{"V": "a"}]
    settings["spark.sql.caseSensitive"] = "true"
    with pytest.raises(InputError, match=r"no column 'V', only 'v'.*case-sensitive"):
        writer.write(iter(batches))
    with pytest.raises(InputError, match=r"no column 'V', only 'v'.*case-sensitive"):
        list(reader.read(part))


def test_columns_of_frames_ignore_case_unless_the_session_is_case_sensitive(
    spark: SparkSession, table: Table
) -> None:
    rows = spark.sql("SELECT CAST(1 AS bigint) AS ID, 'a' AS V")

    assert match_frame_columns(rows, table).columns == ["id", "v"]
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert match_frame_columns(rows, table).columns == ["ID", "V"]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_names_that_differ_only_in_case_are_matched_exactly_or_refused() -> None:
    assert match_columns(["ID", "id", "new"], ["id", "ID"]) == ["ID", "id", "new"]
    assert match_columns(["V", "Id"], ["id", "v"]) == ["v", "id"]
    with pytest.raises(InputError, match="column 'Id' could be 'id' or 'ID'"):
        match_columns(["Id"], ["id", "ID"])
    with pytest.raises(InputError, match="'id' and 'ID' are both column 'id' of the table"):
        match_columns(["id", "ID"], ["id"])


def test_a_time_in_another_zone_than_the_session_is_refused_in_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zones = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    monkeypatch.setattr(session_settings, "get_task_property", zones.get)
    with pendulum.test_local_timezone(pendulum.timezone("Europe/Berlin")):
        with pytest.raises(InputError, match="timestampAsOf '2026-01-31' has no time zone"):
            PlannedSettings(local_time="2026-01-31").verify_in_task()
        PlannedSettings().verify_in_task()
        zones["spark.sql.session.timeZone"] = "Europe/Berlin"
        PlannedSettings(local_time="2026-01-31").verify_in_task()


@pytest.mark.slow
def test_a_registered_session_has_a_default_catalog(spark: SparkSession, table: Table) -> None:
    table.append(table_of("id v", [(1, "a")]))
    session = open_second_session(spark)
    session.conf.set("spark.paimon_orch.warehouse", locate(table)["warehouse"])

    register(session)

    assert session.read.format("paimon").load("db.t").collect() == [(1, "a")]
    assert session.read.format("paimon").load(table.paths.root).count() == 1
    session.conf.set("spark.paimon_orch.catalog", "prod")
    with pytest.raises(InputError, match=r"set only one of spark\.paimon_orch\.catalog and"):
        read_default_location(session)
