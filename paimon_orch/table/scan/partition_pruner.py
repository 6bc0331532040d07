"""Selects partitions by a predicate, and the manifests that may name files of partitions.

Manifests are selected by the partition statistics of manifest lists. See docs/format/scan.md.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_orch.files.arrow_conversion import build_constant_column
from paimon_orch.files.stats.file_bounds import find_manifest_bounds
from paimon_orch.files.stats.stats_evaluator import may_contain
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.schema import KEY_PREFIX, TableSchema
from paimon_orch.format.text import is_utf8
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot
from paimon_orch.format.types.predicate import (
    And,
    Leaf,
    Operator,
    Or,
    Predicate,
    restrict_to_columns,
    to_arrow_expression,
)
from paimon_orch.table.metadata.manifest_io import ManifestSelector

_MAX_PARTITIONS = 1_000  # with more partitions, all manifests are selected
_INTEGER_BITS = {TypeRoot.TINYINT: 7, TypeRoot.SMALLINT: 15, TypeRoot.INT: 31, TypeRoot.BIGINT: 63}


def filter_partitions(
    partitions: Iterable[bytes], schema: TableSchema, predicate: Predicate | None
) -> set[bytes]:
    """Return the partitions that may have rows that match a predicate."""
    distinct = list(dict.fromkeys(partitions))
    keys = set(schema.partition_keys)
    restricted = None if predicate is None else restrict_to_columns(predicate, keys)
    if restricted is None or not distinct:
        return set(distinct)
    number = f"{KEY_PREFIX}NUMBER"  # no column of a table has this name
    table = build_partition_table(distinct, schema).append_column(
        number, pa.array(range(len(distinct)))
    )
    matching = table.filter(to_arrow_expression(restricted)).column(number).to_pylist()
    return {distinct[index] for index in matching}


def build_partition_table(partitions: Sequence[bytes], schema: TableSchema) -> pa.Table:
    """Return one row of typed values for each serialized partition."""
    fields = schema.partition_fields
    rows = [schema.decode_partition(data) for data in partitions]
    columns = [
        pa.concat_arrays([build_constant_column(row[i], field.type, 1) for row in rows])
        for i, field in enumerate(fields)
    ]
    return pa.table(columns, names=[field.name for field in fields])


def build_partition_filter(partitions: Sequence[bytes], schema: TableSchema) -> Predicate:
    """Return a filter that selects the rows of one or more serialized partitions."""
    *leading_names, last_name = schema.partition_keys
    values = build_partition_table(partitions, schema)
    # This dictionary has the values of the last column by the values of the other columns.
    last_values = defaultdict[tuple[Any, ...], list[Any]](list)
    for row in range(len(partitions)):
        leading_values = tuple(values.column(name)[row] for name in leading_names)
        last_values[leading_values].append(values.column(last_name)[row])
    return Or(
        tuple(
            And(
                (
                    *(
                        _build_in_predicate(name, [value])
                        for name, value in zip(leading_names, leading_values, strict=True)
                    ),
                    _build_in_predicate(last_name, members),
                )
            )
            for leading_values, members in last_values.items()
        )
    )


def _build_in_predicate(name: str, values: Sequence["pa.Scalar[pa.DataType]"]) -> Predicate:
    valid_values = tuple(value for value in values if value.is_valid)
    leaves = [Leaf(name, Operator.IN, valid_values)] if valid_values else []
    if len(valid_values) < len(values):
        leaves.append(Leaf(name, Operator.IS_NULL))
    return Or(tuple(leaves))


def build_spec_manifest_selector(
    specs: Iterable[Mapping[str, object]], schema: TableSchema
) -> ManifestSelector:
    """Return a selector of manifests that may name files of partitions that match specs.

    Compares only text and whole numbers: other values can be written in several ways.
    """
    types = {field.name: field.type for field in schema.partition_fields}
    null = schema.typed_options.default_partition_name
    return _build_manifest_selector(
        [
            {
                name: _parse_exact_value(text, types[name])
                for name, text in spec.items()
                if text != null
            }
            for spec in specs
        ],
        schema,
    )


def build_partition_manifest_selector(
    partitions: Collection[bytes], schema: TableSchema
) -> ManifestSelector:
    """Return a selector of manifests that may name files of serialized partitions."""
    if len(partitions) > _MAX_PARTITIONS:
        return list
    fields = schema.partition_fields
    names, types = [field.name for field in fields], [field.type for field in fields]
    is_exact = [
        _get_type_root(kind) in {TypeRoot.VARCHAR, TypeRoot.DATE, *_INTEGER_BITS} for kind in types
    ]
    return _build_manifest_selector(
        [
            dict(compress(zip(names, schema.decode_partition(partition), strict=True), is_exact))
            for partition in partitions
        ],
        schema,
    )


def _build_manifest_selector(
    partitions: Sequence[Mapping[str, object]], schema: TableSchema
) -> ManifestSelector:
    """Return a selector of manifests; None and text that is not UTF-8 match any value."""
    names = [field.name for field in schema.partition_fields]
    rows = {name: [_replace_non_utf8(values.get(name)) for values in partitions] for name in names}
    untested = [all(column[i] is None for column in rows.values()) for i in range(len(partitions))]
    if not partitions or any(untested):
        return list

    def select(manifests: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        counts = [meta.num_added_files + meta.num_deleted_files for meta in manifests]
        bounds_of = find_manifest_bounds(manifests, schema)
        return list(compress(manifests, may_contain(rows, bounds_of, np.array(counts, np.int64))))

    return select


def _replace_non_utf8(value: object) -> object:
    return None if isinstance(value, str) and not is_utf8(value) else value


def _get_type_root(data_type: DataType) -> TypeRoot | None:
    return data_type.name if isinstance(data_type, AtomicType) else None


def _parse_exact_value(text: object, data_type: DataType) -> str | int | None:
    if not isinstance(text, str):
        return None
    root = _get_type_root(data_type)
    if root == TypeRoot.VARCHAR:
        return text
    bits = None if root is None else _INTEGER_BITS.get(root)
    digits = text.removeprefix("-")
    if bits is None or not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return None
    return int(text) if -(2**bits) <= int(text) < 2**bits else None
