"""A cluster: the engine finds the node that has the slot of its namespace."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import redis.asyncio as redis

from outlast.core.ids import new_id
from outlast.core.model import NewTask, TaskQuery
from outlast.engines.redis.engine import RedisEngine, connect


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def formed(nodes: list[Any], bus: int) -> None:
    """Half of the slots each, and both know it."""
    clients = [redis.Redis.from_url(node.url) for node in nodes]
    for client, slots in zip(clients, ((0, 8191), (8192, 16383)), strict=True):
        await client.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
    await clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, bus)
    async with asyncio.timeout(30):
        for client in clients:
            while True:
                if b"cluster_state:ok" in await client.execute_command("CLUSTER", "INFO"):
                    break
                await asyncio.sleep(0.05)
    for client in clients:
        await client.aclose()


async def test_namespaces_spread_over_the_nodes(make_server: Callable[..., Any]) -> None:
    buses = [free_port(), free_port()]
    settings = [("--cluster-enabled", "yes", "--cluster-port", str(bus)) for bus in buses]
    nodes = [make_server(settings=some) for some in settings]
    await formed(nodes, buses[1])
    lives_at = set()
    for n in range(6):
        engine = connect(f"{nodes[0].url}?namespace=n{n}")
        assert isinstance(engine, RedisEngine)
        await engine.open()
        async with engine.watch(["queue:default"]) as watch:
            await engine.enqueue([NewTask(id=new_id(), type="work")])
            assert await watch.wait(20)
        assert len((await engine.tasks(TaskQuery())).items) == 1
        assert engine._link is not None
        lives_at.add(engine._link.client.connection_pool.connection_kwargs["port"])
        await engine.close()
    assert lives_at == {node.port for node in nodes}
