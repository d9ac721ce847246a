"""A cluster of three nodes: the engine finds the node that has the slot of its namespace.

The whole conformance suite runs on it with OUTLAST_TEST_ENGINES=redis-cluster.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from outlast.core.ids import new_id
from outlast.core.model import NewTask, TaskQuery
from outlast.engines.redis.engine import RedisEngine, connect

_SPEC = spec_from_file_location(
    "tests_servers_redis_cluster", Path(__file__).parent.parent / "servers" / "redis_cluster.py"
)
assert _SPEC is not None and _SPEC.loader is not None
_SERVERS = module_from_spec(_SPEC)
_SPEC.loader.exec_module(_SERVERS)


async def test_namespaces_spread_over_the_nodes() -> None:
    cluster = _SERVERS.Cluster()
    try:
        cluster.run()
        lives_at = set()
        for n in range(9):
            engine = connect(f"{cluster.url}?namespace=n{n}")
            assert isinstance(engine, RedisEngine)
            await engine.open()
            async with engine.watch(["queue:default"]) as watch:
                await engine.enqueue([NewTask(id=new_id(), type="work")])
                assert await watch.wait(30)
            assert len((await engine.tasks(TaskQuery())).items) == 1
            assert engine._link is not None
            lives_at.add(engine._link.client.connection_pool.connection_kwargs["port"])
            await engine.close()
        assert lives_at == {node.port for node in cluster.nodes}
    finally:
        cluster.stop()


async def test_a_node_that_became_a_replica_still_shows_the_way() -> None:
    """After a failover it is what the URL of everybody who starts names."""
    cluster = _SERVERS.Cluster()
    try:
        cluster.run()
        heir = cluster.add_replica()
        engine = await _living_at(cluster.nodes[0], cluster.url)
        await engine.enqueue([NewTask(id=new_id(), type="work")])
        cluster.promote(heir)
        await engine.enqueue([NewTask(id=new_id(), type="work")])
        late = connect(f"{cluster.url}?namespace={engine._prefix[1:-2]}")
        await late.open()
        assert len((await late.tasks(TaskQuery())).items) == 2
        await late.close()
        await engine.close()
    finally:
        cluster.stop()


async def _living_at(node: Any, url: str) -> RedisEngine:
    """In a namespace whose slot is there."""
    for n in range(100):
        engine = connect(f"{url}?namespace=n{n}")
        assert isinstance(engine, RedisEngine)
        await engine.open()
        assert engine._link is not None
        if engine._link.client.connection_pool.connection_kwargs["port"] == node.port:
            return engine
        await engine.close()
    raise AssertionError("no namespace of a hundred lies there")
