"""Media: ordered, followed, downloaded and kept, whoever is watching."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from outlast import BadInput, Outlast
from outlast.access import Signer, create_key
from outlast.content import content_id, type_of
from outlast.systems.media import Leonardo, Local, Midjourney, Providers, media_generation
from outlast.testing import testing
from tests.chaos.fleet import until
from tests.conformance.servers import cleared, url_for
from tests.http.site import Site, serving

from .studio import PICTURE, Studio, studio

HERE = Path(__file__).parent


@pytest.fixture
async def place() -> AsyncIterator[Studio]:
    async with studio() as place:
        yield place


def providers_at(address: str) -> Providers:
    return Providers(
        Local(),
        Midjourney(address, "secret-mj", pace_s=0.02),
        Leonardo(address, "secret-leo", concurrency=2, pace_s=0.02),
    )


def an_app(tmp_path: Path, address: str = "http://127.0.0.1:1") -> tuple[Outlast, Any, Providers]:
    app, providers = Outlast("memory://", content=str(tmp_path / "content")), providers_at(address)
    return app, media_generation(app, providers), providers


async def kept(app: Outlast, id: str) -> bytes:
    assert app.content is not None
    content = await app.content.find(id)
    assert content is not None
    assert content.content_type == "image/png"
    data = b"".join([piece async for piece in app.content.read(content, 0, content.size)])
    assert len(data) == content.size
    return data


async def test_a_picture_is_drawn_here_and_kept(tmp_path: Path) -> None:
    app, generate, _ = an_app(tmp_path)
    async with testing(app) as t:
        params = {"count": 2, "width": 64, "height": 32}
        handle = await generate.enqueue("local", "two hills", params=params, workflow_run_id="w1")
        await t.run()
        media = await handle.result(timeout=0)
        assert media.metadata_id == handle.id
        assert media.urls == [f"/api/v1/content/{id}" for id in media.content_ids]
        first, second = [await kept(app, id) for id in media.content_ids]
        assert first != second
        assert int.from_bytes(first[16:20], "big") == 64
        rows = zlib.decompress(first[first.index(b"IDAT") + 4 : -16])
        assert len(rows) == 32 * (64 * 3 + 1)
        assert content_id((await t.task(handle)).created_at, handle.id, "1") == media.content_ids[0]


async def test_what_the_server_tells_and_refuses_before_anything_is_ordered(tmp_path: Path) -> None:
    app, generate, providers = an_app(tmp_path)
    seen = providers.get_preview_info("leonardo", params={"num_images": 4, "width": 512})
    assert (seen.count, seen.width, seen.height) == (4, 512, 768)
    async with testing(app):
        with pytest.raises(BadInput, match="did you mean 'leonardo'"):
            await generate.enqueue("leonard", "a")
        with pytest.raises(BadInput, match="It does: txt2img"):
            await generate.enqueue("leonardo", "a", action_type="img2video")
        with pytest.raises(BadInput, match="num_images"):
            await generate.enqueue("leonardo", "a", params={"num_images": 99})
        with pytest.raises(BadInput, match="seed"):
            await generate.enqueue("local", "a", params={"seed": -1})
    with pytest.raises(BadInput, match="OUTLAST_CONTENT"):
        media_generation(Outlast("memory://"), providers)


async def test_as_many_at_once_as_the_provider_says(tmp_path: Path, place: Studio) -> None:
    app, _, _ = an_app(tmp_path, place.address)
    place.finished.clear()
    async with serving(app, working=True) as site:
        ids = {
            name: [
                (await site.enqueue("media_generation", {"provider": name, "prompt": f"{n}"}))["id"]
                for n in range(3)
            ]
            for name in ("midjourney", "leonardo")
        }

        async def as_told() -> bool:
            return await running(site, ids) == {"midjourney": 1, "leonardo": 2}

        await until(as_told, within_s=30)
        assert (await site.task(ids["midjourney"][2]))["status"] == "throttled"
        place.finished.set()
        for id in (*ids["midjourney"], *ids["leonardo"]):
            assert (await site.ended(id))["status"] == "completed"
    assert {o["_headers"].get("mj-api-secret") for o in place.ordered} == {"secret-mj", None}


async def running(site: Site, ids: dict[str, list[str]]) -> dict[str, int]:
    found = {}
    for name, mine in ids.items():
        states = [(await site.task(id)) for id in mine]
        found[name] = sum(task["status"] == "running" for task in states)
    return found


async def test_progress_comes_from_the_provider(tmp_path: Path, place: Studio) -> None:
    app, _, _ = an_app(tmp_path, place.address)
    place.finished.clear()
    async with serving(app, working=True) as site:
        payload = {"provider": "midjourney", "prompt": "a", "workflow_run_id": "w7"}
        id = (await site.enqueue("media_generation", payload))["id"]

        async def told() -> bool:
            progress = (await site.task(id))["progress"]
            return bool(progress) and progress["percent"] == 45

        await until(told, within_s=30)
        assert (await site.task(id))["progress"]["message"] == "in progress"
        place.finished.set()
        assert (await site.ended(id))["status"] == "completed"
        listed = (await site.get("/tasks", params={"q": "payload.workflow_run_id:w7"})).json()
        assert [task["id"] for task in listed["items"]] == [id]


async def test_an_order_that_failed_is_placed_anew_and_a_banned_one_is_not(
    tmp_path: Path, place: Studio
) -> None:
    app, generate, _ = an_app(tmp_path, place.address)
    async with testing(app) as t:
        place.failures = ["the GPU fell asleep"]
        handle = await generate.enqueue("midjourney", "a")
        await t.run()
        assert await t.status(handle) == "retrying"
        await t.advance("1m")
        await t.run()
        assert await t.status(handle) == "completed"
        assert len(place.ordered) == 2
        place.failures = ["Banned prompt detected"]
        handle = await generate.enqueue("midjourney", "b")
        await t.run()
        task = await t.task(handle)
        assert (task.status, task.reason) == ("dead", "permanent")
        await handle.retry()
        await t.run()
        assert await t.status(handle) == "completed"  # somebody said so by hand: a new order


async def test_a_provider_that_asks_for_rest_gets_it_from_everybody(
    tmp_path: Path, place: Studio
) -> None:
    app, generate, _ = an_app(tmp_path, place.address)
    async with testing(app) as t:
        place.refusals = [(429, {"retry-after": "7"})]
        first = await generate.enqueue("leonardo", "a")
        await t.run()
        second = await generate.enqueue("leonardo", "b")
        await t.run()
        assert [await t.status(h) for h in (first, second)] == ["throttled", "throttled"]
        assert (await t.task(first)).attempt == 0
        await t.advance("8s")
        await t.run()
        assert [await t.status(h) for h in (first, second)] == ["completed", "completed"]


@pytest.mark.parametrize("provider", ["midjourney", "leonardo"])
async def test_the_key_of_a_provider_is_in_no_record(
    tmp_path: Path, place: Studio, provider: str
) -> None:
    kinds: dict[str, Any] = {"midjourney": Midjourney, "leonardo": Leonardo}
    app = Outlast("memory://", content=str(tmp_path / "content"))
    providers = Providers(kinds[provider](place.address, "hunter2\n"))  # as it was read from a file
    generate = media_generation(app, providers)
    place.refusals = [(401, {"message": "hunter2 is no key"})]
    async with testing(app) as t:
        first = await generate.enqueue(provider, "a")
        await t.run()
        task = await t.task(first)
        assert (task.status, task.reason) == ("dead", "permanent")
        assert json.loads(task.error or b"{}")["message"].endswith("401: *** is no key")
        second = await generate.enqueue(provider, "b")
        await t.run()
        assert await t.status(second) == "completed"
    for key in ("hunter…", "hunter2\r\nx: y"):
        with pytest.raises(BadInput, match="copy it anew") as refused:
            kinds[provider](place.address, key)
        assert "hunter" not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "status", "why"),
    [
        ({"code": 24, "description": "it holds a banned word"}, "dead", "a banned word"),
        ({"code": 4, "description": "no such parameter"}, "dead", "no such parameter"),
        ({"code": 23, "description": "the queue is full"}, "retrying", "the queue is full"),
    ],
)
async def test_an_order_that_is_refused_for_what_it_says_is_not_repeated(
    tmp_path: Path, place: Studio, answer: dict[str, Any], status: str, why: str
) -> None:
    app, generate, _ = an_app(tmp_path, place.address)
    place.answers["imagine"] = answer
    async with testing(app) as t:
        handle = await generate.enqueue("midjourney", "a")
        await t.run()
        task = await t.task(handle)
        assert task.status == status
        assert why in json.loads(task.error or b"{}")["message"]


async def test_the_name_of_an_order_is_no_path(tmp_path: Path, place: Studio) -> None:
    app, generate, _ = an_app(tmp_path, place.address)
    async with testing(app) as t:
        first = await generate.enqueue("midjourney", "a")
        await t.run()
        assert await t.status(first) == "completed"
        place.answers["imagine"] = {"code": 1, "result": "1/fetch?"}
        other = await generate.enqueue("midjourney", "b")
        await t.run()
        task = await t.task(other)
        assert (task.status, json.loads(task.error or b"{}")["code"]) == ("dead", "not_found")


@pytest.mark.parametrize("told", [
    {"status": "SUCCESS"},
    {"status": "SUCCESS", "imageUrl": None},
    {"status": "SUCCESS", "imageUrl": ["http://x"]},
    {"status": "SUCCESS", "imageUrl": "/relative.png"},
    {"status": "SUCCESS", "imageUrl": "http://[::1"},
    {"status": "SUCCESS", "imageUrl": "http://x:99999/"},
    {"status": "SUCCESS", "imageUrl": "https://x\0y/"},
    {"status": "SUCCESS", "imageUrl": "http://" + "x" * 70_000},
    {"generations_by_pk": {"status": "COMPLETE"}},
    {"generations_by_pk": {"status": "COMPLETE", "generated_images": None}},
    {"generations_by_pk": {"status": "COMPLETE", "generated_images": []}},
    {"generations_by_pk": {"status": "COMPLETE", "generated_images": ["a"]}},
    {"generations_by_pk": {"status": "COMPLETE", "generated_images": [{"id": 1}]}},
])  # fmt: skip
async def test_an_outcome_that_names_no_picture_is_none_and_is_asked_for_again(
    tmp_path: Path, place: Studio, told: dict[str, Any]
) -> None:
    app, generate, _ = an_app(tmp_path, place.address)
    place.answers["outcome"] = told
    async with testing(app) as t:
        handle = await generate.enqueue("leonardo" if "status" not in told else "midjourney", "a")
        await t.run()
        task = await t.task(handle)
        assert (task.status, json.loads(task.error or b"{}")["code"]) == ("retrying", "network")
        del place.answers["outcome"]
        await t.advance("1m")
        await t.run()
        assert await t.status(handle) == "completed"
        assert len(place.ordered) == 1  # the order was good: what was said of it was not


@pytest.mark.parametrize("provider", ["midjourney", "leonardo"])
async def test_parameters_do_not_take_the_place_of_the_prompt(
    tmp_path: Path, place: Studio, provider: str
) -> None:
    app, generate, _ = an_app(tmp_path, place.address)
    async with testing(app) as t:
        params = {"prompt": "another", "state": "another's", "seed": 7}
        handle = await generate.enqueue(provider, "a harbour", params=params)
        await t.run()
        assert await t.status(handle) == "completed"
    [order] = place.ordered
    assert (order["prompt"], order["seed"]) == ("a harbour", 7)
    if provider == "midjourney":  # by which it tells a repetition
        assert order["state"] == f"outlast-{handle.id}"


async def test_progress_that_is_none_is_no_failure(tmp_path: Path, place: Studio) -> None:
    for told in ("²%", "-3", "1e9", None, [], {"a": 1}, "45.5%"):
        place.answers["outcome"] = {"status": "IN_PROGRESS", "progress": told}
        state = await Midjourney(place.address).poll("1", 0)
        assert state.percent in (0.0, 45.5)


@pytest.mark.parametrize("what", ["inside", "markup", "large"])
async def test_what_is_not_kept(tmp_path: Path, place: Studio, what: str) -> None:
    app, generate, _ = an_app(tmp_path, place.address)
    if what == "inside":
        place.elsewhere = "http://127.0.0.1:9/latest/meta-data"
    elif what == "markup":
        place.picture = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
    else:
        assert app.content is not None
        app.content._max_bytes = 100  # type: ignore[attr-defined]
    async with testing(app) as t:
        handle = await generate.enqueue("midjourney", "a")
        await t.run()
        task = await t.task(handle)
        assert task.status == "dead"
        words = {"inside": "not sent to", "markup": "none of the types", "large": "larger than"}
        assert words[what] in json.loads(task.error or b"{}")["message"]
    assert not [file for file in (tmp_path / "content").rglob("*") if file.is_file()]


def test_types_are_read_from_the_first_bytes() -> None:
    assert type_of(PICTURE) == "image/png"
    assert type_of(b"RIFF\x00\x00\x00\x00WEBPVP8 ") == "image/webp"
    assert type_of(b"\x00\x00\x00\x20ftypisom") == "video/mp4"
    assert type_of(b"<!doctype html>") is None
    assert type_of(b"") is None


async def test_content_is_seen_by_whoever_sees_the_task(tmp_path: Path) -> None:
    app, _, _ = an_app(tmp_path)
    async with serving(app, working=True) as site:
        key, _ = await create_key(app.engine, "admin")
        signer = Signer(app.engine)
        texts = {"admin": key, "alice": await signer.token("alice"),
                 "bobby": await signer.token("bobby")}  # fmt: skip
        headers = {who: {"authorization": f"Bearer {text}"} for who, text in texts.items()}
        payload = {"provider": "local", "prompt": "a", "params": {"width": 64, "height": 64}}
        body = {"type": "media_generation", "payload": payload, "session_id": "alice"}
        made = await site.post("/tasks", body, headers=headers["admin"])
        ended = await site.get(
            f"/tasks/{made.json()['id']}", headers={**headers["admin"], "prefer": "wait=30"}
        )
        url = ended.json()["result"]["urls"][0]

        async def get(who: str, path: str = url, **more: str) -> httpx2.Response:
            return await site.http.get(path, headers={**headers[who], **more})

        whole = await get("alice")
        assert (whole.status_code, whole.headers["content-type"]) == (200, "image/png")
        assert "sandbox" in whole.headers["content-security-policy"]
        assert (await get("admin")).content == whole.content
        part = await get("alice", range="bytes=8-15")
        assert (part.status_code, part.content) == (206, whole.content[8:16])
        assert part.headers["content-range"] == f"bytes 8-15/{len(whole.content)}"
        assert (await get("alice", range="bytes=-4")).content == whole.content[-4:]
        assert (await get("alice", range="bytes=99999999-")).status_code == 416
        same = await get("alice", **{"if-none-match": whole.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")

        assert (await site.http.get(url)).status_code == 401
        nothing = url[:-1] + ("0" if url[-1] != "0" else "1")
        hers, none = await get("bobby"), await get("bobby", nothing)
        assert (hers.status_code, none.status_code) == (404, 404)
        told = hers.text.replace(url.rpartition("/")[2], nothing.rpartition("/")[2])
        assert told == none.text
        beside = await get("admin", "/api/v1/content/..%2f..%2fetc%2fpasswd")
        assert beside.status_code == 404


# On MongoDB, with a server and worker processes ---------------------------------------------------


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    yield url_for("mongodb", tmp_path)
    cleared("mongodb")


@pytest.mark.timeout(300)  # two cores that others use, too
async def test_neither_the_page_nor_the_worker_need_stay(
    url: str, tmp_path: Path, place: Studio
) -> None:
    app = Outlast(url, content=str(tmp_path / "content"))
    media_generation(app, providers_at(place.address))
    place.finished.clear()
    place.gate.clear()
    env = {
        **os.environ,
        "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parents[1]}",
        "STUDIO": place.address,
        "OUTLAST_CONTENT": str(tmp_path / "content"),
    }
    command = [sys.executable, "-m", "outlast", "worker", "gallery:app", "--engine", url]
    async with serving(app) as site:
        first = await asyncio.create_subprocess_exec(*command, env=env)
        try:
            payload = {"provider": "midjourney", "prompt": "a", "workflow_run_id": "w1"}
            task = await site.enqueue("media_generation", payload)
            # The page looks on until something is drawn, and is closed.
            async with site.stream(f"/tasks/{task['id']}/stream") as stream:
                async for frame in stream.frames():
                    if frame.kind == "progress" and frame.data["progress"]["percent"] == 45:
                        last = frame.id
                        break
            place.finished.set()
            await until(lambda: place.downloads == 1, within_s=60)
        finally:
            first.kill()  # in the middle of the download
            await first.wait()
        place.gate.set()
        second = await asyncio.create_subprocess_exec(*command, env=env)
        try:
            # It comes back, and misses nothing.
            frames = await asyncio.wait_for(site.frames(task["id"], last), 120)
            assert frames[-1].kind == "done"
            ended = await site.ended(task["id"])
            assert (ended["status"], ended["losses"]) == ("completed", 1)
            assert len(place.ordered) == 1, "ordered twice"
            assert place.downloads == 2
            picture = await site.http.get(ended["result"]["urls"][0])
            assert picture.content == PICTURE
            halves = [file for file in (tmp_path / "content").rglob("*") if ".part" in file.name]
            assert not halves, "what the first had fetched is left"
        finally:
            second.terminate()
            await second.wait()
