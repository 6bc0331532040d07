"""Decodes manifest records from Avro, ORC or Parquet files (Paimon 0.9 to 1.x).

The first bytes identify the format of a file. Java Paimon reads all manifests of a table by the
option ``manifest.format``, so the option must not change. Only Avro is written.
"""

import io
from typing import Any

import pyarrow as pa

from paimon_orch.errors import UnsupportedError, wrap_decode_errors
from paimon_orch.format.manifest import avro_container as avro
from paimon_orch.format.manifest.additional_fields import KnownFields, find_unknown_fields
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import MANIFEST_FORMAT

_PARQUET_MAGIC = b"PAR1"
_ORC_MAGIC = b"ORC"


def check_manifest_format(options: Options) -> None:
    """Refuse to write a table whose ``manifest.format`` is not Avro."""
    kind = options.get(MANIFEST_FORMAT)
    if kind != "avro":
        raise UnsupportedError(
            f"'manifest.format' = {kind}: only Avro manifests can be written; use Java "
            "Paimon to change this table"
        )


def decode_records(data: bytes, path: str, known_fields: KnownFields) -> avro.DecodedRecords:
    """Return all records of a manifest, manifest list or index manifest.

    Error messages contain ``path``.

    Records also include unknown fields, whose definitions are returned separately.
    """
    with wrap_decode_errors(path):
        if data.startswith(_PARQUET_MAGIC):
            import pyarrow.parquet as pq

            table: pa.Table = pq.ParquetFile(io.BytesIO(data)).read(use_threads=False)
        elif data.startswith(_ORC_MAGIC):
            from pyarrow import orc

            table = orc.ORCFile(io.BytesIO(data)).read()
        else:
            return avro.decode_avro_file(data, path, known_fields)
        return avro.DecodedRecords(
            table.to_pylist(), find_unknown_fields(known_fields, _to_avro_structure(table.schema))
        )


def _to_avro_structure(columns: "pa.Schema | pa.DataType") -> Any:
    """Return field names as an Avro schema; types are None, so values are not preserved."""
    if isinstance(columns, pa.Schema | pa.StructType):
        fields = [{"name": field.name, "type": _to_avro_structure(field.type)} for field in columns]
        return {"type": "record", "name": "", "fields": fields}
    if isinstance(columns, pa.ListType):
        return {"type": "array", "items": _to_avro_structure(columns.value_type)}
    return None
