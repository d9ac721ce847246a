"""The conductor: a fresh place, processes, load and faults; then quiet; then the judge."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import randbelow, token_hex
from time import monotonic
from typing import Final, TypeVar

from msgspec import Struct

from outlast.core.errors import BadInput, EngineDown, OutlastError
from outlast.core.model import Cancel, Cursor, EventQuery, NewTask, TaskId, TaskQuery
from outlast.core.states import FINAL
from outlast.core.text import safe_url
from outlast.engine import Engine, connect
from outlast.torture.evidence import gather
from outlast.torture.fleet import GRACE_S, Fleet, Server, send, until
from outlast.torture.load import Spec, children, spec, task_id
from outlast.torture.nemesis import FAULTS, Nemesis
from outlast.torture.place import fresh
from outlast.torture.producer import ENOUGH, Share, set_quota
from outlast.torture.proxy import Proxy
from outlast.torture.record import recorded
from outlast.torture.report import Report, judge

T = TypeVar("T")

PRODUCERS: Final = 3
FAULT_S: Final = 3.0
"""How long a fault and what follows take, about: the load is spread over all of them."""
SETTLE_S: Final = 0.7
STUCK_S: Final = 8.0
"""Nothing ended for this long and a lease more: what is left then is stuck."""
PROBES: Final = 5


class Settings(Struct, frozen=True, kw_only=True):
    """What `outlast torture` was asked for."""

    url: str
    tasks: int = 20_000
    faults: int = 30
    kinds: tuple[str, ...] = ()
    seed: int | None = None
    workers: int = 4
    server: str | None = None
    seconds: float | None = None
    lease_ms: int = 2_000


class Progress(Struct, frozen=True):
    """For people who wait."""

    doing: str
    fault: int
    faults: int
    ended: int
    tasks: int
    seconds: float


Tell = Callable[[Progress], None]


async def torture(settings: Settings, tell: Tell) -> Report:
    """Run it all; what it leaves behind is removed."""
    me = asyncio.current_task()
    assert me is not None  # noqa: S101  # a coroutine runs in one
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)
    with tempfile.TemporaryDirectory(
        prefix="outlast-torture-", ignore_cleanup_errors=True
    ) as folder:
        run = Torture(settings, Path(folder), tell)
        try:
            return await run.run()
        finally:
            await run.end()


class Torture:
    """One run."""

    def __init__(self, settings: Settings, folder: Path, tell: Tell) -> None:
        self._settings = settings
        self._folder = folder
        self._tell = tell
        self._seed = randbelow(2**31) if settings.seed is None else settings.seed
        self._place = fresh(settings.url, f"torture_{token_hex(4)}")
        self._planned = _planned(self._seed, settings.tasks)
        self._tailed: list[Cursor] = []
        self._proxy: Proxy | None = None
        self._server: Server | None = None
        self._fleet: Fleet | None = None
        self._engine: Engine = recorded(self._place.url, folder, "torture")
        self._since = monotonic()
        self._done = self._ended = 0
        self._stuck: frozenset[TaskId] = frozenset()
        self._made = False

    async def run(self) -> Report:
        s = self._settings
        if s.server is not None:
            self._server = Server(s.server, self._place.url, self._folder)
            await self._server.start()
        await self._engine.open()
        self._made = True
        url = self._place.url
        if self._place.server is not None:
            self._proxy = Proxy(*self._place.server, self._seed)
            await self._proxy.start()
            url = self._place.through(self._proxy.port)
        self._fleet = Fleet(self._folder, url, workers=s.workers, lease_ms=s.lease_ms)
        nemesis = Nemesis(
            self._fleet, self._folder, seed=self._seed, lease_ms=s.lease_ms, proxy=self._proxy,
            server=self._server, probe=self._probe, running=self._running,
        )  # fmt: skip
        wanted = _chosen(s.kinds, nemesis.kinds)
        plan = nemesis.plan(s.faults, wanted)
        self._fleet.start(self._shares(url, len(plan)))
        if not await until(self._workers_are_there, 30):
            raise EngineDown(f"No worker came up: {self._said()}")
        tailing = asyncio.create_task(self._tail())
        await self._torment(nemesis, plan)
        await self._quiet()
        tailing.cancel()
        await asyncio.wait([tailing])
        self._say("judging")
        evidence = await gather(
            self._engine, self._folder, self._planned, s.lease_ms, await self._rest_of_log(),
            self._stuck,
        )  # fmt: skip
        return judge(
            evidence,
            engine=safe_url(s.url),
            durability=self._engine.durability,
            seed=self._seed,
            seconds=monotonic() - self._since,
            wanted=plan,
        )

    async def end(self) -> None:
        """No process, no namespace and no server of ours is left."""
        if self._fleet is not None:
            self._fleet.end()
        if self._proxy is not None:
            await self._proxy.close()
        with suppress(OutlastError):
            await self._engine.close()
        try:
            if self._made:
                await self._place.remove()
        finally:
            if self._server is not None:
                self._server.kill()

    # load and faults -----------------------------------------------------------------------------

    def _shares(self, url: str, faults: int) -> list[Share]:
        s = self._settings
        per_second = s.tasks / ((faults + 1) * FAULT_S)
        return [
            Share(
                url=url, folder=str(self._folder), seed=self._seed, tasks=s.tasks, number=i,
                of=PRODUCERS, per_second=per_second, parent=os.getpid(),
            )
            for i in range(PRODUCERS)
        ]  # fmt: skip

    async def _torment(self, nemesis: Nemesis, plan: Sequence[str]) -> None:
        """All faults, each with its part of the load."""
        s = self._settings
        parts = len(plan) + 1
        for i, kind in enumerate(plan, 2):
            if s.seconds is not None and monotonic() - self._since > s.seconds:
                break
            set_quota(self._folder, s.tasks * i // parts)
            await self._pause(SETTLE_S, kind)
            await nemesis.strike(kind)
            self._done += 1
        (self._folder / ENOUGH).touch()

    async def _pause(self, seconds: float, doing: str) -> None:
        await self._count()
        self._say(doing)
        await asyncio.sleep(seconds)

    async def _probe(self) -> None:
        probes = [_probe(self._seed, self._done, i) for i in range(PROBES)]
        self._planned |= {probe.task.id: probe for probe in probes}
        await insist(lambda: self._engine.enqueue([probe.task for probe in probes]))

    async def _running(self) -> dict[int, int]:
        """How much each worker process runs."""
        workers = await insist(self._engine.workers)
        return {worker.info.pid: worker.running for worker in workers}

    # quiet ---------------------------------------------------------------------------------------

    async def _quiet(self) -> None:
        """The faults are over: everything comes to its end now, or is stuck."""
        fleet = self._fleet
        assert fleet is not None  # noqa: S101  # it runs
        patience_s = STUCK_S + self._settings.lease_ms / 1_000
        doomed = [one.task.id for one in self._planned.values() if one.kind == "doomed"]
        moved_at, left, before = monotonic(), 1, (-1, -1)
        while left and monotonic() - moved_at < patience_s:
            handing_over = any(one.code is None for one in fleet.producers)
            if not handing_over and doomed:
                # Those whose producer was killed before it had cancelled them.
                for i in range(0, len(doomed), 500):
                    some = doomed[i : i + 500]
                    await insist(partial(self._engine.alter, some, Cancel("torture")))
                doomed = []
            left = await self._count() + handing_over
            if (left, self._ended) != before:
                before, moved_at = (left, self._ended), monotonic()
            self._say("draining")
            await asyncio.sleep(0.3)
        if left:  # what still runs ends with its worker: now is the moment to ask
            query = TaskQuery.of(status=("running", "stalled"), limit=500)
            page = await insist(lambda: self._engine.tasks(query))
            self._stuck = frozenset(task.id for task in page.items)
        for group in fleet.groups:
            send([group.pid], signal.SIGTERM)
        await until(lambda: all(g.code is not None for g in fleet.groups), GRACE_S + 5)
        fleet.end()

    async def _count(self) -> int:
        """How many tasks are not over."""
        counts = await insist(lambda: self._engine.count(TaskQuery(), ["status"]))
        self._ended = sum(count.n for count in counts if count.by[0] in FINAL)
        return sum(count.n for count in counts) - self._ended

    async def _tail(self) -> None:
        """Follow the log, as a client would that comes back with its cursor after each trouble."""
        after: Cursor | None = None
        engine = connect(self._place.url)
        try:
            while True:
                try:
                    await engine.open()
                    page = await engine.events(EventQuery(after=after, limit=500))
                except OutlastError:
                    await asyncio.sleep(0.1)
                    continue
                self._tailed += [event.cursor for event in page.items]
                after = page.next
                if not page.items:
                    await asyncio.sleep(0.1)
        finally:
            await engine.close()

    async def _rest_of_log(self) -> list[Cursor]:
        """What came after the last event that was seen."""
        query = EventQuery(after=self._tailed[-1] if self._tailed else None, limit=500)
        while (page := await self._engine.events(query)).items:
            self._tailed += [event.cursor for event in page.items]
            query = EventQuery(after=page.next, limit=500)
        return self._tailed

    # telling -------------------------------------------------------------------------------------

    async def _workers_are_there(self) -> bool:
        assert self._fleet is not None  # noqa: S101  # it was started
        known = [worker for worker in await self._engine.workers() if worker.alive]
        return len(known) >= self._fleet.full_size

    def _said(self) -> str:
        """The last words of the workers."""
        logs = [path.read_text().strip() for path in self._folder.glob("log-workers*")]
        return logs[0].splitlines()[-1] if logs and logs[0] else "they said nothing"

    def _say(self, doing: str) -> None:
        s = self._settings
        seconds = monotonic() - self._since
        self._tell(Progress(doing, self._done, s.faults, self._ended, s.tasks, seconds))


def _chosen(kinds: Sequence[str], possible: Sequence[str]) -> list[str]:
    for kind in kinds:
        if kind not in FAULTS:
            raise BadInput(f"--kinds: there is no fault {kind!r}; there are {', '.join(FAULTS)}.")
        if kind not in possible:
            raise BadInput(
                f"--kinds: {kind!r} is not possible here. Faults of the server need --server, "
                "those of the network an engine on one server without TLS."
            )
    return [kind for kind in possible if not kinds or kind in kinds]


def _planned(seed: int, tasks: int) -> dict[TaskId, Spec]:
    """The whole load, with the children of parents."""
    specs = [spec(seed, n) for n in range(tasks)]
    specs += [child for one in specs if one.kind == "parent" for child in children(one.task.id)]
    return {one.task.id: one for one in specs}


def _probe(seed: int, fault: int, i: int) -> Spec:
    return Spec("instant", NewTask(id=task_id(seed, "probe", fault, i), type="instant"))


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Our own connections do not go through the proxy, but the server may just have been killed."""
    give_up_at = monotonic() + 10
    while True:
        try:
            return await call()
        except EngineDown:
            if monotonic() > give_up_at:
                raise
            await asyncio.sleep(0.05)
