"""The way to the server: connections, scripts by their SHA, and errors that say what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final, TypeVar

import redis.asyncio as redis
from redis.asyncio.connection import AbstractConnection
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    InvalidResponse,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from outlast.core.errors import EngineDown, EngineFull, OutlastError
from outlast.engines.redis.wire import pack

T = TypeVar("T")

PACKAGE: Final = "outlast.engines.redis"
OLDEST_REDIS: Final = 7
CONFIRM_MS: Final = 2_000
"""How long a write waits for the replicas that the URL asks for."""
SETTINGS: Final = (
    "appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory", "maxmemory-policy",
)  # fmt: skip
CONNECTIONS: Final = 16
"""Calls of one engine that are under way at once; more wait. The server runs one at a time."""

_WRITES: Final = "#!lua\n"  # refused before it starts when the memory is full
_GOES_ON: Final = "#!lua flags=allow-oom\n"  # ends work and frees memory: must not be refused then

_SCRIPTS: Final[dict[str, tuple[str, tuple[str, ...], str]]] = {
    "enqueue": (_WRITES, ("lib", "log", "gate", "ends", "enqueue"), "enqueue_all()"),
    "exchange": (_GOES_ON, ("lib", "log", "gate", "ends", "enqueue", "exchange"), "exchange()"),
    "alter": (_GOES_ON, ("lib", "log", "gate", "ends", "alter"), "alter()"),
    "sweep": (_GOES_ON, ("lib", "log", "gate", "ends", "alter", "sweep"), "sweep()"),
    "put": (_WRITES, ("lib", "log", "gate", "put"), "put()"),
    "append": (_WRITES, ("lib", "log", "gate", "append"), "append()"),
    "load": (_WRITES, ("lib", "log", "gate", "ends", "load"), "load_items()"),
}
"""Verb -> (first line, the files it is put together from, what it calls)."""

_END: Final = """
local answer = {call}
flush()
write_gauges()
publish()
if ARGV[3] then call('HSET', ns .. 'meta', 'kept', now) end
return answer
"""


@cache
def script(name: str) -> tuple[bytes, str]:
    """The text of a verb's script and its SHA1, which is its name on the server."""
    folder = files(PACKAGE)
    if name not in _SCRIPTS:
        text = folder.joinpath(f"{name}.lua").read_text()
    else:
        first, parts, call = _SCRIPTS[name]
        bodies = [folder.joinpath(f"{part}.lua").read_text() for part in parts]
        text = first + "\n".join(bodies) + _END.format(call=call)
    return text.encode(), sha1(text.encode(), usedforsecurity=False).hexdigest()


_NOT_NOW: Final = {
    "NOREPLICAS": "has fewer replicas than its min-replicas-to-write asks for, and so takes no "
    "writes: start them again, or lower it.",
    "BUSY": "is busy with a script that takes long; try again in a moment. If it never ends and is "
    "none of Outlast: SCRIPT KILL.",
}
"""What a server says that may not or cannot serve for the moment."""


def too_old(name: str, version: str) -> str | None:
    """What is wrong with a server of this name and version, if anything is."""
    major = int(version.partition(".")[0])
    if name.lower() != "redis" or major >= OLDEST_REDIS:
        return None
    return f"is Redis {version}, which is too old: upgrade it to Redis 7, or to Valkey."


def _client(url: str, **elsewhere: object) -> redis.Redis:
    # Nothing is repeated behind our back: only we know what may be sent twice.
    pool = redis.BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS,
        timeout=30,
        protocol=2,
        socket_connect_timeout=5,
        socket_timeout=30,  # a server that stands still must not hold its callers for ever
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
    )
    pool.connection_kwargs.update(elsewhere)
    # It says at once when the URL has a parameter that nobody knows.
    pool.make_connection()  # type: ignore[no-untyped-call]
    client: redis.Redis = redis.Redis.from_pool(pool)
    client.response_callbacks.clear()  # replies as the server sends them
    return client


async def asked(target: Target) -> tuple[str, int] | None:
    """The primary, from the sentinel that has heard of the latest failover: one that is cut off
    from the others goes on naming the one before."""
    told = await asyncio.gather(*(_told(target.primary, *each) for each in target.sentinels))
    return max((each for each in told if each is not None), default=(0, None))[1]


async def _told(primary: str, host: str, port: int) -> tuple[int, tuple[str, int]] | None:
    """What a sentinel knows: how many failovers there were, and who the primary is."""
    client = _client(f"redis://{host}:{port}", socket_connect_timeout=1, socket_timeout=1)
    try:
        async with client.pipeline(transaction=False) as pipe:
            pipe.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", primary)
            pipe.execute_command("SENTINEL", "MASTER", primary)
            named, about = await pipe.execute()
    except (RedisError, OSError):
        return None
    finally:
        await client.aclose()
    if not named:
        return None
    fields = dict(zip(about[::2], about[1::2], strict=True))
    return int(fields[b"config-epoch"]), (named[0].decode(), int(named[1]))


