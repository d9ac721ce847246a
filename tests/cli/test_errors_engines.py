"""Engines that cannot be used: one sentence, the fix in it, exit code 2 or 4, no password."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo import MongoClient

from outlast.core.errors import EngineDown, OutlastError, UnknownEngine
from outlast.engine import connect
from outlast.engines.mongo import db as mongo
from outlast.engines.postgres import db as postgres
from outlast.engines.redis import link as redis_link

SERVERS = Path(__file__).parent.parent / "servers"
SECRET = "hunter2"  # noqa: S105
FAST = "serverSelectionTimeoutMS=500&connectTimeoutMS=500"


def load(name: str) -> Any:
    spec = spec_from_file_location(f"tests_servers_{name}", SERVERS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Places:
    """Servers, started when a test first asks for one."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._there: dict[str, Any] = {}
        self._modules: dict[str, Any] = {}

    def module(self, name: str) -> Any:
        if name not in self._modules:
            self._modules[name] = load(name)
        return self._modules[name]

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._there:
            self._there[name] = make()
        return self._there[name]

    def server(self, name: str, kind: str, **options: Any) -> Any:
        def make() -> Any:
            server = self.module(kind).Server(**options)
            self._stack.callback(server.stop)
            server.run()
            return server

        return self._once(name, make)

    @property
    def pg(self) -> Any:
        return self.server("pg", "postgresql")

    @property
    def locked_pg(self) -> Any:
        """Asks for passwords, of everybody but its superuser."""

        def make() -> Any:
            server = self.server("locked pg", "postgresql")
            with psycopg.connect(server.url, autocommit=True) as conn:
                conn.execute("create user ada password 'right'")
                [path] = conn.execute("select current_setting('hba_file')").fetchone() or ()
                rules = Path(path).read_text()
                Path(path).write_text("host all ada 127.0.0.1/32 scram-sha-256\n" + rules)
                conn.execute("select pg_reload_conf()")
            return server

        return self._once("locked", make)

    @property
    def redis(self) -> Any:
        return self.server("redis", "redis")

    @property
    def locked_redis(self) -> Any:
        return self.server("locked redis", "redis", settings=("--requirepass", "right"))

    @property
    def old_redis(self) -> Any:
        """A Redis before 6 does not know HELLO; neither does this one."""
        return self.server("old redis", "redis", settings=("--rename-command", "HELLO", ""))

    @property
    def mongo(self) -> Any:
        return self.server("mongo", "mongodb")

    @property
    def alone_mongo(self) -> Any:
        return self.server("alone mongo", "mongodb", alone=True)

    @property
    def locked_mongo(self) -> Any:
        """Wants to know who asks, before anything else."""

        def make() -> Any:
            server = self.server("locked mongo", "mongodb", alone=True, settings=("--auth",))
            with MongoClient[dict[str, Any]](server.url) as client:
                client.admin.command({"createUser": "ada", "pwd": "right", "roles": ["root"]})
            return server

        return self._once("locked m", make)

    @property
    def standby(self) -> str:
        return self._follower("standby", "postgresql", self.pg)

    @property
    def replica(self) -> str:
        return self._follower("replica", "redis", self.redis)

    @property
    def secondary(self) -> str:
        return self._follower("secondary", "mongodb", self.server("set", "mongodb"))

    def _follower(self, what: str, kind: str, primary: Any) -> str:
        follow = getattr(self.module("followers"), what)
        made: str = self._once(
            what, lambda: self._stack.enter_context(follow(self.module(kind), primary))
        )
        return made


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What a test leaves behind is collected in this test, and not in another one."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    with ExitStack() as stack:
        yield Places(stack)


def at(server: Any, user: str = f"ada:{SECRET}") -> str:
    scheme, _, rest = server.url.partition("://")
    return f"{scheme}://{user}@{rest.rpartition('@')[2]}"


