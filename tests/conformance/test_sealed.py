"""With encryption keys the store holds no plaintext: read past Outlast, on every engine."""

from __future__ import annotations

import json
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from msgspec.structs import replace

from outlast import Context, Outlast, Permanent, Transient, ops, webhooks
from outlast.core.model import (
    EditPayload,
    EventQuery,
    Forget,
    NewEvent,
    Put,
    Resolve,
    Signal,
    TaskQuery,
)
from outlast.core.seal import new_key
from outlast.engine import connect
from outlast.handle import alter
from outlast.moving import move
from outlast.rotation import rotate
from outlast.worker import Worker

from .raw import RAW
from .servers import chosen

ENGINES = [name for name in chosen() if name in RAW]
pytestmark = pytest.mark.parametrize("engine_name", ENGINES)


def make(url: str, keys: str | None) -> Outlast:
    app = Outlast(url, encryption_keys=keys)

    @app.task(max_attempts=2, retry="0s")
    async def child(canary: str) -> dict[str, str]:
        return {"said": canary}

    @app.task(max_attempts=3, retry="0s")
    async def story(ctx: Context, canary: str) -> dict[str, str]:
        """Puts it everywhere where an attempt can put something."""
        kept = await ctx.step("remember", lambda: canary)
        await ctx.progress(10, f"at {canary}", at=canary)
        await ctx.emit({"chunk": canary})
        if ctx.number == 1:
            raise Transient(f"no {canary}", details={"at": canary})
        told = await ctx.wait_for("go")
        found = await ctx.call(child, canary)
        return {"kept": kept, "told": told, "found": found["said"]}

    @app.task(max_attempts=1)
    async def fail(canary: str) -> None:
        raise Permanent(f"no {canary}", details={"at": canary})

    return app


async def drain(app: Outlast) -> None:
    await Worker(app).drain()


async def tell(app: Outlast, canary: str) -> dict[str, str]:
    """Put it everywhere; the tasks, by what became of them."""
    payload = {"canary": canary}
    ids = {name: (await app.submit(name, payload)).id for name in ("story", "fail", "child")}
    await drain(app)
    app.engine.skew_ms += 1_000
    await drain(app)
    await alter(app.engine, ids["story"], Signal("go", json.dumps(canary).encode()))
    await drain(app)
    async with app.workflow("flow") as flow:
        first = flow.add(app.handlers["child"], canary)
        flow.add(app.handlers["child"], first.out["said"], when=first.out["said"] == canary)
    await drain(app)
    held = (await app.submit("child", payload, idempotency_key="k")).id
    await alter(app.engine, held, Resolve(json.dumps({"said": canary}).encode()))
    await drain(app)
    await ops.retry(app, ids["fail"], payload)
    await drain(app)
    await webhooks.create(app.engine, f"https://example.com/{canary}")
    await app.engine.append([NewEvent(kind="audit", data=json.dumps(payload).encode())])
    await app.engine.put([Put(kind="note", key="a", value=json.dumps(payload).encode())])
    return {**ids, "resolved": held, "flow": flow.handle.id}


async def test_no_plaintext_is_in_the_store(url: str, engine_name: str) -> None:
    canary = f"canary{token_hex(8)}"
    async with make(url, new_key()) as app:
        ids = await tell(app, canary)
        # Everything was there and is read back.
        assert await app.handle(ids["story"]).result() == dict.fromkeys(
            ("kept", "told", "found"), canary
        )
        assert await app.handle(ids["resolved"]).result() == {"said": canary}
        assert await app.handle(ids["flow"]).result() == {"said": canary}
        failed = await app.handle(ids["fail"]).refresh()
        assert json.loads(failed.payload) == {"canary": canary}
        error = json.loads(failed.error or b"")
        assert (error["code"], error["message"]) == ("permanent", f"no {canary}")
        assert error["details"] == {"at": canary}
        assert [e["error"]["message"] for e in json.loads(failed.attempts)] == [f"no {canary}"] * 2
        told = await events_of(app, ids["story"])
        assert told["chunk"][0] == {"chunk": {"chunk": canary}}
        assert told["progress"][0]["progress"]["message"] == f"at {canary}"
        assert (await app.engine.get("note"))[0].value == json.dumps({"canary": canary}).encode()
        assert [w.url for w in await webhooks.webhooks(app.engine)] == [
            f"https://example.com/{canary}"
        ]
        raw = await RAW[engine_name](url)
    assert canary.encode() not in raw


