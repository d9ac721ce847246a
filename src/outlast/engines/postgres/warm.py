"""A new connection is made ready for work: its first turn or enqueue would take 20 to 40 ms."""

from __future__ import annotations

from contextlib import suppress

import asyncpg

from outlast.core.ids import new_fence, new_id
from outlast.core.model import NewTask, Outcome, Turn, Want, WorkerInfo
from outlast.engines.postgres import enqueue, exchange
from outlast.engines.postgres.db import in_schema


async def warm(conn: asyncpg.Connection, schema: str) -> None:
    """A turn and an enqueue that are undone: what stays is their plans, and the types they use."""
    turn = Turn(
        token=new_fence(),
        worker=f"warm.{new_id()}",
        wants=(Want("", "primary", 1),),
        room=1,
        outcomes=(Outcome(id=new_id(), fence=0, state="completed"),),
        info=WorkerInfo(host="", pid=0),
    )
    undone = conn.transaction()
    await undone.start()
    # Without the functions, or without the rights, there is nothing to be made ready.
    with suppress(asyncpg.PostgresError):
        arguments = exchange.arguments(turn, 0, exchange.Marks())
        await conn.fetch(in_schema(exchange.EXCHANGE, schema), *arguments)
        await conn.fetch(in_schema(enqueue.ENQUEUE, schema), *enqueue.arguments((), 0))
        plain = enqueue.plain_arguments((NewTask(id=new_id(), type=""),), 0)
        await conn.fetch(in_schema(enqueue.PLAIN, schema), *(plain or ()))
    await undone.rollback()
