"""Credentials do not appear in representations, errors, log lines or Spark plans."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from functools import partial
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle
from storage.conftest import SECRET, Bucket
from support.tables import get_file_system, rows_of, table_of

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import InputError, StorageError
from paimon_orch.spark.execution import spark_executor
from paimon_orch.spark.execution.tasks import map_units_in_spark
from paimon_orch.steps.compaction import compact
from paimon_orch.storage import resolve_warehouse
from paimon_orch.storage.object_store_options import (
    STORAGE_OPTIONS_ENV,
    StorageOptions,
    parse_storage_option,
)
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def table(s3: Bucket) -> Table:
    catalog = Catalog(s3.root, **s3.options)
    return catalog.create_table(
        "db.t", "k INT, v STRING", primary_key=["k"], options={"bucket": "1"}
    )


@pytest.mark.slow
def test_representations_contain_no_secrets(s3: Bucket, table: Table) -> None:
    catalog = Catalog(s3.root, **s3.options)
    planned = compact.plan(table, compact.CompactRequest())
    for shown in (
        catalog,
        get_file_system(catalog).io,
        table,
        table.stores.snapshots,
        table.stores.reader(),
        planned,
        s3.options and s3,
    ):
        for text in (repr(shown), str(shown), f"{shown}"):
            assert SECRET not in text
            assert s3.options["key"] not in text
    assert "secret=***" in repr(get_file_system(catalog).io)


def test_nested_secrets_are_redacted_but_endpoints_are_not() -> None:
    options = StorageOptions.of(
        {
            "client_kwargs": {"endpoint_url": "http://here", "aws_session_token": SECRET},
            "anon": False,
        }
    )
    assert options.redact(f"http://here refused {SECRET}") == "http://here refused ***"


def test_errors_contain_no_secrets(
    monkeypatch: pytest.MonkeyPatch, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("fsspec")
    from fsspec.implementations.memory import MemoryFileSystem

    def talkative(_: object, path: str, **__: object) -> bytes:
        raise ConnectionError(f"no luck with {path} and the signature {SECRET}")

    monkeypatch.setattr(MemoryFileSystem, "cat_file", talkative)
    io, root = resolve_warehouse("memory://wh", {"secret": SECRET})
    with caplog.at_level(logging.DEBUG), pytest.raises(StorageError) as caught:
        io.read_bytes(f"{root}/file")
    logging.getLogger(__name__).error("failed", exc_info=caught.value)

    text = "".join(traceback.format_exception(caught.value))
    assert "and the signature ***" in text
    assert SECRET not in text + caplog.text


def test_log_lines_contain_no_secrets(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "paimon_orch"):
        table.upsert(table_of("k v", [(1, "a")]))
    assert "committed snapshot 1" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.slow
def test_values_of_the_environment_are_not_pickled(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    inherited = dict(s3.options)
    options = {"endpoint_url": inherited.pop("endpoint_url")}
    monkeypatch.setenv(STORAGE_OPTIONS_ENV, json.dumps(inherited))
    table = Catalog(s3.root, **options).create_table("db.t", "k INT")
    data = pickle.dumps(table)

    assert SECRET.encode() not in data
    again: Table = pickle.loads(data)  # noqa: S301 - our own bytes
    assert again.stores.schemas.ids() == [0]
    assert SECRET not in repr(again)
    monkeypatch.delenv(STORAGE_OPTIONS_ENV)
    with pytest.raises(InputError, match=f"key, secret comes from {STORAGE_OPTIONS_ENV}"):
        again.stores.schemas.ids()


def test_explicit_options_override_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_OPTIONS_ENV, json.dumps({"key": "theirs", "secret": SECRET}))
    options = StorageOptions.of({"key": "ours"})
    assert options.resolve() == {"key": "ours", "secret": SECRET}
    assert options == pickle.loads(pickle.dumps(options))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("text", [f"secret={SECRET}", f'["{SECRET}"]'])
def test_an_invalid_environment_variable_is_not_shown_in_the_error(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STORAGE_OPTIONS_ENV, text)
    with pytest.raises(InputError, match="must be a JSON object") as caught:
        StorageOptions.of({})
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_options_of_the_command_line_are_read() -> None:
    assert parse_storage_option("key=a=b") == ("key", "a=b")
    assert parse_storage_option("anon=true") == ("anon", True)
    assert parse_storage_option('client_kwargs={"verify": false}') == (
        "client_kwargs",
        {"verify": False},
    )
    assert parse_storage_option("key=0815") == ("key", "0815")
    for text in (SECRET, f"={SECRET}", f"secret={{{SECRET}"):
        with pytest.raises(InputError) as caught:
            parse_storage_option(text)
        assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.slow
def test_options_reach_spark_tasks_and_are_not_in_plans(
    spark: SparkSession, table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    for version in "ab":
        table.upsert(table_of("k v", [(key, f"{version}{key}") for key in range(3)]))
    planned = compact.plan(table, compact.CompactRequest(strategy="full"))
    run = partial(compact.run, planned.reader)
    task = spark_executor._build_unit_task(run, [cloudpickle.dumps(planned.units[0])], 1)
    frame = map_units_in_spark(spark, 1, task, spark_executor.RESULT_COLUMNS)
    frame.explain("extended")

    result = compact.compact(table, spark_executor.SparkExecutor(spark), strategy="full")

    assert result.files_after == 1
    assert rows_of(table) == [(0, "b0"), (1, "b1"), (2, "b2")]
    shown = capsys.readouterr()
    assert "MapInArrow" in shown.out
    settings = str(spark.conf.getAll)
    for text in (shown.out, shown.err, settings):
        assert SECRET not in text
