"""The testing helper, as the guide shows it."""

from outlast import Again, Context, Outlast, Transient
from outlast.core.model import TaskQuery
from outlast.testing import testing

app = Outlast("sqlite:///never-touched.db")


@app.task(retry="5s", queue="llm")
async def summarize(ctx: Context, url: str) -> str:
    if ctx.attempt == 1:
        raise Transient("slow today")
    await shorten.enqueue(url)
    return url.upper()


@app.task
def shorten(url: str) -> str:
    return url[:3]


@app.task
async def poll(ctx: Context) -> str | Again:
    return "ready" if ctx.number == 3 else Again(after="30s")


async def test_time_passes_when_told_to() -> None:
    async with testing(app) as t:
        handle = await summarize.enqueue("abcdef")
        await t.run()
        assert await t.status(handle) == "retrying"
        await t.advance("6s")
        await t.run()
        assert await handle.result(timeout=0) == "ABCDEF"
        assert [event.kind for event in await t.events(handle)][-1] == "done"
        assert (await t.task(handle)).attempt == 2
        [child] = (await app.engine.tasks(TaskQuery.of(type="shorten"))).items
        assert child.result == b'"abc"'


async def test_every_queue_is_served() -> None:
    async with testing(app) as t:
        handle = await shorten.options(queue="aside").enqueue("abcdef")
        await t.run()
        assert await handle.result(timeout=0) == "abc"


async def test_again_runs_again_when_it_is_due() -> None:
    async with testing(app) as t:
        handle = await poll.enqueue()
        for _ in range(2):
            await t.run()
            assert await t.status(handle) == "scheduled"
            await t.advance("30s")
        await t.run()
        assert await handle.result(timeout=0) == "ready"
        assert (await t.task(handle)).attempt == 1, "waiting costs no attempt"


async def test_every_block_starts_empty_and_the_app_goes_back_to_its_engine() -> None:
    async with testing(app):
        handle = await shorten.enqueue("a")
    async with testing(app) as t:
        assert await t.events(handle) == []
    assert app.url == "sqlite:///never-touched.db"


async def test_what_is_enqueued_to_another_queue_runs_too() -> None:
    @app.task
    async def far(hops: int) -> None:
        if hops:
            await far.options(queue=f"hop {hops}").enqueue(hops - 1)

    async with testing(app) as t:
        await far.enqueue(3)
        await t.run()
        tasks = (await app.engine.tasks(TaskQuery.of(type="far"))).items
        assert [(task.queue, task.status) for task in tasks] == [
            ("hop 1", "completed"), ("hop 2", "completed"), ("hop 3", "completed"),
            ("default", "completed"),
        ]  # fmt: skip
