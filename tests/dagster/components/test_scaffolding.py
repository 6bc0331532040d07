"""The command ``dg`` finds the components, and their scaffolds can be loaded."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from paimon_orch.dagster import PaimonTableComponent
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


def test_components_are_registered_for_dg() -> None:
    entries = entry_points(group="dagster_dg_cli.registry_modules", name="paimon_orch")
    if not entries:
        pytest.skip("the package is not installed")
    [entry] = entries

    module = entry.load()

    assert issubclass(module.PaimonTableComponent, dg.Component)
    assert issubclass(module.PaimonDatabaseComponent, dg.Component)
