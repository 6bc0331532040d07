"""ORC data files through pyarrow.

pyarrow reads and writes ORC timestamps as nanoseconds, so years outside 1677 to 2262 are refused.
Times before 1970 with a fraction of a second are refused too, because pyarrow writes them wrongly.
pyarrow writes no type attributes, so files have no field ids; readers find columns by name.

See docs/format/data-files.md#orc-and-avro.
"""

import io
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from paimon_orch.decode_limits import (
    build_limit_error,
    fit_batch_rows,
    get_allowed_batch_bytes,
    measure_stored_bytes,
)
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.nested_arrays import (
    build_map_entries,
    map_atoms,
    map_key_value_types,
    with_fields,
    with_values,
)
from paimon_orch.files.orc_times import READ_ZONE, find_time_correction
from paimon_orch.format.arrays import Positions
from paimon_orch.format.orc.orc_metadata import OrcStripe, OrcTail, StripeFooter, check_postscript
from paimon_orch.format.orc.orc_streams import OrcStreamCheck
from paimon_orch.format.types.arrow import (
    NumberedBatch,
    build_record_batch,
    limit_batches,
    number_batches,
    to_arrow_type,
)
from paimon_orch.format.types.data_types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    VariantType,
    VectorType,
    has_atom,
    type_to_sql,
)

_NANOS_PER_SECOND = 10**9
_BYTES_PER_VALUE = 16
_LONG_TEXT_BYTES = 64 << 20  # of a batch in which each row can have a long text
_CODECS = {
    "zstd": "zstd",
    "snappy": "snappy",
    "lz4": "lz4",
    "zlib": "zlib",
    "gzip": "zlib",
    "none": "uncompressed",
    "uncompressed": "uncompressed",
}


