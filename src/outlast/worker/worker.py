"""The worker: takes turns with the engine until told to stop.

One loop: take a turn (hand back outcomes, claim), start what was claimed, wait until there is a
reason for the next turn: an outcome, a hint, a due task, the beat. Its life: *working*; *draining*,
after `stop()`: it claims nothing and lets attempts end for a grace period; *leaving*, after that or
after `stop_now()`: attempts are halted and given back, and one last turn says goodbye.

Exactly one exchange is under way at a time. When one fails, the same turn (same token) goes again
until the engine answers, so that a lost reply neither loses leases nor repeats outcomes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from time import monotonic
from typing import TYPE_CHECKING, Final, get_args

from outlast import __version__
from outlast.core.errors import BadInput, EngineDown
from outlast.core.ids import new_fence, new_id
from outlast.core.lanes import LaneTurner
from outlast.core.model import Deal, Fence, TaskId, Turn, Want, WorkerId, WorkerInfo
from outlast.core.states import Lane, Ms
from outlast.steps import SYSTEM
from outlast.worker import outcomes
from outlast.worker.bell import Bell
from outlast.worker.dispatch import dispatch
from outlast.worker.ledger import MAX_BATCH, Ledger
from outlast.worker.pulse import Pulse, beat_of
from outlast.worker.runner import Runner
from outlast.worker.wheel import jittered
from outlast.worker.witness import swept

if TYPE_CHECKING:
    from outlast.app import Outlast

logger: Final = logging.getLogger("outlast.worker")

# Who has met a type it does not know steps back for this long when something comes due.
UNKNOWN_S: Final = 60.0
YIELD_S: Final = 0.2
# A hint may be lost: a worker also asks this often.
POLL_MS: Final = 1_000
# Outlast's own queue, which every worker serves beside its own: so many of its tasks at once, and,
# since most workers have none there, asked this often.
SYSTEM_CEILING: Final = 20
SYSTEM_POLL_S: Final = 10.0
PRESSURE_S: Final = 1.0
# Whether it was asked to drain.
HEED_S: Final = 2.0
BACKOFF_S: Final = (0.05, 0.2, 0.5, 1.0, 1.0)  # an engine that is back is found within 2 s
# Claiming ahead: from so many ends in a turn that took no longer than this; and how long what was
# claimed may wait for a seat.
AHEAD_FROM: Final = 64
QUICK_S: Final = 0.2
PATIENCE_S: Final = 0.25
# How long attempts that are given back may take to unwind, and the last turn to be answered.
UNWIND_S: Final = 2.0
GOODBYE_S: Final = 5.0
# Without a sign of life from the engine for this part of the lease, attempts are halted: others may
# soon run the same tasks.
FENCE_AT: Final = 0.8


LANES: Final[tuple[Lane, ...]] = get_args(Lane)


def new_worker_id() -> WorkerId:
    """Unique for ever: a host's name and a process number come again after a restart."""
    return f"{socket.gethostname()}.{os.getpid()}.{new_id()[-12:]}"


