"""An IO manager that writes values of assets to Paimon tables, and reads them for inputs.

:mod:`paimon_orch.dagster.spark_io_manager` adds the frames of Spark.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import dagster as dg
import pyarrow as pa
from pydantic import Field

from paimon_orch.dagster.error_conversion import fail_if_unsupported
from paimon_orch.dagster.external_reports import report_iceberg_snapshot, report_missing_partitions
from paimon_orch.dagster.partitions_definitions import (
    PARTITION_EXPR,
    build_partition_specs,
    parse_partition_expr,
)
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.dagster.run_config import report_stale_options
from paimon_orch.dagster.run_metadata import Metadata, build_column_schema, to_metadata
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.display import format_count
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.arrow import to_paimon_fields, to_paimon_type
from paimon_orch.orchestration.run_reports import RunReport, count_rows_not_visible
from paimon_orch.safe_text import clean_line, format_names
from paimon_orch.steps.merge_schema import find_new_names
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.filter.partition_spec import PartitionSpec, build_any_partition_matcher
from paimon_orch.table.scan.partition_pruner import build_partition_filter
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.unseen_rows import describe_unseen_rows_in_scan
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table

_WRITE_MODES = ("append", "overwrite", "upsert")
_SCAN_KEYS = ("columns", "filter", "snapshot_id", "tag", "timestamp")
"""Metadata of an input that selects what is read, as the arguments of :meth:`Table.scan`."""
_OTHER_KEYS = {"where", "snapshot", "limit", "order_by"}
"""Metadata that looks as if it selected what is read."""


class PaimonIOManager(dg.ConfigurableIOManager):
    """Writes values of assets ``[..., database, table]`` to tables, and reads them for inputs.

    Accepts every object that exports an Arrow stream, such as Arrow tables and readers, pandas and
    Polars frames and relations of DuckDB; a reader is written without holding all its rows. The
    type annotation of an input selects the type to load; the default is an Arrow table.

    Metadata of the asset, or of the output:

    - ``write_mode`` overrides the field.
    - ``primary_key`` and ``partition_by`` (lists of columns) and ``options`` describe the table,
      which the first write creates.
    - ``partition_expr`` names the partition column of the asset's partitions, or the column of each
      dimension, as in Dagster's own IO managers. A DATE column has all days of a time window, a
      TIMESTAMP column its start, another column the partition key. The table may have more
      partition columns. Without it, the keys are the values of all partition columns.

    Metadata of an input (``dg.AssetIn(metadata=...)``): ``columns``, ``filter``, ``snapshot_id``,
    ``tag`` and ``timestamp`` as in :meth:`~paimon_orch.Table.scan`, ``branch``, and
    ``partition_expr`` in place of that of the asset.

    If a step is retried within its run, it does not write its rows again. The snapshot is the data
    version of an asset without partitions.

    >>> PaimonIOManager(paimon=PaimonCatalogResource(warehouse=dg.EnvVar("PAIMON_WAREHOUSE")))
    """

    paimon: dg.ResourceDependency[PaimonCatalogResource]
    write_mode: Literal["append", "overwrite", "upsert"] = Field(
        default="append",
        description="append: add rows. upsert: insert or update rows by primary key. overwrite: "
        "replace the partitions of the run, or the whole table if the asset is not partitioned.",
    )
    schema_update_mode: Literal["error", "add_columns"] = Field(
        default="error",
        description="What to do with columns that the table does not have: error, or add_columns.",
    )

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write the rows and commit one snapshot."""
        rows, schema = self._open_rows(obj)
        mode = str(_read_metadata(context).get("write_mode", self.write_mode))
        if mode not in _WRITE_MODES:
            raise InputError(f"write_mode {mode!r} must be one of {', '.join(_WRITE_MODES)}")
        table, table_schema = self._open_for_write(context, schema, mode)
        with fail_if_unsupported(table.identifier):
            specs = _parse_partition_specs(table_schema, context)
            if context.has_asset_partitions and not specs:
                # Without partitions, an overwrite would replace the whole table.
                raise InputError(f"the run of {table.identifier} has no partition to write")
            snapshot, count = self._write(table, rows, mode, specs, _build_commit_id(context))
        metadata: Metadata = {
            "dagster/table_name": table.identifier,
            "dagster/uri": clean_line(table.paths.root),
            "dagster/column_schema": build_column_schema(table_schema),
        }
        if snapshot is None:
            metadata |= to_metadata(RunReport(rows_written=count))
        else:
            metadata |= _report_snapshot(context, table, snapshot, count)
            version = dg.DataVersion(str(snapshot.id))
            if context.has_asset_key and not context.has_asset_partitions:
                context.step_context.set_data_version(context.asset_key, version)
        context.add_output_metadata(metadata)

    def load_input(self, context: dg.InputContext) -> Any:
        """Read the partitions of the run or the whole table, as the annotated type of the input."""
        given = _read_metadata(context)
        _refuse_misspelled(given)
        table = self._open_table(context.asset_key, given.get("branch"))
        selection = {key: given[key] for key in _SCAN_KEYS if key in given}
        with fail_if_unsupported(table.identifier):
            scan = _build_scan(table, selection, context)
            unseen_rows = 0 if scan.limit == 0 else scan.rows_not_visible
            if unseen_rows:
                context.log.warning(describe_unseen_rows_in_scan(table.stores.label, unseen_rows))
            return self._read(scan, _find_annotation(context.dagster_type.typing_type))

    def _open_rows(self, value: Any) -> tuple[Any, pa.Schema]:
        """Return an object that can be written, and its schema."""
        rows = _to_stream(value)
        return rows, rows.schema

    def _write(
        self,
        table: Table,
        rows: Any,
        mode: str,
        specs: Sequence[PartitionSpec],
        commit_id: CommitId,
    ) -> tuple[Snapshot | None, int]:
        """Return the snapshot, if there are rows, and the number of rows."""
        counts = list[int]()

        def count_rows() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                counts.append(batch.num_rows)
                yield batch

        counted = pa.RecordBatchReader.from_batches(rows.schema, count_rows())
        if mode == "append":
            snapshot = table.append(counted, commit_id=commit_id)
        elif mode == "upsert":
            snapshot = table.upsert(counted, commit_id=commit_id)
        else:
            snapshot = table.overwrite(counted, specs or {}, commit_id=commit_id)
        return snapshot, sum(counts)

    def _read(self, scan: Scan, annotation: Any) -> Any:
        return _convert_to_type(scan, annotation)

    def _open_table(self, key: dg.AssetKey, branch: object = None) -> Table:
        if len(key.path) < 2:
            raise InputError(
                f"the key of the asset {key.to_user_string()} must end in database/table"
            )
        if branch == "":
            raise InputError("the branch of an input is empty; omit it to read main")
        suffix = "" if branch is None else f"$branch_{branch}"
        return self.paimon.load_table(f"{'.'.join(key.path[-2:])}{suffix}")

    def _open_for_write(
        self, context: dg.OutputContext, schema: pa.Schema, mode: str
    ) -> tuple[Table, TableSchema]:
        """Return the table of the asset and its schema; create it, or add columns that are new."""
        try:
            table = self._open_table(context.asset_key)
        except NotFoundError:
            table = self._create_table(context, schema, mode)
        table_schema = table.stores.get_schema()
        if self.schema_update_mode == "add_columns":
            new = find_new_names(schema.names, table_schema)
            if new:
                context.log.info("adding columns %s", format_names(new))
                changes = [
                    AddColumn(column=name, type=to_paimon_type(schema.field(name).type))
                    for name in new
                ]
                table_schema = self.paimon.catalog().alter_table(table.identifier, changes)
        return table, table_schema

    def _create_table(self, context: dg.OutputContext, schema: pa.Schema, mode: str) -> Table:
        name, metadata = ".".join(context.asset_key.path[-2:]), _read_metadata(context)
        partition_by = metadata.get("partition_by", ())
        expr = metadata.get(PARTITION_EXPR)
        if context.has_asset_partitions and not partition_by:
            if expr is None:
                raise InputError(
                    f"{name} does not exist; to create it, set the metadata partition_by of the "
                    "asset to the columns of its partitions"
                )
            partition_by = [*parse_partition_expr(expr, context.asset_partitions_def).values()]
        definition: dict[str, Any] = {
            "primary_key": metadata.get("primary_key", ()),
            "partition_by": partition_by,
        }
        if mode == "upsert" and not definition["primary_key"]:
            raise InputError(
                f"{name} does not exist; to create it for upserts, set the metadata primary_key of "
                "the asset"
            )
        planned = build_table_schema(to_paimon_fields(schema), **definition)
        _parse_partition_specs(planned, context)  # refuses other partitions than those of the asset
        return self.paimon.catalog().create_table(
            name,
            schema.remove_metadata(),
            **definition,
            options=metadata.get("options"),
            if_not_exists=True,
        )


