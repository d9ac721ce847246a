"""What becomes of a task when an attempt ends: from what happened to an `Outcome`, purely."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from outlast.context import Again, progress_of
from outlast.core.budgets import charges_for, is_budget
from outlast.core.codec import dumps, loads
from outlast.core.durations import MAX_MS, show_ms
from outlast.core.failures import Failure, fingerprint, from_wire, to_error
from outlast.core.model import Charge, Json, Lease, NewEvent, Outcome
from outlast.core.retry import Retry
from outlast.core.secret import Mask
from outlast.core.states import Ms
from outlast.core.usage import read_usage
from outlast.steps import Wait

# A service that answers 429 without saying for how long is left alone for at least this long.
MIN_PAUSE_MS: Final = 1_000
# A type this worker does not know comes back after 1 s, then 2 s, …: another worker may know it.
UNKNOWN_MS: Final = 1_000
UNKNOWN_MAX_MS: Final = 60_000
LATER_MS: Final = 250
LATER_MAX_MS: Final = 10_000


def completed(lease: Lease, result: Json) -> Outcome:
    return Outcome(
        id=lease.id,
        fence=lease.fence,
        state="completed",
        result=result,
        charges=_charges(lease, ok=True) if lease.limits else (),
    )


def again(lease: Lease, wish: Again, now: Ms) -> Outcome:
    """Parked on time, at no cost, and in the primary lane: waiting is no failure."""
    return Outcome(
        id=lease.id,
        fence=lease.fence,
        state="pending",
        verdict="waiting",
        lane="primary",
        delay_ms=wish.delay_ms(now),
        refund=True,
        charges=_charges(lease, ok=True),
    )


def suspended(lease: Lease, wait: Wait, now: Ms, mask: Mask | None = None) -> Outcome:
    """It waits for a time, a signal or its children, at no cost."""
    if mask is not None:
        asks, asked = (
            tuple(_masked(told, mask) for told in all) for all in (wait.asks, wait.asked)
        )
        wait = replace(wait, asks=asks, asked=asked)
    return Outcome(
        id=lease.id,
        fence=lease.fence,
        state="pending",
        verdict="waiting",
        lane="primary",
        # Parked on a signal, no delay is no deadline: one that has just come is a moment off.
        delay_ms=0 if wait.until is None else max(1 if wait.signal else 0, wait.until - now),
        park=None if wait.signal is None else f"signal:{wait.signal}",
        awaits=wait.awaits,
        after=wait.after,
        refund=True,
        steps=wait.steps,
        spawn=wait.spawn,
        charges=_charges(lease, ok=True),
        events=(*wait.events, *(_question(lease, question) for question in wait.asks)),
        progress=_asked(wait.asked[0], now) if wait.asked else None,
    )


def cancelled(lease: Lease, reason: str) -> Outcome:
    return Outcome(
        id=lease.id, fence=lease.fence, state="cancelled", verdict="cancelled", reason=reason
    )


def released(lease: Lease, delay_ms: int = 0) -> Outcome:
    """Given back as if it had never been taken."""
    return Outcome(
        id=lease.id,
        fence=lease.fence,
        state="pending",
        verdict="released",
        delay_ms=delay_ms,
        refund=True,
    )


def unknown(lease: Lease) -> Outcome:
    """A type without a handler here."""
    return released(lease, min(UNKNOWN_MS * lease.number, UNKNOWN_MAX_MS))


def on_last_life(lease: Lease) -> bool:
    """Would one more lost worker kill it? It may be what kills them, or a bystander."""
    return 1 <= lease.losses >= lease.max_losses - 1


def later(lease: Lease, draw: float) -> Outcome:
    """Not beside the one on its last life that runs here already."""
    # Each at another moment: many come in one turn, and whoever is next is not to wait for all.
    return released(lease, max(1, round(min(LATER_MS * lease.number, LATER_MAX_MS) * draw)))


def timed_out(lease: Lease, timeout_ms: int, retry: Retry, draw: float) -> Outcome:
    failure = from_wire(
        {
            "code": "timed_out",
            "type": "TimeoutError",
            "message": f"The attempt took longer than its timeout of {show_ms(timeout_ms)}.",
        }
    )
    longer = min(round(timeout_ms * retry.timeout_factor), MAX_MS)
    return _failed(lease, failure, retry, draw, longer if longer != timeout_ms else None)


def failed(lease: Lease, failure: Failure, retry: Retry, draw: float) -> Outcome:
    """Tried again by the policy, or dead; a 429 of a limited task closes its limits instead."""
    if failure.code == "rate_limit" and _services(lease):
        # It costs no attempt, so this one is never the last.
        decision = retry.decide(failure, lease.attempt, lease.attempt + 1, draw)
        if decision.delay_ms is not None:
            asked_ms = failure.retry_after_ms
            pause_ms = decision.delay_ms if asked_ms is None else asked_ms
            return _paused(lease, failure, max(pause_ms, MIN_PAUSE_MS))
    return _failed(lease, failure, retry, draw, None)


def unrecordable(outcome: Outcome, problem: str) -> Outcome:
    """Instead of an outcome that the engine cannot store: dead, with an error that says so."""
    error = {
        "code": "unrecordable",
        "type": "Unrecordable",
        "message": f"The engine could not store the outcome of this attempt: {problem[:1000]}",
        "details": {"state": outcome.state, "verdict": outcome.verdict},
        "traceback": None,
    }
    return Outcome(
        id=outcome.id,
        fence=outcome.fence,
        state="dead",
        verdict="failed",
        error=dumps(error),
        reason="unrecordable",
    )


def _failed(
    lease: Lease, failure: Failure, retry: Retry, draw: float, timeout_ms: int | None
) -> Outcome:
    decision = retry.decide(failure, lease.attempt, lease.max_attempts, draw)
    late = failure.code == "timed_out"
    dead = decision.delay_ms is None
    return Outcome(
        id=lease.id,
        fence=lease.fence,
        state="dead" if dead else "pending",
        verdict="timed_out" if late else "failed",
        lane=None if dead else "retry",
        delay_ms=decision.delay_ms or 0,
        error=dumps(to_error(failure)),
        fingerprint=fingerprint(failure),
        reason="timeout" if late and decision.reason == "attempts" else decision.reason,
        timeout_ms=timeout_ms,
        charges=_charges(lease, ok=False) if failure.speaks_of_service else (),
        events=(_alert(lease, failure),) if failure.kind == "memory" else (),
    )


def _paused(lease: Lease, failure: Failure, pause_ms: int) -> Outcome:
    return Outcome(
        id=lease.id,
        fence=lease.fence,
        state="pending",
        verdict="waiting",
        refund=True,
        error=dumps(to_error(failure)),
        fingerprint=fingerprint(failure),
        charges=_charges(lease, ok=False),
        pauses=tuple((key, pause_ms) for key in _services(lease)),
    )


def used(lease: Lease, data: Json, mask: Mask | None = None) -> Outcome:
    """News of what the attempt has used: told in the log, charged to the budgets of its task."""
    usage = replace(read_usage(data), user_id=lease.user_id)
    if mask is not None and usage.model is not None:
        usage = replace(usage, model=mask.text(usage.model))
    event = NewEvent(kind="usage", data=dumps(usage, "usage"), task_id=lease.id)
    charges = charges_for(lease.limits, usage) if lease.limits else ()
    return Outcome(id=lease.id, fence=lease.fence, events=(event,), charges=charges)


def _charges(lease: Lease, *, ok: bool) -> tuple[Charge, ...]:
    return tuple(Charge(key, ok=ok) for key in _services(lease))


def _services(lease: Lease) -> list[str]:
    """Limits that stand for a service: what it says is no concern of a budget."""
    return [key for key, _units in lease.limits if not is_budget(key)]


def _question(lease: Lease, question: Json) -> NewEvent:
    return NewEvent(kind="question", data=question, task_id=lease.id)


def _masked(question: Json, mask: Mask) -> Json:
    """What people are asked, without the task's secrets; the signal that they answer by stays."""
    told = loads(question)
    said = {name: mask.value(told[name]) for name in ("question", "action")}
    return dumps({**told, **said}, "question")


def _asked(question: Json, now: Ms) -> Json:
    """In the record it is the task's progress: what it waits for, for whoever looks."""
    told = loads(question)
    return progress_of(0, told["question"], 0, now, {"question": told})


def _alert(lease: Lease, failure: Failure) -> NewEvent:
    data = {"code": failure.code, "message": failure.message}
    return NewEvent(kind="alert", data=dumps(data), task_id=lease.id)
