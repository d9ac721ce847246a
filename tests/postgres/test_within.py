"""Joining the caller's transaction, whichever driver it uses; and enqueuing from plain SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outlast.core.errors import BadInput
from outlast.core.ids import new_id
from outlast.core.model import NewTask, Outcome, TaskQuery
from outlast.engines.postgres.engine import PostgresEngine
from tests.postgres.test_server import turn

Joining = Callable[[str], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def with_asyncpg(url: str) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(url)
    try:
        async with conn.transaction():
            yield conn
    finally:
        await conn.close()


@asynccontextmanager
async def with_psycopg(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url) as conn:
        yield conn


@asynccontextmanager
async def with_async_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as conn:
        yield conn


def _dialect(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@asynccontextmanager
async def with_sqlalchemy_connection(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(_dialect(url, "asyncpg"))
    try:
        async with engine.begin() as conn:
            yield conn
    finally:
        await engine.dispose()


@asynccontextmanager
async def with_sqlalchemy_session(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(_dialect(url, "psycopg"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


@asynccontextmanager
async def with_sync_session(url: str) -> AsyncIterator[Any]:
    engine = create_engine(_dialect(url, "psycopg"))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@pytest.fixture(
    params=[
        with_asyncpg,
        with_psycopg,
        with_async_psycopg,
        with_sqlalchemy_connection,
        with_sqlalchemy_session,
        with_sync_session,
    ]
)
def joining(request: pytest.FixtureRequest) -> Joining:
    found: Joining = request.param
    return found


def task(**options: Any) -> NewTask:
    return NewTask(id=new_id(), type="work", payload=b'{"text": "\\u0000"}', **options)


async def there(engine: PostgresEngine) -> set[str]:
    return {task.id for task in (await engine.tasks(TaskQuery())).items}


async def test_it_commits_with_the_caller(
    engine: PostgresEngine, server: Any, joining: Joining
) -> None:
    a, b = task(limits=(("k", 2),), tags=("x",)), task(unique_key="once")
    async with joining(server.url) as conn:
        receipts = await engine.enqueue([a, b], within=conn)
        assert [receipt.id for receipt in receipts] == [a.id, b.id]
        with pytest.raises(BadInput, match="does not exist"):
            await engine.enqueue([task(after=(new_id(),))], within=conn)
        assert await there(engine) == set()
    assert await there(engine) == {a.id, b.id}
    assert (await engine.tasks(TaskQuery.of(id=a.id))).items[0].payload == a.payload


async def test_it_vanishes_with_the_caller(
    engine: PostgresEngine, server: Any, joining: Joining
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with joining(server.url) as conn:
            await engine.enqueue([task()], within=conn)
            _ = 1 / 0
    assert await there(engine) == set()


async def test_a_connection_without_a_transaction_is_refused(
    engine: PostgresEngine, server: Any
) -> None:
    conn = await asyncpg.connect(server.url)
    try:
        with pytest.raises(BadInput, match="transaction"):
            await engine.enqueue([task()], within=conn)
    finally:
        await conn.close()
    assert await there(engine) == set()


async def test_any_language_can_enqueue_by_a_function(engine: PostgresEngine) -> None:
    found = await engine._value(
        "select outlast.enqueue('report', '{\"month\": 7}', "
        '\'{"queue": "reports", "priority": 1, "tags": ["x"], "unique_key": "r7"}\')'
    )
    [told] = (await engine.tasks(TaskQuery.of(tag="x"))).items
    assert (str(found), told.type, told.queue, told.priority) == (told.id, "report", "reports", 1)
    assert told.payload == b'{"month": 7}'
    again = await engine._value(
        "select outlast.enqueue('report', '{}', '{\"unique_key\": \"r7\"}')"
    )
    assert again == found


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ('{"delay": "5m"}', "unknown: delay; known are id, queue"),
        ('{"limits": ["llm"]}', "limits are a list of keys with units"),
        ('{"limits": [["llm"]]}', "limits are a list of keys with units"),
        ('{"limits": [["llm", -1]]}', "limits are a list of keys with units"),
        ('{"limits": {"llm": 1}}', "limits are a list of keys with units"),
        ('{"lane": "express"}', "lane is primary or retry"),
        ('{"needs": "all"}', "needs is success or any"),
        ('{"priority": -1}', "priority is a number from 0"),
        ('{"priority": "high"}', "integer"),
        ('{"delay_ms": -5}', "delay_ms and run_at"),
        ('{"max_attempts": 0}', "max_attempts"),
        ('{"queue": ""}', "queue is a name"),
        ('{"after": "x"}', "after is a list"),
        ('{"id": "%(id)s", "after": ["%(id)s"]}', "cannot come after itself"),
        ("[]", "options are an object"),
        ("null", "options are an object"),
    ],
)
async def test_what_no_worker_could_run_is_refused_by_the_function(
    engine: PostgresEngine, options: str, why: str
) -> None:
    if "%(id)s" in options:
        options %= {"id": new_id()}
    with pytest.raises(BadInput, match=why):
        await engine._value("select outlast.enqueue('report', '{}', $1::jsonb)", options)
    assert await there(engine) == set()


async def test_null_is_an_option_left_out(engine: PostgresEngine) -> None:
    options = '{"fair_key": null, "after": null, "limits": [["llm", 0]], "queue": null}'
    await engine._value("select outlast.enqueue('report', '{}', $1::jsonb)", options)
    [told] = (await engine.tasks(TaskQuery())).items
    assert (told.queue, told.parked, told.limits) == ("default", None, (("llm", 0),))


@pytest.mark.parametrize("arguments", ["null, '{}'", "'', '{}'", "'report', null"])
async def test_a_task_without_type_or_payload_is_refused_by_the_function(
    engine: PostgresEngine, arguments: str
) -> None:
    with pytest.raises(BadInput, match="a task needs a"):
        await engine._value(f"select outlast.enqueue({arguments})")
    assert await there(engine) == set()


async def test_workers_hear_of_it_when_the_caller_commits(
    url: str, server: Any, opened: Any
) -> None:
    here, there = await opened(url), await opened(url)
    async with there.watch(["queue:reports"]) as watch, with_asyncpg(server.url) as conn:
        await here.enqueue([task(queue="reports")], within=conn)
        assert not await watch.wait(0.05)
        await conn.execute("commit; begin")
        assert await watch.wait(30)
        await here._value("select outlast.enqueue('report', '{}', '{\"queue\": \"reports\"}')")
        assert await watch.wait(30)


async def test_a_slow_caller_holds_up_nobody(url: str, server: Any, opened: Any) -> None:
    engine = await opened(url)
    async with with_asyncpg(server.url) as slow:
        await engine.enqueue([task()], within=slow)
        async with with_asyncpg(server.url) as quick, asyncio.timeout(30):
            await engine.enqueue([task()], within=quick)
            await quick.execute("commit; begin")


async def test_who_asks_for_a_key_that_is_taken_holds_up_nobody_who_has_it(
    url: str, server: Any, opened: Any
) -> None:
    engine = await opened(url)
    await engine.enqueue([first := task(unique_key="once")])
    [lease] = (await turn(engine, "w", 1)).leases
    async with with_asyncpg(server.url) as slow:
        [receipt] = await engine.enqueue([task(unique_key="once")], within=slow)
        assert (receipt.id, receipt.existing) == (first.id, True)
        async with asyncio.timeout(10):
            deal = await turn(
                engine, "w", 1, Outcome(id=lease.id, fence=lease.fence, state="completed")
            )
        assert not deal.lost
    [receipt] = await engine.enqueue([task(unique_key="once")])
    assert not receipt.existing
