"""Connections to PostgreSQL: the pool, the schema and its migrations, errors that name the cure."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec
from msgspec import Struct

from outlast.core.errors import BadInput, EngineDown, EngineFull, OutlastError, UnknownEngine
from outlast.core.text import safe_url

T = TypeVar("T")
Row = Any

PACKAGE: Final = "outlast.engines.postgres"
STEPS: Final = ("schema.sql",)
"""What each version adds to the tables; the functions are made anew after the last one."""
OLDEST_SERVER: Final = 140_000
FUNCTIONS: Final = (
    "gate.sql", "ends.sql", "enqueue.sql", "exchange.sql", "records.sql", "alter.sql", "sweep.sql",
    "read.sql",
)  # fmt: skip
TRIES: Final = 6
"""Turns that met a deadlock go again: PostgreSQL has undone them completely."""
COMMAND_S: Final = 60.0
CUT: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""What asyncpg raises where a connection broke, its own surprise about that included."""

encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.decode


class Settings(Struct, frozen=True):
    """What a URL says."""

    dsn: str
    schema: str
    pool_size: int
    statement_cache_size: int
    listen: str | None
    """The address to listen at; None: do not listen, poll."""

    @property
    def where(self) -> str:
        """The server without user and password: messages end up in logs."""
        at = urlsplit(self.dsn)
        return f"PostgreSQL at {_hosts(at) or 'the local socket'}{at.path}"


def _hosts(at: SplitResult) -> str:
    """One or several, with their ports."""
    return at.netloc.rpartition("@")[2]


def _address(url: str) -> SplitResult:
    """The parts of an address that asyncpg can use."""
    cure = "write postgresql://user:password@host:5432/database"
    try:
        at = urlsplit(url)
    except ValueError as error:  # its words for a bracket anywhere are about IPv6
        raise UnknownEngine(
            f"{safe_url(url)!r} is no address ({error}): {cure}, and %5B for a [ in the password."
        ) from error
    if at.scheme not in ("postgresql", "postgres"):
        raise UnknownEngine(f"{safe_url(url)!r} is no address of PostgreSQL: {cure}.")
    for host in _hosts(at).split(","):
        _, colon, port = host.rpartition("]")[2].rpartition(":")
        if colon and not (port.isdecimal() and int(port) < 65_536):
            raise UnknownEngine(f"{safe_url(url)!r} has no port that is a number: {cure}.")
    return at


def settings_of(url: str) -> Settings:
    """`postgresql://user:password@host/db?schema=outlast&pool_size=10`, and what asyncpg takes.

    Behind PgBouncer in transaction mode: `statement_cache_size=0` (before its release 1.21), and
    `listen_url=` with a direct address, or `listen=off` to poll.
    """
    at = _address(url)
    options = dict(parse_qsl(at.query))
    schema = options.pop("schema", None) or options.pop("namespace", "outlast")
    # The channel of its hints is named after it, and PostgreSQL's names have 63 characters.
    if not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,54}", schema):
        raise UnknownEngine(
            f"?schema={schema}: write lower-case letters, digits and underscores, 55 at most, and "
            "not pg_ in front."
        )
    try:
        pool_size = int(options.pop("pool_size", "10"))
        cache = int(options.pop("statement_cache_size", "100"))
    except ValueError as error:
        raise UnknownEngine("pool_size and statement_cache_size are numbers.") from error
    listening = options.pop("listen", "on")
    listen_url = options.pop("listen_url", None)
    dsn = urlunsplit(("postgresql", at.netloc, at.path, urlencode(options), ""))
    if listen_url:
        _address(listen_url)
    listen = None if listening == "off" else listen_url or dsn
    return Settings(dsn, schema, max(pool_size, 1), cache, listen)


class Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """No reset when it goes back to the pool: nothing here leaves state in a session."""

    def get_reset_query(self) -> str:
        return ""


async def open_pool(
    settings: Settings, init: Callable[[asyncpg.Connection], Awaitable[None]]
) -> asyncpg.Pool:
    """Connections, each made ready by `init`."""
    try:
        return await asyncpg.create_pool(
            settings.dsn,
            min_size=1,
            max_size=settings.pool_size,
            connection_class=Connection,
            statement_cache_size=settings.statement_cache_size,
            command_timeout=COMMAND_S,
            timeout=10,
            init=init,
        )
    except Exception as error:
        raise explain(error, settings) from error


async def run(
    settings: Settings, call: Callable[[], Awaitable[T]], *, repeatable: bool = False
) -> T:
    """A call to the server; errors become ours, and what lost a deadlock goes again.

    A repeatable call whose connection broke goes once more, on another one: it may have been cut
    while nobody used it.
    """
    for tries in range(TRIES):
        try:
            return await call()
        except (*CUT, asyncpg.PostgresConnectionError) as error:
            if not repeatable:
                raise explain(error, settings) from error
            repeatable = False
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
            if tries == TRIES - 1:
                raise explain(error, settings) from error
            await asyncio.sleep(random.uniform(0.001, 0.02 * 2**tries))  # noqa: S311  # jitter
        except Exception as error:
            raise explain(error, settings) from error
    raise AssertionError("unreachable")


