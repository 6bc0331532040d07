"""Writes the YAML of components for ``dg scaffold defs``, also from the tables of a warehouse."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import click
import dagster as dg
from pydantic import BaseModel, Field

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.dagster.names import check_table_name, split_table_name
from paimon_orch.errors import InputError, PaimonError
from paimon_orch.safe_text import get_logger

logger = get_logger(__name__)

_VARIABLE = "PAIMON_WAREHOUSE"
_WAREHOUSE = {"warehouse": f"{{{{ env.{_VARIABLE} }}}}"}
_READ_HELP = "A warehouse, or the name of a configured catalog, "


class TableScaffoldParams(BaseModel):
    """The parameters of ``dg scaffold defs``."""

    table: str = Field(default="database.table", description="The table as database.table.")
    warehouse: str = Field(
        default="",
        description=f"{_READ_HELP}with the table, from which its partitions and its retention are "
        f"read. Default: the variable {_VARIABLE}, if it is set and the table can be read.",
    )
    from_warehouse: str = Field(
        default="", description=f"{_READ_HELP}of which each table gets a component."
    )


class DatabaseScaffoldParams(BaseModel):
    """The parameters of ``dg scaffold defs``."""

    database: str = Field(default="database", description="The name of the database.")
    from_warehouse: str = Field(
        default="", description=f"{_READ_HELP}of which each database gets a component."
    )


class PaimonTableScaffolder(dg.Scaffolder[TableScaffoldParams]):
    """Writes the YAML of a component that can be loaded without changes."""

    @classmethod
    def get_scaffold_params(cls) -> type[TableScaffoldParams]:
        """Return the parameters of the command."""
        return TableScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[TableScaffoldParams]) -> None:
        """Write the YAML, with ``from_warehouse`` with one document for each table."""
        params = request.params
        with _report_errors(request):
            if params.from_warehouse:
                _scaffold_all(request, _read_tables(params.from_warehouse))
            else:
                dg.scaffold_component(request, _build_table_attributes(params))


class PaimonDatabaseScaffolder(dg.Scaffolder[DatabaseScaffoldParams]):
    """Writes the YAML of a component that can be loaded without changes."""

    @classmethod
    def get_scaffold_params(cls) -> type[DatabaseScaffoldParams]:
        """Return the parameters of the command."""
        return DatabaseScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[DatabaseScaffoldParams]) -> None:
        """Write the YAML, with ``from_warehouse`` with one document for each database."""
        with _report_errors(request):
            if request.params.from_warehouse:
                _scaffold_all(request, _read_databases(request.params.from_warehouse))
            else:
                attributes = _build_database_attributes(request.params.database, _WAREHOUSE)
                dg.scaffold_component(request, attributes)


@contextmanager
def _report_errors(request: dg.ScaffoldRequest[Any]) -> Iterator[None]:
    """Raise errors as those of the command, which prints them without a stack trace.

    Removes the empty folder that Dagster created, because it refuses to scaffold into it again.
    """
    try:
        yield
    except (PaimonError, OSError) as error:
        with suppress(OSError):  # it is not empty
            request.target_path.rmdir()
        raise click.ClickException(str(error)) from error


def _build_database_attributes(database: str, place: Mapping[str, str]) -> dict[str, Any]:
    return {
        "database": database,
        **place,
        "select": ["*"],
        "snapshot_expiration": {"retain_for": "24 h"},
    }


def _build_table_attributes(params: TableScaffoldParams) -> dict[str, Any]:
    """Return the attributes of a table, from the table itself if it can be read.

    Raises the error if the command names the warehouse.
    """
    if params.warehouse:
        catalog, place = _open(params.warehouse)
        return _read_table(catalog, params.table, place)
    defaults = {
        "table": params.table,
        **_WAREHOUSE,
        "trigger": "sensor",
        "snapshot_expiration": {"retain_for": "24 h"},
        "orphan_files": {"older_than": "3 d", "dry_run": True},
    }
    if _VARIABLE not in os.environ:
        return defaults
    try:
        return _read_table(Catalog(os.environ[_VARIABLE]), params.table, _WAREHOUSE)
    except (PaimonError, OSError) as error:
        logger.warning("the YAML has no partitions of %s: %s", params.table, error)
        return defaults


def _read_table(catalog: Catalog, table: str, place: Mapping[str, str]) -> dict[str, Any]:
    from paimon_orch.dagster.components.table_reading import (  # loads the steps
        read_partition_attributes,
        read_retention_attributes,
    )

    check_table_name(table)
    state = catalog.table(table).load()
    partitions = read_partition_attributes(state)
    return {
        "table": table,
        **place,
        **({} if partitions is None else {"partitions": partitions}),
        "trigger": "sensor",
        **read_retention_attributes(state.schema),
        "orphan_files": {"older_than": "3 d", "dry_run": True},
    }


def _read_tables(location: str) -> Iterator[dict[str, Any]]:
    catalog, place = _open(location)
    for table in _find_tables(catalog):
        try:
            yield _read_table(catalog, table, place)
        except PaimonError as error:  # one table must not stop the others
            logger.warning("%s has no component: %s", table, error)


def _read_databases(location: str) -> Iterator[dict[str, Any]]:
    catalog, place = _open(location)
    for name in dict.fromkeys(split_table_name(table)[0] for table in _find_tables(catalog)):
        yield _build_database_attributes(name, place)


def _scaffold_all(
    request: dg.ScaffoldRequest[Any], components: Iterable[Mapping[str, Any]]
) -> None:
    """Write one YAML file with a document for each component."""
    if request.scaffold_format != "yaml":
        raise InputError("from_warehouse writes YAML; omit the format python")
    documents = [*components]
    if not documents:
        raise InputError(f"{request.params.from_warehouse} has no table that can be read")
    for number, attributes in enumerate(documents):
        if number == 1 and not request.append:
            file = request.target_path / "defs.yaml"
            request = replace(request, append=True, target_path=file)
        dg.scaffold_component(request, attributes)


def _open(location: str) -> tuple[Catalog, dict[str, str]]:
    """Return a catalog, and the attribute of components that names it."""
    catalog = Catalog(location)
    return catalog, {"warehouse" if catalog.name is None else "catalog": location}


def _find_tables(catalog: Catalog) -> Iterator[str]:
    """Yield the tables whose names Dagster accepts.

    Raises :class:`NotFoundError` if the catalog does not exist.
    """
    catalog.require_exists()
    for table in catalog.find_tables():
        try:
            check_table_name(table)
        except InputError as error:
            logger.warning("%s; the table is skipped", error)
            continue
        yield table
