"""The director: starts everything, runs the scenes one after another, and asks the judge.

Scenes wait for conditions and never for a time, except where a person is to have a look.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random
from secrets import token_hex
from time import monotonic
from typing import Any, Final

from msgspec import Struct

from outlast import approvals, ops
from outlast.core.errors import BadInput, Conflict
from outlast.core.model import Task, TaskId, TaskQuery
from outlast.core.states import FINAL
from outlast.core.text import safe_url
from outlast.demo import material
from outlast.demo.app import (
    GATE_BEFORE,
    GO,
    PRICES,
    SHAKY,
    STEADY,
    TRIP_VOLUME,
    agent,
    app,
    ask,
    embed,
    invoice,
    report,
    summarize,
)
from outlast.demo.fleet import REPORTS_EACH, WORKERS, Fleet
from outlast.demo.judge import Summary, gather, judge, ledger
from outlast.demo.still import INVOICES, Places, still_life
from outlast.handle import Handle
from outlast.handler import Call
from outlast.systems.standin import StandIn
from outlast.torture.place import Place, fresh

POLL_S: Final = 0.05
REST_S: Final = 2
"""What the 429 asks for."""
# When people watch: between two words, between two scenes, and until a question is answered.
WORD_S: Final = 0.08
BREATH_S: Final = 3.0
PATIENCE_S: Final = 20.0
TRAFFIC_S: Final = 4.0


class Settings(Struct, frozen=True, kw_only=True):
    """What `outlast demo` was asked for."""

    engine: str | None = None
    """None: SQLite, in a file that is gone afterwards."""
    seed: int = 7
    seconds: float | None = None
    """How long the scenes may take in all; None: somebody watches, and may stop it."""
    port: int = 0
    busy: bool = False
    """Words are to come slowly, so that there is something to see."""


class Moment(Struct, frozen=True):
    """What happens now, and where it can be seen."""

    seconds: float
    what: str
    look: str = ""


Tell = Callable[[Moment], None]


@asynccontextmanager
async def stage(settings: Settings, tell: Tell) -> AsyncIterator[Show]:
    """A place, a model, a server and workers; all gone afterwards."""
    async with AsyncExitStack() as after:
        since = monotonic()
        folder = Path(
            after.enter_context(
                tempfile.TemporaryDirectory(prefix="outlast-demo-", ignore_cleanup_errors=True)
            )
        )
        url = f"sqlite:///{folder / 'demo.db'}"
        place = None
        if settings.engine is not None:
            if settings.engine.startswith("memory:"):
                raise BadInput("memory:// is in one process, and the demo has several: leave it.")
            place = fresh(settings.engine, f"demo_{token_hex(4)}")
            url = place.url
        pace_s = WORD_S if settings.busy else 0.01
        models = (STEADY, SHAKY)
        model = await after.enter_async_context(
            StandIn(seed=settings.seed, pace_s=pace_s, models=models)
        )
        app.use(url)
        await after.enter_async_context(_opened(place))
        fleet = Fleet(folder, url, model.url)
        after.push_async_callback(fleet.end)
        await fleet.work()
        address = await fleet.serve(settings.port)
        yield Show(settings, tell, folder, model, fleet, address, since)


@asynccontextmanager
async def _opened(place: Place | None) -> AsyncIterator[None]:
    """The app, and afterwards nothing of what it made. Where it could not be opened there is
    nothing."""
    made = False
    try:
        async with app:
            made = True
            yield
    finally:
        if made and place is not None:
            await place.remove()


class Show:
    """One performance."""

    def __init__(
        self, settings: Settings, tell: Tell, folder: Path, model: StandIn, fleet: Fleet,
        address: str, since: float,
    ) -> None:  # fmt: skip
        self.address = address
        self._settings = settings
        self._tell = tell
        self._folder = folder
        self._model = model
        self._fleet = fleet
        self._since = since
        self._chance = Random(settings.seed)  # noqa: S311  # to be repeated, not a secret
        self._acknowledged: list[TaskId] = []
        self._killed: int | None = None
        self._now = "starting"

    async def run(self) -> Summary:
        """All scenes, or as many as there is time for; then the judge."""
        cut_off = ""
        left = self._settings.seconds
        try:
            async with asyncio.timeout(None if left is None else left - self._seconds):
                await self._until(self._workers_are_there)
                for scene in (
                    self._streams, self._throttle, self._circuit, self._crash, self._approval,
                    self._redrive,
                ):  # fmt: skip
                    await scene()
                    await self._breathe()
        except TimeoutError:
            cut_off = self._now
        found = Counter[str](asked.got for asked in self._model.asked)
        evidence = await gather(
            app.engine, self._folder, acknowledged=self._acknowledged, misbehaved=dict(found),
            killed=self._killed, rest_ms=REST_S * 1_000,
        )  # fmt: skip
        return Summary(
            engine=safe_url(self._settings.engine) if self._settings.engine else "sqlite",
            seed=self._settings.seed,
            seconds=round(self._seconds, 1),
            claims=judge(evidence),
            cut_off=cut_off,
        )

    async def go_on(self) -> None:
        """Some traffic, so that there is something to see, until we are stopped."""
        self._model.forget()
        for n in count():
            self._fleet.check()
            calls: list[Call[Any]] = [
                summarize.call(material.text(self._chance), sentences=3),
                ask.call(f"What keeps a promise, number {n}?"),
            ]
            if n % 5 == 0:
                calls.append(report.call(self._chance.choice(material.SUBJECTS)))
            await app.enqueue(calls)
            await asyncio.sleep(TRAFFIC_S)

    def still_life(self) -> AbstractAsyncContextManager[Places]:
        """Something of everything at once, for pictures."""
        return still_life(self.address, self._model, self._folder, self._chance, self._until)

    # scenes --------------------------------------------------------------------------------------

    async def _streams(self) -> None:
        self._say(
            "4 summaries are written word by word, and 60 texts embedded in a batch.",
            "Tasks; open one that runs",
        )
        calls: list[Call[Any]] = [
            summarize.call(material.text(self._chance), sentences=3) for _ in range(4)
        ]
        calls += [embed.call(texts) for texts in material.batches(self._chance, 12, 5)]
        await self._over(await self._enqueue(calls))

    async def _throttle(self) -> None:
        self._say(
            f"The model answers 429, retry after {REST_S} s: its limit pauses for all workers.",
            "Limits",
        )
        self._model.cue("rate_limit", model=STEADY, retry_after=REST_S)
        texts = [material.text(self._chance) for _ in range(8)]
        await self._over(await self._enqueue([summarize.call(text, sentences=2) for text in texts]))

    async def _circuit(self) -> None:
        self._say(
            f"Another model fails {TRIP_VOLUME} times: its circuit opens, and nobody asks it.",
            "Limits",
        )
        self._model.cue("error", model=SHAKY, times=TRIP_VOLUME)
        questions = [f"What do {about} keep?" for about in material.SUBJECTS[:TRIP_VOLUME]]
        handles = await self._enqueue([ask.call(question) for question in questions])
        await self._until(lambda: self._has_opened(handles))
        self._say("It is open. Soon one task may try, for all; if that goes well, it closes.")
        await self._over(handles)

    async def _crash(self) -> None:
        n = WORKERS * REPORTS_EACH
        self._say(
            f"{n} reports of five steps are begun, {REPORTS_EACH} by each worker.", "Workers; Tasks"
        )
        subjects = self._chance.sample(material.SUBJECTS, n)
        handles = await self._enqueue([report.call(subject) for subject in subjects])
        held: dict[int, set[TaskId]] = {}

        async def all_wait() -> bool:
            for line in ledger(self._folder):
                if line.deed == "gate":
                    held.setdefault(line.pid, set()).add(line.task)
            return sum(map(len, held.values())) >= n

        await self._until(all_wait)
        victim = self._chance.choice(sorted(held))
        self._say(
            f"kill -9 {victim}: a worker is gone, with {len(held[victim])} reports that had"
            f" {GATE_BEFORE - 1} of 5 steps."
        )
        os.kill(victim, signal.SIGKILL)
        self._killed = victim

        async def is_missed() -> bool:
            return all(b'"stalled"' in task.attempts for task in await _records(held[victim]))

        await self._until(is_missed)
        (self._folder / GO).touch()
        self._say(f"Others take them over, at step {GATE_BEFORE}.", "Tasks; the steps of a report")
        await self._over(handles)

    async def _approval(self) -> None:
        self._say("An agent asks before it acts, and holds no worker meanwhile.", "Approvals")
        goal = self._chance.choice(material.GOALS)
        handles = await self._enqueue([agent.call(goal)])

        async def is_open() -> bool:
            return bool((await approvals.approvals(app, TaskQuery())).items)

        await self._until(is_open)
        if self._settings.seconds is None:
            self._say(f"Answer it, or wait: in {PATIENCE_S:g} s it is approved.")
            await self._over(handles, within_s=PATIENCE_S)
        try:
            await approvals.respond(app, handles[0].id, b'"yes"')
        except Conflict:
            self._say("It was answered.")
        else:
            self._say("It is approved.")
        await self._over(handles)

    async def _redrive(self) -> None:
        self._say(f"{INVOICES} invoices die: there is no price list.", "Failures")
        handles = await self._enqueue([invoice.call(n) for n in range(1, INVOICES + 1)])
        await self._over(handles)
        await self._breathe()
        (self._folder / PRICES).touch()
        dead = TaskQuery.of(type="invoice", status="dead")
        redriven = await ops.bulk(app, "retry", dead)
        self._say(f"Now there is one: {redriven} are redriven.")
        await self._over(handles)

    # in detail -----------------------------------------------------------------------------------

    @property
    def _seconds(self) -> float:
        return monotonic() - self._since

    def _say(self, what: str, look: str = "") -> None:
        self._now = what
        self._tell(Moment(self._seconds, what, look))

    async def _enqueue(self, calls: Sequence[Call[Any]]) -> list[Handle[Any]]:
        handles = await app.enqueue(calls)
        self._acknowledged += [handle.id for handle in handles]
        return handles

    async def _breathe(self) -> None:
        """A moment for whoever watches."""
        if self._settings.seconds is None:
            await asyncio.sleep(BREATH_S)

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        while not await holds():
            self._fleet.check()
            await asyncio.sleep(POLL_S)

    async def _over(self, handles: Sequence[Handle[Any]], within_s: float | None = None) -> bool:
        """Wait until they have ended, however that was."""
        try:
            async with asyncio.timeout(within_s):
                await self._until(lambda: _are_over(handles))
        except TimeoutError:
            if within_s is None:
                raise
            return False
        return True

    async def _workers_are_there(self) -> bool:
        return sum(worker.alive for worker in await app.engine.workers()) >= WORKERS

    async def _has_opened(self, handles: Sequence[Handle[Any]]) -> bool:
        """Also when it is closed again: then they are over."""
        turned = any(gauge.circuit != "closed" for gauge in await app.engine.gauges([SHAKY]))
        return turned or await _are_over(handles)


async def _are_over(handles: Sequence[Handle[Any]]) -> bool:
    tasks = await _records([handle.id for handle in handles])
    return all(task.state in FINAL for task in tasks)


async def _records(ids: Sequence[TaskId] | set[TaskId]) -> tuple[Task, ...]:
    return (await app.engine.tasks(TaskQuery.of(id=tuple(ids), limit=len(ids)))).items


def free_port(wanted: int) -> int:
    """The one that is wanted if nobody has it, else any."""
    try:
        with socket.create_server(("127.0.0.1", wanted)):
            return wanted
    except OSError:
        return 0
