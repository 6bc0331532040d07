"""Reads damaged data files, for a process that may end by a signal of pyarrow.

python -m support.damaged_data_files FORMAT

prints one line for each file that was neither read nor refused by a `PaimonError`.
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import orc

from paimon_orch.errors import PaimonError, wrap_decode_errors
from paimon_orch.files.file_format import open_reader, open_writer
from paimon_orch.format.options import Options
from paimon_orch.format.orc.orc_metadata import OrcTail
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import parse_columns

FIELDS = parse_columns(
    "k INT, s STRING, t TIMESTAMP(3), m MAP<STRING, ARRAY<INT>>, r ROW<x BIGINT, y DECIMAL(20, 2)>"
)


def find_first_damaged(data: bytes, kind: str) -> int:
    """Return where damage may begin: in ORC, the data of the stripe, after its index."""
    if kind != "orc":
        return max(0, len(data) - 1500)
    [stripe] = OrcTail(orc.ORCFile(io.BytesIO(data)).reader.serialized_file_tail()).stripes
    return stripe.offset + stripe.index_size


def build_file(kind: str) -> bytes:
    """Return a small file, without compression, so that damage reaches all decoders."""
    columns = [
        [*range(6)],
        ["a", None, "b", "c" * 9, "", "d"],
        [1, 2, None, 4, 5, 6],
        [[("a", [1, None]), ("b", None)], None, [], [("c", [])], None, [("d", [4])]],
        [{"x": 1, "y": None}, None, {"x": None, "y": 3}, None, None, {"x": 2, "y": 2}],
    ]
    sink, codec = io.BytesIO(), "null" if kind == "avro" else "none"
    writer = open_writer(sink, kind, FIELDS, Options({"file.compression": codec}), 0, 1 << 20)
    writer.write(pa.table(columns, schema=to_arrow_schema(FIELDS)))
    writer.close()
    return sink.getvalue()


def yield_damaged(data: bytes, first: int, count: int) -> Iterator[bytes]:
    """Yield files with flipped bits, lying lengths and missing bytes near their ends."""
    chance = random.Random(1)  # noqa: S311 - data, not a secret
    for number in range(count):
        changed, position = bytearray(data), chance.randrange(first, len(data))
        match number % 4:
            case 0 | 1:
                changed[position] ^= 1 << chance.randrange(8)
            case 2:
                changed[position : position + 4] = chance.choice([b"\xff" * 4, bytes(4)])
            case 3:
                del changed[position : position + chance.randrange(1, 30)]
        yield bytes(changed)


def main(kind: str) -> None:
    data = build_file(kind)
    names = [field.name for field in FIELDS]
    for number, damaged in enumerate(yield_damaged(data, find_first_damaged(data, kind), 1000)):
        try:
            with wrap_decode_errors("damaged"):
                reader = open_reader(io.BytesIO(damaged), f"damaged.{kind}", FIELDS)
                present = [name for name in names if name in reader.names]
                for batch in reader.batches(present, 1024):
                    batch.validate(full=True)
        except PaimonError:
            continue
        except Exception as error:  # noqa: BLE001 - a bug, which the test reports
            sys.stdout.write(f"{number}: {type(error).__name__}: {error}\n")


if __name__ == "__main__":
    main(sys.argv[1])
