"""Coverage-guided fuzzing of the decoders, with the arguments of libFuzzer; needs atheris.

A decoder may reject its input with a PaimonError. Any other error ends the run, as does an input
that needs more than 3 GiB of memory or 60 seconds, and the input is written to a file.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import atheris

with atheris.instrument_imports(include=["paimon_orch.format", "paimon_orch.files"]):
    from support.fuzz_samples import SAMPLES

from paimon_orch.errors import PaimonError

_LIMITS = ["-rss_limit_mb=3072", "-timeout=60"]
_MEMORY_BYTES = 8 << 30  # the limit above is checked once a second
_DECODERS = [decode for _, decode in SAMPLES.values()]


def decode_input(data: bytes) -> None:
    """Decode the input with the decoder that its first byte selects."""
    if not data:
        return
    try:
        _DECODERS[data[0] % len(_DECODERS)](data[1:])
    except PaimonError:
        return


def main() -> None:
    """Run the fuzzer, with the samples of the tests as corpus."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        for number, (sample, _) in enumerate(SAMPLES.values()):
            Path(folder, str(number)).write_bytes(bytes([number]) + sample)
        atheris.Setup([*sys.argv, *_LIMITS, "-max_len=32768", folder], decode_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
