"""The application's life, its definitions in the engine, and enqueuing by type name."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from outlast import (
    KEEP_A_WEEK,
    BadInput,
    Conflict,
    Context,
    Keep,
    Limit,
    Mismatch,
    Outlast,
    TooLarge,
    UnknownType,
)
from outlast.core.ids import new_fence
from outlast.core.model import TaskQuery, Turn, WorkerInfo
from outlast.ops import set_limit
from outlast.testing import testing

# life --------------------------------------------------------------------------------------------


def test_the_url_is_codes_then_the_environments_then_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OUTLAST_URL", raising=False)
    assert Outlast().url == "sqlite:///outlast.db"
    monkeypatch.setenv("OUTLAST_URL", "memory://")
    assert Outlast().url == "memory://"
    assert Outlast("sqlite:///jobs.db").url == "sqlite:///jobs.db"


async def test_an_app_may_be_entered_many_times_and_closes_with_the_last() -> None:
    app = Outlast("memory://")
    async with app:
        async with app:
            assert app.is_open
        await asyncio.gather(*(_enter(app) for _ in range(3)))
        assert await app.engine.get("limit") == []
        with pytest.raises(Conflict, match="choose its engine before"):
            app.use("sqlite:///other.db")
    assert not app.is_open


async def test_an_app_that_is_entered_at_once_is_opened_once(tmp_path: Path) -> None:
    app = Outlast(f"sqlite:///{tmp_path}/jobs.db", limits=[Limit("a", slots=1)])
    before = threading.active_count()
    await asyncio.gather(*(_enter(app) for _ in range(5)))
    assert not app.is_open
    writers = [thread for thread in threading.enumerate() if "asyncio" not in thread.name]
    assert len(writers) <= before, "nobody's connection stayed behind"


def test_an_app_may_be_opened_in_one_loop_after_another() -> None:
    app = Outlast("memory://")

    async def contend() -> None:
        await asyncio.gather(_enter(app), _enter(app))

    asyncio.run(contend())
    asyncio.run(contend())


async def _enter(app: Outlast) -> None:
    async with app:
        await app.engine.now()


# definitions -------------------------------------------------------------------------------------


async def slots_of(app: Outlast, key: str) -> object:
    [record] = await app.engine.get("limit", [key])
    return msgspec.json.decode(record.value)["slots"]


async def test_limits_of_code_follow_the_code_until_people_change_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with Outlast(url, limits=[Limit("a", slots=1), Limit("b", slots=1)]) as app:
        await set_limit(app, "b", {"slots": 9})
        [before] = await app.engine.get("limit", ["a"])
    async with Outlast(url, limits=[Limit("a", slots=1)]) as app:
        assert await app.engine.get("limit", ["a"]) == [before], "written only when changed"
    async with Outlast(url, limits=[Limit("a", slots=2), Limit("b", slots=2)]) as app:
        assert (await slots_of(app, "a"), await slots_of(app, "b")) == (2, 9)


async def test_retention_is_what_code_says_and_stays_when_it_says_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def rules(app: Outlast) -> dict[str, object]:
        async with app:
            records = await app.engine.get("retention")
        found = {r.key: msgspec.json.decode(r.value) for r in records}
        return {
            key: {k: v for k, v in rule.items() if k != "source"} for key, rule in found.items()
        }

    day, week = {"age_ms": 86_400_000}, {"age_ms": 7 * 86_400_000}
    preset = {"completed": day, "cancelled": day, "dead": week}
    assert await rules(Outlast(url, keep=KEEP_A_WEEK)) == preset
    assert await rules(Outlast(url)) == preset
    some = Outlast(url, keep={"completed": Keep(count=10, bytes=99)})
    assert await rules(some) == {"completed": {"count": 10, "bytes": 99}}
    assert await rules(Outlast(url, keep={})) == {}
    with pytest.raises(BadInput, match="completed, cancelled, dead, log"):
        Outlast(url, keep={"done": "1d"})


async def test_what_is_not_kept_goes() -> None:
    app = Outlast("memory://", keep={"completed": "1h"})

    @app.task
    async def work() -> None: ...

    async with testing(app) as t:
        await work.enqueue()
        await t.run()
        await t.advance("59m")
        assert len((await app.engine.tasks(TaskQuery())).items) == 1
        await t.advance("2m")
        assert (await app.engine.tasks(TaskQuery())).items == ()


# by type name ------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "required": ["pages"], "properties": {"pages": {"type": "integer"}}}


def new_app() -> Outlast:
    app = Outlast("memory://", limits=[Limit("user:*", slots=1)])

    @app.task(limits=["user:{user}"], search=["user"])
    async def greet(user: str, times: int = 1) -> str:
        return f"hello {user}" * times

    app.external("report.generate", schema=SCHEMA, queue="reports")
    return app


@pytest.mark.parametrize("payload", [{"user": "ada"}, b'{"user":"ada"}'])
async def test_a_handler_is_submitted_to_by_name(payload: dict[str, object] | bytes) -> None:
    async with new_app() as app:
        handle = await app.submit("greet", payload, priority="low", tags=["x"])
        task = await handle.refresh()
    assert (task.payload, task.priority, task.tags) == (b'{"user":"ada"}', 3, ("x",))
    assert (task.limits, task.followed) == ((("user:ada", 1),), True)


async def test_payloads_from_outside_are_checked() -> None:
    async with new_app() as app:
        for type, payload, error, words in (
            ("greet", {"user": 3}, BadInput, r"\$\.user"),
            ("greet", {"user": "a", "tims": 2}, BadInput, "did you mean 'times'?"),
            ("greet", b"[1]", BadInput, r"\$"),
            ("greet", b"{", BadInput, "truncated"),
            ("greet", b'{"user":"' + b"a" * 1_048_576 + b'"}', TooLarge, "1,048,576"),
            ("report.generate", {"pages": "3"}, BadInput, r"\$\.pages: '3' is not integer"),
            ("report.generate", {}, BadInput, r"\$\.pages: missing"),
            ("gret", {"user": "a"}, UnknownType, "did you mean 'greet'?"),
        ):
            with pytest.raises(error, match=words):
                await app.submit(type, payload)
        assert (await app.engine.tasks(TaskQuery())).items == ()


async def test_an_external_type_is_enqueued_by_its_declaration_too() -> None:
    app = Outlast("memory://")
    generate = app.external("report.generate", schema=SCHEMA, queue="reports", max_attempts=2)
    async with app:
        task = await (await generate.enqueue(pages=3, any="thing")).refresh()
    assert (task.type, task.queue, task.max_attempts) == ("report.generate", "reports", 2)
    assert "report.generate" not in app.handlers


async def test_a_type_that_a_live_worker_announced_is_known() -> None:
    app = Outlast("memory://")
    info = WorkerInfo(host="h", pid=1, queues=("default",), types=("ruby.resize",))
    async with app:
        with pytest.raises(UnknownType):
            await app.submit("ruby.resize", {})
        await app.engine.exchange(Turn(token=new_fence(), worker="w", info=info))
        assert (await (await app.submit("ruby.resize", {"w": 1})).refresh()).payload == b'{"w":1}'
        app.engine.skew_ms += 60_000
        with pytest.raises(UnknownType):
            await app.submit("ruby.resize", {})


async def test_an_idempotency_key_holds_for_a_day_and_for_one_body() -> None:
    app = new_app()
    async with testing(app) as t:
        first = await app.submit("greet", {"user": "ada"}, idempotency_key="k", delay=0)
        await t.run()
        again = await app.submit("greet", {"user": "ada"}, idempotency_key="k", delay=0)
        assert (again.id, again.existing) == (first.id, True)
        with pytest.raises(Mismatch):
            await app.submit("greet", {"user": "bob"}, idempotency_key="k", delay=0)
        with pytest.raises(Mismatch):
            await app.submit("greet", {"user": "ada"}, idempotency_key="k", delay=5)
        with pytest.raises(BadInput, match="not both"):
            await app.submit("greet", {"user": "ada"}, idempotency_key="k", unique_key="u")
        await t.advance("24h 1s")
        later = await app.submit("greet", {"user": "bob"}, idempotency_key="k")
        assert not later.existing


# handlers as objects -----------------------------------------------------------------------------


class Resize:
    """Makes pictures smaller."""

    task_type = "media.resize"

    def execute(
        self, payload: dict[str, object], progress: Callable[[int, str], object]
    ) -> dict[str, object]:
        progress(50, "halfway")
        return {"got": payload}

    def limits_for(self, payload: dict[str, object]) -> list[Limit]:
        return [Limit(f"provider:{payload['provider']}", slots=2)]


class AsyncResize:
    task_type = "media.resize"

    async def execute(
        self, payload: dict[str, object], progress: Callable[[int, str], object]
    ) -> dict[str, object]:
        progress(50, "halfway")
        return {"got": payload}

    limits_for = Resize.limits_for


@pytest.mark.parametrize("handler", [Resize(), AsyncResize()])
async def test_an_object_can_be_a_handler(handler: Resize | AsyncResize) -> None:
    app = Outlast("memory://")
    resize = app.register(handler, max_attempts=2)
    async with testing(app) as t:
        handle = await app.submit("media.resize", {"provider": "x", "ctx": 1})
        task = await handle.refresh()
        assert (task.limits, task.max_attempts) == ((("provider:x", 1),), 2)
        await t.run()
        assert await handle.result() == {"got": {"provider": "x", "ctx": 1}}
        assert b'"halfway"' in ((await handle.refresh()).progress or b"")
    assert resize.mode == ("thread" if isinstance(handler, Resize) else "async")


async def test_a_command_line_can_be_a_handler() -> None:
    app = Outlast("memory://")
    echo = app.command("echo", ["sh", "-c", 'echo "$1"; cat', "sh", "{word}"])
    async with testing(app) as t:
        handle = await echo.enqueue(word="a b; rm -rf $HOME", more=1)
        await t.run()
        result = await handle.result()
        assert result["exit_code"] == 0
        assert result["stdout"] == 'a b; rm -rf $HOME\n{"word":"a b; rm -rf $HOME","more":1}'
        with pytest.raises(BadInput, match="misses 'word'"):
            await echo.enqueue()


async def test_a_context_is_only_recognised_as_the_first_parameter() -> None:
    app = Outlast("memory://")
    seen: list[int] = []

    @app.task
    async def work(ctx: Context, n: int) -> None:
        seen.append(ctx.attempt + n)

    async with testing(app) as t:
        await work.enqueue(n=2)
        await t.run()
    assert seen == [3]
