"""The registry has every option of every Paimon release, with its type and default."""

import ast
import json
import re
from typing import Any

import pytest
from support.packed_data import data_file
from support.syntax_trees import nodes_by_module

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options, core_options
from paimon_orch.format.options.core_options import FAMILIES
from paimon_orch.format.options.option_lookup import (
    OPTION_REGISTRY,
    find_nearest_option,
    find_option,
    may_be_newer_option,
)
from paimon_orch.format.options.table_option import OptionClass, StepKind
from paimon_orch.format.options.value_type import (
    BOOLEAN,
    DURATION,
    INTEGER,
    MEMORY,
    NUMBER,
    PER_LEVEL,
    TEXT,
    ValueType,
)

RELEASES = ("0.9.0", "1.0.1", "1.1.1", "1.2.0", "1.3.2", "1.4.2", "2.0.0", "2.1-dev")
_TYPES: dict[str, ValueType[Any]] = {
    "Boolean": BOOLEAN,
    "Integer": INTEGER,
    "Long": INTEGER,
    "Double": NUMBER,
    "Float": NUMBER,
    "MemorySize": MEMORY,
    "Duration": DURATION,
    "String": TEXT,
    "Enum": TEXT,
    "Map": PER_LEVEL,
}
_INFINITE = {"Integer": str(2**31 - 1), "MemorySize": str(2**63 - 1)}


def _load_documented_options() -> list[dict[str, Any]]:
    options: list[dict[str, Any]] = json.loads(data_file("options.json"))["options"]
    return options


@pytest.mark.parametrize("release", RELEASES)
def test_every_option_of_a_release_is_registered_with_its_type_and_default(release: str) -> None:
    number = RELEASES.index(release)
    option_count = 0
    for documented in _load_documented_options():
        first, last = (RELEASES.index(documented[key]) for key in ("first_seen", "last_seen"))
        if not first <= number <= last:
            continue
        option_count += 1
        option = OPTION_REGISTRY.get(documented["key"])
        assert option is not None, f"{documented['key']} of Paimon {release} is not registered"
        assert option.type.name == _TYPES[documented["type"]].name, option.key
        default = documented["default"].strip('"')
        if default == "infinite":
            default = _INFINITE[documented["type"]]
        assert option.default == (None if default in ("(none)", "") else default), option.key
    assert option_count > 100


def test_all_listed_releases_are_tested() -> None:
    documented = _load_documented_options()
    assert {option[key] for option in documented for key in ("first_seen", "last_seen")} <= set(
        RELEASES
    )


def test_default_values_block_no_step() -> None:
    every = ~StepKind.NONE
    for option in (*OPTION_REGISTRY.values(), *FAMILIES):
        assert not option.blocks(option.default or "", every), option.key
        if option.option_class in (OptionClass.EXTERNAL, OptionClass.CHANGES_FORMAT):
            assert option.steps, option.key
            assert option.consequence, option.key


@pytest.mark.parametrize(
    ("key", "same", "other"),
    [
        ("query-auth.enabled", "FALSE", "true"),
        ("type", "Table", "format-table"),
        ("scan.mode", "Default", "from-snapshot"),
        ("file.format", "ORC", "csv"),
        ("file.format.per.level", "0:avro,5:Parquet", "0:avro,5:csv"),
    ],
)
def test_values_are_compared_by_their_type(key: str, same: str, other: str) -> None:
    option = OPTION_REGISTRY[key]
    every = ~StepKind.NONE
    assert not option.blocks(same, every)
    assert option.blocks(other, every)


@pytest.mark.parametrize(
    ("key", "registered"),
    [
        ("fields.a.aggregate-function", "fields.<column>.aggregate-function"),
        ("fields.a,b.sequence-group", "fields.<columns>.sequence-group"),
        ("fields.a.b.map.storage-layout", "fields.<column>.map.storage-layout"),
        ("file-index.bloom-filter.columns", "file-index.<type>.columns"),
        ("file-index.bloom-filter.a.fpp", "file-index.<type>.<column>.<setting>"),
        ("commit.callback.org.example.Mine.param", "commit.callback.<class>.param"),
        ("parquet.compression.codec.zstd.level", "parquet.<setting>"),
    ],
)
def test_options_with_a_column_name_in_their_key_belong_to_a_family(
    key: str, registered: str
) -> None:
    option = find_option(key)
    assert option is not None
    assert option.key == registered
    assert not may_be_newer_option(key)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("deletion-vector.enabled", "deletion-vectors.enabled"),
        ("merge-engin", "merge-engine"),
        ("fields.a.aggregation-function", "fields.a.aggregate-function"),
    ],
)
def test_misspelled_keys_are_detected_with_the_nearest_option(key: str, nearest: str) -> None:
    assert may_be_newer_option(key)
    assert find_nearest_option(key) == nearest


@pytest.mark.parametrize("key", ["owner", "comment", "my.team", "x", "dlf.region"])
def test_other_unknown_keys_are_user_properties(key: str) -> None:
    assert not may_be_newer_option(key)


def test_the_error_of_a_value_of_the_wrong_type_contains_the_option() -> None:
    with pytest.raises(InputError, match=re.escape("'chain-table.enabled' = 'perhaps'")):
        OPTION_REGISTRY["chain-table.enabled"].parse("perhaps")


@pytest.mark.parametrize(
    ("key", "good", "bad", "message"),
    [
        ("num-levels", "2", "1", "at least 2"),
        ("compaction.small-file-ratio", "1", "1.5", "from 0 to 1"),
        ("compaction.offpeak.end.hour", "23", "24", "from -1 to 23"),
    ],
)
def test_the_error_of_an_option_out_of_range_contains_its_key(
    key: str, good: str, bad: str, message: str
) -> None:
    OPTION_REGISTRY[key].check(good)
    with pytest.raises(InputError, match=re.escape(f"{key!r} = {bad} must be {message}")):
        OPTION_REGISTRY[key].check(bad)


@pytest.mark.xdist_group("syntax")
def test_modules_read_options_only_through_the_register() -> None:
    keys = {key for key in OPTION_REGISTRY if "." in key or "-" in key}
    reads = [
        f"{path}:{call.lineno}: {key}"
        for path, nodes in nodes_by_module().items()
        for call in nodes
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if call.func.attr == "get" and call.args and isinstance(call.args[0], ast.Constant)
        if (key := call.args[0].value) in keys
        if path.parent.name != "datasource"  # options of a Spark read have separate keys
    ]
    assert reads == []


def test_an_option_that_a_table_does_not_set_has_the_default_of_the_register() -> None:
    assert Options({}).get(core_options.COMPACTION_SMALL_FILE_RATIO) == 0.7
    assert Options({}).get(core_options.TARGET_FILE_SIZE) is None
    assert Options({}).get(core_options.TARGET_FILE_SIZE, 5) == 5
    assert Options({}).get(core_options.SEQUENCE_FIELD) == ()
    assert Options({"sequence.field": "a, b"}).get(core_options.SEQUENCE_FIELD) == ("a", "b")


def test_a_member_of_a_family_is_read_by_its_name() -> None:
    option = core_options.FIELD_DISTINCT.named("a.b")
    assert option.key == "fields.a.b.distinct"
    assert Options({"fields.a.b.distinct": "true"}).get(option)
    assert not Options({}).get(option)
