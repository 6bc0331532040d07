"""Converts input rows to Arrow tables."""

from typing import Any, Protocol

import pyarrow as pa

from paimon_orch.errors import InputError


class ArrowStreamExportable(Protocol):
    """An object with the Arrow C stream interface, such as pyarrow, pandas or Polars data."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with a stream of record batches."""


def to_arrow_table(rows: Any) -> pa.Table:
    """Convert an Arrow table or record batch, a pandas data frame, or an Arrow stream exporter.

    Polars data frames, DuckDB relations and record batch readers export Arrow streams. Raises
    :class:`InputError`, with the type or column, for other rows.
    """
    if isinstance(rows, pa.Table):
        return rows
    kind = f"{type(rows).__module__.partition('.')[0]}.{type(rows).__qualname__}"
    try:
        if isinstance(rows, pa.RecordBatch):
            return pa.Table.from_batches([rows])
        if kind == "pandas.DataFrame":
            return pa.Table.from_pandas(rows, preserve_index=False)
        if hasattr(rows, "__arrow_c_stream__"):
            for name, dtype in dict(rows.schema).items() if kind.startswith("polars.") else ():
                if str(dtype) == "Object":  # Polars exports the memory addresses of Python objects
                    raise TypeError(f"column {name!r} contains Python objects")
            return pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = "; ".join(str(argument) for argument in error.args)
        raise InputError(
            f"rows of {kind} cannot be converted to Arrow: {reason}. Convert the column first; "
            "nothing was written"
        ) from error
    raise InputError(
        f"rows must be a pyarrow.Table, or a data frame of pandas or Polars, not {kind}; nothing "
        "was written. Build one, for example pyarrow.Table.from_pylist(rows)"
    )
