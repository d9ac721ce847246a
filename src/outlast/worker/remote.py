"""Workers elsewhere, in any language: takes their turns with the engine for them.

Nothing is remembered between calls but what is cheap to forget, so that any server may answer the
next one. What a lease is, is in its ticket, which the worker carries.

Two kinds of rows stand for such a worker among the engine's workers. One is the *worker*: it tells
which types and queues it serves, and every call keeps it. The other is a *claim*: the leases that
one call took, which live and end together. A claim has an identity of its own because a worker's
name comes again: after a restart, on another machine by mistake, after a reply that was lost. Were
leases the name's, whoever came next under it would keep alive what nobody runs any more. A claim's
row is there for as long as it holds leases.

The attempt's timeout is judged here, by the engine's clock, at every call: a late one finds that
its attempt has timed out. A worker that does not call at all is evicted by `sweep`, like any other.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from random import random
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from outlast.core.durations import show_ms
from outlast.core.errors import LeaseLost, Permanent
from outlast.core.failures import classify
from outlast.core.ids import new_fence
from outlast.core.lanes import Lanes
from outlast.core.model import (
    Deal,
    Fence,
    Lease,
    Outcome,
    Put,
    TaskQuery,
    Turn,
    Want,
    WorkerId,
    WorkerInfo,
)
from outlast.core.retry import Retry
from outlast.core.states import Ms, Verdict
from outlast.dataflow import SKIPPED, Skipped, ends, filled, flow_of
from outlast.engine import Watch
from outlast.stream import find
from outlast.worker import outcomes
from outlast.worker.ledger import lost
from outlast.worker.witness import record, swept
from outlast.worker.worker import LANES, PRESSURE_S, Group

if TYPE_CHECKING:
    from outlast.app import Outlast

logger: Final = logging.getLogger("outlast.worker")

LEASE_MS: Final = 10_000
BEAT_S: Final = 3.0
SWEEP_S: Final = 1.0
# While a claim waits: how often it looks whether something comes due, and, since a hint may be
# lost, whether something is there.
LOOK_S: Final = 1.0
POLL_S: Final = 5.0
TOKEN_MS: Final = 3_600_000  # how long a claim can be repeated by its token
MAX_CLAIM: Final = 50
MAX_CLAIM_BYTES: Final = 8 * 1_048_576
MAX_PASSES: Final = 20  # through tasks of other types, before others get a chance to take them
MAX_KNOWN: Final = 10_000


class Ask(Struct, frozen=True, kw_only=True):
    """What a worker asks for. Without types it takes whatever is in its queues."""

    owner: str
    worker: str
    queues: tuple[str, ...]
    types: tuple[str, ...]
    most: int
    token: str | None
    slots: int | None = None
    """How many tasks it has room for in all, where that is more than it asks for at once."""

    @property
    def base(self) -> WorkerId:
        """Under this name the worker is known; that of another owner is another one."""
        return f"{self.owner}/{self.worker}"

    @property
    def info(self) -> WorkerInfo:
        return WorkerInfo(
            host=self.worker,
            pid=0,
            queues=self.queues,
            types=self.types,
            slots=self.slots or self.most,
        )


class Ticket(Lease, frozen=True, kw_only=True, array_like=True):
    """A lease without its payload, and what it takes to speak for it later."""

    worker: WorkerId
    """The claim's row."""
    alone: bool
    """Is it the only lease of its claim? Then its end is the claim's."""
    started_at: Ms
    reads: bool = False
    """Were results of others put into its payload?"""

    @property
    def owner(self) -> str:
        return self.worker.partition("/")[0]

    @property
    def base(self) -> WorkerId:
        return self.worker.rpartition("#")[0]

    @property
    def deadline(self) -> Ms | None:
        return None if self.timeout_ms is None else self.started_at + self.timeout_ms


class Claim(Struct, frozen=True, kw_only=True):
    """Leases that were taken together, and until when they hold without another call."""

    worker: WorkerId = ""
    leases: tuple[Lease, ...] = ()
    until: Ms = 0

    def ticket(self, lease: Lease, started_at: Ms, timeout_ms: int | None) -> Ticket:
        told = {
            **asdict(lease),
            **_BARE,
            "worker": self.worker,
            "alone": len(self.leases) == 1,
            "started_at": started_at,
            "reads": bool((flow := flow_of(lease.meta)) and flow.reads),
            "timeout_ms": lease.timeout_ms or timeout_ms,
        }
        return Ticket(**told)


