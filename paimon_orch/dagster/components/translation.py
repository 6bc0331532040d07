"""The attribute ``translation``: changes to the specs of the assets of a table."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver

from paimon_orch.dagster.names import split_table_name
from paimon_orch.errors import InputError

Asset = dg.AssetSpec | dg.AssetsDefinition
TRANSLATION_HELP = (
    "Changes to the group, tags, owners, description, kinds or metadata of each asset of a table. "
    "Templates may use {{ table }}, {{ database }}, {{ name }} and {{ spec }}."
)


@dataclass(frozen=True, slots=True)
class TranslatedTable:
    """The table whose assets are translated, as ``database.table``."""

    table: str

    def list_template_variables(self) -> dict[str, str]:
        """Return the variables of the templates, except ``spec``."""
        database, name = split_table_name(self.table)
        return {"table": self.table, "database": database, "name": name}


Translation = Annotated[
    TranslationFn[TranslatedTable],
    TranslationFnResolver[TranslatedTable](TranslatedTable.list_template_variables),
]


def translate_assets(
    assets: Iterable[Asset], table: str, translation: TranslationFn[TranslatedTable]
) -> list[Asset]:
    """Return the assets of a table with translated specs.

    Raises :class:`InputError` if the translation changes what the sensor, the schedules and the
    checks of the table refer to: the keys, dependencies and partitions of its assets.
    """

    def translate(spec: dg.AssetSpec) -> dg.AssetSpec:
        translated = translation(spec, TranslatedTable(table))
        if translated.key != spec.key:
            raise InputError(
                f"translation of {table}: the key {spec.key.to_user_string()} cannot be changed to "
                f"{translated.key.to_user_string()}, because the sensor, schedules and checks use "
                "it; set key_prefix of the component instead"
            )
        for name in ("deps", "partitions_def"):
            if getattr(translated, name) != getattr(spec, name):
                raise InputError(f"translation of {table}: {name} cannot be changed")
        return translated

    return list(dg.map_asset_specs(translate, assets))
