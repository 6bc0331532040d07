"""Validation of the YAML of a component by ``dg check yaml`` and when it is loaded."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import dagster as dg
import pytest
from annotated_types import Ge
from dagster.components.resolved.errors import ResolutionException
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import ValidationError

from paimon_orch.dagster import (
    PaimonDatabaseComponent,
    PaimonTableComponent,
    PaimonWarehouseComponent,
)
from paimon_orch.dagster.components.attribute_rules import (
    AGE_RULE,
    CRON_RULE,
    DURATION_RULE,
    SIZE_RULE,
    TABLE_RULE,
    Attributes,
    TextRule,
)
from paimon_orch.errors import InputError
from paimon_orch.format.options import value_type
from paimon_orch.format.times import parse_duration

BASE = {"table": "lake.orders", "warehouse": "/lake"}
INVALID: list[tuple[dict[str, Any], str, object, str]] = [
    ({"trigger": "sensr"}, "trigger", "sensr", "schedule"),
    ({"table": "orders"}, "table", "orders", "database.table"),
    ({"table": "lake.orders.x"}, "table", "lake.orders.x", "database.table"),
    ({"snapshot_expiration": {"retain_for": "soon"}}, "retain_for", "soon", "24 h"),
    ({"snapshot_expiration": {"retain_for": "24"}}, "retain_for", "24", "a unit"),
    ({"snapshot_expiration": {"cron": "61 * * * *"}}, "cron", "61 * * * *", "17 * * * *"),
    ({"snapshot_expiration": {"cron": "every day"}}, "cron", "every day", "17 * * * *"),
    ({"snapshot_expiration": {"cron": "* * * *"}}, "cron", "* * * *", "17 * * * *"),
    ({"orphan_files": {"older_than": "3 moons"}}, "older_than", "3 moons", "3 d"),
    ({"orphan_files": {"older_than": "yesterday"}}, "older_than", "yesterday", "3 d"),
    ({"partition_expiration": {"expiration_time": "never"}}, "expiration_time", "never", "a unit"),
    (
        {"partition_expiration": {"expiration_time": "90 d", "strategy": "by-time"}},
        "strategy",
        "by-time",
        "values-time",
    ),
    ({"run_on": "mars"}, "run_on", "mars", "subprocess, k8s"),
    ({"freshness": {"fail_after": "late"}}, "fail_after", "late", "a unit"),
    (
        {"freshness": {"deadline_cron": "6 am", "within": "2 h"}},
        "deadline_cron",
        "6 am",
        "17 * * * *",
    ),
    ({"compaction": {"max_rewrite": "much"}}, "max_rewrite", "much", ""),
    ({"compaction": {"max_wait": "1 fortnight"}}, "max_wait", "1 fortnight", "a unit"),
    ({"partitions": {"start": "2026-13-45"}}, "start", "2026-13-45", "2026-01-31"),
    ({"partitions": {"start": "2026-02-30"}}, "start", "2026-02-30", "2026-01-31"),
    ({"partitions": {"start": "yesterday"}}, "start", "yesterday", "2026-01-31"),
    (
        {"partitions": {"start": "2026-01-01", "every": "hour"}},
        "start",
        "2026-01-01",
        "2026-01-31-00:00",
    ),
    ({"partitions": {"start": "2026-01-01", "every": "week"}}, "every", "week", "month"),
    (
        {"partitions": {"columns": {"dt": {"start": "1 May"}, "region": {"values": ["eu"]}}}},
        "start",
        "1 May",
        "2026-01-31",
    ),
    ({"checks": {"levle0": {"limit": 4}}}, "checks", "levle0", "level0_backlog"),
    (
        {"checks": {"sorted_runs": {"limit": 4, "severity": "fatal"}}},
        "severity",
        "fatal",
        "error",
    ),
]
VALID: list[dict[str, Any]] = [
    {"trigger": "none"},
    {"snapshot_expiration": {"retain_for": "90 Minutes", "cron": "@daily"}},
    {"snapshot_expiration": {"retain_for": None, "cron": "*/5 1-3 * JAN-mar MON,5"}},
    {"snapshot_expiration": None},
    {"orphan_files": {"older_than": "2026-01-31T12:00:00+01:00"}},
    {"orphan_files": {"older_than": "3d"}},
    {"orphan_files": {"older_than": "2026-01-31"}},
    {"compaction": {"max_rewrite": "10 GB", "max_wait": "15 min"}},
    {"partitions": {"start": "2026-01-31-23:00", "every": "hour"}},
    {"partitions": {"start": "20260131", "format": "%Y%m%d"}},
    {"partitions": {"columns": {"dt": {"start": "2026-01-31"}, "r": {"dynamic": True}}}},
    {"freshness": {"deadline_cron": "0 6 * * *", "within": "2 h", "timezone": "Europe/Berlin"}},
    {"checks": {"file_references": {"limit": 0}}},
    {"run_on": "subprocess"},
    {"run_on": {"client": "k8s", "image": "lake:1"}},
    {"checks": None},
]


def refusals(
    attributes: Mapping[str, Any], component: type[dg.Component] = PaimonTableComponent
) -> dict[str, str]:
    """The errors of ``dg check yaml``, which validates this schema only, by attribute."""
    model = component.get_model_cls()
    assert model is not None
    validator = Draft202012Validator(model.model_json_schema())
    return {
        ".".join(map(str, error.absolute_path)): error.message
        for error in validator.iter_errors(attributes)
    }


def load(**attributes: Any) -> dg.Definitions:
    return PaimonTableComponent.from_attributes_dict(attributes=BASE | attributes).definitions()


@pytest.mark.parametrize(("attributes", "name", "value", "accepted"), INVALID, ids=str)
def test_the_schema_error_contains_the_attribute_the_value_and_the_accepted_values(
    attributes: dict[str, Any], name: str, value: object, accepted: str
) -> None:
    [(path, message)] = refusals(BASE | attributes).items()

    assert path.rpartition(".")[2] == name
    assert message.startswith(f"{value!r} is not one of ")
    assert accepted in message


@pytest.mark.parametrize(("attributes", "name", "value", "accepted"), INVALID, ids=str)
def test_the_loading_error_contains_the_attribute_and_the_value(
    attributes: dict[str, Any], name: str, value: object, accepted: str
) -> None:
    with pytest.raises(Exception, match=name) as error:
        load(**attributes)

    assert str(value) in str(error.value)
    if isinstance(error.value, InputError) and name not in ("cron", "expiration_time"):
        assert accepted.replace("a unit", "'3 d'").replace("24 h", "12 h") in str(error.value)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("attributes", VALID, ids=str)
def test_valid_values_match_the_schema_and_load(attributes: dict[str, Any]) -> None:
    assert not refusals(BASE | attributes)
    assert load(**attributes).assets


def test_a_minimum_above_the_maximum_is_refused_when_definitions_load() -> None:
    with pytest.raises(InputError, match=r"snapshot_expiration\.retain_min 10 is greater than"):
        load(snapshot_expiration={"retain_min": 10, "retain_max": 5})


def test_all_invalid_attributes_are_reported() -> None:
    errors = refusals(
        {
            "table": "orders",
            "trigger": "sensr",
            "snapshot_expiration": {"retain_for": "soon", "retain_min": "many", "retain": 3},
            "compaction": {"deleted_ratio": 3, "level0_files": 1.5},
            "running": "perhaps",
        }
    )

    assert set(errors) == {
        "table",
        "trigger",
        "snapshot_expiration",  # the attribute "retain" is unknown
        "snapshot_expiration.retain_for",
        "snapshot_expiration.retain_min",
        "compaction.deleted_ratio",
        "compaction.level0_files",
        "running",
    }
    assert errors["snapshot_expiration.retain_min"] == "'many' is not of type 'integer'"
    assert "'retain' was unexpected" in errors["snapshot_expiration"]


def test_templates_are_accepted_for_all_values() -> None:
    assert not refusals(
        {
            "table": "{{ env.TABLE }}",
            "trigger": "{{ env.TRIGGER }}",
            "running": "{{ env.RUNNING }}",
            "partitions": {"start": "{{ env.START }}"},
            "snapshot_expiration": {"retain_for": "{{ env.A }}", "retain_min": "{{ env.B }}"},
            "orphan_files": "{{ policy }}",
            "checks": "{{ checks }}",
        }
    )


def number_attributes(component: type[Attributes]) -> Iterator[tuple[str, float]]:
    """Yield the paths of the attributes with a lower bound, each with the bound."""
    pending = [("", component)]
    while pending:
        path, attributes = pending.pop()
        for name, field in attributes.model_fields.items():
            kinds = [field.annotation, *get_args(field.annotation)]
            pending += [(f"{path}{name}.", kind) for kind in kinds if is_attributes(kind)]
            bounds = [bound.ge for bound in field.metadata if isinstance(bound, Ge)]
            yield from ((path + name, bound) for bound in bounds)  # type: ignore[misc]


def is_attributes(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Attributes)


def yaml_of(path: str, value: str) -> str:
    *parents, name = path.split(".")
    lines = [f"{'  ' * depth}{parent}:" for depth, parent in enumerate(parents)]
    return "\n".join([*lines, f"{'  ' * len(parents)}{name}: {value}"])


YAML_OF_DAGSTER = pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")
COMPONENTS: list[Any] = [PaimonTableComponent, PaimonDatabaseComponent, PaimonWarehouseComponent]
NUMBERS = [(kind, *item) for kind in COMPONENTS for item in number_attributes(kind)]


@YAML_OF_DAGSTER
@pytest.mark.parametrize(("kind", "path", "lowest"), NUMBERS)
def test_numbers_with_bounds_may_be_templates(
    kind: Any, path: str, lowest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {PaimonTableComponent: "table: db.t", PaimonDatabaseComponent: "database: db"}
    start = "\n".join([first.get(kind, ""), "warehouse: /lake"])
    required = {
        "partitions.end_offset": "start: '2026-01-31'",
        "partition_expiration.max_expires": "expiration_time: 30 d",
    }
    if path in required:
        parent, _, name = path.partition(".")
        start, path = f"{start}\n{parent}:\n  {required[path]}", f"  {name}"
    monkeypatch.setenv("N", "1")

    template = "'{{ env.N | int }}'"
    kind.resolve_from_yaml(f"{start}\n{yaml_of(path, template)}")
    with pytest.raises((ValidationError, ResolutionException)):
        kind.resolve_from_yaml(f"{start}\n{yaml_of(path, str(lowest - 1))}")


@YAML_OF_DAGSTER
def test_texts_of_partitions_may_be_templates_and_stay_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("START", "20260131")
    monkeypatch.setenv("VALUE", "0001")
    start = "table: db.t\nwarehouse: /lake\npartitions:\n"
    dated = "  start: '{{ env.START }}'\n  format: '%Y%m%d'"
    listed = "  values: ['{{ env.VALUE }}', '0002', 'x{{ env.START }}']"

    assert PaimonTableComponent.resolve_from_yaml(start + dated).partitions.start == "20260131"
    values = PaimonTableComponent.resolve_from_yaml(start + listed).partitions.values
    assert values == ["0001", "0002", "x20260131"]


@pytest.mark.parametrize("attribute", ["partitions", "freshness"])
def test_the_error_of_a_missing_alternative_lists_all_alternatives(attribute: str) -> None:
    [message] = refusals(BASE | {attribute: {}}).values()

    assert " or " in message
    assert message.endswith("is a required property")


def test_the_database_component_has_the_same_rules() -> None:
    invalid = {"database": "a.b", "trigger": "sensr", "orphan_files": {"older_than": "long"}}

    assert set(refusals(invalid, PaimonDatabaseComponent)) == {
        "database",
        "trigger",
        "orphan_files.older_than",
    }
    with pytest.raises(InputError, match=r"database 'a\.b' is not a database"):
        PaimonDatabaseComponent.from_attributes_dict(attributes={"database": "a.b"})


def matches(rule: TextRule, text: str) -> bool:
    return bool(Draft202012Validator({"type": "string", "pattern": rule.pattern}).is_valid(text))


def accepts(check: Callable[[], object]) -> bool:
    try:
        check()
    except InputError:
        return False
    return True


def test_the_schema_accepts_the_units_of_the_parsers() -> None:
    times = [unit for unit in value_type._DURATION_UNITS if unit]
    sizes = [unit for unit in value_type._MEMORY_UNITS if unit]
    for unit in [*times, *sizes, "moons", "w", "x"]:
        for text in (f"3 {unit}", f"3{unit.upper()}"):
            is_duration = accepts(lambda text=text: parse_duration("x", text))  # type: ignore[misc]
            is_size = accepts(lambda text=text: SIZE_RULE.check("x", text))  # type: ignore[misc]
            assert matches(DURATION_RULE, text) is is_duration, text
            assert matches(SIZE_RULE, text) is is_size, text
            assert matches(AGE_RULE, text) is is_duration, text


_PART = st.sampled_from(
    ["*", "0", "7", "00", "12", "23", "31", "59", "jan", "MON", "l", "L5", "5#2", "?", "1-5", "8-2"]
)
_FIELD = st.lists(
    st.tuples(_PART, st.sampled_from(["", "", "", "/2", "/15"])).map("".join),
    min_size=1,
    max_size=2,
).map(",".join)


@given(st.lists(_FIELD, min_size=5, max_size=5).map(" ".join))
def test_the_schema_accepts_every_cron_schedule_of_dagster(text: str) -> None:
    if accepts(lambda: CRON_RULE.check("cron", text)):
        assert matches(CRON_RULE, text)


@given(st.text(alphabet="ab.-_ 0é\n", max_size=8))
def test_the_schema_accepts_every_valid_table_name(text: str) -> None:
    assert matches(TABLE_RULE, text) or not accepts(lambda: TABLE_RULE.check("table", text))


@pytest.mark.slow
def test_dg_check_yaml_refuses_invalid_attributes_and_accepts_valid_attributes(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "project" / "defs" / "orders"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "project"\nversion = "1"\n[tool.dg]\ndirectory_type = "project"\n'
        '[tool.dg.project]\nroot_module = "project"\n'
    )

    def check_yaml(*lines: str) -> subprocess.CompletedProcess[str]:
        text = "type: paimon_orch.dagster.PaimonTableComponent\nattributes:\n"
        (folder / "defs.yaml").write_text(text + "".join(f"  {line}\n" for line in lines))
        return subprocess.run(
            [Path(sys.executable).parent / "dg", "check", "yaml"],
            cwd=tmp_path,
            env=os.environ | {"DAGSTER_DISABLE_TELEMETRY": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    invalid = check_yaml(
        "table: orders",
        "trigger: sensr",
        "partitions: {start: 2026-13-45}",
        "snapshot_expiration: {retain_for: soon, cron: every day}",
        "checks: {levle0: {limit: 3}}",
    )
    valid = check_yaml(
        "table: lake.orders",
        "trigger: schedule",
        "partitions: {start: 2026-01-31}",
        "snapshot_expiration: {retain_for: 24 h, cron: 17 * * * *}",
        "checks: {level0_backlog: {limit: 3}}",
    )

    assert invalid.returncode == 1
    for sentence in (
        "attributes.table 'orders' is not one of ['database.table",
        "attributes.trigger 'sensr' is not one of ['sensor', 'schedule', 'automation', 'none']",
        "attributes.partitions.start '2026-13-45' is not one of",
        "attributes.snapshot_expiration.retain_for 'soon' is not one of ['a whole number and a unit",
        "attributes.snapshot_expiration.cron 'every day' is not one of ['five fields",
        "attributes.checks 'levle0' is not one of ['level0_backlog'",
    ):
        assert sentence in invalid.stdout
    assert valid.returncode == 0, valid.stdout + valid.stderr
