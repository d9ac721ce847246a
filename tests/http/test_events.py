"""Streams: every event once and in order, through any number of lost connections."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from outlast.core.model import Event, EventQuery, NewEvent, Put
from outlast.http import feed, live
from outlast.stream import so_far

from .site import Frame, Site, make_app, serving, until


async def log_of(site: Site, id: str) -> list[Event]:
    return await so_far(site.app.engine, EventQuery(task_id=id))


def kinds(frames: list[Frame]) -> list[str]:
    return [frame.kind for frame in frames]


# One task ----------------------------------------------------------------------------------------


async def test_a_stream_tells_the_whole_story_and_ends(busy: Site) -> None:
    id = (await busy.enqueue("tell", {"chunks": 4}))["id"]
    async with busy.stream(f"/tasks/{id}/stream") as stream:
        assert stream.reply.headers["content-type"].startswith("text/event-stream")
        assert stream.reply.headers["x-accel-buffering"] == "no"
        frames = [frame async for frame in stream.frames()]
    assert [frame.data["status"] for frame in frames if frame.kind == "state"] == [
        "ready",
        "running",
    ]
    chunks = [frame.data["chunk"] for frame in frames if frame.kind == "chunk"]
    assert chunks == ["1.0", "1.1", "1.2", "1.3"]
    for frame in frames:
        assert frame.data["task_id"] == id
        assert frame.data["attempt"] == (0 if frame is frames[0] else 1)
        assert frame.data["at"].endswith("Z")
    done = frames[-1]
    assert done.kind == "done"
    assert (done.data["status"], done.data["result"]) == ("completed", "4 chunks")


async def test_progress_is_told_as_the_record_shows_it(busy: Site) -> None:
    id = (await busy.enqueue("wait", {"gate": "g"}))["id"]
    async with busy.stream(f"/tasks/{id}/stream") as stream:
        frame = await stream.next()
        while frame.kind != "progress":
            frame = await stream.next()
    told = frame.data["progress"]
    assert (told["percent"], told["message"]) == (50, "waiting")
    assert told == (await busy.task(id))["progress"]
    busy.gates["g"].set()


async def test_whoever_comes_after_the_end_gets_the_same_story(busy: Site) -> None:
    id = (await busy.enqueue("tell", {"chunks": 3, "fails": 1}))["id"]
    live_frames = await busy.frames(id)
    assert await busy.frames(id) == live_frames
    assert kinds(live_frames)[-1] == "done"


async def test_a_failed_attempt_rolls_back_what_it_had_put_out(busy: Site) -> None:
    id = (await busy.enqueue("tell", {"chunks": 2, "fails": 1}))["id"]
    frames = await busy.frames(id)
    output: list[str] = []
    for frame in frames:
        if frame.kind == "chunk":
            output.append(frame.data["chunk"])
        elif frame.kind == "rollback":
            assert output == ["1.0", "1.1"]
            assert frame.data["attempt"] == 1
            output.clear()
    assert output == ["2.0", "2.1"]
    assert kinds(frames).count("rollback") == 1
    retrying = next(frame for frame in frames if frame.data.get("status") == "retrying")
    assert retrying.data["error"]["message"] == "not yet"
    assert retrying.data["run_at"].endswith("Z")
    assert frames[-1].data["error"] is None


async def test_the_end_of_a_dead_task_says_why(busy: Site) -> None:
    id = (await busy.enqueue("doomed"))["id"]
    done = (await busy.frames(id))[-1]
    assert (done.data["status"], done.data["reason"]) == ("dead", "permanent")
    assert done.data["error"]["message"] == "it cannot be"
    assert done.data["result"] is None


@pytest.mark.parametrize("seed", range(6))
async def test_a_client_that_keeps_dropping_sees_every_event_once_in_order(
    busy: Site, seed: int
) -> None:
    dice = random.Random(seed)
    id = (await busy.enqueue("tell", {"chunks": 40, "fails": 2}))["id"]
    seen: list[Frame] = []
    connections = 0
    while not seen or seen[-1].kind != "done":
        connections += 1
        last = seen[-1].id if seen else None
        by_header = dice.random() < 0.5 or last is None
        path = f"/tasks/{id}/stream" + ("" if by_header else f"?after={last}")
        async with busy.stream(path, last if by_header else None) as stream:
            left = dice.randint(1, 7)
            async for frame in stream.frames():
                seen.append(frame)
                left -= 1
                if left == 0:
                    break
    assert connections > 10
    assert [(frame.id, frame.kind) for frame in seen] == [
        (event.cursor, event.kind) for event in await log_of(busy, id)
    ]
    chunks = [frame.data["chunk"] for frame in seen if frame.kind == "chunk"]
    assert chunks == [f"{attempt}.{n}" for attempt in (1, 2, 3) for n in range(40)]
    await until(lambda: busy.open_streams == 0)


async def test_coming_back_to_a_living_task_waits_for_what_is_next(site: Site) -> None:
    id = (await site.enqueue("add", {"a": 1}))["id"]
    async with site.stream(f"/tasks/{id}/stream") as stream:
        first = await stream.next()
    async with site.stream(f"/tasks/{id}/stream", last=first.id) as stream:
        assert stream.reply.status_code == 200
        await site.post(f"/tasks/{id}/cancel")
        assert (await stream.next()).kind == "done"


async def test_coming_back_behind_the_end_is_told_to_stop(busy: Site) -> None:
    id = (await busy.enqueue("add", {"a": 1}))["id"]
    last = (await busy.frames(id))[-1].id
    for headers, query in (({"last-event-id": last}, ""), ({}, f"?after={last}")):
        reply = await busy.get(f"/tasks/{id}/stream{query}", headers=headers)
        assert (reply.status_code, reply.content) == (204, b"")


async def test_a_redriven_task_streams_on_past_its_earlier_end(busy: Site) -> None:
    id = (await busy.enqueue("doomed"))["id"]
    first = await busy.frames(id)
    await busy.post(f"/tasks/{id}/retry")
    await busy.ended(id)
    whole = await busy.frames(id)
    # The first end was the end when it was told; now it is one state among others.
    assert kinds(whole).count("done") == 1
    assert whole[: len(first) - 1] == first[:-1]
    past = whole[len(first) - 1]
    assert (past.kind, past.id, past.data["status"]) == ("state", first[-1].id, "dead")
    assert "result" not in past.data and whole[-1].data["result"] is None
    assert await busy.frames(id, last=first[-1].id) == whole[len(first) :]


async def test_a_cancelled_task_ends_its_open_stream(site: Site) -> None:
    id = (await site.enqueue("add", {"a": 1}))["id"]
    async with site.stream(f"/tasks/{id}/stream") as stream:
        assert (await stream.next()).kind == "state"
        await site.post(f"/tasks/{id}/cancel")
        done = await stream.next()
        assert (done.kind, done.data["status"], done.data["reason"]) == (
            "done",
            "cancelled",
            "cancelled",
        )
        assert [frame async for frame in stream.frames()] == []


async def test_signals_pass_under_their_own_name(site: Site) -> None:
    id = (await site.enqueue("add", {"a": 1}, hold="go"))["id"]
    await site.post(f"/tasks/{id}/signal/go")
    await site.post(f"/tasks/{id}/cancel")
    frames = await site.frames(id)
    assert "signal" in kinds(frames)
    assert next(frame for frame in frames if frame.kind == "signal").data["name"] == "go"


async def test_a_pruned_log_is_told_by_a_reset_and_the_end_still_comes(site: Site) -> None:
    id = (await site.enqueue("add", {"a": 1}))["id"]
    await site.post(f"/tasks/{id}/cancel")
    first = (await site.frames(id))[0]
    await _prune_log(site)
    [reset, done] = await site.frames(id, last=first.id)
    assert (reset.kind, reset.id, reset.data["at"]) == ("reset", first.id, None)
    assert (done.kind, done.data["status"], done.data["reason"]) == ("done", *["cancelled"] * 2)
    [only] = await site.frames(id)
    assert (only.kind, only.data["task_id"], only.data["status"]) == ("done", id, "cancelled")
    assert (await site.get(f"/tasks/{id}/stream?after={only.id}")).status_code == 204


async def test_a_quiet_stream_sends_signs_of_life() -> None:
    app, _ = make_app()
    async with serving(app, heartbeat_s=0.02) as site:
        id = (await site.enqueue("add", {"a": 1}))["id"]
        async with site.stream(f"/tasks/{id}/stream") as stream:
            reading = asyncio.create_task(_drain(stream.frames()))
            await until(lambda: len(stream.comments) >= 3)
            await site.post(f"/tasks/{id}/cancel")
            assert kinds(await reading)[-1] == "done"
        assert set(stream.comments) == {": ping"}


async def test_a_client_that_hangs_up_frees_its_stream(site: Site) -> None:
    id = (await site.enqueue("add", {"a": 1}))["id"]
    async with site.stream(f"/tasks/{id}/stream") as stream:
        await stream.next()
        assert site.open_streams == 1
    await until(lambda: site.open_streams == 0)


async def test_streams_are_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_OPEN", 1)
    id = (await site.enqueue("add", {"a": 1}))["id"]
    async with site.stream(f"/tasks/{id}/stream") as stream:
        await stream.next()
        reply = await site.get(f"/tasks/{id}/stream")
        assert (reply.status_code, reply.json()["code"]) == (503, "busy")
        assert reply.headers["retry-after"]
    await until(lambda: site.open_streams == 0)


async def test_a_stream_of_nothing_or_from_nowhere_is_refused(site: Site) -> None:
    assert (await site.get("/tasks/01890a5d-ac96-774b-bcce-b302099a8057/stream")).status_code == 404
    id = (await site.enqueue("add", {"a": 1}))["id"]
    reply = await site.get(f"/tasks/{id}/stream?after=nonsense")
    assert (reply.status_code, reply.json()["field"]) == (422, "cursor")


# All tasks ---------------------------------------------------------------------------------------


async def test_one_stream_tells_of_all_tasks_from_now_on(site: Site) -> None:
    await site.enqueue("add", {"a": 0})
    async with site.stream("/events") as stream:
        ids = [(await site.enqueue("add", {"a": n}, queue="q"))["id"] for n in (1, 2)]
        frames = [await stream.next() for _ in ids]
    assert [frame.data["task_id"] for frame in frames] == ids
    assert {(frame.data["type"], frame.data["queue"]) for frame in frames} == {("add", "q")}


async def test_the_stream_of_all_tasks_resumes_even_if_it_had_been_silent(site: Site) -> None:
    async with site.stream("/events") as stream:
        reading = asyncio.create_task(_drain(stream.frames()))
        await until(lambda: stream.last_id != "")
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    missed = await site.enqueue("add", {"a": 1})
    async with site.stream("/events", last=stream.last_id) as stream:
        assert (await stream.next()).data["task_id"] == missed["id"]


async def test_the_stream_of_all_tasks_can_be_narrowed(site: Site) -> None:
    async with site.stream("/events?kinds=done,progress&session_id=s") as stream:
        for session_id in ("other", "s"):
            id = (await site.enqueue("add", {"a": 1}, session_id=session_id))["id"]
            await site.post(f"/tasks/{id}/cancel")
        frame = await stream.next()
        assert (frame.kind, frame.data["task_id"]) == ("done", id)
    reply = await site.get("/events?kind=done")
    assert (reply.status_code, reply.json()["field"]) == (422, "kind")
    assert (await site.get("/events?after=nonsense")).status_code == 422
    reply = await site.get("/events/poll?session_id=a%00b")
    assert (reply.status_code, reply.json()["field"]) == (422, "session_id")


async def test_a_fact_without_a_task_is_told_too(site: Site) -> None:
    async with site.stream("/events?kinds=alert") as stream:
        await site.app.engine.append([NewEvent(kind="alert", data=b'{"what":"memory"}')])
        frame = await stream.next()
        assert (frame.kind, frame.data["what"], frame.data["task_id"]) == ("alert", "memory", None)


# The end of the server ---------------------------------------------------------------------------


async def test_streams_end_quickly_with_the_server() -> None:
    app, _ = make_app()
    async with serving(app) as site:
        id = (await site.enqueue("add", {"a": 1}))["id"]
        async with (
            site.stream(f"/tasks/{id}/stream") as one,
            site.stream("/events") as all_tasks,
        ):
            await one.next()
            waiting = asyncio.create_task(site.get(f"/tasks/{id}", headers={"prefer": "wait=60"}))
            await until(lambda: site.open_streams == 3)
            site.server.should_exit = True
            async with asyncio.timeout(30):
                assert await _drain(one.frames()) == []
                assert await _drain(all_tasks.frames()) == []
                assert (await waiting).json()["status"] == "ready"


async def test_a_stream_whose_engine_goes_down_ends_and_can_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "POLL_S", 0.1)
    app, _ = make_app(f"sqlite:///{tmp_path / 'tasks.db'}")
    async with serving(app) as site:
        id = (await site.enqueue("add", {"a": 1}))["id"]
        path = f"/tasks/{id}/stream"
        async with site.stream(path) as stream:
            first = await stream.next()
            await app.engine.close()
            async with asyncio.timeout(30):
                assert await _drain(stream.frames()) == []
        reply = await site.get(path, headers={"last-event-id": first.id})
        assert (reply.status_code, reply.json()["code"]) == (503, "engine_down")
        await app.engine.open()
        await site.post(f"/tasks/{id}/cancel")
        assert kinds(await site.frames(id, last=first.id)) == ["done"]


async def _prune_log(site: Site) -> None:
    """Let the log forget everything, as retention does."""
    rule = Put(kind="retention", key="log", value=b'{"age_ms":1000}')
    await site.app.engine.put([rule])
    site.app.engine.skew_ms += 10_000
    while (await site.app.engine.sweep()).more:
        pass


async def _drain(frames: Any) -> list[Frame]:
    return [frame async for frame in frames]


async def test_the_stream_of_all_tasks_can_be_read_from_the_beginning(site: Site) -> None:
    nothing = (await site.get("/events/poll?after=^&kinds=audit")).json()
    assert nothing["items"] == [] and nothing["next"]
    ids = [(await site.enqueue("add", {"a": n}))["id"] for n in range(3)]
    await site.post("/queues/default/pause")
    told = (await site.get("/events/poll?after=^")).json()["items"]
    assert [one["data"]["task_id"] for one in told] == [*ids, None]
    [audit] = (await site.get("/events/poll?after=^&kinds=audit")).json()["items"]
    assert audit["data"]["path"] == "/api/v1/queues/default/pause"
    async with site.stream("/events?after=^") as stream:
        assert [(await stream.next()).id for _ in told] == [one["id"] for one in told]


@pytest.mark.parametrize("kinds", ["kinds=audit&kinds=state", "kinds=audit,%20state"])
async def test_kinds_are_alternatives_however_they_are_written(site: Site, kinds: str) -> None:
    await site.enqueue("add", {"a": 1})
    await site.post("/queues/default/pause")
    told = (await site.get(f"/events/poll?after=^&{kinds}")).json()["items"]
    assert [one["event"] for one in told] == ["state", "audit"]