_BARE: Final = {
    **dict.fromkeys(("session_id", "parent_id", "workflow_id", "unique_key")),
    **dict.fromkeys(("payload", "meta"), b""),
    **dict.fromkeys(("steps", "inbox"), ()),
}


class Shares(Group):
    """The lanes' pattern for all who ask here for the same queues, as for one worker process."""

    def __init__(self, queues: Sequence[str], lanes: Lanes) -> None:
        super().__init__(queues, None, lanes.share)
        self._lanes = lanes
        self._pressed_at = float("-inf")

    def take(self, room: int) -> tuple[Want, ...]:
        """The next picks; taken at once, for another claim may be made before this one is over."""
        wants = self.wants(room)
        for want in wants:
            self.turners[want.queue].advance(want.n)
        return wants

    def presses(self) -> bool:
        """Is it time to look how many retries wait?"""
        due = monotonic() - self._pressed_at >= PRESSURE_S
        if due:
            self._pressed_at = monotonic()
        return due

    def settle(self, wants: Sequence[Want], deal: Deal) -> None:
        """Picks that found nothing are picked again."""
        given = Counter(lease.queue for lease in deal.leases)
        for want in wants:
            given[want.queue] -= want.n
        for queue, n in given.items():
            self.turners[queue].advance(n)
        for queue, waiting in deal.pressure.items():
            self.turners[queue].set_share(self._lanes.share_at(waiting))


