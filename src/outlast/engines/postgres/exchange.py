"""exchange: a turn as the arguments of one function, and its rows as a deal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from msgspec import Struct

from outlast.core.model import Deal, Lease, Outcome, SignalIn, Step, Turn
from outlast.core.states import FINAL, Ms
from outlast.engines._shared import in_any_case
from outlast.engines.postgres.db import decode, encode
from outlast.engines.postgres.enqueue import new, text, topics

EXCHANGE: Final = f"select * from outlast.exchange({', '.join(f'${n}' for n in range(1, 37))})"
MANY_PASSED: Final = 2_000
PASSING_S: Final = 0.25e-6
_NO_OUTCOMES: Final = (True, *[None] * 21)


class Rest(Struct):
    """The row of an exchange that is no lease."""

    now: Ms
    evicted: bool
    repeated: bool
    again: bool
    topics: list[str]
    lost: list[int]
    cancel: list[tuple[str, str]] | None
    next_due: Ms | None
    pressure: dict[str, int] | None
    marks: dict[str, tuple[int, int, str]] | None
    passed: int
    """Dead entries that the claim had to pass."""
    untold: bool


class Marks:
    """Where the last claims ended, for as long as it is dear to look from the beginning.

    That is while somebody holds an old snapshot: 60,000 dead entries are 15 ms. The marks serve
    for 20 times as long as a look takes, so that looking costs a twentieth; a task that is ready
    before the marks waits that long at most.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._marks: dict[str, tuple[int, int, str]] = {}

    def current(self) -> str | None:
        """What to hand to the next exchange."""
        if not self._marks or time.monotonic() > self._until:
            return None
        return encode(self._marks).decode()

    def learn(self, rest: Rest) -> None:
        if rest.again:
            self._marks = {}
        elif rest.passed > MANY_PASSED:
            self._marks = rest.marks or {}
            self._until = time.monotonic() + rest.passed * 20 * PASSING_S
        elif rest.marks and self._marks:
            self._marks |= rest.marks


def arguments(turn: Turn, skew_ms: int, marks: Marks) -> tuple[Any, ...]:
    return (
        skew_ms,
        turn.token,
        turn.worker,
        turn.lease_ms,
        None if turn.info is None else encode(turn.info),
        *_wanted(turn),
        turn.room,
        turn.pressure,
        turn.leaving,
        *(_outcomes(turn.outcomes) if turn.outcomes else _NO_OUTCOMES),
        marks.current() if turn.room else None,
    )


def _wanted(turn: Turn) -> tuple[list[Any] | None, ...]:
    """Queues, lanes and totals of the lanes, each once; lane and number of each want.

    A worker's wants alternate between two lanes, 300 of them in a turn of 500. The totals are what
    the room allows; the first lane may fill up all of it, if the wants do not.
    """
    if not turn.wants:
        return (None,) * 5
    totals: dict[tuple[str, str], int] = {}
    room = turn.room
    for want in turn.wants:
        n = min(want.n, room)
        room -= n
        totals[want.queue, want.lane] = totals.get((want.queue, want.lane), 0) + n
    lanes = list(totals)
    if sum(want.n for want in turn.wants) <= turn.room:
        totals[lanes[0]] = turn.room
    spots = {lane: n for n, lane in enumerate(lanes, 1)}
    return (
        [queue for queue, _ in lanes],
        [lane for _, lane in lanes],
        list(totals.values()),
        [spots[want.queue, want.lane] for want in turn.wants],
        [want.n for want in turn.wants],
    )


def _outcomes(outcomes: Sequence[Outcome]) -> tuple[Any, ...]:
    """Columns: one array per field, None where no outcome sets it."""
    blobs: list[bytes] = []
    mores = [_more(outcome, blobs) for outcome in outcomes]
    told = any(more is not None for more in mores)
    simple = all(o.state in FINAL for o in outcomes) and not told
    said = [
        (n, key, ok, units, pause_ms)
        for n, o in enumerate(outcomes, 1)
        for key, ok, units, pause_ms in (
            *((c.key, c.ok, c.units, None) for c in o.charges),
            *((key, None, None, pause_ms) for key, pause_ms in o.pauses),
        )
    ]
    return (
        simple and len({o.id for o in outcomes}) == len(outcomes),
        [o.id for o in outcomes],
        [o.fence for o in outcomes],
        [o.state for o in outcomes],
        [o.verdict for o in outcomes],
        _column(outcomes, lambda o: o.result),
        _column(outcomes, lambda o: o.error),
        _column(outcomes, lambda o: None if o.error is None else brief(o.error)),
        _column(outcomes, lambda o: o.fingerprint),
        _column(outcomes, lambda o: o.reason),
        _column(outcomes, lambda o: o.progress),
        _column(outcomes, lambda o: o.lane),
        _column(outcomes, lambda o: o.delay_ms or None),
        _column(outcomes, lambda o: o.refund or None),
        _column(outcomes, lambda o: o.timeout_ms),
        text(mores) if told else None,
        blobs or None,
        *([list(column) for column in zip(*said, strict=True)] if said else [None] * 5),
    )


