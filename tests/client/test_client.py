"""What a program does with a server through `outlast.client`."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import outlast
from outlast import client as module
from outlast.access import create_key
from outlast.client import AsyncClient, Client
from outlast.core.ids import new_id
from tests.http.site import Site, until

from .conftest import Maker

# Tasks -------------------------------------------------------------------------------------------


async def test_a_task_is_handed_over_and_its_result_fetched(client: Any) -> None:
    task = await client.enqueue("add", {"a": 2, "b": 3}, tags=["x"], timeout=timedelta(minutes=1))
    assert (task.existing, task.tags, task.timeout) == (False, ["x"], 60.0)
    assert await client.result(task, timeout="20s") == 5
    assert (await client.get(task.id)).status == "completed"
    assert (await client.why(task)).spent


async def test_a_batch_is_answered_in_order(client: Any) -> None:
    later = datetime(2100, 1, 1, tzinfo=UTC)
    first = await client.enqueue("add", {"a": 1})
    made = await client.enqueue_many(
        [
            {"type": "add", "payload": {"a": 1}, "after": [first]},
            {"type": "add", "payload": {"a": 2}, "run_at": later},
        ]
    )
    assert [task.payload["a"] for task in made] == [1, 2]
    assert (made[0].after, made[1].status) == ([first.id], "scheduled")


async def test_all_pages_are_one_iterator(client: Any) -> None:
    made = await client.enqueue_many(
        [{"type": "add", "payload": {"a": n}, "delay": "1h", "tags": ["p"]} for n in range(7)]
    )
    found = [task.id async for task in client.tasks(tag="p", limit=3)]
    assert sorted(found) == sorted(task.id for task in made)
    page = await client.page(status=["scheduled", "dead"], tag="p", limit=5)
    assert (len(page.items), page.next is None) == (5, False)


async def test_a_dead_task_raises_and_can_be_run_again(client: Any) -> None:
    task = await client.enqueue("doomed")
    with pytest.raises(outlast.TaskDead, match="it cannot be"):
        await client.result(task, timeout="20s")
    assert [dead.id async for dead in client.dead(type="doomed")] == [task.id]
    [group] = await client.dead_groups()
    assert (group.count, group.error_type) == (1, "Permanent")
    assert await client.matching("retry", "status:dead") == 1
    bulk = await client.bulk("retry", "status:dead")
    assert bulk.matched == 1
    assert await client.result(bulk, timeout="20s") == {"changed": 1}
    assert (await client.wait(task, timeout="20s")).status == "dead"
    await client.retry(task)
    assert (await client.wait(task, timeout="20s")).reason


async def test_a_wait_that_takes_too_long_says_so(client: Any) -> None:
    task = await client.enqueue("add", {"a": 1}, delay="1h")
    with pytest.raises(outlast.WaitTimeout, match="scheduled"):
        await client.wait(task, timeout="10ms")


async def test_tasks_are_cancelled_signalled_and_deleted(client: Any) -> None:
    held = await client.enqueue("add", {"a": 1}, hold="go")
    assert held.status == "blocked"
    await client.signal(held, "go", {"by": "ada"})
    assert await client.result(held, timeout="20s") == 1
    waiting = await client.enqueue("add", {"a": 1}, delay="1h")
    assert (await client.cancel(waiting, "changed my mind")).reason == "changed my mind"
    await client.delete(waiting)
    with pytest.raises(outlast.NotFound):
        await client.get(waiting)


# Streams -----------------------------------------------------------------------------------------


async def test_a_stream_has_every_event_and_ends_with_the_task(client: Any) -> None:
    task = await client.enqueue("tell", {"chunks": 5})
    events = [event async for event in client.stream(task)]
    assert [event.chunk for event in events if event.kind == "chunk"] == [
        f"1.{n}" for n in range(5)
    ]
    assert (events[-1].kind, events[-1].status, events[-1].task_id) == (
        "done", "completed", task.id,
    )  # fmt: skip
    assert [event.progress.percent for event in events if event.progress]
    again = [event async for event in client.stream(task, after=events[1].cursor)]
    assert [event.cursor for event in again] == [event.cursor for event in events[2:]]
    assert [event async for event in client.stream(task, after=events[-1].cursor)] == []


async def test_the_stream_of_everything_can_be_narrowed(client: Any) -> None:
    async with aclosing(client.events(after="0", kinds=["done"])) as events:
        for n in range(3):
            await client.enqueue("add", {"a": n})
        kinds = [(await anext(events)).kind for _ in range(3)]
    assert kinds == ["done"] * 3


# Operating ---------------------------------------------------------------------------------------


async def test_queues_limits_workers_and_types(client: Any) -> None:
    assert (await client.pause("slow")).paused
    assert (await client.queues()).by_queue["slow"].paused
    assert not (await client.resume("slow")).paused
    assert (await client.set_limit("user:*", slots=2, trip={"rate": 0.2})).trip.rate == 0.2
    assert "user:*" in [limit.key for limit in (await client.limits()).items]
    await client.delete_limit("user:*")
    assert [worker.alive for worker in await client.workers()] == [True]
    assert "add" in [known.type for known in await client.types()]
    assert (await client.health()).status == "healthy"
    assert await client.now() > 1_700_000_000_000
    assert (await client.requeue_orphaned()).requeued == 0
    assert await client.history("hour", since="2100-01-01T00:00:00Z") == []


async def test_keys_sessions_and_what_they_may(busy: Site, connect: Maker) -> None:
    text, _ = await create_key(busy.app.engine, "admin")
    other, _ = await create_key(busy.app.engine, "client", name="web")
    admin, web = connect(busy.address, text), connect(busy.address, other)
    made = await admin.create_key("client", name="new", types=["add"], expires="1h")
    assert made.key.startswith("olk_")
    assert made.id in [key.id for key in await admin.keys()]
    with pytest.raises(module.Forbidden) as refused:
        await web.keys()
    assert (refused.value.status, refused.value.title) == (403, "Forbidden")
    token = await admin.token("s-1", user_id="ada")
    ada = connect(busy.address, token.token)
    mine = await ada.enqueue("add", {"a": 4})
    assert (mine.session_id, mine.user_id) == ("s-1", "ada")
    assert await ada.result(mine, timeout="20s") == 4
    assert [task.id async for task in ada.session_tasks("s-1")] == [mine.id]
    assert (await ada.set_preferences("s-1", push=False)).push is False
    assert (await ada.preferences("s-1")).push is False
    notices = (await ada.notifications("s-1")).items
    ids = [notice.notification_id for notice in notices]
    assert await ada.acknowledge("s-1", ids) == ids
    assert (await ada.ticket("s-1")).ticket
    await admin.revoke_key(made.id)
    with pytest.raises(module.Unauthorized, match="API key"):
        await connect(busy.address, "olk_nobody-knows-this-key").get(mine)


async def test_webhooks(client: Any) -> None:
    made = await client.create_webhook("https://example.org/hook", events=["task.completed"])
    assert made.secret.startswith("whsec_")
    assert [hook.url for hook in await client.webhooks()] == ["https://example.org/hook"]
    assert (await client.rotate_webhook(made.id)).secret != made.secret
    assert (await client.enable_webhook(made.id)).disabled is None
    assert [task async for task in client.deliveries(made.id)] == []
    with pytest.raises(module.NotFound):
        await client.replay(made.id, new_id())
    await client.delete_webhook(made.id)


# Working -----------------------------------------------------------------------------------------


async def test_a_worker_over_http(client: Any) -> None:
    good = await client.enqueue("elsewhere", {"to": "there"}, queue="far")
    [leased] = await client.claim("w", queues=["far"], types=["elsewhere"], wait_s=10)
    assert leased.task.id == good.id
    assert (await client.heartbeat(leased.lease)).cancel is None
    await client.progress(leased.lease, 50, "half way")
    await client.emit(leased.lease, "a word")
    assert (await client.complete(leased.lease, {"ok": True})).outcome == "succeeded"
    assert await client.result(good) == {"ok": True}
    bad = await client.enqueue("elsewhere", {"to": "there"}, queue="far")
    [leased] = await client.claim("w", queues=["far"], types=["elsewhere"], wait_s=10)
    assert (await client.fail(leased.lease, ValueError("no"), retry=False)).outcome == "failed"
    with pytest.raises(outlast.TaskDead, match="ValueError: no"):
        await client.result(bad, timeout="20s")
    with pytest.raises(outlast.LeaseLost):
        await client.release(leased.lease)


# Refusals ----------------------------------------------------------------------------------------


async def test_refusals_are_the_exceptions_of_outlast(client: Any) -> None:
    with pytest.raises(outlast.UnknownType, match="did you mean 'add'"):
        await client.enqueue("ad")
    with pytest.raises(outlast.BadInput) as wrong:
        await client.enqueue("add", {"a": "x"})
    assert (wrong.value.status, wrong.value.code, wrong.value.field) == (422, "bad_input", "$.a")
    with pytest.raises(outlast.Conflict):
        done = await client.enqueue("add", {"a": 1})
        await client.wait(done, timeout="20s")
        await client.cancel(done)
    with pytest.raises(outlast.BadInput, match="joined"):
        await client.enqueue("add", {"a": 1}, within=object())
    with pytest.raises(outlast.TooLarge):
        await client.enqueue("add", {"a": "x" * 2_000_000})


async def test_names_are_quoted_in_paths(client: Any) -> None:
    name = "a/b c?d#e%2F"
    await client.pause(name)
    assert (await client.queues()).by_queue[name].paused


def test_an_address_or_key_that_is_none_is_refused() -> None:
    with pytest.raises(outlast.BadInput, match="no address"):
        Client("localhost:5278")
    with pytest.raises(outlast.BadInput, match="copied whole"):
        Client("http://localhost:5278", "olk_\n")


def test_the_address_and_the_key_may_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTLAST_SERVER", "https://tasks.example.org/base/")
    monkeypatch.setenv("OUTLAST_KEY", "olk_from-the-environment")
    with Client() as client:
        link = client._link
    assert link.url == "https://tasks.example.org/base"
    assert link.headers["authorization"] == "Bearer olk_from-the-environment"


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(value).parameters)
            for name, value in inspect.getmembers(kind, callable)
            if not name.startswith("_")
        }

    assert methods(Client) == methods(AsyncClient)
    assert {"enqueue", "wait", "stream"} <= methods(Client).keys()


async def test_a_stream_may_be_left_early(busy: Site, client: Any) -> None:
    task = await client.enqueue("wait", {"gate": "g"})
    async with aclosing(client.stream(task)) as events:
        assert (await anext(events)).kind == "state"
    await until(lambda: busy.open_streams == 0)
    busy.gates.setdefault("g", asyncio.Event()).set()


async def test_a_secret_is_sent_and_never_shown(busy: Site, client: Any) -> None:
    task = await client.enqueue("elsewhere", {"to": outlast.Secret("hush")}, queue="far")
    [leased] = await client.claim("w", queues=["far"], types=["elsewhere"], wait_s=10)
    assert leased.task.payload == {"to": "hush"}
    assert (await client.complete(leased.lease)).task_id == task.id
