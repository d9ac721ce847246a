"""sweep: what nobody's turn takes care of. Bounded, idempotent, safe from everywhere at once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from pymongo import DeleteMany, DeleteOne, UpdateOne

from outlast.core.limits import are_stale
from outlast.core.model import Swept
from outlast.core.states import FINAL, Ms
from outlast.engines.mongo import records
from outlast.engines.mongo.alter import forget
from outlast.engines.mongo.documents import Doc, decode, encode
from outlast.engines.mongo.ends import finish, load_limits, put_back, settle
from outlast.engines.mongo.exchange import unpark_due
from outlast.engines.mongo.schema import Database, Document
from outlast.engines.mongo.stands import RUNNING, alarmed, ended_before, run_by
from outlast.engines.mongo.tx import Tx

RESCUE_JITTER_MS: Final = 1_000
"""Rescued tasks come back spread over up to this span, 10 ms each: no stampede."""
STALLED: Final = encode(
    {
        "code": "stalled",
        "type": "Stalled",
        "message": "The worker that ran this attempt was lost.",
        "details": None,
        "traceback": None,
    }
)


async def quiet(db: Database, now: Ms) -> bool:
    """Is there nothing that a sweep would look at? One read instead of a transaction of many
    commands: every worker of an idle fleet asks each second. (An idle worker cost the server 1.2 %
    of a core, and 0.7 % with it.)"""
    alarms = [alarmed(name, now) for name in ("wake", "expires", "overdue")]
    elsewhere: list[tuple[str, Document]] = [
        # One by one: an $or of them looks at a key beyond each.
        *(("task", alarm) for alarm in (*alarms, alarmed("unsettled"))),
        ("record", {"_id.kind": "retention"}),
        ("record", {"expires_at": {"$lte": now}}),
        ("reservation", {"until": {"$lte": now}}),
        *((collection, {}) for collection in ("gauge", "line", "fair")),
    ]
    stages: list[Document] = _first(_lapsed(now))
    for collection, query in elsewhere:
        stages.append({"$unionWith": {"coll": collection, "pipeline": _first(query)}})
    found = await db.worker.aggregate([*stages, {"$limit": 1}])
    return not await found.to_list()


def _first(query: Document) -> list[Document]:
    return [{"$match": query}, {"$limit": 1}, {"$project": {"_id": 1}}]


def _lapsed(now: Ms) -> Document:
    return {"$or": [{"lease_until": {"$lte": now}}, {"evicted": True}]}


async def sweep(tx: Tx, budget: int, gone: Sequence[str]) -> Swept:
    rescued, died, workers, cut = await _evict(tx, budget, gone)
    unparked, _ = await unpark_due(tx, budget)
    expired = await _expire(tx, budget)
    overdue = await _mark_overdue(tx, budget)
    settled = await _settle(tx, budget)
    forgotten = await _retain(tx, budget)
    await _drop_old(tx, budget)
    await _recompute_gauges(tx, budget)
    await _drop_fair(tx)
    return Swept(
        rescued=rescued,
        died=died,
        expired=expired,
        overdue=overdue,
        unparked=unparked,
        settled=settled,
        forgotten=forgotten,
        workers=workers,
        more=cut or max(unparked, expired, overdue, settled, forgotten) >= budget,
    )


async def _evict(tx: Tx, budget: int, gone: Sequence[str]) -> tuple[int, int, int, bool]:
    """Free the tasks of workers whose lease is over; drop a worker once it holds nothing."""
    rescued = died = workers = 0
    cut = False
    found = await tx.select("worker", _lapsed(tx.now), limit=100, only=("_id",))
    lapsed = [w["_id"] for w in found]
    for worker in dict.fromkeys([*gone, *lapsed]):
        if budget <= 0:
            return rescued, died, workers, True
        docs = await tx.find({"place": {"$in": run_by(worker)}}, limit=budget)
        budget -= len(docs)
        await load_limits(tx, docs)
        for doc in docs:
            if await _rescue(tx, doc, min(RESCUE_JITTER_MS, 10 * len(docs))):
                rescued += 1
            else:
                died += 1
        if budget <= 0:
            tx.write("worker", UpdateOne({"_id": worker}, {"$set": {"evicted": True}}))
            cut = True
        else:
            tx.write("worker", DeleteOne({"_id": worker}))
            workers += 1
        tx.topics.add(f"worker:{worker}")
    return rescued, died, workers, cut


async def _rescue(tx: Tx, task: Doc, spread_ms: int) -> bool:
    """The worker of a running task is lost: again while its loss budget lasts."""
    if task.cancel is not None:
        await finish(tx, task, "cancelled", reason=task.cancel, verdict="stalled", lost=True)
        return False
    if task.losses + 1 >= task.max_losses:
        await finish(
            tx, task, "dead", reason="stalled", verdict="stalled", error=STALLED, lost=True
        )
        return False
    await put_back(
        tx,
        task,
        verdict="stalled",
        lane="retry",
        delay_ms=random.randint(1, spread_ms),  # noqa: S311  # jitter, not a secret
        refund=True,
        lost=True,
        error=STALLED,
    )
    return True


async def _expire(tx: Tx, budget: int) -> int:
    """Tasks that waited longer than their max_age."""
    docs = await tx.find(alarmed("expires", tx.now), hint="lookup", limit=budget)
    for doc in docs:
        if doc.state == "pending":  # not cancelled by the death of one before it
            await finish(tx, doc, "dead", reason="expired")
    return len(docs)


async def _mark_overdue(tx: Tx, budget: int) -> int:
    docs = await tx.find(alarmed("overdue", tx.now), hint="lookup", limit=budget)
    for doc in docs:
        tx.change(doc, overdue=True, version=doc.version + 1)
        if doc.state not in FINAL:
            tx.log(doc, "overdue", {"status": doc.state})
    return len(docs)


async def _settle(tx: Tx, budget: int) -> int:
    told = 0
    for doc in await tx.find(alarmed("unsettled"), hint="lookup", limit=budget):
        if told >= budget:
            break
        tx.change(doc, unsettled=None)
        told += await settle(tx, [(doc.id, doc.state == "completed")], budget - told)
    return told


async def _retain(tx: Tx, budget: int) -> int:
    """Records of kind `retention`, key = a final state or `log`: age_ms, count, bytes.

    A task whose unique key is still taken stays: without it the key could not be answered.
    """
    forgotten = 0
    for record in await tx.select("record", {"_id.kind": "retention"}):
        key, rule = record["_id"]["key"], decode(record["value"])
        if key == "log":
            await _prune_log(tx, rule, budget)
            continue
        ids = await _beyond(tx, key, rule, budget)
        docs = await tx.docs(ids)
        for doc in docs.values():
            await forget(tx, doc)
        forgotten += len(docs)
    return forgotten


async def _beyond(tx: Tx, state: str, rule: dict[str, Any], budget: int) -> set[str]:
    """Tasks of a final state that a rule does not keep."""
    await tx.flush()
    ids: set[str] = set()
    free = {"unique_until": {"$not": {"$gt": tx.now}}}
    if "age_ms" in rule:
        old = ended_before(state, tx.now - rule["age_ms"]) | free
        ids.update(d.id for d in await tx.find(old, sort=("order",), limit=budget))
    newest: list[Document] = [
        {"$match": {"place": state} | free},
        {"$sort": {"place": -1, "order": -1}},
    ]
    if "count" in rule:
        few = [{"$skip": rule["count"]}, {"$limit": budget}, {"$project": {"_id": 1}}]
        found = await tx.db.task.aggregate([*newest, *few], session=tx.session)
        ids.update(d["_id"] for d in await found.to_list())
    if "bytes" in rule:
        size = {"$add": [_size("$payload"), _size("$result")]}
        found = await tx.db.task.aggregate(
            [*newest, {"$project": {"size": size}}], session=tx.session
        )
        total, heavy = 0, []
        async for d in found:
            total += d["size"]
            if total > rule["bytes"]:
                heavy.append(d["_id"])
        ids.update(heavy[-budget:])
    return ids


def _size(field: str) -> dict[str, Any]:
    return {"$binarySize": {"$ifNull": [field, ""]}}


async def _prune_log(tx: Tx, rule: dict[str, Any], budget: int) -> None:
    if "age_ms" not in rule:
        return
    await tx.write_events()
    before = tx.now - rule["age_ms"]
    oldest = await tx.select("event", {}, sort=("_id",), limit=budget, only=("at",))
    last = max((event["_id"] for event in oldest if event["at"] < before), default=None)
    if last is not None:
        tx.write("event", DeleteMany({"_id": {"$lte": last}}))
        tx.write("meta", UpdateOne({"_id": "log"}, {"$max": {"pruned": last}}))


async def _drop_old(tx: Tx, budget: int) -> None:
    """Unique keys and records whose time is over."""
    query = {"until": {"$lte": tx.now}}
    for found in await tx.select("reservation", query, sort=("until",), limit=budget):
        tx.write("reservation", DeleteOne({"_id": found["_id"]}))
    query = {"expires_at": {"$lte": tx.now}}
    for found in await tx.select("record", query, sort=("expires_at",), limit=budget):
        name = found["_id"]
        tx.write("record", DeleteOne({"_id": name}))
        await records.changed(tx, name["kind"], name["key"], found["value"])


async def _recompute_gauges(tx: Tx, budget: int) -> None:
    """Slots are what leases hold: should a gauge ever say otherwise, the leases are right."""
    await tx.flush()
    found = await tx.select("gauge", {})
    keys = [g["_id"] for g in found if g["used"] or g["probe"]]
    if keys:
        holders: dict[str, set[str]] = {}
        leased = RUNNING | {"limits": {"$exists": True}}
        for doc in await tx.find(leased):
            for key, _units in doc.limits:
                holders.setdefault(key, set()).add(doc.id)
        await tx.load_gauges(keys)
        for key in keys:
            gauge, held = await tx.gauge(key), holders.get(key, set())
            if gauge.used != len(held) or (gauge.probe and gauge.probe not in held):
                gauge.used = len(held)
                gauge.probe = gauge.probe if gauge.probe in held else ""
                await tx.open_key(key)
    tx.lined = tx.lined and bool(await tx.select("line", {}, limit=1, only=("_id",)))
    idle = [g["_id"] for g in found if _idle(tx, g)][:budget]
    await tx.load_lines(idle)
    for key in idle:
        if not tx.has_lines(key):
            tx.drop_gauge(key)


def _idle(tx: Tx, g: dict[str, Any]) -> bool:
    quiet = not (g["used"] or g["probe"] or g["open_until"]) and are_stale(g["buckets"], tx.now)
    return quiet and g["tat_us"] <= tx.now * 1000 and g["paused_until"] <= tx.now


async def _drop_fair(tx: Tx) -> None:
    """Keys that the virtual clock of their lane has passed: they would start there anyway."""
    await tx.flush()
    for clock in await tx.select("fair", {"_id.key": None}):
        at = clock["_id"]
        passed = {"_id.queue": at["queue"], "_id.lane": at["lane"], "_id.key": {"$ne": None}}
        tx.write("fair", DeleteMany(passed | {"rank": {"$lte": clock["rank"]}}))
