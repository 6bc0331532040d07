"""Manifest entries of some buckets as columns, with numbers for equal files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import AnyArray, Indices, Mask
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind
from paimon_orch.steps.common.manifest_units import combine_codes, split_file_names, to_array


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedEntries:
    """The entries of a part, ordered by manifest, with numbers for equal values.

    ``files`` are equal for entries with the same identity, ``contents`` if the other checked fields
    are also equal, and ``places`` for entries with the same name in the same bucket.
    """

    table: pa.Table
    manifests: AnyArray
    starts: Indices
    kinds: AnyArray
    row_counts: AnyArray
    groups: Indices
    group_partitions: Sequence[bytes]
    group_buckets: Indices
    names: Indices
    distinct_names: pa.Array
    files: Indices
    contents: Indices
    content_rows: Indices
    """An entry of each content."""
    places: Indices

    @classmethod
    def of(cls, table: pa.Table) -> "CheckedEntries":
        """Order and number the entries of a table."""
        order = np.argsort(table["manifest"].to_numpy(), kind="stable")
        table = table.take(pa.array(order)).combine_chunks()
        partitions = to_array(table["partition"]).dictionary_encode()
        groups = combine_codes(partitions.indices.to_numpy(), table["bucket"])
        first = find_first_rows(groups)
        encoded_names = to_array(table["name"]).dictionary_encode()
        names = encoded_names.indices.to_numpy().astype(np.int64)
        places = files = combine_codes(names, pa.array(groups))
        for column in ("level", "extra_files", "embedded_index", "external_path"):
            files = combine_codes(files, table[column])
        contents = files
        for column in ("file_size", "row_count", "total_buckets", "min_key", "max_key"):
            contents = combine_codes(contents, table[column])
        manifests, starts = np.unique(table["manifest"].to_numpy(), return_index=True)
        return cls(
            table=table,
            manifests=manifests,
            starts=np.append(starts, len(table)),
            kinds=table["kind"].to_numpy(),
            row_counts=table["row_count"].to_numpy(),
            groups=groups,
            group_partitions=to_array(table["partition"]).take(pa.array(first)).to_pylist(),
            group_buckets=table["bucket"].to_numpy()[first],
            names=names,
            distinct_names=encoded_names.dictionary,
            files=files,
            contents=contents,
            content_rows=find_first_rows(contents),
            places=places,
        )

    def find_rows(self, numbers: Indices) -> Indices:
        """Return the entries of manifests, in the order of the manifests."""
        if not len(self.manifests):
            return np.zeros(0, np.int64)
        found = np.searchsorted(self.manifests, numbers).clip(max=len(self.manifests) - 1)
        found = found[self.manifests[found] == numbers]
        starts, lengths = self.starts[found], self.starts[found + 1] - self.starts[found]
        offsets = np.cumsum(lengths) - lengths
        rows: Indices = np.repeat(starts - offsets, lengths) + np.arange(int(lengths.sum()))
        return rows

    def find_live_rows(self, numbers: Indices) -> Indices:
        """Return the ADD entries of manifests without a DELETE entry."""
        rows = self.find_rows(numbers)
        is_delete = self.kinds[rows] == FileKind.DELETE
        if not is_delete.any():
            return rows
        deleted = np.zeros(len(self.table) + 1, bool)
        deleted[self.files[rows[is_delete]]] = True
        live: Indices = rows[~is_delete & ~deleted[self.files[rows]]]
        return live

    def to_flags(self, rows: Indices) -> Mask:
        """Return which files are in the entries."""
        flags = np.zeros(len(self.table) + 1, bool)
        flags[self.files[rows]] = True
        return flags

    def order_of(self, numbers: Indices, row: int) -> tuple[int, int]:
        """Return the place of an entry in a list of manifests."""
        number = self.table["manifest"][row].as_py()
        return int(np.flatnonzero(numbers == number)[0]), self.table["row"][row].as_py()

    def get_value(self, column: str, row: int) -> Any:
        """Return a value as a Python object."""
        return self.table[column][row].as_py()

    def build_file(self, row: int) -> DataFileMeta:
        """Return the checked fields of an entry's file."""
        get = self.get_value
        extra = get("extra_files", row)
        return DataFileMeta(
            file_name=get("name", row),
            file_size=get("file_size", row),
            row_count=get("row_count", row),
            level=get("level", row),
            extra_files=() if extra is None else tuple(split_file_names(extra)),
            external_path=get("external_path", row),
            **{
                name: get(name, row)
                for name in ("min_key", "max_key")
                if get(name, row) is not None
            },
        )


def find_first_rows(codes: Indices) -> Indices:
    """Return a row of each code."""
    rows = np.zeros(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    rows[codes[::-1]] = np.arange(len(codes))[::-1]
    return rows
