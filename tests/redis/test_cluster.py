"""A cluster of three nodes: the engine finds the node that has the slot of its namespace.

The whole conformance suite runs on it with OUTLAST_TEST_ENGINES=redis-cluster.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

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
