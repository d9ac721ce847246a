"""The retry policy: schedules, rules, budgets, and what a handler asks for."""

import copy
import pickle

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.errors import BadInput, Permanent, Transient
from outlast.core.failures import Failure, classify, from_wire
from outlast.core.retry import Decision, Retry


def failed(code: str) -> Failure:
    return from_wire({"type": "Oops", "message": "no", "code": code})


def delays(policy: Retry, failure: Failure, n: int, draw: float = 0.0) -> list[float]:
    """Seconds before each of the next `n` attempts."""
    decisions = [policy.decide(failure, attempt, 1_000, draw) for attempt in range(1, n + 1)]
    return [decision.delay_ms / 1_000 for decision in decisions if decision.delay_ms is not None]


@pytest.mark.parametrize(
    ("code", "schedule"),
    [
        ("rate_limit", [60, 120, 300, 600, 600]),
        ("unavailable", [5, 10, 30, 60, 120, 120]),
        ("timeout", [2, 5, 10, 30, 60, 60]),
        ("timed_out", [2, 5, 10, 30, 60, 60]),
        ("network", [2, 5, 10, 30, 60, 60]),
        ("conflict", [5, 15, 60, 300, 300]),
        ("unknown", [5, 15, 60, 300, 300]),
        ("anything_else", [5, 15, 60, 300, 300]),
    ],
)
def test_the_default_is_a_table_by_code_whose_last_entry_repeats(code, schedule):
    assert delays(Retry(), failed(code), len(schedule)) == schedule


@given(st.floats(0, 1, exclude_max=True))
def test_jitter_adds_up_to_a_tenth(draw):
    [delay] = delays(Retry(), failed("rate_limit"), 1, draw)
    assert 60 <= delay <= 66


def test_a_schedule_for_everything():
    policy = Retry("5s 30s 2m")
    assert delays(policy, failed("rate_limit"), 4) == [5, 30, 120, 120]
    assert delays(policy, failed("unknown"), 1, draw=0.5) == [5.25]
    assert delays(Retry("5s", jitter=0), failed("unknown"), 1, draw=0.9) == [5]


def test_exponential_doubles_to_its_cap_with_jitter_to_both_sides():
    policy = Retry.exponential()
    assert delays(policy, failed("unknown"), 8, draw=0.5) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert delays(policy, failed("unknown"), 1, draw=0.0) == [0.8]
    assert delays(policy, failed("unknown"), 1, draw=0.999999) == [1.2]


def test_powers_of_two_to_five_minutes():
    policy = Retry.exponential("2s", "5m", jitter=0)
    assert delays(policy, failed("unknown"), 9) == [2, 4, 8, 16, 32, 64, 128, 256, 300]


def test_polynomial_grows_with_the_square():
    assert delays(Retry.polynomial(), failed("unknown"), 3) == [5, 20, 45]
    assert delays(Retry.polynomial("1s", 3), failed("unknown"), 3) == [1, 8, 27]


@pytest.mark.parametrize("policy", [Retry(), Retry.exponential(), Retry.polynomial(power=10)])
def test_no_attempt_number_is_too_large(policy):
    decision = policy.decide(failed("unknown"), 10**40, 10**41, 0.5)
    assert decision.delay_ms is not None


def test_attempts_run_out():
    assert Retry().decide(failed("unknown"), 3, 4, 0.0) == Decision(60_000)
    assert Retry().decide(failed("unknown"), 4, 4, 0.0) == Decision(None, "attempts")
    assert Retry().decide(failed("unknown"), 1, 1, 0.0) == Decision(None, "attempts")


def test_permanent_failures_and_memory_die_at_once():
    assert Retry().decide(failed("not_found"), 1, 4, 0.0) == Decision(None, "permanent")
    assert Retry().decide(classify(Permanent("no")), 1, 4, 0.0) == Decision(None, "permanent")
    assert Retry().decide(classify(MemoryError()), 1, 4, 0.0) == Decision(None, "out_of_memory")
    assert Retry("1s").decide(failed("not_found"), 1, 4, 0.0) == Decision(None, "permanent")


def test_retry_after_is_a_floor_under_the_schedule():
    assert delays(Retry(), classify(Transient("x", after="90s")), 1) == [90]
    assert delays(Retry(), classify(Transient("x", after="1s")), 1) == [5]
    assert delays(Retry(), from_wire({"status": 429, "retry_after": 200}), 3) == [200, 200, 300]


@given(st.floats(0, 1, exclude_max=True))
def test_jitter_never_undercuts_the_floor(draw):
    failure = from_wire({"status": 429, "retry_after": 30})
    for policy in (Retry("1s"), Retry.exponential()):
        [delay] = delays(policy, failure, 1, draw)
        assert 30 <= delay <= 36


def test_a_raised_retry_waits_exactly_as_long_as_asked():
    failure = classify(Retry(after="1s"))
    assert Retry().decide(failure, 1, 4, 0.9) == Decision(1_000)
    assert Retry().decide(failure, 4, 4, 0.9) == Decision(None, "attempts")
    assert delays(Retry(), classify(Retry()), 1) == [5]


