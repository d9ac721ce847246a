"""User code as type checkers must see it: accepted, or (with a `type: ignore`) rejected.

mypy --strict reports an ignore that is not needed, so every one of them is a test.
"""

from __future__ import annotations

from typing import assert_type

from outlast import Again, Call, Context, Handle, Limit, Outlast, Retry, Secret, SyncContext, Trip
from outlast.sync import SyncHandle

app = Outlast(
    "sqlite:///jobs.db",
    limits=[Limit("provider:x", slots=8, rate="60/min", trip=Trip()), Limit("user:*", slots=2)],
)


@app.task(
    max_attempts=5,
    retry=Retry().on(TimeoutError, "5s 30s 2m").never(ValueError),
    limits=["provider:x", "user:{user}"],
    timeout="2m",
    search=("user",),
)
async def summarize(ctx: Context, url: str, user: str, words: int = 200) -> str:
    await ctx.progress(50, "fetched")
    return url


@app.task
async def bare(text: str) -> int:
    return len(text)


@app.task
async def charge(card: Secret[str]) -> Secret[int]:
    assert_type(card.reveal(), str)
    return Secret(1)


@app.task(isolate=True, memory="512MB")
def crunch(below: int) -> list[int]:
    return [below]


@app.task()
def poll(ctx: Context, job: str) -> dict[str, int] | Again:
    return Again(after="30s")


async def fetch(url: str) -> bytes:
    return url.encode()


@app.task
async def agent(ctx: Context, url: str) -> int:
    assert_type(await ctx.step("fetch", fetch, url), bytes)
    await ctx.step("fetch", fetch, 5)  # type: ignore[call-overload]
    assert_type(await ctx.step("length", len, url), int)
    assert_type(await ctx.step("fetch 2", fetch, url, undo=bare), bytes)
    assert_type(await ctx.call(bare, url), int)
    assert_type(await ctx.call(bare, 5), int)  # type: ignore[arg-type]
    await ctx.sleep("1h")
    return 1


@app.task(timeout="2m")
def plain_agent(ctx: SyncContext, url: str) -> int:
    assert_type(ctx.step("length", len, url), int)
    assert_type(ctx.call(bare, url), int)
    return 1


async def accepted(id: str) -> None:
    handle = await summarize.enqueue("https://example.org", user="ada")
    assert_type(handle, Handle[str])
    assert_type(await handle.result(timeout="60s"), str)
    assert_type(await (await bare.enqueue("a")).result(), int)
    assert_type(await (await charge.enqueue(Secret("4242"))).result(), Secret[int])
    await charge.enqueue("4242")  # type: ignore[arg-type]
    assert_type(await (await crunch.enqueue(3)).result(), list[int])
    assert_type(await (await poll.enqueue(job="j")).result(), dict[str, int])
    assert_type(bare.call("a"), Call[int])
    assert_type(await app.enqueue([bare.call("a"), bare.call("b")]), list[Handle[int]])
    assert_type(await (await agent.enqueue("a")).result(), int)
    assert_type(await (await plain_agent.enqueue("a")).result(), int)
    later = summarize.options(delay="10m", priority="high")
    assert_type(await later.enqueue("u", "ada"), Handle[str])
    assert_type(app.handle(id), Handle[object])
    assert_type(app.handle(id, of=bare), Handle[int])


async def plain_functions(ctx: Context) -> None:
    assert_type(await summarize(ctx, "u", user="ada"), str)
    assert_type(await bare("a"), int)
    assert_type(crunch(3), list[int])


def synchronous() -> None:
    with app.sync() as q:
        handle = q.enqueue(summarize, "u", user="ada")
        assert_type(handle, SyncHandle[str])
        assert_type(handle.result(timeout=60), str)


async def rejected(ctx: Context) -> None:
    await summarize.enqueue("u")  # type: ignore[call-arg]  # user is missing
    await summarize.enqueue(3, user="ada")  # type: ignore[arg-type]  # a url is text
    await summarize.enqueue("u", user="ada", wrods=3)  # type: ignore[call-arg]
    await summarize.enqueue(ctx, "u", user="ada")  # type: ignore[misc,arg-type]  # no context
    await bare.options(dealy="10m").enqueue("a")  # type: ignore[call-arg]
    await bare.options(priority="urgent").enqueue("a")  # type: ignore[arg-type]
    bare.call(text=3)  # type: ignore[arg-type]
    crunch("3")  # type: ignore[arg-type]
    with app.sync() as q:
        q.enqueue(bare, text=3)  # type: ignore[arg-type]


@app.task(retires=3)  # type: ignore[call-overload,untyped-decorator]
async def misspelt() -> None: ...
