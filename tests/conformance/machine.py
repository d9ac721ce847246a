"""Random commands for an engine and for the model at once; after each, both must look the same.

Every rule draws values of one fixed shape and maps them onto what exists when it runs, so that a
run can be repeated from its choices although the clock of a real engine goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, get_args

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from outlast.core.errors import BadInput
from outlast.core.ids import new_fence, new_id
from outlast.core.limits import Limit, Trip, resolve
from outlast.core.model import (
    Cancel,
    Change,
    Charge,
    EventQuery,
    Forget,
    Lease,
    NewEvent,
    NewTask,
    Outcome,
    Put,
    Redrive,
    Reprioritize,
    Reschedule,
    Resolve,
    Signal,
    Step,
    Task,
    TaskQuery,
    Turn,
    Want,
)
from outlast.core.states import FINAL, Lane, Ms
from outlast.engine import Engine

from .language import INFO, body, said
from .model import Model, Unknown, _due

X = TypeVar("X")

LEASE_MS = 10_000
QUEUES = ("q1", "q2")
KEYS = ("slots", "pair", "rate", "trip")
WORKERS = 3
MOST_TASKS = 14
"""Small on purpose: tasks that meet each other find more than tasks that do not."""

ANYTHING = tuple(Want(q, lane, 2) for q in QUEUES for lane in get_args(Lane))

PICK = range(1000)
FEW = range(4)
SOME = range(1, 4)
FLAG = (False, True)
STATE = ("completed", "pending", "dead", "running", "cancelled")
DELAYS = (0, 0, 1, 2_000, 15_000)
LATE = (0, LEASE_MS + 2)
LIMITS = ((), (), ("slots",), ("slots", "pair"), ("pair", "slots"), ("rate",), ("trip",))

BEGIN: dict[str, Sequence[Any]] = {"first": PICK, "second": PICK, "keys": LIMITS, "room": SOME}
COMMANDS: dict[str, dict[str, Sequence[Any]]] = {}
"""Every command with the values of its arguments."""


def command(**domains: Sequence[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule for Hypothesis, and the same for a plain random walk."""

    def marked(function: Callable[..., None]) -> Callable[..., None]:
        COMMANDS[function.__name__] = domains
        made: Callable[..., None] = rule(**_strategies(domains))(function)  # type: ignore[no-untyped-call]
        return made

    return marked


def _strategies(domains: dict[str, Sequence[Any]]) -> dict[str, Any]:
    return {name: st.sampled_from(domain) for name, domain in domains.items()}


class Coverage:
    """Which rule met a task in which status, over all runs of one test."""

    def __init__(self) -> None:
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.steps = 0
        self.stale = 0

    def table(self) -> str:
        rules = sorted({r for r, _ in self.pairs})
        statuses = sorted({s for _, s in self.pairs})
        lines = [f"{'':18}" + "".join(f"{s:>11}" for s in statuses)]
        for name in rules:
            cells = "".join(f"{self.pairs[name, s] or '.':>11}" for s in statuses)
            lines.append(f"{name:18}{cells}")
        share = 100 * self.stale // max(self.steps, 1)
        lines.append(f"{self.steps} steps, {share} % with a stale or lapsed lease")
        return "\n".join(lines)


