"""Reads the input files of an ingest: Parquet, CSV, and JSON lines."""

from collections.abc import Sequence

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from paimon_orch.errors import InputError
from paimon_orch.spark.row_conversion import quote_column, to_spark_schema
from paimon_orch.steps.ingest_files import (
    DEFAULT_CSV_FORMAT,
    CsvFormat,
    check_column_count,
    detect_common_format,
)
from paimon_orch.steps.ingest_json import (
    VARIANT_TEXT,
    JsonTypes,
    build_nesting_error,
    refuse_unknown_fields,
)

_BYTE_ENCODING = "ISO-8859-1"  # each character is one byte
_ASCII_SIZE = 128


def read_files(
    session: SparkSession,
    paths: Sequence[str],
    *,
    csv_format: CsvFormat = DEFAULT_CSV_FORMAT,
    json_types: JsonTypes | None = None,
) -> DataFrame:
    """Return the rows of files or directories of one format.

    CSV and JSON values are text, which a write casts to the table's types, also inside of the nested
    columns ``json_types``; other nested values have the types that Spark finds. Empty CSV fields are
    null. Errors are raised when rows are read: for values that cannot be cast, for bytes that cannot
    be decoded, and for rows that do not have the columns of the first line.
    """
    form = detect_common_format(paths)
    csv_format.check_file_format(form)
    reader = session.read
    if form == "csv":
        # without enforceSchema, Spark refuses files with different headers
        reader = reader.options(
            header=csv_format.columns is None,
            sep=csv_format.delimiter,
            encoding=_BYTE_ENCODING,
            mode="FAILFAST",
            enforceSchema=False,
        )
    elif form == "json":
        reader = reader.options(primitivesAsString=True, mode="FAILFAST")
    try:
        if form == "json":
            return _load_json(reader, paths, json_types)
        frame = reader.format(form).load(list(paths))
        return _decode_frame(frame, paths, csv_format) if form == "csv" else frame
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(
            f"{', '.join(paths)} cannot be read as {form}: {_find_reason(error)}"
        ) from error


def _load_json(reader: DataFrameReader, paths: Sequence[str], types: JsonTypes | None) -> DataFrame:
    """Return the rows of JSON files; the columns of a table with arrays and objects have its types."""
    frame = reader.json(list(paths))
    if types is None:
        return frame
    place = ", ".join(paths)
    fields = [
        StructField(field.name, _choose_json_type(field, types, place)) for field in frame.schema
    ]
    # Spark finds no column that has only empty objects
    nested = {name: _to_spark_type(kind) for name, kind in types.nested.items()}
    found = {field.name.lower() for field in fields}
    for name, kind in {**dict.fromkeys(sorted(types.variants), StringType()), **nested}.items():
        if name.lower() not in found:
            field = StructField(name, kind)
            column = reader.schema(StructType([field])).json(list(paths))
            if not column.where(fn.col(quote_column(name)).isNotNull()).isEmpty():
                fields.append(field)
    if fields == list(frame.schema):
        return frame
    return reader.schema(StructType(fields)).json(list(paths))


def _choose_json_type(field: StructField, types: JsonTypes, place: str) -> DataType:
    """Return the type by which a column is read; raises :class:`InputError` for values it loses."""
    if field.name.lower() in types.variants:
        return StringType()
    if field.name not in types.nested:
        return field.dataType
    _check_nesting(field.dataType, types.nested[field.name], f"{place}: column {field.name!r}")
    return _to_spark_type(types.nested[field.name])


def _check_nesting(found: DataType, kind: pa.DataType, place: str) -> None:
    """Refuse values that Spark would leave out, or would return as JSON text."""
    match found, kind:
        case StructType(), pa.StructType():
            refuse_unknown_fields(place, found.names, kind)
            for field in found:
                _check_nesting(field.dataType, kind.field(field.name).type, place)
        case StructType(), pa.MapType():
            for field in found:
                _check_nesting(field.dataType, kind.item_type, place)
        case ArrayType(), pa.ListType():
            _check_nesting(found.elementType, kind.value_type, place)
        case ((StructType() | ArrayType()), _) if kind != VARIANT_TEXT:
            what = "an array" if isinstance(found, ArrayType) else "an object"
            raise build_nesting_error(place, what, kind)


def _to_spark_type(kind: pa.DataType) -> DataType:
    return to_spark_schema(pa.schema([("", kind)]))[0].dataType


def _decode_frame(frame: DataFrame, paths: Sequence[str], csv_format: CsvFormat) -> DataFrame:
    """Decode the column names and values of a frame in which each character is one byte."""
    characters, encoding = csv_format.upper_bytes, csv_format.encoding or "UTF-8"
    names = csv_format.columns
    if names is None:
        names = [_decode_name(name, characters, encoding) for name in frame.columns]
    else:
        check_column_count(", ".join(paths), len(frame.columns), names)
    columns = [
        _decode_column(fn.col(quote_column(name)), new, characters, encoding).alias(new)
        for name, new in zip(frame.columns, names, strict=True)
    ]
    return frame.select(*columns)


def _decode_name(name: str, characters: list[str] | None, encoding: str) -> str:
    try:
        if characters is None:
            return name.encode(_BYTE_ENCODING).decode()
        return "".join(
            char if ord(char) < _ASCII_SIZE else characters[ord(char) - _ASCII_SIZE]
            for char in name
        )
    except UnicodeError:
        raise InputError(
            f"the header has the column {name!r}, which is not {encoding}; set the encoding of the "
            "files with --encoding, for example latin-1. Nothing was committed"
        ) from None


def _decode_column(value: Column, name: str, characters: list[str] | None, encoding: str) -> Column:
    if characters is None:
        decoded = fn.encode(value, _BYTE_ENCODING).cast("string")
        wrong = ~fn.is_valid_utf8(decoded)
    else:
        high = [chr(byte) for byte in range(_ASCII_SIZE, 256)]
        undefined = [char for char, new in zip(high, characters, strict=True) if not new]
        decoded = fn.translate(
            value,
            "".join(char for char, new in zip(high, characters, strict=True) if new),
            "".join(characters),
        )
        wrong = value.rlike(f"[{''.join(undefined)}]") if undefined else fn.lit(False)
    message = fn.concat(
        fn.input_file_name(),
        fn.lit(f": column '{name}' has '"),
        value,
        fn.lit(
            f"', which is not {encoding}; set the encoding of the files with --encoding, for "
            "example latin-1"
        ),
    )
    return fn.when(value.isNotNull() & wrong, fn.raise_error(message)).otherwise(decoded)


def _find_reason(error: Exception) -> str:
    """Return the root cause of a Java exception, or the first line of Spark's message."""
    lines = str(error).strip().splitlines()
    causes = [line.partition(": ")[2] for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else lines[0]