class Group:
    """Queues that are claimed from in one turn: those without a ceiling, or a single one with its
    own. (A deal may fill its room from any wanted queue, so ceilings cannot share a turn.)"""

    def __init__(self, queues: Sequence[str], ceiling: int | None, share: float) -> None:
        self.turners = {queue: LaneTurner(share) for queue in queues}
        self.ceiling = ceiling
        self.hungry = True
        """There may be something ready: the engine has not said otherwise since."""
        self.due_at: float | None = None
        self._first = 0

    def wants(self, room: int) -> tuple[Want, ...]:
        """The lanes' pattern as run lengths, so that the claims follow it one by one.

        Both lanes are named, if only with 0: a deal fills its room from the lanes that are.
        """
        queues = list(self.turners)
        queues = queues[self._first :] + queues[: self._first]
        self._first = (self._first + 1) % len(queues)
        each = -(-room // len(queues))
        wants: list[Want] = []
        for queue in queues:
            lanes = self.turners[queue].peek(each)
            wants += [Want(queue, lane, sum(1 for _ in run)) for lane, run in groupby(lanes)]
            wants += [Want(queue, lane, 0) for lane in LANES if lane not in lanes]
        return tuple(wants)


class Worker:
    """Runs the tasks of an app: `await Worker(app).run()`.

    `queues` maps the queues to serve to a ceiling of attempts at once (None: no other ceiling than
    `concurrency`); by default all that the app's handlers use. A worker under a supervisor, which
    beats for it, has no thread that beats; it tells `identify` each id that it goes by.
    """

    def __init__(
        self,
        app: Outlast,
        *,
        queues: Mapping[str, int | None] | None = None,
        concurrency: int = 200,
        threads: int | None = None,
        processes: int | None = None,
        lease_ms: int = 10_000,
        beat_ms: int = 3_000,
        sweep_ms: int = 1_000,
        grace_ms: int = 25_000,
        worker_id: WorkerId | None = None,
        identify: Callable[[WorkerId], None] | None = None,
    ) -> None:
        if not 0 < beat_ms <= lease_ms // 2:
            raise BadInput(
                f"A beat every {beat_ms} ms cannot keep a lease of {lease_ms} ms: beat at least"
                " twice per lease."
            )
        if concurrency < 1:
            raise BadInput(f"concurrency={concurrency}: a worker runs at least one attempt.")
        self.app = app
        self.id = worker_id or new_worker_id()
        self.concurrency = concurrency
        self._threads = threads or min(32, concurrency)
        self._processes = processes or max(4, os.cpu_count() or 1)
        self._lease_ms = lease_ms
        self._beat_s = beat_ms / 1_000
        self._sweep_s = sweep_ms / 1_000
        self._grace_s = grace_ms / 1_000
        self._poll_s = min(POLL_MS, beat_ms) / 1_000
        self._identify = identify
        served = queues or {"default": None, **{h.queue: None for h in app.handlers.values()}}
        self._queues = tuple(dict.fromkeys((*served, SYSTEM)))
        free = [queue for queue, ceiling in served.items() if ceiling is None]
        share = app.lanes.share
        self._groups = [Group(free, None, share)] if free else []
        self._groups += [Group([q], n, share) for q, n in served.items() if n is not None]
        self._system = Group([SYSTEM], SYSTEM_CEILING, share)
        if SYSTEM not in served:
            self._groups.append(self._system)
        self._stopping = self._stopping_now = self._leaving = False
        self._grace_until = 0.0
        self.ready = asyncio.Event()
        """Set once the engine knows this worker."""
        self._untold = asyncio.Event()
        """Dependents of what this worker has ended wait for a sweep."""
        self.drained = False
        """Did it end because whoever operates the fleet had asked for that?"""

    # life ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until `stop()`; cancelling it releases at once."""
        async with self.app:
            await self._begin()
            await self._run()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as beside:
            self._listens = True
            own, system = [g for g in self._groups if g is not self._system], [self._system]
            works = (
                self._listen(own, lambda: f"worker:{self.id}"),
                self._listen(system),
                self._sweep(),
                self._guard(),
                self._heed(),
                dispatch(self.app, self.id),
            )
            tasks = [beside.create_task(work) for work in works]
            url = None if self._identify or self.app.url.startswith("memory:") else self.app.url
            pulse = Pulse(url, self._beat_s, self._next_beat, self._beaten)
            try:
                while not self._stopping:
                    await self._take_turn()
                    await self._pause()
                await self._drain_out()
            finally:
                await asyncio.shield(self._leave())
                for task in tasks:
                    task.cancel()
                await pulse.close()

    def stop(self) -> None:
        """Claim nothing more, let attempts end for the grace period, release the rest."""
        if not self._stopping:
            logger.info("Worker %s claims nothing more", self.id)
            self._stopping, self._grace_until = True, monotonic() + self._grace_s
        self._ring()

    def stop_now(self) -> None:
        """Release what runs, now."""
        self._stopping = self._stopping_now = True
        self._grace_until = 0.0
        self._ring()

    @property
    def is_idle(self) -> bool:
        """It runs nothing and has nothing to hand back."""
        return self.ready.is_set() and not (self._runner.attempts or self._ledger.waiting)

    async def drain(self) -> None:
        """Take turns until nothing is ready and nothing runs; due times are not waited for."""
        async with self.app:
            await self._begin()
            try:
                while (await self._engine.sweep()).more:
                    pass
                while True:
                    await self._take_turn()
                    if self._runner.attempts or self._ledger.waiting:
                        await self._pause()
                    elif not any(group.hungry for group in self._groups):
                        return
            finally:
                await asyncio.shield(self._leave())

    async def _begin(self) -> None:
        self._engine = self.app.engine
        self._bell = Bell()
        self._ledger = Ledger(self._bell.ring)
        self._runner = Runner(
            self.app,
            self._ledger,
            concurrency=self.concurrency,
            threads=self._threads,
            processes=self._processes,
            now=self._now,
            freed=self._bell.ring,
        )
        self._next_group = 0
        self._ended = self._ahead = 0
        """How many more to claim than there are seats."""
        self._ahead_until = 0.0
        self._token = new_fence()
        self._unanswered = False
        """May a turn of this token have taken place that carried nothing? One that carried more
        would count as the same again, of which no outcome takes effect."""
        self._known = False
        self._turned_at = self._acked_at = monotonic()
        self._trying_since: float | None = None
        self._pressure_at = 0.0
        self._set_now(await self._engine.now())
        self._started_at = self._now()
        self._listens = False
        self._system_at = 0.0
        self._feed()
        if self._identify is not None:
            self._identify(self.id)

    async def _drain_out(self) -> None:
        while self._runner.attempts and monotonic() < self._grace_until:
            await self._take_turn()
            await self._pause(self._grace_until)

    async def _leave(self) -> None:
        """Halt what still runs, hand everything back, and be gone."""
        self._stopping = self._leaving = True
        self._runner.halt_all("release")
        until = monotonic() + UNWIND_S
        while self._runner.attempts and monotonic() < until:
            await self._bell.wait(until)
        self._runner.abandon_all()
        self._ledger.keep()  # what an exchange carried that was cancelled on the way
        try:
            async with asyncio.timeout(GOODBYE_S):
                while self._ledger.waiting:
                    await self._take_turn()
                await self._exchange(
                    Turn(token=new_fence(), worker=self.id, lease_ms=self._lease_ms, leaving=True)
                )
        except TimeoutError:
            logger.error("The engine does not answer: leases of %s run out by themselves", self.id)
        finally:
            self._runner.close()
            self._stopping = self._stopping_now = self._leaving = False
            self.id = new_worker_id()

    # turns ---------------------------------------------------------------------------------------

    async def _take_turn(self) -> None:
        now = monotonic()
        if self._ahead_until and now >= self._ahead_until:
            self._ahead_until = 0.0
            self._ahead = 0  # or this very turn would take them again
            self._runner.give_back_waiting()
        group, room = self._choose()
        if group is not None:
            group.hungry = False  # a hint that comes while the turn is under way is a new one
        pressed = group is not None and now - self._pressure_at >= PRESSURE_S
        carried = () if self._unanswered else self._ledger.take()
        self._unanswered = not carried
        self._bell.hush()  # this turn is for whoever has rung
        turn = Turn(
            token=self._token,
            worker=self.id,
            lease_ms=self._lease_ms,
            wants=() if group is None else group.wants(room),
            room=room,
            outcomes=carried,
            info=None if self._known else self._info(),
            pressure=pressed,
        )
        deal = await self._exchange(turn)
        if deal is None:
            if group is not None:
                group.hungry = True
            return
        if pressed:
            self._pressure_at = now
        self._token, self._unanswered = new_fence(), False
        if self._ahead and deal.leases:
            self._ahead_until = monotonic() + PATIENCE_S
        self._look_ahead(turn, monotonic() - self._turned_at)
        self._turned_at = monotonic()
        self._known = True
        self.ready.set()
        self._ledger.stored_by(deal.lost)
        self._runner.begin_held()
        self._obey(deal)
        if not self._runner.gave_back:
            self._runner.begin_held()
        if group is not None and not deal.evicted:
            self._learn(group, room, deal)
        if turn.outcomes:
            # An end may have made others ready, in queues that this turn did not ask for.
            for other in self._groups:
                if other is not group and not (self._listens and other is self._system):
                    other.hungry = True

    def _choose(self) -> tuple[Group | None, int]:
        """The queues to claim from in this turn, and how many."""
        if self._stopping or self._ledger.doubtful:
            return None, 0
        start, groups = self._next_group, self._groups
        order = [*groups[start:], *groups[:start]]
        able = [group for group in order if self._room(group) > 0]
        # With nobody hungry it is to tell of an end, and what that makes ready is not the system's.
        able.sort(key=lambda group: (not group.hungry, group is self._system))
        group = able[0] if able else None
        if group is None:
            return None, 0
        self._next_group = (groups.index(group) + 1) % len(groups)
        return group, self._room(group)

    def _room(self, group: Group) -> int:
        if self._ledger.full:
            return 0
        room = min(self._runner.room(self._ahead), MAX_BATCH)
        if group.ceiling is not None:
            room = min(room, group.ceiling - sum(self._runner.taken[q] for q in group.turners))
        return room

    def _look_ahead(self, turn: Turn, took_s: float) -> None:
        """As many as ended in one of the last two turns will end while the next one is under way,
        and as many again in the one after it, which is what the next one should claim.

        So neither side waits for the other, and turns carry 500 no-ops both ways. Only for a
        stream of short ones: what is claimed ahead and finds no seat in time is given back.
        """
        ended = sum(o.state != "running" and o.verdict != "released" for o in turn.outcomes)
        before, self._ended = self._ended, ended
        ended = max(before, self._ended)
        self._ahead = 2 * ended if ended >= AHEAD_FROM and took_s < QUICK_S else 0

    async def _exchange(self, turn: Turn) -> Deal | None:
        """The engine's answer, however long it takes; None when it refuses what we carry, or when
        there is no more time to wait for it."""
        tries = 0
        while True:
            at = monotonic()
            self._trying_since = self._trying_since or at
            try:
                deal = await self._engine.exchange(turn)
            except Exception as problem:
                name = type(problem).__name__
                logger.warning("A turn failed (%d): %s: %s", tries + 1, name, problem)
                # Not the engine but what we carry is to blame when it takes a turn without that. A
                # link that comes and goes looks the same for a while: then more patience is needed.
                away = isinstance(problem, EngineDown | OSError)
                patience = len(BACKOFF_S) if away else 1
                if turn.outcomes and tries >= patience and await self._answers():
                    self._refused(f"{name}: {problem}")
                    return None
                back_at = monotonic() + jittered(BACKOFF_S[min(tries, len(BACKOFF_S) - 1)])
                while monotonic() < back_at:
                    if not self._is_worth_waiting:
                        return None
                    await self._bell.wait(back_at)
                self._bell.ring()  # who rang meanwhile is heard in the next pause
                tries += 1
                continue
            self._acked(at)
            self._set_now(deal.now)
            return deal

    @property
    def _is_worth_waiting(self) -> bool:
        """For an engine that is away, when we are to stop: what runs or has ended needs it."""
        if self._leaving or not self._stopping:
            return True
        has_need = bool(self._runner.attempts or len(self._ledger))
        return has_need and monotonic() < self._grace_until

    async def _answers(self) -> bool:
        at = monotonic()
        try:
            await self._engine.exchange(beat_of(self.id, self._lease_ms))
        except Exception:
            return False
        self._acked(at)
        return True

    def _acked(self, at: float) -> None:
        """The engine has answered what was asked then."""
        self._trying_since = None
        self._acked_at = at

    def _refused(self, problem: str) -> None:
        """The engine stores everything but what this turn carried."""
        blamed = self._ledger.refused_by(problem)
        if blamed is not None:
            self._lose(blamed.id, blamed.fence)

    def _lose(self, task_id: TaskId, fence: Fence) -> None:
        """If that attempt still runs, it does so for nothing."""
        attempt = self._runner.attempts.get(task_id)
        if attempt is not None and attempt.lease.fence == fence:
            self._runner.halt(attempt, "lost")

    def _obey(self, deal: Deal) -> None:
        runner = self._runner
        for task_id, fence in deal.lost:
            self._lose(task_id, fence)
        if deal.evicted:
            self._start_over()
        for task_id, reason in deal.cancel:
            attempt = runner.attempts.get(task_id)
            if attempt is not None:
                runner.halt(attempt, "cancel", reason)
        for lease in deal.leases:
            if self._stopping:
                self._ledger.enter(outcomes.released(lease))
            else:
                runner.start(lease)

    def _learn(self, group: Group, room: int, deal: Deal) -> None:
        if deal.untold:
            self._untold.set()
        group.hungry = group.hungry or deal.again or len(deal.leases) >= room
        if deal.next_due is None:
            group.due_at = None
        else:
            # At least a little ahead, so that a clock that lags behind does not make us spin.
            group.due_at = self._turned_at + max(deal.next_due - deal.now, 5) / 1_000
            if self._turned_at - self._runner.unknown_at < UNKNOWN_S:
                # It may be what we gave back: whoever knows its type goes first.
                group.due_at += jittered(YIELD_S)
        for queue, n in Counter(lease.queue for lease in deal.leases).items():
            group.turners[queue].advance(n)
        for queue, waiting in deal.pressure.items():
            group.turners[queue].set_share(self.app.lanes.share_at(waiting))

    def _start_over(self) -> None:
        """We were taken for dead. What we ran is others' now; we go on as somebody else."""
        logger.error("Worker %s was taken for dead: its attempts are stopped", self.id)
        self._runner.halt_all("lost")  # what had ended is judged by its fence
        self.id = new_worker_id()
        self._known = False
        self._feed()
        if self._identify is not None:
            self._identify(self.id)

    # waiting -------------------------------------------------------------------------------------

    async def _pause(self, at_most: float | None = None) -> None:
        """Until there is a reason to take a turn."""
        until = self._turn_at()
        if until:
            await self._bell.wait(until if at_most is None else min(until, at_most))
        now = monotonic()
        if now >= self._turned_at + self._poll_s:
            self._feed()
        for group in self._groups:
            if group.due_at is not None and now >= group.due_at:
                group.hungry, group.due_at = True, None

    def _turn_at(self) -> float:
        """When the next turn is to be taken; 0 is now."""
        if self._ledger.waiting:
            return 0.0
        at = self._turned_at + self._poll_s
        if self._ahead_until:
            at = min(at, self._ahead_until)
        if self._stopping:
            return at
        for group in self._groups:
            if self._room(group) > 0:
                if group.hungry:
                    return 0.0
                if group.due_at is not None:
                    at = min(at, group.due_at)
        return at

    def _feed(self) -> None:
        """There may be something ready, everywhere."""
        now = monotonic()
        rested = now - self._system_at >= SYSTEM_POLL_S
        for group in self._groups:
            group.hungry = group.hungry or rested or group is not self._system
        if rested:
            self._system_at = now

    def _wake(self, groups: Sequence[Group]) -> None:
        for group in groups:
            group.hungry = True
        self._bell.ring()

    def _ring(self) -> None:
        if hasattr(self, "_bell"):  # else it has not begun
            self._bell.ring()

    # beside the turns ----------------------------------------------------------------------------

    async def _listen(self, groups: Sequence[Group], *more: Callable[[], str]) -> None:
        """Hints: something is ready in these queues, or there is something for us to know."""
        while True:
            topics = [f"queue:{queue}" for group in groups for queue in group.turners]
            topics += [topic() for topic in more]
            name = self.id
            try:
                async with self._engine.watch(topics) as watch:
                    self._wake(groups)  # what came before the watch began was told to nobody
                    while not more or self.id == name:
                        if await watch.wait(self._poll_s):
                            self._wake(groups)
            except Exception as problem:
                logger.warning("No hints from the engine: %s; asking every second", problem)
                await asyncio.sleep(self._poll_s)

    async def _sweep(self) -> None:
        """What no turn takes care of. Every worker does it; the jitter keeps them apart."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._untold.wait(), jittered(self._sweep_s))
            self._untold.clear()
            try:
                more = True
                while more:
                    found = await self._engine.sweep()
                    swept(self.app.meter, found)
                    more = found.more
            except Exception as problem:
                logger.warning("A sweep failed: %s", problem)

    async def _heed(self) -> None:
        """Whoever operates the fleet asks a worker to drain by a record under its id."""
        while not self._stopping:
            await asyncio.sleep(jittered(HEED_S))
            try:
                asked = await self._engine.get("drain", [self.id])
            except Exception:  # noqa: S112  # the turns tell of an engine that is away
                continue
            if asked:
                logger.info("Worker %s was asked to drain", self.id)
                self.drained = True
                self.stop()

    async def _guard(self) -> None:
        """Without an answer of the engine for most of the lease, halt: others may run our tasks."""
        lease_s = self._lease_ms / 1_000
        step = lease_s / 20
        while True:
            before = monotonic()
            await asyncio.sleep(step)
            now = monotonic()
            if self._trying_since is None or now - before > step + lease_s / 4:
                continue  # answered; or the loop was held for long, and an answer may be there
            alive_at = self._acked_at
            if self._identify is not None:  # a supervisor beat for us until the trouble began
                alive_at = max(alive_at, self._trying_since - self._beat_s)
            if now - alive_at > lease_s * FENCE_AT and self._runner.attempts:
                logger.error("No answer from the engine: the attempts of %s are stopped", self.id)
                self._runner.halt_all("release")

    def _next_beat(self) -> tuple[Turn, int] | None:
        """Called by the pulse, in its thread."""
        return (beat_of(self.id, self._lease_ms), self._engine.skew_ms) if self._known else None

    def _beaten(self, at: float) -> None:
        self._acked_at = max(self._acked_at, at)

    # who and when --------------------------------------------------------------------------------

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=self._started_at,
            queues=self._queues,
            types=(*self.app.handlers, *self.app.builtins),
            slots=self.concurrency,
            version=__version__,
        )

    def _set_now(self, now: Ms) -> None:
        self._engine_now, self._engine_now_at = now, monotonic()

    def _now(self) -> Ms:
        """Engine time, as of the last deal plus what has passed since."""
        return self._engine_now + round((monotonic() - self._engine_now_at) * 1_000)