_CURES: Final[dict[str, str]] = {
    "28P01": "the password is wrong for this user: correct the URL.",
    "28000": "this user does not exist or may not log in so: correct the URL, or see pg_hba.conf.",
    "42704": "it does not know a parameter of the URL: correct what is behind the ?.",
    "3D000": "this database does not exist: create it, or correct the URL.",
    "53300": "no connection is left: raise max_connections, or lower ?pool_size=.",
    "25006": "this server is read-only (a standby?): give the URL of the primary.",
    "42501": "this user lacks rights: `outlast migrate` needs CREATE on the database.",
    "42P01": "a table is missing: run `outlast migrate`.",
    "42883": "a function is missing: run `outlast migrate`.",
    "3F000": "the schema is missing: run `outlast migrate`.",
}
_FULL: Final = {"53100": "the disk is full", "53200": "the server is out of memory"}
_BAD: Final = {"22P02", "22P05", "22021", "22003", "23502"}


def explain(error: BaseException, settings: Settings) -> BaseException:
    """asyncpg's error as one of ours, with the cure in the message."""
    if isinstance(error, OutlastError):
        return error
    where = settings.where
    if isinstance(error, asyncpg.PostgresError):
        code = error.sqlstate or ""
        if code == "OL001":
            return BadInput(str(error), field=error.as_dict().get("column_name"))
        if code in _BAD:
            return BadInput(f"PostgreSQL cannot take this value: {error}")
        if code in _FULL:
            return EngineFull(f"{where}: {_FULL[code]}. Nothing was written; free some.")
        return EngineDown(f"{where}: {_CURES.get(code, f'{type(error).__name__}: {error}')}")
    if isinstance(error, asyncpg.DataError | UnicodeEncodeError):
        return BadInput(f"PostgreSQL cannot take this value: {error}")
    if isinstance(error, OSError) and "rejected SSL upgrade" in str(error):
        return EngineDown(
            f"{where} does not speak TLS: set ssl = on there, or leave sslmode out of the URL."
        )
    if isinstance(error, (*CUT, TimeoutError)):
        told = str(error) or (
            "no answer in time" if isinstance(error, TimeoutError) else repr(error)
        )
        return EngineDown(f"{where} cannot be reached: {told}. Is it running, is the URL right?")
    return error


def in_schema(statement: str, schema: str) -> str:
    """Our SQL names its schema `outlast`; another one may have been asked for."""
    return statement if schema == "outlast" else statement.replace("outlast.", f"{schema}.")


_SERVER: Final = """
select current_setting('server_version_num')::integer, current_setting('server_encoding'),
  pg_is_in_recovery(), current_setting('transaction_read_only'),
  current_setting('transaction_isolation')
"""


def too_old(release: int) -> str | None:
    """What is wrong with a server of this release (`server_version_num`), if anything is."""
    if release >= OLDEST_SERVER:
        return None
    shown = (
        f"{release // 10_000}"
        if release >= 100_000
        else f"{release // 10_000}.{release // 100 % 100}"
    )
    return f"is release {shown}, which is too old: upgrade the server to PostgreSQL 14 or later."


async def migrate(conn: asyncpg.Connection, settings: Settings) -> int:
    """Create or upgrade the schema beside running workers; the version it has."""
    schema = settings.schema
    release, encoding, standby, read_only, isolation = await conn.fetchrow(_SERVER)
    old = too_old(release)
    if old is not None:
        raise EngineDown(f"{settings.where} {old}")
    if standby or read_only == "on":
        raise EngineDown(f"{settings.where}: {_CURES['25006']}")
    if encoding != "UTF8":
        raise EngineDown(f"{settings.where}: the database must be encoded in UTF8.")
    if isolation in ("repeatable read", "serializable"):
        # What was read before a wait is read again after it: there it would be the same.
        raise EngineDown(
            f"{settings.where}: transactions of this user are {isolation}, and a step would not "
            "see what came while it waited: add default_transaction_isolation=read+committed to "
            "the parameters of the URL, or set that for the role by alter role."
        )
    newest = len(STEPS)
    if await _version(conn, schema) == newest:
        return newest
    async with conn.transaction():
        # One migration at a time. A lock of the transaction: PgBouncer knows no sessions.
        await conn.execute(
            "select pg_advisory_xact_lock(hashtextextended($1, 0))", f"outlast-migrate:{schema}"
        )
        found = await _version(conn, schema)
        if found > newest:
            raise EngineDown(
                f"{settings.where} has schema {found}, newer than this release "
                f"({newest}): upgrade outlast."
            )
        if found < newest:
            await conn.execute(f"create schema if not exists {schema}")
            # Bodies name functions that come later.
            await conn.execute("set local check_function_bodies = off")
            for name in (*STEPS[found:], *FUNCTIONS):
                text = files(PACKAGE).joinpath("sql").joinpath(name).read_text()
                await conn.execute(in_schema(text, schema))
            await conn.execute(
                f"insert into {schema}.meta values ('schema', $1) "
                "on conflict (name) do update set value = excluded.value",
                str(newest),
            )
    return newest


async def _version(conn: asyncpg.Connection, schema: str) -> int:
    # Not to_regclass(): after the wait for the lock it still believes what it knew before.
    there = "select exists (select 1 from pg_tables where schemaname = $1 and tablename = 'meta')"
    if not await conn.fetchval(there, schema):
        return 0
    value = await conn.fetchval(f"select value from {schema}.meta where name = 'schema'")
    return int(value or 0)


async def durability_of(conn: asyncpg.Connection) -> str:
    """Read from the settings that decide it."""
    sync, fsync, standbys = await conn.fetchrow(
        "select current_setting('synchronous_commit'), current_setting('fsync'), "
        "current_setting('synchronous_standby_names')"
    )
    if fsync == "off" or sync == "off":
        return "memory"
    return "replicated" if standbys and sync in ("on", "remote_apply", "remote_write") else "fsync"
