import logging
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from pydantic import ValidationError
from support.tables import get_file_system

from paimon_orch.dagster import PaimonCatalogResource, SparkSessionResource
from paimon_orch.dagster.resources import ExecutorChoice
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.storage.object_store import FsspecFileIO
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_missing_table_is_refused(paimon: PaimonCatalogResource) -> None:
    with pytest.raises(NotFoundError, match=r"there is no table lake\.orders"):
        paimon.load_table("lake.orders")


def test_the_warehouse_can_be_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_WAREHOUSE", "/somewhere")

    @dg.asset
    def find_root(paimon: PaimonCatalogResource) -> str:
        return paimon.catalog().uri

    resource = PaimonCatalogResource(warehouse=dg.EnvVar("SOME_WAREHOUSE"))
    result = dg.materialize([find_root], resources={"paimon": resource})

    assert result.output_for_node("find_root") == "/somewhere"


def test_storage_options_are_used_but_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("SOME_SECRET", "very-secret-word")

    @dg.asset
    def options(paimon: PaimonCatalogResource) -> dict[str, object]:
        io = get_file_system(paimon.catalog()).io
        assert isinstance(io, FsspecFileIO)
        assert "very-secret-word" not in f"{paimon!r}{io!r}"
        return dict(io.options.resolve())

    resource = PaimonCatalogResource(
        warehouse="memory://options/wh",
        storage_options={"secret": dg.EnvVar("SOME_SECRET"), "anon": "true"},
    )
    result = dg.materialize([options], resources={"paimon": resource})

    assert result.output_for_node("options") == {"secret": "very-secret-word", "anon": True}