def _refuse_misspelled(metadata: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` for a key that looks like one that selects what is read."""
    known = (*_SCAN_KEYS, "branch", PARTITION_EXPR)
    for key in metadata.keys() - set(known):
        if key in _OTHER_KEYS or get_close_matches(key.lower(), known, n=1, cutoff=0.8):
            raise InputError(
                f"metadata of the input has {key}; an input is selected by {format_names(known)}"
            )


def _read_metadata(context: dg.OutputContext | dg.InputContext) -> Mapping[str, Any]:
    """Return the plain values of the metadata of an asset and its output, or of an input."""
    given: dict[str, Any] = dict(context.definition_metadata or {})
    if isinstance(context, dg.OutputContext):
        given |= context.output_metadata or {}
    return _to_plain(given)


def _to_plain(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        key: value.value if isinstance(value, dg.MetadataValue) else value
        for key, value in (metadata or {}).items()
    }


def _build_scan(table: Table, selection: Mapping[str, Any], context: dg.InputContext) -> Scan:
    """Return a scan of the partitions of the run, or of the whole table."""
    whole = table.scan(**selection)
    if not context.has_asset_partitions:
        return whole
    specs = _parse_partition_specs(whole.schema, context)
    is_selected = build_any_partition_matcher(specs, whole.schema)
    found = dict.fromkeys(split.partition for split in table.files(whole.snapshot))
    partitions = [partition for partition in found if is_selected(partition)]
    # If the mapping selects the previous partition, the first partition has no input.
    if not partitions:
        return table.scan(**selection, limit=0)
    chosen = build_partition_filter(partitions, whole.schema)
    given = bind_filter(selection.get("filter"), whole.schema)
    return table.scan(**{**selection, "filter": chosen if given is None else chosen & given})


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


def _parse_partition_specs(
    schema: TableSchema, context: dg.OutputContext | dg.InputContext
) -> list[PartitionSpec]:
    """Return the partitions of the run, or an empty list if the asset is not partitioned."""
    if not context.has_asset_partitions:
        return []
    expr = _read_metadata(context).get(PARTITION_EXPR)
    if expr is None and isinstance(context, dg.InputContext) and context.upstream_output:
        expr = _to_plain(context.upstream_output.definition_metadata).get(PARTITION_EXPR)
    keys = context.asset_partition_keys
    return build_partition_specs(schema, context.asset_partitions_def, keys, expr)


def _to_stream(value: Any) -> pa.RecordBatchReader:
    """Return the rows of an object that exports an Arrow stream."""
    module = type(value).__module__.partition(".")[0]
    if module == "pandas" and hasattr(value, "columns"):
        # a named index is data, such as the keys of a grouping
        is_named = any(name is not None for name in value.index.names)
        return pa.Table.from_pandas(value, preserve_index=is_named).to_reader()
    if module == "polars" and hasattr(value, "collect"):  # a lazy frame
        value = value.collect()
    if not hasattr(value, "__arrow_c_stream__") or type(value).__name__ == "Series":
        raise InputError(
            "the value must export an Arrow stream, as Arrow, pandas and Polars tables do, not "
            f"{type(value)}"
        )
    rows = pa.RecordBatchReader.from_stream(value)
    if not rows.schema.names:
        raise InputError("the value has no columns")
    return rows


def _find_annotation(annotation: Any) -> Any:
    """Return the type of an annotation such as ``DataFrame | None``."""
    if get_origin(annotation) in (Union, UnionType):
        return next(arg for arg in get_args(annotation) if arg is not NoneType)
    return annotation


def _convert_to_type(scan: Scan, annotation: Any) -> Any:
    if annotation is pa.RecordBatchReader:
        return scan.to_reader()
    module = getattr(annotation, "__module__", "").partition(".")[0]
    if annotation is Scan:
        return scan
    if module == "pandas":
        return scan.to_arrow().to_pandas()
    if module == "polars":
        import polars as pl

        return (
            scan.to_polars_lazy() if annotation is pl.LazyFrame else pl.DataFrame(scan.to_arrow())
        )
    return scan.to_arrow()
