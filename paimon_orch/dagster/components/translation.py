"""The attribute ``translation``: changes to the specs of the assets of a table."""

from dataclasses import dataclass
from typing import Annotated

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver

from paimon_orch.dagster.names import split_table_name

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


def translate_spec(
    spec: dg.AssetSpec, table: str, translation: TranslationFn[TranslatedTable] | None
) -> dg.AssetSpec:
    """Return the spec of an asset of a table with the changes of the translation."""
    return spec if translation is None else translation(spec, TranslatedTable(table))
