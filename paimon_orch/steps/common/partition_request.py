"""The request of steps for some partitions, and the check that these have files."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from paimon_orch.errors import InputError
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.bucket_scan import BucketScan, scan_latest_buckets
from paimon_orch.table.filter.partition_spec import (
    build_partition_matcher,
    format_partition,
    missing_partition_error,
    parse_partition_specs,
    parse_shown_partition,
)
from paimon_orch.table.scan.partition_selection import PartitionSpecs
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

PARTITION_METAVAR = "DT=2026-01-01"


def select_partitions(
    sentence: str,
    check: Callable[[Table, PartitionSpecs | None], None] | None,
    *,
    default: str = "all",
) -> Argument:
    """Return the annotation of a field with partitions."""
    return Argument(
        sentence,
        check=check,
        split=split_partitions,
        metavar=PARTITION_METAVAR,
        default=default,
    )


def split_partitions(table: Table, text: str) -> list[str]:
    """Split a list of partitions that are separated by semicolons.

    A semicolon is a separator at the end, or before a partition column and ``=``; others belong to
    values, and so does one at the end if the table has that partition. Returns the names of
    directories for names of the system table ``$partitions``, in which nothing is escaped. Raises
    :class:`InputError` for an empty list.
    """
    schema = table.stores.get_schema()
    columns = "|".join(map(re.escape, schema.partition_keys)) or r"\w+"
    parts = [part.strip() for part in re.split(rf";(?=[\s;]*(?:{columns})=)", text)]
    specs = {part.rstrip("; "): part for part in parts if part.strip("; ")}
    if not specs:
        raise InputError("--partitions is empty; write for example dt=2026-01-31")
    shown = {each: parse_shown_partition(each, schema) for each in {*specs, *specs.values()}}
    unescaped = {
        spec: build_partition_matcher(values, schema)
        for spec, values in shown.items()
        if values is not None and any(set(value) & set("/%,;") for value in values.values())
    }
    if not unescaped:
        return list(specs)
    partitions = {split.partition for split in table.files()}
    names = {format_partition(partition, schema): partition for partition in partitions}

    def find_directory_name(spec: str) -> str | None:
        if spec in names or spec not in unescaped:
            return spec
        found = (name for name, partition in names.items() if unescaped[spec](partition))
        return next(found, None)

    return [
        (spec != part and part in unescaped and find_directory_name(part))
        or find_directory_name(spec)
        or spec
        for spec, part in specs.items()
    ]


def require_partitions(
    table: Table, partitions: PartitionSpecs | None, *, with_directories: bool = False
) -> None:
    """Raise :class:`NotFoundError` for a requested partition that has no files.

    A misspelled partition would otherwise look like one that needs no work. With
    ``with_directories``, a partition only needs a directory.
    """
    if partitions is not None:
        state = table.load()
        scan = scan_latest_buckets(state, PartitionRequest(partitions=partitions))
        check_partitions_exist(state, partitions, scan, with_directories=with_directories)


def check_partitions_exist(
    state: TableState,
    partitions: PartitionSpecs,
    scan: BucketScan | None,
    *,
    with_directories: bool = False,
) -> None:
    """Raise an error as :func:`require_partitions`; ``scan`` selects all of the partitions."""
    from paimon_orch.table.cleanup.data_roots import DataRoots
    from paimon_orch.table.cleanup.orphan_candidates import has_bucket_directories

    schema = state.schema
    specs = parse_partition_specs(partitions, schema)
    present = [] if scan is None else scan.list_partitions()
    roots: tuple[str, ...] = ()
    if with_directories:
        roots = DataRoots.of(state.io, state.paths, schema, state.owns_directory).roots
    for spec in specs:
        has_files = any(map(build_partition_matcher(spec, schema), present))
        if not has_files and not any(
            has_bucket_directories(state.io, root, schema, spec) for root in roots
        ):
            raise missing_partition_error(spec, state.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRequest(ParsedRequest):
    """Base class of requests that select partitions."""

    partitions: Annotated[
        PartitionSpecs | None,
        select_partitions("Partitions, also partial ones.", require_partitions),
    ] = None
    where: Annotated[
        str | None,
        Argument("SQL filter over partition columns.", metavar="CONDITION"),
    ] = None
