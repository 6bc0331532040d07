"""All tables of a database that match a pattern, from a few lines of YAML."""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import BaseModel, Field

from paimon_orch.dagster.components.attribute_rules import DATABASE_RULE
from paimon_orch.dagster.components.component_attributes import (
    PartitionsAttributes,
    TableAttributes,
)
from paimon_orch.dagster.components.table_component import PaimonTableComponent
from paimon_orch.dagster.names import check_table_name
from paimon_orch.errors import InputError, NotFoundError

logger = logging.getLogger(__name__)


class DatabaseScaffoldParams(BaseModel):
    """What ``dg scaffold defs`` asks for."""

    database: str = Field(default="database", description="The database.")


class PaimonDatabaseScaffolder(dg.Scaffolder[DatabaseScaffoldParams]):
    """Writes a component that loads as it is."""

    @classmethod
    def get_scaffold_params(cls) -> type[DatabaseScaffoldParams]:
        """Return the parameters of the command."""
        return DatabaseScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[DatabaseScaffoldParams]) -> None:
        """Write the YAML."""
        attributes = {
            "database": request.params.database,
            "warehouse": "{{ env.PAIMON_WAREHOUSE }}",
            "include": ["*"],
            "snapshot_expiration": {"retain_for": "24 h"},
        }
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(PaimonDatabaseScaffolder)
class PaimonDatabaseComponent(TableAttributes, dg.StateBackedComponent):
    """The tables of a Paimon database that match a pattern, each with what looks after a single table.

    Tables are found when Dagster refreshes the state of definitions, not when it loads them. Attributes besides those of
    :class:`TableAttributes` are ``database``, and ``include`` and ``exclude``: shell patterns of table names. Partitioned
    tables get dynamic partitions unless ``partitions`` says.
    """

    database: Annotated[str, DATABASE_RULE] = Field(description="The database.")
    include: list[str] = Field(default=["*"], description="Shell patterns of table names.")
    exclude: list[str] = Field(default=[], description="Shell patterns of names to leave out.")
    defs_state: ResolvedDefsStateConfig = Field(
        default_factory=DefsStateConfigArgs.local_filesystem
    )

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return what ``dg list components`` shows."""
        return dg.ComponentTypeSpec(
            description="All Paimon tables of a database that match a pattern.", tags=["paimon"]
        )

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Return where the names of the tables are kept."""
        chosen = [*(f"+{name}" for name in self.include), *(f"-{name}" for name in self.exclude)]
        key = f"{type(self).__name__}[{self.warehouse}/{self.database}{''.join(chosen)}]"
        return DefsStateConfig.from_args(self.defs_state, default_key=key)

    def write_state_to_path(self, state_path: Path) -> None:
        """Look into the warehouse, and write which tables there are and by which columns they are partitioned."""
        paimon = self.resources().get("paimon")
        if paimon is None:
            raise InputError(f"the tables of {self.database} cannot be found without a 'warehouse'")
        catalog = paimon.catalog()
        found = dict[str, list[str]]()
        for name in filter(self._matches, catalog.tables(self.database)):
            table = f"{self.database}.{name}"
            try:
                check_table_name(table)
            except InputError as error:
                logger.warning("%s; it is left out", error)
                continue
            with suppress(NotFoundError):  # dropped just now, or not yet created
                found[name] = list(catalog.table(table).schema.partition_keys)
        state_path.write_text(json.dumps(found), encoding="utf-8")

    def build_defs_from_state(
        self,
        context: dg.ComponentLoadContext,  # noqa: ARG002 - Dagster's signature
        state_path: Path | None,
    ) -> dg.Definitions:
        """Return the definitions of all tables that were found; none before the first refresh."""
        if state_path is None:
            return dg.Definitions()
        return self.definitions(json.loads(state_path.read_text(encoding="utf-8")))

    def definitions(self, tables: Mapping[str, list[str]]) -> dg.Definitions:
        """Return the definitions of tables, given by name with their partition columns."""
        found = [
            self.table_component(f"{self.database}.{name}", partitioned=bool(columns)).definitions()
            for name, columns in tables.items()
        ]
        return dg.Definitions.merge(*found)

    def table_component(self, table: str, *, partitioned: bool) -> PaimonTableComponent:
        """Return the component of one table; made to be overridden."""
        attributes = {name: getattr(self, name) for name in TableAttributes.model_fields}
        partitions = self.partitions or PartitionsAttributes(dynamic=True)
        attributes["partitions"] = partitions if partitioned else None
        return PaimonTableComponent(table=table, **attributes)

    def _matches(self, name: str) -> bool:
        chosen = any(fnmatchcase(name, pattern) for pattern in self.include)
        return chosen and not any(fnmatchcase(name, pattern) for pattern in self.exclude)
