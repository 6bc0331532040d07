"""Retry policies: how often a call is repeated, and after which errors."""

import pytest
from support.clocks import replace_waits

from paimon_orch.retry_policy import RetryPolicy


def fail_until(successful: int, calls: list[int]) -> int:
    calls.append(len(calls) + 1)
    if len(calls) < successful:
        raise OSError(f"attempt {len(calls)}")
    return len(calls)


def test_a_call_is_repeated_after_the_named_errors() -> None:
    calls, failures = list[int](), list[tuple[int, str]]()

    result = RetryPolicy(attempts=3).call(
        lambda: fail_until(3, calls),
        retry_on=lambda error: isinstance(error, OSError),
        before_retry=lambda number, error: failures.append((number, str(error))),
    )

    assert result == 3
    assert failures == [(1, "attempt 1"), (2, "attempt 2")]


def test_a_block_is_repeated_after_the_named_errors() -> None:
    calls, policy = list[int](), RetryPolicy(attempts=3)

    for attempt in policy.retrying(retry_on=lambda error: isinstance(error, OSError)):
        with attempt:
            result = fail_until(2, calls)

    assert (result, calls) == (2, [1, 2])


def test_the_error_of_the_last_attempt_is_raised() -> None:
    calls = list[int]()
    with pytest.raises(OSError, match="attempt 2"):
        RetryPolicy(attempts=2).call(lambda: fail_until(3, calls), retry_on=lambda _: True)


def test_other_errors_are_raised_immediately() -> None:
    calls = list[int]()
    with pytest.raises(OSError, match="attempt 1"):
        RetryPolicy(attempts=3).call(lambda: fail_until(3, calls), retry_on=lambda _: False)
    assert calls == [1]


def test_a_call_is_repeated_until_it_has_a_result() -> None:
    results = iter([None, None, "done"])
    assert RetryPolicy(attempts=3).call_until_result(lambda: next(results)) == "done"
    assert RetryPolicy(attempts=2).call_until_result(lambda: None) is None


def test_the_wait_doubles_up_to_its_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = list[float]()
    replace_waits(monkeypatch, waits.append)

    RetryPolicy(attempts=5, min_wait=1, max_wait=3).call_until_result(lambda: None)

    assert [1 <= waits[0] <= 2, 2 <= waits[1] <= 3, 3 <= waits[2] <= 4, len(waits)] == [
        *[True] * 3,
        4,
    ]


def test_an_error_can_ask_for_a_longer_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, waits = list[int](), list[float]()
    replace_waits(monkeypatch, waits.append)

    RetryPolicy(attempts=3, min_wait=1.0, max_wait=1.0).call(
        lambda: fail_until(3, calls),
        retry_on=lambda error: isinstance(error, OSError),
        wait_at_least=lambda error: 30.0 if str(error) == "attempt 1" else 0.0,
    )

    assert waits[0] == 30.0
    assert 1.0 <= waits[1] <= 2.0


def test_the_waits_after_lost_races_become_shorter() -> None:
    policy = RetryPolicy(attempts=11, min_wait=0.01, max_wait=0.2)
    longest = [max(policy.draw_wait_after_lost_race(n) for _ in range(200)) for n in range(1, 12)]

    bounds = [0.0, *[0.2] * 2, 0.16, 0.08, 0.04, 0.02, *[0.01] * 4]
    assert all(bound * 0.8 <= wait <= bound for wait, bound in zip(longest, bounds, strict=True))
    assert {policy.draw_wait_after_lost_race(9) for _ in range(5)} != {0.01}


def test_a_drawn_wait_replaces_that_of_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, drawn = list[float](), iter([0.25, None, None])
    replace_waits(monkeypatch, waits.append)

    policy = RetryPolicy(attempts=3, min_wait=1.0, max_wait=8.0)
    policy.call_until_result(lambda: None, draw_wait=lambda: next(drawn))

    assert waits[0] == 0.25
    assert 2.0 <= waits[1] <= 3.0
