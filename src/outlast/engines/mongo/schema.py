"""Outlast on MongoDB, schema version 1: the collections and their indexes.

task         one document per task, payload and result in it; fields without a value are not there.
             place, order and labels repeat other fields for the sake of indexes (stands.py)
edge         up must end before down may run; done once told
signal       the inboxes; step: the remembered parts of handlers
event        the log; its _id is the cursor: the number of the transaction, and a place in it
reservation  unique keys: who holds them and until when (absent: while the task lives)
gauge        the state of a limit key; line: (key, queue, lane) with tasks parked on the key.
             open_at: from when on a claim may look at them; absent: not before a slot is freed
fair         virtual times: the next rank of a key, and (key is null) the rank claimed last
worker       leases of workers; record: small versioned documents
meta         one document, `log`: the counter that every transaction increments first, who waits for
             it (waits, promised), and what spares it a look: when the next task comes due, whether
             any waits for a limit
hint         capped: which topics a commit was about (wake.py)

Names made of several parts are documents (`{"kind": …, "key": …}`), never text put together: no
part can be mistaken for another one, and none for an operator.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from pymongo import ASCENDING, IndexModel
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure

from outlast.core.errors import EngineDown

Document = dict[str, Any]
Database = AsyncDatabase[Document]
Collection = AsyncCollection[Document]

SCHEMA_VERSION: Final = 1
NAMESPACE_EXISTS: Final = 48
HINT_BYTES: Final = 262_144
"""A thousand hints or so: a reader that is further behind has been woken long ago."""


def _index(name: str, *fields: str, there: str | None = None, **more: Any) -> IndexModel:
    """An index; with `there`, over the documents that have that field."""
    if there is not None:
        more["partialFilterExpression"] = {there: {"$exists": True}}
    return IndexModel([(field, ASCENDING) for field in fields], name=name, **more)


INDEXES: Final[dict[str, list[IndexModel]]] = {
    "task": [
        # Few: in a transaction the server parses the description of all of them for each one of
        # them, with every update. Claiming and ending a task takes it 56 µs with one index, 71 with
        # these two, 90 with three, 152 with six.
        _index("poll", "place", "order"),
        _index("lookup", "labels", "seq"),
    ],
    "edge": [
        _index("down", "_id.down", "_id.up"),
        _index("up", "_id.up", "done"),
    ],
    "signal": [_index("task", "_id.task", "_id.n")],
    "step": [_index("task", "_id.task", "n")],
    "event": [
        _index("task", "task", "_id", there="task"),
        _index("session", "session_id", "_id", there="session_id"),
        _index("workflow", "workflow_id", "_id", there="workflow_id"),
    ],
    "reservation": [_index("until", "until", there="until")],
    "line": [
        _index("key", "_id.key"),
        _index("open", "_id.queue", "_id.lane", "open_at", there="open_at"),
    ],
    "worker": [_index("stale", "lease_until")],
    "record": [
        _index("kind", "_id.kind", "_id.key"),
        _index("expires", "expires_at", there="expires_at"),
    ],
}
PLAIN: Final = ("gauge", "fair")
"""Collections that need no more than their _id."""


async def migrate(db: Database, name: str) -> int:
    """Create what is not there; the version of the schema. Safe from many processes at once."""
    state = await db.meta.find_one({"_id": "log"})
    version = 0 if state is None else state["schema"]
    if version > SCHEMA_VERSION:
        raise EngineDown(
            f"{name} has schema {version}, newer than this release ({SCHEMA_VERSION}): "
            "upgrade outlast."
        )
    if version == SCHEMA_VERSION:
        return SCHEMA_VERSION
    # Collections first: a transaction that has to make one conflicts with every other.
    await asyncio.gather(
        *(db[collection].create_indexes(indexes) for collection, indexes in INDEXES.items()),
        *(_create(db, collection) for collection in PLAIN),
        _create(db, "hint", capped=True, size=HINT_BYTES),
    )
    if await db.hint.find_one() is None:
        await db.hint.insert_one({"topics": []})  # nobody can follow an empty collection
    state = {
        "schema": SCHEMA_VERSION,
        "turn": 0,
        "rules": 1,
        "pruned": 0,
        "loaded": "",
        "waits": 0,
        "promised": 0,
        "wake": None,
        "lined": False,
    }
    await db.meta.update_one({"_id": "log"}, {"$setOnInsert": state}, upsert=True)
    return SCHEMA_VERSION


async def _create(db: Database, collection: str, **options: Any) -> None:
    try:
        await db.create_collection(collection, check_exists=False, **options)
    except OperationFailure as error:
        if error.code != NAMESPACE_EXISTS:
            raise
