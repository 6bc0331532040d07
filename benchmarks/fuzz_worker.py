"""Coverage-guided fuzzing of the decoders, with the arguments of libFuzzer; needs atheris.

A decoder may reject its input with a PaimonError. Any other error ends the run, and the input is
written to a file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import atheris

with atheris.instrument_imports(include=["paimon_orch.format"]):
    from paimon_orch.errors import PaimonError
    from paimon_orch.format.bucket.hash_index import decode_hash_index
    from paimon_orch.format.deletion_vector import decode_deletion_vector_payload
    from paimon_orch.format.iceberg import iceberg_manifest, iceberg_manifest_list
    from paimon_orch.format.manifest.columnar_manifest import ColumnarManifest
    from paimon_orch.format.manifest.index_manifest import decode_index_manifest
    from paimon_orch.format.manifest.manifest_entry import decode_manifest
    from paimon_orch.format.manifest.manifest_list import decode_manifest_list
    from paimon_orch.format.schema import TableSchema
    from paimon_orch.format.snapshot import Snapshot
    from paimon_orch.format.table_statistics import TableStatistics

from support.decoder_samples import DECODERS as SAMPLES

DECODERS = (
    decode_manifest,
    decode_manifest_list,
    decode_index_manifest,
    decode_deletion_vector_payload,
    decode_hash_index,
    iceberg_manifest.decode_manifest,
    iceberg_manifest_list.decode_manifest_list,
    Snapshot.from_json,
    TableSchema.from_json,
    TableStatistics.from_json,
)


def decode_input(data: bytes) -> None:
    """Decode the input with the decoder that its first byte selects."""
    if not data:
        return
    number, content = data[0] % (len(DECODERS) + 1), data[1:]
    try:
        if number < len(DECODERS):
            DECODERS[number](content, "file")
        elif (columns := ColumnarManifest.decode(content, "file")) is not None:
            assert columns.entries() == decode_manifest(content, "file")
    except PaimonError:
        return


def main() -> None:
    """Run the fuzzer, with the decoder samples of the tests as corpus."""
    with tempfile.TemporaryDirectory() as folder:
        for number, (data, _) in enumerate(SAMPLES.values()):
            for decoder in range(len(DECODERS) + 1):
                Path(folder, f"{number}-{decoder}").write_bytes(bytes([decoder]) + data)
        atheris.Setup([*sys.argv, folder], decode_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
