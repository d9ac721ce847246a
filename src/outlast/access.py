"""Who may do what: roles and their rights, API keys, and the signed tokens of sessions.

A key is random, so its SHA-256 is all that is kept (records of kind `key`; or `OUTLAST_KEYS`, as
`role:key,role:key`). A token is for an end user: it names a session, and a user if there is one,
and is signed with `OUTLAST_SECRET` (several, apart by commas: the first signs, all are accepted).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from outlast.core.codec import dumps
from outlast.core.durations import Duration, to_ms
from outlast.core.errors import BadInput, NotFound, OutlastError, suggest
from outlast.core.limits import Limit
from outlast.core.model import Put, Task
from outlast.core.states import Ms
from outlast.engine import Engine
from outlast.options import Priority, name_of, priority_of

Role = Literal["admin", "operator", "client", "worker", "session"]
Right = Literal["look", "enqueue", "act", "inspect", "operate", "work", "admin"]
"""look at tasks; enqueue; act on one (cancel, signal); inspect queues, workers and limits; operate
(retry, pause, set limits, …); work (take leases); admin (keys, webhooks, the audit log)."""

READING: Final[frozenset[Right]] = frozenset({"look", "inspect"})
_CLIENT: Final[frozenset[Right]] = frozenset({"look", "enqueue", "act"})
RIGHTS: Final[Mapping[Role, frozenset[Right]]] = {
    "session": _CLIENT,
    "client": _CLIENT | {"inspect"},
    "worker": frozenset({"work", "inspect"}),
    "operator": _CLIENT | {"inspect", "operate"},
    "admin": frozenset(get_args(Right)),
}
KEY_ROLES: Final = ("admin", "operator", "client", "worker")

KEY: Final = "olk_"
TOKEN: Final = "olt_"  # noqa: S105  # how a token begins
LEAST_KEY: Final = 16  # characters of a key that somebody chose
FRESH_S: Final = 2.0  # how long a server may go on with a key that was revoked
MISSED_S: Final = 0.1  # how soon it looks again for a key that it does not know


class Quota(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a key may ask of a server in all; None is no bound."""

    living: int | None = None
    """Tasks of its that are not over."""
    tasks: int | None = None
    """Tasks it may enqueue in a day (UTC)."""
    bytes: int | None = None
    """Bytes of their payloads in a day."""
    streams: int | None = None
    """Streams and waits that it may have open with one server process."""


class Principal(Struct, frozen=True, kw_only=True):
    """Whoever sent a request. Without queues and types it may deal with all of them."""

    role: Role
    name: str
    id: str = ""
    """Of the key, for rate limits and the audit log."""
    session_id: str | None = None
    user_id: str | None = None
    priority: int | None = None
    """Of the tasks that it enqueues, where their type names none."""
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    read_only: bool = False
    rate: str | None = None
    quota: Quota | None = None
    until: Ms | None = None
    """When its token ends, and with it the streams that it has opened."""

    def may(self, right: Right) -> bool:
        return right in RIGHTS[self.role] and (right in READING or not self.read_only)

    @property
    def is_scoped(self) -> bool:
        """May it deal with some tasks only?"""
        return self.role == "session" or bool(self.queues or self.types)

    def covers(self, type: str, queue: str) -> bool:
        """Is this type in this queue in its scope?"""
        return (not self.types or type in self.types) and (not self.queues or queue in self.queues)

    def sees(self, task: Task) -> bool:
        """May it know of this task? One that it may not see does not exist for it."""
        return self.covers(task.type, task.queue) and self.owns(task.session_id, task.user_id)

    def owns(self, session_id: str | None, user_id: str | None) -> bool:
        """End users own what was made for their session, or for themselves."""
        if self.role != "session":
            return True
        mine = self.session_id is not None and session_id == self.session_id
        return mine or (self.user_id is not None and user_id == self.user_id)


ANYBODY: Final = Principal(role="admin", name="anybody")
"""Whoever reaches a server that has no keys: it listens on loopback only."""


# API keys ----------------------------------------------------------------------------------------


