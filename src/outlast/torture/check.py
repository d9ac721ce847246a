"""The judge: each invariant is a function that looks at the evidence, task by task.

It yields whatever it looked at, with None if that is right and a sentence if it is not. Only what
is certain is said: an answer that was lost is neither a success nor a failure, and "before" always
means that one call was answered before the other was asked, or that one line of the ledger was
written before the other. Engines may be wrong about time; the machine's own clock is the witness.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec

from outlast.core.model import Task, TaskId
from outlast.core.states import FINAL, LEGAL, State
from outlast.torture.evidence import NEVER, Evidence, Execution, Grant, Word, answer_for
from outlast.torture.load import FLAKY_FAILS, NARROW, RETRY_MS, SLOTS
from outlast.torture.nemesis import HEALED
from outlast.torture.record import Ns

Findings = Iterator[tuple[TaskId, str | None]]

MS: Final = 1_000_000
ROUNDING: Final = 5 * MS
RECOVERY: Final = 2_000 * MS
"""Within this, workers claim again after the engine is back."""
STOPPED: Final = 1_000 * MS
"""Within this, a stale attempt ends once its worker has been told."""
STATE_OF: Final[dict[str, State]] = {
    "ready": "pending", "scheduled": "pending", "retrying": "pending", "throttled": "pending",
    "blocked": "pending", "running": "running", "stalled": "running", "completed": "completed",
    "cancelled": "cancelled", "dead": "dead",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Invariant:
    """A promise, under the number it has in the reliability notes, and its judge."""

    id: str
    promise: str
    look: Callable[[Evidence], Findings]


# What came in, and what is there -----------------------------------------------------------------


def acknowledged_is_there(e: Evidence) -> Findings:
    for task, calls in e.enqueues.items():
        receipts = [receipt for call in calls if (receipt := answer_for(call, task))]
        if receipts:
            missing = [id for id, _ in receipts if id not in e.tasks]
            yield task, f"acknowledged as {missing[0]}, and not in the engine" if missing else None


def nothing_from_nowhere(e: Evidence) -> Findings:
    for task in e.tasks:
        asked = [call for call in e.enqueues.get(task, ()) if not call.refused]
        yield task, None if asked else "in the engine, and nobody asked for it"


# One end, by its owner ---------------------------------------------------------------------------


def ends_once(e: Evidence) -> Findings:
    for task in e.tasks.values():
        ends = {w.fence for w in e.words.get(task.id, ()) if w.taken and w.state in FINAL}
        wrong = None
        if len(ends) > 1:
            wrong = f"{len(ends)} attempts were told that they had ended it"
        for word in e.words.get(task.id, ()):
            if word.taken and word.state in FINAL and word.state != task.state:
                wrong = f"an attempt was told that it is {word.state}, and it is {task.state}"
        for call in e.cancels.get(task.id, ()):
            for id, applied, met in call.ok.altered if call.ok else ():
                if id == task.id and applied and met in FINAL:
                    wrong = f"it was {met}, and a cancel was applied to it"
        if task.state == "completed" and wrong is None:
            wrong = _wrong_result(e, task)
        yield task.id, wrong


def _wrong_result(e: Evidence, task: Task) -> str | None:
    """The result of every handler is the number of its attempt."""
    won = [past.number for past in e.pasts[task.id].values() if past.outcome == "succeeded"]
    if len(won) != 1:
        return f"completed, and {len(won)} of its attempts are recorded as succeeded"
    if task.result != str(won[0]).encode():
        return f"attempt {won[0]} is recorded as succeeded, with the result of {task.result!r}"
    if not any(x.number == won[0] and x.how == "end" for x in e.executions.get(task.id, ())):
        return f"attempt {won[0]} is recorded as succeeded, and no handler ended it"
    return None


def stale_is_refused(e: Evidence) -> Findings:
    for task, words in e.words.items():
        grants, pasts = e.grants.get(task, ()), e.pasts.get(task, {})
        for word in words:
            number = e.numbers.get((task, word.fence))
            if not word.taken or number is None:
                continue
            asked = _first_asked(word, words)
            newer = [g for g in grants if g.number > number and g.call.told_at < asked]
            past = pasts.get(number)
            wrong = None
            if newer:
                then = newer[0].number
                wrong = f"a write of attempt {number} was accepted after attempt {then} had begun"
            elif word.state != "running" and past is not None and past.outcome == "stalled":
                wrong = f"the end of attempt {number} was accepted, and it is recorded as lost"
            yield task, wrong


def _first_asked(word: Word, words: list[Word]) -> Ns:
    """When a write was first sent. If the answer to that was lost, it may have been applied then,
    and the turn, which goes again, is told that it was."""
    same = (word.fence, word.state, word.verdict)
    sent = [
        other.call.asked.at
        for other in words
        if (other.fence, other.state, other.verdict) == same
        and other.taken is None
        and not other.call.refused
    ]
    return min([*sent, word.call.asked.at])


def one_owner(e: Evidence) -> Findings:
    """Also where two copies ran at once: was the lease of the first over when the second began?"""
    for task, grants in e.grants.items():
        fences = defaultdict(set)
        for grant in grants:
            fences[grant.number].add(grant.fence)
        doubled = [number for number, some in fences.items() if len(some) > 1]
        yield task, f"attempt {doubled[0]} was given to two owners" if doubled else None
    for task, executions in e.executions.items():
        starts = Counter(x.number for x in executions)
        doubled = [number for number, n in starts.items() if n > 1]
        wrong = f"attempt {doubled[0]} was started twice" if doubled else None
        for stale, then in overlaps(executions):
            left = _left_of_lease(e, stale, then.start)
            if left > 0:
                wrong = (
                    f"attempt {then.number} began while attempt {stale.number} had "
                    f"{left // MS} ms of its lease left"
                )
        yield task, wrong


def overlaps(executions: list[Execution]) -> Iterator[tuple[Execution, Execution]]:
    """Pairs of attempts at one task of which the first still ran (or only began: its worker was
    paused) when the next had begun."""
    for first, then in pairwise(executions):
        if first.end is not None and first.end > then.start:
            yield first, then


def _grant(e: Evidence, execution: Execution) -> Grant | None:
    grants = e.grants.get(execution.task, ())
    return next((g for g in grants if g.number == execution.number), None)


def _left_of_lease(e: Evidence, execution: Execution, at: Ns) -> Ns:
    """How much of its lease an attempt certainly had left: each answered turn renews it, from the
    moment of asking at the earliest."""
    grant = _grant(e, execution)
    if grant is None:
        return 0
    words = e.words.get(execution.task, ())
    if any(w.fence == grant.fence and w.state != "running" and w.call.asked.at < at for w in words):
        return 0  # it had handed the task back
    turns = e.turns[grant.worker]
    renewed = [turn for turn in turns if turn.told_at < at and turn.ok and not turn.ok.evicted]
    return renewed[-1].asked.at + e.lease_ns - at if renewed else 0


def stale_copies_stop(e: Evidence) -> Findings:
    for task, executions in e.executions.items():
        for stale, _ in overlaps(executions):
            grant = _grant(e, stale)
            if grant is None or stale.end is None or e.planned[task].kind == "threaded":
                continue
            told = [
                turn.told_at
                for turn in e.turns[grant.worker]
                if turn.ok and (turn.ok.evicted or (task, grant.fence) in turn.ok.lost)
            ]
            late = stale.end - min(told, default=NEVER)
            wrong = f"attempt {stale.number} went on for {late // MS} ms after it was told to stop"
            yield task, wrong if late > STOPPED else None


# Nothing is stuck, nothing comes early -----------------------------------------------------------


def everything_ends(e: Evidence) -> Findings:
    for task in e.tasks.values():
        wrong = None
        if task.state not in FINAL:
            wrong = f"still {task.status} ({task.parked or task.worker}) when all should be over"
        elif task.id in e.stuck:
            wrong = "still running when all should be over: only the end of its worker ended it"
        yield task.id, wrong


def nothing_early(e: Evidence) -> Findings:
    for task, executions in e.executions.items():
        spec, wrong = e.planned.get(task), None
        if spec is None:
            continue
        first = min(x.start for x in executions)
        if spec.task.delay_ms:
            due = e.enqueues[task][0].asked.at + spec.task.delay_ms * MS
            if first < due - ROUNDING:
                wrong = f"began {(due - first) // MS} ms before it was due"
        for up in spec.task.after:
            ends = [x.end for x in e.executions.get(up, ()) if x.how == "end" and x.end is not None]
            if first < min(ends, default=NEVER):
                wrong = f"began before the task that it waits for ({up}) had ended"
        if spec.kind in ("flaky", "failing"):
            wrong = wrong or _early_retry(e, task, executions)
        for call in e.cancels.get(task, ()):
            for id, applied, met in call.ok.altered if call.ok else ():
                late = [g for g in e.grants.get(task, ()) if g.call.asked.at > call.told_at]
                if id == task and applied and met == "pending" and late:
                    wrong = f"attempt {late[0].number} was claimed after it was cancelled"
        yield task, wrong


def _early_retry(e: Evidence, task: TaskId, executions: list[Execution]) -> str | None:
    for failed, then in pairwise(executions):
        past = e.pasts.get(task, {}).get(failed.number)
        if failed.how == "fail" and failed.end and past is not None and past.outcome == "failed":
            early = failed.end + RETRY_MS * MS - then.start
            if early > ROUNDING:
                return f"attempt {then.number} began {early // MS} ms before it was due"
    return None


# Budgets -----------------------------------------------------------------------------------------


def budgets_hold(e: Evidence) -> Findings:
    for task in e.tasks.values():
        if task.id in e.planned and task.state in FINAL:
            yield task.id, _over_budget(e, task)


def _over_budget(e: Evidence, task: Task) -> str | None:
    kind = e.planned[task.id].kind
    ended = Counter(past.outcome for past in e.pasts[task.id].values())
    failed, stalled = ended["failed"] + ended["timed_out"], ended["stalled"]
    numbers = sorted(e.pasts[task.id])
    if numbers != list(range(1, task.number + 1)):
        return f"{task.number} attempts were started, and the record has {numbers}"
    if task.losses != stalled:
        return f"{stalled} attempts were lost, and {task.losses} are counted"
    if task.state != "cancelled" and task.reason != "stalled":
        counted = failed + ended["succeeded"]
        if task.attempt != counted:
            return f"{counted} attempts count, and the record says {task.attempt}"
    if task.state == "dead":
        if task.reason == "stalled" and stalled == task.max_losses:
            return None
        if task.reason == "attempts" and failed == task.max_attempts:
            return None
        return f"dead ({task.reason}) after {failed} failures and {stalled} losses"
    if stalled >= task.max_losses and task.state != "cancelled":
        return f"{task.state} after {stalled} losses of {task.max_losses}"
    if task.state == "completed" and kind in ("failing", "deadly"):
        return "completed, and no attempt at it can succeed"
    if task.state == "completed" and kind == "flaky" and failed != FLAKY_FAILS:
        return f"completed after {failed} failures, and it fails {FLAKY_FAILS} times"
    if task.state == "cancelled":
        return _why_cancelled(e, task)
    return None


def _why_cancelled(e: Evidence, task: Task) -> str | None:
    if task.reason == "upstream":
        ups = [e.tasks[up].state for up in task.after if up in e.tasks]
        return (
            None if {"dead", "cancelled"} & set(ups) else f"cancelled for an upstream that is {ups}"
        )
    asked = [call for call in e.cancels.get(task.id, ()) if not call.refused]
    return None if asked else f"cancelled ({task.reason}), and nobody asked for it"


# Keys and limits ---------------------------------------------------------------------------------


def keys_are_unique(e: Evidence) -> Findings:
    """A was acknowledged before B was asked for, and ran on until B had been acknowledged."""
    lives: dict[str, list[tuple[Ns, Ns, Ns, TaskId]]] = defaultdict(list)
    for id, spec in e.planned.items():
        key = spec.task.unique_key
        new = [c for c in e.enqueues.get(id, ()) if (r := answer_for(c, id)) and r[0] == id]
        ends = [x.end for x in e.executions.get(id, ()) if x.how == "end" and x.end is not None]
        if key is not None and new:
            asked = e.enqueues[id][0].asked.at
            lives[key].append((asked, new[0].told_at, min(ends, default=0), id))
    for key, some in lives.items():
        some.sort()
        for i, (asked, told, _, id) in enumerate(some):
            others = [one for one in some[max(0, i - 50) : i] if one[1] < asked and one[2] > told]
            yield id, f"{key}: task {others[0][3]} had the key and lived on" if others else None


def taken_keys_are_free_again(e: Evidence) -> Findings:
    """An enqueue that met its key met a task that may still have lived."""
    for call in e.calls:
        for asked, (met, _) in zip(
            call.asked.ids, call.ok.receipts if call.ok else (), strict=False
        ):
            if asked != met:
                ends = [w for w in e.words.get(met, ()) if w.taken and w.state in FINAL]
                over = any(word.call.told_at < call.asked.at for word in ends)
                yield (
                    asked,
                    f"its key was said to be taken by {met}, which was over" if over else None,
                )


def slots_hold(e: Evidence) -> Findings:
    """Attempts that ended under their lease held their slot from start to end."""
    moments: list[tuple[Ns, int, TaskId]] = []
    for id, spec in e.planned.items():
        if spec.task.limits:
            for x in e.executions.get(id, ()):
                past = e.pasts.get(id, {}).get(x.number)
                if x.how == "end" and x.end and past is not None and past.outcome == "succeeded":
                    moments += [(x.start, 1, id), (x.end, -1, id)]
    used = 0
    for _, change, id in sorted(moments):
        used += change
        if change > 0:
            yield id, f"{used} ran at once under a limit of {SLOTS}" if used > SLOTS else None
    for gauge in e.gauges:
        if gauge.key == NARROW and gauge.used:
            yield gauge.key, f"{gauge.used} slots are taken, and nothing runs"


def keys_and_limits(e: Evidence) -> Findings:
    yield from keys_are_unique(e)
    yield from taken_keys_are_free_again(e)
    yield from slots_hold(e)


# The log -----------------------------------------------------------------------------------------


def log_tells_it(e: Evidence) -> Findings:
    seen = dict(enumerate(e.tailed))
    gap = next((i for i, event in enumerate(e.log) if seen.get(i) != event.cursor), None)
    if gap is not None:
        event = e.log[gap]
        yield (
            event.task_id or "",
            f"whoever followed the log saw {seen.get(gap)}, not {event.cursor}",
        )
    elif len(e.tailed) > len(e.log):
        yield "", f"whoever followed the log saw {len(e.tailed) - len(e.log)} events more"
    for task in e.tasks.values():
        yield task.id, _wrong_path(e, task)


def _wrong_path(e: Evidence, task: Task) -> str | None:
    state: State | None = None
    seen: Counter[tuple[str, int]] = Counter()
    for event in e.events.get(task.id, ()):
        if state in FINAL:
            return f"the log goes on after {state}, with {event.kind}"
        if event.kind not in ("state", "done"):
            continue
        told = msgspec.json.decode(event.data)
        if "outcome" in told:
            seen[told["outcome"], event.attempt] += 1
        now = STATE_OF[told["status"]]
        seen[now if event.kind == "state" else "done", event.attempt] += 1
        if state is not None and now != state and now not in LEGAL[state] and task.followed:
            return f"the log goes from {state} to {now}"
        state = now
    if task.state in FINAL and state != task.state:
        return f"it is {task.state}, and the log ends with {state}"
    for past in e.pasts[task.id].values():
        ended, began = seen[past.outcome, past.number], seen["running", past.number]
        if past.outcome in ("failed", "timed_out", "stalled") and ended != 1:
            return f"attempt {past.number} {past.outcome}, and the log says so {ended} times"
        if task.followed and began != 1:
            return f"attempt {past.number} began, and the log says so {began} times"
    return None


# Faults ------------------------------------------------------------------------------------------


def recoveries(e: Evidence) -> Iterator[tuple[str, Ns | None]]:
    """How soon after each fault of the engine a worker was given something; None: never."""
    claims = sorted(call.told_at for call in e.calls if call.ok and call.ok.leases)
    for fault in e.faults:
        if fault.kind in HEALED:
            i = bisect_right(claims, fault.end)
            yield fault.kind, claims[i] - fault.end if i < len(claims) else None


def work_goes_on(e: Evidence) -> Findings:
    for fault in e.faults:
        yield fault.kind, fault.trouble or None
    for kind, took in recoveries(e):
        slow = took is None or took > RECOVERY
        told = "never" if took is None else f"{took // MS} ms"
        yield kind, f"the first claim after it: {told}" if slow else None


INVARIANTS: Final = (
    Invariant("I1", "No acknowledged task is lost", acknowledged_is_there),
    Invariant("I2", "No task is there that nobody asked for", nothing_from_nowhere),
    Invariant("I3", "A task ends once, and its end never changes", ends_once),
    Invariant("I4", "No stale write is accepted", stale_is_refused),
    Invariant("I5", "Every task comes to its end", everything_ends),
    Invariant("I6", "A task has one owner at a time", one_owner),
    Invariant("I7", "The log tells every change once, in order, without a gap", log_tells_it),
    Invariant("I8", "Nothing starts early, or after its cancel", nothing_early),
    Invariant("I9", "Failures and losses are counted, and death comes exactly then", budgets_hold),
    Invariant("I10", "Unique keys and limits are never exceeded", keys_and_limits),
    Invariant("I12", "Work goes on by itself within 2 s after a fault", work_goes_on),
    Invariant("I14", "A stale copy stops within 1 s of being told", stale_copies_stop),
)
