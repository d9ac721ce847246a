"""After a rotation of keys: records are sealed anew, and what still needs an older key is counted.

Ended tasks and events cannot be changed; they go with their retention, and then the key can go.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from outlast.core.model import Dumped, Event, Item, Json, Put, Record
from outlast.core.seal import Seal, key_of
from outlast.engine import Engine
from outlast.sealed import place_of

_KEYS: Final = re.compile(rb'\{"\$enc":"([\w.-]+):')


class Rotated(Struct, frozen=True):
    """What was done, and the tasks and events that each other key is still needed for."""

    records: int
    needed: dict[str, int]


async def rotate(engine: Engine, seal: Seal) -> Rotated:
    """Seal every record with the first key. `engine` is one that is not sealed itself."""
    records, needed, now = 0, Counter[str](), await engine.now()
    page = await engine.dump()
    while True:
        for item in page.items:
            others = set(_keys_in(item)) - {*seal.names[:1]}
            if others and item.kind == "record":
                records += await _anew(
                    engine, seal, msgspec.json.decode(item.data, type=Record), now
                )
            else:
                needed.update(others)
        if page.next is None:
            return Rotated(records, dict(needed))
        page = await engine.dump(page.next)


async def _anew(engine: Engine, seal: Seal, record: Record, now: int) -> bool:
    """False when somebody has written it meanwhile: with the first key, if they have it."""
    where, ends = place_of(record), record.expires_at
    put = Put(
        kind=record.kind,
        key=record.key,
        value=seal.close(seal.open(record.value, where, "value"), where, "value"),
        expect=record.version,
        ttl_ms=None if ends is None else max(ends - now, 1),
    )
    [written] = await engine.put([put])
    return written is not None


def _keys_in(item: Item) -> Iterator[str]:
    """The ids of the keys that a thing was sealed with."""
    for data in _documents(item):
        yield from (found.decode() for found in _KEYS.findall(data))


def _documents(item: Item) -> Iterator[Json]:
    match item.kind:
        case "record":
            value = msgspec.json.decode(item.data, type=Record).value
            yield value if key_of(value) else b""
        case "event":
            yield msgspec.json.decode(item.data, type=Event).data
        case "task":
            dumped = msgspec.json.decode(item.data, type=Dumped)
            task = dumped.task
            yield from (task.payload, task.meta, task.attempts)
            yield from (data for data in (task.result, task.error, task.progress) if data)
            yield from (value for _, value, _ in dumped.steps)
            yield from (signal.data for signal in dumped.signals)
