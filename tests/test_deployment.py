"""The containers of docs/compose and the workflows of the repository, checked without either."""

import json
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config

from paimon_orch import Catalog
from paimon_orch.catalog.named_catalogs import (
    CONFIG_FILE,
    HOME_VARIABLE,
    find_named_catalog,
    list_named_catalogs,
)
from paimon_orch.storage.object_store_options import STORAGE_OPTIONS_ENV

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "docs" / "compose"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SECRET = re.compile(r"\$\{(\w+):\?[^}]*\}")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    text = (COMPOSE / "compose.yaml").read_text(encoding="utf-8")
    loaded = yaml.safe_load(SECRET.sub(r"my \1", text))
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture
def environment(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of the Dagster containers."""
    variables: dict[str, str] = compose["services"]["dagster-daemon"]["environment"]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(HOME_VARIABLE, str(COMPOSE))
    return variables


def test_services_use_pinned_images_and_defined_volumes_configs_and_services(
    compose: dict[str, Any],
) -> None:
    for service in compose["services"].values():
        assert "build" in service or re.search(r":\d[\w.]*$", service["image"]), service["image"]
        assert {volume.split(":")[0] for volume in service.get("volumes", ())} <= set(
            compose["volumes"]
        )
        assert set(service.get("depends_on", ())) <= set(compose["services"])
        assert {config["source"] for config in service.get("configs", ())} <= {"store"}
        # The web pages have no passwords, so only this machine may open them.
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_passwords_have_no_default(compose: dict[str, Any]) -> None:
    text = (COMPOSE / "compose.yaml").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "how-to" / "compose.md").read_text(encoding="utf-8")

    assert set(SECRET.findall(text)) == {"STORE_SECRET", "POSTGRES_PASSWORD"}
    assert text.count("${") == len(SECRET.findall(text))
    assert all(f"{name}=%s" in page for name in SECRET.findall(text))


def test_the_catalogs_are_found_with_the_variables_of_the_services(
    compose: dict[str, Any], environment: dict[str, str]
) -> None:
    store = json.loads(compose["configs"]["store"]["content"])["identities"][0]["credentials"][0]
    options = json.loads(environment[STORAGE_OPTIONS_ENV])

    assert {options["key"], options["secret"]} == {store["accessKey"], store["secretKey"]}
    assert options["endpoint_url"].split(":")[1].strip("/") in compose["services"]
    assert list_named_catalogs() == ["hive", "lake"]
    assert Catalog("lake").uri == "s3://lake/warehouse"
    hive = find_named_catalog("hive")
    assert hive is not None
    assert hive["uri"].partition("//")[2].partition(":")[0] in compose["services"]
    assert Catalog("hive").uri == hive["uri"]


@pytest.mark.usefixtures("environment")
def test_the_code_location_defines_the_maintenance_of_a_table() -> None:
    defs = runpy.run_path(str(COMPOSE / "lake.py"))["defs"]

    dg.Definitions.validate_loadable(defs)
    assert dg.AssetKey(["shop", "orders", "orders_compaction"]) in {
        spec.key for spec in defs.resolve_all_asset_specs()
    }


def test_dagster_has_the_documented_configuration(environment: dict[str, str]) -> None:
    config = load(COMPOSE / "dagster.yaml")
    page = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
    [documented] = re.findall(r"```yaml\n(storage:\n  postgres:.*?)```", page, re.DOTALL)

    assert config["storage"] == yaml.safe_load(documented)["storage"]
    assert config["concurrency"] == load(ROOT / "definitions" / "dagster.yaml")["concurrency"]
    fields = config["storage"]["postgres"]["postgres_db"].values()
    assert {field["env"] for field in fields if isinstance(field, dict)} <= set(environment)


@pytest.mark.parametrize("folder", [COMPOSE, ROOT / "definitions"], ids=["compose", "demo"])
def test_dagster_accepts_the_configuration_of_its_instance(
    folder: Path, environment: dict[str, str]
) -> None:
    config, _ = dagster_instance_config(str(folder))

    assert config["telemetry"] == {"enabled": False}
    assert {"concurrency", "python_logs"} <= set(config)


def test_the_image_has_the_files_and_extras_that_it_uses(environment: dict[str, str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (COMPOSE / "Dockerfile").read_text(encoding="utf-8")
    lines = [shlex.split(line) for line in text.replace("\\\n", "").splitlines()]
    copied = {path for words in lines if words[:1] == ["COPY"] for path in words[1:-1]}
    [extras] = re.findall(r"'\.\[([\w,-]+)\]'", text)

    assert all((ROOT / path).exists() for path in copied)
    assert f"docs/compose/{CONFIG_FILE}" in copied
    assert f"WORKDIR {environment['DAGSTER_HOME']}\n" in text
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


def list_steps(workflow: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= (300 if name == "soak" else 90)
        yield from job["steps"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_pin_actions_and_run_targets_of_the_makefile(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflow = load(path)

    assert workflow["permissions"] == {"contents": "read"}
    for step in list_steps(workflow):
        action, _, version = step.get("uses", "a/b@v0.0.0").partition("@")
        assert re.fullmatch(r"v\d+\.\d+\.\d+", version), action
        words = step.get("run", "").split()
        assert words[:1] != ["make"] or words[1] in targets
        assert "secrets." not in str(step)


def test_hooks_before_a_commit_run_the_checks_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.findall(r"^\t\$\(BIN\)/(.+)$", makefile[makefile.index("\nlint:") :], re.MULTILINE)
    [local] = load(ROOT / ".pre-commit-config.yaml")["repos"]

    entries = [hook["entry"].replace(" --force-exclude", "") for hook in local["hooks"]]
    assert entries == [f".venv/bin/{command}" for command in recipe[:3]]


def test_issue_forms_have_a_required_answer() -> None:
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*_re*.yml"))
    assert len(forms) == 2
    for form in map(load, forms):
        assert {"name", "description", "body"} <= form.keys()
        assert any(part.get("validations", {}).get("required") for part in form["body"])


def test_dependencies_are_proposed_for_folders_that_exist() -> None:
    updates = load(ROOT / ".github" / "dependabot.yml")["updates"]
    manifests = {"docker": "Dockerfile", "github-actions": ".github", "pip": "pyproject.toml"}
    for update in updates:
        folder = ROOT / update["directory"].strip("/")
        assert (folder / manifests[update["package-ecosystem"]]).exists()


def test_workflows_run_the_tests_on_every_supported_python(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    versions = {text.rpartition(" ")[2] for text in project["classifiers"] if ":: 3." in text}

    text = (repository / ".github" / "workflows" / "tests.yml").read_text()
    assert set(re.findall(r'"(3\.\d+)"', text)) == versions
