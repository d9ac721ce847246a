"""What only MongoDB has to bear: transactions that outlive their process, sessions, bad servers."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from outlast.core.errors import BadInput, EngineDown, UnknownEngine
from outlast.core.ids import new_fence, new_id
from outlast.core.model import EventQuery, NewTask, Put, TaskQuery, Term, Turn, Want, WorkerInfo
from outlast.engine import connect
from outlast.engines.mongo import schema, wake
from outlast.engines.mongo.db import Link
from outlast.engines.mongo.engine import MongoEngine

from .conftest import servers

INFO = WorkerInfo(host="here", pid=os.getpid())


def task(**fields: object) -> NewTask:
    return NewTask(id=new_id(), type="work", **fields)  # type: ignore[arg-type]


async def turns(engine: MongoEngine) -> int:
    state = await engine._link.db.meta.find_one({"_id": "log"})
    assert state is not None
    return int(state["turn"])


async def test_concurrent_enqueues_share_transactions(engine: MongoEngine) -> None:
    before = await turns(engine)
    await asyncio.gather(*(engine.enqueue([task()]) for _ in range(200)))
    assert 1 <= await turns(engine) - before <= 5
    assert len((await engine.tasks(TaskQuery(limit=500))).items) == 200


async def test_a_bad_enqueue_takes_nobody_along(engine: MongoEngine) -> None:
    good, bad, also = task(), task(after=(new_id(),)), task()
    answers = await asyncio.gather(
        *(engine.enqueue([one]) for one in (good, bad, also)), return_exceptions=True
    )
    assert isinstance(answers[1], BadInput)
    assert {t.id for t in (await engine.tasks(TaskQuery())).items} == {good.id, also.id}


async def test_the_transaction_of_a_killed_process_is_ended(engine: MongoEngine, url: str) -> None:
    """The server itself would keep it for 60 s, and with it everybody else."""
    script = Path(__file__).parent / "stuck.py"
    process = await asyncio.create_subprocess_exec(sys.executable, str(script), url)
    assert await process.wait() < 0
    since = time.monotonic()
    mine = task()
    await engine.enqueue([mine])
    assert time.monotonic() - since < 30
    assert [t.id for t in (await engine.tasks(TaskQuery())).items] == [mine.id]


async def test_a_session_of_the_callers_own_client(engine: MongoEngine, url: str) -> None:
    """Its own documents and the task, together or not at all."""
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        orders = client.get_default_database()["orders"]
        await orders.insert_one({"_id": 0})
        kept, lost = task(), task()

        async def order(session: Any) -> None:
            await orders.insert_one({"_id": 1}, session=session)
            await engine.enqueue([kept], within=session)

        async with client.start_session() as session:
            await session.with_transaction(order)
            with pytest.raises(ZeroDivisionError):
                async with await session.start_transaction():
                    await orders.insert_one({"_id": 2}, session=session)
                    await engine.enqueue([lost], within=session)
                    _ = 1 / 0
            with pytest.raises(BadInput, match="in a transaction"):
                await engine.enqueue([lost], within=session)
        assert await orders.distinct("_id") == [0, 1]
        await orders.drop()
    assert [t.id for t in (await engine.tasks(TaskQuery())).items] == [kept.id]


async def test_another_engine_is_woken(engine: MongoEngine, url: str) -> None:
    other = MongoEngine(Link(url))
    await other.open()
    async with other.watch({"queue:default"}) as watch:
        while await watch.wait(0.05):
            pass
        await engine.enqueue([task()])
        assert await watch.wait(30)
    async with other.watch({"task:" + new_id()}) as watch:
        await engine.enqueue([task() for _ in range(200)])  # too many to name each
        assert await watch.wait(30)
    await other.close()


@pytest.mark.usefixtures("unreachable")
async def test_a_quiet_time_wakes_nobody(
    engine: MongoEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake, "AWAIT_MS", 10)
    async with engine.watch(["queue:default"]) as watch:
        assert not await watch.wait(2 * wake.RETRY_S)


async def test_what_was_said_while_nobody_followed_is_heard_of(
    engine: MongoEngine, url: str
) -> None:
    other = MongoEngine(Link(url))
    await other.open()
    try:
        async with engine.watch(["queue:default"]) as watch:
            database = engine._link.db
            stages = [
                {"$currentOp": {"idleCursors": True}},
                {"$match": {"ns": f"{database.name}.hint", "cursor": {"$exists": True}}},
            ]
            found = []
            while not found:
                found = await (await database.client.admin.aggregate(stages)).to_list()
            [cursor] = {op["cursor"]["cursorId"] for op in found}
            while await watch.wait(0.05):
                pass
            await database.command("killCursors", "hint", cursors=[cursor])
            assert await watch.wait(30)  # who was deaf is told to look
            await other.enqueue([task()])
            assert await watch.wait(wake.AWAIT_MS / 1000)
    finally:
        await other.close()


async def test_the_server_is_killed_and_comes_back() -> None:
    """Acknowledged is in the journal, and nobody has to be started again."""
    server = servers.Server()
    server.run()
    engine = MongoEngine(Link(server.url + "&serverSelectionTimeoutMS=500"))
    try:
        await engine.open()
        one, two = task(), task()
        await engine.enqueue([one])
        server.kill()
        with pytest.raises(EngineDown, match=r"MongoDB at 127\.0\.0\.1"):
            await engine.enqueue([two])
        server.run()
        since = time.monotonic()
        async with asyncio.timeout(20):
            while True:
                try:
                    await engine.enqueue([two])
                    break
                except EngineDown:
                    assert time.monotonic() - since < 30
        turn = Turn(
            token=new_fence(), worker="w", room=9, wants=(Want("default", "primary", 9),), info=INFO
        )
        assert [x.id for x in (await engine.exchange(turn)).leases] == [one.id, two.id]
    finally:
        await engine.close()
        server.stop()


async def test_a_server_that_is_no_replica_set_is_refused() -> None:
    server = servers.Server(alone=True)
    server.run()
    try:
        with pytest.raises(EngineDown, match=r"not a replica set.*--replSet rs0"):
            await connect(server.url).open()
    finally:
        server.stop()


@pytest.mark.usefixtures("unreachable")
async def test_a_server_that_is_not_there_is_named() -> None:
    url = "mongodb://127.0.0.1:1/?replicaSet=rs0&serverSelectionTimeoutMS=200"
    with pytest.raises(EngineDown, match=r"127\.0\.0\.1:1 cannot be reached"):
        await connect(url).open()


@pytest.mark.usefixtures("unreachable")
async def test_another_replica_set_is_named(address: str) -> None:
    url = address.replace("rs0", "other") + "&serverSelectionTimeoutMS=200"
    with pytest.raises(EngineDown, match="replicaSet="):
        await connect(url).open()


@pytest.mark.parametrize(
    "url", ["mongodb://", "mongodb://a:b:c/", "mongodb://h/a b?x", "mongodb:/x"]
)
def test_a_bad_url_teaches(url: str) -> None:
    with pytest.raises(UnknownEngine):
        connect(url)


def test_a_password_is_never_shown() -> None:
    with pytest.raises(UnknownEngine) as refused:
        connect("mongodb://user:secret@h:port/")
    assert "secret" not in str(refused.value)


def test_the_path_is_the_database() -> None:
    assert Link("mongodb://h/").name == "outlast"
    assert Link("mongodb://h/jobs?replicaSet=rs0").name == "jobs"


async def test_a_newer_schema_is_refused(engine: MongoEngine, url: str) -> None:
    assert await engine.migrate() == schema.SCHEMA_VERSION
    await engine._link.db.meta.update_one({"_id": "log"}, {"$set": {"schema": 99}})
    with pytest.raises(EngineDown, match="upgrade outlast"):
        await connect(url).open()
    await engine._link.db.meta.update_one({"_id": "log"}, {"$set": {"schema": 1}})


async def test_many_open_a_new_database_at_once(address: str) -> None:
    url = address.replace("/?", f"/n{new_id().replace('-', '')}?")
    engines = [MongoEngine(Link(url)) for _ in range(4)]
    await asyncio.gather(*(engine.open() for engine in engines))
    await asyncio.gather(*(engine.enqueue([task()]) for engine in engines))
    assert len((await engines[0].tasks(TaskQuery())).items) == 4
    await engines[0]._link.client.drop_database(engines[0]._link.name)
    for engine in engines:
        await engine.close()


@pytest.mark.parametrize("odd", ["$where", "$gt", '{"$ne": 1}', "a.b", "a\0b", "$$NOW", "$_id"])
async def test_no_value_is_an_operator(engine: MongoEngine, odd: str) -> None:
    one = task(
        queue=odd, unique_key=odd, session_id=odd, user_id=odd, workflow_id=odd, tags=(odd,),
        attrs=((odd, odd),), fair_key=odd, limits=((odd, 1),), payload=odd.encode(), digest=odd,
    )  # fmt: skip
    other = task()
    await engine.enqueue([one, other])
    assert (await engine.enqueue([task(unique_key=odd)]))[0].id == one.id
    for term in ("queue", "unique_key", "session_id", "user_id", "workflow_id", "tag", "limit"):
        found = await engine.tasks(TaskQuery(terms=(Term(term, (odd,)),)))
        assert [t.id for t in found.items] == [one.id], term
    assert len((await engine.events(EventQuery(session_id=odd))).items) == 1
    [record] = await engine.put([Put(kind=odd, key=odd, value=odd.encode())])
    assert await engine.get(odd, [odd]) == [record]
    turn = Turn(token=new_fence(), worker=odd, room=9, wants=(Want(odd, "primary", 9),), info=INFO)
    [lease] = (await engine.exchange(turn)).leases
    assert (lease.id, lease.payload) == (one.id, odd.encode())
    assert [w.id for w in await engine.workers()] == [odd]


async def test_a_closed_engine_says_so(engine: MongoEngine) -> None:
    await engine.close()
    with pytest.raises(EngineDown, match="not open"):
        await engine.enqueue([task()])
    with pytest.raises(EngineDown, match="not open"):
        await engine.tasks(TaskQuery())


def test_an_engine_may_be_opened_again_in_another_loop(url: str) -> None:
    engine = MongoEngine(Link(url))

    async def live() -> bool:
        await engine.open()
        async with engine.watch({"queue:default"}) as watch:
            waiting = asyncio.create_task(watch.wait(5))
            await engine.enqueue([task()])
            hinted = await waiting
        await engine.close()
        return hinted

    assert asyncio.run(live())
    assert asyncio.run(live())


async def test_durability_is_a_majority_of_journals(engine: MongoEngine) -> None:
    assert engine.durability == "replicated"
    concern = engine._link.db.write_concern.document
    assert concern == {"w": "majority", "j": True}


async def test_a_page_of_events_is_no_older_than_the_counter_it_was_begun_with(
    engine: MongoEngine,
) -> None:
    """A primary that was elected between the two reads may not know yet what is on a majority: the
    page would end behind events that it does not have."""
    db = engine._link.db
    await engine.enqueue([task()])
    await db.command("profile", 2)
    page = await engine.events(EventQuery())
    await db.command("profile", 0)
    reads = {
        found["ns"].rpartition(".")[2]: found["command"]["readConcern"]
        async for found in db["system.profile"].find({"op": "query"}, sort=[("ts", -1)])
    }
    assert len(page.items) == 1
    assert "afterClusterTime" not in reads["meta"]
    assert "afterClusterTime" in reads["event"]
