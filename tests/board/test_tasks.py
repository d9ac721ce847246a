"""Tasks: found, looked at while they run, stopped, mended, run again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from outlast.core.model import KEPT_ATTEMPTS
from outlast.http.api import create_api
from outlast.http.serve import Server, listen
from outlast.worker import Worker
from tests.conformance.servers import url_for
from tests.http.site import Site, until

from .app import make_app
from .conftest import Opened

BOTH = pytest.mark.parametrize("engine_name", ["sqlite", "postgresql"])


@BOTH
async def test_the_overview_follows_what_happens(site: Site, opened: Opened) -> None:
    page = await opened("/")
    await expect(page.get_by_text("Nothing runs right now.")).to_be_visible()
    id = (await site.enqueue("waits", {"name": "here"}))["id"]
    running = page.get_by_role("region", name="Running now")
    await expect(running).to_contain_text("at here")
    await expect(running.get_by_role("progressbar")).to_have_attribute("value", "40")
    site.gates["here"].set()
    await site.ended(id)
    await expect(page.get_by_text("Nothing runs right now.")).to_be_visible()
    tile = page.get_by_role("link", name="completed")
    await expect(tile).to_contain_text("1")


@BOTH
async def test_a_filter_is_completed_and_finds(site: Site, opened: Opened) -> None:
    await site.enqueue("draw", {"prompt": "a tree"})
    wanted = (await site.enqueue("fails", {"note": "this one"}))["id"]
    await site.ended(wanted)
    page = await opened("/tasks")
    await expect(page.locator("[data-task]")).to_have_count(2)
    await page.keyboard.press("/")
    await page.keyboard.type("sta")
    await page.keyboard.press("Tab")
    await page.keyboard.type("de")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    field = page.get_by_role("combobox", name="Filter")
    await expect(field).to_have_value("status:dead ")
    await page.keyboard.type('payload.note:"this one"')
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-task]")).to_have_count(1)
    await expect(page.locator(f'[data-task="{wanted}"]')).to_be_visible()
    await page.get_by_label("Name of the view").fill("mine")
    await page.get_by_role("button", name="Save").click()
    await page.reload()
    await expect(page.locator("[data-task]")).to_have_count(1)  # the address has the filter
    await page.get_by_role("button", name="Clear the filter").click()
    await expect(page.locator("[data-task]")).to_have_count(2)
    await page.get_by_role("link", name="mine", exact=True).click()
    await expect(page.locator("[data-task]")).to_have_count(1)


async def test_nothing_is_said_to_be_there_before_it_is_read(site: Site, opened: Opened) -> None:
    id = (await site.enqueue("draw", {"prompt": "a tree"}))["id"]
    page = await opened("/workers")
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def held(route: Route) -> None:
        asked.set()
        await go_on.wait()
        await route.continue_()

    await page.route("**/api/v1/tasks?**", held)
    await page.get_by_role("link", name="Tasks", exact=True).click()
    await asyncio.wait_for(asked.wait(), 30)
    await expect(page.get_by_text("Reading…")).to_be_attached()
    assert await page.get_by_text("No task fits.").count() == 0
    go_on.set()
    await expect(page.locator(f'[data-task="{id}"]')).to_be_visible()


@BOTH
async def test_all_that_fit_are_cancelled_after_a_count(site: Site, opened: Opened) -> None:
    await site.post("/queues/bulk/pause")
    for n in range(7):
        await site.enqueue("draw", {"prompt": f"tree {n}"})
    other = (await site.enqueue("waits", {"name": "stays"}))["id"]
    page = await opened("/tasks?q=type%3Adraw")
    await expect(page.locator("[data-task]")).to_have_count(7)
    await page.get_by_label("all that fit").check()
    await page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Cancel 7 tasks?")
    counted = (await site.get("/tasks?status=ready&type=draw")).json()["items"]
    assert len(counted) == 7  # it was only asked
    await dialog.get_by_role("button", name="Cancel 7").click()
    await expect(page.locator("[data-task] .badge.cancelled")).to_have_count(7)
    assert (await site.task(other))["status"] == "running"


async def test_those_that_are_chosen_are_redriven(site: Site, opened: Opened) -> None:
    ids = [(await site.enqueue("fails", {"note": str(n)}))["id"] for n in range(3)]
    for id in ids:
        await site.ended(id)
    page = await opened("/tasks?q=status%3Adead")
    for id in ids[:2]:
        await page.locator(f'[data-task="{id}"]').get_by_role("checkbox").check()
    await page.get_by_role("button", name="Redrive…").click()
    await page.get_by_role("button", name="Redrive 2").click()
    await expect(page.get_by_text("follow it")).to_be_visible()

    async def ran_again() -> bool:
        found = [len((await site.task(id))["attempts"]) for id in ids]
        return found == [2, 2, 1]

    await until(ran_again, 30)


@BOTH
async def test_a_running_task_is_watched_and_cancelled(site: Site, opened: Opened) -> None:
    id = (await site.enqueue("summarize", {"content": "one two gate-a three"}))["id"]
    page = await opened(f"/tasks/{id}")
    stream = page.get_by_role("region", name="Stream")
    await expect(stream).to_have_text("one two ")
    await expect(page.locator(".progress", has_text="word 1")).to_be_visible()
    await page.get_by_role("button", name="Cancel the task").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
    assert (await site.ended(id))["reason"] == "cancelled in the dashboard"
    await expect(page.locator("header .badge.cancelled")).to_be_visible()


async def test_output_of_a_failed_attempt_is_taken_back(site: Site, opened: Opened) -> None:
    id = (await site.enqueue("flaky"))["id"]
    await site.ended(id)
    page = await opened(f"/tasks/{id}")
    await expect(page.get_by_text("output of 1 failed attempt left out")).to_be_visible()
    timeline = page.locator(".timeline")
    await expect(timeline).to_contain_text("Transient: not yet")
    await expect(timeline.locator(".attempt.succeeded")).to_contain_text("Attempt 2")


async def test_attempts_that_are_not_kept_are_counted(site: Site, opened: Opened) -> None:
    id = (await site.enqueue("flaky", {"fails": 59}, max_attempts=100))["id"]
    await site.ended(id)
    page = await opened(f"/tasks/{id}")
    timeline = page.locator(".timeline")
    await expect(timeline.locator(".attempt")).to_have_count(KEPT_ATTEMPTS)
    await expect(timeline.locator(".attempt").last).to_contain_text("Attempt 60")
    await expect(timeline).to_contain_text("10 more attempts in ")


@BOTH
async def test_steps_are_on_the_timeline(site: Site, opened: Opened) -> None:
    id = (await site.enqueue("stepped", {"name": "s"}))["id"]
    page = await opened(f"/tasks/{id}")
    attempt = page.locator(".attempt.running")
    await expect(attempt).to_contain_text("steps done: fetch")
    site.gates["s"].set()
    await expect(page.locator(".attempt.succeeded")).to_contain_text("fetch, shout")
    await expect(page.get_by_role("region", name="Result")).to_have_text("THE TEXT OF S")


@BOTH
async def test_a_dead_task_is_edited_and_redriven(site: Site, opened: Opened) -> None:
    id = (await site.enqueue("fails", {"note": "x"}))["id"]
    await site.ended(id)
    page = await opened(f"/tasks/{id}")
    await expect(page.get_by_role("region", name="Traceback")).to_contain_text("Permanent")
    await expect(page.get_by_text("the part is missing").first).to_be_visible()
    await page.get_by_role("button", name="Edit and redrive").click()
    payload = page.get_by_role("textbox", name="Payload")
    await payload.fill('{"mended": true, ')
    await expect(page.get_by_text("This is no JSON")).to_be_visible()
    await payload.fill('{"mended": true, "note": "by hand"}')
    await page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    await expect(page.get_by_role("region", name="Result")).to_have_text("mended by hand")
    task = await site.task(id)
    assert (task["status"], len(task["attempts"])) == ("completed", 2)  # its history stays


async def test_an_ended_task_is_run_once_more_with_another_payload(
    site: Site, opened: Opened
) -> None:
    id = (await site.enqueue("draw", {"prompt": "a tree"}, tags=["mine"]))["id"]
    await site.ended(id)
    page = await opened(f"/tasks/{id}")
    await page.get_by_role("button", name="Edit and rerun").click()
    await page.get_by_role("textbox", name="Payload").fill('{"prompt": "a house"}')
    await page.get_by_role("button", name="Run it").click()
    await expect(page.get_by_role("region", name="Result")).to_have_text("plain a house of 64")
    new = await site.task(page.url.rpartition("/")[2])
    assert (new["parent_id"], new["queue"], new["tags"]) == (id, "bulk", ["mine"])
    await page.get_by_role("link", name=id[-6:]).click()
    await expect(page.get_by_role("region", name="Children")).to_contain_text("draw")


async def test_numbers_of_any_length_stay_what_they_are(site: Site, opened: Opened) -> None:
    """A script's own numbers end at 2^53; ids of other services are longer."""
    long = 2**64 + 1
    payload = {"guest": {"name": f"{long} is no number", "age": long}}
    id = (await site.enqueue("book", payload))["id"]
    await site.ended(id)
    page = await opened(f"/tasks/{id}")
    await expect(page.get_by_role("region", name="Payload")).to_contain_text(f'"age": {long}')
    await page.get_by_role("button", name="Edit and rerun").click()
    await page.get_by_role("button", name="Run it").click()
    await expect(page.get_by_text("the other is its parent")).to_be_visible()
    again = await site.task(page.url.rpartition("/")[2])
    assert (again["parent_id"], again["payload"]) == (id, payload)

    await page.goto("/#/types?type=book")
    guest = page.get_by_role("group", name="guest")
    await guest.get_by_label("name").fill("Ada")
    await guest.get_by_label("age").fill(str(-long))
    await page.get_by_role("button", name="As JSON").click()
    text = page.get_by_role("textbox", name="Payload")
    assert f'"age": {-long}' in await text.input_value()
    await page.get_by_role("button", name="As a form").click()
    await expect(guest.get_by_label("age")).to_have_value(str(-long))
    await page.get_by_role("button", name="Enqueue").click()
    await expect(page.get_by_text("It is enqueued.")).to_be_visible()
    made = await site.task(page.url.rpartition("/")[2])
    assert made["payload"]["guest"]["age"] == -long


