"""Errors as data."""

from __future__ import annotations

import pytest

from paimon_orch import errors
from paimon_orch.retry_policy import RetryPolicy
from paimon_orch.steps.common.unit_outcome import (
    UnitOutcome,
    decode_error,
    encode_error,
    is_transient,
    run_unit,
)


class Work:
    """A unit that raises errors, one each time it runs, and then returns its result."""

    def __init__(self, *failures: BaseException, result: object = b"done") -> None:
        self.failures, self.result, self.runs = list(failures), result, 0

    def __call__(self) -> bytes:
        self.runs += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.result  # type: ignore[return-value]


def test_the_result_of_a_unit_is_its_outcome() -> None:
    assert run_unit(Work()) == UnitOutcome(result=b"done")


def test_the_error_of_a_unit_is_its_outcome() -> None:
    work = Work(errors.NotFoundError("no table t"))

    outcome = run_unit(work)

    assert (work.runs, outcome.result) == (1, None)
    assert outcome.error is not None
    decoded = decode_error(outcome.error)
    assert (type(decoded), str(decoded)) == (errors.NotFoundError, "no table t")


def test_a_result_that_is_not_bytes_is_an_error() -> None:
    outcome = run_unit(Work(result="text"))

    assert outcome.result is None
    assert "TypeError: a unit must return bytes, not str" in str(outcome.error)


def test_an_error_that_the_caller_retries_is_raised() -> None:
    lost, other = errors.StorageError("lost"), errors.InputError("other")

    def run(error: Exception) -> UnitOutcome:
        return run_unit(Work(error), is_retryable=lambda error: error is lost)

    with pytest.raises(errors.StorageError) as caught:
        run(lost)
    assert caught.value is lost
    assert run(other).error is not None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_an_interrupted_unit_has_no_outcome(error: BaseException) -> None:
    with pytest.raises(type(error)):
        run_unit(Work(error))


def test_transient_errors_are_retried_a_limited_number_of_times() -> None:
    attempts = RetryPolicy(attempts=3)
    unstable = Work(TimeoutError(), errors.StorageError("busy"))
    broken = Work(*[TimeoutError()] * 4)

    assert run_unit(unstable, attempts=attempts).result == b"done"
    assert run_unit(broken, attempts=attempts).error is not None
    assert (unstable.runs, broken.runs) == (3, 3)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.StorageError("busy"), True),
        (errors.CatalogUnavailableError("busy"), True),
        (ConnectionResetError(), True),
        (errors.CommitConflictError("plan again"), False),
        (errors.CommitOutcomeUnknownError("no answer"), False),
        (errors.CorruptFileError("/a", "b"), False),
        (ValueError(), False),
    ],
)
def test_only_units_that_may_succeed_are_transient(error: Exception, expected: bool) -> None:
    attempts = RetryPolicy(attempts=2)
    work = Work(error)

    assert is_transient(error) is expected
    assert (run_unit(work, attempts=attempts).result is not None) is expected
    assert work.runs == 1 + expected


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


@pytest.mark.parametrize("error", [ConnectionResetError("by peer"), errors.StorageError("by peer")])
def test_an_error_of_the_operating_system_is_decoded_as_a_transient_one(error: Exception) -> None:
    decoded = decode_error(encode_error(error))

    assert (type(decoded), is_transient(decoded)) == (errors.StorageError, True)
    assert str(decoded).endswith("by peer")


@pytest.mark.parametrize("name", ["Iterator", "contextmanager", "os", "Exception", "nonsense"])
def test_only_error_classes_are_created_by_decoding(name: str) -> None:
    text = f'{{"type": "{name}", "arguments": ["a message"], "traceback": ""}}'

    assert type(decode_error(text)) is errors.PaimonError