CASES: dict[str, tuple[Callable[[Places], str], int, str]] = {
    # (URL, exit code, what the sentence must say)
    "no scheme": (lambda _: f"ada:{SECRET}@host/db", 2, "Known are sqlite://"),
    "one slash": (lambda _: f"postgresql:/ada:{SECRET}@host/db", 2, "Known are sqlite://"),
    "misspelt": (lambda _: f"postgress://ada:{SECRET}@host/db", 2, "did you mean 'postgres'?"),
    "pg: port": (lambda _: f"postgresql://ada:{SECRET}@host:port/db", 2, "write postgresql://"),
    "pg: schema": (lambda _: f"postgresql://ada:{SECRET}@host/db?schema=No!", 2, "lower-case"),
    "pg: nobody there": (lambda _: f"postgresql://ada:{SECRET}@127.0.0.1:1/db", 4, "Is it running"),
    "pg: no such host": (
        lambda _: f"postgresql://ada:{SECRET}@no.invalid/db",
        4,
        "is the URL right",
    ),
    "pg: password": (lambda p: at(p.locked_pg), 4, "the password is wrong"),
    "pg: user": (lambda p: at(p.pg, f"bob:{SECRET}"), 4, "this user does not exist"),
    "pg: database": (
        lambda p: at(p.pg, f"outlast:{SECRET}").replace("/postgres", "/nosuch"),
        4,
        "create it, or correct the URL",
    ),
    "pg: parameter": (lambda p: p.pg.url + "?colour=red", 4, "correct what is behind the ?"),
    "pg: TLS": (lambda p: p.pg.url + "?sslmode=require", 4, "does not speak TLS"),
    "pg: standby": (lambda p: p.standby, 4, "give the URL of the primary"),
    "redis: port": (lambda _: f"redis://:{SECRET}@host:port/0", 2, "write redis://"),
    "redis: namespace": (lambda _: "redis://host?namespace={x}", 2, "use letters"),
    "redis: parameter": (lambda _: f"redis://:{SECRET}@host/?colour=red", 2, "write redis://"),
    "redis: nobody there": (lambda _: f"redis://:{SECRET}@127.0.0.1:1/0", 4, "Is it running"),
    "redis: no such host": (lambda _: f"redis://:{SECRET}@no.invalid/0", 4, "is the URL right"),
    "redis: password": (lambda p: at(p.locked_redis, f":{SECRET}"), 4, "write the right ones"),
    "redis: no password": (lambda p: p.locked_redis.url, 4, "write the right ones"),
    "redis: database": (lambda p: p.redis.url + "/99", 4, "write /0"),
    "redis: TLS": (
        lambda p: p.redis.url.replace("redis:", "rediss:") + "?socket_connect_timeout=0.5",
        4,
        "else write redis://",
    ),
    "redis: another server": (
        lambda p: f"redis://127.0.0.1:{p.pg.port}",
        4,
        "then write rediss://",
    ),
    "redis: too old": (lambda p: p.old_redis.url, 4, "upgrade it to Redis 7"),
    "redis: replica": (lambda p: p.replica, 4, "connect to the primary"),
    "mongo: port": (lambda _: f"mongodb://ada:{SECRET}@host:port/db", 2, "write mongodb://"),
    "mongo: no host": (lambda _: f"mongodb://ada:{SECRET}@/db", 2, "write mongodb://"),
    "mongo: nobody there": (
        lambda _: f"mongodb://ada:{SECRET}@127.0.0.1:1/db?{FAST}",
        4,
        "Does it run",
    ),
    "mongo: another set": (
        lambda p: p.mongo.url.replace("rs0", "other") + f"&{FAST}",
        4,
        "the name behind replicaSet=",
    ),
    "mongo: password": (lambda p: at(p.locked_mongo), 4, "correct them"),
    "mongo: no replica set": (lambda p: p.alone_mongo.url, 4, "start mongod with --replSet"),
    "mongo: TLS": (lambda p: p.mongo.url + f"&tls=true&{FAST}", 4, "correct tls="),
    "mongo: secondary": (lambda p: p.secondary, 4, "name all members"),
}
PRINTED = (
    "no scheme", "one slash", "pg: port", "pg: nobody there", "pg: password", "pg: standby",
    "redis: port", "redis: password", "redis: TLS", "redis: too old", "redis: replica",
    "mongo: no host", "mongo: password", "mongo: no replica set", "mongo: secondary",
)  # fmt: skip
"""Three processes each: those that take ways of their own through the commands."""


