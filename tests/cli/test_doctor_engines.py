"""What the doctor says of real servers that are not as they should be."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from pymongo import MongoClient

from outlast.cli import doctor as doctors
from outlast.core.checks import Check
from outlast.core.model import Put
from outlast.core.seal import Seal
from outlast.engine import connect
from outlast.engines.mongo import doctor as mongo
from outlast.engines.postgres import doctor as postgres
from outlast.engines.redis import doctor as redis_doctor

SERVERS = Path(__file__).parent.parent / "servers"
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """`run("redis", fsync="always")`: a server of its own."""
    with ExitStack() as stack:

        def make(kind: str, **options: Any) -> Any:
            spec = spec_from_file_location(f"tests_servers_{kind}", SERVERS / f"{kind}.py")
            assert spec is not None and spec.loader is not None
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            server = module.Server(**options)
            stack.callback(server.stop)
            server.run()
            return server

        yield make


async def examined(url: str, *, skew_ms: int = 0) -> dict[str, Check]:
    engine = connect(url)
    engine.skew_ms = skew_ms
    return {check.name: check for check in await doctors._examine(engine, Seal())}


def wrong(checks: dict[str, Check]) -> set[str]:
    """What is not as it should be; and each of it has a cure."""
    bad = {name for name, check in checks.items() if check.status != "ok"}
    assert all(checks[name].fix for name in bad), checks
    return bad - {"workers"}


# PostgreSQL --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pg(run: Run) -> Any:
    return run("postgresql", fsync="on", max_connections="20")


async def test_nothing_is_wrong_with_a_good_postgresql(pg: Any) -> None:
    checks = await examined(pg.url)
    assert wrong(checks) == set(), checks
    assert checks["server"].message.startswith("PostgreSQL 1")


async def test_a_postgresql_that_forgets(run: Run) -> None:
    settings = {"synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}
    checks = await examined(run("postgresql", **settings).url)
    names = {"fsync", "synchronous_commit", "full_page_writes", "vacuum", "durability"}
    assert wrong(checks) == names
    assert "alter system set synchronous_commit = on" in (checks["synchronous_commit"].fix or "")


async def test_a_postgresql_whose_connections_are_used_up(pg: Any) -> None:
    with ExitStack() as stack:
        for _ in range(14):
            stack.enter_context(psycopg.connect(pg.url))
        checks = await examined(pg.url)
    assert wrong(checks) == {"connections"}
    assert "max_connections" in (checks["connections"].fix or "")


async def test_a_transaction_that_is_held(pg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "HELD_S", -1)
    with psycopg.connect(pg.url, application_name="holder") as conn:
        conn.execute("set transaction isolation level repeatable read")
        conn.execute("select 1")
        checks = await examined(pg.url)
        pid = conn.info.backend_pid
    assert "holder" in checks["snapshots"].message
    assert checks["snapshots"].fix == f"select pg_terminate_backend({pid});"


async def test_dead_rows(pg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "DEAD_ROWS", 10)
    url = f"{pg.url}?schema=dead_rows"
    engine = connect(url)
    await engine.open()
    for n in range(40):
        await engine.put([Put(kind="note", key="n", value=str(n).encode())])
    await engine.close()
    with psycopg.connect(pg.url, autocommit=True) as conn:
        conn.execute("select pg_stat_force_next_flush()")
        conn.execute("analyze dead_rows.record")
    checks = await examined(url)
    assert "record has" in checks["vacuum"].message
    assert (checks["vacuum"].fix or "").startswith("vacuum ")


async def test_a_user_without_rights(pg: Any) -> None:
    url = f"{pg.url}?schema=rights"
    engine = connect(url)
    await engine.open()
    await engine.close()
    with psycopg.connect(pg.url, autocommit=True) as conn:
        conn.execute("create user bob")
        conn.execute("grant usage on schema rights to bob")
        conn.execute("grant select on rights.meta to bob")
    checks = await examined(url.replace("outlast@", "bob@"))
    assert {"rights", "engine"} <= wrong(checks)
    assert "grant select, insert" in (checks["rights"].fix or "")


@pytest.mark.parametrize(
    ("options", "deaf"),
    [("listen=off", False), ("listen_url=postgresql%3A%2F%2Foutlast%40127.0.0.1%3A1%2Fx", True)],
)
async def test_a_postgresql_that_nobody_can_listen_to(pg: Any, options: str, deaf: bool) -> None:
    checks = await examined(f"{pg.url}?{options}")
    assert wrong(checks) == ({"wake-ups"} if deaf else set())
    assert not deaf or "listen_url=" in (checks["wake-ups"].fix or "")


def test_poolers_and_old_servers_by_what_they_tell() -> None:
    assert postgres.pooler(False, listens=True).status == "ok"
    assert postgres.pooler(True, listens=False).status == "ok"
    assert "listen_url=" in (postgres.pooler(True, listens=True).fix or "")
    assert postgres.server(130_000, "13.4").status == "fail"


# Redis and Valkey --------------------------------------------------------------------------------


async def test_nothing_is_wrong_with_a_good_redis(run: Run) -> None:
    checks = await examined(run("redis", fsync="always").url)
    assert wrong(checks) == set(), checks


async def test_a_redis_that_forgets(run: Run) -> None:
    checks = await examined(run("redis").url)
    assert wrong(checks) == {"aof", "durability"}
    assert "appendfsync always" in (checks["aof"].fix or "")
    checks = await examined(run("redis", settings=("--appendonly", "no")).url)
    assert wrong(checks) == {"aof", "durability"}
    assert "appendonly yes" in (checks["aof"].fix or "")
    pausing = run("redis", fsync="always", settings=("--no-appendfsync-on-rewrite", "yes"))
    checks = await examined(pausing.url)
    assert wrong(checks) == {"aof", "durability"}
    assert "no-appendfsync-on-rewrite no" in (checks["aof"].fix or "")


@pytest.fixture
async def redis_engine(run: Run) -> AsyncIterator[tuple[Any, redis.Redis]]:
    """An open engine on a good server, and a client that may change it."""
    server = run("redis", fsync="always")
    async with AsyncExitStack() as stack:
        engine = connect(server.url)
        await engine.open()
        stack.push_async_callback(engine.close)
        yield engine, stack.enter_context(redis.Redis(port=server.port))


async def opened(engine: Any) -> dict[str, Check]:
    return {check.name: check async for check in redis_doctor.opened(engine)}


async def test_a_redis_that_evicts_or_is_nearly_full(
    redis_engine: tuple[Any, redis.Redis],
) -> None:
    engine, client = redis_engine
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.05))  # type: ignore[index]
    checks = await opened(engine)
    assert wrong(checks) == {"eviction", "memory"}
    assert "noeviction" in (checks["eviction"].fix or "")


async def test_a_redis_whose_connections_are_used_up(
    redis_engine: tuple[Any, redis.Redis],
) -> None:
    engine, client = redis_engine
    client.config_set("maxclients", 2)
    assert wrong(await opened(engine)) == {"connections"}


async def test_a_redis_that_has_become_a_replica(redis_engine: tuple[Any, redis.Redis]) -> None:
    engine, client = redis_engine
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    checks = await opened(engine)
    assert wrong(checks) == {"role"}
    assert checks["role"].fix == "Connect to the primary, 127.0.0.1:1."


async def test_a_redis_user_that_may_not_look(run: Run) -> None:
    server = run("redis", fsync="always")
    rules = "on nopass ~* &* +@all -info -config -hello"
    with redis.Redis(port=server.port) as client:
        client.execute_command("ACL", "SETUSER", "bob", *rules.split())
    checks = await examined(server.url.replace("//", "//bob:x@"))
    assert wrong(checks) == {"rights", "durability"}
    assert "+info" in (checks["rights"].fix or "")


async def test_a_redis_user_that_may_not_write(run: Run) -> None:
    server = run("redis", fsync="always")
    with redis.Redis(port=server.port) as client:
        client.acl_setuser(
            "eve", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-evalsha"]
        )
    checks = await examined(server.url.replace("//", "//eve:x@"))
    assert wrong(checks) == {"engine"}
    assert "docs/engines/redis.md has the ACL" in checks["engine"].message


def test_old_redis_by_what_it_tells() -> None:
    found = {check.name: check for check in redis_doctor.server({"redis_version": "6.2.1"})}
    assert found["server"].status == "fail"


# MongoDB -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mongod(run: Run) -> Any:
    return run("mongodb")


async def test_a_set_of_one_has_nobody_to_take_over(mongod: Any) -> None:
    checks = await examined(mongod.url)
    assert wrong(checks) == {"members"}, checks
    assert checks["replica set"].message == "primary of rs0"


async def test_a_missing_index_is_named_with_how_to_make_it(mongod: Any) -> None:
    url = mongod.url.replace("/?", "/indexes?")
    await examined(url)
    with MongoClient[dict[str, Any]](mongod.url) as client:
        client.indexes.task.drop_index("poll")
    check = (await examined(url))["indexes"]
    assert check.status == "fail"
    told = 'db.task.createIndex({"place": 1, "order": 1}, {"name": "poll"})'
    assert told in (check.fix or "")


async def test_a_mongodb_user_that_may_not_look(run: Run, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32)
    key.chmod(0o600)
    server = run("mongodb", settings=("--keyFile", str(key)))
    with MongoClient[dict[str, Any]](server.url) as client:  # the first user may make others
        client.admin.command({"createUser": "root", "pwd": "x", "roles": ["root"]})
    with MongoClient[dict[str, Any]](server.url.replace("//", "//root:x@")) as client:
        role = {"role": "readWrite", "db": "outlast"}
        client.admin.command({"createUser": "bob", "pwd": "x", "roles": [role]})
    url = server.url.replace("//", "//bob:x@").replace("/?", "/outlast?authSource=admin&")
    checks = await examined(url)
    assert wrong(checks) == set(), checks
    assert "clusterMonitor" in checks["members"].message


def test_members_connections_and_oplog_by_what_they_tell() -> None:
    up, down = {"name": "a", "health": 1}, {"name": "b", "health": 0}
    assert mongo.members({"members": [up, up, up]}).status == "ok"
    assert "Down: b" in mongo.members({"members": [up, up, down]}).message
    assert mongo.connections(90, 100).status == "warn"
    assert mongo.oplog(60, full=False).status == "ok"
    assert mongo.oplog(60, full=True).status == "warn"
    assert mongo.server(13, "4.4.1").status == "fail"
    assert mongo.primary({}).status == "fail"
    assert "Connect to the primary, h:1" in (
        mongo.primary({"setName": "s", "primary": "h:1"}).fix or ""
    )


# Any engine --------------------------------------------------------------------------------------


@pytest.mark.parametrize("skew_ms", [-5_000, 5_000])
async def test_clocks_that_differ(tmp_path: Path, skew_ms: int) -> None:
    checks = await examined(f"sqlite:///{tmp_path}/jobs.db", skew_ms=skew_ms)
    assert wrong(checks) == {"clock"}
    assert "NTP" in (checks["clock"].fix or "")


async def test_half_a_copy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    engine = connect(url)
    await engine.open()
    await engine.put([Put(kind="copy", key="in", value=json.dumps({}).encode())])
    await engine.close()
    checks = await examined(url)
    assert wrong(checks) == {"copy"}
    assert "outlast engine copy" in (checks["copy"].fix or "")
