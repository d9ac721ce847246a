"""alter and sweep: the argument for the script, and its answer."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from outlast.core.model import Altered, Change, Swept
from outlast.engines.redis.link import Link
from outlast.engines.redis.wire import in_short, plain

AT_ONCE: Final = 200
"""Tasks that one call changes; each may have dependents, and meanwhile the server does no more."""
STALLED: Final = msgspec.json.encode(
    {
        "code": "stalled",
        "type": "Stalled",
        "message": "The worker that ran this attempt was lost.",
        "details": None,
        "traceback": None,
    }
)
_decode_swept: Final = msgspec.msgpack.Decoder(Swept).decode


async def alter(link: Link, ids: Sequence[str], change: Change, skew_ms: int) -> list[Altered]:
    """One answer per id, in order; each is a step of its own."""
    answers = []
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        argument = {"ids": some, "change": plain(change)}
        reply: list[Any] = await link.run("alter", skew_ms, argument)
        for task_id, (why, state) in zip(some, reply, strict=True):
            met = state.decode() or None
            answers.append(Altered(task_id, not why, why.decode() or None, met))
    return answers


async def sweep(link: Link, budget: int, gone: Sequence[str], skew_ms: int) -> Swept:
    argument = {
        "budget": budget,
        "gone": gone,
        "seed": secrets.randbits(31),  # Lua's own randomness is the same in every call
        "stalled": STALLED.decode(),
        "stalled_told": in_short(STALLED),
    }
    reply: bytes = await link.run("sweep", skew_ms, argument, repeat=True)
    return _decode_swept(reply)