@BOTH
async def test_a_stream_goes_on_when_the_server_was_restarted(
    opened: Opened, engine_name: str, tmp_path: Path
) -> None:
    """The worker lives on; the page loses the server, gets another one, and nothing of the text."""
    app, gates = make_app(url_for(engine_name, tmp_path))
    words = "one gate-1 two gate-2 three"
    async with app:
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        first = listen("127.0.0.1", 0)
        port = first.getsockname()[1]
        id = (await app.submit("summarize", {"content": words})).id
        served = await _serve(app, first)
        page = await opened(f"/tasks/{id}", address=f"http://127.0.0.1:{port}")
        stream = page.get_by_role("region", name="Stream")
        await expect(stream).to_have_text("one ")
        await _stop(*served)
        await expect(page.locator("[data-live]")).to_have_attribute("data-live", "lost")
        gates["gate-1"].set()  # this is said while nobody can hear it
        served = await _serve(app, listen("127.0.0.1", port))
        await expect(stream).to_have_text("one gate-1 two ")
        gates["gate-2"].set()
        await expect(page.get_by_role("region", name="Result")).to_have_text(words.upper())
        await page.context.close()
        await _stop(*served)
        worker.stop_now()
        await working


async def test_what_was_not_answered_is_read_again_when_the_server_is_back(
    opened: Opened, tmp_path: Path
) -> None:
    """Nothing happens meanwhile, so no event says that something is stale."""
    app, _ = make_app(url_for("sqlite", tmp_path))
    async with app:
        first = listen("127.0.0.1", 0)
        port = first.getsockname()[1]
        served = await _serve(app, first)
        page = await opened("/", address=f"http://127.0.0.1:{port}")
        live = page.locator("[data-live]")
        await expect(live).to_have_attribute("data-live", "live")
        id = (await app.submit("summarize", {"content": "one"})).id
        await expect(page.get_by_role("link", name="ready")).to_contain_text("1")
        await _stop(*served)
        await expect(live).to_have_attribute("data-live", "lost")
        await page.get_by_role("link", name="Tasks", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("does not answer")
        served = await _serve(app, listen("127.0.0.1", port))
        await expect(live).to_have_attribute("data-live", "live")
        await expect(page.locator(f'[data-task="{id}"]')).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)
        await page.context.close()
        await _stop(*served)


