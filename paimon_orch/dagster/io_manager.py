"""An IO manager that reads and writes Paimon tables as in-memory data frames."""

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import dagster as dg
import pyarrow as pa
from pydantic import Field

from paimon_orch.dagster.error_conversion import fail_if_unsupported
from paimon_orch.dagster.external_reports import report_iceberg_snapshot, report_missing_partitions
from paimon_orch.dagster.partitions_definitions import build_partition_keys
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.dagster.run_config import report_stale_options
from paimon_orch.dagster.run_metadata import Metadata, to_metadata
from paimon_orch.errors import InputError
from paimon_orch.format.display import format_count
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.orchestration.run_reports import RunReport, count_rows_not_visible
from paimon_orch.table.commit.commit import CommitId
from paimon_orch.table.filter.partition_spec import PartitionSpec, build_any_partition_matcher
from paimon_orch.table.scan.partition_pruner import build_partition_filter
from paimon_orch.table.scan.unseen_rows import describe_unseen_rows_in_scan
from paimon_orch.table.table import Table

_WRITE_MODES = ("append", "overwrite", "upsert")


class PaimonArrowIOManager(dg.ConfigurableIOManager):
    """Writes values of assets ``[..., database, table]`` to tables, and reads them for inputs.

    Accepts Arrow tables and record batch readers, and pandas and Polars frames. The type annotation
    of an input selects the type to load; the default is an Arrow table. The table must exist.
    ``write_mode`` in the metadata of the asset or of the output overrides the field. If a step is
    retried within its run, it does not write its rows again.

    >>> PaimonArrowIOManager(paimon=PaimonCatalogResource(warehouse=dg.EnvVar("PAIMON_WAREHOUSE")))
    """

    paimon: dg.ResourceDependency[PaimonCatalogResource]
    write_mode: Literal["append", "overwrite", "upsert"] = Field(
        default="append",
        description="append: add rows. upsert: insert or update rows by primary key. overwrite: "
        "replace the partitions of the run, or the whole table if the asset is not partitioned.",
    )

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write the rows and commit one snapshot."""
        table = self._load_table(context.asset_key)
        rows = _to_arrow(obj)
        with fail_if_unsupported(table.identifier):
            specs = _parse_partition_specs(table, context)
            if context.has_asset_partitions and not specs:
                # Without partitions, an overwrite would replace the whole table.
                raise InputError(f"the run of {table.identifier} has no partition to write")
            mode, commit_id = self._parse_write_mode(context), _build_commit_id(context)
            snapshot = _write_rows(table, rows, mode, specs, commit_id=commit_id)
        if snapshot is None:
            metadata = to_metadata(RunReport(rows_written=rows.num_rows))
        else:
            metadata = _report_snapshot(context, table, snapshot, rows.num_rows)
        context.add_output_metadata(metadata)

    def load_input(self, context: dg.InputContext) -> Any:
        """Read the partitions of the run or the whole table, as the annotated type of the input."""
        table = self._load_table(context.asset_key)
        partition_filter, limit = None, None
        if context.has_asset_partitions:
            # If the mapping selects the previous partition, the first partition has no input.
            partitions = _find_partitions(table, _parse_partition_specs(table, context))
            partition_filter = (
                build_partition_filter(partitions, table.stores.get_schema())
                if partitions
                else None
            )
            limit = None if partitions else 0
        with fail_if_unsupported(table.identifier):
            scan = table.scan(filter=partition_filter, limit=limit)
            unseen_rows = scan.rows_not_visible if limit is None else 0
            if unseen_rows:
                context.log.warning(describe_unseen_rows_in_scan(table.stores.label, unseen_rows))
            rows = scan.to_arrow()
        return _convert_to_type(rows, context.dagster_type.typing_type)

    def _load_table(self, key: dg.AssetKey) -> Table:
        if len(key.path) < 2:
            raise InputError(
                f"the key of the asset {key.to_user_string()} must end in database/table"
            )
        return self.paimon.load_table(".".join(key.path[-2:]))

    def _parse_write_mode(self, context: dg.OutputContext) -> str:
        metadata = {**(context.definition_metadata or {}), **(context.output_metadata or {})}
        mode = metadata.get("write_mode", self.write_mode)
        text = str(mode.value if isinstance(mode, dg.MetadataValue) else mode)
        if text not in _WRITE_MODES:
            raise InputError(f"write_mode {text!r} must be one of {', '.join(_WRITE_MODES)}")
        return text


def _report_snapshot(
    context: dg.OutputContext, table: Table, snapshot: Snapshot, row_count: int
) -> Metadata:
    """Log warnings about a snapshot, and return its metadata."""
    unseen_rows = count_rows_not_visible(table, snapshot)
    if unseen_rows:
        hint = describe_unseen_rows_in_scan(table.stores.label, unseen_rows)
        context.log.warning("%s, or materialize the compaction of the table", hint)
    report = RunReport(
        summary=f"Wrote {format_count(row_count, 'row')} in snapshot {snapshot.id}.",
        snapshot_id=snapshot.id,
        rows_written=row_count,
        rows_not_visible=unseen_rows,
    )
    stores = table.stores
    external = report_stale_options(context, stores) | report_iceberg_snapshot(context, stores)
    external |= report_missing_partitions(context, stores)
    return to_metadata(report) | external


def _build_commit_id(context: dg.OutputContext) -> CommitId:
    return CommitId(f"dagster-{context.run_id}-{context.step_key}-{context.name}", 1)


def _write_rows(
    table: Table, rows: pa.Table, mode: str, specs: Sequence[PartitionSpec], commit_id: CommitId
) -> Snapshot | None:
    if mode == "append":
        return table.append(rows, commit_id=commit_id)
    if mode == "upsert":
        return table.upsert(rows, commit_id=commit_id)
    return table.overwrite(rows, specs or {}, commit_id=commit_id)


def _parse_partition_specs(
    table: Table, context: dg.OutputContext | dg.InputContext
) -> list[dict[str, str]]:
    """Return the partitions of the run, or an empty list if the asset is not partitioned."""
    if not context.has_asset_partitions:
        return []
    partition_keys = build_partition_keys(table.stores.get_schema(), context.asset_partitions_def)
    return [partition_keys.parse(key) for key in context.asset_partition_keys]


def _find_partitions(table: Table, specs: Sequence[PartitionSpec]) -> list[bytes]:
    """Return the serialized partitions that match any of the specs."""
    is_selected = build_any_partition_matcher(specs, table.stores.get_schema())
    partitions = dict.fromkeys(split.partition for split in table.files())
    return [partition for partition in partitions if is_selected(partition)]


def _to_arrow(value: Any) -> pa.Table:
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatchReader):
        return value.read_all()
    if type(value).__module__.partition(".")[0] == "polars":
        # Lazy frames have the method collect.
        frame = value.collect() if hasattr(value, "collect") else value
        return frame.to_arrow()
    if type(value).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(value, preserve_index=False)
    raise InputError(f"the value must be an Arrow, pandas or Polars table, not {type(value)}")


def _convert_to_type(rows: pa.Table, annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):  # for example, DataFrame | None
        annotation = next(arg for arg in get_args(annotation) if arg is not NoneType)
    module = getattr(annotation, "__module__", "").partition(".")[0]
    if module == "pandas":
        return rows.to_pandas()
    if module == "polars":
        import polars as pl

        frame = pl.DataFrame(rows)
        return frame.lazy() if annotation is pl.LazyFrame else frame
    return rows.to_reader() if annotation is pa.RecordBatchReader else rows
