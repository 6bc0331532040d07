"""An IO manager: frames that fit into memory, from and to Paimon tables."""

from collections import defaultdict
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import dagster as dg
import pyarrow as pa
from pydantic import Field

from paimon_orch.dagster.metadata import PaimonMetadata, count_rows_not_visible
from paimon_orch.dagster.partitions import PartitionKeys
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.dagster.retries import fail_if_unsupported
from paimon_orch.dagster.run_config import report_stale_options
from paimon_orch.errors import InputError
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.predicate import And, Leaf, Operator, Or, Predicate
from paimon_orch.table.commit.commit import CommitId
from paimon_orch.table.filter.partition_spec import PartitionSpec, build_any_partition_matcher
from paimon_orch.table.scan.scan_planner import build_partition_table
from paimon_orch.table.scan.visibility import describe_unseen_rows_in_scan
from paimon_orch.table.table import Table

_WRITE_MODES = ("append", "overwrite", "upsert")


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
        rows = _to_arrow(obj)
        with fail_if_unsupported(table.identifier):
            specs = _parse_partition_specs(table, context)
            if context.has_asset_partitions and not specs:
                # an overwrite would replace the whole table
                raise InputError(f"the run of {table.identifier} names no partition to write")
            snapshot = _write_rows(
                table,
                rows,
                self._parse_write_mode(context),
                specs,
                commit_id=_build_commit_id(context),
            )
        waiting = None if snapshot is None else count_rows_not_visible(table, snapshot)
        if waiting:
            hint = describe_unseen_rows_in_scan(table.identifier, table.paths, waiting)
            context.log.warning("%s, or materialize the compaction of the table", hint)
        written = PaimonMetadata(
            snapshot_id=None if snapshot is None else snapshot.id,
            rows_written=rows.num_rows,
            rows_not_visible=waiting,
        )
        stale = {} if snapshot is None else report_stale_options(context, table)
        context.add_output_metadata(written.to_dagster() | stale)

    def load_input(self, context: dg.InputContext) -> Any:
        """Read the partitions of the run, or all, in the form that the input is annotated with."""
        table = self._table(context.asset_key)
        chosen, limit = None, None
        if context.has_asset_partitions:  # may be none: the first partition has nothing before it
            chosen = build_partition_filter(table, _parse_partition_specs(table, context))
            limit = 0 if chosen is None else None
        with fail_if_unsupported(table.identifier):
            scan = table.scan(filter=chosen, limit=limit)
            left_out = scan.rows_not_visible if limit is None else 0
            if left_out:
                context.log.warning(
                    describe_unseen_rows_in_scan(table.identifier, table.paths, left_out)
                )
            rows = scan.to_arrow()
        return _convert_to_type(rows, context.dagster_type.typing_type)

    def _table(self, key: dg.AssetKey) -> Table:
        if len(key.path) < 2:
            raise InputError(f"the asset {key.to_user_string()} must be called 'database/table'")
        return self.paimon.load_table(".".join(key.path[-2:]))

    def _parse_write_mode(self, context: dg.OutputContext) -> str:
        given = {**(context.definition_metadata or {}), **(context.output_metadata or {})}
        mode = given.get("write_mode", self.write_mode)
        text = str(mode.value if isinstance(mode, dg.MetadataValue) else mode)
        if text not in _WRITE_MODES:
            raise InputError(f"write_mode {text!r} must be one of {', '.join(_WRITE_MODES)}")
        return text


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
    """Return the partitions of the asset in the run, none if it has no partitions."""
    if not context.has_asset_partitions:
        return []
    translate = PartitionKeys.of(table.schema, context.asset_partitions_def)
    return [translate.parse(key) for key in context.asset_partition_keys]


def build_partition_filter(table: Table, specs: Sequence[PartitionSpec]) -> Predicate | None:
    """Return a filter that rows of these partitions pass, None if the table has none of them."""
    schema, chosen = table.schema, build_any_partition_matcher(specs, table.schema)
    found = list(dict.fromkeys(s.partition for s in table.files() if chosen(s.partition)))
    if not found:
        return None
    *others, last = schema.partition_keys
    values = build_partition_table(found, schema)
    groups = defaultdict[tuple[Any, ...], list[Any]](list)  # by all columns but the last
    for row in range(len(found)):
        shared = tuple(values.column(name)[row] for name in others)
        groups[shared].append(values.column(last)[row])
    return Or(
        tuple(
            And(
                (
                    *map(_build_in_predicate, others, zip(shared, strict=True)),
                    _build_in_predicate(last, members),
                )
            )
            for shared, members in groups.items()
        )
    )


def _build_in_predicate(name: str, values: Sequence["pa.Scalar[pa.DataType]"]) -> Predicate:
    known = tuple(value for value in values if value.is_valid)
    leaves = [Leaf(name, Operator.IN, known)] if known else []
    if len(known) < len(values):
        leaves.append(Leaf(name, Operator.IS_NULL))
    return Or(tuple(leaves))


def _to_arrow(value: Any) -> pa.Table:
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatchReader):
        return value.read_all()
    if type(value).__module__.partition(".")[0] == "polars":
        frame = value.collect() if hasattr(value, "collect") else value  # lazy or not
        return frame.to_arrow()
    if type(value).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(value, preserve_index=False)
    raise InputError(f"a table is stored from Arrow, pandas or Polars, not from {type(value)}")


def _convert_to_type(rows: pa.Table, form: Any) -> Any:
    if get_origin(form) in (Union, UnionType):  # such as DataFrame | None
        form = next(one for one in get_args(form) if one is not NoneType)
    module = getattr(form, "__module__", "").partition(".")[0]
    if module == "pandas":
        return rows.to_pandas()
    if module == "polars":
        import polars as pl

        frame = pl.DataFrame(rows)
        return frame.lazy() if form is pl.LazyFrame else frame
    return rows.to_reader() if form is pa.RecordBatchReader else rows
