"""A primary that steps down or is killed: workers go on by themselves, and nothing is lost that was
acknowledged, nothing recorded twice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from outlast import Outlast
from outlast.core.errors import EngineDown
from outlast.core.ids import new_fence, new_id
from outlast.core.model import EventQuery, NewTask, Outcome, TaskQuery, Turn, Want, WorkerInfo
from outlast.engines.mongo.db import Link
from outlast.engines.mongo.engine import MongoEngine
from outlast.worker import Worker

from .conftest import servers

pytestmark = pytest.mark.usefixtures("unreachable")


@pytest.fixture(scope="module")
def three() -> Iterator[Any]:
    members = servers.ReplicaSet()
    try:
        members.run()
        yield members
    finally:
        members.stop()


@pytest.fixture
def single() -> Iterator[Any]:
    server = servers.Server()
    try:
        server.run()
        yield server
    finally:
        server.stop()


@dataclass
class Load:
    """One worker, and somebody who enqueues without a pause; what was acknowledged, what ran."""

    url: str
    acknowledged: list[str] = field(default_factory=list)
    ran: Counter[str] = field(default_factory=Counter)
    _stop: bool = False

    async def __aenter__(self) -> Load:
        self.app = Outlast(self.url)

        @self.app.task(name="mark")
        async def mark(task_id: str) -> str:
            self.ran[task_id] += 1
            return task_id

        self._mark = mark
        await self.app.__aenter__()
        self._worker = Worker(self.app)
        self._tasks = [asyncio.create_task(x) for x in (self._worker.run(), self._enqueue())]
        await self.progress()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop = True
        self._worker.stop()
        await asyncio.gather(*self._tasks)
        await self.app.__aexit__(None, None, None)

    async def _enqueue(self) -> None:
        while not self._stop:
            mine = [new_id() for _ in range(5)]
            calls = [self._mark.options(id=this).call(this) for this in mine]
            while True:  # the same ids again: an enqueue that was not answered may have happened
                with suppress(EngineDown):
                    await self.app.enqueue(calls)
                    break
            self.acknowledged += mine
            await asyncio.sleep(0.005)

    async def progress(self) -> float:
        """Until a task runs that was enqueued from now on; how long that took."""
        since, before = time.monotonic(), len(self.acknowledged)

        async def new_one() -> bool:
            return any(this in self.ran for this in self.acknowledged[before + 5 :])

        await until(new_one)
        return time.monotonic() - since

    async def judge(self) -> None:
        """Everything acknowledged is there, completed, and told once."""
        self._stop = True
        await self._tasks[1]
        engine = self.app.engine

        async def all_completed() -> bool:
            """The statuses are counted one after the other, so only the right sum is an answer."""
            counts = {c.by[0]: c.n for c in await engine.count(TaskQuery(), ("status",))}
            return counts == {"completed": len(self.acknowledged)}

        await until(all_completed)
        done: Counter[str | None] = Counter()
        after = None
        while True:
            page = await engine.events(EventQuery(after=after, kinds=("done",), limit=500))
            done.update(event.task_id for event in page.items)
            if not page.items:
                break
            after = page.next
        assert done == Counter(dict.fromkeys(self.acknowledged, 1))


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + 30
    while not await holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def namespace(url: str) -> str:
    return url.replace("/?", f"/t{new_id().replace('-', '')}?")


async def test_a_primary_steps_down(three: Any) -> None:
    async with Load(namespace(three.url)) as load:
        await asyncio.to_thread(three.step_down)
        await load.progress()
        await load.judge()


async def test_a_primary_is_killed(three: Any) -> None:
    async with Load(namespace(three.url)) as load:
        victim = await asyncio.to_thread(three.primary)
        await asyncio.to_thread(victim.kill)
        await load.progress()  # with two of three
        await asyncio.to_thread(victim.run)
        await load.progress()
        await load.judge()


async def test_a_single_server_is_killed_and_comes_back(single: Any) -> None:
    """Two seconds after it answers again, tasks run again."""
    async with Load(namespace(single.url)) as load:
        await asyncio.to_thread(single.kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(single.run)
        assert await load.progress() < 2
        await load.judge()


# replies that get lost ---------------------------------------------------------------------------


@pytest.fixture
async def engine(three: Any) -> AsyncIterator[MongoEngine]:
    engine = MongoEngine(Link(namespace(three.url)))
    await engine.open()
    yield engine
    await engine.close()


Fail = Callable[..., Awaitable[None]]


@pytest.fixture
async def fail(engine: MongoEngine) -> AsyncIterator[Fail]:
    """Let the server fail the next commands of a name, as its own drivers are tested."""
    admin = engine._link.client.admin

    async def fail(command: str, times: int, **how: object) -> None:
        data = {"failCommands": [command], **how}
        await admin.command("configureFailPoint", "failCommand", mode={"times": times}, data=data)

    yield fail
    await admin.command("configureFailPoint", "failCommand", mode="off")


LOST: dict[str, dict[str, Any]] = {
    "never arrived": {"closeConnection": True},
    "was done, but the answer is that nobody knows": {
        "writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}
    },
    "met a primary that steps down": {"errorCode": 189},
}


@pytest.mark.parametrize("how", LOST)
async def test_a_commit_without_an_answer_is_one_commit(
    engine: MongoEngine, fail: Fail, how: str
) -> None:
    task = NewTask(id=new_id(), type="work")
    await fail("commitTransaction", 3, **LOST[how])
    [receipt] = await engine.enqueue([task])
    assert (receipt.id, receipt.existing) == (task.id, False)
    await fail("commitTransaction", 3, **LOST[how])
    info = WorkerInfo(host="here", pid=1)
    wants = (Want("default", "primary", 9),)
    turn = Turn(token=new_fence(), worker="w", room=9, wants=wants, info=info)
    [lease] = (await engine.exchange(turn)).leases
    assert lease.number == 1
    await fail("commitTransaction", 3, **LOST[how])
    ended = Outcome(id=lease.id, fence=lease.fence, state="completed", result=b"1")
    deal = await engine.exchange(Turn(token=new_fence(), worker="w", outcomes=(ended,)))
    assert deal.lost == ()
    events = (await engine.events(EventQuery(task_id=task.id))).items
    assert [event.kind for event in events] == ["state", "state", "done"]


@pytest.mark.parametrize("command", ["findAndModify", "find", "update", "insert"])
@pytest.mark.parametrize("how", [{"closeConnection": True}, {"errorCode": 112}, {"errorCode": 189}])
async def test_a_transaction_that_breaks_begins_again(
    engine: MongoEngine, fail: Fail, command: str, how: dict[str, object]
) -> None:
    one, two = NewTask(id=new_id(), type="work"), NewTask(id=new_id(), type="work")
    await engine.enqueue([one])
    await fail(command, 2, **how)
    await engine.enqueue([two])
    info = WorkerInfo(host="here", pid=1)
    wants = (Want("default", "primary", 9),)
    turn = Turn(token=new_fence(), worker="w", room=9, wants=wants, info=info)
    await fail(command, 2, **how)
    deal = await engine.exchange(turn)
    assert [(x.id, x.number) for x in deal.leases] == [(one.id, 1), (two.id, 1)]
    ended = [Outcome(id=x.id, fence=x.fence, state="completed", result=b"1") for x in deal.leases]
    turn = Turn(token=new_fence(), worker="w", room=9, wants=wants, outcomes=tuple(ended))
    await fail(command, 2, **how)
    deal = await engine.exchange(turn)
    assert (deal.lost, deal.leases) == ((), ())
    assert len((await engine.events(EventQuery())).items) == 6
