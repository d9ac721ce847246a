"""The runner: turns leases into outcomes, in the event loop, in threads and in child processes.

An attempt is *waiting* for a seat of its kind, *begun* in a slot, and *over* once its outcome is in
the ledger (or was dropped, the lease being lost). Whoever wants it to end early halts it; then the
halt decides the outcome, not what the code does about it. Code that does not end within
`PATIENCE_S` of a halt is abandoned: its outcome is written, its seat stays taken until it ends.

A slot is a task of the event loop that runs one attempt after another. Handlers that never really
wait run in a row in one slot, which saves most of what a task of their own would cost (6 to 8 µs);
as soon as one suspends, the next slot goes on with the rest.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from random import random
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from msgspec import Raw
from msgspec.structs import replace

from outlast import tasklog, tracing
from outlast.context import DONE, Again, Context, Done, SyncContext
from outlast.core.codec import check_size
from outlast.core.errors import LeaseLost
from outlast.core.failures import Failure, classify
from outlast.core.limits import Limit
from outlast.core.model import Json, Lease, NewTask, Outcome, Step, Task, TaskId
from outlast.core.redact import mask_of
from outlast.core.states import Ms
from outlast.core.text import clean
from outlast.dataflow import Ended, Results, Skipped, filled
from outlast.steps import Suspended, Wait
from outlast.stream import find
from outlast.worker import isolate, outcomes
from outlast.worker.ledger import MAX_CHUNKS, Ledger, lost, news
from outlast.worker.threads import Threads
from outlast.worker.wheel import Wheel
from outlast.worker.witness import Witness

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.handler import Handler as AnyHandler

    Handler = AnyHandler[..., object]

T = TypeVar("T")

logger: Final = logging.getLogger("outlast.worker")

PATIENCE_S: Final = 5.0 + isolate.KILL_AFTER_S  # child processes get their own 5 s first
# Handlers that never wait may hold the loop for this long in a row.
SLICE_S: Final = 0.01

Halt = Literal["cancel", "timeout", "release", "lost"]


class Seats:
    """How many attempts of one kind may run at once, and those that wait for it."""

    __slots__ = ("backlog", "busy", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.busy = 0
        self.backlog: deque[Attempt] = deque()


class Plan:
    """What is to be done for a type, looked up once."""

    __slots__ = ("body", "handler", "seats", "threaded", "timeout_ms")

    def __init__(
        self, handler: Handler, seats: Seats, body: Callable[[Attempt], Awaitable[object]]
    ) -> None:
        self.handler = handler
        self.seats = seats
        self.body = body
        self.threaded = handler.mode == "thread"
        self.timeout_ms = handler.timeout_ms


class Attempt:
    """One lease being worked off; also the `Line` of its handler's context."""

    __slots__ = (
        "begun",
        "chunks",
        "halt",
        "lease",
        "mask",
        "over",
        "plan",
        "reason",
        "results",
        "runner",
        "task",
        "tick",
    )

    def __init__(self, runner: Runner, lease: Lease, plan: Plan) -> None:
        self.runner = runner
        self.lease = lease
        self.plan = plan
        self.mask = mask_of(lease.payload, lease.meta, plan.handler.hidden)
        self.begun = 0.0
        self.task: asyncio.Task[None] | None = None
        self.tick = 0
        self.halt: Halt | None = None
        self.reason = ""
        self.over = False
        self.chunks = 0
        self.results: asyncio.Task[Ended] | None = None

    @property
    def timeout_ms(self) -> int | None:
        return self.lease.timeout_ms or self.plan.timeout_ms

    @property
    def cancelled(self) -> bool:
        return self.halt is not None

    @property
    def elapsed_ms(self) -> int:
        return round((monotonic() - self.begun) * 1_000)

    @property
    def now(self) -> Ms:
        return self.runner.now()

    def tell(self, *, progress: Json | None = None, chunk: Json | None = None) -> Awaitable[None]:
        self._check()
        runner, lease, mask = self.runner, self.lease, self.mask
        if mask is not None:
            progress = progress and mask.data(progress)
            chunk = chunk and mask.data(chunk)
        entry = news(lease.id, lease.fence, progress, chunk)
        if threading.get_ident() == runner.thread:
            runner.ledger.enter(entry)
            return runner.ledger.stored(lease.id) if runner.ledger.crowded(lease.id) else DONE
        runner.loop.call_soon_threadsafe(self._enter_late, entry)
        if chunk is not None:
            self.chunks += 1
            if self.chunks % MAX_CHUNKS == 0:
                asyncio.run_coroutine_threadsafe(self._stored(), runner.loop).result()
        return DONE

    def record(self, steps: tuple[Step, ...], spawn: tuple[NewTask, ...] = ()) -> Awaitable[None]:
        return self._in_loop(self._record(steps, spawn))

    async def _record(self, steps: tuple[Step, ...], spawn: tuple[NewTask, ...]) -> None:
        self._check()
        children = await self.runner.with_budgets(spawn)
        entry = Outcome(id=self.lease.id, fence=self.lease.fence, steps=steps, spawn=children)
        await self._report(entry)

    def used(self, usage: Json) -> Awaitable[None]:
        return self._fact(outcomes.used(self.lease, usage, self.mask))

    def paused(self, key: str, pause_ms: Ms) -> Awaitable[None]:
        return self._fact(
            Outcome(id=self.lease.id, fence=self.lease.fence, pauses=((key, pause_ms),))
        )

    def _fact(self, entry: Outcome) -> Awaitable[None]:
        self._check()
        runner = self.runner
        if threading.get_ident() == runner.thread:
            runner.ledger.enter(entry)  # at once: it is so, whether or not anybody waits
            return runner.ledger.stored(self.lease.id)
        return self._in_loop(self._report(entry))

    @property
    def home(self) -> asyncio.Task[Any] | None:
        return self.task

    def look(self, task_id: TaskId) -> Awaitable[Task | None]:
        return self._in_loop(find(self.runner.app.engine, task_id))

    def aside(self, fn: Callable[[], T]) -> Awaitable[T]:
        if threading.get_ident() == self.runner.thread:
            return self.runner.threads.run(fn)
        return Done(fn())

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """There, or from the thread of a handler: then it blocks, and is done."""
        if threading.get_ident() == self.runner.thread:
            return work
        return Done(asyncio.run_coroutine_threadsafe(work, self.runner.loop).result())

    def _check(self) -> None:
        """May it still say something?"""
        if self.over or self.halt == "lost":
            raise lost(self.lease.id)

    async def _report(self, entry: Outcome) -> None:
        self._check()  # again: it may have ended on the way here
        await self.runner.ledger.report(entry)

    def _enter_late(self, entry: Outcome) -> None:
        with suppress(LeaseLost):
            self._check()
            self.runner.ledger.enter(entry)

    async def _stored(self) -> None:
        if not self.over:
            await self.runner.ledger.stored(self.lease.id)


