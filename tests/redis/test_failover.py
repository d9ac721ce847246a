"""A primary, its replica and a sentinel: workers go on at the new primary, and what was promised
to be on the replica is there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as redis
from tests.servers import orphans

from outlast.app import Outlast
from outlast.core.errors import EngineDown, UnknownEngine
from outlast.core.ids import new_fence, new_id
from outlast.core.model import NewTask, Outcome, TaskQuery, Turn, Want, WorkerInfo
from outlast.engines.redis.engine import RedisEngine, connect
from outlast.engines.redis.link import Unconfirmed
from outlast.worker import Worker

DOWN_AFTER_MS = 500
PATIENCE_S = 40


class Sentinel:
    """One that watches the primary at a port."""

    def __init__(self, make_server: Callable[..., Any], primary: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="outlast-sentinel-")
        shape = make_server()  # its port and its binary are the sentinel's
        self.port = shape.port
        shape.kill()
        config = Path(self._folder.name) / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self._folder.name}\n"
            f"sentinel monitor shop 127.0.0.1 {primary} 1\n"
            f"sentinel down-after-milliseconds shop {DOWN_AFTER_MS}\n"
            "sentinel failover-timeout shop 4000\n"
        )
        command = [shape.command[0], str(config), "--sentinel", "--loglevel", "warning"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603
        orphans.started(self._process.pid, self._folder.name)

    async def ask(self, *command: str) -> Any:
        async with redis.Redis(port=self.port) as client:
            return await client.execute_command(*command)

    async def named(self) -> int:
        """The port of the primary, once it answers."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(redis.ConnectionError):
                    found = await self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop")
                    return int(found[1])
                await asyncio.sleep(0.05)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        orphans.ended(self._process.pid)
        self._folder.cleanup()


class Group:
    """Two servers and the sentinel that watches them."""

    def __init__(self, make_server: Callable[..., Any]) -> None:
        self.primary = make_server()
        self.replica = make_server(settings=("--replicaof", "127.0.0.1", str(self.primary.port)))
        self._sentinel = Sentinel(make_server, self.primary.port)
        self.ask, self.named = self._sentinel.ask, self._sentinel.named
        self.url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{self._sentinel.port}/shop"

    async def settled(self) -> None:
        """Until the sentinel knows the replica, and the replica has all that the primary has."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if (await self.ask("SENTINEL", "REPLICAS", "shop")) and await self._linked():
                        return
                except (redis.RedisError, OSError):
                    pass
                await asyncio.sleep(0.05)

    async def _linked(self) -> bool:
        async with redis.Redis.from_url(self.replica.url) as client:
            return (await client.info("replication")).get("master_link_status") == "up"

    async def moved(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await self.named() == self.replica.port:
                    return
                await asyncio.sleep(0.05)

    async def demoted(self) -> None:
        """Until the old primary has heard of it, too."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(redis.RedisError, OSError):
                    async with redis.Redis.from_url(self.primary.url) as client:
                        if (await client.info("replication"))["role"] != "master":
                            return
                await asyncio.sleep(0.05)

    def stop(self) -> None:
        self._sentinel.stop()


@pytest.fixture
async def group(make_server: Callable[..., Any]) -> AsyncIterator[Group]:
    made = Group(make_server)
    try:
        await made.settled()
        yield made
    finally:
        made.stop()


def task() -> NewTask:
    return NewTask(id=new_id(), type="work")


async def produced(engine: RedisEngine, n: int) -> list[str]:
    """That many acknowledged tasks, however often they have to be sent."""
    ids: list[str] = []
    give_up = time.monotonic() + PATIENCE_S
    while len(ids) < n:
        new = task()
        while True:
            try:
                await engine.enqueue([new])
                break
            except EngineDown:
                assert time.monotonic() < give_up
                await asyncio.sleep(0.02)
        ids.append(new.id)
    return ids


async def opened(url: str) -> RedisEngine:
    engine = connect(url)
    assert isinstance(engine, RedisEngine)
    await engine.open()
    return engine


@pytest.mark.parametrize("how", ["asked for", "killed"])
async def test_what_a_replica_has_confirmed_survives(group: Group, how: str) -> None:
    engine = await opened(f"{group.url}?replicas=1")
    assert engine.durability == "replicated"
    before = await produced(engine, 50)
    if how == "killed":
        group.primary.kill()
        with pytest.raises(EngineDown):
            await engine.enqueue([task()])
    else:
        await group.ask("SENTINEL", "FAILOVER", "shop")
    await group.moved()
    if how == "killed":
        # Nobody is left who could confirm: it says so, instead of promising.
        with pytest.raises(EngineDown, match="0 of 1 replicas"):
            await produced_once(engine)
    else:
        before += await produced(engine, 50)
    await engine.close()
    reader = await opened(group.url)
    assert reader.durability == "memory"
    found = await reader.tasks(TaskQuery.of(id=tuple(before), limit=1000))
    assert {t.id for t in found.items} == set(before)
    await reader.close()


