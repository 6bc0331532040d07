"""Run config: defaults of a table, and allowances for options that would make a run fail."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import dagster as dg
from pydantic import Field, create_model

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.dagster.run_metadata import Metadata
from paimon_orch.format.options.blocking_options import NO_ALLOWANCES, Allowances
from paimon_orch.safe_text import clean_line
from paimon_orch.table.table import Table
from paimon_orch.table.table_stores import TableStores

STALE_EXTERNAL_HELP = (
    "Change the table even if this leaves Iceberg metadata, a metastore or a callback of its "
    "options stale. The run's metadata lists the options."
)
UNKNOWN_OPTIONS_HELP = (
    "Change the table even if it has unknown options, for example from a newer Paimon release."
)


class AllowanceConfig(dg.Config):
    """Run config that allows changes of tables whose options otherwise fail a run."""

    allow_stale_external: bool = Field(default=False, description=STALE_EXTERNAL_HELP)
    allow_unknown_options: bool = Field(default=False, description=UNKNOWN_OPTIONS_HELP)

    @property
    def allowances(self) -> Allowances:
        """What this config allows."""
        return Allowances(
            stale_external=self.allow_stale_external, unknown_options=self.allow_unknown_options
        )

    def load_table(self, paimon: PaimonCatalogResource, table: str) -> Table:
        """Return the table with the allowances of this config and of the resource."""
        return load_table_with_allowances(paimon, table, self.allowances)

    def open_catalog(self, paimon: PaimonCatalogResource) -> Catalog:
        """Return the catalog with the allowances of this config and of the resource."""
        catalog = paimon.catalog()
        catalog.allowances |= self.allowances
        return catalog


def load_table_with_allowances(
    paimon: PaimonCatalogResource, table: str, allowances: Allowances
) -> Table:
    """Return the table with the allowances of the caller and of the resource."""
    loaded = paimon.load_table(table)
    return replace(loaded, allowances=loaded.allowances | allowances)


C = TypeVar("C", bound=dg.Config)


def build_config_class(config: type[C], defaults: Mapping[str, Any]) -> type[C]:
    """Return a config class with other defaults by field name; unknown names are ignored."""
    fields: dict[str, Any] = {
        name: (field.annotation, Field(default=defaults[name], description=field.description))
        for name, field in config.model_fields.items()
        if name in defaults
    }
    return create_model(config.__name__, __base__=config, **fields)


def build_allowance_config(allowances: Allowances = NO_ALLOWANCES) -> dict[str, bool]:
    """Return the run config that sets the given allowances."""
    config = {
        "allow_stale_external": allowances.stale_external,
        "allow_unknown_options": allowances.unknown_options,
    }
    return {name: True for name, allowed in config.items() if allowed}


def report_stale_options(
    context: dg.OpExecutionContext | dg.AssetExecutionContext | dg.OutputContext,
    stores: TableStores,
) -> Metadata:
    """Log the options of external systems that a change made stale; return them as metadata."""
    options = clean_line(", ".join(stores.list_stale_options()))
    if not options:
        return {}
    context.log.warning(
        "%s: external systems were not updated and are stale; options: %s",
        stores.identifier,
        options,
    )
    return {"paimon/stale_external_options": options}
