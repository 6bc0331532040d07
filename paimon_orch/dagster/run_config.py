"""Config that the launchpad shows: defaults of one table, and which refusals by its options a run overrides."""

from collections.abc import Mapping
from typing import Any, TypeVar

import dagster as dg
from pydantic import Field, create_model

from paimon_orch.dagster.metadata import Metadata
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.format.options.step_support import NO_ALLOWANCES, Allowances
from paimon_orch.table.table import Table

STALE_EXTERNAL_HELP = (
    "Change the table although Iceberg metadata, a metastore or a callback that its options name becomes stale. The "
    "run's metadata names the stale systems."
)
UNKNOWN_OPTIONS_HELP = (
    "Change the table although it has options that may belong to a newer release of Paimon."
)


class AllowanceConfig(dg.Config):
    """Which refusals by the table's options a run overrides."""

    allow_stale_external: bool = Field(default=False, description=STALE_EXTERNAL_HELP)
    allow_unknown_options: bool = Field(default=False, description=UNKNOWN_OPTIONS_HELP)

    def load_table(self, paimon: PaimonCatalogResource, table: str) -> Table:
        """Return the table with the allowances of this config and of the resource."""
        allowances = Allowances(
            stale_external=self.allow_stale_external, unknown_options=self.allow_unknown_options
        )
        return load_table_with_allowances(paimon, table, allowances)


def load_table_with_allowances(
    paimon: PaimonCatalogResource, table: str, allowances: Allowances
) -> Table:
    """Return the table with the allowances of the caller and of the resource."""
    loaded = paimon.load_table(table)
    given = loaded.allowances
    return loaded.allow(
        stale_external=allowances.stale_external or given.stale_external,
        unknown_options=allowances.unknown_options or given.unknown_options,
    )


C = TypeVar("C", bound=dg.Config)


def build_config_class(config: type[C], defaults: Mapping[str, Any]) -> type[C]:
    """Return a config class with other defaults, by field name; names that are not fields are ignored."""
    fields: dict[str, Any] = {
        name: (known.annotation, Field(default=defaults[name], description=known.description))
        for name, known in config.model_fields.items()
        if name in defaults
    }
    return create_model(config.__name__, __base__=config, **fields)


def build_allowance_config(allowances: Allowances = NO_ALLOWANCES) -> dict[str, bool]:
    """Return the config of the allowances that are set."""
    config = {
        "allow_stale_external": allowances.stale_external,
        "allow_unknown_options": allowances.unknown_options,
    }
    return {name: True for name, allowed in config.items() if allowed}


def report_stale_options(
    context: dg.OpExecutionContext | dg.AssetExecutionContext | dg.OutputContext, table: Table
) -> Metadata:
    """Log which options name another system that is stale after a change of the table, and return them as metadata."""
    stale = table.stale_external_options()
    if not stale:
        return {}
    shown = ", ".join(stale)
    context.log.warning(
        "%s: this run was allowed to leave other systems stale: %s", table.identifier, shown
    )
    return {"paimon/stale_external_options": shown}