def _about_tls(url: str, *, odd: bool) -> str:
    """Both ways round, a mismatch looks like a server that says nothing, hangs up, or is odd."""
    if url.startswith("rediss:"):
        return ", does it speak TLS (else write redis://)"
    return ", does it want TLS (then write rediss://)" if odd else ""


def _lost(error: Exception) -> bool:
    """Did the connection break, so that nobody knows whether the command was run?"""
    broken = isinstance(error, ConnectionError | TimeoutError | OSError)
    return broken and not isinstance(error, AuthenticationError | BusyLoadingError)


@dataclass(frozen=True, slots=True)
class Target:
    """Where an engine's server is, and what it must promise."""

    url: str
    """For the driver. With sentinels its host says nothing."""
    shown: str
    sentinels: tuple[tuple[str, int], ...] = ()
    primary: str = ""
    """The name that the sentinels know it by."""
    replicas: int = 0
    """How many of them must have a write before it is acknowledged."""


class Unconfirmed(Exception):
    """Too few replicas have told that they have it."""


class Link:
    """The connections of one engine to one namespace."""

    def __init__(self, target: Target, prefix: str) -> None:
        self.prefix = prefix
        self._target = target
        self._url = target.url
        self._shown = target.shown
        self._node: tuple[str, int] | None = None
        self.client = self._client_at(None)
        self.settings: dict[str, str] = {}
        """Those that matter, of the server that answers now; none that this user may not read."""
        self._connected = 0
        """How many connections were made: each may lead to another server, or to the same one with
        other settings."""
        self._asked = 0
        """How many there were when the settings were asked for."""

    async def close(self) -> None:
        await self.client.aclose()

    async def run(
        self, name: str, skew_ms: int, argument: object, *, repeat: bool = False, kept: bool = True
    ) -> Any:
        """A verb's script. `repeat`: it may be sent again when its reply was lost. `kept`: what it
        answers is a promise, so the replicas that the URL asks for must have it."""
        values = [str(skew_ms).encode(), pack(argument)]
        return await self.eval(name, values, repeat=repeat, kept=kept)

    async def eval(
        self, name: str, values: Sequence[bytes], *, repeat: bool = False, kept: bool = False
    ) -> Any:
        text, sha = script(name)
        send = self._send
        if kept and self._target.replicas:
            # Behind a step that wrote nothing, like one that is repeated, WAIT would not wait.
            send, values = self._send_kept, [*values, b"kept"]
        command = ["EVALSHA", sha, 1, self.prefix, *values]
        try:
            return await self._trying(lambda: send(command), repeat)
        except NoScriptError:
            # The server was restarted, or its scripts were flushed. EVAL loads it for the others.
            command = ["EVAL", text, 1, self.prefix, *values]
            return await self._trying(lambda: send(command), repeat)

    async def do(self, *command: Any, repeat: bool = True) -> Any:
        """One command; reads and idempotent steps go a second time over a new connection."""
        return await self._trying(lambda: self._send(command), repeat)

    async def _send(self, command: Sequence[Any]) -> Any:
        return await self.client.execute_command(*command)  # type: ignore[no-untyped-call]

    async def _send_kept(self, command: Sequence[Any]) -> Any:
        """WAIT is about the writes of its own connection, so both travel together."""
        async with self.client.pipeline(transaction=False) as pipe:
            pipe.execute_command(*command)
            pipe.execute_command("WAIT", self._target.replicas, CONFIRM_MS)
            answer, have = await pipe.execute(raise_on_error=False)
        for reply in (answer, have):
            if isinstance(reply, Exception):
                raise reply
        if have < self._target.replicas:
            raise Unconfirmed(f"{have} of {self._target.replicas} replicas")
        return answer

    async def _trying(self, send: Callable[[], Awaitable[T]], repeat: bool) -> T:
        answer = await self._answer(send, repeat)
        if self._asked != self._connected:
            await self._ask_settings()
        return answer

    async def _answer(self, send: Callable[[], Awaitable[T]], repeat: bool) -> T:
        try:
            return await send()
        except NoScriptError:
            raise
        except MovedError as moved:
            await self._follow((moved.host, moved.port))  # it was not run
        except (RedisError, OSError, Unconfirmed) as error:
            demoted = isinstance(error, ReadOnlyError)  # nor was this
            if _lost(error) or demoted:
                await self.find()
            if not (demoted or (repeat and _lost(error))):
                raise self.explain(error) from error
        try:
            return await send()
        except NoScriptError:
            raise
        except (RedisError, OSError, Unconfirmed) as error:
            raise self.explain(error) from error

    async def _ask_settings(self) -> None:
        """What the server that has just answered is set to."""
        found: dict[str, str] = {}
        connected = self._connected
        try:
            for name in SETTINGS:
                told = await self._send(("CONFIG", "GET", name))
                found |= {told[i].decode(): told[i + 1].decode() for i in range(0, len(told), 2)}
        except ResponseError:
            found = {}  # this user may not
        except (RedisError, OSError):
            found, connected = {}, -1  # gone again
        self.settings, self._asked = found, connected

    async def find(self) -> None:
        """Where the server is now: whom the sentinels name, else whom the URL names."""
        self.settings, self._asked = {}, -1
        if not self._target.sentinels:
            if self._node is None:
                # A name that led to the old primary may lead to the new one.
                await self.client.connection_pool.disconnect(inuse_connections=False)
            await self._follow(None)
            return
        named = await asked(self._target)
        if named is None:
            raise EngineDown(
                f"No sentinel knows the primary {self._shown}. Do they run, and is that its name?"
            )
        await self._follow(named)

    async def _follow(self, node: tuple[str, int] | None) -> None:
        """To the node of a cluster that has our slot: there is one, since all keys share it. When
        that node is lost, back to the one of the URL, which knows the next."""
        if node == self._node:
            return  # another caller was here before
        before, self._node = self.client, node
        self.client = self._client_at(node)
        await before.aclose()

    def _client_at(self, node: tuple[str, int] | None) -> redis.Redis:
        where = {} if node is None else {"host": node[0], "port": node[1]}
        return _client(self._url, redis_connect_func=self._connect, **where)

    async def _connect(self, connection: AbstractConnection) -> None:
        self._connected += 1
        await connection.on_connect()

    async def pairs(self, *command: Any) -> list[tuple[Any, Any]]:
        """A flat reply of names and values, two by two."""
        flat = await self.do(*command)
        return list(zip(flat[::2], flat[1::2], strict=True))

    async def pipe(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Several reads at once."""
        return await self._trying(lambda: self._read(commands), True) if commands else []

    async def _read(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        async with self.client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            found: list[Any] = await pipe.execute()
        return found

    def explain(self, error: Exception) -> OutlastError:
        """The driver's error as one of ours, with the cure in the message."""
        where = f"Redis at {self._shown}"
        match error:
            case Unconfirmed():
                return EngineDown(
                    f"{where} has made the change, but only {error} had it after {CONFIRM_MS} ms: "
                    "a failover may lose it. Tasks may be sent again with the same ids when the "
                    "replicas are back; a signal would come twice. Or lower ?replicas=."
                )
            case AuthenticationError():
                return EngineDown(
                    f"{where} refuses the user or password of the URL: write the right ones, as in "
                    "redis://user:password@host:6379/0."
                )
            case NoPermissionError():
                return EngineDown(f"{where}: {error}. docs/engines/redis.md has the ACL it needs.")
            case ReadOnlyError():
                return EngineDown(f"{where} is a read-only replica: connect to the primary.")
            case OutOfMemoryError():
                return EngineFull(
                    f"{where} has no memory left. Nothing was stored; raise maxmemory, or set a "
                    "retention so that finished tasks go."
                )
            case InvalidResponse():
                return EngineDown(
                    f"{where} answers, but that is no Redis ({error}): is the port right"
                    f"{_about_tls(self._url, odd=True)}?"
                )
            case BusyLoadingError():
                return EngineDown(f"{where} is still loading its data; try again in a moment.")
            case TimeoutError() | ConnectionError() | OSError():
                told = (str(error) or type(error).__name__).rstrip(".")
                return EngineDown(
                    f"{where} cannot be reached: {told}. Is it running, is the URL right"
                    f"{_about_tls(self._url, odd='closed' in told)}?"
                )
        text = str(error)
        if "DB index is out of range" in text:
            return EngineDown(f"{where} has no database of that number: write /0 in the URL.")
        for code, told in _NOT_NOW.items():
            if text.startswith(code):
                return EngineDown(f"{where} {told}")
        if text.startswith("MISCONF") or "No space left" in text:
            return EngineFull(f"{where} cannot write to its disk. Nothing was stored. ({text})")
        if isinstance(error, ResponseError) and "unknown command" in text.lower():
            return EngineDown(f"{where} is too old: upgrade it to Redis 7, or to Valkey. ({text})")
        return EngineDown(f"{where}: {type(error).__name__}: {text}")