class Remote:
    """The turns that one server takes for workers elsewhere."""

    def __init__(self, app: Outlast) -> None:
        self._app = app
        self._shares: dict[tuple[str, ...], Shares] = {}
        self._kept: dict[WorkerId, tuple[WorkerInfo | None, float]] = {}
        self._swept_at = float("-inf")

    # claiming ------------------------------------------------------------------------------------

    async def claim(self, ask: Ask, wait_s: float = 0.0) -> Claim:
        """Leases, as soon as there are some; none when the wait is over. Cancelling it takes none.

        The same again, by token, gives the leases of the first time that are still held.
        """
        await self._keep(ask.base, ask.info)
        fence = new_fence()
        if ask.token is not None:
            fence, earlier = await self._by_token(ask, fence)
            if earlier is not None:
                return earlier
        me = _name(ask.base, fence)
        try:
            return await self._claim(ask, me, fence, wait_s)
        except BaseException:  # a claim that nobody will hear of is taken back
            with suppress(Exception):
                await asyncio.shield(self._leave(me))
            raise

    async def _claim(self, ask: Ask, me: WorkerId, fence: Fence, wait_s: float) -> Claim:
        until = monotonic() + wait_s
        claim, _ = await self._pass(ask, me, fence)
        if claim.leases or not wait_s:
            return claim
        async with self._app.engine.watch([f"queue:{queue}" for queue in ask.queues]) as watch:
            while True:
                claim, due_s = await self._pass(ask, me, fence)
                if claim.leases or monotonic() >= until:
                    return claim
                await self._rest(ask, watch, min(monotonic() + due_s, until))

    async def _rest(self, ask: Ask, watch: Watch, until: float) -> None:
        """Until there may be something; meanwhile do as every worker does: beat, look, sweep."""
        look = tuple(Want(queue, lane, 0) for queue in ask.queues for lane in LANES)
        while (left_s := until - monotonic()) > 0:
            if await watch.wait(min(left_s, LOOK_S)) or left_s <= LOOK_S:
                return
            deal = await self._beat(ask.base, ask.info, look)
            until = min(until, monotonic() + _due_s(deal))
            await self._sweep()

    async def _pass(self, ask: Ask, me: WorkerId, fence: Fence) -> tuple[Claim, float]:
        """What is ready now; and in how many seconds to look again if that is nothing."""
        if len(self._shares) > MAX_KNOWN:
            self._shares.clear()
        shares = self._shares.setdefault(ask.queues, Shares(ask.queues, self._app.lanes))
        due_s = POLL_S
        for _ in range(MAX_PASSES):
            wants = shares.take(ask.most)
            turn = Turn(
                token=fence,
                worker=me,
                lease_ms=LEASE_MS,
                wants=wants,
                room=ask.most,
                info=WorkerInfo(host=ask.worker, pid=0, slots=ask.most),
                pressure=shares.presses(),
            )
            deal = await self._exchange(turn)
            shares.settle(wants, deal)
            mine, back = _sort(ask, deal.leases)
            mine, over = await self._filled(mine)
            back = (*back, *over)
            if back or not mine:
                await self._exchange(_last_of(me, back, leaving=not mine))
            if mine:
                return Claim(worker=me, leases=mine, until=deal.now + LEASE_MS), 0.0
            due_s = _due_s(deal)
            if not back and not deal.again:
                break
        await self._sweep()
        return Claim(), due_s

    async def _filled(
        self, leases: tuple[Lease, ...]
    ) -> tuple[tuple[Lease, ...], tuple[Outcome, ...]]:
        """Leases with the results of others put in, and how those end that are not to run."""
        flows = [flow for lease in leases if (flow := flow_of(lease.meta)) is not None]
        if not flows:
            return leases, ()
        ended = await ends(self._app.engine, {id for flow in flows for id in flow.reads})
        ready: list[Lease] = []
        over: list[Outcome] = []
        for lease in leases:
            try:
                ready.append(lease if flow_of(lease.meta) is None else filled(lease, ended))
            except Skipped:
                over.append(outcomes.cancelled(lease, SKIPPED))
            except Permanent as error:
                over.append(outcomes.failed(lease, classify(error), Retry(), draw()))
        return tuple(ready), tuple(over)

    async def _by_token(self, ask: Ask, fence: Fence) -> tuple[Fence, Claim | None]:
        """The fence to claim with; and the claim that was made under this token, if it lives.

        A fence is never used for two claims: one that has ended leaves its token to a new one.
        """
        mark = hashlib.sha256((ask.token or "").encode("utf-8", "surrogatepass")).hexdigest()
        key, value = f"{ask.base}#{mark}", str(fence).encode()
        engine = self._app.engine
        while True:
            if (await engine.put([_token(key, value, 0)]))[0] is not None:
                return fence, None
            found = await engine.get("claim", [key])
            if not found:
                continue
            first = int(found[0].value)
            me = _name(ask.base, first)
            deal = await self._exchange(Turn(token=first, worker=me, lease_ms=LEASE_MS))
            if not deal.evicted:
                leases, _ = await self._filled(deal.leases)
                return first, Claim(worker=me, leases=leases, until=deal.now + LEASE_MS)
            if (await engine.put([_token(key, value, found[0].version)]))[0] is not None:
                return fence, None

    async def introduce(self, ask: Ask) -> None:
        """The worker is there, though it asks for nothing yet."""
        await self._keep(ask.base, ask.info)

    async def dismiss(self, ask: Ask) -> None:
        """The worker is gone; what it holds was ended before, or lapses."""
        self._kept.pop(ask.base, None)
        await self._leave(ask.base)

    # while it runs, and at its end ---------------------------------------------------------------

    async def tell(self, ticket: Ticket, news: Outcome) -> tuple[Ms, str | None]:
        """Pass on news of an attempt (or nothing but that it lives): until when the lease holds
        now, and why the task is to stop, if it is."""
        deal, _ = await self._say(ticket, news)
        return deal.now + LEASE_MS, dict(deal.cancel).get(ticket.id)

    async def end(self, ticket: Ticket, outcome: Outcome) -> Verdict:
        """The end of an attempt, as it was recorded. The same end again changes nothing."""
        _, told = await self._say(ticket, outcome)
        return told.verdict

    async def _say(self, ticket: Ticket, outcome: Outcome) -> tuple[Deal, Outcome]:
        told, is_late = outcome, await self._is_late(ticket)
        if is_late:
            told = outcomes.timed_out(ticket, ticket.timeout_ms or 0, self.policy(ticket), draw())
        is_over = told.state != "running"
        turn = Turn(
            token=new_fence(),
            worker=ticket.worker,
            lease_ms=LEASE_MS,
            outcomes=(told,),
            leaving=is_over and ticket.alone,
        )
        deal = await self._exchange(turn)
        if deal.evicted and not is_over and not deal.lost:
            raise lost(ticket.id)  # it was heard, but the claim is on its way to others
        if deal.lost:
            if outcome.state == "running" or not await self._is_recorded(ticket, outcome.verdict):
                self._app.meter.count("refused")
                raise lost(ticket.id)
            return deal, outcome
        if is_over and not deal.evicted:  # else its claim was over: this is the end a second time
            run_ms = max(deal.now - ticket.started_at, 0)
            record(self._app.meter, ticket, told, ticket.started_at, run_ms)
        if is_over and not ticket.alone and not await self._holds(ticket.worker):
            await self._leave(ticket.worker)
        await self._keep(ticket.base)
        if is_late and outcome.verdict == "succeeded":
            raise LeaseLost(
                f"This attempt at task {ticket.id} took longer than its timeout of"
                f" {show_ms(ticket.timeout_ms or 0)}. It was recorded as timed out; it must stop."
            )
        return deal, told

    def policy(self, ticket: Ticket) -> Retry:
        """What the app says about retries of this type."""
        handler = self._app.find(ticket.type)
        return Retry() if handler is None else handler.retry

    async def _is_late(self, ticket: Ticket) -> bool:
        return ticket.deadline is not None and await self._app.engine.now() >= ticket.deadline

    async def _is_recorded(self, ticket: Ticket, verdict: Verdict) -> bool:
        """Did this very attempt end like this? Then the reply was lost, not the lease."""
        task = await find(self._app.engine, ticket.id)
        entries = [] if task is None else msgspec.json.decode(task.attempts)
        mine = (ticket.number, ticket.worker, verdict)
        return any((e["number"], e["worker"], e["outcome"]) == mine for e in entries)

    async def _holds(self, worker: WorkerId) -> bool:
        query = TaskQuery.of(worker=worker, status=("running", "stalled"), limit=1)
        return bool((await self._app.engine.tasks(query)).items)

    # turns ---------------------------------------------------------------------------------------

    async def _keep(self, base: WorkerId, info: WorkerInfo | None = None) -> None:
        """The worker is there. Every few seconds is enough, unless it has something new to say."""
        known, at = self._kept.get(base, (None, float("-inf")))
        if monotonic() - at >= BEAT_S or info not in (None, known):
            await self._beat(base, info or known)

    async def _beat(
        self, base: WorkerId, info: WorkerInfo | None, wants: tuple[Want, ...] = ()
    ) -> Deal:
        if len(self._kept) > MAX_KNOWN:
            self._kept.clear()
        self._kept[base] = (info, monotonic())
        turn = Turn(token=new_fence(), worker=base, lease_ms=LEASE_MS, info=info, wants=wants)
        return await self._exchange(turn)

    async def give_back(self, claim: Claim) -> None:
        """Leases that nobody heard of, at no cost: their tasks need not wait for their end."""
        if claim.leases:
            with suppress(Exception):
                await asyncio.shield(self._leave(claim.worker))

    async def _leave(self, worker: WorkerId) -> None:
        await self._exchange(_last_of(worker))

    async def _exchange(self, turn: Turn) -> Deal:
        """A turn that has begun is seen to its end, also when nobody waits for it any more."""
        going = asyncio.create_task(self._app.engine.exchange(turn))
        try:
            return await asyncio.shield(going)
        except asyncio.CancelledError:
            await asyncio.wait({going})
            raise

    async def _sweep(self) -> None:
        """There may be no other worker that does it."""
        if monotonic() - self._swept_at < SWEEP_S:
            return
        self._swept_at = monotonic()
        try:
            swept(self._app.meter, await self._app.engine.sweep())
        except Exception as problem:
            logger.warning("A sweep failed: %s", problem)


