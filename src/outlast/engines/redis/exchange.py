"""exchange: a turn on its way to the script, and the deal that comes back."""

from __future__ import annotations

from typing import Any

from outlast.core.model import Deal, Turn
from outlast.engines.redis.enqueue import check, missing
from outlast.engines.redis.link import Link
from outlast.engines.redis.rows import leases_of
from outlast.engines.redis.wire import turn_in


async def exchange(link: Link, turn: Turn, skew_ms: int) -> Deal:
    for outcome in turn.outcomes:
        if outcome.spawn:
            await check(link, outcome.spawn)
    kept = bool(turn.outcomes)  # a claim that a failover loses is only another attempt
    reply: list[Any] = await link.run("exchange", skew_ms, turn_in(turn), repeat=True, kept=kept)
    if reply[0] == b"missing":
        raise missing(reply[1].decode())
    now: int = reply[1]
    lost = tuple((task_id.decode(), int(fence)) for task_id, fence in _pairs(reply[2]))
    if reply[3] != b"going":
        return Deal(now=now, lost=lost, evicted=reply[3] == b"evicted")
    leases = tuple(leases_of(turn.token, reply[4]))
    if len(reply) == 5:
        return Deal(now=now, lost=lost, leases=leases)
    return Deal(
        now=now,
        lost=lost,
        leases=leases,
        cancel=tuple((task_id.decode(), why.decode()) for task_id, why in _pairs(reply[5])),
        next_due=reply[6],
        again=bool(reply[7]),
        pressure={queue.decode(): n for queue, n in _pairs(reply[8])},
        untold=bool(reply[9]),
    )


def _pairs(flat: list[Any]) -> zip[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)
