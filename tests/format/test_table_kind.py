"""The kind of a table follows from its keys and options."""

import pytest

from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.table_kind import TableKind
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot

_TRACKED = {"row-tracking.enabled": "true"}
_KINDS = [
    ((), {}, TableKind.APPEND),
    ((), {"bucket": "2", "bucket-key": "k"}, TableKind.APPEND),
    ((), _TRACKED, TableKind.ROW_TRACKING),
    ((), {**_TRACKED, "data-evolution.enabled": "true"}, TableKind.DATA_EVOLUTION),
    (("k",), {"bucket": "1"}, TableKind.PRIMARY_KEY),
    (("k",), {"bucket": "-2"}, TableKind.PRIMARY_KEY),
]


def _build_schema(key: tuple[str, ...], options: dict[str, str]) -> TableSchema:
    fields = [Field(id=0, name="k", type=AtomicType(False, TypeRoot.INT))]
    return build_table_schema(fields, primary_key=key, options=options)


@pytest.mark.parametrize(("key", "options", "kind"), _KINDS)
def test_the_kind_follows_from_keys_and_options(
    key: tuple[str, ...], options: dict[str, str], kind: TableKind
) -> None:
    assert _build_schema(key, options).kind is kind


@pytest.mark.parametrize(
    ("key", "options", "size"),
    [
        ((), {}, 256 << 20),
        (("k",), {"bucket": "1"}, 128 << 20),
        ((), {"target-file-size": "1 mb"}, 1 << 20),
    ],
)
def test_the_default_size_of_files_depends_on_the_kind(
    key: tuple[str, ...], options: dict[str, str], size: int
) -> None:
    assert _build_schema(key, options).target_file_size == size


@pytest.mark.parametrize(
    ("key", "options", "is_dynamic", "is_hashed"),
    [
        ((), {}, False, False),
        ((), {"bucket": "2", "bucket-key": "k"}, False, True),
        (("k",), {"bucket": "2"}, False, True),
        (("k",), {}, True, True),
    ],
)
def test_buckets_are_dynamic_or_follow_from_a_key(
    key: tuple[str, ...], options: dict[str, str], is_dynamic: bool, is_hashed: bool
) -> None:
    schema = _build_schema(key, options)
    assert (schema.is_bucket_dynamic, schema.has_hashed_buckets) == (is_dynamic, is_hashed)


@pytest.mark.parametrize(
    ("key", "options", "answers"),
    [
        ((), {"deletion-vectors.enabled": "true"}, (False, False, False)),
        ((), {"clustering.incremental": "true", "clustering.columns": "k"}, (True, False, False)),
        (("k",), {"bucket": "1"}, (False, False, False)),
        (("k",), {"bucket": "1", "merge-engine": "first-row"}, (False, True, False)),
        (("k",), {"bucket": "1", "deletion-vectors.enabled": "true"}, (False, True, True)),
    ],
)
def test_levels_are_sorted_shown_and_merged_by_the_kind(
    key: tuple[str, ...], options: dict[str, str], answers: tuple[bool, bool, bool]
) -> None:
    schema = _build_schema(key, options)
    assert (schema.is_clustered, schema.shows_compacted_rows, schema.has_unmerged_levels) == answers
    assert schema.value_names == ([] if key else ["k"])