@pytest.fixture
def orders_in_prod(orders: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Return a table of the configured catalog ``prod``."""
    monkeypatch.setenv("PAIMON_ORCH_HOME", str(tmp_path))
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__PROD__WAREHOUSE", str(tmp_path / "warehouse"))
    return orders


@dg.op
def list_tables(paimon: PaimonCatalogResource) -> list[str]:
    return paimon.catalog().tables("lake")


@dg.job
def listing() -> None:
    list_tables()


def list_in_run(resource: Any, **config: object) -> list[str]:
    run_config = {"resources": {"paimon": {"config": config}}} if config else None
    result = listing.execute_in_process(run_config=run_config, resources={"paimon": resource})
    tables: list[str] = result.output_for_node("list_tables")
    return tables


def test_a_configured_catalog_is_opened_by_its_name(
    orders_in_prod: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_CATALOG", "prod")

    assert list_in_run(PaimonCatalogResource(catalog="prod")) == ["orders"]
    assert list_in_run(PaimonCatalogResource(catalog=dg.EnvVar("SOME_CATALOG"))) == ["orders"]
    assert list_in_run(PaimonCatalogResource.configure_at_launch(), catalog="prod") == ["orders"]
    label = PaimonCatalogResource(catalog="prod").load_table("lake.orders").stores.label
    assert label.format_command("compact") == "paimon-orch compact prod lake.orders"


def test_a_catalog_is_opened_by_its_metastore(
    orders: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"KIND": "filesystem", "PLACE": str(tmp_path / "warehouse")}.items():
        monkeypatch.setenv(name, value)
    resource = PaimonCatalogResource(
        metastore=dg.EnvVar("KIND"),
        warehouse=dg.EnvVar("PLACE"),
        catalog_options={"cache.password": dg.EnvVar("PLACE")},
    )

    assert list_in_run(resource) == ["orders"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("field", ["token", "uri", "catalog_options"])
def test_secrets_of_a_catalog_are_not_in_representations_events_or_errors(
    field: str,
    tmp_path: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = "very" * 3  # tracebacks show the lines of this test
    monkeypatch.setenv("SOME_SECRET", secret)
    variable = dg.EnvVar("SOME_SECRET")
    fields: dict[str, Any] = {
        field: {"jdbc.password": variable} if field == "catalog_options" else variable
    }
    resource = PaimonCatalogResource(metastore="filesystem", warehouse=str(tmp_path), **fields)
    resolved = resource.process_config_and_initialize()

    assert secret in str(resolved.model_dump())
    assert secret not in f"{resource!r}{resolved!r}{resolved}"
    with pytest.raises(InputError, match="has no option") as error:
        resolved.catalog()
    with caplog.at_level(logging.DEBUG):
        result = listing.execute_in_process(
            resources={"paimon": resource}, instance=instance, raise_on_error=False
        )
    assert not result.success
    events = repr(instance.all_logs(result.run_id))
    assert "has no option" in events
    shown = "".join(traceback.format_exception(error.value))
    assert secret not in f"{shown}{caplog.text}{events}{instance.get_run_by_id(result.run_id)!r}"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "set one of catalog .*, warehouse .* and metastore"),
        ({"catalog": "prod", "warehouse": "/x"}, "so warehouse cannot be set"),
        ({"catalog": "prod", "metastore": "rest"}, "so metastore cannot be set"),
        ({"warehouse": "/x", "token": "very-secret"}, "token requires metastore"),
        ({"catalog_options": {"lock.enabled": "true"}}, "lock.enabled requires metastore"),
        (
            {"metastore": "rest", "uri": "very-secret", "catalog_options": {"uri": "b"}},
            "set uri as a field",
        ),
        ({"metastore": "rest", "catalog_options": {"warehouse": "b"}}, "set warehouse as a field"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        PaimonCatalogResource(**fields)
    assert "very-secret" not in str(error.value)


def test_values_of_another_type_are_refused_without_the_value() -> None:
    fields: dict[str, Any] = {"catalog_options": {"token": ["very-secret"]}}
    with pytest.raises(ValidationError, match="valid string") as error:
        PaimonCatalogResource(metastore="rest", **fields)
    assert "very-secret" not in str(error.value)


def test_an_unknown_kind_of_catalog_is_refused() -> None:
    with pytest.raises(InputError, match="metastore 'glue' must be one of"):
        PaimonCatalogResource(metastore="glue").catalog()


def test_the_spark_settings_are_not_printed() -> None:
    resource = SparkSessionResource(spark_config={"spark.hadoop.fs.s3a.secret.key": "very-secret"})

    assert "very-secret" not in repr(resource)


def test_an_executor_without_units_does_not_start_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(SparkSessionResource, "session")

    assert SparkSessionResource().build_executor().map(lambda _: b"", [], label="nothing") == []


def test_the_active_session_is_used_and_not_stopped(spark: "SparkSession") -> None:
    @dg.asset
    def length(spark: SparkSessionResource) -> int:
        results = spark.build_executor(ExecutorChoice.spark).map(bytes, [3], label="bytes")
        return len(results[0])

    settings = {"spark.sql.shuffle.partitions": "7"}
    resource = SparkSessionResource(spark_config=settings)
    result = dg.materialize([length], resources={"spark": resource})

    assert result.output_for_node("length") == 3
    assert spark.range(2).count() == 2
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("local[*]", None, {}, False)),
        (
            {"master": "spark://host:7077", "spark_config": {"spark.executor.memory": "1g"}},
            ("spark://host:7077", None, {"spark.executor.memory": "1g"}, False),
        ),
        (
            {"remote": "sc://host:15002", "ship_package": True},
            ("local[*]", "sc://host:15002", {}, True),
        ),
    ],
)
def test_the_spark_session_is_started_with_the_configuration(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], expected: tuple[object, ...]
) -> None:
    calls: list[tuple[object, ...]] = []

    def start(master: str, remote: str, config: dict[str, str], *, ship_package: bool) -> None:
        calls.append((master, remote, config, ship_package))

    monkeypatch.setattr("paimon_orch.spark.active_session", lambda: None)
    monkeypatch.setattr("paimon_orch.spark.spark_session", start)

    @dg.op
    def use(spark: SparkSessionResource) -> None:
        spark.session()

    @dg.job
    def job() -> None:
        use()

    resources = {"spark": SparkSessionResource.configure_at_launch()}
    settings = {"resources": {"spark": {"config": fields}}}
    job.execute_in_process(run_config=settings, resources=resources)

    assert calls == [expected]