class Key(Struct, frozen=True, kw_only=True):
    """What is kept of an API key."""

    name: str
    role: Role
    hash: str
    created_at: Ms
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    read_only: bool = False
    rate: str | None = None
    quota: Quota | None = None
    expires_at: Ms | None = None

    @property
    def id(self) -> str:
        return self.hash[:12]

    @property
    def principal(self) -> Principal:
        return Principal(
            role=self.role,
            name=self.name,
            id=self.id,
            queues=self.queues,
            types=self.types,
            read_only=self.read_only,
            rate=self.rate,
            quota=self.quota,
        )


async def create_key(
    engine: Engine,
    role: str,
    *,
    name: str = "",
    queues: Sequence[str] = (),
    types: Sequence[str] = (),
    read_only: bool = False,
    rate: str | None = None,
    quota: Quota | None = None,
    expires: Duration | None = None,
) -> tuple[str, Key]:
    """A new key, in clear for this once, and what is kept of it."""
    if rate is not None:
        Limit("key", rate=rate)  # refuses what is no rate
    _check_quota(quota or Quota())
    text = KEY + secrets.token_urlsafe(32)
    now = await engine.now()
    ttl_ms = None if expires is None else to_ms(expires)
    key = Key(
        name=name_of(name or role, "name"),
        role=_role(role),
        hash=_hash(text),
        created_at=now,
        queues=tuple(name_of(queue, "queues") for queue in queues),
        types=tuple(name_of(type, "types") for type in types),
        read_only=read_only,
        rate=rate,
        quota=quota,
        expires_at=None if ttl_ms is None else now + ttl_ms,
    )
    value = msgspec.json.encode(key)
    await engine.put([Put(kind="key", key=key.id, value=value, expect=0, ttl_ms=ttl_ms)])
    return text, key


async def keys(engine: Engine) -> list[Key]:
    """The keys that are kept, oldest first."""
    found = [msgspec.json.decode(record.value, type=Key) for record in await engine.get("key")]
    return sorted(found, key=lambda key: key.created_at)


async def revoke_key(engine: Engine, id: str) -> None:
    if not await engine.get("key", [id]):
        raise NotFound(f"There is no key {id!r}.")
    await engine.put([Put(kind="key", key=id, value=None)])


class Keyring:
    """The keys of a server: those of the environment, and those in the engine."""

    def __init__(self, engine: Engine, environ: Mapping[str, str] = os.environ) -> None:
        self._engine = engine
        self._given = {key.hash: key for key in _given(environ.get("OUTLAST_KEYS", ""))}
        self._kept: dict[str, Key] = {}
        self._read_at = float("-inf")
        self._changed = asyncio.Event()
        """Set when other keys are kept than before, and then replaced."""
        self._staying = 0
        self._watch: asyncio.Task[None] | None = None

    async def exist(self) -> bool:
        """Must requests carry a key?"""
        await self._refresh()
        return bool(self._given or self._kept)

    async def find(self, text: str) -> Principal | None:
        """Whose key this is."""
        await self._refresh()
        hash = _hash(text)
        if hash not in self._given and hash not in self._kept:
            await self._refresh(MISSED_S)  # it may have been made just now
        key = self._given.get(hash) or self._kept.get(hash)
        return None if key is None else key.principal

    async def by_id(self, id: str) -> Principal | None:
        """Whose key has this id, if it is still good."""
        await self._refresh()
        for key in (*self._given.values(), *self._kept.values()):
            if key.id == id:
                return key.principal
        return None

    async def lost(self, id: str) -> None:
        """Until this key is good no more: it was revoked, or its time is over. Whoever was let in
        without a key, as there were none, stays until there are some."""
        self._staying += 1
        if self._watch is None:
            self._watch = asyncio.create_task(self._look())
        try:
            while self._is_good(id):
                await self._changed.wait()
        finally:
            self._staying -= 1
            if not self._staying:
                self._watch.cancel()
                self._watch = None

    async def reread(self) -> None:
        """Keys were made or revoked here."""
        await self._refresh(0)

    def _is_good(self, id: str) -> bool:
        every = (*self._given.values(), *self._kept.values())
        return any(key.id == id for key in every) if id else not every

    async def _look(self) -> None:
        """For all who stay: one reader, which an engine that is away does not end."""
        while True:
            await asyncio.sleep(FRESH_S)
            with suppress(OutlastError):
                await self._refresh()

    async def _refresh(self, fresh_s: float = FRESH_S) -> None:
        if time.monotonic() - self._read_at < fresh_s:
            return
        kept = {key.hash: key for key in await keys(self._engine)}
        self._read_at = time.monotonic()
        if kept.keys() != self._kept.keys():
            self._kept = kept
            self._changed.set()
            self._changed = asyncio.Event()