def test_a_rule_gives_an_error_its_own_schedule():
    policy = Retry().on(TimeoutError, "1s 3s").on("rate_limit", "7s").on("KeyError", "9s")
    assert delays(policy, classify(TimeoutError()), 3) == [1, 3, 3]
    assert delays(policy, classify(httpx2.ReadTimeout("slow")), 1) == [1]
    assert delays(policy, failed("rate_limit"), 1) == [7]
    assert delays(policy, classify(KeyError("x")), 1) == [9]
    assert delays(policy, failed("unknown"), 1) == [5]


def test_a_rule_meets_subclasses_and_other_languages():
    policy = Retry().on(OSError, "1s").never(LookupError)
    assert delays(policy, classify(ConnectionResetError()), 1) == [1]
    assert delays(policy, from_wire({"type": "OSError"}), 1) == [1]
    assert policy.decide(classify(KeyError("x")), 1, 4, 0.0) == Decision(None, "never")


def test_the_first_rule_that_fits_decides():
    policy = Retry().on(KeyError, "1s").never(LookupError).on(LookupError, "9s")
    assert delays(policy, classify(KeyError("x")), 1) == [1]
    assert policy.decide(classify(IndexError()), 1, 4, 0.0).reason == "never"


def test_a_rule_overrules_the_classification_but_not_permanent():
    policy = Retry().on("not_found", "1s").on(MemoryError, "2s").on(Permanent, "3s")
    assert delays(policy, failed("not_found"), 1) == [1]
    assert delays(policy, classify(MemoryError()), 1) == [2]
    assert policy.decide(classify(Permanent("no")), 1, 4, 0.0).reason == "permanent"
    assert policy.decide(failed("not_found"), 4, 4, 0.0).reason == "attempts"


def test_a_rule_may_take_another_policy_or_inherits_the_jitter():
    policy = Retry(jitter=0).on("timeout", Retry.exponential()).on("network", "10s")
    assert delays(policy, failed("timeout"), 3, draw=0.5) == [1, 2, 4]
    assert delays(policy, failed("timeout"), 1, draw=0.0) == [0.8]
    assert delays(policy, failed("network"), 1, draw=0.9) == [10]


def test_never_takes_several():
    policy = Retry().never(ValueError, "KeyError", "conflict")
    for failure in (classify(ValueError()), classify(KeyError()), failed("conflict")):
        assert policy.decide(failure, 1, 4, 0.0) == Decision(None, "never")


def test_policies_are_values():
    policy = Retry("5s")
    assert policy.on(KeyError, "1s") is not policy
    assert delays(policy, classify(KeyError("x")), 1) == [5]
    assert Retry("5s 30s") == Retry("5s 0m30s") != Retry("5s")
    assert hash(Retry("60s")) == hash(Retry("1m"))
    assert Retry() != "Retry()"


@pytest.mark.parametrize(
    "policy",
    [
        Retry(),
        Retry(jitter=0),
        Retry("5s 1m30s", jitter=0.25),
        Retry(after="30s"),
        Retry(timeout_factor=1.5),
        Retry.exponential(),
        Retry.exponential("2s", "5m", 3, jitter=0, timeout_factor=2),
        Retry.polynomial("1s", 1.5),
        Retry().on(TimeoutError, "5s 30s 2m").never(ValueError, "conflict"),
        Retry("1s", jitter=0).on("timeout", Retry.exponential()).on("network", Retry("2s")),
        Retry.exponential().on("timeout", "5s"),
    ],
)
def test_the_repr_reads_like_the_constructor(policy):
    assert eval(repr(policy)) == policy  # noqa: S307 - this test's own text
    assert copy.copy(policy) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy  # noqa: S301 - this test's own bytes


def test_the_repr_leaves_out_what_is_usual():
    policy = Retry("5s 1m30s").on(TimeoutError, "2s").never(ValueError)
    assert repr(policy) == 'Retry("5s 1m30s").on("TimeoutError", "2s").never("ValueError")'
    assert str(Retry(after="90s")) == "The handler asked for another attempt in 1m 30s"


def test_a_longer_timeout_after_a_timeout_is_part_of_the_policy():
    assert Retry().timeout_factor == 1
    assert Retry(timeout_factor=1.5).on(KeyError, "1s").timeout_factor == 1.5
    assert Retry.exponential(timeout_factor=2).timeout_factor == 2


@pytest.mark.parametrize(
    ("make", "lesson"),
    [
        (lambda: Retry(""), "schedule is empty"),
        (lambda: Retry("5s soon"), "'soon' is not a duration"),
        (lambda: Retry("5s", after="1s"), "not both"),
        (lambda: Retry(jitter=2), "jitter is a share"),
        (lambda: Retry(jitter=float("nan")), "jitter is a share"),
        (lambda: Retry(timeout_factor=0.5), "timeout_factor"),
        (lambda: Retry.exponential(factor=0.5), "factor"),
        (lambda: Retry.exponential("2m", "1m"), "base"),
        (lambda: Retry.exponential(0), "base"),
        (lambda: Retry.polynomial(power=-1), "power"),
        (lambda: Retry().on(Exception, "5s"), "schedule for everything"),
        (lambda: Retry().never(BaseException), "max_attempts=1"),
        (lambda: Retry().never(), "at least one"),
        (lambda: Retry().on("rate limit", "5s"), "names no error"),
        (lambda: Retry().on(int, "5s"), "names no error"),
        (lambda: Retry().on(KeyError, Retry(after="5s")), "takes a schedule"),
    ],
)
def test_a_wrong_policy_is_refused_with_a_lesson(make, lesson):
    with pytest.raises(BadInput, match=lesson):
        make()
