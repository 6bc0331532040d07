"""Paimon partitions and Dagster partition keys: the same partition in two spellings.

A spec is a mapping of all partition columns to their values as text, the way directories are named. Its *path* is
``dt=2026-01-01/region=eu`` in the escaping of directory names (format section 1.2). Its *key* is what Dagster shows:
the bare value for one column, the path for several.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paimon_orch.errors import InputError
from paimon_orch.format.partition import escape, unescape
from paimon_orch.format.schema import TableSchema


def parse_path(path: str) -> dict[str, str]:
    """Return the spec of a partition path; raises :class:`InputError` if it is none."""
    spec: dict[str, str] = {}
    for part in path.split("/"):
        column, separator, value = part.partition("=")
        if not (column and separator and value) or unescape(column) in spec:
            raise InputError(f"partition {path!r} must look like 'dt=2026-01-01/region=eu'")
        spec[unescape(column)] = unescape(value)
    return spec


def render_path(spec: Mapping[str, str]) -> str:
    """Return the path of a spec, in its order of columns."""
    return "/".join(f"{escape(column)}={escape(value)}" for column, value in spec.items())


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """Translates for a table with these partition columns, of which there is at least one."""

    columns: tuple[str, ...]

    @classmethod
    def of(cls, schema: TableSchema) -> "PartitionKeys":
        """Return the translation for a table; raises :class:`InputError` if it is not partitioned."""
        if not schema.partition_keys:
            raise InputError(
                "the table has no partition columns, so its assets must not be partitioned: "
                "leave partitions_def out"
            )
        return cls(tuple(schema.partition_keys))

    def render(self, spec: Mapping[str, str]) -> str:
        """Return the Dagster key of a partition; the spec's order does not matter."""
        if set(spec) != set(self.columns) or not all(spec.values()):
            raise InputError(
                f"partition {dict(spec)} must give a value to each of {', '.join(self.columns)}"
            )
        if len(self.columns) == 1:
            return spec[self.columns[0]]
        return render_path({column: spec[column] for column in self.columns})

    def parse(self, key: str) -> dict[str, str]:
        """Return the partition of a Dagster key; raises :class:`InputError` if it is none of this table."""
        spec = {self.columns[0]: key} if len(self.columns) == 1 else parse_path(key)
        if tuple(spec) != self.columns or not all(spec.values()):
            raise InputError(
                f"partition key {key!r} does not fit the partition columns {', '.join(self.columns)}"
            )
        return spec

    def key_of(self, path: str) -> str:
        """Return the Dagster key of a partition path."""
        return self.render(parse_path(path))

    def path_of(self, key: str) -> str:
        """Return the partition path of a Dagster key."""
        return render_path(self.parse(key))
