"""The file indexes that table options declare.

See docs/format/file-index.md#options-of-file-indexes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from paimon_orch.errors import InputError
from paimon_orch.format.file_index.index_keys import BITMAP, INDEX_TYPES, check_indexable_type
from paimon_orch.format.java_hash import compute_index_hash_map_order, compute_java_string_hash
from paimon_orch.format.options import Options
from paimon_orch.format.options.option_builders import honoured
from paimon_orch.format.options.value_type import INTEGER, MEMORY, NUMBER
from paimon_orch.format.types.data_types import AtomicType, Field, MapType, TypeRoot

LATEST_BITMAP_VERSION = 2
BITMAP_VERSION = honoured("version", INTEGER, str(LATEST_BITMAP_VERSION))
BITMAP_INDEX_BLOCK_SIZE = honoured("index-block-size", MEMORY, "16 kb")
BLOOM_FILTER_ITEMS = honoured("items", INTEGER, "1000000")
BLOOM_FILTER_FPP = honoured("fpp", NUMBER, "0.1")
RANGE_BITMAP_CHUNK_SIZE = honoured("chunk-size", MEMORY)
_PREFIX, _COLUMNS = "file-index.", ".columns"


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """One index of one column, or of one key of a map column."""

    index: str
    column: str
    key: str | None
    options: Options = field(default_factory=lambda: Options({}))

    @property
    def name(self) -> str:
        """Return the name in the container: ``column`` or ``column[key]``."""
        return self.column if self.key is None else f"{self.column}[{self.key}]"

    def value_type(self, fields: Sequence[Field]) -> AtomicType:
        """Return the type of the indexed values.

        Raises :class:`InputError` if the column does not exist or its type cannot be indexed.
        """
        data_type = next((f.type for f in fields if f.name == self.column), None)
        where = f"'{_PREFIX}{self.index}{_COLUMNS}' names {self.name!r}"
        if data_type is None:
            raise InputError(f"{where}, which is not a column of the table")
        if self.key is not None:
            if not isinstance(data_type, MapType) or not (
                isinstance(data_type.key, AtomicType)
                and data_type.key.name in (TypeRoot.CHAR, TypeRoot.VARCHAR)
            ):
                raise InputError(f"{where}, but {self.column!r} is not a map with text keys")
            data_type = data_type.value
        try:
            return check_indexable_type(self.index, data_type)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error


def parse_index_specs(options: Mapping[str, str]) -> list[IndexSpec]:
    """Return the indexes that a table's options declare, in the order of the options.

    Raises :class:`InputError` for a blank column name, an unknown type of index, and for options of
    a column that is not declared.
    """
    declared: dict[tuple[str, str, str | None], None] = {}
    for key, text in options.items():
        if key.startswith(_PREFIX) and key.endswith(_COLUMNS):
            index = key[len(_PREFIX) : -len(_COLUMNS)]
            if index not in INDEX_TYPES:
                raise InputError(
                    f"option {key!r}: {index!r} is not a type of file index; known types are "
                    f"{', '.join(INDEX_TYPES)}"
                )
            for name in text.split(","):
                if not name.strip():
                    raise InputError(f"option {key!r} = {text!r} has a blank column name")
                declared[(index, *_split_map_key(name.strip()))] = None
    settings = dict(_parse_settings(options, declared))
    return [
        IndexSpec(
            *spec, Options({**settings.get((*spec[:2], None), {}), **settings.get(spec, {})})
        )
        for spec in declared
    ]  # fmt: skip


def set_default_bitmap_version(specs: Sequence[IndexSpec], version: int) -> list[IndexSpec]:
    """Return the indexes; bitmap indexes without a version option get ``version``."""
    default = {BITMAP_VERSION.key: str(version)}
    return [
        replace(spec, options=Options(default | dict(spec.options.values)))
        if spec.index == BITMAP
        else spec
        for spec in specs
    ]


def _split_map_key(name: str) -> tuple[str, str | None]:
    if name.endswith("]") and "[" in name:
        column, key = name[:-1].split("[", 1)
        return column, key
    return name, None


def _parse_settings(
    options: Mapping[str, str], declared: Mapping[tuple[str, str, str | None], None]
) -> Iterator[tuple[tuple[str, str, str | None], dict[str, str]]]:
    """Return the options of each index; options of a map column apply to all its keys."""
    settings: dict[tuple[str, str, str | None], dict[str, str]] = {}
    maps = {(index, column, None) for index, column, key in declared if key is not None}
    for name, text in options.items():
        parts = name.removeprefix(_PREFIX).split(".")
        if not name.startswith(_PREFIX) or name.endswith(_COLUMNS) or len(parts) != 3:
            continue
        target = parts[0], *_split_map_key(parts[1])
        if target not in declared and target not in maps:
            raise InputError(
                f"option {name!r} names a column that '{_PREFIX}{parts[0]}{_COLUMNS}' does not list"
            )
        settings.setdefault(target, {})[parts[2]] = text
    yield from settings.items()


def compute_container_order(specs: Sequence[IndexSpec]) -> list[tuple[str, list[IndexSpec]]]:
    """Return the columns in container order, each with its indexes.

    See docs/format/java-hash-order.md#order-in-the-container.
    """
    pairs = list(dict.fromkeys((spec.column, spec.key) for spec in specs))
    declared = [
        pairs[i] for i in _compute_put_if_absent_order([_hash_column_key(*pair) for pair in pairs])
    ]
    calls: list[str] = []
    for index in INDEX_TYPES:
        of_type = {(spec.column, spec.key) for spec in specs if spec.index == index}
        indexed_pairs = [pair for pair in declared if pair in of_type]
        for column in _compute_put_order(
            list(dict.fromkeys(column for column, _ in indexed_pairs))
        ):
            keys = [key for name, key in indexed_pairs if name == column and key is not None]
            nested = [f"{column}[{key}]" for key in _compute_put_order(keys)]
            calls += _compute_put_order(nested) if nested else [column]
    names = list(dict.fromkeys(calls))
    repeats_last = bool(calls) and calls[-1] in calls[:-1]
    order = _compute_put_if_absent_order(
        [compute_java_string_hash(name) for name in names], queried_after_insert=repeats_last
    )
    by_type = sorted(specs, key=lambda spec: INDEX_TYPES.index(spec.index))
    ordered = [names[i] for i in order]
    return [(name, [spec for spec in by_type if spec.name == name]) for name in ordered]


def _hash_column_key(column: str, key: str | None) -> int:
    nested = 0 if key is None else compute_java_string_hash(key)
    code = 31 * (31 + compute_java_string_hash(column)) + nested
    return (31 * code + (1237 if key is None else 1231)) & 0xFFFFFFFF


def _compute_put_if_absent_order(
    hashes: Sequence[int], *, queried_after_insert: bool = False
) -> list[int]:
    order: list[int] = compute_index_hash_map_order(
        np.array(hashes, np.uint32), queried_after_insert=queried_after_insert
    ).tolist()
    return order


def _compute_put_order(names: Sequence[str]) -> list[str]:
    """Return the names in the order of a hash table that appends to chains."""
    capacity = 16
    while len(names) * 4 > capacity * 3:
        capacity *= 2

    def compute_slot(name: str) -> int:
        code = compute_java_string_hash(name)
        return (code ^ code >> 16) & (capacity - 1)

    return sorted(names, key=compute_slot)
