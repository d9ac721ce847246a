"""What can be wrong with a Redis or Valkey server, and the cure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from outlast.core.checks import CROWDED, Check
from outlast.core.errors import EngineDown
from outlast.engines.redis.link import Link, too_old

if TYPE_CHECKING:
    from outlast.engines.redis.engine import RedisEngine

DURABILITY: Final = (
    "CONFIG SET appendonly yes, CONFIG SET appendfsync always, and keep it in the file."
)
SECTIONS: Final = ("server", "clients", "memory", "persistence", "replication", "cluster")
SETTINGS: Final = (
    "appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy", "maxclients",
)  # fmt: skip


async def opened(engine: RedisEngine) -> AsyncIterator[Check]:
    link = engine._open()
    info = await _info(link)
    config = await _config(link)
    if not info or not config:
        fix = "To let it look: ACL SETUSER … +info +config|get"
        yield Check("rights", "warn", "This user may not read INFO or CONFIG.", fix)
    else:
        yield Check("rights", "ok", "This user may read what the server says of itself.")
    for check in (
        *server(info),
        *_file(info, config),
        *_memory(info, config),
        *_clients(info, config),
    ):
        yield check


async def _info(link: Link) -> dict[str, str]:
    found: dict[str, str] = {}
    for section in SECTIONS:
        try:
            text = (await link.do("INFO", section)).decode()
        except EngineDown:
            return {}
        lines = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
        found |= {name: value for name, _, value in lines}
    return found


async def _config(link: Link) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in SETTINGS:
        try:
            found |= {k.decode(): v.decode() for k, v in await link.pairs("CONFIG", "GET", name)}
        except EngineDown:
            return {}
    return found


def server(info: Mapping[str, str]) -> Iterator[Check]:
    version = info.get("valkey_version") or info.get("redis_version")
    if version is None:
        return
    name = "Valkey" if "valkey_version" in info else "Redis"
    old = too_old(name, version)
    if old is not None:
        yield Check("server", "fail", f"{name} {version}: {old}", "Upgrade the server.")
    else:
        yield Check("server", "ok", f"{name} {version}")
    if info.get("role") == "slave":
        at = f"{info.get('master_host')}:{info.get('master_port')}"
        yield Check("role", "fail", "It is a read-only replica.", f"Connect to the primary, {at}.")
    else:
        yield Check("role", "ok", f"primary with {info.get('connected_slaves', '0')} replicas")
    if info.get("cluster_enabled") == "1":
        yield Check("cluster", "ok", "A cluster: this namespace lies on one node of it.")


def _file(info: Mapping[str, str], config: Mapping[str, str]) -> Iterator[Check]:
    if not config:
        return
    if config.get("appendonly") != "yes":
        fix = "CONFIG SET appendonly yes, and appendonly yes in the server's file."
        yield Check("aof", "warn", "The append-only file is off: a restart loses tasks.", fix)
    elif config.get("appendfsync") != "always":
        told = f"appendfsync is {config.get('appendfsync')}: a power cut loses the last second."
        fix = "Fine if that may be; else CONFIG SET appendfsync always."
        yield Check("aof", "warn", told, fix)
    elif config.get("no-appendfsync-on-rewrite") == "yes":
        told = (
            "While the file is rewritten nothing is forced to the disk: no-appendfsync-on-rewrite."
        )
        fix = "CONFIG SET no-appendfsync-on-rewrite no, and keep it in the file."
        yield Check("aof", "warn", told, fix)
    else:
        yield Check("aof", "ok", "Every acknowledged write is on the disk.")
    if info.get("aof_last_write_status", "ok") != "ok":
        told = "The server cannot write its append-only file."
        yield Check("disk", "fail", told, "Free some space where the server keeps its data.")


def _memory(info: Mapping[str, str], config: Mapping[str, str]) -> Iterator[Check]:
    policy = config.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        fix = "CONFIG SET maxmemory-policy noeviction, and in the server's file."
        told = f"maxmemory-policy is {policy}: when the memory is full, tasks are deleted."
        yield Check("eviction", "fail", told, fix)
    elif config:
        yield Check("eviction", "ok", policy)
    if "used_memory" in info:
        yield memory(int(info["used_memory"]), int(info.get("maxmemory", "0")))


def memory(used: int, most: int) -> Check:
    told = f"{used / (1 << 20):,.0f} MiB used"
    if most and used >= most * CROWDED:
        fix = "Raise maxmemory, or keep less: Outlast(keep={'completed': '24h'})."
        return Check("memory", "warn", f"{told} of {most / (1 << 20):,.0f} MiB.", fix)
    return Check("memory", "ok", told + (f" of {most / (1 << 20):,.0f} MiB" if most else ""))


def _clients(info: Mapping[str, str], config: Mapping[str, str]) -> Iterator[Check]:
    if "connected_clients" in info and "maxclients" in config:
        yield connections(int(info["connected_clients"]), int(config["maxclients"]))


def connections(used: int, most: int) -> Check:
    told = f"{used:,} of {most:,} connections are used."
    if used >= most * CROWDED:
        return Check("connections", "warn", told, "CONFIG SET maxclients higher.")
    return Check("connections", "ok", told)
