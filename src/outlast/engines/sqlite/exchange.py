"""exchange: a worker's turn. Apply its outcomes, renew its lease, unpark what is due, claim."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, get_args

from outlast.core import limits as gate
from outlast.core.model import Deal, Lease, NewEvent, Outcome, SignalIn, Step, Turn
from outlast.core.states import FINAL, Lane, Ms
from outlast.engines._shared import met_by_cancel
from outlast.engines.sqlite.ends import Over, finish, give_back, settle
from outlast.engines.sqlite.enqueue import enqueue
from outlast.engines.sqlite.tx import (
    EXCHANGE,
    SETTLE_BUDGET,
    Held,
    Tx,
    decode,
    encode,
    limits_of,
)

DUE_BUDGET: Final = 500
"""Parked tasks that one exchange makes ready; measured: 500 cost about 2 ms."""
PARK_BUDGET: Final = 256
"""Candidates beyond its room that one exchange parks on limits before it says `again`."""
OPEN_LINES: Final = 64
REMEMBERED_TURNS: Final = 8
PRESSURE_CEILING: Final = 10_000
LANES: Final = len(get_args(Lane))

Candidate = tuple[int, int, int, str, str | None]
"""seq, priority, rank, id, limits"""


def exchange(tx: Tx, turn: Turn) -> Deal:
    row = tx.row(EXCHANGE["worker"], (turn.worker,))
    tokens: list[int] = decode(row[2]) if row is not None else []
    repeated = turn.token in tokens
    told_before = frozenset(tx.topics)
    lost = apply(tx, turn.outcomes, repeated=repeated)
    if (row is None and turn.info is None) or (row is not None and row[1]):
        return Deal(now=tx.now, lost=lost, evicted=True)
    info = encode(turn.info) if turn.info is not None else row[0]
    if turn.leaving:
        _leave(tx, turn.worker)
        return Deal(now=tx.now, lost=lost)
    if not repeated and (turn.room or turn.outcomes):
        tokens = [*tokens, turn.token][-REMEMBERED_TURNS:]
    lease_until = tx.now + turn.lease_ms
    tx.execute(
        EXCHANGE["renew"],
        (turn.worker, info, tx.now, lease_until, tx.mono + turn.lease_ms, tx.boot,
         encode(tokens).decode()),
    )  # fmt: skip
    unparked = unpark_due(tx, DUE_BUDGET)
    if repeated:
        seqs = [seq for (seq,) in tx.rows(EXCHANGE["leased_again"], (turn.worker, turn.token))]
        return Deal(now=tx.now, lost=lost, leases=_leases(tx, turn, seqs))
    leases, again, emptied = claim(tx, turn)
    # Whom this turn has made ready it has taken, too: nobody else needs to look.
    tx.topics -= {f"queue:{queue}" for queue in emptied} - told_before
    return Deal(
        now=tx.now,
        lost=lost,
        leases=leases,
        cancel=tuple(tx.rows(EXCHANGE["cancelled"], (turn.worker,))),
        again=again or unparked == DUE_BUDGET,
        untold=tx.untold,
        next_due=_next_due(tx, turn),
        pressure=_pressure(tx, turn) if turn.pressure else {},
    )


def _leave(tx: Tx, worker: str) -> None:
    for row in tx.rows(EXCHANGE["held_by_worker"], (worker, -1)):
        give_back(tx, Held(*row), verdict="released", refund=True)
    tx.execute(EXCHANGE["drop_worker"], (worker,))


# outcomes ----------------------------------------------------------------------------------------


def apply(tx: Tx, outcomes: tuple[Outcome, ...], *, repeated: bool) -> tuple[tuple[str, int], ...]:
    """Each outcome whose fence is current takes effect; the others come back as lost.

    The outcomes of a repeated turn have taken effect already: they are only judged.
    """
    if not outcomes:
        return ()
    held = tx.held({outcome.id for outcome in outcomes})
    lost: list[tuple[str, int]] = []
    over: list[Over] = []
    for outcome in outcomes:
        task = held.get(outcome.id)
        if task is not None and task.fence == outcome.fence:
            if not repeated:
                _apply_one(tx, task, outcome, over)
        elif not (task is not None and _again(task, outcome, repeated)):
            lost.append((outcome.id, outcome.fence))
    settle(tx, over, SETTLE_BUDGET * len(over))
    return tuple(lost)


def _again(task: Held, outcome: Outcome, repeated: bool) -> bool:
    """Is this the outcome that the task had from this very lease?"""
    if task.last_fence != outcome.fence:
        return False
    return outcome.state == task.state if outcome.state in FINAL else repeated


def _apply_one(tx: Tx, task: Held, outcome: Outcome, over: list[Over]) -> None:
    if outcome.state == "pending" and task.cancel is not None:
        outcome = met_by_cancel(outcome)
    for event in outcome.events:
        tx.log(task, event.kind, event.data)
    for step in outcome.steps:
        tx.execute(EXCHANGE["add_step"], (task.seq, step.key, step.value, tx.now, task.seq))
        tx.log(task, "step", {"step": step.key})
    if outcome.steps and not task.steps:
        task.steps = 1
        tx.execute(EXCHANGE["has_steps"], (task.seq,))
    if outcome.charges or outcome.pauses:
        _judge(tx, task, outcome)
    if outcome.spawn:
        enqueue(tx, outcome.spawn)
    if outcome.state == "running":
        if outcome.progress is not None:
            tx.log(task, "progress", b'{"progress":' + outcome.progress + b"}")
        chunks = any(event.kind == "chunk" for event in outcome.events)
        task.streamed = task.streamed or chunks
        progress = None if outcome.progress is None else outcome.progress.decode()
        tx.execute(EXCHANGE["go_on"], (progress, chunks, tx.now, task.seq))
        return
    if any(event.kind == "chunk" for event in outcome.events):
        task.streamed = True
    if outcome.state == "pending":
        give_back(
            tx,
            task,
            verdict=outcome.verdict,
            lane=outcome.lane,
            delay_ms=outcome.delay_ms,
            refund=outcome.refund,
            outcome=outcome,
            over=over,
        )
    else:
        finish(
            tx, task, outcome.state, reason=outcome.reason, verdict=outcome.verdict,
            outcome=outcome, over=over,
        )  # fmt: skip
    task.state, task.last_fence, task.fence = outcome.state, task.fence, None


def _judge(tx: Tx, task: Held, outcome: Outcome) -> None:
    """What the attempt has to say about its limits."""
    for charge in outcome.charges:
        limit, gauge = tx.limit(charge.key), tx.gauge(charge.key)
        gate.spend(limit, gauge, charge.units, tx.now)
        if charge.ok is None:
            continue
        turned = gate.charge(limit, gauge, task.id, charge.ok, tx.now)
        if turned is not None:
            data = {"key": charge.key, "circuit": "open" if turned == "opened" else "closed"}
            tx.log_told(NewEvent(kind="circuit", data=encode(data)), None, 0)
            tx.open_key(charge.key)
    for key, pause_ms in outcome.pauses:
        gate.pause(tx.gauge(key), tx.now + pause_ms)


# due ---------------------------------------------------------------------------------------------


def unpark_due(tx: Tx, budget: int) -> int:
    """Tasks parked on time (or on a signal with a deadline) whose moment has come."""
    due = tx.rows(EXCHANGE["unpark_due"], (tx.now, budget))
    for seq, queue, lane, fair_key in due:
        tx.topics.add(f"queue:{queue}")
        if fair_key is not None:
            tx.execute(EXCHANGE["set_rank"], (tx.rank(queue, lane, fair_key, tx.now), seq))
    return len(due)


def _next_due(tx: Tx, turn: Turn) -> Ms | None:
    if not turn.wants:
        return None
    times = [tx.value(EXCHANGE["next_wake"])]
    for queue, lane in {(want.queue, want.lane) for want in turn.wants}:
        times.append(tx.value(EXCHANGE["next_line"], (queue, lane, tx.now)))
    return min((at for at in times if at is not None), default=None)


def _pressure(tx: Tx, turn: Turn) -> dict[str, int]:
    queues = {want.queue for want in turn.wants}
    return {q: tx.value(EXCHANGE["retries_ready"], (q, PRESSURE_CEILING)) for q in queues}


# claim -------------------------------------------------------------------------------------------


def claim(tx: Tx, turn: Turn) -> tuple[tuple[Lease, ...], bool, Iterable[str]]:
    """Leases for the wants, in their order; whether there may be more at once; and the queues in
    which nobody is left who is ready."""
    if not turn.wants or turn.room <= 0:
        return (), False, ()
    paused = _paused(tx, turn)
    wants = [want for want in turn.wants if want.queue not in paused]
    claiming = Claiming(tx, turn.room)
    picked: list[int] = []
    for unbounded in (False, True):
        for want in wants:
            n = turn.room - len(picked)
            if not unbounded:
                n = min(n, want.n)
            for _ in range(n):
                seq = claiming.next(want.queue, want.lane)
                if seq is None:
                    break
                picked.append(seq)
    if not picked:
        return (), claiming.exhausted, claiming.emptied
    tx.execute(
        EXCHANGE["claim"],
        (turn.token, turn.worker, tx.now, tx.now, encode(picked).decode()),
    )
    return _leases(tx, turn, picked, new=True), claiming.exhausted, claiming.emptied


def _paused(tx: Tx, turn: Turn) -> set[str]:
    queues = sorted({want.queue for want in turn.wants})
    found = tx.rows(EXCHANGE["queue_records"], (encode(queues).decode(),))
    return {key for key, value in found if decode(value).get("paused")}


class Claiming:
    """The candidates of one exchange: ready tasks, and those that wait in lines now open."""

    def __init__(self, tx: Tx, room: int) -> None:
        self._tx = tx
        self._chunk = max(8, min(room, 500))
        self._budget = room + PARK_BUDGET
        self._sources: dict[tuple[str, str], Iterator[tuple[Candidate, str | None]]] = {}
        self._refused: dict[str, Ms | None] = {}
        self._bare: dict[tuple[str, str], bool] = {}
        self.exhausted = False

    @property
    def emptied(self) -> list[str]:
        """Queues of which both lanes were seen to their end, with no open line."""
        lanes = Counter(queue for (queue, _), bare in self._bare.items() if bare)
        return [] if self.exhausted else [queue for queue, n in lanes.items() if n == LANES]

    def next(self, queue: str, lane: str) -> int | None:
        """The next task of a lane that may run now; it holds its limits already."""
        source = self._sources.get((queue, lane))
        if source is None:
            source = self._sources[queue, lane] = self._candidates(queue, lane)
        for candidate, waits_for in source:
            if candidate[4] is None or self._admitted(candidate, queue, lane, waits_for):
                return candidate[0]
            if self._budget <= 0:
                self.exhausted = True
                return None
        self._bare.setdefault((queue, lane), True)
        return None

    def _candidates(self, queue: str, lane: str) -> Iterator[tuple[Candidate, str | None]]:
        """In order: ready ones merged with the waiters of the open lines."""
        tx = self._tx
        lines = []
        for (key,) in tx.rows(EXCHANGE["open_lines"], (queue, lane, tx.now, OPEN_LINES)):
            if key in self._refused:
                # By a task of another lane; whoever waits here must stay known.
                tx.close_line(key, queue, lane, self._refused[key])
                continue
            waiters = self._rows("waiting", (f"limit:{key}", queue, lane), key)
            first = next(waiters, None)
            if first is not None:
                lines.append(chain((first,), waiters))
            else:
                tx.execute(EXCHANGE["drop_line"], (key, queue, lane))
        ready = self._rows("ready", (queue, lane), None)
        if not lines:
            return ready
        self._bare[queue, lane] = False
        return heapq.merge(ready, *lines, key=_order)

    def _rows(
        self, statement: str, place: tuple[str, ...], key: str | None
    ) -> Iterator[tuple[Candidate, str | None]]:
        """In chunks, from a keyset on; those of a key only until the key refuses somebody."""
        last: tuple[int, int, str] = (-1, -1, "")
        while True:
            rows = self._tx.rows(EXCHANGE[statement], (*place, *last, self._chunk))
            for row in rows:
                if key in self._refused:
                    return
                yield row, key
            if len(rows) < self._chunk:
                return
            last = rows[-1][1:4]

    def _admitted(self, candidate: Candidate, queue: str, lane: str, waits_for: str | None) -> bool:
        """All its limits, or none and parked on the first that refuses."""
        tx, (seq, _, _, task_id, text) = self._tx, candidate
        wanted = limits_of(text)
        for key, units in wanted:
            if key in self._refused:
                at = self._refused[key]
            else:
                at = gate.admit(tx.limit(key), tx.gauge(key), units, tx.now)
                if at == 0:
                    continue
                self._refused[key] = at
            if waits_for != key:
                self._budget -= 1
                tx.execute(EXCHANGE["park_on_limit"], (f"limit:{key}", seq))
                tx.execute(EXCHANGE["add_line"], (key, queue, lane, at))
            tx.close_line(key, queue, lane, at)
            return False
        for key, units in wanted:
            gate.take(tx.limit(key), tx.gauge(key), task_id, units, tx.now)
        return True


def _order(entry: tuple[Candidate, str | None]) -> tuple[int, int, str]:
    return entry[0][1:4]


def _leases(tx: Tx, turn: Turn, seqs: list[int], *, new: bool = False) -> tuple[Lease, ...]:
    """The leases of claimed tasks, in order."""
    found = {row[0]: row for row in tx.rows(EXCHANGE["leased"], (encode(seqs).decode(),))}
    leases = []
    for seq in seqs:
        row = found[seq]
        leases.append(_lease(tx, turn.token, row))
        if new:
            if row[21]:
                _log_running(tx, turn, row)
            if row[24] is not None:
                tx.claimed(row[3], row[4], row[25])
    return tuple(leases)


def _log_running(tx: Tx, turn: Turn, row: tuple[Any, ...]) -> None:
    event = NewEvent(
        kind="state",
        data=encode({"status": "running", "worker": turn.worker, "lane": row[4]}),
        task_id=row[1],
        session_id=row[14],
        workflow_id=row[17],
    )
    tx.log_told(event, row[0], row[6])


def _lease(tx: Tx, fence: int, row: tuple[Any, ...]) -> Lease:
    seq = row[0]
    steps = tx.rows(EXCHANGE["steps"], (seq,)) if row[22] else ()
    inbox = tx.rows(EXCHANGE["inbox"], (seq,)) if row[23] else ()
    return Lease(
        id=row[1],
        fence=fence,
        type=row[2],
        queue=row[3],
        lane=row[4],
        attempt=row[5],
        number=row[6],
        max_attempts=row[7],
        losses=row[8],
        max_losses=row[26],
        priority=row[9],
        timeout_ms=row[10],
        run_at=row[11],
        created_at=row[12],
        limits=limits_of(row[13]),
        session_id=row[14],
        user_id=row[15],
        parent_id=row[16],
        workflow_id=row[17],
        unique_key=row[18],
        payload=row[19],
        meta=row[20],
        steps=tuple(Step(key, value) for key, value in steps),
        inbox=tuple(SignalIn(name, data, at) for name, data, at in inbox),
    )
