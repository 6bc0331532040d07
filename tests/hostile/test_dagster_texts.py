"""Texts from storage in Dagster: metadata, descriptions in Markdown, failures."""

from __future__ import annotations

import re
from dataclasses import replace

import dagster as dg
import pytest

from paimon_orch.dagster.error_conversion import raise_dagster_errors
from paimon_orch.dagster.names import check_table_name
from paimon_orch.dagster.run_metadata import build_column_schema, build_metadata_table, to_metadata
from paimon_orch.errors import InputError
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.orchestration.run_reports import RunReport

HOSTILE = "a\x1b[2J\u202e\nb https://me:hunter2-and-more@host/?token=hunter2-and-more"


def is_clean(text: str) -> bool:
    return text.isprintable() and "hunter2" not in text and "***" in text


def test_metadata_has_no_secrets_and_no_characters_that_cannot_be_seen() -> None:
    table = build_metadata_table([{"path": HOSTILE}], {"path": "string"})
    metadata = to_metadata(RunReport(summary=HOSTILE))
    assert is_clean(str(table.records[0].data["path"]))
    assert is_clean(str(metadata["paimon/summary"]))


def test_columns_are_described_as_text_and_not_as_markdown() -> None:
    [field] = parse_columns("v INT")
    fields = [replace(field, name="v\u202e", description=f"`x` <b> | [c](javascript:d) {HOSTILE}")]
    [column] = build_column_schema(build_table_schema(fields)).columns
    assert column.name == "v\\u202e"
    assert column.description is not None
    assert "hunter2" not in column.description
    assert column.description.isprintable()
    assert not re.search(r"[`<>|\[\]]", column.description)


@pytest.mark.parametrize("error", [InputError(HOSTILE), ValueError(HOSTILE), KeyError(HOSTILE)])
def test_failures_have_no_secrets_and_no_characters_that_cannot_be_seen(error: Exception) -> None:
    with pytest.raises(dg.Failure) as caught, raise_dagster_errors("db.t"):
        raise error
    assert caught.value.description is not None
    assert is_clean(caught.value.description)


@pytest.mark.parametrize(
    "name", ["db.a\x1b", "db.a\u202e", "db.a b", "db.[x](y)", "db.é", "db.a\n"]
)
def test_keys_of_assets_have_plain_names(name: str) -> None:
    with pytest.raises(InputError, match="cannot be part of an asset key"):
        check_table_name(name)
