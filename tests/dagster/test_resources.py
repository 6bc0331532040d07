from typing import TYPE_CHECKING

import dagster as dg
import pytest
from support.tables import get_file_system

from paimon_orch.dagster import PaimonCatalogResource, SparkSessionResource
from paimon_orch.errors import NotFoundError
from paimon_orch.storage.object_store import FsspecFileIO

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


def test_the_spark_settings_are_not_printed() -> None:
    resource = SparkSessionResource(spark_config={"spark.hadoop.fs.s3a.secret.key": "very-secret"})

    assert "very-secret" not in repr(resource)


def test_an_executor_without_units_does_not_start_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(SparkSessionResource, "session")

    assert SparkSessionResource().executor().map(lambda _: b"", [], label="nothing") == []


def test_the_active_session_is_used_and_not_stopped(spark: "SparkSession") -> None:
    @dg.asset
    def length(spark: SparkSessionResource) -> int:
        results = spark.executor().map(bytes, [3], label="bytes")
        return len(results[0])

    settings = {"spark.sql.shuffle.partitions": "7"}
    resource = SparkSessionResource(spark_config=settings)
    result = dg.materialize([length], resources={"spark": resource})

    assert result.output_for_node("length") == 3
    assert spark.range(2).count() == 2
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


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
