"""Masks of deletion vectors, compared with sets of positions, for every container kind."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paimon_orch.format.bytes.roaring import BLOCK_SIZE, ContainerLocation, read_containers
from paimon_orch.format.deleted_row_mask import DeletedRowMask
from paimon_orch.format.deletion_vector import DeletionVector, decode_deletion_vector_payload

WORD = 1 << 32
KINDS = ("array", "bit set", "runs", "full")
PART = st.tuples(st.integers(0, 3), st.sampled_from(KINDS), st.integers(0, 2**16))


def of_kind(kind: str, seed: int) -> set[int]:
    """Return positions of one block that are stored in a container of this kind."""
    random = np.random.default_rng(seed)
    if kind == "array":
        return set(random.choice(BLOCK_SIZE, random.integers(1, 4097), replace=False).tolist())
    if kind == "bit set":
        return set(random.choice(BLOCK_SIZE, random.integers(9000, 50_000), replace=False).tolist())
    if kind == "runs":
        starts = (
            np.sort(random.choice(BLOCK_SIZE // 64, random.integers(1, 900), replace=False)) * 64
        )
        lengths = random.integers(20, 65, len(starts))
        runs = zip(starts.tolist(), lengths.tolist(), strict=True)
        return {row for start, length in runs for row in range(start, start + length)}
    return set(range(BLOCK_SIZE))


def kind_of(container: ContainerLocation) -> str:
    if container.is_run:
        return "full" if container.cardinality == BLOCK_SIZE else "runs"
    return "bit set" if container.cardinality > 4096 else "array"


def expected(deleted: set[int], first: int, count: int) -> list[bool] | None:
    is_live = [row not in deleted for row in range(first, first + count)]
    return None if all(is_live) else is_live


def live_rows_of(rows: DeletedRowMask, first: int, count: int) -> list[bool] | None:
    is_live = rows.build_live_mask(first, count)
    if is_live is None:
        return None
    is_live.validate(full=True)
    answer: list[bool] = is_live.to_pylist()
    return answer


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=5)
def test_a_container_of_each_kind_is_unpacked(kind: str, seed: int) -> None:
    deleted = of_kind(kind, seed)
    data = DeletionVector.of(sorted(deleted)).encode_payload(bitmap64=False)[4:]

    (container,), end = read_containers(data)

    assert (kind_of(container), end) == (kind, len(data))
    bits = np.unpackbits(container.bits(data), bitorder="little")
    assert set(np.flatnonzero(bits).tolist()) == deleted


@pytest.mark.slow
@given(
    st.lists(PART, max_size=4),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 4 * BLOCK_SIZE), st.integers(0, BLOCK_SIZE + 9)), max_size=4),
)
@example(
    [(1, "array", 0)],
    True,
    [(BLOCK_SIZE - 1, 2), (0, BLOCK_SIZE), (3, BLOCK_SIZE), (2 * BLOCK_SIZE, 7)],
)
@settings(max_examples=30, deadline=None)
def test_masks_select_the_rows_that_are_not_deleted(
    parts: list[tuple[int, str, int]], bitmap64: bool, batches: list[tuple[int, int]]
) -> None:
    start = WORD - 2 * BLOCK_SIZE if bitmap64 else 0  # the rows cross the end of a word
    deleted = {
        start + block * BLOCK_SIZE + row
        for block, kind, seed in parts
        for row in of_kind(kind, seed)
    }
    payload = DeletionVector.of(sorted(deleted)).encode_payload(bitmap64=bitmap64)
    rows = DeletedRowMask.of(decode_deletion_vector_payload(payload, "f"))

    for first, count in batches:
        assert live_rows_of(rows, start + first, count) == expected(deleted, start + first, count)


def test_a_batch_without_deleted_rows_has_no_mask() -> None:
    rows = DeletedRowMask.of(DeletionVector.of([3, WORD + 5]))

    assert rows.build_live_mask(4, 1000) is None
    assert rows.build_live_mask(5 * BLOCK_SIZE, 3 * BLOCK_SIZE) is None
    assert rows.build_live_mask(WORD - 2, 7) is None
    assert rows.build_live_mask(WORD, 6) == pa.array([True] * 5 + [False])
    assert DeletedRowMask.of(DeletionVector.of([])).build_live_mask(0, 10) is None
