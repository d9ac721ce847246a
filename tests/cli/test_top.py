"""`outlast top` in a real terminal: what it shows, what its keys do, how it leaves."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from tests.http.site import Site, serving, until
from tests.servers import redis

from outlast import Context, Limit, Permanent, access
from outlast import Outlast as OutlastApp

from .conftest import Outlast
from .terminal import Terminal, terminal

HOSTILE: Final = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b31mred\u202e[@click=app.quit]x[/]"
SEEN: Final = r"\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b31mred\u202e[@click=app.quit]x[/]"
NAME: Final = "[red]so[/red]"
CTRL_C: Final = "\x03"
ESCAPE: Final = "\x1b"
ENTER: Final = "\r"
EMPTIED: Final = "\x15"  # ctrl-u


class Home:
    """An app with a server and a worker, and terminals beside it."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.gate = asyncio.Event()
        self.is_mended = False

    async def enqueue(self, type: str, *, status: str = "", **options: object) -> str:
        """The id of a new task, which has this status."""
        id = str((await self.site.enqueue(type, **options))["id"])  # type: ignore[arg-type]
        if status:
            await self.has(id, status)
        return id

    async def has(self, id: str, status: str) -> None:
        async def holds() -> bool:
            return bool((await self.site.task(id))["status"] == status)

        await until(holds)

    async def is_paused(self, queue: str) -> bool:
        status = await self.site.get("/queues/status")
        return bool(status.json()["by_queue"][queue]["paused"])

    async def asks(self, seen: Terminal, filter: str) -> None:
        """Type another filter in place of the one that stands there."""
        seen.press(EMPTIED)
        await seen.sees("status:dead age>1h type:summarize")  # what stands there when nothing does
        seen.press(filter, ENTER)

    @asynccontextmanager
    async def top(
        self, *args: str, server: bool = False, columns: int = 80, lines: int = 24
    ) -> AsyncIterator[Terminal]:
        where = ("--server", self.site.address) if server else ("--engine", self.site.app.url)
        there = terminal("top", *where, *args, folder=self.folder, columns=columns, lines=lines)
        async with there as shown:
            yield shown


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    app = OutlastApp(f"sqlite:///{tmp_path}/home.db", limits=[Limit("models", slots=3)])

    @app.task
    async def hello() -> str:
        return "hello"

    @app.task(queue="long", limits=["models"])
    async def wait(ctx: Context) -> None:
        await ctx.emit("once ")
        await ctx.emit("upon")
        await ctx.progress(40, "part 2 of 5")
        await home.gate.wait()

    @app.task
    async def fail(message: str = "no") -> None:
        if not home.is_mended:
            raise Permanent(message)

    @app.task(queue=NAME)
    async def hostile(ctx: Context, text: str) -> None:
        await ctx.emit(text)
        await ctx.progress(10, text)
        raise type(HOSTILE, (Permanent,), {})(text)

    async with app, serving(app, working=True) as site:
        home = Home(site, tmp_path)
        yield home


@pytest.mark.parametrize("server", [False, True], ids=["engine", "server"])
async def test_what_there_is(home: Home, server: bool) -> None:
    await home.enqueue("hello", status="completed")
    async with home.top(server=server, lines=40) as seen:
        await seen.sees("✓ healthy", "✓ completed hello", "1/4", "✓ completed 1", "1 worker")
        running = await home.enqueue("wait")
        await seen.sees("▶ running wait", "▓▓▓░░░░░ 40 % part 2 of 5", "▶ running 1")
        seen.press("2")
        await seen.sees("▾ 2 Queues 2", "long ● open")
        seen.press("\t")
        await seen.sees("▾ 3 Workers 1 alive", "✓ alive ░░░░░░░░ 1/200")
        seen.press("4")
        await seen.sees("▾ 4 Limits 1", "models ▓▓▓░░░░░ 1/3", "● passes")
        seen.press("5")
        await seen.sees("▾ 5 Failures none")
        seen.press("1")
        await seen.shows(lambda: seen.chosen.startswith("▶ running wait"))
        seen.press(ENTER)
        await seen.sees("▶ running wait", f"id {running}", "output once upon")
        home.gate.set()
        await seen.sees("✓ completed wait", "done completed")
        seen.press(ESCAPE)
        await seen.sees("▾ 1 Tasks 2", "✓ completed 2")


