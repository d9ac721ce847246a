"""What becomes of a task when its attempt ends."""

from datetime import UTC, datetime

import msgspec
import pytest

from outlast.context import Again
from outlast.core.errors import BadInput, Transient
from outlast.core.failures import classify
from outlast.core.model import Charge, Lease
from outlast.core.retry import Retry
from outlast.worker import outcomes


def lease(**fields: object) -> Lease:
    usual: dict[str, object] = {
        "id": "t", "fence": 7, "type": "work", "queue": "default", "lane": "primary",
        "payload": b"{}", "attempt": 1, "number": 1, "max_attempts": 4, "losses": 0, "priority": 2,
        "timeout_ms": None, "run_at": 0, "created_at": 0,
    }  # fmt: skip
    return Lease(**{**usual, **fields})  # type: ignore[arg-type]


LIMITED = (("provider:x", 1), ("user:ada", 1))


def test_success_speaks_well_of_the_limits() -> None:
    end = outcomes.completed(lease(limits=LIMITED), b"5")
    assert (end.state, end.verdict, end.result) == ("completed", "succeeded", b"5")
    assert end.charges == (Charge("provider:x", ok=True), Charge("user:ada", ok=True))


def test_a_failure_is_tried_again_in_the_retry_lane() -> None:
    failure = classify(ValueError("no"))
    end = outcomes.failed(lease(limits=LIMITED), failure, Retry("5s", jitter=0), 0.0)
    assert (end.state, end.verdict, end.lane, end.delay_ms) == ("pending", "failed", "retry", 5_000)
    assert not end.refund
    assert end.charges == ()  # it says nothing about the service
    error = msgspec.json.decode(end.error or b"")
    assert (error["type"], error["message"]) == ("ValueError", "no")
    assert end.fingerprint


def test_an_error_of_the_service_counts_against_its_limits() -> None:
    end = outcomes.failed(lease(limits=LIMITED), classify(TimeoutError()), Retry(), 0.0)
    assert end.charges == (Charge("provider:x", ok=False), Charge("user:ada", ok=False))


def test_the_last_attempt_kills() -> None:
    end = outcomes.failed(lease(attempt=4), classify(ValueError("no")), Retry(), 0.0)
    assert (end.state, end.reason, end.lane) == ("dead", "attempts", None)


def test_out_of_memory_kills_and_alerts() -> None:
    end = outcomes.failed(lease(), classify(MemoryError()), Retry(), 0.0)
    assert (end.state, end.reason) == ("dead", "out_of_memory")
    assert [event.kind for event in end.events] == ["alert"]


def test_a_429_closes_the_limits_and_costs_no_attempt() -> None:
    failure = classify(Transient("slow down", status=429, after="30s"))
    end = outcomes.failed(lease(attempt=4, limits=LIMITED), failure, Retry(jitter=0), 0.0)
    assert (end.state, end.verdict, end.refund, end.delay_ms) == ("pending", "waiting", True, 0)
    assert end.pauses == (("provider:x", 30_000), ("user:ada", 30_000))


def test_a_429_that_does_not_say_for_how_long_pauses_by_the_schedule() -> None:
    failure = classify(Transient("slow down", status=429))
    end = outcomes.failed(lease(limits=LIMITED[:1]), failure, Retry("7s", jitter=0), 0.0)
    assert end.pauses == (("provider:x", 7_000),)


def test_a_429_of_a_task_without_limits_is_a_failure_like_others() -> None:
    failure = classify(Transient("slow down", status=429, after="90s"))
    end = outcomes.failed(lease(), failure, Retry(jitter=0), 0.0)
    assert (end.verdict, end.refund, end.lane, end.delay_ms) == ("failed", False, "retry", 90_000)


def test_a_429_that_is_never_to_be_retried_kills() -> None:
    failure = classify(Transient("slow down", status=429))
    end = outcomes.failed(lease(limits=LIMITED), failure, Retry().never("rate_limit"), 0.0)
    assert (end.state, end.reason, end.pauses) == ("dead", "never", ())


def test_after_a_timeout_the_next_attempt_may_get_more_time() -> None:
    end = outcomes.timed_out(lease(), 2_000, Retry("1s", jitter=0, timeout_factor=1.5), 0.0)
    assert (end.state, end.verdict, end.timeout_ms) == ("pending", "timed_out", 3_000)
    assert msgspec.json.decode(end.error or b"")["code"] == "timed_out"


def test_the_last_timeout_kills_for_that_reason() -> None:
    end = outcomes.timed_out(lease(attempt=4), 2_000, Retry(), 0.0)
    assert (end.state, end.verdict, end.reason) == ("dead", "timed_out", "timeout")


def test_again_is_parked_at_no_cost_in_the_primary_lane() -> None:
    end = outcomes.again(lease(lane="retry"), Again(after="30s"), now=1_000)
    assert (end.state, end.verdict, end.refund) == ("pending", "waiting", True)
    assert (end.lane, end.delay_ms) == ("primary", 30_000)


def test_again_at_a_moment_counts_from_engine_time() -> None:
    moment = datetime(2027, 1, 1, tzinfo=UTC)
    at = round(moment.timestamp() * 1_000)
    assert Again(at=moment).delay_ms(at - 500) == 500
    assert Again(at=at).delay_ms(at + 500) == 0
    with pytest.raises(BadInput):
        Again(at=datetime(2027, 1, 1))  # a moment without a zone is the point
    with pytest.raises(BadInput):
        Again(after="1s", at=moment)


def test_released_costs_nothing_and_keeps_its_lane() -> None:
    end = outcomes.released(lease(lane="retry"))
    assert (end.state, end.verdict, end.refund, end.lane) == ("pending", "released", True, None)


def test_an_unknown_type_comes_back_later_each_time() -> None:
    delays = [outcomes.unknown(lease(number=n)).delay_ms for n in (1, 2, 1_000)]
    assert delays == [1_000, 2_000, 60_000]


@pytest.mark.parametrize(
    ("losses", "max_losses", "last"),
    [(0, 3, False), (1, 3, False), (2, 3, True), (0, 1, False), (1, 2, True), (5, 3, True)],
)
def test_a_last_life_is_one_loss_before_death(losses: int, max_losses: int, last: bool) -> None:
    assert outcomes.on_last_life(lease(losses=losses, max_losses=max_losses)) is last


def test_those_that_wait_for_one_on_its_last_life_come_back_one_by_one() -> None:
    """In step with each other all but one would be late by the longest, each time."""
    delays = [outcomes.later(lease(number=4), draw).delay_ms for draw in (0.0, 0.25, 0.999)]
    assert delays == [1, 250, 999]
    assert outcomes.later(lease(number=1_000), 0.999).delay_ms == 9_990
