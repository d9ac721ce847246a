"""Setting right: what died, what is in the way, who works."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import expect

from tests.http.site import Site, until
from tests.http.test_webhooks import Receiver

from .conftest import Opened

BOTH = pytest.mark.parametrize("engine_name", ["sqlite", "postgresql"])


@BOTH
async def test_a_group_of_fifty_is_redriven(site: Site, opened: Opened) -> None:
    tasks = [{"type": "fails", "payload": {"note": str(n)}} for n in range(50)]
    await site.post("/tasks/batch", {"tasks": tasks})

    async def dead() -> bool:
        return bool((await site.get("/queues/status")).json()["states"]["dead"] == 50)

    await until(dead, 30)
    page = await opened("/failures")
    group = page.locator("[data-group]")
    await expect(group).to_contain_text("Permanent in fails")
    await expect(group).to_contain_text("50 dead")
    await group.get_by_role("button", name="Redrive…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Redrive 50 tasks?")
    await dialog.get_by_role("button", name="Redrive 50").click()
    await expect(page.get_by_text("Redrive 50:")).to_be_visible()

    async def all_tried_twice() -> bool:
        found = (await site.get("/tasks?type=fails&limit=100")).json()["items"]
        return [len(task["attempts"]) for task in found] == [2] * 50

    await until(all_tried_twice, 30)


async def test_the_overview_leads_to_those_that_died_alike(site: Site, opened: Opened) -> None:
    await site.ended((await site.enqueue("fails"))["id"])
    await site.post("/queues/bulk/pause")
    expired = (await site.enqueue("fails", queue="bulk", max_age="1ms"))["id"]
    assert (await site.ended(expired))["reason"] == "expired"
    page = await opened("/")
    await page.get_by_role("link", name="expired in fails").click()
    await expect(page.locator(f'[data-task="{expired}"]')).to_be_visible()
    await expect(page.locator("[data-task]")).to_have_count(1)


async def test_the_newest_of_a_group_is_edited_and_redriven(site: Site, opened: Opened) -> None:
    for note in ("old", "new"):
        id = (await site.enqueue("fails", {"note": note}))["id"]
        await site.ended(id)
    page = await opened("/failures")
    await page.get_by_role("button", name="Edit the newest").click()
    await page.get_by_role("textbox", name="Payload").fill('{"mended": true, "note": "now"}')
    await page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    await expect(page.locator("[data-group]")).to_contain_text("1 dead")
    assert (await site.ended(id))["result"] == "mended now"


async def test_a_task_is_redriven_by_the_keyboard_alone(site: Site, opened: Opened) -> None:
    ids = [(await site.enqueue("fails", {"note": str(n)}))["id"] for n in range(2)]
    for id in ids:
        await site.ended(id)
    page = await opened("/")
    keys = page.keyboard
    await expect(page.locator("main h1")).to_be_attached()
    await keys.type("gt")
    await expect(page.locator("[data-task]")).to_have_count(2)
    await keys.press("/")
    await keys.type("status:de")
    await expect(page.get_by_role("option", name="dead")).to_be_visible()
    await keys.press("Tab")
    await keys.press("Enter")
    await expect(page).to_have_url(re.compile("status%3Adead"))
    await keys.press("Escape")
    await keys.type("jx")
    await expect(page.get_by_text("1 chosen")).to_be_visible()
    await page.get_by_role("button", name="Redrive…").focus()
    await keys.press("Enter")
    await expect(page.get_by_role("dialog")).to_contain_text("Redrive 1 task?")
    for _ in range(4):  # past the pace and "Not now"
        if await page.evaluate("document.activeElement.textContent") == "Redrive 1":
            break
        await keys.press("Tab")
    await keys.press("Enter")

    async def ran_again() -> bool:
        return [len((await site.task(id))["attempts"]) for id in ids] == [1, 2]

    await until(ran_again, 30)


async def test_the_focus_is_where_it_was_when_a_dialog_is_left(site: Site, opened: Opened) -> None:
    await site.ended((await site.enqueue("fails"))["id"])
    page = await opened("/failures")
    keys = page.keyboard
    for name in ("Redrive…", "Edit the newest", "Purge…"):
        button = page.get_by_role("button", name=name)
        for leave in ("Escape", "Not now"):
            await button.focus()
            await keys.press("Enter")
            await expect(page.get_by_role("dialog")).to_be_visible()
            if leave == "Escape":
                await keys.press("Escape")
            else:
                await page.get_by_role("button", name=leave).press("Enter")
            await expect(page.get_by_role("dialog")).to_have_count(0)
            await expect(button).to_be_focused()


async def test_a_group_is_purged(site: Site, opened: Opened) -> None:
    id = (await site.enqueue("fails"))["id"]
    await site.ended(id)
    page = await opened("/failures")
    await page.get_by_role("button", name="Purge…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete 1").click()
    await expect(page.get_by_text("Nothing is dead.")).to_be_visible()
    assert (await site.get(f"/tasks/{id}")).status_code == 404


@BOTH
async def test_a_queue_is_paused_and_its_tasks_wait(site: Site, opened: Opened) -> None:
    await site.ended((await site.enqueue("draw", {"prompt": "first"}))["id"])
    page = await opened("/queues")
    queue = page.locator('[data-queue="bulk"]')
    await queue.get_by_role("button", name="Pause bulk").click()
    await expect(queue.get_by_text("paused")).to_be_visible()
    id = (await site.enqueue("draw", {"prompt": "second"}))["id"]
    low = (await site.enqueue("draw", {"prompt": "third"}, priority="low"))["id"]
    high = (await site.enqueue("draw", {"prompt": "fourth"}, priority="high"))["id"]
    await expect(queue.get_by_role("link", name="3", exact=True)).to_be_visible()
    assert (await site.task(id))["status"] == "ready"
    await queue.get_by_text("Who is next").click()
    order = queue.locator("tbody a.id")
    await expect(order).to_have_count(3)
    assert [await link.get_attribute("title") for link in await order.all()] == [high, id, low]
    await queue.get_by_role("button", name="Resume bulk").click()
    for one in (id, low, high):
        assert (await site.ended(one))["status"] == "completed"
    await expect(queue.get_by_text("paused")).to_have_count(0)


@BOTH
async def test_a_limit_shows_who_holds_it_and_is_set_anew(site: Site, opened: Opened) -> None:
    holder = (await site.enqueue("waits", {"name": "a"}))["id"]
    second = (await site.enqueue("waits", {"name": "b"}))["id"]
    page = await opened("/limits")
    used = page.get_by_role("region", name="Limits in use")
    await expect(used).to_contain_text("1 of 1")
    await expect(used.get_by_role("link", name=holder[-6:])).to_be_visible()
    await expect(used.get_by_role("link", name="1", exact=True)).to_be_visible()  # one waits
    await page.get_by_role("button", name="Edit pool").click()
    await page.get_by_role("spinbutton", name="Slots").fill("2")
    await page.get_by_role("button", name="Set it").click()
    await expect(used).to_contain_text("2 of 2")
    limits = (await site.get("/limits")).json()["items"]
    assert next(one for one in limits if one["key"] == "pool")["slots"] == 2
    for name in ("a", "b"):
        site.gates[name].set()
    assert (await site.ended(second))["status"] == "completed"


async def test_what_is_not_edited_of_a_limit_stays(site: Site, opened: Opened) -> None:
    trip = {"rate": 0.125, "volume": 7, "window": 90.5, "open": 45.0}
    await site.http.put("/api/v1/limits/api", json={"slots": 1, "trip": trip})
    page = await opened("/limits")
    await page.get_by_role("button", name="Edit api").click()
    await page.get_by_role("spinbutton", name="Slots").fill("2")
    await page.get_by_role("button", name="Set it").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    limits = (await site.get("/limits")).json()["items"]
    found = next(one for one in limits if one["key"] == "api")
    assert (found["slots"], found["trip"]) == (2, trip)


@BOTH
async def test_an_open_circuit_is_seen_with_its_countdown(site: Site, opened: Opened) -> None:
    await site.ended((await site.enqueue("trips"))["id"])
    page = await opened("/")
    await expect(page.get_by_role("link", name="Circuit model is open")).to_be_visible()
    await page.get_by_role("link", name="Circuit model is open").click()
    used = page.get_by_role("region", name="Limits in use")
    await expect(used).to_contain_text(re.compile("tried again in (60|5.) min"))
    health = (await site.http.get("/health")).json()
    assert list(health["components"]["circuit_breaker"]["open"]) == ["model"]
    await expect(page.locator(".heart")).to_contain_text("degraded")


@BOTH
async def test_a_circuit_is_reset(site: Site, opened: Opened) -> None:
    await site.ended((await site.enqueue("trips"))["id"])
    waiting = (await site.enqueue("trips"))["id"]
    page = await opened("/limits")
    used = page.get_by_role("region", name="Limits in use")
    await expect(used).to_contain_text("tried again in")
    await page.get_by_role("button", name="Reset model").click()
    await page.get_by_role("dialog").get_by_role("button", name="Reset", exact=True).click()
    await expect(page.locator(".words")).to_contain_text("model begins afresh")
    assert (await site.ended(waiting))["attempts"][-1]["outcome"] == "failed"  # it was let through
    sources = {one["key"]: one["source"] for one in (await site.get("/limits")).json()["items"]}
    assert sources == {"pool": "code", "model": "code"}


@BOTH
async def test_workers_are_seen_with_what_they_do(site: Site, opened: Opened) -> None:
    id = (await site.enqueue("waits", {"name": "here"}))["id"]
    [worker] = (await site.get("/workers")).json()["items"]
    page = await opened("/workers")
    card = page.locator(f'[data-worker="{worker["id"]}"]')
    await expect(card).to_contain_text("alive")
    await card.get_by_role("link", name=f"1 of {worker['slots']}").click()
    await expect(page.locator(f'[data-task="{id}"]')).to_be_visible()
    site.gates["here"].set()


@BOTH
async def test_a_worker_is_drained(site: Site, opened: Opened) -> None:
    id = (await site.enqueue("waits", {"name": "last"}))["id"]
    [worker] = (await site.get("/workers")).json()["items"]
    page = await opened("/workers")
    card = page.locator(f'[data-worker="{worker["id"]}"]')
    await expect(card).to_contain_text(f"1 of {worker['slots']}")
    await card.get_by_role("button", name="Drain").click()
    await page.get_by_role("dialog").get_by_role("button", name="Drain", exact=True).click()
    await expect(card).to_contain_text("draining")
    await expect(card.get_by_role("button", name="Drain")).to_have_count(0)
    site.gates["last"].set()
    assert (await site.ended(id))["status"] == "completed"
    await expect(card).to_have_count(0)
    await expect(page.get_by_text("No worker has come yet.")).to_be_visible()


@BOTH
async def test_usage_is_added_up(site: Site, opened: Opened) -> None:
    await site.ended((await site.enqueue("spends", {"prompt": "x"}, user_id="ada"))["id"])
    page = await opened("/usage")
    await expect(page.locator(".tile", has_text="tokens in 30 days")).to_contain_text("1,020")
    first = page.locator(".tile", has_text="to the first token")
    await expect(first).to_contain_text("250 ms")
    await site.ended((await site.enqueue("spends", {"prompt": "y"}, user_id="ada"))["id"])
    await expect(page.locator(".tile", has_text="tokens in 30 days")).to_contain_text("2,040")
    await expect(first).to_contain_text("250 ms")  # on average: it is no sum
    await page.get_by_role("button", name="user", exact=True).click()
    sums = page.get_by_role("region", name="Usage by user")
    await expect(sums.get_by_role("row").last).to_contain_text("ada")
    await expect(sums.get_by_role("row").last).to_contain_text("0.50")
    budgets = page.get_by_role("region", name="Budgets")
    await expect(budgets).to_contain_text("0.50 of 5 cost")


@BOTH
async def test_a_webhook_is_subscribed_watched_and_ended(site: Site, opened: Opened) -> None:
    page = await opened("/webhooks")
    await page.get_by_role("button", name="Subscribe").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Address").fill("ftp://example.com/hook")
    await dialog.get_by_role("button", name="Subscribe").click()
    await expect(page.locator(".words .bad")).to_contain_text("https")
    await dialog.get_by_label("Address").fill("https://hooks.example.com/outlast")
    await dialog.get_by_label("task.overdue").uncheck()
    await dialog.get_by_role("button", name="Subscribe").click()
    secret = page.get_by_role("region", name="Secret")
    await expect(secret).to_contain_text("whsec_")
    await page.get_by_role("button", name="I have it").click()
    [made] = (await site.get("/webhooks")).json()["items"]
    assert made["events"] == ["task.completed", "task.dead", "task.cancelled"]
    await page.get_by_role("button", name="Unsubscribe").click()
    await page.get_by_role("dialog").get_by_role("button", name="Unsubscribe").click()
    await expect(page.get_by_text("Nobody has subscribed.")).to_be_visible()
    assert (await site.get("/webhooks")).json()["items"] == []


@BOTH
async def test_a_delivery_is_seen_and_sent_again(
    site: Site, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_WEBHOOK_NETWORKS", "127.0.0.1/32")
    receiver = Receiver()
    async with await asyncio.start_server(receiver.serve, "127.0.0.1", 0) as server:
        receiver.port = server.sockets[0].getsockname()[1]
        await site.post("/webhooks", {"url": receiver.url})
        page = await opened("/webhooks")
        await expect(page.get_by_text("Nothing was sent yet.")).to_be_visible()

        async def follows() -> bool:  # from here on nothing is missed
            return bool(await site.app.engine.get("position", ["webhooks"]))

        await until(follows)
        await site.enqueue("draw", {"prompt": "x"})
        delivered = page.get_by_role("region", name="Deliveries")
        await expect(delivered.locator(".badge.completed")).to_be_visible()
        await delivered.get_by_role("button", name="Replay").click()
        await until(lambda: len(receiver.got) == 2)
    (first, body), (second, again) = receiver.got
    assert (first["webhook-id"], body) == (second["webhook-id"], again)


def order(works: bool) -> dict[str, object]:
    reserved = {"$from": "reserve"}
    return {
        "name": "order",
        "nodes": [
            {"name": "reserve", "type": "reserve", "payload": {"order": "o"}, "undo": "give_back"},
            {
                "name": "ship",
                "type": "ship",
                "payload": {"order": "o", "reserved": reserved, "works": works},
            },
        ],
    }


@BOTH
async def test_a_workflow_is_followed_on_its_graph(site: Site, opened: Opened) -> None:
    id = (await site.post("/workflows", order(works=True))).json()["id"]
    page = await opened("/workflows")
    await page.get_by_role("link", name="order").click()
    await expect(page.locator('[data-node="reserve"]')).to_contain_text("completed")
    await expect(page.locator('[data-node="ship"]')).to_contain_text("running")
    site.gates["o"].set()
    await expect(page.locator('[data-node="ship"]')).to_contain_text("completed")
    await expect(page.get_by_role("region", name="Result")).to_have_text("shipped o")
    assert (await site.get(f"/workflows/{id}")).json()["status"] == "completed"
    await page.locator('[data-node="ship"]').click()
    await expect(page.get_by_role("heading", name="ship")).to_be_visible()


async def test_a_workflow_that_fails_shows_how_it_was_undone(site: Site, opened: Opened) -> None:
    id = (await site.post("/workflows", order(works=False))).json()["id"]
    page = await opened(f"/workflows/{id}")
    await expect(page.locator('[data-node="ship"]')).to_contain_text("running")
    site.gates["o"].set()
    await expect(page.locator("header .badge.undone")).to_be_visible()
    await expect(page.locator(".undo")).to_contain_text("give_back")
    await expect(page.get_by_text("the van broke down")).to_be_visible()


async def test_a_running_workflow_is_cancelled(site: Site, opened: Opened) -> None:
    id = (await site.post("/workflows", order(works=True))).json()["id"]
    page = await opened(f"/workflows/{id}")
    await expect(page.locator('[data-node="ship"]')).to_contain_text("running")
    await page.get_by_role("button", name="Cancel the workflow").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
    await expect(page.locator('[data-node="ship"]')).to_contain_text("cancelled")

    async def over() -> bool:
        told = (await site.get(f"/workflows/{id}")).json()
        return told["status"] in ("cancelled", "undone")

    await until(over, 30)


@BOTH
async def test_a_schedule_is_run_now_and_paused(site: Site, opened: Opened) -> None:
    hourly = {"name": "hourly", "type": "draw", "payload": {"prompt": "the hour"}, "every": "1h"}
    assert (await site.post("/schedules", hourly)).status_code == 201
    page = await opened("/schedules")
    schedule = page.locator('[data-schedule="hourly"]')
    await expect(schedule).to_contain_text("draw")
    await schedule.get_by_role("button", name="Pause hourly").click()
    await expect(schedule.get_by_text("paused", exact=True)).to_be_visible()
    assert (await site.get("/schedules/hourly")).json()["paused"] is True
    await schedule.get_by_role("button", name="Resume hourly").click()
    await expect(page.get_by_role("img", name="hourly:")).to_be_visible()
    await schedule.get_by_role("button", name="Run now: hourly").click()
    await expect(page.get_by_role("region", name="Result")).to_have_text("plain the hour of 64")
    assert "schedule:hourly" in (await site.task(page.url.rpartition("/")[2]))["tags"]


async def test_what_fires_too_often_to_be_told_apart_is_one_bar(site: Site, opened: Opened) -> None:
    for name, every in (("often", "1m"), ("seldom", "8h")):
        body = {"name": name, "type": "draw", "payload": {"prompt": name}, "every": every}
        assert (await site.post("/schedules", body)).status_code == 201
    page = await opened("/schedules")
    often = page.get_by_role("img", name="often:")
    await expect(often.locator("i")).to_have_count(1)
    bar = "mark => mark.clientWidth / mark.parentElement.clientWidth"
    assert await often.locator("i").evaluate(bar) > 0.95
    seldom = page.get_by_role("img", name="seldom:").locator("i")
    await expect(seldom).to_have_count(3)
    assert await seldom.first.evaluate(bar) < 0.05


async def test_a_task_of_very_many_attempts_says_so_in_its_row(site: Site, opened: Opened) -> None:
    many = (await site.enqueue("draw", {"prompt": "x"}, max_attempts=1_000_000, delay="1h"))["id"]
    page = await opened("/tasks")
    await expect(page.locator(f'[data-task="{many}"]')).to_contain_text("0 of 1M")