async def produced_once(engine: RedisEngine) -> None:
    """Past the moments in which nobody is the primary."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            await engine.enqueue([task()])
            return
        except EngineDown as error:
            if "replicas" in str(error) or time.monotonic() > give_up:
                raise
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("how", ["asked for", "killed"])
async def test_a_worker_goes_on_at_the_new_primary(group: Group, how: str) -> None:
    app = Outlast(group.url)

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    async with app:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await worker.ready.wait()
        assert await (await double.enqueue(1)).result(timeout="30s") == 2
        if how == "killed":
            group.primary.kill()
        else:
            await group.ask("SENTINEL", "FAILOVER", "shop")
        await group.moved()
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                handle = await double.enqueue(21)
                break
            except EngineDown:
                assert time.monotonic() < give_up
                await asyncio.sleep(0.05)
        assert await handle.result(timeout="30s") == 42
        worker.stop()
        await running


async def test_outcomes_are_confirmed_too(group: Group) -> None:
    engine = await opened(f"{group.url}?replicas=1")
    await engine.enqueue([task()])
    info, wants = WorkerInfo(host="test", pid=1), (Want("default", "primary", 1),)
    turn = Turn(token=new_fence(), worker="w", info=info, wants=wants, room=1)
    [lease] = (await engine.exchange(turn)).leases
    group.replica.kill()
    end = Outcome(id=lease.id, fence=lease.fence, state="completed")
    with pytest.raises(EngineDown, match="0 of 1 replicas"):
        await engine.exchange(Turn(token=new_fence(), worker="w", outcomes=(end,)))
    await engine.close()


async def test_what_is_repeated_is_confirmed_too(group: Group) -> None:
    """WAIT is about what its own connection has written: a repeated step that writes nothing, over
    another one, had the confirmation of everybody at once."""
    engine = await opened(f"{group.url}?replicas=1")
    await engine.enqueue([task()])
    info, wants = WorkerInfo(host="test", pid=1), (Want("default", "primary", 1),)
    turn = Turn(token=new_fence(), worker="w", info=info, wants=wants, room=1)
    [lease] = (await engine.exchange(turn)).leases
    repeating = await opened(f"{group.url}?replicas=1")
    os.kill(group.replica.pid, signal.SIGSTOP)
    end = Outcome(id=lease.id, fence=lease.fence, state="completed")
    last = Turn(token=new_fence(), worker="w", outcomes=(end,), leaving=True)
    with pytest.raises(EngineDown, match="0 of 1 replicas"):
        await engine.exchange(last)
    with pytest.raises(EngineDown, match="0 of 1 replicas"):
        await repeating.exchange(last)
    os.kill(group.replica.pid, signal.SIGCONT)
    assert not (await repeating.exchange(last)).lost
    await engine.close()
    await repeating.close()


async def test_an_enqueue_that_was_sent_again_is_confirmed_too(group: Group) -> None:
    engine = await opened(f"{group.url}?replicas=1")
    assert engine._link is not None
    link, send, lost = engine._link, engine._link._send_kept, []

    async def losing(command: Any) -> Any:
        if lost:
            return await send(command)
        lost.append(command)
        with suppress(Unconfirmed):
            await send(command)
        await link.client.connection_pool.disconnect()
        raise redis.ConnectionError("the connection broke meanwhile")

    link._send_kept = losing  # type: ignore[method-assign]
    os.kill(group.replica.pid, signal.SIGSTOP)
    with pytest.raises(EngineDown, match="0 of 1 replicas"):
        await engine.enqueue([task()])
    os.kill(group.replica.pid, signal.SIGCONT)
    await engine.close()


async def test_a_sentinel_that_has_missed_the_failover_leads_nobody_astray(
    group: Group, make_server: Callable[..., Any]
) -> None:
    """Cut off from the others it goes on naming the old primary."""
    group.primary.kill()
    await group.moved()
    stale = Sentinel(make_server, group.primary.port)
    try:
        assert await stale.named() == group.primary.port
        engine = await opened(f"redis+sentinel://127.0.0.1:{stale.port},{group.url[17:]}")
        await engine.enqueue([task()])
        await engine.close()
    finally:
        stale.stop()


async def test_durability_is_that_of_the_new_primary(group: Group) -> None:
    async with redis.Redis.from_url(group.primary.url) as client:
        await client.config_set("appendfsync", "always")
    engine = await opened(group.url)
    await engine.enqueue([task()])
    assert engine.durability == "fsync"
    await group.ask("SENTINEL", "FAILOVER", "shop")
    await group.demoted()
    await produced(engine, 1)
    assert engine.durability == "memory", "its file is written every second"
    await engine.close()


async def test_urls_of_sentinels_that_are_wrong() -> None:
    with pytest.raises(UnknownEngine, match="mymaster"):
        connect("redis+sentinel://h1,h2")
    with pytest.raises(UnknownEngine, match="replicas"):
        connect("redis://localhost?replicas=many")
    with pytest.raises(EngineDown, match="sentinel"):
        await connect("redis+sentinel://127.0.0.1:1/shop").open()