class Runner:
    """Runs what it is given; `freed` is called when a seat became free without any outcome."""

    def __init__(
        self,
        app: Outlast,
        ledger: Ledger,
        *,
        concurrency: int,
        threads: int,
        processes: int,
        now: Callable[[], Ms],
        freed: Callable[[], None],
    ) -> None:
        self.app = app
        self.ledger = ledger
        self._witness = ledger.witness = Witness(app.meter)
        self._tracer = tracing.tracer()
        self.now = now
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.concurrency = concurrency
        self.attempts: dict[TaskId, Attempt] = {}
        self.taken: Counter[str] = Counter()
        """Attempts that hold a seat or wait for one, by queue."""
        self.load = 0
        self._freed = freed
        self._plans: dict[str, Plan] = {}
        self._wheel: Wheel[Attempt] = Wheel(self._rang)
        self.threads = Threads(threads)
        self._results = Results(app.engine)
        children = Seats(processes)
        self._seats = {
            "async": Seats(concurrency),
            "thread": Seats(threads),
            "process": children,
            "command": children,
        }
        self._modes = {handler.mode for handler in app.handlers.values()}
        self._ready: deque[Attempt] = deque()
        self._slots: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._called = False
        self._on_last_life: Attempt | None = None
        self._held: Attempt | None = None
        self.unknown_at = -math.inf
        """When a type was last given back that nobody knows here."""
        self.gave_back = False
        """Tasks on their last life are on their way back: the held one waits for the next turn."""

    def room(self, ahead: int) -> int:
        """How many more attempts may be claimed when so many may wait for a seat. Types are not
        known before the claim, so with several modes it hopes for the one with the most room."""
        if self.waiting and not ahead:
            return 0
        kinds = [self._seats[mode] for mode in self._modes]
        most = max((kind.size - kind.busy for kind in kinds), default=self.concurrency)
        return max(0, min(self.concurrency - self.load, most) + ahead)

    @property
    def waiting(self) -> bool:
        """Do attempts wait for a seat?"""
        return any(self._seats[mode].backlog for mode in self._modes)

    def give_back_waiting(self) -> None:
        """Those that found no seat: others may have one."""
        for mode in self._modes:
            backlog = self._seats[mode].backlog
            while backlog:
                attempt = backlog.popleft()
                self._go(attempt)
                if not attempt.over:
                    self._settle(attempt, outcomes.released(attempt.lease))

    # leases in -----------------------------------------------------------------------------------

    def start(self, lease: Lease) -> None:
        plan = self._plans.get(lease.type) or self._plan(lease.type)
        if plan is None:
            self.ledger.enter(outcomes.unknown(lease))
            self.unknown_at = monotonic()
            return
        last_life = outcomes.on_last_life(lease)
        if last_life and self._on_last_life is not None:
            self.ledger.enter(outcomes.later(lease, _draw()))
            self.gave_back = True
            return
        attempt = Attempt(self, lease, plan)
        if b'"flow"' in lease.meta:
            attempt.results = self._results.of(lease)  # for all leases of a turn at once
        earlier = self.attempts.get(lease.id)
        if earlier is not None:  # whose lease is gone, or there would be no new one
            self.halt(earlier, "lost")
        self.attempts[lease.id] = attempt
        self.load += 1
        self.taken[lease.queue] += 1
        if last_life:
            self._on_last_life = self._held = attempt
        else:
            self._begin(attempt)

    def begin_held(self) -> None:
        """Start the one on its last life, once the others of that kind are given back.

        One at a time, and only then: a task that kills its process would otherwise take those that
        twice happened to run beside it to the grave with it.
        """
        self.gave_back = False
        held, self._held = self._held, None
        if held is not None:
            self._begin(held)

    def _begin(self, attempt: Attempt) -> None:
        seats = attempt.plan.seats
        if seats.busy < seats.size:
            seats.busy += 1
            self._ready.append(attempt)
            self._call_slot()
        else:
            seats.backlog.append(attempt)

    def halt(self, attempt: Attempt, why: Halt, reason: str = "") -> None:
        """End it early. The first reason holds, but a lost lease beats them all."""
        if attempt.over:
            return
        if attempt.halt is not None:
            if why == "lost":
                attempt.halt = why
            return
        attempt.halt, attempt.reason = why, reason
        if attempt.task is None:
            self._settle(attempt, self._halted(attempt))
            return
        if attempt.tick:
            self._wheel.remove(attempt, attempt.tick)
        attempt.tick = self._wheel.add(attempt, PATIENCE_S)
        if not attempt.plan.threaded:
            attempt.task.cancel()

    def halt_all(self, why: Halt) -> None:
        for attempt in tuple(self.attempts.values()):
            self.halt(attempt, why)

    def abandon_all(self) -> None:
        """Write the outcomes of those that did not end in spite of a halt."""
        for attempt in tuple(self.attempts.values()):
            self._abandon(attempt)

    def close(self) -> None:
        self._wheel.close()
        self.threads.close()
        for slot in tuple(self._slots):
            slot.cancel()

    # slots ---------------------------------------------------------------------------------------

    def _call_slot(self) -> None:
        """Have one slot come and look, if none is on its way."""
        if self._called:
            return
        self._called = True
        while self._idle:
            called = self._idle.pop()
            if not called.done():
                called.set_result(None)
                return
        slot = self.loop.create_task(self._slot(), name="outlast-slot")
        self._slots.add(slot)
        slot.add_done_callback(self._slots.discard)

    async def _slot(self) -> None:
        me: asyncio.Task[None] = asyncio.current_task()  # type: ignore[assignment]  # we are in one
        clean = copy_context()
        since = monotonic()
        self._called = False
        while not me.cancelling():
            if not self._ready:
                called: asyncio.Future[None] = self.loop.create_future()
                self._idle.append(called)
                await called
                self._called = False
                since = monotonic()
                continue
            attempt = self._ready.popleft()
            if self._ready:
                self._call_slot()  # it goes on with the rest as soon as this one suspends
            if not attempt.over:
                attempt.task = me
                await self._run(attempt)
                attempt.task = None
            self._go(attempt)
            self._free_seat(attempt.plan.seats)
            if copy_context() != clean:
                break  # context variables set by one handler must not be seen by the next
            if monotonic() - since > SLICE_S:
                await asyncio.sleep(0)
                since = monotonic()
        if self._ready:
            self._call_slot()

    def _go(self, attempt: Attempt) -> None:
        """It runs no more, and does not wait for a seat."""
        if attempt is self._on_last_life:
            self._on_last_life = None
        self.load -= 1
        self.taken[attempt.lease.queue] -= 1

    def _free_seat(self, seats: Seats) -> None:
        if seats.backlog:
            self._ready.append(seats.backlog.popleft())
            self._call_slot()
        else:
            seats.busy -= 1

    # one attempt ---------------------------------------------------------------------------------

    async def _run(self, attempt: Attempt) -> None:
        lease, plan = attempt.lease, attempt.plan
        attempt.begun = monotonic()
        tasklog.processing(lease)
        span = None if self._tracer is None else tracing.Running(self._tracer, lease)
        timeout_ms = lease.timeout_ms or plan.timeout_ms
        if timeout_ms is not None:
            attempt.tick = self._wheel.add(attempt, timeout_ms / 1_000)
        outcome: Outcome | None
        try:
            if attempt.results is not None:
                lease = filled(lease, await asyncio.shield(attempt.results))
                attempt.lease = lease
                attempt.mask = mask_of(lease.payload, lease.meta, plan.handler.hidden)
            outcome = await self._ended(attempt)
        except Skipped as skipped:
            outcome = outcomes.cancelled(lease, skipped.reason)
        except BaseException as error:
            outcome = None if attempt.halt else self._failed(attempt, error)
        if attempt.halt:
            outcome = self._halted(attempt)
        if span is not None:
            span.end(outcome)
        if attempt.tick:
            self._wheel.remove(attempt, attempt.tick)
        if attempt.over:
            self._freed()
        else:
            self._settle(attempt, outcome)

    async def _ended(self, attempt: Attempt) -> Outcome:
        """What comes of it when it is left alone."""
        try:
            result = await attempt.plan.body(attempt)
        except Suspended as suspended:
            return await self._suspended(attempt, suspended.wait)
        return self._succeeded(attempt, result)

    def _succeeded(self, attempt: Attempt, result: object) -> Outcome:
        lease = attempt.lease
        if isinstance(result, Again):
            return outcomes.again(lease, result, self.now())
        if isinstance(result, Raw):
            data = bytes(result)
            check_size(data, f"result of {lease.type}")
        else:
            data = attempt.plan.handler.signature.encode_result(result)
        return outcomes.completed(lease, data)

    async def with_budgets(self, children: tuple[NewTask, ...]) -> tuple[NewTask, ...]:
        """Tasks that an attempt spawns; they wait for their budgets, and are never refused."""
        if children:
            await self.app.purse.refresh(self.app.engine)
        return tuple(self.app.purse.carried(children))

    async def _suspended(self, attempt: Attempt, wait: Wait) -> Outcome:
        if wait.limits:
            await self.app.define([Limit.from_json(told) for told in wait.limits])
        children = await self.with_budgets(wait.spawn)
        wait = replace(wait, spawn=children)
        return outcomes.suspended(attempt.lease, wait, self.now(), attempt.mask)

    def _failed(self, attempt: Attempt, error: BaseException) -> Outcome:
        lease = attempt.lease
        if isinstance(error, asyncio.CancelledError) and attempt.task and attempt.task.cancelling():
            return outcomes.released(lease)  # the event loop is being closed around us
        if isinstance(error, isolate.ChildFailed):
            failure = error.failure
        else:
            failure = classify(error, now_ms=self.now())
        if attempt.mask is not None:
            failure = attempt.mask.failure(failure)
        outcome = outcomes.failed(lease, failure, attempt.plan.handler.retry, _draw())
        _say(lease, failure, outcome)
        return outcome

    def _halted(self, attempt: Attempt) -> Outcome | None:
        lease = attempt.lease
        if attempt.halt == "cancel":
            return outcomes.cancelled(lease, attempt.reason)
        if attempt.halt == "release":
            return outcomes.released(lease)
        if attempt.halt == "timeout":
            retry = attempt.plan.handler.retry
            return outcomes.timed_out(lease, attempt.timeout_ms or 0, retry, _draw())
        return None

    def _settle(self, attempt: Attempt, outcome: Outcome | None) -> None:
        attempt.over = True
        lease = attempt.lease
        if self.attempts.get(lease.id) is attempt:
            del self.attempts[lease.id]
        if outcome is None:
            self.ledger.drop(lease.id, lease.fence)
            self._freed()
        else:
            run_s = monotonic() - attempt.begun if attempt.begun else None
            self._witness.ended(lease, self.now(), run_s)
            self.ledger.enter(outcome)

    def _rang(self, attempt: Attempt) -> None:
        attempt.tick = 0
        if attempt.halt is None:
            self.halt(attempt, "timeout")
        else:
            self._abandon(attempt)

    def _abandon(self, attempt: Attempt) -> None:
        if attempt.over:
            return
        if attempt.task is not None and attempt.halt != "lost":
            logger.warning(
                "%s %s was told to stop (%s) and goes on; its outcome is written without it, its"
                " seat stays taken. Handlers in threads should look at ctx.cancelled.",
                attempt.lease.type,
                attempt.lease.id,
                attempt.halt,
            )
        self._settle(attempt, self._halted(attempt))

    # handlers ------------------------------------------------------------------------------------

    def _plan(self, type: str) -> Plan | None:
        handler = self.app.handler(type)
        if handler is None:
            return None
        body: Callable[[Attempt], Awaitable[object]]
        if handler.mode == "async":
            body = partial(_in_loop, handler)
        elif handler.mode == "thread":
            body = partial(_in_thread, handler, self.threads)
        elif handler.mode == "process":
            body = partial(_in_process, handler, self.app.target)
        else:
            body = partial(_in_command, handler)
        self._modes.add(handler.mode)
        plan = self._plans[type] = Plan(handler, self._seats[handler.mode], body)
        return plan