def _given(text: str) -> list[Key]:
    found = []
    for place, entry in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        role, _, secret = entry.partition(":")
        if len(secret) < LEAST_KEY:
            raise BadInput(
                f"OUTLAST_KEYS, entry {place}: write role:key with a key of {LEAST_KEY} characters"
                " or more, and commas between entries.",
                field="OUTLAST_KEYS",
            )
        key_role = _role(role)
        found.append(Key(name=key_role, role=key_role, hash=_hash(secret), created_at=0))
    return found


def _check_quota(quota: Quota) -> None:
    for name, most in asdict(quota).items():
        if most is not None and not 0 < most < 2**53:
            raise BadInput(f"quota.{name}: give 1 or more, or nothing.", field=f"quota.{name}")


def _role(text: str) -> Role:
    for role in RIGHTS:
        if text == role and role in KEY_ROLES:
            return role
    hint = suggest(text, KEY_ROLES) or "."
    raise BadInput(f"There is no role {text[:40]!r}{hint} {', '.join(KEY_ROLES)}.", field="role")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# Session tokens ----------------------------------------------------------------------------------


class Claims(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a token says of its bearer."""

    session_id: str
    until: Ms
    user_id: str | None = None
    types: tuple[str, ...] = ()
    priority: int | None = None


class Signer:
    """Signs what a server hands out and wants to recognise when it comes back."""

    def __init__(self, engine: Engine, environ: Mapping[str, str] = os.environ) -> None:
        self._engine = engine
        given = environ.get("OUTLAST_SECRET", "").split(",")
        self._secrets = [secret.strip().encode() for secret in given if secret.strip()]
        if any(len(secret) < LEAST_KEY for secret in self._secrets):
            raise BadInput(
                f"OUTLAST_SECRET: give {LEAST_KEY} characters or more.", field="OUTLAST_SECRET"
            )

    async def token(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        types: Sequence[str] = (),
        priority: Priority | None = None,
        ttl: Duration = "12h",
    ) -> str:
        """A token for an end user: it opens the tasks of this session, and of this user. Its
        `priority` is that of what they enqueue, where the type names none."""
        claims = Claims(
            session_id=name_of(session_id, "session_id"),
            user_id=None if user_id is None else name_of(user_id, "user_id"),
            types=tuple(name_of(type, "types") for type in types),
            priority=None if priority is None else priority_of(priority),
            until=await self._engine.now() + to_ms(ttl),
        )
        return TOKEN + await self.sign(msgspec.json.encode(claims), b"token")

    async def bearer(self, token: str) -> Principal | None:
        """Whose token this is, unless it is forged or too old."""
        told = await self.signed(token.removeprefix(TOKEN), b"token")
        if told is None:
            return None
        claims = msgspec.json.decode(told, type=Claims)
        if claims.until <= await self._engine.now():
            return None
        return Principal(
            role="session",
            name=claims.session_id,
            session_id=claims.session_id,
            user_id=claims.user_id,
            types=claims.types,
            priority=claims.priority,
            until=claims.until,
        )

    async def sign(self, data: bytes, purpose: bytes) -> str:
        """What is signed for one purpose is good for no other."""
        secret = (await self._known())[0]
        return f"{_text(data)}.{_text(hmac.digest(secret, purpose + data, 'sha256'))}"

    async def signed(self, text: str, purpose: bytes) -> bytes | None:
        """The data, if one of the secrets has signed it."""
        data, _, mark = map(_bytes, text.partition("."))
        fits = (
            hmac.compare_digest(mark, hmac.digest(secret, purpose + data, "sha256"))
            for secret in await self._known()
        )
        return data if any(fits) else None

    async def _known(self) -> list[bytes]:
        """From the environment; else one that all servers on this engine share."""
        if not self._secrets:
            made = dumps(secrets.token_urlsafe(32), "secret")
            await self._engine.put([Put(kind="secret", key="session", value=made, expect=0)])
            [kept] = await self._engine.get("secret", ["session"])
            self._secrets = [kept.value]
        return self._secrets


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""