class EngineMachine(RuleBasedStateMachine):
    """Subclassed with the engine to drive; `coverage` is shared by all runs."""

    make_engines: Callable[[], Sequence[Engine]]
    """Engines on one store, as several processes have them: they take turns."""
    coverage: Coverage

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.engines = type(self).make_engines()
        self.calls = 0
        self.model = Model()
        self.leases: list[tuple[str, int, str]] = []  # every (id, fence, worker) ever given
        self.turns: list[Turn] = []
        self.identity = [0] * WORKERS
        self.ids: list[str] = []
        self.seen: str | None = None
        self.told: dict[str, list[str]] = {}
        self.keep_time: Ms = 0

    @initialize(**_strategies(BEGIN))
    def begin(self, first: int, second: int, keys: tuple[str, ...], room: int) -> None:
        """An empty engine is a dull place: start with some tasks, some of them leased."""
        for engine in self.engines:
            self.run(engine.open())
        self.keep_time = self.run(self.engine.now())
        for key in KEYS:
            self._put_limit(key, 1)
        a = self._new(first, 0, keys, unique_key="k0")
        b = self._new(second, 0, keys, followed=False)
        self._enqueue(a, b, self._new(second, after=(a.id, b.id)), self._new(first))
        self._turn(self.worker_at(0), wants=ANYTHING, room=room)

    def teardown(self) -> None:
        for engine in self.engines:
            self.run(engine.close())
        self.runner.close()

    @property
    def engine(self) -> Engine:
        self.calls += 1
        return self.engines[self.calls % len(self.engines)]

    def run(self, what: Coroutine[Any, Any, X]) -> X:
        return self.runner.run(what)

    # what exists ---------------------------------------------------------------------------------

    def task_at(self, n: int) -> str:
        return self.ids[n % len(self.ids)] if self.ids else "nobody"

    def worker_at(self, n: int) -> str:
        n %= WORKERS
        return f"w{n}.{self.identity[n]}"

    def live(self) -> list[tuple[str, int, str]]:
        tasks = self.model.tasks
        return [x for x in self.leases if x[0] in tasks and tasks[x[0]]["fence"] == x[1]]

    def some_live(self, n: int) -> list[tuple[str, int, str]]:
        """Live leases; when there are none, somebody tries to get some."""
        if not self.live():
            self._enqueue(self._new(n))
            self._turn(self.worker_at(n), wants=ANYTHING, room=2)
        return self.live()

    def note(self, name: str, task_id: str | None = None, *, stale: bool = False) -> None:
        task = self.model.tasks.get(task_id or "")
        status = self._status(task) if task else "-"
        self.coverage.pairs[name, status] += 1
        self.coverage.steps += 1
        self.coverage.stale += stale or status == "stalled"

    def _status(self, task: dict[str, Any]) -> str:
        if task["state"] == "running":
            lease = self.model.workers.get(task["worker"])
            return "running" if lease and lease["until"] > self.keep_time else "stalled"
        return "throttled" if task["parked"] == "limit" else self.model.status(task)

    def _lapsed(self, worker: str) -> bool:
        lease = self.model.workers.get(worker)
        return lease is not None and lease["until"] <= self.keep_time

    # enqueue -------------------------------------------------------------------------------------

    def _new(self, n: int, delay_ms: int = 0, limits: tuple[str, ...] = (), **more: Any) -> NewTask:
        return NewTask(
            id=new_id(),
            type="work",
            queue=QUEUES[n % 2],
            priority=n % 3,
            delay_ms=delay_ms,
            max_losses=1 + n % 3,
            limits=tuple((key, 1) for key in limits),
            **more,
        )

    def _enqueue(self, *tasks: NewTask) -> None:
        self._make_room()
        ids = {task.id for task in tasks}
        refused = answers = None
        try:
            answers = self.run(self.engine.enqueue(tasks))
        except BadInput:
            refused = True
        created = {t.created_at for t in self._tasks() if t.id in ids and t.id not in self.ids}
        assert len(created) <= 1, "one batch, one moment"
        now = created.pop() if created else self.run(self.engine.now())
        try:
            receipts = self.model.enqueue(now, tasks)
        except Unknown:
            assert refused, "an edge to an unknown task was accepted"
        else:
            assert answers is not None, "a good batch was refused"
            assert [(r.id, r.existing) for r in answers] == receipts
            self.ids = list(self.model.tasks)
        self.same()

    def _make_room(self) -> None:
        over = [t for t in self.ids if self.model.tasks[t]["state"] in FINAL]
        for task_id in over[: max(len(self.ids) - MOST_TASKS, 0)]:
            self._alter("forget", self.ids.index(task_id), Forget())

    @command(n=PICK, delay=DELAYS, keys=LIMITS, kind=FEW)
    def enqueue(self, n: int, delay: int, keys: tuple[str, ...], kind: int) -> None:
        key = f"k{n % 3 % 2}"
        more: tuple[dict[str, Any], ...] = (
            {"followed": False},
            {"unique_key": key},
            {"hold": "go"},
            {"unique_key": key},
        )
        self.note("enqueue", self.model.keys.get(key) if kind % 2 else None)
        self._enqueue(self._new(n, delay, keys, **more[kind]))

    @command(n=PICK, keys=LIMITS, size=FEW)
    def enqueue_batch(self, n: int, keys: tuple[str, ...], size: int) -> None:
        self.note("enqueue_batch")
        tasks = [self._new(n, 0, keys, unique_key=f"k{n % 2}" if n % 5 == 0 else None)]
        for _ in range(size):
            tasks.append(self._new(n, after=(tasks[-1].id,)))
        if n % 7 == 0:
            tasks.append(self._new(n, after=(new_id(),)))
        self._enqueue(*tasks)

    @command(n=PICK)
    def enqueue_again(self, n: int) -> None:
        task_id = self.task_at(n)
        self.note("enqueue_again", task_id)
        if self.ids:
            self._enqueue(NewTask(id=task_id, type="other", priority=0, queue="q1"))

    @command(n=PICK, m=PICK, any_end=FLAG, delay=DELAYS)
    def enqueue_after(self, n: int, m: int, any_end: bool, delay: int) -> None:
        if not self.ids:
            return
        ups = (self.task_at(n),) if n % 2 else (self.task_at(n), self.task_at(m))
        for up in ups:
            self.note("enqueue_after", up)
        self._enqueue(self._new(n, delay, after=ups, needs="any" if any_end else "success"))

    # turns ---------------------------------------------------------------------------------------

    def _turn(self, worker: str, **fields: Any) -> list[str]:
        known = worker in self.model.workers or any(t.worker == worker for t in self.turns)
        turn = Turn(
            token=new_fence(),
            worker=worker,
            lease_ms=LEASE_MS,
            info=None if known else INFO,
            **fields,
        )
        self.turns.append(turn)
        return self._exchange(turn)

    def _exchange(self, turn: Turn) -> list[str]:
        lapsed = [t["id"] for t in self.model.tasks.values() if _due(t, self.keep_time)]
        deal = self.run(self.engine.exchange(turn))
        assert deal.now >= self.keep_time, "engine time went back"
        expected = self.model.exchange(deal.now, turn)
        assert list(deal.lost) == expected["lost"], "lost"
        assert deal.evicted == expected["evicted"], "evicted"
        given = [lease.id for lease in deal.leases]
        if sorted(given) != sorted(expected["leases"]) or turn not in self.turns[:-1]:
            assert given == expected["leases"], f"leases; {len(lapsed)} were due"
        if turn in self.turns[-1:]:
            assert set(deal.cancel) == expected["cancel"], "cancel"
        for lease in deal.leases:
            self._check(lease, turn)
            if (lease.id, lease.fence, turn.worker) not in self.leases:
                self.leases.append((lease.id, lease.fence, turn.worker))
        self.same()
        return given

    def _check(self, lease: Lease, turn: Turn) -> None:
        task = self.model.tasks[lease.id]
        assert lease.fence == turn.token
        assert (lease.attempt, lease.number) == (task["attempt"], task["number"])
        assert (lease.losses, lease.lane) == (task["losses"], task["lane"])
        assert [s.key for s in lease.steps] == task["steps"]
        assert [s.name for s in lease.inbox] == task["inbox"]

    @command(who=FEW, n=SOME, which=FEW, late=LATE)
    def claim(self, who: int, n: int, which: int, late: int) -> None:
        worker = self.worker_at(who)
        self._move(late)
        queues = QUEUES[:1] if which == 1 else QUEUES
        if which == 2:  # more than the first want may take
            self._enqueue(self._new(0), self._new(0), self._new(1))
        wants = tuple(Want(q, lane, 1) for q in queues for lane in get_args(Lane))
        self.note("claim", stale=self._lapsed(worker))
        for task_id in self._turn(worker, wants=wants, room=n):
            self.coverage.pairs["claim", self._status(self.model.tasks[task_id])] += 1

    @command(who=FEW, n=SOME)
    def claim_retries_first(self, who: int, n: int) -> None:
        worker = self.worker_at(who)
        self.note("claim_retries_first", stale=self._lapsed(worker))
        wants = tuple(Want(q, lane, n) for lane in reversed(get_args(Lane)) for q in QUEUES)
        self._turn(worker, wants=wants, room=n)

    @command(who=FEW, late=LATE)
    def beat(self, who: int, late: int) -> None:
        self._move(late)
        self.note("beat", stale=self._lapsed(self.worker_at(who)))
        self._turn(self.worker_at(who))

    @command(who=FEW)
    def leave(self, who: int) -> None:
        worker = self.worker_at(who)
        self.note("leave", stale=self._lapsed(worker))
        self._turn(worker, leaving=True)
        self.identity[who % WORKERS] += 1

    @command(n=PICK)
    def repeat_turn(self, n: int) -> None:
        recent = self.turns[-6:]
        if recent:
            turn = recent[n % len(recent)]
            self.note("repeat_turn", stale=turn is not recent[-1])
            if not turn.leaving:
                self._exchange(turn)

    # outcomes ------------------------------------------------------------------------------------

    def _hand(
        self, name: str, n: int, state: str, turn: dict[str, Any] | None = None, **patch: Any
    ) -> None:
        """An outcome of a live lease, if there is one."""
        live = self.some_live(n)
        if not live:
            return
        if n % 3 == 2:
            self._move(LEASE_MS + 2)  # too late to be sure, but nobody has swept
        task_id, fence, worker = live[n % len(live)]
        self.note(name, task_id, stale=self._lapsed(worker))
        outcome = Outcome(id=task_id, fence=fence, state=state, **patch)  # type: ignore[arg-type]
        self._turn(worker, outcomes=(outcome,), **(turn or {}))
        if n % 3 == 1:  # the reply was lost
            self._exchange(self.turns[-1])

    @command(n=PICK, what=FEW)
    def report(self, n: int, what: int) -> None:
        chunk = NewEvent(kind="chunk", data=b'"x"')
        patches: tuple[dict[str, Any], ...] = (
            {"events": (chunk,)},
            {"steps": (Step(f"s{n % 3}", b"1"),)},
            {"progress": b"{}"},
            {"spawn": (self._new(n),)},
        )
        self._hand("report", n, "running", **patches[what])
        self.ids = list(self.model.tasks)
        if n % 2 == 0:  # and the next attempt finds it
            self._hand("release", n, "pending", {"wants": ANYTHING, "room": 2},
                       verdict="released", refund=True)  # fmt: skip
        elif what == 0:  # and then it fails
            self._hand("die", n, "dead", verdict="failed", reason="permanent")

    @command(n=PICK)
    def complete(self, n: int) -> None:
        self._hand("complete", n, "completed", result=b"1", charges=(Charge("trip", ok=True),))
        if n % 2:  # with a key that may be free again
            self._enqueue(self._new(n, unique_key=f"k{n // 2 % 2}"))

    @command(n=PICK)
    def complete_and_claim(self, n: int) -> None:
        self._hand("complete_and_claim", n, "completed", turn={"wants": ANYTHING, "room": 2})

    @command(n=PICK, delay=DELAYS)
    def fail(self, n: int, delay: int) -> None:
        self._hand("fail", n, "pending", verdict="failed", lane="retry", delay_ms=delay,
                   error=b'{"type":"T"}', charges=(Charge("trip", ok=False),))  # fmt: skip

    @command(n=PICK, delay=DELAYS)
    def snooze(self, n: int, delay: int) -> None:
        """For a while; some were told by the service that everybody should wait."""
        key = KEYS[n // 2 % len(KEYS)]
        pauses = ((key, 2_000),) if n % 2 else ()
        if pauses:  # somebody is there to wait
            self._enqueue(self._new(n, 0, (key,)))
        self._hand("snooze", n, "pending", {"wants": ANYTHING, "room": 2}, verdict="waiting",
                   refund=True, delay_ms=delay, pauses=pauses)  # fmt: skip

    @command(n=PICK)
    def trip(self, n: int) -> None:
        """The service fails and its circuit opens; later one of them may try."""
        self._put_limit("trip", 3)
        self._enqueue(*[self._new(n, 0, ("trip",)) for _ in range(2)])
        for _ in range(2):
            self._hand("trip", 3 * n, "pending", verdict="failed", lane="retry",
                       charges=(Charge("trip", ok=False),))  # fmt: skip
        self._move(5_000)
        self._turn(self.worker_at(n), wants=ANYTHING, room=3)

    @command(n=PICK, delay=DELAYS)
    def suspend(self, n: int, delay: int) -> None:
        """Until a signal; every other time it has come already."""
        live = self.some_live(n)
        if live and n % 2:
            self._alter("signal", self.ids.index(live[n % len(live)][0]), Signal("go"))
        self._hand("suspend", n, "pending", verdict="waiting", refund=True, delay_ms=delay,
                   park="signal:go", awaits=1 + n // 2 % 2)  # fmt: skip

    @command(n=PICK, m=PICK)
    def wait_for(self, n: int, m: int) -> None:
        live = self.some_live(n)
        if live and self.task_at(m) != live[n % len(live)][0]:
            after = (self.task_at(m),)
            self._hand("wait_for", n, "pending", verdict="waiting", refund=True, after=after)

    @command(n=PICK, state=STATE, waits=FLAG)
    def hand_two(self, n: int, state: str, waits: bool) -> None:
        """Two outcomes in one turn; the first may wait for the task of the second."""
        self.some_live(n)
        self._turn(self.worker_at(n), wants=ANYTHING, room=2)
        live = self.live()
        if n % 3 == 2:
            self._move(LEASE_MS + 2)
        if len(live) > 1:
            (one, fence, worker), (two, other, _) = live[n % len(live)], live[(n + 1) % len(live)]
            self.note("hand_two", one, stale=self._lapsed(worker))
            first = Outcome(id=one, fence=fence, state="pending", verdict="waiting", refund=True,
                            after=(two,) if waits else ())  # fmt: skip
            second = Outcome(id=two, fence=other, state=state)  # type: ignore[arg-type]
            self._turn(worker, outcomes=(first, second))

    @command(n=PICK)
    def release(self, n: int) -> None:
        self._hand("release", n, "pending", verdict="released", refund=True)

    @command(n=PICK)
    def die(self, n: int) -> None:
        self._hand("die", n, "dead", verdict="failed", reason="permanent", error=b'{"type":"T"}',
                   charges=(Charge("trip", ok=False),))  # fmt: skip

    @command(n=PICK)
    def obey(self, n: int) -> None:
        """A running task is asked to stop, and does."""
        live = self.some_live(n)
        if live:
            task_id, _, worker = live[n % len(live)]
            self._alter("cancel_running", self.ids.index(task_id), Cancel("asked"))
            self._turn(worker)
            n = self.live().index(live[n % len(live)])
            self._hand("obey", n, "cancelled", verdict="cancelled", reason="asked")

    @command(n=PICK, state=STATE)
    def write_stale(self, n: int, state: str) -> None:
        """Any write by any lease that was ever given and is over, or by the fence next to one."""
        if len(self.live()) == len(self.leases):
            self._hand("release", n, "pending", verdict="released", refund=True)
        live = self.live()
        over = [x for x in self.leases if x not in live]
        again = {task_id for task_id, _, _ in live}
        if n % 2:  # those that run under another fence now
            over = [x for x in over if x[0] in again] or over
        if n % 3 == 0:
            over = [(task_id, fence ^ 1, worker) for task_id, fence, worker in live] or over
        self._write_stale("write_stale", n, state, over)

    def _write_stale(self, name: str, n: int, state: str, over: list[tuple[str, int, str]]) -> None:
        if over:
            task_id, fence, worker = over[n % len(over)]
            self.note(name, task_id, stale=True)
            more: dict[str, Any] = {}
            if n % 3:
                more = {"reason": "stale", "events": (NewEvent(kind="chunk"),),
                        "steps": (Step("stale", b"1"),), "spawn": (self._new(n),)}  # fmt: skip
            outcome = Outcome(id=task_id, fence=fence, state=state, **more)  # type: ignore[arg-type]
            self._turn(worker, outcomes=(outcome,))

    @command(n=PICK, state=STATE)
    def finish_twice(self, n: int, state: str) -> None:
        """The end of a lease, and then another one, or the same again."""
        live = self.some_live(n)
        if live:
            lease = live[n % len(live)]
            self._hand("finish_twice", n, "completed" if n % 2 else "dead")
            self._write_stale("finish_twice", 0, state, [lease])

    @command(n=PICK, state=STATE)
    def write_late(self, n: int, state: str) -> None:
        """The lease has lapsed, but nobody has swept: the work is done, so it counts."""
        self._hand("write_late", 3 * n + 2, state, reason="late", lane="retry")

    # alter ---------------------------------------------------------------------------------------

    def _alter(self, name: str, n: int, change: Change) -> None:
        task_id = self.task_at(n)
        self.note(name, task_id)
        [altered] = self.run(self.engine.alter([task_id], change))
        now = self.run(self.engine.now())
        if altered.applied:
            now = next((t.updated_at for t in self._tasks() if t.id == task_id), now)
        assert altered.why == self.model.alter(now, task_id, change), f"{name}"
        self.ids = list(self.model.tasks)
        self.same()

    @command(n=PICK, state=STATE)
    def cancel_running(self, n: int, state: str) -> None:
        """The task is asked to stop, and whatever its attempt says comes too late or in time."""
        live = self.some_live(n)
        if live:
            task_id, fence, _ = live[n % len(live)]
            self._alter("cancel_running", self.ids.index(task_id), Cancel("asked"))
            if n % 2 and self.model.tasks[task_id]["fence"] == fence:
                again = self.live().index(live[n % len(live)])
                self._hand("cancel_running", again, state, delay_ms=n, verdict="failed")

    @command(n=PICK, name=("go", "go", "other"))
    def signal(self, n: int, name: str) -> None:
        waiting = [i for i, t in enumerate(self.ids)
                   if str(self.model.tasks[t]["parked"]).startswith("signal:")]  # fmt: skip
        self._alter("signal", waiting[n % len(waiting)] if waiting and n % 3 else n, Signal(name))

    @command(n=PICK, delay=DELAYS)
    def redrive(self, n: int, delay: int) -> None:
        over = [i for i, t in enumerate(self.ids) if self.model.tasks[t]["state"] in FINAL]
        taken = {up for t in self.model.tasks.values() if t["reason"] == "upstream"
                 for up in t["edges"]}  # fmt: skip
        if n % 3 == 2:  # those that took others along
            over = [i for i in over if self.ids[i] in taken] or over
        self._alter(
            "redrive", over[n % len(over)] if over and n % 3 else n, Redrive(delay_ms=delay)
        )

    @command(n=PICK, delay=DELAYS, late=LATE)
    def redrive_lost(self, n: int, delay: int, late: int) -> None:
        """While workers are lost: the budget of losses runs out, and is given anew."""
        live = self.some_live(n)
        if live:
            task_id, fence, worker = live[n % len(live)]
            self.note("redrive_lost", task_id, stale=True)
            self._move(late)
            self._sweep((worker,))
            self.identity = [who + 1 for who in self.identity]
            self._alter("redrive_lost", self.ids.index(task_id), Redrive(delay_ms=delay))
            self._write_stale("redrive_lost", 0, "completed", [(task_id, fence, worker)])

    @command(n=PICK, delay=DELAYS, kind=range(6))
    def edit(self, n: int, delay: int, kind: int) -> None:
        changes: tuple[Change, ...] = (
            Reprioritize(n % 4),
            Reschedule(delay_ms=delay),
            Resolve(b"1"),
            Cancel("asked"),
            Cancel("asked"),
            Forget(),
        )
        over = [i for i, t in enumerate(self.ids) if self.model.tasks[t]["state"] in FINAL]
        self._alter("edit", over[n % len(over)] if over and n % 3 == 0 else n, changes[kind])

    @command(n=PICK)
    def overtake(self, n: int) -> None:
        """Of two that came together the second gets the higher priority."""
        first, second = self._new(n), self._new(n)
        self._enqueue(first, second)
        self._alter("overtake", self.ids.index(second.id), Reprioritize(0))
        self._turn(self.worker_at(n), wants=ANYTHING, room=1)

    # time, sweep, definitions --------------------------------------------------------------------

    def _move(self, by_ms: int) -> None:
        for engine in self.engines:
            engine.skew_ms += max(by_ms, 0)
        self.keep_time = self.run(self.engine.now())

    @command(n=PICK, by=(-1, 0, 1, 1_000, LEASE_MS))
    def advance(self, n: int, by: int) -> None:
        """By a while, or to the millisecond around the moment when a task comes due."""
        now = self.run(self.engine.now())
        due = sorted(t["wake_at"] for t in self.model.tasks.values() if (t["wake_at"] or 0) > now)
        self._move(due[n % len(due)] + by - now if due and by < 2 else by)
        self.note("advance", stale=any(self._lapsed(w) for w in self.model.workers))

    @command(n=PICK, off=(-1_000, -1, 0, 1))
    def advance_to_lease(self, n: int, off: int) -> None:
        """To the millisecond around the end of a lease."""
        now = self.run(self.engine.now())
        ends = sorted(w["until"] for w in self.model.workers.values() if w["until"] > now)
        self.note("advance_to_lease", stale=bool(ends))
        if ends:
            self._move(ends[n % len(ends)] + off - now)
            self._sweep(())

    @command(late=LATE)
    def sweep(self, late: int) -> None:
        self._move(late)
        self.note("sweep", stale=any(self._lapsed(w) for w in self.model.workers))
        self._sweep(())
        self._same_views()

    @command(who=FEW, n=PICK, state=STATE)
    def vanish(self, who: int, n: int, state: str) -> None:
        """A worker dies: its supervisor says so, or its lease runs out. It may speak once more."""
        self.some_live(who)
        worker = self.worker_at(who)
        lost = [x for x in self.live() if x[2] == worker]
        for task_id, _, _ in lost:
            self.note("vanish", task_id, stale=True)
        self.identity[who % WORKERS] += 1
        if n % 2:
            self._move(LEASE_MS + 2)
        self._sweep((worker,))
        if n % 3:
            self._write_stale("vanish", n, state, lost)

    def _sweep(self, gone: tuple[str, ...]) -> None:
        before = self.run(self.engine.now())
        swept = self.run(self.engine.sweep(gone=gone))
        after = self.run(self.engine.now())
        assert not swept.more
        there = {view.id for view in self.run(self.engine.workers())}
        tasks = {t.id: t for t in self._tasks()}
        evicted = [w for w in self.model.workers if w not in there]
        for name, worker in self.model.workers.items():
            # One millisecond either way: leases may be kept on another clock than the calendar's.
            if name in gone or worker["until"] < before:
                assert name in evicted, f"{name} should have been evicted"
            elif worker["until"] > after + 1:
                assert name not in evicted, f"{name} was evicted {worker['until'] - after} ms early"
        due = set()
        for task_id, task in self.model.tasks.items():
            if task["wake_at"] is not None and tasks[task_id].parked != task["parked"]:
                assert task["wake_at"] <= after, "unparked before its time"
                due.add(task_id)
        late = [t for t, task in self.model.tasks.items() if _due(task, before) and t not in due]
        assert not late, "due, and not unparked by sweep"
        moved = [t.updated_at for t in tasks.values() if t.updated_at >= before]
        self.model.sweep(
            max(moved, default=after), evicted, due, {t.id: t.run_at for t in tasks.values()}
        )
        self.same()

    def _put_limit(self, key: str, n: int) -> None:
        trip = Trip(rate=0.5, volume=2, window="60s", open="5s") if key == "trip" else None
        limit = Limit(key, rate=f"{n}/10s") if key == "rate" else Limit(key, slots=n, trip=trip)
        value = body(limit.to_json())
        self.run(self.engine.put([Put(kind="limit", key=key, value=value)]))
        if self.model.limits.get(key) != limit and limit.rate:
            self.model.gauge(key).tat_us = 0
        self.model.limits[key] = limit

    @command(key=KEYS, n=SOME, who=FEW)
    def change_limit(self, key: str, n: int, who: int) -> None:
        """Between two claims, so that whoever waits there is seen at once or not at all."""
        self.note("change_limit")
        other = "pair" if key == "slots" else "slots"
        keys = (key, other) if n == 3 else (key,)
        self._enqueue(self._new(n, 0, keys), self._new(n, 0, keys))
        self._turn(self.worker_at(who), wants=ANYTHING, room=2)
        self._put_limit(key, n)
        self.same()
        self._turn(self.worker_at(who), wants=ANYTHING, room=2)

    @command(queue=QUEUES, paused=FLAG)
    def pause(self, queue: str, paused: bool) -> None:
        self.note("pause" if paused else "resume")
        value = body({"paused": paused})
        self.run(self.engine.put([Put(kind="queue", key=queue, value=value)]))
        (self.model.paused.add if paused else self.model.paused.discard)(queue)
        self.same()

    # comparing -----------------------------------------------------------------------------------

    def _tasks(self) -> tuple[Task, ...]:
        page = self.run(self.engine.tasks(TaskQuery(limit=200)))
        assert page.next is None
        return page.items

    def same(self) -> None:
        """The engine's tasks, leases, gauges and log are the model's."""
        tasks = self._tasks()
        assert {t.id for t in tasks} == self.model.tasks.keys(), "tasks"
        for task in tasks:
            self._same_task(task, self.model.tasks[task.id])
        self._same_log()
        views = self.run(self.engine.gauges(KEYS))
        assert {v.key: v.used for v in views} == {k: self.model.gauge(k).used for k in KEYS}
        for view in views:
            limit = resolve(view.key, self.model.limits)
            assert limit is None or limit.slots is None or len(view.holders) == view.used

    def _same_views(self) -> None:
        """What is counted, and what is found by its status."""
        expected: dict[str, set[str]] = {}
        for task_id, task in self.model.tasks.items():
            status = self._status(task).replace("stalled", "running")
            expected.setdefault(status, set()).add(task_id)
        counts = Counter[str]()
        for count in self.run(self.engine.count(TaskQuery(), ("status",))):
            counts[str(count.by[0]).replace("stalled", "running")] += count.n
        assert counts == {status: len(ids) for status, ids in expected.items()}, "counts"
        for status in ("scheduled", "retrying", "blocked", "cancelled", "dead"):
            page = self.run(self.engine.tasks(TaskQuery.of(status=status, limit=200)))
            assert {task.id for task in page.items} == expected.get(status, set()), status

    def _same_task(self, task: Task, model: dict[str, Any]) -> None:
        parked = task.parked
        if parked is not None and parked.startswith("limit:"):
            assert parked.removeprefix("limit:") in dict(task.limits), "parked on a foreign limit"
            parked = "limit"
        if {parked, model["parked"]} <= {None, "limit"} and task.limits:
            # Both are candidates of the next claim; who has met the full limit yet is no promise.
            model["parked"] = parked
        lease = self.model.workers.get(model["worker"])
        told = {
            "state": task.state, "parked": parked, "lane": task.lane, "priority": task.priority,
            "attempt": task.attempt, "number": task.number, "losses": task.losses,
            "worker": task.worker, "reason": task.reason, "awaits": task.awaits,
            "lease_until": task.lease_until,
            "wake_at": task.run_at if task.parked == "time" else None,
        }  # fmt: skip
        expected = {name: model[name] for name in told if name not in ("lease_until", "wake_at")}
        expected["lease_until"] = lease["until"] if lease else None
        expected["wake_at"] = model["run_at"] if model["parked"] == "time" else None
        differs = {
            name: (told[name], expected[name]) for name in told if told[name] != expected[name]
        }
        assert not differs, f"{task.id} {model['log']}: (engine, model) {differs}"

    def _same_log(self) -> None:
        page = self.run(self.engine.events(EventQuery(after=self.seen, limit=500)))
        self.seen = page.next
        for event in page.items:
            if event.task_id is not None:
                self.told.setdefault(event.task_id, []).append(said(event))
        self.told = {
            task_id: log for task_id, log in self.told.items() if task_id in self.model.tasks
        }
        for task_id, task in self.model.tasks.items():
            told = self.told.get(task_id, [])
            # Whether a new task begins as ready or as throttled is no promise either.
            told = ["ready" if word == "throttled" else word for word in told]
            assert told == task["log"], f"the log of {task_id}"


# A walk of one's own -----------------------------------------------------------------------------

Script = list[tuple[str, dict[str, Any]]]


class WentWrong(AssertionError):
    """The engine differs from the model; the script shows it again."""

    def __init__(self, script: Script, error: BaseException) -> None:
        lines = [f"    state.{name}({_arguments(values)})" for name, values in script]
        super().__init__(f"{error}\n" + "\n".join(lines))
        self.script = script


def _arguments(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def walk(machine: type[EngineMachine], seed: int, steps: int) -> None:
    """Random commands, all equally likely: Hypothesis shrinks better, this wanders farther."""
    rng = random.Random(seed)

    def drawn(domains: dict[str, Sequence[Any]]) -> dict[str, Any]:
        return {name: rng.choice(domain) for name, domain in domains.items()}

    names = list(COMMANDS)
    script = [("begin", drawn(BEGIN))]
    script += [(name, drawn(COMMANDS[name])) for name in rng.choices(names, k=steps)]
    play(machine, script)


def play(machine: type[EngineMachine], script: Script) -> None:
    random.seed(0)  # the jitter of an engine in this process
    state = machine()
    done = 0
    try:
        for name, values in script:
            done += 1
            getattr(state, name)(**values)
    except AssertionError as error:
        raise WentWrong(script[:done], error) from error
    finally:
        state.teardown()


def shortest(machine: type[EngineMachine], script: Script) -> WentWrong | None:
    """The script with every part left out that it does not need to go wrong."""
    found: WentWrong | None = None
    size = max(len(script) // 2, 1)
    while size:
        at = 1
        while at < len(script):
            try:
                play(machine, script[:at] + script[at + size :])
            except WentWrong as wrong:
                found, script = wrong, wrong.script
            else:
                at += size
        size //= 2
    return found