async def test_without_keys_it_would_have_been_found(url: str, engine_name: str) -> None:
    canary = f"canary{token_hex(8)}"
    async with make(url, None) as app:
        await tell(app, canary)
        raw = await RAW[engine_name](url)
    assert canary.encode() in raw


async def test_a_rotated_key_still_reads_the_old(url: str, engine_name: str) -> None:
    old, new = new_key(), new_key()
    async with make(url, old) as app:
        waiting = (await app.submit("child", {"canary": "a"})).id
        ids = await tell(app, "b")
    async with make(url, f"{new},{old}") as app:
        await drain(app)
        assert await app.handle(waiting).result() == {"said": "a"}
        assert await app.handle(ids["resolved"]).result() == {"said": "b"}


async def test_records_are_sealed_anew_and_then_the_old_key_can_go(
    url: str, engine_name: str
) -> None:
    old, new = new_key(), new_key()
    async with make(url, old) as app:
        made = await webhooks.create(app.engine, "https://example.com")
        await app.engine.put([Put(kind="note", key="a", value=b"1", ttl_ms=3_600_000)])
        task = (await app.submit("child", {"canary": "a"})).id
        [note] = await app.engine.get("note")
    async with make(url, f"{new},{old}") as app:
        done = await rotate(app.engine._engine, app.seal)  # type: ignore[attr-defined]
        assert done.records >= 2
        assert list(done.needed) == [old.partition(":")[0]]
        await alter(app.engine, task, Forget())
        again = await rotate(app.engine._engine, app.seal)  # type: ignore[attr-defined]
        assert (again.records, again.needed) == (0, {})
    async with make(url, new) as app:
        assert await webhooks.find(app.engine, made.id) == made
        [kept] = await app.engine.get("note")
        assert kept.value == note.value
        assert kept.expires_at is not None
        assert abs(kept.expires_at - (note.expires_at or 0)) < 60_000


async def test_a_copy_needs_no_key(url: str, engine_name: str, tmp_path: Path) -> None:
    key, target = new_key(), f"sqlite:///{tmp_path}/copy.db"
    async with make(url, key) as app:
        ids = await tell(app, "b")
    ends = connect(url), connect(target)
    for engine in ends:
        await engine.open()
    try:
        await move(*ends, "the source")
    finally:
        for engine in ends:
            await engine.close()
    async with make(target, key) as app:
        assert await app.handle(ids["resolved"]).result() == {"said": "b"}
        assert len(await webhooks.webhooks(app.engine)) == 1


async def test_a_value_cannot_be_moved_to_another_task(url: str, engine_name: str) -> None:
    """Whoever writes to the database cannot have a task run with the payload of another."""
    async with make(url, new_key()) as app:
        stolen, mine = [(await app.submit("child", {"canary": c})).id for c in "ab"]
        inner = app.engine._engine  # type: ignore[attr-defined]
        tasks = {t.id: t for t in (await inner.tasks(TaskQuery.of(id=(stolen, mine)))).items}
        moved = replace(tasks[mine], payload=tasks[stolen].payload)
        await inner.alter([mine], EditPayload(moved.payload))
        await drain(app)
        task = await app.handle(mine).refresh()
        assert (task.status, json.loads(task.error or b"")["code"]) == ("scheduled", "key_missing")
        assert await app.handle(stolen).result() == {"said": "a"}


async def events_of(app: Outlast, id: str) -> dict[str, list[Any]]:
    page = await app.engine.events(EventQuery(task_id=id))
    found: dict[str, list[Any]] = {}
    for event in page.items:
        found.setdefault(event.kind, []).append(json.loads(event.data))
    return found