async def test_a_filter(home: Home) -> None:
    await home.enqueue("hello", status="completed")
    await home.enqueue("fail", status="dead")
    async with home.top("type:hello") as seen:
        await seen.sees("▾ 1 Tasks 1 that fit type:hello", "✓ completed hello", without="fail ")
        seen.press("/")
        await seen.shows(lambda: seen.lines[-2] == "type:hello")
        await home.asks(seen, "stats:dead")
        await seen.sees("There is no filter 'stats'; did you mean 'status'?")
        await home.asks(seen, "status:dead")
        await seen.sees("1 that fit status:dead", "✕ dead fail", without="hello")
        await seen.shows(lambda: seen.chosen.startswith("✕ dead fail"))
        await seen.sees("? help", without="There is no filter")
        seen.press(ESCAPE)
        await seen.sees("▾ 1 Tasks 2", "✓ completed hello")
        seen.press("/queue:a/b", ENTER)  # what follows the slash is text, however fast it comes
        await seen.sees("0 that fit queue:a/b")


async def test_a_queue_is_paused_and_opened_again(home: Home) -> None:
    await home.enqueue("wait", status="running")
    async with home.top() as seen:
        seen.press("2")
        await seen.shows(lambda: seen.chosen.startswith("long"))
        seen.press("p")
        await seen.sees("✓ long is paused.")
        await seen.sees("‖ paused: long", "long ‖ paused")
        assert await home.is_paused("long")
        later = await home.enqueue("wait")
        seen.press(ENTER)
        await seen.sees('2 that fit queue:"long"', "● ready wait")
        assert (await home.site.task(later))["status"] == "ready"
        seen.press("2")
        await seen.shows(lambda: seen.chosen.startswith("long"))
        seen.press("p")
        await seen.sees("✓ long is open.")
        await seen.sees("long ● open", without="paused")
        assert not await home.is_paused("long")
        await home.has(later, "running")


async def test_a_task_is_cancelled_and_retried(home: Home) -> None:
    running = await home.enqueue("wait", status="running")
    dead = await home.enqueue("fail", status="dead")
    home.is_mended = True
    async with home.top("status:running", server=True) as seen:
        await seen.shows(lambda: seen.chosen.startswith("▶ running wait"))
        seen.press("p")
        await seen.sees("✕ Select a queue (2 shows them) to pause.")
        seen.press("c")
        await seen.sees(f"Cancel wait {running}?")
        seen.press("n")
        await seen.sees("▾ 1 Tasks", without="Cancel wait")
        assert (await home.site.task(running))["status"] == "running"
        seen.press("c")
        await seen.sees(f"Cancel wait {running}?")
        seen.press("y")
        await seen.sees("0 that fit status:running", "– cancelled 1")
        await home.has(running, "cancelled")
        seen.press("/")
        await seen.shows(lambda: seen.lines[-2] == "status:running")
        await home.asks(seen, "status:dead")
        await seen.shows(lambda: seen.chosen.startswith("✕ dead fail"))
        seen.press(ENTER)
        await seen.sees("Permanent: no", f"id {dead}", "attempt 1 failed on")
        seen.press("r")
        await seen.sees(f"Retry fail {dead}?")
        seen.press("y")
        await seen.sees("✓ completed fail")
        await home.has(dead, "completed")


async def test_all_of_a_failure_are_redriven(home: Home) -> None:
    dead = [await home.enqueue("fail") for _ in range(20)]
    other = await home.enqueue("fail", payload={"message": "something else"}, status="dead")
    for id in dead:
        await home.has(id, "dead")
    home.is_mended = True
    async with home.top() as seen:
        await seen.sees("5 Failures ✕ 21 dead of 2 causes")
        seen.press("5")
        await seen.shows(lambda: seen.chosen.split()[:2] == ["20", "fail"])
        seen.press("r")
        await seen.sees('Redrive 20 dead tasks? status:dead type:"fail" error:')
        seen.press("y")
        await seen.sees("✓ 20 redriven.")
        await seen.sees("5 Failures ✕ 1 dead of 1 cause", "✓ completed 20")
        await seen.shows(lambda: "something else" in seen.chosen)
    for id in dead:
        await home.has(id, "completed")
    await home.has(other, "dead")


async def test_hostile_text_is_only_shown(home: Home) -> None:
    await home.enqueue("hostile", payload={"text": HOSTILE}, tags=[NAME], status="dead")
    async with home.top(columns=200, lines=50) as seen:
        await seen.sees(f"✕ dead hostile {NAME} ", f" {SEEN}: {SEEN[:40]}")  # a task
        await seen.sees(f"\n{NAME} ● open", f"\n1 hostile {SEEN[:40]}")  # a queue, a failure
        seen.press(ENTER)
        await seen.sees("✕ dead hostile", f"queue {NAME}", f"tags {NAME}")
        await seen.sees(f"\n{SEEN}: {SEEN}", f"output {SEEN}", f"10 % {SEEN}", "Traceback")
        seen.press("r")
        await seen.sees("Retry hostile")
        seen.press("n")
        await seen.sees("last events", without="Retry")
        seen.press(ESCAPE)
        await seen.sees("▾ 1 Tasks")
        seen.press("q")
        assert await seen.over() == 0
        for one in ("]0;owned\x07", "\x1b[2J\x1b", "\x9b", "\u202e"):
            assert one.encode() not in seen.raw, one