async def _in_loop(handler: Handler, attempt: Attempt) -> object:
    lease = attempt.lease
    args, kwargs = handler.signature.call_args(lease.payload)
    if handler.signature.takes_context:
        args = (Context(lease, attempt), *args)
    return await cast(Awaitable[object], handler.fn(*args, **kwargs))


async def _in_thread(handler: Handler, threads: Threads, attempt: Attempt) -> object:
    lease = attempt.lease
    args, kwargs = handler.signature.call_args(lease.payload)
    if handler.signature.takes_context:
        args = (SyncContext(lease, attempt), *args)
    # Halted before a thread was free: it need not begin.
    return await threads.run(lambda: None if attempt.halt else handler.fn(*args, **kwargs))


async def _in_process(handler: Handler, target: str | None, attempt: Attempt) -> object:
    return await isolate.run_child(handler, target, attempt.lease, attempt)


async def _in_command(handler: Handler, attempt: Attempt) -> object:
    return await isolate.run_command(handler, attempt.lease)


def _draw() -> float:
    return random()  # noqa: S311  # jitter, not a secret


def _say(lease: Lease, failure: Failure, outcome: Outcome) -> None:
    logger.warning(
        "%s %s failed in attempt %d: %s: %s (%s)",
        lease.type,
        lease.id,
        lease.attempt,
        clean(failure.type),
        clean(failure.message),
        f"again in {outcome.delay_ms} ms" if outcome.state == "pending" else outcome.reason,
        extra={"task": lease.id, "type": lease.type, "attempt": lease.number},
    )
