"""What only this engine has to bear: scripts that vanish, servers that die, memory that ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as redis

from outlast.core.errors import BadInput, EngineDown, EngineFull, UnknownEngine, Unsupported
from outlast.core.ids import new_fence, new_id
from outlast.core.model import (
    EventQuery,
    Forget,
    NewEvent,
    NewTask,
    Outcome,
    Put,
    Signal,
    Step,
    TaskQuery,
    Turn,
    Want,
    WorkerInfo,
)
from outlast.engines.redis.engine import RedisEngine, connect

INFO = WorkerInfo(host="test", pid=1)
WANTS = (Want("default", "primary", 100),)
ACL = Path(__file__).parent.parent.parent / "docs" / "engines" / "redis.acl"


def task(**options: Any) -> NewTask:
    return NewTask(id=new_id(), type="work", **options)


def turn(**fields: Any) -> Turn:
    return Turn(token=new_fence(), worker="w", info=INFO, wants=WANTS, **fields)


def client_of(engine: RedisEngine) -> redis.Redis:
    return redis.Redis.from_url(engine._url)


# the layout --------------------------------------------------------------------------------------


async def test_every_key_lies_in_the_slot_of_the_namespace(engine: RedisEngine) -> None:
    """And when all tasks are forgotten, nothing of them is left."""
    tasks = [
        task(session_id="s", user_id="u", workflow_id="w", tags=("t",), attrs=(("a", "b"),),
             limits=(("k:1", 1),), unique_key="one", fair_key="f", max_age_ms=9,
             overdue_after_ms=9),
        task(delay_ms=1000),
        task(hold="go"),
    ]  # fmt: skip
    tasks.append(task(after=(tasks[0].id,)))
    await engine.enqueue(tasks)
    [lease] = (await engine.exchange(turn(room=9))).leases
    report = Outcome(id=lease.id, fence=lease.fence, steps=(Step("s", b"1"),))
    await engine.exchange(turn(outcomes=(report,)))
    await engine.alter([tasks[2].id], Signal("noise"))
    await engine.put([Put(kind="note", key="n", value=b"1", ttl_ms=1000)])
    end = Outcome(id=lease.id, fence=lease.fence, state="completed")
    await engine.exchange(turn(outcomes=(end,)))
    client = client_of(engine)
    keys = {key.decode() async for key in client.scan_iter("*") if key.startswith(b"{test-every")}
    assert len(keys) > 20
    assert {key.partition("}:")[0] + "}:" for key in keys} == {engine._prefix}
    await engine.exchange(turn(leaving=True))
    await engine.alter([t.id for t in tasks], Forget())
    engine.skew_ms += 10_000
    await engine.sweep()
    left = [k.decode() async for k in client.scan_iter(f"{engine._prefix}*")]
    answers = {key for key in left if key.startswith(f"{engine._prefix}call:")}
    assert len(answers) == 1
    assert 0 < await client.pttl(answers.copy().pop()) <= 60_000
    await client.aclose()
    assert {key.removeprefix(engine._prefix) for key in set(left) - answers} <= {
        "meta", "seq", "log", "kinds", "fairs", "fair:primary:default",
    }  # fmt: skip


async def test_a_fence_keeps_all_its_bits(engine: RedisEngine) -> None:
    """Lua counts in doubles: 2**62 and 2**62 + 1 are one number there."""
    await engine.enqueue([task()])
    token = 2**62 + 1
    given = Turn(token=token, worker="w", info=INFO, wants=WANTS, room=1)
    [lease] = (await engine.exchange(given)).leases
    assert lease.fence == token
    stale = Outcome(id=lease.id, fence=2**62, state="completed")
    assert (await engine.exchange(turn(outcomes=(stale,)))).lost == ((lease.id, 2**62),)
    right = Outcome(id=lease.id, fence=token, state="completed")
    assert (await engine.exchange(turn(outcomes=(right,)))).lost == ()


async def test_counts_come_from_counters_and_agree_with_the_tasks(engine: RedisEngine) -> None:
    await engine.enqueue([task() for _ in range(7)] + [task(delay_ms=9_000) for _ in range(3)])
    leases = (await engine.exchange(turn(room=4))).leases
    outcomes = [
        Outcome(id=leases[0].id, fence=leases[0].fence, state="completed"),
        Outcome(id=leases[1].id, fence=leases[1].fence, state="dead", verdict="failed"),
        Outcome(id=leases[2].id, fence=leases[2].fence, state="pending", verdict="failed",
                lane="retry", delay_ms=500),
    ]  # fmt: skip
    await engine.exchange(turn(outcomes=tuple(outcomes)))
    counted = {c.by[0]: c.n for c in await engine.count(TaskQuery(), ["status"])}
    page = await engine.tasks(TaskQuery(limit=100))
    seen: dict[str, int] = {}
    for found in page.items:
        seen[found.status] = seen.get(found.status, 0) + 1
    assert counted == seen == {
        "ready": 3, "scheduled": 3, "running": 1, "completed": 1, "dead": 1, "retrying": 1,
    }  # fmt: skip


async def test_all_that_runs_is_found_page_by_page(engine: RedisEngine) -> None:
    tasks = [task(limits=(("k", 1),) if n % 2 else ()) for n in range(1_100)]
    await engine.enqueue(tasks)
    wants = (Want("default", "primary", 2_000),)
    token = new_fence()
    await engine.exchange(Turn(token=token, worker="w", info=INFO, wants=wants, room=2_000))
    for query in ({"status": "running"}, {"worker": "w"}):
        found, cursor = [], None
        while True:
            page = await engine.tasks(TaskQuery.of(**query, limit=300, cursor=cursor))
            found += [t.id for t in page.items]
            cursor = page.next
            if cursor is None:
                break
        assert found == [t.id for t in reversed(tasks)]


async def test_a_task_with_more_events_than_its_record_holds(engine: RedisEngine) -> None:
    await engine.enqueue([task()])
    [lease] = (await engine.exchange(turn(room=1))).leases
    chunks = [NewEvent(kind="chunk", data=str(n).encode()) for n in range(1_200)]
    for start in range(0, 1_200, 100):
        events = tuple(chunks[start : start + 100])
        await engine.exchange(
            turn(outcomes=(Outcome(id=lease.id, fence=lease.fence, events=events),))
        )
    told, after = [], None
    while (page := await engine.events(EventQuery(task_id=lease.id, after=after, limit=70))).items:
        told += [event.data for event in page.items if event.kind == "chunk"]
        after = page.next
    assert told == [event.data for event in chunks]


async def test_there_is_no_transaction_to_join(engine: RedisEngine) -> None:
    with pytest.raises(Unsupported, match="PostgreSQL"):
        engine.transaction()
    with pytest.raises(Unsupported):
        await engine.enqueue([task()], within=object())


# scripts and servers that go ---------------------------------------------------------------------


async def test_flushed_scripts_are_loaded_again(engine: RedisEngine) -> None:
    await engine.enqueue([task()])
    client = client_of(engine)
    await client.script_flush()
    await client.aclose()
    await engine.enqueue([task()])
    assert len((await engine.exchange(turn(room=9))).leases) == 2


async def back(engine: RedisEngine) -> None:
    """Until the server answers again."""
    async with asyncio.timeout(20):
        while True:
            try:
                await engine.now()
                return
            except EngineDown:
                await asyncio.sleep(0.02)


async def test_what_was_acknowledged_survives_a_killed_server(
    make_server: Callable[..., Any],
) -> None:
    server = make_server(fsync="always")
    engine = connect(server.url)
    assert isinstance(engine, RedisEngine)
    await engine.open()
    assert engine.durability == "fsync"
    acknowledged: list[str] = []
    enough = asyncio.Event()

    async def produce() -> None:
        while True:
            new = task()
            try:
                await engine.enqueue([new])
            except EngineDown:
                return
            acknowledged.append(new.id)
            if len(acknowledged) == 50:
                enough.set()

    producers = [asyncio.create_task(produce()) for _ in range(5)]
    await enough.wait()
    server.kill()
    await asyncio.gather(*producers)
    with pytest.raises(EngineDown, match="cannot be reached"):
        await engine.enqueue([task()])
    server.run()
    await back(engine)
    query = TaskQuery.of(id=tuple(acknowledged), limit=100_000)
    assert len((await engine.tasks(query)).items) == len(acknowledged)
    leases = (await engine.exchange(turn(room=10))).leases
    assert len(leases) == 10
    await engine.close()


async def test_nobody_goes_deaf_when_the_server_was_away(make_server: Callable[..., Any]) -> None:
    server = make_server()
    engine = connect(server.url)
    assert isinstance(engine, RedisEngine)
    await engine.open()
    async with engine.watch(["queue:default"]) as watch:
        server.kill()
        server.run()
        await back(engine)
        assert await watch.wait(30), "rung once the subscription is back: who knows what was said"
        while await watch.wait(0):
            pass
        await engine.enqueue([task()])
        assert await watch.wait(30)
    await engine.close()


async def test_a_turn_whose_reply_was_lost_goes_again(engine: RedisEngine) -> None:
    """All connections break between the turns; the caller repeats, by token."""
    await engine.enqueue([task(), task()])
    first = turn(room=2)
    given = (await engine.exchange(first)).leases
    client = client_of(engine)
    await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await client.aclose()
    assert {x.id for x in (await engine.exchange(first)).leases} == {x.id for x in given}


async def test_an_enqueue_whose_reply_was_lost_has_made_new_tasks(engine: RedisEngine) -> None:
    """The connection breaks behind the script: sent again, it answers what it had answered."""
    assert engine._link is not None
    send, lost = engine._link._send, []

    async def losing(command: Any) -> Any:
        answer = await send(command)
        if not lost:
            lost.append(answer)
            raise redis.ConnectionError("the reply is lost")
        return answer

    known = task()
    await engine.enqueue([known])
    engine._link._send = losing  # type: ignore[method-assign]
    receipts = await engine.enqueue([known, task()])
    assert lost
    assert [receipt.existing for receipt in receipts] == [True, False]
    assert len((await engine.tasks(TaskQuery())).items) == 2


async def test_who_enqueues_nonsense_spoils_it_for_nobody_else(engine: RedisEngine) -> None:
    """Callers of the same moment travel together."""
    await engine.enqueue([task()])
    good, bad, late = task(), task(payload=b'"\xff"'), task(session_id="a\x1fb")
    first, nonsense, name, last = await asyncio.gather(
        engine.enqueue([good]),
        engine.enqueue([task(), bad]),
        engine.enqueue([late]),
        engine.enqueue([task()]),
        return_exceptions=True,
    )
    assert isinstance(nonsense, BadInput)
    assert "UTF-8" in str(nonsense)
    assert isinstance(name, BadInput)
    assert "session_id" in str(name)
    assert [r.existing for r in (*first, *last)] == [False, False]  # type: ignore[misc]
    assert len((await engine.tasks(TaskQuery())).items) == 3


async def test_repeated_turns_do_not_push_out_those_that_are_remembered(
    engine: RedisEngine,
) -> None:
    await engine.enqueue([task() for _ in range(4)])
    first, second = turn(room=1), turn(room=1)
    given = (await engine.exchange(first)).leases
    for _ in range(10):
        assert len((await engine.exchange(second)).leases) == 1
    assert (await engine.exchange(first)).leases == given


# settings ----------------------------------------------------------------------------------------


async def test_durability_is_what_the_server_does(make_server: Callable[..., Any]) -> None:
    for options, durability in (
        ({"fsync": "everysec"}, "memory"),
        ({"fsync": "always"}, "fsync"),
        ({"fsync": "always", "settings": ("--appendonly", "no")}, "memory"),
        # It does not wait for the disk while it rewrites its file or takes a snapshot.
        ({"fsync": "always", "settings": ("--no-appendfsync-on-rewrite", "yes")}, "memory"),
    ):
        engine = connect(make_server(**options).url)
        await engine.open()
        assert engine.durability == durability
        await engine.close()


async def test_durability_is_asked_again_after_every_break(
    make_server: Callable[..., Any],
) -> None:
    """It may be another server by now, or another setting."""
    server = make_server(fsync="always")
    engine = connect(server.url)
    await engine.open()
    assert engine.durability == "fsync"
    server.kill()
    with pytest.raises(EngineDown):
        await engine.enqueue([task()])
    assert engine.durability == "memory", "nobody is there who promises anything"
    server.run()
    await back(engine)
    assert engine.durability == "fsync"
    async with redis.Redis.from_url(server.url) as client:
        await client.config_set("appendfsync", "everysec")
        await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await engine.enqueue([task()])
    assert engine.durability == "memory"
    await engine.close()


async def test_a_server_that_evicts_is_refused(make_server: Callable[..., Any]) -> None:
    policy = ("--maxmemory-policy", "allkeys-lru")
    engine = connect(make_server(settings=(*policy, "--maxmemory", "100mb")).url)
    with pytest.raises(EngineDown, match="noeviction"):
        await engine.open()
    engine = connect(make_server(settings=policy).url)
    with pytest.warns(UserWarning, match="noeviction"):
        await engine.open()
    await engine.close()


async def test_full_memory_refuses_new_work_and_lets_the_old_end(
    make_server: Callable[..., Any],
) -> None:
    engine = connect(make_server(settings=("--maxmemory", "8mb")).url)
    await engine.open()
    payload = b'"' + b"x" * 100_000 + b'"'
    await engine.enqueue([task()])
    with pytest.raises(EngineFull, match="maxmemory"):
        for _ in range(200):
            await engine.enqueue([task(payload=payload)])
    [lease] = (await engine.exchange(turn(room=1))).leases
    end = Outcome(id=lease.id, fence=lease.fence, state="completed")
    assert (await engine.exchange(turn(outcomes=(end,)))).lost == ()
    ids = [t.id for t in (await engine.tasks(TaskQuery(limit=200))).items]
    await engine.alter(ids, Forget())
    await engine.enqueue([task()])
    await engine.close()


async def test_errors_name_the_cure(make_server: Callable[..., Any]) -> None:
    server = make_server(settings=("--requirepass", "secret"))
    for url in (server.url, server.url.replace("//", "//:wrong@")):
        with pytest.raises(EngineDown, match="password"):
            await connect(url).open()
    engine = connect(server.url.replace("//", "//:secret@"))
    await engine.open()
    await engine.close()
    with pytest.raises(EngineDown, match="cannot be reached"):
        await connect("redis://127.0.0.1:1").open()
    with pytest.raises(UnknownEngine, match="namespace"):
        connect("redis://localhost?namespace={x}")
    with pytest.raises(UnknownEngine, match="wrong"):
        await connect("redis://localhost?colour=red").open()


async def test_what_a_server_may_not_do_now_is_said_with_the_cure(
    make_server: Callable[..., Any],
) -> None:
    server = make_server(settings=("--busy-reply-threshold", "50"))
    engine = connect(server.url)
    await engine.open()
    async with redis.Redis.from_url(server.url) as client:
        await client.config_set("min-replicas-to-write", 1)
        with pytest.raises(EngineDown, match="min-replicas-to-write"):
            await engine.enqueue([task()])
        await client.config_set("min-replicas-to-write", 0)
        async with redis.Redis.from_url(server.url) as other:
            endless = asyncio.create_task(other.eval("while true do end", 0))
            with pytest.raises(EngineDown, match=r"busy with a script.*SCRIPT KILL"):
                while True:
                    await engine.enqueue([task()])
            await client.execute_command("SCRIPT", "KILL")
            with pytest.raises(redis.ResponseError):
                await endless
    await engine.enqueue([task()])
    await engine.close()


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost/jobs",
        "redis://localhost:6379/0/jobs",
        "redis+sentinel://h1,h2/mymaster/jobs",
        "redis+sentinel://h1,h2/mymaster/0/jobs",
    ],
)
def test_a_path_is_no_namespace(url: str) -> None:
    """The driver leaves out what is no number: two applications would share their tasks."""
    with pytest.raises(UnknownEngine, match="namespace=jobs"):
        connect(url)


def test_settings_without_a_value_are_refused() -> None:
    for name in ("namespace", "replicas"):
        with pytest.raises(UnknownEngine, match=name):
            connect(f"redis://localhost?{name}=")


async def test_a_server_that_is_no_redis_is_named_as_such() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    web = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = web.sockets[0].getsockname()[1]
    with pytest.raises(EngineDown, match=r"no Redis.*port.*rediss://"):
        await connect(f"redis://127.0.0.1:{port}").open()
    web.close()
    await web.wait_closed()


async def test_a_replica_is_named_as_such(make_server: Callable[..., Any]) -> None:
    primary = make_server()
    replica = make_server(settings=("--replicaof", "127.0.0.1", str(primary.port)))
    with pytest.raises(EngineDown, match=r"replica|loading"):
        await connect(replica.url).open()


async def test_the_user_of_the_docs_may_do_everything_and_no_more(
    make_server: Callable[..., Any],
) -> None:
    server = make_server(settings=("--aclfile", str(ACL)))
    engine = connect(server.url.replace("//", "//outlast:secret@"))
    assert isinstance(engine, RedisEngine)
    await engine.open()
    assert engine.durability == "memory", "it may not read the settings, and claims nothing"
    tasks = [task(limits=(("k", 1),), fair_key="f", unique_key="u"), task(delay_ms=5)]
    async with engine.watch(["queue:default"]) as watch:
        await engine.enqueue(tasks)
        assert await watch.wait(30)
    [lease] = (await engine.exchange(turn(room=1))).leases
    end = Outcome(id=lease.id, fence=lease.fence, state="completed", steps=(Step("s", b"1"),))
    await engine.exchange(turn(outcomes=(end,)))
    await engine.alter([tasks[1].id], Signal("x"))
    await engine.put([Put(kind="retention", key="completed", value=b'{"count":0}')])
    await engine.put([Put(kind="retention", key="log", value=b'{"age_ms":0}')])
    engine.skew_ms += 60_000
    assert (await engine.sweep()).forgotten == 1
    page = await engine.dump()
    while page.next is not None:
        page = await engine.dump(page.next)
    assert await engine.count(TaskQuery(), ["status"])
    assert await engine.gauges() == []
    client = client_of(engine)
    for command in (("GET", "other"), ("CONFIG", "GET", "*"), ("FLUSHALL",), ("KEYS", "*")):
        with pytest.raises(redis.ResponseError):
            await client.execute_command(*command)
    await client.aclose()
    await engine.close()


async def test_a_retention_that_is_met_forgets_nothing(engine: RedisEngine) -> None:
    """In particular not everything: 0 to -1 is a whole sorted set."""
    await engine.enqueue([task(), task()])
    outcomes = [
        Outcome(id=lease.id, fence=lease.fence, state="completed")
        for lease in (await engine.exchange(turn(room=2))).leases
    ]
    await engine.exchange(turn(outcomes=tuple(outcomes)))
    for rule in (b'{"count":2}', b'{"count":9}', b'{"age_ms":60000}', b'{"bytes":1000}'):
        await engine.put([Put(kind="retention", key="completed", value=rule)])
        assert (await engine.sweep()).forgotten == 0
    await engine.put([Put(kind="retention", key="completed", value=b'{"count":1}')])
    assert (await engine.sweep()).forgotten == 1
    assert (await engine.sweep()).forgotten == 0


# odd documents -----------------------------------------------------------------------------------


async def test_documents_that_are_none_stop_nobody(engine: RedisEngine) -> None:
    """A script that fails halfway would have half happened."""
    with pytest.raises(BadInput):
        await engine.put([Put(kind="limit", key="k", value=b"nonsense")])
    for kind, key in (("queue", "default"), ("retention", "completed"), ("retention", "log")):
        await engine.put([Put(kind=kind, key=key, value=b"nonsense")])
    await engine.enqueue([task(limits=(("k", 1),))])
    assert len((await engine.exchange(turn(room=1))).leases) == 1
    assert (await engine.sweep()).forgotten == 0


async def test_names_that_would_break_a_record_are_refused(engine: RedisEngine) -> None:
    for bad in ({"session_id": "a\x1fb"}, {"workflow_id": "\x1e"}, {"queue": "q\x1f"}):
        with pytest.raises(BadInput, match="0x1F"):
            await engine.enqueue([task(**bad)])
    with pytest.raises(BadInput):
        await engine.exchange(Turn(token=new_fence(), worker="w\x1f", info=INFO))
    strange = task(session_id="s \n\0 %d ü", workflow_id="w|", payload='"\u2028 \\u001f"'.encode())
    await engine.enqueue([strange])
    [lease] = (await engine.exchange(turn(room=1))).leases
    assert (lease.session_id, lease.payload) == (strange.session_id, strange.payload)
    end = Outcome(id=lease.id, fence=lease.fence, state="completed", result=b'"\\u001e"')
    await engine.exchange(turn(outcomes=(end,)))
    [found] = (await engine.tasks(TaskQuery.of(session_id=strange.session_id))).items
    assert (found.result, found.status) == (end.result, "completed")


async def test_a_lost_record_stops_nobody(engine: RedisEngine) -> None:
    """Somebody deleted a task by hand: its places still name it."""
    gone, late, ready = task(delay_ms=1), task(delay_ms=2), task()
    first = task(priority=0)
    await engine.enqueue([gone, late, ready, first])
    client = client_of(engine)
    await client.delete(*(f"{engine._prefix}task:{x.id}" for x in (gone, first)))
    await client.aclose()
    engine.skew_ms += 1_000
    given = (await engine.exchange(turn(room=9))).leases
    assert {lease.id for lease in given} == {late.id, ready.id}
    await engine.sweep()