async def test_it_outlasts_a_server_that_is_away(home: Home) -> None:
    async with home.top(server=True) as seen:
        await seen.sees("✓ healthy", "✓ completed 0")
        home.site.server.should_exit = True
        await seen.sees("✕ away", f"{home.site.address} does not answer")
        assert "✓ completed 0" in seen.text  # what was seen last
        async with serving(home.site.app, port=home.site.port) as home.site:
            await home.enqueue("hello", status="completed")
            await seen.sees("✓ healthy", "✓ completed hello", without="does not answer")


async def test_it_outlasts_an_engine_that_is_away(tmp_path: Path) -> None:
    server = redis.Server()
    try:
        server.run()
        async with terminal("top", "--engine", server.url, folder=tmp_path) as seen:
            await seen.sees("! degraded", "▾ 1 Tasks 0", "▸ 3 Workers none is alive")
            server.kill()
            await seen.sees("✕ away", f"Redis at 127.0.0.1:{server.port} cannot be reached")
            server.run()
            async with OutlastApp(server.url) as app:
                app.external("hello")
                await app.submit("hello", b"{}")
                await seen.sees("! degraded", "● ready hello", without="cannot be reached")
            seen.press("q")
            assert await seen.over() == 0
    finally:
        server.stop()


async def test_a_narrow_terminal_and_one_that_grows(home: Home) -> None:
    await home.enqueue("hello", status="completed")
    async with home.top(columns=40, lines=12) as seen:
        told = ("outlast top ✓ healthy", "▾ 1 Tasks 1", "✓ completed hello", "? help q quit")
        await seen.sees(*told, without="Queues")  # there is room for the open one
        assert len(seen.lines) == 12
        seen.press("2")
        await seen.sees("▾ 2 Queues", "default", without="Tasks")
        seen.press("?")
        await seen.sees("the next panel", without="Queues")
        seen.press("q")
        seen.resize(130, 46)
        id = await home.enqueue("wait")
        await seen.sees(f"wait long {id}", "5 Failures none", "QUEUE", "LIMIT", "HEARD")


async def test_read_only_changes_nothing(home: Home) -> None:
    running = await home.enqueue("wait", status="running")
    async with home.top("--read-only") as seen:
        refused = "✕ It was started with --read-only: nothing is changed."
        await seen.sees("✓ healthy · fsync · read-only")
        seen.press("2")
        await seen.shows(lambda: seen.chosen.startswith("long"))
        seen.press("p")
        await seen.sees(refused)
        seen.press("1")
        await seen.shows(lambda: seen.chosen.startswith("▶ running wait"))
        seen.press(ENTER)
        await seen.sees(f"id {running}", "escape back")
        seen.press("c")
        await seen.sees(refused)
        assert (await home.site.task(running))["status"] == "running"
        assert not await home.is_paused("long")


async def test_a_key_decides_what_may_be_done(home: Home) -> None:
    running = await home.enqueue("wait", status="running")
    key, _ = await access.create_key(home.site.app.engine, "operator", name="ops", read_only=True)

    async def asks_for_a_key() -> bool:
        return (await home.site.get("/tasks")).status_code == 401

    await until(asks_for_a_key)
    async with home.top(server=True) as seen:
        assert await seen.over() == 2
        assert "API key" in seen.text
        assert b"1049h" not in seen.raw  # the screen is not even taken
    async with home.top("--key", key, server=True) as seen:
        await seen.shows(lambda: seen.chosen.startswith("▶ running wait"))
        seen.press("c")
        await seen.sees(f"Cancel wait {running}?")
        seen.press("y")
        await seen.sees("✕ operator 'ops' may not do that.")
    assert (await home.site.app.handle(running).refresh()).status == "running"


@pytest.mark.parametrize("how", ["q", CTRL_C, "SIGTERM"])
async def test_it_leaves_the_terminal_as_it_was(home: Home, how: str) -> None:
    async with home.top() as seen:
        await seen.sees("▾ 1 Tasks 0")
        assert not seen.is_restored()
        if how == "SIGTERM":
            seen.process.send_signal(signal.SIGTERM)
        else:
            seen.press(how)
        assert await seen.over() == 0
        assert seen.is_restored()


def test_without_a_terminal_it_says_so_in_a_sentence(outlast: Outlast) -> None:
    ran = outlast("top")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
    assert "outlast top needs a terminal" in ran.err


def test_without_its_extra_it_names_it(outlast: Outlast) -> None:
    (outlast.folder / "sitecustomize.py").write_text('import sys; sys.modules["textual"] = None\n')
    ran = outlast("top", env={"PYTHONPATH": str(outlast.folder)})
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
    assert "outlast top needs textual: pip install 'outlast[tui]'" in ran.err