# PyMongo's monitors are cancelled before they have closed what they open, and then nobody knows it.
LEFT_OPEN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=LEFT_OPEN if n.startswith("mongo") else ()) for n in CASES],
)
async def test_the_library_says_what_is_wrong_and_the_fix(places: Places, name: str) -> None:
    url_of, code, told = CASES[name]
    with pytest.raises(OutlastError) as raised:
        engine = connect(url_of(places))
        await engine.open()
    assert isinstance(raised.value, EngineDown if code == 4 else UnknownEngine)
    assert told in str(raised.value)
    assert SECRET not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", PRINTED)
def test_commands_say_it_in_one_line_and_an_exit_code(project, places, name) -> None:
    url_of, code, told = CASES[name]
    url = url_of(places)
    for command in (("enqueue", "hello", '{"name": "x"}'), ("worker",)):
        ran = project(*command, "--engine", url)
        assert ran.code == code, (command, ran)
        assert told in ran.err
        assert len(ran.err.splitlines()) == 1, ran.err
        assert SECRET not in ran.err + ran.out
    ran = project("doctor", "--engine", url)
    assert ran.code in (code, 4), ran
    assert told in ran.out + ran.err
    assert SECRET not in ran.err + ran.out
    assert "Traceback" not in ran.err


def test_doctor_says_it_as_a_check_with_a_fix(outlast, places) -> None:
    [check] = outlast("doctor", "--json", "--engine", places.alone_mongo.url).json()["checks"]
    assert (check["name"], check["status"]) == ("engine", "fail")
    assert "--replSet" in check["message"]
    assert check["fix"]


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [
        ("postgresql://ada:hunter2@h/db", "asyncpg", "postgres"),
        ("redis://:hunter2@h/0", "redis", "redis"),
        ("mongodb://ada:hunter2@h/db", "pymongo", "mongo"),
    ],
)
def test_a_missing_driver_is_named_with_its_extra(project, url, driver, extra) -> None:
    without = project.folder / "without"
    without.mkdir()
    (without / "sitecustomize.py").write_text(f"import sys\nsys.modules[{driver!r}] = None\n")
    for command in (("doctor",), ("worker",), ("enqueue", "hello", '{"name": "x"}')):
        ran = project(*command, "--engine", url, env={"PYTHONPATH": str(without)})
        assert ran.code == 2, ran
        assert f"pip install 'outlast[{extra}]'" in ran.err
        assert len(ran.err.splitlines()) == 1, ran.err
        assert SECRET not in ran.err + ran.out


def test_too_old_is_a_matter_of_the_number() -> None:
    assert postgres.too_old(140_000) is None
    assert "release 13," in (postgres.too_old(130_018) or "")
    assert "release 9.6," in (postgres.too_old(90_624) or "")
    assert redis_link.too_old("redis", "7.0.0") is None
    assert redis_link.too_old("valkey", "7.2.4") is None
    assert "Redis 6.2.14, which is too old" in (redis_link.too_old("redis", "6.2.14") or "")
    assert mongo.too_old(17) is None
    assert "MongoDB 6.0" in (mongo.too_old(13) or "")


@pytest.mark.parametrize("kind", ["pg", "mongo"])
async def test_a_server_of_too_old_a_release_is_refused(
    places: Places, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no old server here; that the bound is the future's is the same question."""
    monkeypatch.setattr(postgres, "OLDEST_SERVER", 990_000)
    monkeypatch.setattr(mongo, "OLDEST_WIRE", 990)
    engine = connect(getattr(places, kind).url)
    with pytest.raises(EngineDown, match=r"too old.*upgrade the server"):
        await engine.open()