async def test_a_hidden_page_holds_no_connection_and_misses_nothing(
    site: Site, opened: Opened
) -> None:
    """A browser has six connections to a server, for all of its tabs together."""
    words = "one gate-1 two gate-2 three"
    id = (await site.enqueue("summarize", {"content": words}))["id"]
    page = await opened(f"/tasks/{id}")
    stream = page.get_by_role("region", name="Stream")
    await expect(stream).to_have_text("one ")

    async def shown(state: str) -> None:
        await page.evaluate(
            """state => {
              const told = { value: state, configurable: true };
              Object.defineProperty(document, "visibilityState", told);
              document.dispatchEvent(new Event("visibilitychange"));
            }""",
            state,
        )

    async def open_streams() -> float:
        lines = (await site.http.get("/metrics")).text.splitlines()
        return sum(float(n.split()[-1]) for n in lines if n.startswith("outlast_http_streams"))

    async def both_are_open() -> bool:
        return await open_streams() == 2

    async def nothing_is_open() -> bool:
        return await open_streams() == 0

    await until(both_are_open, 30)
    await shown("hidden")
    await until(nothing_is_open, 30)
    site.gates["gate-1"].set()  # this is said while the page is hidden
    await expect(page.locator("[data-live]")).to_have_attribute("data-live", "hidden")
    await shown("visible")
    await expect(stream).to_have_text("one gate-1 two ")
    site.gates["gate-2"].set()
    await expect(page.get_by_role("region", name="Result")).to_have_text(words.upper())


Served = tuple[Server, "asyncio.Task[None]"]


async def _serve(app: object, listener: object) -> Served:
    server = Server(create_api(app, loopback_only=True))  # type: ignore[arg-type]
    running = asyncio.create_task(server.serve([listener]))  # type: ignore[list-item]
    await until(lambda: server.started)
    return server, running


async def _stop(server: Server, running: asyncio.Task[None]) -> None:
    server.should_exit = True
    await running
