"""Answers of indexes about many files are combined file by file."""

from __future__ import annotations

import itertools

import numpy as np

from paimon_orch.format.file_index.batch_indexes import (
    BatchAnswer,
    intersect_answers,
    unite_answers,
)

# Each file is excluded, has certainly such rows, or is undecided.
EXCLUDED, FOUND, UNDECIDED = (True, False), (False, False), (False, True)
PAIRS = [*itertools.product((EXCLUDED, FOUND, UNDECIDED), repeat=2)]


def answers(*, selects: bool) -> list[BatchAnswer]:
    """Return two answers about nine files."""
    return [
        BatchAnswer(
            np.array([pair[side][0] for pair in PAIRS]),
            np.array([pair[side][1] for pair in PAIRS]),
            selects,
        )
        for side in (0, 1)
    ]


def states(answer: BatchAnswer) -> list[tuple[bool, bool]]:
    return [*zip(answer.excluded.tolist(), answer.undecided.tolist(), strict=True)]


def test_an_intersection_excludes_what_one_answer_excludes() -> None:
    expected = [
        EXCLUDED if EXCLUDED in pair else UNDECIDED if UNDECIDED in pair else FOUND
        for pair in PAIRS
    ]

    assert states(intersect_answers(answers(selects=False))) == expected


def test_rows_that_two_indexes_select_may_be_others() -> None:
    expected = [EXCLUDED if EXCLUDED in pair else UNDECIDED for pair in PAIRS]

    assert states(intersect_answers(answers(selects=True))) == expected


def test_a_union_excludes_what_both_answers_exclude() -> None:
    expected = [
        EXCLUDED if pair == (EXCLUDED, EXCLUDED) else FOUND if FOUND in pair else UNDECIDED
        for pair in PAIRS
    ]

    assert states(unite_answers(answers(selects=True))) == expected
