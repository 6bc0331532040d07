"""Reading files to ingest: Parquet, CSV with a header, JSON lines."""

from collections.abc import Sequence
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from paimon_orch.errors import InputError

_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


def read_files(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the rows of files or directories of one format.

    CSV and JSON values come as text and take the table's types when they are written: a value that does not fit is an
    error that names it. An empty CSV field is null.
    """
    formats = {_format_of(path) for path in paths}
    if len(formats) != 1:
        raise InputError(
            f"files of one format at a time: {', '.join(paths)} are {', '.join(sorted(formats))}"
        )
    (form,) = formats
    reader = session.read
    if form == "csv":
        reader = reader.option("header", "true")
    elif form == "json":
        reader = reader.option("primitivesAsString", "true")
    try:
        return reader.format(form).load(list(paths))
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(
            f"{', '.join(paths)}: cannot be read as {form}: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    """Return the first line of what Spark says, or what a Java exception was caused by in the end."""
    lines = str(error).strip().splitlines()
    causes = [line.partition(": ")[2] for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else lines[0]


def _format_of(path: str) -> str:
    location = Path(path)
    names = [path]
    if "://" not in path and location.is_dir():
        names = [file.name for file in location.rglob("*") if file.is_file()] or [path]
    suffixes = {Path(name.removesuffix(".gz")).suffix.lower() for name in names}
    known = {_FORMATS[suffix] for suffix in suffixes if suffix in _FORMATS}
    if len(known) != 1:
        raise InputError(f"{path}: the format is told by the ending: {', '.join(_FORMATS)}")
    return known.pop()
