"""A real Valkey Cluster for the tests: three nodes, each with a third of the slots."""

from __future__ import annotations

import atexit
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

import redis

_SPEC = spec_from_file_location("tests_servers_redis", Path(__file__).with_name("redis.py"))
assert _SPEC is not None and _SPEC.loader is not None
_ONE: Final = module_from_spec(_SPEC)
_SPEC.loader.exec_module(_ONE)

SLOTS: Final = ((0, 5460), (5461, 10922), (10923, 16383))
FORMED_S: Final = 60.0


class Cluster:
    """Three primaries that know each other; `url` is that of the first."""

    def __init__(self) -> None:
        self._buses = [_ONE._free_port() for _ in SLOTS]
        self.nodes: list[Any] = [_node(bus) for bus in self._buses]
        self._replicas: list[Any] = []
        self.url: str = self.nodes[0].url

    def run(self) -> None:
        for node in self.nodes:
            node.run()
        clients = [redis.Redis.from_url(node.url) for node in self.nodes]
        for client, slots in zip(clients, SLOTS, strict=True):
            _do(client, "ADDSLOTSRANGE", *slots)
        for node, bus in zip(self.nodes[1:], self._buses[1:], strict=True):
            _do(clients[0], "MEET", "127.0.0.1", node.port, bus)
        deadline = time.monotonic() + FORMED_S
        for client in clients:
            while b"cluster_state:ok" not in _do(client, "INFO"):
                if time.monotonic() > deadline:
                    raise RuntimeError("the nodes do not form a cluster")
                time.sleep(0.05)
            client.close()

    def add_replica(self) -> Any:
        """Of the first node; it has what that has."""
        first = self.nodes[0]
        node = _node(_ONE._free_port())
        self._replicas.append(node)
        node.run()
        with redis.Redis.from_url(first.url) as client:
            name = _do(client, "MYID")
        deadline = time.monotonic() + FORMED_S
        with redis.Redis.from_url(node.url) as client:
            _do(client, "MEET", "127.0.0.1", first.port, self._buses[0])
            while not _follows(client, name):
                if time.monotonic() > deadline:
                    raise RuntimeError("the replica does not find its primary")
                time.sleep(0.05)
        return node

    def promote(self, replica: Any) -> None:
        """It takes over, and its primary becomes its replica."""
        deadline = time.monotonic() + FORMED_S
        with redis.Redis.from_url(replica.url) as client:
            _do(client, "FAILOVER")
            while client.info("replication")["role"] != "master":
                if time.monotonic() > deadline:
                    raise RuntimeError("the replica does not take over")
                time.sleep(0.05)

    def clear(self) -> None:
        for node in self.nodes:
            with redis.Redis.from_url(node.url) as client:
                client.flushall()

    def stop(self) -> None:
        for node in (*self.nodes, *self._replicas):
            node.stop()


def _node(bus: int) -> Any:
    return _ONE.Server(settings=("--cluster-enabled", "yes", "--cluster-port", str(bus)))


def _follows(client: redis.Redis, name: bytes) -> bool:
    """Is it a replica of that node by now, with all that the node has?"""
    try:
        _do(client, "REPLICATE", name)
    except redis.ResponseError:
        return False  # it does not know it yet
    return client.info("replication").get("master_link_status") == "up"


def _do(client: redis.Redis, *command: object) -> Any:
    return client.execute_command("CLUSTER", *command)  # type: ignore[no-untyped-call]


_running: dict[str, Cluster] = {}


def start() -> str:
    """The address of a cluster that lives as long as this process."""
    cluster = Cluster()
    atexit.register(cluster.stop)
    cluster.run()
    _running[cluster.url] = cluster
    return cluster.url


def clear(address: str) -> None:
    _running[address].clear()
