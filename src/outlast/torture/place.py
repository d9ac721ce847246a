"""A place of its own on the engine that is tortured: what is there already is never touched."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from outlast.core.errors import BadInput, EngineDown
from outlast.core.text import safe_url

NAMED: Final = {"postgresql": "schema", "postgres": "schema"} | dict.fromkeys(
    ("redis", "rediss", "valkey"), "namespace"
)
"""Scheme -> the parameter of its URLs that names a place; PostgreSQL's take both names."""
PORTS: Final = {"postgresql": 5432, "postgres": 5432, "redis": 6379, "valkey": 6379,
                "mongodb": 27017}  # fmt: skip
"""Schemes whose connections a proxy can stand between, and their usual ports."""


class Place(Struct, frozen=True):
    """A fresh namespace: its URL, its name, and how it is removed."""

    url: str
    name: str

    @property
    def scheme(self) -> str:
        return urlsplit(self.url).scheme

    @property
    def server(self) -> tuple[str, int] | None:
        """Where a proxy would connect to; None: a file, several hosts, or TLS to a name."""
        at = urlsplit(self.url)
        if at.scheme not in PORTS or "," in at.netloc:
            return None
        return at.hostname or "127.0.0.1", at.port or PORTS[at.scheme]

    def through(self, port: int) -> str:
        """The same place by way of a proxy on this machine."""
        at = urlsplit(self.url)
        login, mark, _ = at.netloc.rpartition("@")
        query = dict(parse_qsl(at.query))
        if at.scheme == "mongodb":  # else the driver goes on to the addresses that members name
            query = {k: v for k, v in query.items() if k.lower() != "replicaset"}
            query["directConnection"] = "true"
        return urlunsplit(
            at._replace(netloc=f"{login}{mark}127.0.0.1:{port}", query=urlencode(query))
        )

    async def remove(self) -> None:
        """Everything in it is deleted, and it with it."""
        try:
            await _REMOVE[self.scheme](self)
        except Exception as problem:
            raise EngineDown(
                f"{self.name} could not be removed from the engine ({problem}): do that by hand."
            ) from problem


def fresh(url: str, name: str) -> Place:
    """A place beside the one that the URL names."""
    at = urlsplit(url)
    if at.scheme == "sqlite":
        path, mark, settings = url.partition(":///")[2].partition("?")
        return Place(f"sqlite:///{Path(path).absolute()}.{name}{mark}{settings}", name)
    if at.scheme in NAMED:
        query = {k: v for k, v in parse_qsl(at.query) if k not in NAMED.values()}
        query[NAMED[at.scheme]] = name
        return Place(urlunsplit(at._replace(query=urlencode(query))), name)
    if at.scheme in ("mongodb", "mongodb+srv"):
        return Place(urlunsplit(at._replace(path=f"/{name}")), name)
    raise BadInput(
        f"{safe_url(url)!r} cannot be tortured: processes have to share it, as they share "
        "sqlite:///, postgresql://, redis:// or mongodb://."
    )


async def _remove_file(place: Place) -> None:
    """With the files and the folder that are kept beside it."""
    path = Path(place.url.partition(":///")[2].partition("?")[0])
    for file in path.parent.glob(f"{path.name}*"):
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink()


async def _remove_schema(place: Place) -> None:
    import asyncpg

    at = urlsplit(place.url)
    ours = {"schema", "namespace", "pool_size", "statement_cache_size", "listen", "listen_url"}
    query = urlencode([(k, v) for k, v in parse_qsl(at.query) if k not in ours])
    conn = await asyncpg.connect(urlunsplit(at._replace(scheme="postgresql", query=query)))
    try:
        await conn.execute(f"drop schema if exists {place.name} cascade")
    finally:
        await conn.close()


async def _remove_keys(place: Place) -> None:
    from redis.asyncio import Redis

    at = urlsplit(place.url)
    scheme = "redis" if at.scheme == "valkey" else at.scheme
    query = urlencode([(k, v) for k, v in parse_qsl(at.query) if k != "namespace"])
    async with Redis.from_url(urlunsplit(at._replace(scheme=scheme, query=query))) as client:
        some: list[Any] = []
        async for key in client.scan_iter(match=f"{{{place.name}}}:*", count=1_000):
            some.append(key)
            if len(some) == 1_000:
                await client.unlink(*some)
                some.clear()
        if some:
            await client.unlink(*some)


async def _remove_database(place: Place) -> None:
    from pymongo import AsyncMongoClient

    async with AsyncMongoClient[dict[str, object]](place.url) as client:
        await client.drop_database(place.name)


_REMOVE: Final[Mapping[str, Callable[[Place], Awaitable[None]]]] = {
    "sqlite": _remove_file,
    **dict.fromkeys(("postgresql", "postgres"), _remove_schema),
    **dict.fromkeys(("redis", "rediss", "valkey"), _remove_keys),
    **dict.fromkeys(("mongodb", "mongodb+srv"), _remove_database),
}
