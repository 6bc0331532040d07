"""Errors as data."""

from __future__ import annotations

import pytest

from paimon_orch import errors
from paimon_orch.steps.common.unit_outcome import decode_error, encode_error


@pytest.mark.parametrize(
    "error",
    [
        errors.CorruptFileError("/a", "b"),
        errors.NotFoundError("no table t"),
        errors.CancelledError("stopped"),
    ],
)
def test_a_round_trip_does_not_change_errors(error: errors.PaimonError) -> None:
    decoded = decode_error(encode_error(error))

    assert (type(decoded), str(decoded)) == (type(error), str(error))


def test_an_unknown_subclass_is_decoded_as_its_nearest_known_class() -> None:
    class Elsewhere(errors.NotFoundError):
        def __init__(self, table: str, column: str) -> None:
            super().__init__(f"{table} has no column {column}")

    decoded = decode_error(encode_error(Elsewhere("t", "c")))

    assert (type(decoded), str(decoded)) == (errors.NotFoundError, "t has no column c")


@pytest.mark.parametrize("name", ["Iterator", "contextmanager", "os", "Exception", "nonsense"])
def test_only_error_classes_are_created_by_decoding(name: str) -> None:
    text = f'{{"type": "{name}", "arguments": ["a message"], "traceback": ""}}'

    assert type(decode_error(text)) is errors.PaimonError
