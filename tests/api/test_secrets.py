"""Secrets in an app: what handlers get, what people see, what may not be named, redaction rules."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from outlast import (
    BadInput,
    Context,
    Escalation,
    KeyMissing,
    Limit,
    Mismatch,
    Outlast,
    Permanent,
    Queue,
    Secret,
    Spawn,
    SyncContext,
    flows,
    notices,
    ops,
    travel,
)
from outlast.core.model import EventQuery, TaskQuery
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

    @app.task
    async def asking(ctx: Context, card: Secret[str]) -> None:
        await ctx.ask(f"Charge {card.reveal()}?", action={"card": card.reveal()})

    with caplog.at_level(logging.DEBUG):
        async with testing(app) as t:
            handles = [
                await asking.enqueue(Secret(CANARY)),
                await leaky.enqueue(Secret(CANARY)),
                await leaky_thread.enqueue(Secret(CANARY)),
            ]
            await t.run()
            asked, *tasks = [await t.task(handle) for handle in handles]
            events = [event for handle in handles for event in await t.events(handle)]
    told = json.loads(asked.progress or b"")["data"]["question"]
    assert (told["question"], told["action"]) == ("Charge ***?", {"card": "***"})
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


async def test_a_secret_result_is_one_wherever_a_workflow_carries_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As the workflow's own result, one of several, mapped over, where no secret is expected."""
    app = Outlast("memory://")

    @app.task
    async def login(name: str = "") -> dict[str, Secret[str]]:
        return {"token": Secret(f"{CANARY} {name}")}

    @app.task(max_attempts=1)
    async def fetch(token: str) -> None:
        raise Permanent(f"401 with {token}")

    @app.task
    async def charge(card: Secret[str], amount: int) -> Secret[str]:
        return Secret(f"{card.reveal()} {amount}")

    @app.task
    async def listed() -> list[Secret[str]]:
        return [Secret(CANARY), Secret(f"{CANARY}-2")]

    async with testing(app) as t:
        spawn = Spawn("charge", {"card": CANARY, "amount": 1})
        rules = [Escalation(age="1d", stop=True), Escalation(failures=1, spawn=spawn)]
        async with app.workflow("one", escalate=rules) as one:
            one.add(login)
        async with app.workflow("two") as two:
            two.add(login, "a")
            two.nest("part").add(login, "b")
        async with app.workflow("dies") as dies:
            dies.add(fetch, dies.add(login).out["token"])
        async with app.workflow("last of a list") as last:
            last.add(fetch, last.add(listed).out[-1])
        async with app.workflow("mapped") as mapped:
            mapped.map(charge, mapped.add(listed).out, item="card", amount=3)
            mapped.map(charge, [1, 2], item="amount", card=Secret(CANARY), name="by amount")
        with caplog.at_level(logging.DEBUG):
            await t.run()
        tasks = (await app.engine.tasks(TaskQuery(limit=100))).items
        told = {flow.name: await flow.handle.refresh() for flow in (one, two, dies, mapped)}
        again = await flows.retry(app, mapped.id, "by amount")
        tasks = (*tasks, *(await app.engine.tasks(TaskQuery.of(workflow_id=again))).items)
        results = json.loads(told["mapped"].result or b"")
        drawn = [to_json(await flows.drawn(app, flow.id)).decode() for flow in (one, two, mapped)]
    assert results["by amount"] == [f"{CANARY} 1", f"{CANARY} 2"]  # who has the engine gets it
    shown = {name: json.loads(seen(app, task)) for name, task in told.items()}
    assert shown["one"]["result"] == {"token": "***"}
    assert shown["two"]["result"] == {"login": {"token": "***"}, "part": {"token": "***"}}
    assert shown["mapped"]["result"] == {"map charge": ["***"] * 2, "by amount": ["***"] * 2}
    assert "401 with ***" in shown["dies"]["error"]["message"]
    assert CANARY not in seen(app, *tasks)
    assert CANARY not in "".join(drawn)
    assert CANARY not in caplog.text
    # Whoever shows it may know neither the app nor the types.
    assert CANARY.encode() not in b"".join(to_json(task_view(task)) for task in tasks)


