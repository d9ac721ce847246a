"""A beat: a turn with nothing to tell and nothing to ask, which only keeps the worker's lease.

It is one write of one document, outside of transactions: it waits for nobody's turn, so that a
fleet that is busy does not lose its leases.
"""

from __future__ import annotations

from pymongo import ReturnDocument

from outlast.core.model import Deal, Turn
from outlast.engines.mongo.schema import Database


def is_beat(turn: Turn) -> bool:
    more = turn.wants or turn.room or turn.outcomes or turn.leaving or turn.pressure
    return not more and turn.info is None


async def beat(db: Database, turn: Turn, skew_ms: int) -> Deal | None:
    """None when there is more to do: a task came due, or the worker has something to hear."""
    state = await db.meta.find_one({"_id": "log"}, {"wake": 1})
    now = {"$add": [{"$toLong": "$$NOW"}, skew_ms]}
    renewed = await db.worker.find_one_and_update(
        {"_id": turn.worker, "evicted": False, "stop": None},
        [{"$set": {"seen_at": now, "lease_until": {"$add": [now, turn.lease_ms]}}}],
        projection={"seen_at": 1},
        return_document=ReturnDocument.AFTER,
    )
    if state is None or renewed is None:
        return None
    wake = state["wake"]
    return Deal(now=renewed["seen_at"]) if wake is None or wake > renewed["seen_at"] else None
