"""Where a task comes from that runs another one again: what it was given of that one's memory.

Kept in the task's `meta`, which no engine needs to know and which is sealed like a payload. The
steps stand before those that the task stores itself.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from outlast.core.model import Json, Step, TaskId

_encode: Final = msgspec.json.Encoder().encode


class Origin(Struct, frozen=True):
    """The task that was run again, and the steps that came along, in order."""

    id: TaskId
    steps: tuple[tuple[str, Raw], ...] = ()

    @classmethod
    def of(cls, id: TaskId, steps: tuple[Step, ...]) -> Origin:
        return cls(id, tuple((step.key, Raw(step.value)) for step in steps))

    @property
    def carried(self) -> tuple[Step, ...]:
        return tuple(Step(key, bytes(value)) for key, value in self.steps)


class _Meta(Struct):
    origin: Origin | None = None


class _Named(Struct):
    id: TaskId


class _Head(Struct):
    origin: _Named | None = None


_meta: Final = msgspec.json.Decoder(_Meta)
_head: Final = msgspec.json.Decoder(_Head)


def origin_of(meta: Json) -> Origin | None:
    """None for the many that have none, at the price of one look."""
    return _meta.decode(meta).origin if b'"origin"' in meta else None


def origin_id(meta: Json) -> TaskId | None:
    """Only whose work it does again."""
    told = _head.decode(meta).origin if b'"origin"' in meta else None
    return None if told is None else told.id


def with_origin(meta: Json, origin: Origin) -> Json:
    told = msgspec.json.decode(meta, type=dict[str, Raw])
    return _encode({**told, "origin": origin})
