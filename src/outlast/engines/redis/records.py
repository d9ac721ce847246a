"""Small versioned documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from outlast.core.errors import BadInput
from outlast.core.limits import Limit
from outlast.core.model import Put, Record
from outlast.core.states import Ms
from outlast.engines.redis.link import Link
from outlast.engines.redis.wire import plain

_answers: Final = msgspec.msgpack.Decoder(list[bool | tuple[int, Ms | bool]]).decode
_stored: Final = msgspec.msgpack.Decoder(tuple[str, int, Ms | bool]).decode


async def put(link: Link, puts: Sequence[Put], skew_ms: int) -> list[Record | None]:
    if not puts:
        return []
    for one in puts:
        if one.kind == "limit" and one.value is not None:
            check_limit(one.value)
    reply: bytes = await link.run("put", skew_ms, plain(puts))
    written: list[Record | None] = []
    for one, answer in zip(puts, _answers(reply), strict=True):
        if isinstance(answer, bool) or one.value is None:
            written.append(None)
            continue
        version, expires_at = answer
        written.append(
            Record(
                kind=one.kind,
                key=one.key,
                value=one.value,
                version=version,
                expires_at=_moment(expires_at),
            )
        )
    return written


def check_limit(value: bytes) -> None:
    """Scripts reckon with it: what is no definition must not get there."""
    try:
        Limit.from_json(msgspec.json.decode(value, type=dict[str, object]))
    except msgspec.DecodeError as error:
        raise BadInput(f"A record of kind limit holds a definition: {error}") from error


async def get(link: Link, kind: str, keys: Sequence[str] | None, now: Ms) -> list[Record]:
    """Those that have not expired, by key."""
    name = f"{link.prefix}rec:{kind}"
    if keys is None:
        found = dict(await link.pairs("HGETALL", name))
    elif keys:
        found = dict(zip(keys, await link.do("HMGET", name, *keys), strict=True))
    else:
        found = {}
    records = [record_of(kind, key, raw) for key, raw in found.items() if raw is not None]
    living = [r for r in records if r.expires_at is None or r.expires_at > now]
    return sorted(living, key=lambda record: record.key)


def record_of(kind: str, key: str | bytes, raw: bytes) -> Record:
    value, version, expires_at = _stored(raw)
    return Record(
        kind=kind,
        key=key.decode() if isinstance(key, bytes) else key,
        value=value.encode(),
        version=version,
        expires_at=_moment(expires_at),
    )


def _moment(at: Ms | bool) -> Ms | None:
    return None if isinstance(at, bool) else at
