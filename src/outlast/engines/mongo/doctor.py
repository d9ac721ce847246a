"""What can be wrong with a MongoDB replica set, and the cure."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import OperationFailure

from outlast.core.checks import CROWDED, Check
from outlast.engines.mongo.db import too_old
from outlast.engines.mongo.schema import INDEXES, Database, Document

if TYPE_CHECKING:
    from outlast.engines.mongo.engine import MongoEngine

SHORT_OPLOG_S: Final = 3_600
DURABILITY: Final = "Start mongod with its journal."
_LOOK: Final = "grant clusterMonitor to the user, for a look at the members, connections and oplog."


async def opened(engine: MongoEngine) -> AsyncIterator[Check]:
    client, db = engine._link.client, engine._link.db
    hello = await client.admin.command("hello")
    build = await client.admin.command("buildInfo")
    yield server(hello["maxWireVersion"], build["version"])
    yield primary(hello)
    for name, look in (("members", _members), ("connections", _connections), ("oplog", _oplog)):
        yield await _allowed(name, look, db)
    yield await _indexes(db)


async def _allowed(name: str, look: Callable[[Database], Awaitable[Check]], db: Database) -> Check:
    try:
        return await look(db)
    except OperationFailure as refused:
        told = f"Not to be seen: {(refused.details or {}).get('errmsg', refused)}"
        return Check(name, "ok", f"{told}; {_LOOK}")


def server(wire: int, version: str) -> Check:
    old = too_old(wire)
    if old is not None:
        return Check("server", "fail", f"MongoDB {version}: {old}", "Upgrade the server.")
    return Check("server", "ok", f"MongoDB {version}")


def primary(hello: Mapping[str, Any]) -> Check:
    if hello.get("msg") == "isdbgrid":
        return Check("replica set", "ok", "a sharded cluster")
    if "setName" not in hello:
        fix = "Start mongod with --replSet rs0 and run rs.initiate() once."
        return Check("replica set", "fail", "It is no replica set.", fix)
    if not hello.get("isWritablePrimary"):
        fix = f"Connect to the primary, {hello.get('primary', 'once there is one')}."
        return Check("replica set", "fail", "This member is not the primary.", fix)
    return Check("replica set", "ok", f"primary of {hello['setName']}")


async def _members(db: Database) -> Check:
    return members(await db.client.admin.command("replSetGetStatus"))


def members(status: Mapping[str, Any]) -> Check:
    every = status["members"]
    down = [member["name"] for member in every if not member["health"]]
    if down:
        fix = "Start them again: without a majority nothing can be acknowledged."
        return Check("members", "warn", f"Down: {', '.join(down)}, of {len(every)}.", fix)
    if len(every) < 3:
        fix = "For failover, add members: rs.add() until there are three."
        return Check("members", "warn", f"{len(every)} of 3: nobody takes over a lost one.", fix)
    return Check("members", "ok", f"{len(every)}, all up")


async def _connections(db: Database) -> Check:
    found = (await db.client.admin.command("serverStatus"))["connections"]
    return connections(found["current"], found["current"] + found["available"])


def connections(used: int, most: int) -> Check:
    told = f"{used:,} of {most:,} connections are used."
    if used >= most * CROWDED:
        fix = "Raise net.maxIncomingConnections, or lower ?maxPoolSize=."
        return Check("connections", "warn", told, fix)
    return Check("connections", "ok", told)


async def _oplog(db: Database) -> Check:
    log = db.client.local["oplog.rs"]
    first = await log.find_one(sort=[("$natural", 1)])
    last = await log.find_one(sort=[("$natural", -1)])
    stats = await db.client.local.command("collStats", "oplog.rs")
    if first is None or last is None:
        return Check("oplog", "ok", "empty")
    full = stats["size"] >= stats["maxSize"] * CROWDED
    return oplog(last["ts"].time - first["ts"].time, full=full)


def oplog(window_s: int, *, full: bool) -> Check:
    """A log that is not full yet has no window to speak of."""
    told = f"reaches back {window_s / 3600:,.1f} h; who is away for longer has to copy everything"
    if full and window_s < SHORT_OPLOG_S:
        fix = "Enlarge it: db.adminCommand({replSetResizeOplog: 1, size: MB})"
        return Check("oplog", "warn", told, fix)
    return Check("oplog", "ok", told)


async def _indexes(db: Database) -> Check:
    for collection, indexes in INDEXES.items():
        there = {found["name"] async for found in await db[collection].list_indexes()}
        for index in indexes:
            wanted = index.document
            if wanted["name"] not in there:
                return Check(
                    "indexes",
                    "fail",
                    f"{collection} lacks the index {wanted['name']!r}: claims become slow.",
                    f"In mongosh: {_create(collection, wanted)}",
                )
    return Check("indexes", "ok", "all there")


def _create(collection: str, wanted: Document) -> str:
    options = {name: value for name, value in wanted.items() if name != "key"}
    return f"db.{collection}.createIndex({json.dumps(dict(wanted['key']))}, {json.dumps(options)})"
