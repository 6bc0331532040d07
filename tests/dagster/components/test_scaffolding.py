"""The command ``dg`` finds the components, and their scaffolds can be loaded."""

import os
import subprocess
import sys
from datetime import date
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import dagster as dg
import pyarrow as pa
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from paimon_orch import Catalog
from paimon_orch.dagster import PaimonDatabaseComponent, PaimonTableComponent
from paimon_orch.errors import InputError

# Dagster's code that loads YAML causes these warnings.
ignore_dagster_warnings = pytest.mark.filterwarnings(
    "ignore:.parse_obj_as. is deprecated", "ignore::dagster.BetaWarning"
)


@ignore_dagster_warnings
def test_a_scaffolded_component_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", "/lake")

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=PaimonTableComponent, scaffold_params={"table": "lake.orders"}
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            assert isinstance(component, PaimonTableComponent)
            assert component.table == "lake.orders"
            dg.Definitions.validate_loadable(defs)


def create_shop(root: Path) -> Catalog:
    """Create two partitioned tables in two databases, and one that Dagster cannot name."""
    catalog = Catalog(str(root))
    for name in ("lake.orders", "web.events"):
        table = catalog.create_table(
            name,
            "dt DATE, id BIGINT",
            partition_by=["dt"],
            options={"snapshot.time-retained": "3 h"},
        )
        table.append(pa.table({"dt": [date(2026, 1, 2), date(2026, 1, 5)], "id": [1, 2]}))
    catalog.create_table("lake.two words", "id BIGINT")
    return catalog


@ignore_dagster_warnings
@pytest.mark.parametrize("from_variable", [True, False])
def test_partitions_and_retention_are_read_from_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, from_variable: bool
) -> None:
    create_shop(tmp_path)
    params = {"table": "lake.orders"}
    if from_variable:
        monkeypatch.setenv("PAIMON_WAREHOUSE", str(tmp_path))
    else:
        params["warehouse"] = str(tmp_path)

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=PaimonTableComponent, scaffold_params=params
        )
        written = yaml.safe_load((path / "defs.yaml").read_text())["attributes"]
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            assert isinstance(component, PaimonTableComponent)
            dg.Definitions.validate_loadable(defs)
            key = dg.AssetKey(["lake", "orders", "orders_compaction"])
            definition = defs.resolve_assets_def(key).partitions_def

    assert written["partitions"] == {"start": "2026-01-02"}
    assert written["snapshot_expiration"] == {"retain_for": "3 h"}
    variable = "{{ env.PAIMON_WAREHOUSE }}"
    assert written["warehouse"] == (variable if from_variable else str(tmp_path))
    assert isinstance(definition, dg.TimeWindowPartitionsDefinition)


@ignore_dagster_warnings
def test_a_table_that_cannot_be_read_fails_only_if_its_warehouse_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create_shop(tmp_path)
    monkeypatch.setenv("PAIMON_WAREHOUSE", str(tmp_path))
    params = {"table": "lake.order"}

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=PaimonTableComponent, scaffold_params=params
        )
        written = yaml.safe_load((path / "defs.yaml").read_text())["attributes"]
        with pytest.raises(click.ClickException, match=r"lake\.order"):
            sandbox.scaffold_component(
                component_cls=PaimonTableComponent,
                scaffold_params={**params, "warehouse": str(tmp_path)},
            )

    assert "partitions" not in written
    assert "the YAML has no partitions of lake.order: " in caplog.text


@ignore_dagster_warnings
def test_each_table_of_a_warehouse_gets_a_component(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = create_shop(tmp_path)
    damaged = catalog.create_table("web.damaged", "id BIGINT")
    (Path(damaged.paths.root) / "schema" / "schema-0").write_text("{")

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=PaimonTableComponent, scaffold_params={"from_warehouse": str(tmp_path)}
        )
        with sandbox.build_all_defs() as defs:
            keys = defs.resolve_asset_graph().get_all_asset_keys()
        written = [*yaml.safe_load_all((path / "defs.yaml").read_text())]

    assert [each["attributes"]["table"] for each in written] == ["lake.orders", "web.events"]
    assert {each["attributes"]["partitions"]["start"] for each in written} == {"2026-01-02"}
    assert {dg.AssetKey(["lake", "orders"]), dg.AssetKey(["web", "events"])} <= keys
    assert "web.damaged has no component: " in caplog.text
    assert "'lake.two words' cannot be part of an asset key" in caplog.text


