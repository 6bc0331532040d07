"""A small fuzz with a fixed seed: mutated bytes end in a value or an own error, within limits."""

from __future__ import annotations

import random

import pytest
from support.fuzz_samples import DATA_FILES, SAMPLES, mutate
from support.limited_process import run_limited

from paimon_orch.errors import PaimonError

SEED, MUTATIONS, FILE_MUTATIONS = 20261127, 400, 100


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SAMPLES)
def test_mutated_bytes_end_in_a_value_or_an_own_error(name: str) -> None:
    sample, decode = SAMPLES[name]
    decode(sample)
    count = FILE_MUTATIONS if name in DATA_FILES else MUTATIONS

    def fuzz() -> int:
        source = random.Random(SEED)  # noqa: S311 - repeatable damage
        for _ in range(count):
            data = mutate(sample, source)
            try:
                decode(data)
            except PaimonError:
                continue
            except Exception as error:
                raise RuntimeError(f"{data!r}: {error!r}") from error
        return count

    assert run_limited(fuzz, seconds=100) == count
