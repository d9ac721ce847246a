"""What people come for who hand work over, answer, or own a session; and who may do what."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2
import pytest
from playwright.async_api import expect

from outlast.access import Signer, create_key
from tests.http.site import Site, until

from .conftest import Opened

BOTH = pytest.mark.parametrize("engine_name", ["sqlite", "postgresql"])


async def made_key(site: Site, **told: Any) -> str:
    """A new key, once the server knows of it."""
    key, _ = await create_key(site.app.engine, **told)
    await name_of(site, key)
    return key


async def name_of(site: Site, key: str) -> str:
    """Whose key this is, once the server knows of it."""
    name = ""

    async def is_known() -> bool:
        nonlocal name
        reply = await site.get("/login", headers={"authorization": f"Bearer {key}"})
        name = reply.json().get("name", "")
        return reply.status_code == 200

    await until(is_known, 30)
    return name


@BOTH
async def test_a_task_is_enqueued_by_the_form_of_its_type(site: Site, opened: Opened) -> None:
    page = await opened("/types")
    await page.get_by_role("button", name="draw").click()
    await expect(page.get_by_text("A picture of something.").first).to_be_visible()
    await page.get_by_label("prompt").fill('a "tree"\nin winter')
    await page.get_by_label("size").fill("12")
    await page.get_by_text("Options").click()
    await page.get_by_label("tags").fill("wood, cold")
    await page.get_by_role("button", name="Enqueue").click()
    await expect(page.get_by_role("heading", name="draw")).to_be_visible()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("in winter of 12")
    task = await site.task(page.url.rpartition("/")[2])
    assert task["payload"] == {"prompt": 'a "tree"\nin winter', "style": "plain", "size": 12}
    assert task["tags"] == ["wood", "cold"]


@BOTH
async def test_a_form_has_fields_within_fields(site: Site, opened: Opened) -> None:
    page = await opened("/types?type=book")
    guest = page.get_by_role("group", name="guest")
    await guest.get_by_label("name").fill("Ada")
    await guest.get_by_label("age").fill("36")
    for meal in ("soup", "bread", "cake"):
        await guest.get_by_role("button", name="Add to meals").click()
        await guest.get_by_role("textbox").last.fill(meal)
    await guest.get_by_role("button", name="Remove meals 2").click()
    more = page.get_by_role("group", name="more")
    await more.get_by_role("button", name="Add to more").click()
    await more.get_by_label("name").fill("Eve")
    await page.get_by_label("class_").select_option("first")
    await page.get_by_role("button", name="As JSON").click()
    text = page.get_by_role("textbox", name="Payload")
    payload = {
        "guest": {"name": "Ada", "age": 36, "meals": ["soup", "cake"]},
        "class_": "first",
        "more": [{"name": "Eve"}],
    }
    assert json.loads(await text.input_value()) == payload
    payload["more"] = []
    await text.fill(json.dumps({**payload, "nobody knows": 1}))
    await page.get_by_role("button", name="As a form").click()
    await expect(page.get_by_role("alert")).to_contain_text("it stays JSON")
    await text.fill(json.dumps(payload))
    await page.get_by_role("button", name="As a form").click()
    await expect(guest.get_by_label("name")).to_have_value("Ada")
    await page.get_by_role("button", name="Enqueue").click()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("Ada in first class")
    assert (await site.task(page.url.rpartition("/")[2]))["payload"] == payload


async def test_the_form_of_a_type_that_is_chosen_is_in_sight(site: Site, opened: Opened) -> None:
    page = await opened("/types", viewport={"width": 380, "height": 600})
    await page.get_by_role("button", name="summarize").click()
    await expect(page.get_by_label("content")).to_be_in_viewport()
    await page.get_by_role("button", name="fails").click()
    await expect(page.get_by_role("button", name="Enqueue")).to_be_in_viewport()


async def test_what_the_server_refuses_is_told(site: Site, opened: Opened) -> None:
    page = await opened("/types?type=draw")
    await page.get_by_role("button", name="As JSON").click()
    await page.get_by_role("textbox", name="Payload").fill('{"prompt": 7}')
    await page.get_by_role("button", name="Enqueue").click()
    await expect(page.locator(".words .bad")).to_contain_text("prompt")
    assert (await site.get("/tasks")).json()["items"] == []


@BOTH
async def test_a_question_is_answered(site: Site, opened: Opened) -> None:
    id = (await site.enqueue("cautious", {"folder": "old"}))["id"]
    page = await opened("/")
    await page.get_by_role("link", name="1 question waits for an answer").click()
    question = page.locator(f'[data-question="{id}"]')
    await expect(question).to_contain_text("Delete old?")
    await expect(question).to_contain_text('"delete": "old"')
    await question.get_by_role("button", name="Approve").click()
    assert (await site.ended(id))["result"] == "the answer was yes"
    await expect(page.get_by_text("Nobody asks anything.")).to_be_visible()


@BOTH
async def test_a_session_sees_its_notifications(site: Site, opened: Opened) -> None:
    id = (await site.enqueue("draw", {"prompt": "x"}, session_id="s-1"))["id"]
    await site.ended(id)
    page = await opened("/sessions")
    await page.get_by_role("button", name="s-1").click()
    await expect(page.get_by_role("region", name="Tasks of the session")).to_contain_text("draw")
    await page.get_by_role("button", name="Acknowledge 1").click()
    await expect(page.get_by_text("It has seen all of them.")).to_be_visible()
    assert (await site.get("/sessions/s-1/notifications")).json()["items"] == []
    await page.get_by_label("completed").click()

    async def wanted() -> bool:
        told = (await site.get("/sessions/s-1/preferences")).json()
        return "task_completed" not in told["types"]

    await until(wanted, 30)
    await page.get_by_role("button", name="Sign one").click()
    token = await page.get_by_role("region", name="Token").inner_text()
    bearer = {"authorization": f"Bearer {token}"}
    assert (await site.get(f"/tasks/{id}", headers=bearer)).status_code == 200


@BOTH
async def test_a_key_opens_the_page_and_keys_are_made_and_revoked(
    site: Site, opened: Opened
) -> None:
    key = await made_key(site, role="admin", name="boss")
    page = await opened("/settings")
    await page.get_by_label("API key").fill("olk_this_is_not_the_key")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_contain_text("There is no such key.")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_text("boss, admin")).to_be_visible()
    await page.get_by_text("Make one", exact=True).click()
    await page.get_by_label("Role").select_option("operator")
    await page.get_by_label("Name").fill("night shift")
    await page.get_by_role("button", name="Make it").click()
    made = await page.get_by_role("region", name="Key", exact=True).inner_text()
    assert await name_of(site, made) == "night shift"
    await page.get_by_role("button", name="I have it").click()
    await page.get_by_role("button", name="Revoke night shift").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    audit = page.get_by_role("region", name="Audit log")
    await expect(audit.get_by_role("row")).to_have_count(3)
    await expect(audit.get_by_role("row").nth(1)).to_contain_text("DELETE /keys/")
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("API key")).to_be_visible()


async def test_whose_key_is_revoked_is_asked_for_another(site: Site, opened: Opened) -> None:
    key = await made_key(site, role="operator", name="gone")
    other = await made_key(site, role="admin", name="boss")
    page = await opened("/queues")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    bearer = {"authorization": f"Bearer {other}"}
    listed = (await site.get("/keys", headers=bearer)).json()["items"]
    [id] = [one["id"] for one in listed if one["name"] == "gone"]
    await site.http.delete(f"/api/v1/keys/{id}", headers=bearer)
    await expect(page.get_by_label("API key")).to_be_visible()
    await page.get_by_label("API key").fill(other)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("heading", name="Queues")).to_be_visible()  # where it was


async def test_who_may_only_look_has_no_buttons_that_change(site: Site, opened: Opened) -> None:
    await site.ended((await site.enqueue("fails"))["id"])
    running = (await site.enqueue("waits", {"name": "r"}))["id"]
    key = await made_key(site, role="operator", name="viewer", read_only=True)
    page = await opened("/failures", extra_http_headers={"authorization": f"Bearer {key}"})
    await expect(page.get_by_text("Read-only:")).to_be_visible()
    changes = page.locator("main").get_by_role("button", name="…")
    task = f"tasks/{running}"
    for screen in ("failures", "queues", "limits", "tasks", task, "types?type=draw", "webhooks"):
        await page.goto(f"/#/{screen}")
        await expect(page.locator("main h1")).to_be_attached()
        await expect(page.locator(".loading")).to_have_count(0)
        await expect(changes).to_have_count(0)
        await expect(page.get_by_role("alert")).to_have_count(0)
        for name in ("Pause", "Redrive", "Edit", "Delete", "Cancel", "Enqueue", "Define one"):
            await expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    site.gates["r"].set()


async def test_keys_lead_everywhere(site: Site, opened: Opened) -> None:
    id = (await site.enqueue("draw", {"prompt": "x"}))["id"]
    await site.ended(id)
    page = await opened("/")
    await expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_contain_text("go to Failures")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.keyboard.press("g")
    await page.keyboard.press("t")
    await expect(page.locator(f'[data-task="{id}"]')).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("region", name="Result")).to_have_text("plain x of 64")


# End users -----------------------------------------------------------------------------------


@BOTH
async def test_a_text_is_handed_over_the_tab_closed_and_the_answer_found(
    site: Site, opened: Opened
) -> None:
    page = await opened(path="/ask", screen="")
    await page.get_by_role("combobox", name="What").select_option("summarize")
    await page.get_by_role("textbox", name="Text").fill("one two gate-z three")
    await page.get_by_role("button", name="Start").click()
    answer = page.get_by_role("region", name="Answer")
    await expect(answer).to_contain_text("one two")
    context = page.context
    await page.close()
    [task] = (await site.get("/tasks?type=summarize")).json()["items"]
    assert task["status"] == "running"  # nobody looks, and it goes on
    site.gates["gate-z"].set()
    await site.ended(task["id"])
    page = await context.new_page()
    await page.goto("/ask")
    await expect(page.get_by_role("region", name="Answer")).to_contain_text("ONE TWO GATE-Z THREE")


async def test_what_an_end_user_sees_stays_while_the_server_is_away(
    site: Site, opened: Opened
) -> None:
    page = await opened(path="/ask", screen="")
    await page.get_by_role("combobox", name="What").select_option("summarize")
    await page.get_by_role("textbox", name="Text").fill("one gate-y two")
    await page.get_by_role("button", name="Start").click()
    answer = page.get_by_role("region", name="Answer")
    await expect(answer).to_contain_text("one")
    calls = re.compile(r"/api/v1/tasks(\?|/[^/]+/cancel)")
    await page.route(calls, lambda route: route.abort())
    await answer.get_by_role("button", name="Stop").click()
    await expect(page.get_by_role("alert")).to_contain_text("does not answer")
    await expect(answer).to_contain_text("one")
    await page.unroute(calls)
    site.gates["gate-y"].set()
    await expect(answer).to_contain_text("ONE GATE-Y TWO")
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_an_end_user_with_a_token_sees_what_is_theirs(site: Site, opened: Opened) -> None:
    await site.ended((await site.enqueue("summarize", {"content": "secret"}))["id"])
    await made_key(site, role="admin", name="boss")
    token = await Signer(site.app.engine).token("s-9")
    page = await opened(path="/ask", screen=f"token={token}")
    await expect(page.get_by_text("Nothing yet.")).to_be_visible()
    assert "token" not in page.url
    await page.get_by_label("Summarise a text").fill("mine")
    await page.get_by_role("button", name="Start").click()
    await expect(page.get_by_role("region", name="Answer")).to_contain_text("MINE")
    async with httpx2.AsyncClient(base_url=site.address, trust_env=False) as http:
        bearer = {"authorization": f"Bearer {token}"}
        found = (await http.get("/api/v1/tasks", headers=bearer)).json()["items"]
    assert [task["session_id"] for task in found] == ["s-9"]


async def test_a_link_with_a_token_says_what_its_page_offers(site: Site, opened: Opened) -> None:
    await made_key(site, role="admin", name="boss")
    token = await Signer(site.app.engine).token("s-9", types=["paint", "summarize"])
    link = f"token={token}&offer=paint:prompt&offer=summarize:content"
    page = await opened(path="/ask", screen=link)
    assert "offer" not in page.url
    for kind, text, told in (("paint", "a lighthouse", "lighthouse"), ("summarize", "b", "B")):
        await page.get_by_role("combobox", name="What").select_option(kind)
        await page.get_by_role("textbox", name="Text").fill(text)
        await page.get_by_role("button", name="Start").click()
        answer = page.locator("[data-answer=completed]")
        await expect(answer).to_contain_text(told)
        await expect(answer.get_by_role("img")).to_have_count(int(kind == "paint"))
    await page.reload()
    await expect(page.get_by_role("combobox", name="What")).to_have_value("paint")
    await page.goto(f"/ask#token={token}&offer=paint:prompt")  # another link, in the same tab
    await expect(page.get_by_label("paint")).to_be_visible()
    assert "token" not in page.url


async def test_a_picture_is_shown_to_whoever_may_see_it(site: Site, opened: Opened) -> None:
    await made_key(site, role="admin", name="boss")
    token = await Signer(site.app.engine).token("s-9")
    bearer = {"authorization": f"Bearer {token}"}
    paint = {"type": "paint", "payload": {"prompt": "a lighthouse"}}
    made = (await site.post("/tasks", paint, headers=bearer)).json()
    page = await opened(path="/ask", screen=f"token={token}")
    answer = page.get_by_role("region", name="Answer")
    picture = answer.get_by_role("img")
    await expect(picture).to_be_visible()
    colour = """canvas => [canvas.width, canvas.height,
      ...canvas.getContext("2d").getImageData(2, 1, 1, 1).data]"""
    assert await picture.evaluate(colour) == [3, 2, 13, 109, 101, 255]

    boss = await made_key(site, role="admin", name="boss too")
    page = await opened(
        f"/tasks/{made['id']}", extra_http_headers={"authorization": f"Bearer {boss}"}
    )
    shown = page.get_by_role("img", name="Picture gc_")
    await expect(shown).to_be_visible()
    assert await shown.evaluate(colour) == [3, 2, 13, 109, 101, 255]
