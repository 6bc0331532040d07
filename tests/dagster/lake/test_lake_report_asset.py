"""The report of a lake: what doctor finds, by cost, compared with the last report, with links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from support.dagster.spark_resources import UnavailableSparkResource
from support.lake import ROWS, create_lake

from paimon_orch import Catalog
from paimon_orch.dagster import (
    PaimonCatalogResource,
    PaimonDatabaseComponent,
    PaimonWarehouseComponent,
    build_compaction_asset,
    build_expire_snapshots_job,
    build_lake_report_asset,
)
from paimon_orch.dagster.lake import lake_report_page
from paimon_orch.dagster.names import TABLE_TAG, table_label
from paimon_orch.steps.inspection.doctor.doctor import examine_catalog

KEY = dg.AssetKey("lake_report")


def refresh(
    root: Path,
    instance: dg.DagsterInstance,
    *,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[dict[str, Any], dg.AssetCheckEvaluation]:
    """Materialize the report; return the values of its metadata, and the check."""
    result = dg.materialize(
        [build_lake_report_asset(**options)],
        resources={"paimon": PaimonCatalogResource(warehouse=str(root))},
        run_config={"ops": {"lake_report": {"config": config or {}}}},
        instance=instance,
    )
    [check] = result.get_asset_check_evaluations()
    return read_values(result, "lake_report"), check


def read_values(result: dg.ExecuteInProcessResult, node: str) -> dict[str, Any]:
    """Return the values of the metadata of the materialization; a table is a list of rows."""
    [event] = result.asset_materializations_for_node(node)
    return {
        name: [record.data for record in value.records]
        if isinstance(value, dg.TableMetadataValue)
        else value.value
        for name, value in event.metadata.items()
    }


def create_slow_lake(root: Path) -> Catalog:
    """Create ``sales.orders`` beyond the limit of sorted runs, and the sound ``web.events``."""
    catalog = Catalog(str(root))
    options = {"bucket": "1", "write-only": "true"}
    orders = catalog.create_table(
        "sales.orders", "k BIGINT NOT NULL, v STRING", primary_key=["k"], options=options
    )
    for _ in range(12):
        orders.upsert(ROWS)
    catalog.create_table("web.events", "k BIGINT, v STRING").append(ROWS)
    return catalog


def test_the_report_is_what_doctor_finds_with_the_worst_table_first(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    catalog = create_slow_lake(tmp_path)
    expected = examine_catalog(catalog, catalog.find_tables())

    values, check = refresh(tmp_path, instance)

    findings = values["paimon/findings_by_table"]
    assert [(row["table"], row["rule"], row["text"]) for row in findings] == [
        (each.table, each.rule.value, each.text) for each in expected.findings
    ]
    assert {row["command"] for row in findings} == {
        each.format_command(str(tmp_path)) for each in expected.findings
    }
    orders, events = values["paimon/tables_by_cost"]
    assert (orders["table"], orders["state"]) == ("sales.orders", "warning")
    assert orders["saved_requests"] > 0
    assert orders["requests"] > events["requests"] > 0
    assert (events["table"], events["state"], events["command"]) == ("web.events", "ok", None)
    assert values["paimon/requests"] == orders["requests"] + events["requests"]
    assert (values["paimon/tables_warning"], values["paimon/tables_ok"]) == (1, 1)
    assert values["paimon/summary"] == "2 tables: 1 warning, 1 ok."
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "| 🟡 | sales.orders |" in values["paimon/page"]
    assert "paimon/new_findings" not in values


def test_a_report_says_what_is_new_and_what_has_ended_since_the_last_one(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    catalog = create_slow_lake(tmp_path)
    first, _ = refresh(tmp_path, instance)
    assert catalog.table("sales.orders").compact(strategy="full").snapshot_id
    (tmp_path / "web.db" / "events" / "snapshot" / "LATEST").unlink()

    second, _ = refresh(tmp_path, instance)

    assert {row["rule"] for row in first["paimon/findings_by_table"]} & {
        row["rule"] for row in second["paimon/findings_by_table"] if row["table"] == "sales.orders"
    } == set()
    [hint] = [row for row in second["paimon/findings_by_table"] if row["rule"] == "wrong-hint"]
    assert hint["is_new"] is True
    assert second["paimon/ended_findings"] == first["paimon/findings"]
    by_table = {row["table"]: row for row in second["paimon/tables_by_cost"]}
    assert by_table["sales.orders"]["requests_change"] < 0
    assert by_table["web.events"]["requests_change"] == 0
    assert "wrong-hint (new)" in second["paimon/page"]
    now, before = second["paimon/trend"]
    assert (before["requests"], now["requests"]) == (
        first["paimon/requests"],
        second["paimon/requests"],
    )
    assert (before["findings"], now["findings"]) == (
        first["paimon/findings"],
        second["paimon/findings"],
    )
    assert instance.get_run_by_id(before["run"]) is not None


def test_a_finding_is_new_once_whatever_characters_its_table_has(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    create_slow_lake(tmp_path)
    refresh(tmp_path, instance)
    (tmp_path / "web.db" / "events").rename(tmp_path / "web.db" / "line\nbreak")
    (tmp_path / "web.db" / "line\nbreak" / "snapshot" / "LATEST").unlink()

    reports = [refresh(tmp_path, instance)[0] for _ in range(2)]

    assert "web.line\\nbreak" in [row["table"] for row in reports[0]["paimon/findings_by_table"]]
    assert [each["paimon/new_findings"] for each in reports] == [1, 0]
    assert [each["paimon/ended_findings"] for each in reports] == [0, 0]
    changes = {row["table"]: row["requests_change"] for row in reports[1]["paimon/tables_by_cost"]}
    assert changes["web.line\\nbreak"] == 0


def test_no_finding_is_new_if_the_last_report_could_not_store_all(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_slow_lake(tmp_path)
    (tmp_path / "web.db" / "events" / "snapshot" / "LATEST").unlink()
    monkeypatch.setattr(lake_report_page, "_MAX_ROWS", 1)

    first, second = (refresh(tmp_path, instance)[0] for _ in range(2))

    assert first["paimon/findings"] > len(first["paimon/findings_by_table"]) == 1
    assert "(new)" not in second["paimon/page"]
    assert "paimon/new_findings" not in second
    assert second["paimon/tables_by_cost"][0]["requests_change"] == 0


def test_the_check_fails_for_a_damaged_table_and_the_run_succeeds(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    create_slow_lake(tmp_path)
    [file] = (tmp_path / "web.db" / "events" / "bucket-0").glob("data-*")
    file.unlink()

    quick, _ = refresh(tmp_path, instance)
    values, check = refresh(tmp_path, instance, config={"check_files": True})

    assert quick["paimon/tables_error"] == 0  # files are looked for only if this is asked for
    first = values["paimon/tables_by_cost"][0]
    assert (first["table"], first["state"]) == ("web.events", "error")
    assert "repair" in first["command"]
    assert "🔴" in values["paimon/page"]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)


def test_sound_tables_pass_the_check(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    create_slow_lake(tmp_path)

    values, check = refresh(tmp_path, instance, select=["web.*", "sales.*"], exclude=["sales.*"])

    assert check.passed
    assert values["paimon/summary"] == "1 table: 1 ok."


def test_a_lost_warehouse_fails_the_run(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    with pytest.raises(dg.Failure, match="NotFoundError"):
        refresh(tmp_path / "lost", instance)


def test_the_page_links_assets_and_runs_and_shows_costs_per_day(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    create_lake(tmp_path)
    component = PaimonWarehouseComponent.from_attributes_dict(
        attributes={
            "prices": {"per_gb": 1000.0},
            "lake_report": {"ui_url": "https://dagster.example.com/prod/", "cron": "0 6 * * *"},
        }
    )
    resources = dg.Definitions(
        resources={
            "paimon": PaimonCatalogResource(warehouse=str(tmp_path)),
            "spark": UnavailableSparkResource(),
        }
    )
    defs = dg.Definitions.merge(component.definitions(), resources)
    run = defs.resolve_job_def("paimon_maintenance").execute_in_process(
        run_config={"ops": {"maintain": {"config": {"dry_run": False}}}}, instance=instance
    )
    tagged = instance.create_run_for_job(
        defs.resolve_job_def("paimon_maintenance"), tags={TABLE_TAG: "web.events"}
    )
    schedule = defs.resolve_schedule_def("lake_report_schedule")
    assert schedule.cron_schedule == "0 6 * * *"

    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance, asset_selection=[KEY]
    )

    values = read_values(result, "lake_report")
    page, root = values["paimon/page"], "https://dagster.example.com/prod"
    assert f"({root}/assets/sales/orders)" in page
    assert f"({root}/runs/{run.run_id})" in page
    assert f"({root}/runs/{tagged.run_id})" in page  # later than the run of the job
    assert values["paimon/cost_per_day"] > 0
    costs = {row["table"]: row["cost_per_day"] for row in values["paimon/tables_by_cost"]}
    assert costs["sales.orders"] > 0
    assert costs["paimon_orch.maintenance_history"] == 0


def test_the_last_run_is_one_of_the_same_catalog(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    create_slow_lake(tmp_path)
    runs: dict[str, set[str]] = {}
    for prefix in ("", "eu"):
        key_prefix = [prefix] if prefix else []
        expire = build_expire_snapshots_job("sales.orders", key_prefix=key_prefix)
        asset = build_compaction_asset("web.events", key_prefix=key_prefix)
        resources = {"paimon": PaimonCatalogResource(warehouse="/lake"), "spark": None}
        compact = dg.Definitions([asset], resources=resources)
        created = [
            instance.create_run_for_job(expire, tags=dict(expire.run_tags)),
            instance.create_run_for_job(
                compact.resolve_implicit_global_asset_job_def(),
                tags={TABLE_TAG: table_label("web.events", key_prefix)},
                asset_selection=frozenset({asset.key}),
            ),
        ]
        runs[prefix] = {run.run_id for run in created}

    for prefix, expected in runs.items():
        values, _ = refresh(tmp_path, instance, key_prefix=[prefix] if prefix else [])
        assert set(re.findall(r"/runs/([\w-]+)", values["paimon/page"])) == expected


def test_a_database_has_a_report_of_its_tables(tmp_path: Path) -> None:
    component = PaimonDatabaseComponent.from_attributes_dict(
        attributes={
            "database": "sales",
            "warehouse": str(create_slow_lake(tmp_path).uri),
            "exclude": ["tmp*"],
            "lake_report": {},
        }
    )
    result = dg.materialize(
        [component.definitions({}).resolve_assets_def(dg.AssetKey(["sales", "lake_report"]))]
    )

    assert read_values(result, "sales__lake_report")["paimon/tables"] == 1