def _column(outcomes: Sequence[Outcome], field: Callable[[Outcome], Any]) -> list[Any] | None:
    values = [field(outcome) for outcome in outcomes]
    return None if all(value is None for value in values) else values


def _more(outcome: Outcome, blobs: list[bytes]) -> dict[str, Any] | None:
    """What only some outcomes have. Bytes go beside it, found by their number."""
    more: dict[str, Any] = {}
    if outcome.events:
        more["events"] = [(e.kind, _blob(blobs, e.data)) for e in outcome.events]
    if outcome.steps:
        more["steps"] = [(s.key, _blob(blobs, s.value)) for s in outcome.steps]
    if outcome.spawn:
        more["spawn"] = [new(task) for task in outcome.spawn]
        more["payloads"], more["anyway"] = len(blobs) + 1, in_any_case(outcome)
        blobs += [task.payload for task in outcome.spawn]
        blobs += [task.meta for task in outcome.spawn]
    if outcome.after:
        more["after"] = outcome.after
    elif outcome.park is not None:
        more["park"], more["awaits"] = outcome.park, outcome.awaits
    return more or None


def _blob(blobs: list[bytes], data: bytes) -> int:
    blobs.append(data)
    return len(blobs)


def brief(error: bytes) -> str:
    """What the history and the log tell of an error."""
    told = decode(error)
    return text({name: told.get(name) for name in ("code", "type", "message")})


def deal(turn: Turn, rows: Sequence[Any], marks: Marks) -> tuple[Deal, set[str]]:
    """The deal, and the topics to ring."""
    rest = decode(rows[0][0], type=Rest)
    marks.learn(rest)
    heard = set(rest.topics)
    rows = rows[1:] if rest.repeated else _in_order(turn, rows[1:])
    for row in rows:
        if row[27]:
            heard.add("log")
            heard.add(f"task:{row[1]}")
    for outcome in turn.outcomes:
        heard.add("log")
        heard.add(f"task:{outcome.id}")
        if outcome.spawn:
            heard |= topics(outcome.spawn)
    lost = tuple((turn.outcomes[n - 1].id, turn.outcomes[n - 1].fence) for n in rest.lost)
    return (
        Deal(
            now=rest.now,
            leases=tuple([_lease(turn.token, row) for row in rows]),
            lost=lost,
            cancel=tuple(rest.cancel or ()),
            next_due=rest.next_due,
            again=rest.again,
            untold=rest.untold,
            evicted=rest.evicted,
            pressure=rest.pressure or {},
        ),
        heard,
    )


def _in_order(turn: Turn, rows: Sequence[Any]) -> list[Any]:
    """As the wants stand, and then as the lanes do."""
    lanes: dict[tuple[str, str], list[Any]] = {(w.queue, w.lane): [] for w in turn.wants}
    for row in sorted(rows, key=itemgetter(10, 29, 1), reverse=True):  # priority, rank, id
        lanes[row[3], row[4]].append(row)
    ordered = []
    for want in turn.wants:
        lane = lanes[want.queue, want.lane]
        ordered += [lane.pop() for _ in range(min(want.n, len(lane)))]
    return ordered + [row for lane in lanes.values() for row in reversed(lane)]


def _lease(fence: int, row: Any) -> Lease:
    (
        _, task_id, kind, queue, lane, payload, attempt, number, max_attempts, losses, priority,
        timeout_ms, run_at, created_at, limits, units, session_id, user_id, parent_id, workflow_id,
        unique_key, meta, step_keys, step_values, names, data, at, _followed, max_losses, _rank,
    ) = row  # fmt: skip
    return Lease(
        id=task_id,
        fence=fence,
        type=kind,
        queue=queue,
        lane=lane,
        payload=payload,
        attempt=attempt,
        number=number,
        max_attempts=max_attempts,
        losses=losses,
        max_losses=max_losses,
        priority=priority,
        timeout_ms=timeout_ms,
        run_at=run_at,
        created_at=created_at,
        limits=tuple(zip(limits, units, strict=True)) if limits else (),
        session_id=session_id,
        user_id=user_id,
        parent_id=parent_id,
        workflow_id=workflow_id,
        unique_key=unique_key,
        meta=meta,
        steps=tuple(map(Step, step_keys, step_values)) if step_keys else (),
        inbox=tuple(map(SignalIn, names, data, at)) if names else (),
    )