class _FailureRecordingFile:
    """A file that records its exception, because the ORC library raises only the message."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._failure: Exception | None = None
        self.seek, self.tell, self.close = source.seek, source.tell, source.close

    @property
    def closed(self) -> bool:
        return self._source.closed

    def read(self, size: int = -1) -> bytes:
        try:
            return self._source.read(size)
        except Exception as error:
            self._failure = error
            raise

    @contextmanager
    def reraise_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self._failure is not None:
                raise self._failure from error
            raise


class _JoinedFile:
    """A file that consists of ranges of another file and of bytes."""

    def __init__(self, source: _FailureRecordingFile, parts: Sequence[range | bytes]) -> None:
        self._source, self._parts = source, parts
        self._starts = [0, *accumulate(map(len, parts))]
        self._position = 0
        self.close = source.close

    @property
    def closed(self) -> bool:
        return self._source.closed

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._starts[-1]}
        self._position = start[whence] + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self._starts[-1] if size < 0 else min(self._position + size, self._starts[-1])
        pieces = []
        while self._position < end:
            number = bisect_right(self._starts, self._position) - 1
            first, last = self._position - self._starts[number], end - self._starts[number]
            part = self._parts[number][first:last]
            if isinstance(part, range):
                self._source.seek(part.start)
                pieces.append(self._source.read(len(part)))
            else:
                pieces.append(part)
            if not pieces[-1]:
                break
            self._position += len(pieces[-1])
        return b"".join(pieces)


class OrcFileReader:
    """One open ORC file."""

    def __init__(
        self, source: IO[bytes], fields: Sequence[Field], *, legacy_instants: bool = True
    ) -> None:
        """Open a file; ``legacy_instants``: whether Java wrote instants as local times."""
        self._legacy_instants = legacy_instants
        self._source = _FailureRecordingFile(source)
        with self._source.reraise_failure():
            check_postscript(self._source)
            self._file = orc.ORCFile(self._source)
        self._size = measure_stored_bytes(source, source.seek(0, os.SEEK_END))
        self._tail.check_types()
        self._types = {field.name: field.type for field in fields}
        self.num_rows: int | None = self._file.nrows
        self.names: Sequence[str] = self._file.schema.names

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the named columns in file order; CHAR has no trailing spaces."""
        longest = self._check_stripes(columns, range(len(self._stripes)))
        types = len(self._tail.find_columns(set(columns)))
        batch_rows = fit_batch_rows(batch_rows, types, self._size, copies=4)
        has_times = any(map(self._has_times, columns))
        if has_times and len({footer.zone for footer in self._footers}) > 1:
            for number, stripe in enumerate(self._stripes):
                if not self._is_small(stripe, longest, columns):
                    content = f"a stripe of {stripe.rows} rows has texts of {longest} bytes"
                    raise build_limit_error(
                        content, get_allowed_batch_bytes(self._size), self._size
                    )
                yield self._read_stripe(number, columns)
            return
        import pyarrow.dataset as ds  # this import is slow, because it imports pandas

        # a dataset reads a stripe in batches; ORCFile reads the whole stripe
        source = self._time_source if any(map(self._has_times, columns)) else self._source
        fragment = ds.OrcFileFormat().make_fragment(source)
        rows = min(batch_rows, max((stripe.rows for stripe in self._stripes), default=0))
        is_long = longest * rows > get_allowed_batch_bytes(self._size)
        stripes = fragment.to_batches(
            columns=list(columns),
            batch_size=max(1, _LONG_TEXT_BYTES // longest) if is_long else batch_rows,
            batch_readahead=1,
            use_threads=False,
        )
        if is_long:
            stripes = limit_batches(stripes, batch_rows, self._size)
        with self._source.reraise_failure():
            for batch in stripes:
                if batch.num_rows:  # an empty file has a batch without rows
                    yield self._convert_batch(batch, 0)

    def find_instant_zones(self, columns: Iterable[str]) -> set[str]:
        """Return the zones of which the stored instants of some columns are local times.

        An empty name stands for an unknown zone. UTC is left out.
        """
        if not self._legacy_instants or not any(map(self._has_instants, columns)):
            return set()
        zones = {footer.zone for footer in self._footers}
        return {
            zone
            for zone in zones
            if not zone or find_time_correction(zone, legacy_instants=True) is not None
        }

    def find_instant_bounds(self) -> Iterator[tuple[str, AtomicType, tuple[int, int]]]:
        """Yield the columns of instants with their stored bounds in milliseconds since 1970."""
        for name, bounds in self._tail.find_time_bounds().items():
            data_type = self._types.get(name)
            if isinstance(data_type, AtomicType) and self._has_instants(name):
                yield name, data_type, bounds

    def _has_instants(self, name: str) -> bool:
        data_type = self._types.get(name)
        return data_type is not None and has_atom(data_type, TypeRoot.TIMESTAMP_LTZ)

    def _has_times(self, name: str) -> bool:
        data_type = self._types.get(name)
        return data_type is not None and any(
            has_atom(data_type, root) for root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
        )

    def _read_stripe(self, number: int, columns: Sequence[str]) -> pa.RecordBatch:
        file = self._time_file if any(map(self._has_times, columns)) else self._file
        with self._source.reraise_failure():
            batch = file.read_stripe(number, columns=list(columns))
        return self._convert_batch(batch, number)

    def read_selected(
        self, columns: Sequence[str], batch_rows: int, selected: Positions
    ) -> Iterator[NumberedBatch]:
        """Yield at least the selected rows, with their positions.

        Stripes without selected rows are not read.
        """
        begins = [0, *accumulate(stripe.rows for stripe in self._stripes)]
        stripes = np.unique(np.searchsorted(begins, selected, "right") - 1).tolist()
        if not columns or len(stripes) == len(self._stripes):
            yield from number_batches(0, self.batches(columns, batch_rows))
            return
        longest = self._check_stripes(columns, stripes)
        if any(not self._is_small(self._stripes[stripe], longest, columns) for stripe in stripes):
            yield from number_batches(0, self.batches(columns, batch_rows))
            return
        for stripe in stripes:
            yield from number_batches(begins[stripe], [self._read_stripe(stripe, columns)])

    def count_unread_bytes(self, selected: Positions) -> int:
        """Return the size in bytes of the stripes without selected rows."""
        ends = list(accumulate(stripe.rows for stripe in self._stripes))
        read = set(np.searchsorted(ends, selected, "right").tolist())
        return sum(stripe.size for number, stripe in enumerate(self._stripes) if number not in read)

    @cached_property
    def _tail(self) -> OrcTail:
        return OrcTail(self._file.reader.serialized_file_tail())

    @property
    def _stripes(self) -> list[OrcStripe]:
        return self._tail.stripes

    @cached_property
    def _footers(self) -> list[StripeFooter]:
        with self._source.reraise_failure():
            return [self._tail.read_footer(self._source, stripe) for stripe in self._stripes]

    @cached_property
    def _time_source(self) -> IO[bytes]:
        """The file with the zone in which the ORC library changes no time."""
        if all(footer.zone == READ_ZONE for footer in self._footers):
            return cast("IO[bytes]", self._source)
        parts = self._tail.replace_zones(self._footers, READ_ZONE)
        return cast("IO[bytes]", _JoinedFile(self._source, parts))

    @cached_property
    def _time_file(self) -> "orc.ORCFile":
        with self._source.reraise_failure():
            return orc.ORCFile(self._time_source)

    def _check_stripes(self, columns: Sequence[str], numbers: Iterable[int]) -> int:
        """Return the bytes of the longest texts of dictionaries, which each row can have.

        Refuses stripes with which pyarrow would end the process.
        """
        types = self._tail.find_columns(set(columns))
        check = OrcStreamCheck(self._source, self._tail, types, self._size)
        if not check.is_needed:
            return 0
        with self._source.reraise_failure():
            return max(
                (check.check(self._stripes[number], self._footers[number]) for number in numbers),
                default=0,
            )

    def _is_small(self, stripe: OrcStripe, longest: int, columns: Sequence[str]) -> bool:
        """Return whether a stripe can be read at once."""
        row_bytes = longest + _BYTES_PER_VALUE * len(columns)
        return stripe.rows * row_bytes <= get_allowed_batch_bytes(self._size)

    def _convert_batch(self, batch: pa.RecordBatch, stripe: int) -> pa.RecordBatch:
        arrays = [
            self._convert_column(array, name, stripe)
            for array, name in zip(batch.columns, batch.schema.names, strict=True)
        ]
        return build_record_batch(arrays, batch.schema.names, batch.num_rows)

    def _convert_column(self, array: pa.Array, name: str, stripe: int) -> pa.Array:
        """Trim CHAR, and correct timestamps; ``stripe`` has the array or the same time zone."""
        data_type = self._types.get(name)
        if data_type is None:
            return array
        if self._has_times(name) and self._footers:
            zone = self._footers[stripe].zone
            correct = find_time_correction(zone, legacy_instants=self._legacy_instants)
            if correct is not None:
                array = map_atoms(array, data_type, array.type, correct)
        if not has_atom(data_type, TypeRoot.CHAR):
            return array
        return map_atoms(array, data_type, array.type, _trim_padding)


def _trim_padding(array: pa.Array, data_type: AtomicType, _target: pa.DataType) -> pa.Array:
    """Remove the spaces with which ORC or a writer pads CHAR, as readers in Java Paimon do."""
    return pc.utf8_rtrim(array, " ") if data_type.name == TypeRoot.CHAR else array


class OrcFileWriter:
    """Writes one ORC file. A stripe is written to the sink when it is full."""

    def __init__(
        self, sink: IO[bytes], fields: Sequence[Field], codec: str, stripe_bytes: int
    ) -> None:
        if codec not in _CODECS:
            raise InputError(
                f"'file.compression' = {codec!r}: ORC supports {', '.join(sorted(_CODECS))}"
            )
        self._fields, self._is_empty = list(fields), True
        self._schema = pa.schema([(field.name, to_orc_type(field)) for field in fields])
        self._sink = _LateErrorSink(sink)
        self._writer = orc.ORCWriter(
            self._sink, compression=_CODECS[codec], stripe_size=stripe_bytes
        )

    def write(self, table: pa.Table) -> None:
        """Write rows; raises :class:`InputError` for values that other readers would change."""
        columns = [
            self._convert_column(table.column(field.name), field, target)
            for field, target in zip(self._fields, self._schema.types, strict=True)
        ]
        self._writer.write(pa.table(columns, schema=self._schema))
        self._sink.raise_error()
        self._is_empty = False

    def _convert_column(
        self, column: pa.ChunkedArray, field: Field, target: pa.DataType
    ) -> pa.ChunkedArray:
        parts = [_rebase_nested(chunk) for chunk in column.chunks]
        try:
            chunks = [map_atoms(part, field.type, target, _convert_atom) for part in parts]
        except pa.ArrowInvalid as error:
            raise InputError(f"column {field.name!r} cannot be written to ORC: {error}") from error
        return pa.chunked_array([_clear_below_null(chunk) for chunk in chunks], target)

    def close(self) -> None:
        """Write the last stripe and the footer."""
        if self._is_empty:  # pyarrow writes a footer only if it has written a table
            self._writer.write(self._schema.empty_table())
        self._writer.close()
        self._sink.raise_error()


class _LateErrorSink(io.RawIOBase):
    """A sink that never fails: an error that pyarrow's writer meets ends the process.

    :meth:`raise_error` raises the first error, such as that of a full disk.
    """

    def __init__(self, sink: IO[bytes]) -> None:
        super().__init__()
        self._sink, self._position = sink, 0
        self._error: BaseException | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: "bytes | memoryview[int]") -> int:  # type: ignore[override]
        """Write bytes unless a write has failed."""
        if self._error is None:
            try:
                self._sink.write(data)
            except BaseException as error:  # noqa: BLE001 - raised by the caller of the writer
                self._error = error
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes that the writer has written."""
        return self._position

    def raise_error(self) -> None:
        """Raise the first error of the sink."""
        if self._error is not None:
            raise self._error


def _rebase_nested(array: pa.Array) -> pa.Array:
    """Copy sliced nested values, because pyarrow would write the nulls before the slice."""
    return array.take(pa.array(np.arange(len(array)))) if pa.types.is_nested(array.type) else array


def _clear_below_null(array: pa.Array) -> pa.Array:
    """Set the fields of a null row to null.

    Otherwise pyarrow writes their values in place of later values.
    """
    kind = array.type
    if isinstance(kind, pa.StructType):
        # flatten sets the fields of null rows to null
        return with_fields(array, kind, [_clear_below_null(field) for field in array.flatten()])
    if isinstance(kind, pa.MapType):
        parts = [_clear_below_null(array.values.field(index)) for index in range(2)]
        return with_values(array, kind, build_map_entries(kind, parts))
    if isinstance(kind, pa.ListType):
        return with_values(array, kind, _clear_below_null(array.values))
    return array


def _convert_atom(array: pa.Array, data_type: AtomicType, target: pa.DataType) -> pa.Array:
    converted = array if array.type == target else array.cast(target)
    if pa.types.is_string(target):
        _check_length(converted, data_type)
    if isinstance(target, pa.TimestampType):
        counts = converted.view(pa.int64()).drop_null().to_numpy()
        if ((counts < 0) & (counts % _NANOS_PER_SECOND != 0)).any():
            raise pa.ArrowInvalid(
                "pyarrow writes timestamps before 1970 with fractional seconds in a form that "
                "other ORC readers cannot read; choose 'file.format' = 'parquet'"
            )
    return converted


def _check_length(array: pa.Array, data_type: AtomicType) -> None:
    """Raise ``pyarrow.ArrowInvalid`` for text that readers of Java cut to the length of its type."""
    (length,) = data_type.params
    longest = pc.max(pc.utf8_length(array)).as_py() if length < MAX_LENGTH else None
    if longest is not None and longest > length:
        sql_type = type_to_sql(data_type.with_nullable(True))
        raise pa.ArrowInvalid(
            f"it has text of {longest} characters, of which Java Paimon would read {length} as "
            f"{sql_type}; shorten the text, or change the type of the column to STRING"
        )


def to_orc_type(field: Field) -> pa.DataType:
    """Return the Arrow type by which a column is written; refuses types that ORC has not."""

    def convert(data_type: DataType) -> pa.DataType:
        match data_type:
            case AtomicType(name=TypeRoot.TIME):
                return pa.int32()
            case AtomicType(name=TypeRoot.TIMESTAMP):
                return pa.timestamp("ns")
            case AtomicType(name=TypeRoot.TIMESTAMP_LTZ):
                return pa.timestamp("ns", tz="UTC")
            case ArrayType(element=element):
                return pa.list_(convert(element))
            case MapType() | MultisetType():
                key, value = map_key_value_types(data_type)
                return pa.map_(convert(key), convert(value))
            case RowType(fields=fields):
                return pa.struct([(child.name, convert(child.type)) for child in fields])
            case VectorType() | VariantType():
                kind = type_to_sql(data_type).partition("<")[0].partition(" ")[0]
                raise UnsupportedError(
                    f"column {field.name!r} of type {type_to_sql(field.type)}: ORC does not "
                    f"support {kind}; choose 'file.format' = 'parquet'"
                )
        return to_arrow_type(data_type)

    return convert(field.type)
