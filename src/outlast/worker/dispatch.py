"""From the log to the webhooks: one worker of the fleet at a time turns events into deliveries.

Whoever holds the record `dispatcher` reads the log behind a stored cursor and enqueues what is
subscribed to. A delivery is unique by subscription and event, so a second dispatcher, or one that
died between enqueuing and storing its cursor, sends nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from outlast.core.model import Cursor, EventQuery, Put, Record
from outlast.handler import Call
from outlast.webhooks import DELIVERY, KINDS, POSITION, Webhook, body_of, wants, webhooks
from outlast.worker.wheel import jittered

if TYPE_CHECKING:
    from outlast.app import Outlast

logger: Final = logging.getLogger("outlast.worker")

LOOK_S: Final = 2.0
CALM_S: Final = 0.1  # events that come close together are read together
HOLD_MS: Final = 15_000
PAGE: Final = 200
UNIQUE_FOR: Final = "7d"


async def dispatch(app: Outlast, name: str) -> None:
    """For ever: look whether there is something to do, and whether it is ours to do."""
    while True:
        try:
            async with app.engine.watch(["log"]) as watch:
                while await webhooks(app.engine) and await _hold(app, name):
                    await _forward(app)
                    await watch.wait(LOOK_S)
                    await asyncio.sleep(CALM_S)
        except Exception as problem:
            logger.warning("Webhooks wait: %s", problem)
        await asyncio.sleep(jittered(LOOK_S))


async def _hold(app: Outlast, name: str) -> bool:
    """Is it ours? Nobody's becomes ours; ours is held for a while longer."""
    found = await app.engine.get("dispatcher", ["webhooks"])
    held: Record | None = found[0] if found else None
    if held is not None and held.value != msgspec.json.encode(name):
        return False
    put = Put(
        kind="dispatcher",
        key="webhooks",
        value=msgspec.json.encode(name),
        expect=0 if held is None else held.version,
        ttl_ms=HOLD_MS,
    )
    [written] = await app.engine.put([put])
    return written is not None


async def _forward(app: Outlast) -> None:
    """What the log has behind the cursor becomes deliveries, a page at a time."""
    engine = app.engine
    found = await engine.get("position", [POSITION])
    after: Cursor = msgspec.json.decode(found[0].value) if found else "$"
    while True:
        page = await engine.events(EventQuery(after=after, kinds=KINDS, limit=PAGE))
        subscribed = await webhooks(engine)
        calls = [
            _call(app, webhook, event.cursor, body_of(event))
            for event in page.items
            for webhook in subscribed
            if wants(webhook, event) and event.type != DELIVERY
        ]
        if calls:
            await app.enqueue(calls)
        if page.next != after:
            value = msgspec.json.encode(page.next)
            await engine.put([Put(kind="position", key=POSITION, value=value)])
        after = page.next
        if len(page.items) < PAGE:
            return


def _call(app: Outlast, webhook: Webhook, cursor: Cursor, body: bytes) -> Call[object]:
    handler = app.builtins[DELIVERY].options(
        unique_key=f"webhook:{webhook.id}:{cursor}", unique_for=UNIQUE_FOR
    )
    payload = {
        "webhook": webhook.id,
        "host": webhook.host,
        "message": f"msg_{webhook.id}_{cursor}",
        "body": body.decode(),
    }
    return handler.accept(payload)
