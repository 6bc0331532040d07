"""An IO manager: frames that fit into memory, from and to Paimon tables."""

from collections.abc import Sequence
from typing import Any, Literal

import dagster as dg
import pyarrow as pa
from pydantic import Field

from paimon_orch.dagster.metadata import PaimonMetadata
from paimon_orch.dagster.partitions import PartitionKeys
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.errors import InputError
from paimon_orch.format.arrow import arrow_type
from paimon_orch.format.predicate import Predicate
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.commit import CommitId
from paimon_orch.table.expression import col
from paimon_orch.table.table import Table

_MODES = ("append", "overwrite", "upsert")


class PaimonArrowIOManager(dg.ConfigurableIOManager):
    """Stores what an asset ``[..., database, table]`` returns, and loads what a downstream asset asks for.

    Takes Arrow tables and batch readers, pandas and Polars frames; the type of the input decides what is loaded, Arrow
    without one. The table must be there. ``write_mode`` in the metadata of the asset, or of the run's output, goes before
    the field. A step that is retried in its run adds nothing twice.

    >>> PaimonArrowIOManager(paimon=PaimonCatalogResource(warehouse=dg.EnvVar("PAIMON_WAREHOUSE")))
    """

    paimon: dg.ResourceDependency[PaimonCatalogResource]
    write_mode: Literal["append", "overwrite", "upsert"] = Field(
        default="append",
        description="overwrite replaces the partitions of the run, the whole table if the asset has none.",
    )

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write and commit one snapshot."""
        table = self._table(context.asset_key)
        keys = context.asset_partition_keys if context.has_asset_partitions else []
        rows = _to_arrow(obj)
        snapshot = _write(table, rows, self._mode(context), keys, _commit_id(context))
        written = PaimonMetadata(
            snapshot_id=None if snapshot is None else snapshot.id, rows_written=rows.num_rows
        )
        context.add_output_metadata(written.to_dagster())

    def load_input(self, context: dg.InputContext) -> Any:
        """Read the partitions of the run, or all, in the form that the input is annotated with."""
        table = self._table(context.asset_key)
        keys = context.asset_partition_keys if context.has_asset_partitions else []
        rows = table.scan(filter=_of_partitions(table.schema, keys) if keys else None).to_arrow()
        return _in_form(rows, context.dagster_type.typing_type)

    def _table(self, key: dg.AssetKey) -> Table:
        if len(key.path) < 2:
            raise InputError(f"the asset {key.to_user_string()} must be called 'database/table'")
        return self.paimon.load_table(".".join(key.path[-2:]))

    def _mode(self, context: dg.OutputContext) -> str:
        given = {**(context.definition_metadata or {}), **(context.output_metadata or {})}
        mode = given.get("write_mode", self.write_mode)
        text = str(mode.value if isinstance(mode, dg.MetadataValue) else mode)
        if text not in _MODES:
            raise InputError(f"write_mode {text!r} must be one of {', '.join(_MODES)}")
        return text


def _commit_id(context: dg.OutputContext) -> CommitId:
    return CommitId(f"dagster-{context.run_id}-{context.step_key}", 1)


def _write(
    table: Table, rows: pa.Table, mode: str, keys: Sequence[str], commit_id: CommitId
) -> Snapshot | None:
    if mode == "append":
        return table.append(rows, commit_id=commit_id)
    if mode == "upsert":
        return table.upsert(rows, commit_id=commit_id)
    if len(keys) > 1:
        return table.overwrite(rows, commit_id=commit_id)
    spec = PartitionKeys.of(table.schema).parse(keys[0]) if keys else {}
    return table.overwrite(rows, spec, commit_id=commit_id)


def _of_partitions(schema: TableSchema, keys: Sequence[str]) -> Predicate:
    """Return a filter that rows of these partitions pass."""
    translate = PartitionKeys.of(schema)
    types = {field.name: arrow_type(field.type) for field in schema.partition_fields}
    null = schema.typed_options.default_partition_name
    found: Predicate | None = None
    for key in keys:
        one: Predicate | None = None
        for name, text in translate.parse(key).items():
            value = None if text == null else pa.scalar(text).cast(types[name]).as_py()
            test: Predicate = col(name).is_null() if value is None else col(name) == value
            one = test if one is None else one & test
        assert one is not None
        found = one if found is None else found | one
    assert found is not None
    return found


def _to_arrow(value: Any) -> pa.Table:
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatchReader):
        return value.read_all()
    if hasattr(value, "to_arrow"):  # a Polars frame
        return value.to_arrow()
    if type(value).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(value, preserve_index=False)
    raise InputError(
        f"a table is stored from Arrow, pandas or Polars, not from {type(value).__name__}"
    )


def _in_form(rows: pa.Table, form: Any) -> Any:
    module = getattr(form, "__module__", "").partition(".")[0]
    if module == "pandas":
        return rows.to_pandas()
    if module == "polars":
        import polars as pl

        return pl.from_arrow(rows)
    return rows.to_reader() if form is pa.RecordBatchReader else rows