def _sort(ask: Ask, leases: Sequence[Lease]) -> tuple[tuple[Lease, ...], tuple[Outcome, ...]]:
    """Those to hand out, and the others, given back as workers here give them back."""
    mine: list[Lease] = []
    back: list[Outcome] = []
    size, on_last_life = 0, False
    for lease in leases:
        size += len(lease.payload) + sum(len(step.value) for step in lease.steps)
        last_life = outcomes.on_last_life(lease)
        if ask.types and lease.type not in ask.types:
            back.append(outcomes.unknown(lease))
        elif last_life and on_last_life:
            back.append(outcomes.later(lease, draw()))
        elif mine and size > MAX_CLAIM_BYTES:
            back.append(outcomes.released(lease))
        else:
            mine.append(lease)
            on_last_life = on_last_life or last_life
    return tuple(mine), tuple(back)


def _due_s(deal: Deal) -> float:
    """In how many seconds to look again; a little ahead at least, so that nothing spins."""
    if deal.next_due is None:
        return POLL_S
    return min(POLL_S, max(deal.next_due - deal.now, 5) / 1_000)


def _name(base: WorkerId, fence: Fence) -> WorkerId:
    """The row of the claim with this fence, which does not tell the fence."""
    return f"{base}#{hashlib.sha256(str(fence).encode()).hexdigest()[:12]}"


def _token(key: str, value: bytes, expect: int) -> Put:
    return Put(kind="claim", key=key, value=value, expect=expect, ttl_ms=TOKEN_MS)


def _last_of(worker: WorkerId, back: tuple[Outcome, ...] = (), *, leaving: bool = True) -> Turn:
    return Turn(token=new_fence(), worker=worker, lease_ms=LEASE_MS, outcomes=back, leaving=leaving)


def draw() -> float:
    return random()  # noqa: S311  # jitter, not a secret
