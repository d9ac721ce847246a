"""The streams: their names, what an event looks like in them, and how one is added or read.

An entry has the four fields of an event: `event_id`, `event_type`, `timestamp`, and `data` as JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec
import redis.asyncio as redis
from msgspec import Struct
from redis.exceptions import ResponseError

from outlast.core.errors import BadInput
from outlast.core.states import Ms
from outlast.views import iso

logger: Final = logging.getLogger("outlast.streams")

CREATE: Final = "agent:stream:task.create"
COMPLETED: Final = "agent:stream:task.completed"
FAILED: Final = "agent:stream:task.failed"
TIMEOUT: Final = "agent:stream:task.timeout"
DLQ: Final = "agent:stream:task.dlq"
NOTIFICATIONS: Final = "user:stream:notifications:{}"
ANSWERS: Final = (COMPLETED, FAILED, TIMEOUT)

GROUP: Final = "agent-group"
BATCH: Final = 10
BLOCK_MS: Final = 1_000
DAY_MS: Final = 86_400_000
KEEP_MS: Final = DAY_MS
KEEP_DLQ_MS: Final = 7 * DAY_MS
MAX_DATA: Final = 2_000_000
"""Bytes of the data of an event: a result of 1 MiB, and what is around it."""

_SPACE: Final = UUID("b1d7a0c2-3a57-4f0e-9c55-51a3c3b1f7de")
_MARK: Final = "agent:published:{}"

Entry = tuple[str, Mapping[bytes, bytes] | None]


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened, as the streams tell it."""

    event_id: str
    event_type: str
    timestamp: str
    data: dict[str, Any]


def event(kind: str, at: Ms, data: dict[str, Any], *, of: str) -> Event:
    """The same `kind` of the same thing (`of`) is the same event, however often it is made."""
    id = str(uuid5(_SPACE, f"{kind} {of}"))
    return Event(event_id=id, event_type=kind, timestamp=iso(at) or "", data=data)


def read_event(fields: Mapping[bytes, bytes]) -> Event:
    """What somebody else has written."""
    data = fields.get(b"data", b"")
    if len(data) > MAX_DATA:
        raise BadInput(f"data has {len(data):,} bytes; {MAX_DATA:,} are the most.")
    try:
        told = msgspec.json.decode(data, type=dict[str, Any])
    except (ValueError, RecursionError) as problem:  # also no UTF-8, or nested without end
        raise BadInput(f"data is not a JSON object: {problem}.") from problem
    names = ("event_id", "event_type", "timestamp")
    texts = {name: fields.get(name.encode(), b"")[:200].decode(errors="replace") for name in names}
    return Event(**texts, data=told)


class Streams:
    """The connection to the server that has the streams."""

    def __init__(self, url: str) -> None:
        self._redis: redis.Redis = redis.Redis.from_url(
            url, socket_connect_timeout=5, socket_timeout=BLOCK_MS / 1_000 + 10
        )
        text = files("outlast.systems.streams").joinpath("publish.lua").read_text()
        self._publish = self._redis.register_script(text)

    async def close(self) -> None:
        await self._redis.aclose()

    async def publish(self, stream: str, event: Event) -> None:
        """Add it, unless it is there already."""
        keep_ms, goes = (KEEP_DLQ_MS, "1") if stream == DLQ else (KEEP_MS, "0")
        if stream.startswith(NOTIFICATIONS.format("")):
            goes = "1"
        fields = {**msgspec.structs.asdict(event), "data": msgspec.json.encode(event.data)}
        flat = [part for pair in fields.items() for part in pair]
        keys = [stream, _MARK.format(event.event_id)]
        if await self._publish(keys=keys, args=[keep_ms, goes, *flat]) is not None:
            logger.debug("Event published: stream=%s, event_id=%s", stream, event.event_id)

    async def make_group(self) -> None:
        """The agent's group on the answers, from their beginning; also after they were lost."""
        for stream in ANSWERS:
            try:
                await self._redis.xgroup_create(stream, GROUP, id="0", mkstream=True)
            except ResponseError as problem:
                if "BUSYGROUP" not in str(problem):
                    raise

    async def read(self, consumer: str, *, new: bool) -> list[tuple[str, list[Entry]]]:
        """Entries that came, waiting for a second; or those that this consumer had before."""
        found: Any = await self._redis.xreadgroup(
            GROUP,
            consumer,
            dict.fromkeys(ANSWERS, ">" if new else "0"),
            count=BATCH,
            block=BLOCK_MS if new else None,
        )
        return [(_text(stream), _entries(entries)) for stream, entries in found or ()]

    async def claim(self, consumer: str, idle_ms: int) -> list[tuple[str, list[Entry]]]:
        """Entries that another consumer took and has not acknowledged for so long."""
        found = []
        for stream in ANSWERS:
            _, entries, *_ = await self._redis.xautoclaim(
                stream, GROUP, consumer, idle_ms, "0-0", count=BATCH
            )
            found.append((stream, _entries(entries)))
        return found

    async def acknowledge(self, stream: str, id: str) -> None:
        await self._redis.xack(stream, GROUP, id)

    async def leave(self, consumer: str) -> None:
        """A consumer that holds nothing is forgotten; one that does is claimed from by others."""
        for stream in ANSWERS:
            pending = await self._redis.xpending_range(stream, GROUP, "-", "+", 1, consumer)
            if not pending:
                await self._redis.xgroup_delconsumer(stream, GROUP, consumer)


def _entries(found: Sequence[tuple[bytes, Mapping[bytes, bytes] | None]]) -> list[Entry]:
    return [(_text(id), fields) for id, fields in found]


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