@ignore_dagster_warnings
def test_each_database_of_a_warehouse_gets_a_component(tmp_path: Path) -> None:
    create_shop(tmp_path)

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=PaimonDatabaseComponent, scaffold_params={"from_warehouse": str(tmp_path)}
        )
        written = [*yaml.safe_load_all((path / "defs.yaml").read_text())]

    assert [each["attributes"]["database"] for each in written] == ["lake", "web"]
    assert {each["attributes"]["warehouse"] for each in written} == {str(tmp_path)}


@ignore_dagster_warnings
@pytest.mark.parametrize("component", [PaimonTableComponent, PaimonDatabaseComponent])
def test_a_lost_warehouse_has_no_components(tmp_path: Path, component: type[dg.Component]) -> None:
    with create_defs_folder_sandbox() as sandbox:
        with pytest.raises(click.ClickException, match="lost"):
            sandbox.scaffold_component(
                component_cls=component,
                defs_path="lake",
                scaffold_params={"from_warehouse": str(tmp_path / "lost")},
            )
        assert not (sandbox.defs_folder_path / "lake").exists()  # a second attempt is not refused


@ignore_dagster_warnings
def test_an_unset_variable_is_named_with_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAIMON_WAREHOUSE", raising=False)

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=PaimonTableComponent, scaffold_params={"table": "lake.orders"}
        )
        with (
            pytest.raises(Exception, match="Error while loading") as error,
            sandbox.load_component_and_build_defs(defs_path=path),
        ):
            pass

    cause = error.value.__cause__
    assert isinstance(cause, InputError)
    message = f"environment variable PAIMON_WAREHOUSE is not set; warehouse in {path}/defs.yaml"
    assert str(cause) == f"{message} uses it"


def test_a_template_may_have_a_default_for_an_unset_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RETAIN", raising=False)
    attributes: dict[str, Any] = {
        "table": "lake.orders",
        "snapshot_expiration": {"retain_for": "{{ env('RETAIN', '24 h') }}"},
    }
    component = PaimonTableComponent.from_attributes_dict(attributes=attributes)
    attributes["snapshot_expiration"]["retain_for"] = "{{ env.RETAIN }} h"

    assert component.snapshot_expiration
    assert component.snapshot_expiration.retain_for == "24 h"
    with pytest.raises(InputError, match=r"RETAIN is not set; snapshot_expiration\.retain_for"):
        PaimonTableComponent.from_attributes_dict(attributes=attributes)


@pytest.mark.slow
def test_dg_accepts_the_component_that_it_scaffolds(tmp_path: Path) -> None:
    """The test runs the commands of a user in a new project."""
    defs = tmp_path / "project" / "defs"
    defs.mkdir(parents=True)
    for folder in (defs, defs.parent):
        (folder / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "project"\nversion = "1"\n[tool.dg]\ndirectory_type = "project"\n'
        '[tool.dg.project]\nroot_module = "project"\n'
    )
    program = Path(sys.executable).parent / "dg"
    environment = {**os.environ, "PAIMON_WAREHOUSE": str(tmp_path / "lake")}

    def run_dg(*arguments: str) -> str:
        result = subprocess.run(
            [program, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    component = "paimon_orch.dagster.PaimonTableComponent"
    run_dg("scaffold", "defs", component, "orders", "--table", "lake.orders")

    assert "table: lake.orders" in (defs / "orders" / "defs.yaml").read_text()
    assert "validated successfully" in run_dg("check", "yaml")
    assert not (tmp_path / "lake").exists()

    create_shop(tmp_path / "shop")
    run_dg("scaffold", "defs", component, "shop", "--from-warehouse", str(tmp_path / "shop"))

    assert (defs / "shop" / "defs.yaml").read_text().count("start: '2026-01-02'") == 2
    assert "validated successfully" in run_dg("check", "yaml")


def test_components_are_registered_for_dg() -> None:
    entries = entry_points(group="dagster_dg_cli.registry_modules", name="paimon_orch")
    if not entries:
        pytest.skip("the package is not installed")
    [entry] = entries

    module = entry.load()

    assert issubclass(module.PaimonTableComponent, dg.Component)
    assert issubclass(module.PaimonDatabaseComponent, dg.Component)
