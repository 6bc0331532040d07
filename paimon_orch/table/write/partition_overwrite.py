"""Selects the partitions that an overwrite replaces."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from paimon_orch.errors import InputError
from paimon_orch.format.options.core_options import DYNAMIC_PARTITION_OVERWRITE
from paimon_orch.format.schema import TableSchema
from paimon_orch.table.filter.partition_spec import (
    PartitionSpec,
    build_any_partition_matcher,
    parse_partition_specs,
)


def build_overwrite_filter(
    written: Iterable[bytes],
    spec: PartitionSpec | Sequence[PartitionSpec] | None,
    schema: TableSchema,
) -> Callable[[bytes], bool] | None:
    """Return a filter of the partitions to replace, or None if no partition is replaced.

    All ``written`` partitions must match ``spec``.
    Raises :class:`NotFoundError` for a column that is not a partition column, and
    :class:`InputError` for a list that names no partition.
    """
    dynamic = schema.typed_options.get(DYNAMIC_PARTITION_OVERWRITE)
    if spec is None or isinstance(spec, Mapping):
        specs = None if spec is None else [spec]
    else:
        specs = parse_partition_specs(spec, schema)
    matches = None if specs is None else build_any_partition_matcher(specs, schema)
    if not schema.partition_keys or (spec is None and not dynamic) or spec == {}:
        return lambda _: True
    partitions = set(written)
    if matches is None or specs is None:
        return partitions.__contains__ if partitions else None
    if not all(map(matches, partitions)):
        text = " or ".join(str(dict(spec)) for spec in specs)
        raise InputError(f"not all rows are in the partition {text} to overwrite")
    return matches
