"""The file indexes that table options declare.

See docs/format/file-index.md#options-of-file-indexes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paimon_orch.errors import InputError
from paimon_orch.format.file_index.index_keys import BITMAP, INDEX_TYPES, check_indexable_type
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


def group_by_column(specs: Sequence[IndexSpec]) -> list[tuple[str, list[IndexSpec]]]:
    """Return the names in the container, each with its indexes, whose types are in a fixed order.

    Java writes the names in the order of hash tables; readers accept any order.
    """
    indexes: dict[str, list[IndexSpec]] = {}
    for spec in sorted(specs, key=lambda spec: INDEX_TYPES.index(spec.index)):
        indexes.setdefault(spec.name, []).append(spec)
    return list(indexes.items())
