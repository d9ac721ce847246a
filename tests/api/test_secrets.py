"""Secrets in an app: what handlers get, what people see, what may not be named, redaction rules."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from outlast import (
    BadInput,
    Context,
    KeyMissing,
    Limit,
    Mismatch,
    Outlast,
    Permanent,
    Queue,
    Secret,
    SyncContext,
    ops,
)
from outlast.core.model import EventQuery
from outlast.core.seal import new_key
from outlast.query import parse_query
from outlast.testing import testing
from outlast.views import event_view, task_view, to_json
from outlast.worker import Worker

CANARY = "canary-4242"


def seen(app: Outlast, *tasks: Any) -> str:
    return b"\n".join(to_json(task_view(task, app.redactor)) for task in tasks).decode()


async def test_a_handler_reads_it_and_people_see_stars() -> None:
    app = Outlast("memory://")
    got: list[str] = []

    @app.task
    async def charge(card: Secret[str], amount: int) -> dict[str, Secret[str]]:
        got.append(card.reveal())
        return {"receipt": Secret(f"r-{CANARY}")}

    async with testing(app) as t:
        handle = await charge.enqueue(Secret(CANARY), 5)
        await app.submit("charge", {"card": Secret(CANARY), "amount": 5})
        await t.run()
        assert got == [CANARY, CANARY]
        assert (await handle.result())["receipt"].reveal() == f"r-{CANARY}"
        task = await handle.refresh()
    view = json.loads(seen(app, task))
    assert view["payload"] == {"card": "***", "amount": 5}
    assert view["result"] == {"receipt": "***"}
    # Whoever shows it may know neither the app nor the type.
    assert CANARY.encode() not in to_json(task_view(task))


async def test_what_an_attempt_says_does_not_show_its_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Outlast("memory://")

    @app.task(max_attempts=1)
    async def leaky(ctx: Context, card: Secret[str]) -> None:
        await ctx.progress(10, f"charging {card.reveal()}", last=card.reveal())
        await ctx.emit({"said": [f"card={card.reveal()}"]})
        await ctx.usage(tokens=4242, model=f"m/{card.reveal()}")
        ctx.log.warning("charging %s", card.reveal())
        try:
            raise ValueError(card.reveal())
        except ValueError:
            ctx.log.exception("no")
        raise Permanent(f"{card.reveal()} refused", details={"card": card.reveal()})

    @app.task(max_attempts=1)
    def leaky_thread(ctx: SyncContext, card: Secret[str]) -> None:
        ctx.emit(card.reveal())
        raise KeyError(card.reveal())

    with caplog.at_level(logging.DEBUG):
        async with testing(app) as t:
            handles = [
                await leaky.enqueue(Secret(CANARY)),
                await leaky_thread.enqueue(Secret(CANARY)),
            ]
            await t.run()
            tasks = [await t.task(handle) for handle in handles]
            events = [event for handle in handles for event in await t.events(handle)]
    for task in tasks:
        for told in (task.error, task.attempts, task.progress or b""):
            assert CANARY.encode() not in (told or b"")
    assert json.loads(tasks[0].error or b"")["message"] == "*** refused"
    assert "charging ***" in (tasks[0].progress or b"").decode()
    assert any(event.data.get("chunk") == {"said": ["card=***"]} for event in events)
    [usage] = [event.data for event in events if event.kind == "usage"]
    assert (usage["model"], usage["tokens"]) == ("m/***", 4242)
    assert CANARY not in repr(events)
    assert "charging ***" in caplog.text
    assert "ValueError: ***" in caplog.text
    assert CANARY not in caplog.text


async def test_a_secret_result_stays_one_on_its_way_to_the_next_task() -> None:
    app = Outlast("memory://", encryption_keys=new_key())

    @app.task
    async def login() -> dict[str, Secret[str]]:
        return {"token": Secret(CANARY)}

    @app.task(max_attempts=1)
    async def fetch(token: Secret[str]) -> None:
        raise Permanent(f"401 with {token.reveal()}")

    async with testing(app) as t:
        async with app.workflow("w") as flow:
            first = flow.add(login)
            last = flow.add(fetch, first.out["token"])
        await t.run()
        tasks = [await t.task(node) for node in (first, last)]
    assert json.loads(tasks[1].error or b"")["message"] == "401 with ***"
    assert CANARY not in seen(app, *tasks)


@pytest.mark.parametrize("options", [{"search": ["card"]}, {"limits": ["u:{user.token}"]}])
def test_a_secret_names_no_limit_and_is_not_searched(options: Any) -> None:
    app = Outlast("memory://", limits=[Limit("u:*", slots=1)])
    schema = {
        "type": "object",
        "properties": {
            "card": {"type": "string", "format": "password"},
            "user": {"type": "object", "properties": {"token": {"writeOnly": True}}},
        },
    }
    with pytest.raises(BadInput, match="is secret"):
        app.external("charge", schema=schema, **options)


def test_a_secret_shares_no_queue() -> None:
    app = Outlast("memory://", queues=[Queue("fair", fair_by="card")])
    with pytest.raises(BadInput, match="fair_by"):

        @app.task(queue="fair")
        async def charge(card: Secret[str]) -> None: ...


def test_a_schema_with_secrets_quotes_nothing() -> None:
    app = Outlast("memory://")
    schema = {
        "type": "object",
        "properties": {"pin": {"anyOf": [{"maxLength": 2, "writeOnly": True}]}},
    }
    external = app.external("charge", schema=schema)
    with pytest.raises(BadInput, match="nothing is quoted") as refused:
        external.accept({"pin": CANARY})
    assert CANARY not in str(refused.value)
    assert refused.value.field == "$.pin"


async def test_fields_are_redacted_by_name() -> None:
    app = Outlast("memory://", redact=["*.pin", "note"])

    @app.task
    async def echo(ctx: Context, user: dict[str, str], password: str) -> dict[str, str]:
        await ctx.emit({"note": CANARY})
        await ctx.progress(5, "x", note=CANARY)
        return {"note": CANARY}

    async with testing(app) as t:
        handle = await echo.enqueue({"pin": CANARY}, "shown")
        await t.run()
        task = await t.task(handle)
        page = await app.engine.events(EventQuery(task_id=handle.id))
    assert CANARY not in seen(app, task)
    assert "shown" in seen(app, task)
    assert CANARY.encode() not in to_json([event_view(e, app.redactor) for e in page.items])


def test_redact_is_a_list_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="list"):
        Outlast("memory://", redact="password")
    monkeypatch.setenv("OUTLAST_REDACT", "pin, *.code")
    assert Outlast("memory://").redactor.rules.names == ("pin", "*.code")
    assert Outlast("memory://", redact=[]).redactor.rules.names == ()


async def test_an_edited_payload_keeps_what_its_editor_did_not_see() -> None:
    app = Outlast("memory://")
    got: list[str] = []

    @app.task(max_attempts=1)
    async def charge(card: Secret[str], amount: int) -> None:
        if not amount:
            raise Permanent("nothing to charge")
        got.append(card.reveal())

    async with testing(app) as t:
        handle = await charge.enqueue(Secret(CANARY), 0)
        await t.run()
        view = json.loads(seen(app, await t.task(handle)))
        await ops.retry(app, handle.id, {**view["payload"], "amount": 7})
        await t.run()
    assert got == [CANARY]


# Encryption --------------------------------------------------------------------------------------


def make(url: str, keys: str | None) -> Outlast:
    app = Outlast(url, encryption_keys=keys)

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    return app


async def test_an_app_with_keys_reads_what_was_stored_before(tmp_path: Any) -> None:
    url, old, new = f"sqlite:///{tmp_path}/t.db", new_key(), new_key()
    ids = []
    for keys in (None, old, f"{new},{old}"):
        async with make(url, keys) as app:
            ids.append((await app.submit("double", {"n": 21})).id)
            await _drain(app)
    async with make(url, f"{new},{old}") as app:
        assert [await app.handle(id).result() for id in ids] == [42, 42, 42]


@pytest.mark.parametrize("keys", [None, new_key()], ids=["none", "another"])
async def test_work_whose_key_is_missing_is_given_back_and_says_so(
    tmp_path: Any, keys: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    url, key = f"sqlite:///{tmp_path}/t.db", new_key()
    async with make(url, key) as app:
        locked = (await app.submit("double", {"n": 1})).id
    async with make(url, keys) as app:
        free = (await app.submit("double", {"n": 2})).id
        await _drain(app)
        task = await app.handle(locked).refresh()
        assert await app.handle(free).result() == 4
    assert f"double {locked} was given back" in caplog.text
    assert (task.status, task.attempt) == ("scheduled", 0)
    error = json.loads(task.error or b"")
    assert error["code"] == "key_missing"
    assert key.partition(":")[0] in error["message"]
    assert json.loads(task.payload) == {"$enc": key.partition(":")[0]}
    async with make(url, key) as app:
        app.engine.skew_ms = 10_000
        await _drain(app)
        assert await app.handle(locked).result() == 2
    async with make(url, keys) as app:
        with pytest.raises(KeyMissing):
            await app.handle(locked).result()


async def test_payloads_cannot_be_searched_but_what_is_declared_can() -> None:
    app = Outlast("memory://", encryption_keys=new_key())

    @app.task(search=["user"])
    async def greet(user: str) -> None: ...

    async with testing(app):
        handle = await greet.enqueue("ada")
        found = await app.engine.tasks(await parse_query(app.engine, {"q": "attr.user:ada"}))
        assert [task.id for task in found.items] == [handle.id]
        for q in ("payload.user:ada", '"ada"'):
            with pytest.raises(BadInput, match=r"search=.*attr\."):
                await app.engine.tasks(await parse_query(app.engine, {"q": q}))


async def test_an_idempotency_key_holds_over_a_rotation(tmp_path: Any) -> None:
    url, old, new = f"sqlite:///{tmp_path}/t.db", new_key(), new_key()
    async with make(url, old) as app:
        first = await app.submit("double", {"n": 1}, idempotency_key="k")
    async with make(url, f"{new},{old}") as app:
        again = await app.submit("double", {"n": 1}, idempotency_key="k")
        assert (again.id, again.existing) == (first.id, True)
        with pytest.raises(Mismatch):
            await app.submit("double", {"n": 2}, idempotency_key="k")


async def _drain(app: Outlast) -> None:
    await Worker(app).drain()