async def test_what_is_remembered_of_secrets_is_shown_to_nobody() -> None:
    app = Outlast("memory://")

    @app.task
    async def login() -> dict[str, Secret[str]]:
        return {"token": Secret(CANARY)}

    def key() -> Secret[str]:
        return Secret(CANARY)

    def odd() -> dict[str, object]:
        return {"$secret": [["value"]], "value": 7}

    @app.task(max_attempts=1)
    async def work(ctx: Context, name: str = "work") -> str:
        first = await ctx.step("key", key)
        plain = await ctx.step("odd", odd)
        called = await ctx.call(login)
        assert plain == {"$secret": [["value"]], "value": 7}
        assert first.reveal() == called["token"].reveal() == CANARY
        await ctx.sleep("1m")
        return name

    async with testing(app) as t:
        handle = await work.enqueue()
        await t.run()
        await t.advance("2m")
        await t.run()
        assert (await handle.refresh()).result == b'"work"'
        told = await travel.steps(app, handle.id)
        again = await travel.rerun(
            app, handle.id, from_step=":sleep:1", steps={"key": "***", "odd": {"a": 1}}
        )
        await t.run()
        failed = json.loads((await again.refresh()).error or b"{}")
        carried = await travel.steps(app, again.id)
    values = {item["name"]: item["value"] for item in told["items"]}
    assert values["key"] == "***"
    assert values["odd"]["value"] == 7
    assert values[":call:login:1"]["result"] == {"token": "***"}
    assert failed["type"] == "AssertionError"  # the step that was edited, and no other
    assert {item["name"]: item["value"] for item in carried["items"]}["key"] == "***"
    assert CANARY.encode() not in to_json({"told": told, "carried": carried})


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


async def test_what_is_encrypted_with_a_missing_key_hides_nothing_else(tmp_path: Any) -> None:
    """Workflows, notifications and what tasks remember are shown, with gaps."""
    url, key = f"sqlite:///{tmp_path}/t.db", new_key()

    def make(keys: str) -> Outlast:
        app = Outlast(url, encryption_keys=keys)

        @app.task
        async def work(ctx: Context, n: int = 0) -> int:
            await ctx.ask("sure?", timeout="1ms", default=None)
            return await ctx.step("one", lambda: 1)

        return app

    async def enqueue(app: Outlast, name: str) -> tuple[str, str]:
        work = app.handlers["work"]
        async with app.workflow(name, session_id="s") as flow:
            flow.map(work, [], name="none")
            flow.add(work)
        task = await work.options(session_id="s").enqueue()
        await _drain(app)
        app.engine.skew_ms += 100
        await _drain(app)
        return flow.id, task.id

    async with make(key) as app:
        locked, task = await enqueue(app, "locked")
        assert (await app.handle(task).refresh()).state == "completed"
    async with make(new_key()) as app:
        app.engine.skew_ms = 200
        free, _ = await enqueue(app, "free")
        page = await flows.page(app, TaskQuery.of(type="outlast.workflow"), set())
        told = {item["id"]: item["name"] for item in page["items"]}
        drawn = await flows.drawn(app, locked)
        items = (await notices.pending(app.engine, "s")).items
        steps = await travel.steps(app, task)
        for again in (travel.rerun(app, task, from_step="two"), flows.retry(app, locked, "work")):
            with pytest.raises((KeyMissing, BadInput)):
                await again
        with pytest.raises(KeyMissing):
            await ops.retry(app, task, {"card": "***"})
    assert told == {locked: "***", free: "free"}
    assert len(drawn["nodes"]) == 2
    assert {item.message for item in items} >= {"Your free is ready.", "Your *** is ready."}
    gap = {"$enc": key.partition(":")[0]}
    assert [item["value"] for item in steps["items"] if item["kind"] == "step"] == [gap]


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
