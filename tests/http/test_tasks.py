"""Tasks over HTTP: enqueue, look at, wait for, retry, cancel, signal, forget."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from outlast.core.ids import new_id
from outlast.core.model import NewTask
from outlast.http import tasks

from .site import API, Site, make_app, serving, until

RECORD = (
    "id type queue lane priority state status payload result error attempts progress attempt "
    "max_attempts losses timeout overdue_after overdue_at max_age run_at retry_at created_at "
    "started_at updated_at completed_at worker lease_until limits reason session_id user_id tags "
    "parent_id workflow_id unique_key version"
)


# Enqueuing ---------------------------------------------------------------------------------------


async def test_an_enqueue_answers_the_record_and_where_it_is(site: Site) -> None:
    reply = await site.post("/tasks", {"type": "add", "payload": {"a": 1, "b": 2}})
    task = reply.json()
    assert reply.status_code == 202
    assert reply.headers["location"] == f"{API}/tasks/{task['id']}"
    assert set(RECORD.split()) <= task.keys()
    assert (task["state"], task["status"], task["payload"]) == (
        "pending",
        "ready",
        {"a": 1, "b": 2},
    )
    assert (task["existing"], task["durability"]) == (False, "memory")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", task["created_at"])
    found = await site.http.get(reply.headers["location"])
    del task["existing"], task["durability"]
    assert found.json() == task


async def test_a_file_is_durable(tmp_path: Path) -> None:
    app, _ = make_app(f"sqlite:///{tmp_path / 'tasks.db'}")
    async with serving(app) as site:
        assert (await site.enqueue("add", {"a": 1}))["durability"] == "fsync"


async def test_every_option_reaches_the_record(site: Site) -> None:
    parent, id = (await site.enqueue("add", {"a": 1}))["id"], new_id()
    run_at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    task = await site.enqueue(
        "add", {"a": 1}, id=id, priority="high", run_at=run_at, queue="other", max_attempts=7,
        max_losses=2, timeout="1m", overdue_after=30, max_age="2h", unique_key="k", unique_for="1d",
        session_id="s", user_id="u", tags=["x", "y"], parent_id=parent, workflow_id="w",
    )  # fmt: skip
    told = {
        "id": id, "status": "scheduled", "priority": 1, "queue": "other", "max_attempts": 7,
        "max_losses": 2, "timeout": 60, "overdue_after": 30, "max_age": 7200, "unique_key": "k",
        "session_id": "s", "user_id": "u", "tags": ["x", "y"], "parent_id": parent,
        "workflow_id": "w",
    }  # fmt: skip
    assert {name: task[name] for name in told} == told
    assert abs(_moment(task["run_at"]) - _moment(run_at)) < timedelta(milliseconds=1)


async def test_a_delay_is_seconds_or_text_and_null_is_as_good_as_absent(site: Site) -> None:
    for delay, wanted in (("10m", 600), (90, 90), (0.5, 0.5)):
        task = await site.enqueue("add", {"a": 1}, delay=delay, session_id=None)
        waits = _moment(task["run_at"]) - _moment(task["created_at"])
        assert waits == timedelta(seconds=wanted)
        assert (task["status"], task["session_id"]) == ("scheduled", None)


async def test_a_task_can_wait_for_others_and_for_a_signal(site: Site) -> None:
    first = await site.enqueue("add", {"a": 1}, hold="go")
    second = await site.enqueue("add", {"a": 1}, after=[first["id"]])
    assert (first["status"], second["status"]) == ("blocked", "blocked")
    reply = await site.post(f"/tasks/{first['id']}/signal/go", {"by": "ada"})
    assert (reply.status_code, reply.json()["status"]) == (200, "ready")
    reply = await site.post(f"/tasks/{first['id']}/signal/other")
    assert reply.status_code == 200


@pytest.mark.parametrize("path", ["/tasks/summarize", "/tasks/summarize/"])
async def test_a_summary_is_asked_for_by_its_text(busy: Site, path: str) -> None:
    reply = await busy.post(path, {"content": "First. Second.", "priority": "low"})
    assert (reply.status_code, reply.json()["priority"]) == (202, 3)
    task = await busy.ended(reply.json()["id"])
    assert (task["type"], task["result"]) == ("summarize", "First.")


async def test_an_external_type_is_stored_for_others_to_run(site: Site) -> None:
    assert (await site.enqueue("elsewhere", {"to": "x"}))["status"] == "ready"
    reply = await site.post("/tasks", {"type": "elsewhere", "payload": {}})
    assert (reply.status_code, reply.json()["field"]) == (422, "$.to")


async def test_a_batch_is_one_step_and_answers_in_order(site: Site) -> None:
    reply = await site.post(
        "/tasks/batch", {"tasks": [{"type": "add", "payload": {"a": n}} for n in range(120)]}
    )
    assert reply.status_code == 202
    assert [task["payload"]["a"] for task in reply.json()["items"]] == list(range(120))


async def test_a_batch_with_one_bad_task_changes_nothing(site: Site) -> None:
    bad = {"type": "add", "payload": {"a": "x"}}
    reply = await site.post("/tasks/batch", {"tasks": [{"type": "add", "payload": {"a": 1}}, bad]})
    assert reply.status_code == 422
    assert reply.json()["field"] == "tasks[1].$.a"
    assert (await site.get("/tasks")).json() == {"items": [], "next": None}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "tasks"),
        ({"tasks": []}, "tasks"),
        ({"tasks": [1]}, "tasks"),
        ({"tasks": {"type": "add"}}, "tasks"),
        ({"tasks": [{"payload": {}}]}, "tasks[0].type"),
        ({"tasks": [{"type": "add", "payload": {"a": 1}}], "more": 1}, "more"),
        ({"tasks": [{"type": "add", "payload": {"a": 1}}] * 1001}, "tasks"),
    ],
)
async def test_a_batch_that_is_none_is_refused(site: Site, body: object, field: str) -> None:
    reply = await site.post("/tasks/batch", body)
    assert (reply.status_code, reply.json()["field"]) == (422, field)


async def test_a_batch_that_is_repeated_with_its_key_is_the_same_batch(site: Site) -> None:
    body = {"tasks": [{"type": "add", "payload": {"a": n}} for n in (1, 1)]}
    body["tasks"].append({"type": "add", "payload": {"a": 2}, "unique_key": "u"})
    key = {"idempotency-key": '"k"'}
    first = (await site.post("/tasks/batch", body, headers=key)).json()["items"]
    again = (await site.post("/tasks/batch", body, headers=key)).json()["items"]
    assert len({task["id"] for task in first}) == 3
    assert [task["id"] for task in again] == [task["id"] for task in first]
    assert [task["existing"] for task in first + again] == [False] * 3 + [True] * 3
    body["tasks"][0]["payload"] = {"a": 7}
    reply = await site.post("/tasks/batch", body, headers=key)
    assert (reply.status_code, reply.json()["code"]) == (422, "mismatch")


@pytest.mark.parametrize("change", ["longer", "shorter", "another", "its unique_key"])
async def test_another_batch_under_the_same_key_is_refused_and_changes_nothing(
    site: Site, change: str
) -> None:
    one, two, new = ({"type": "add", "payload": {"a": n}} for n in (1, 2, 3))
    named = {**two, "unique_key": "u"}
    batches = {
        "longer": [one, named, new],
        "shorter": [one],
        "another": [new, named, new],
        "its unique_key": [one, {**two, "unique_key": "v"}],
    }
    key = {"idempotency-key": "k"}
    first = await site.post("/tasks/batch", {"tasks": [one, named]}, headers=key)
    assert first.status_code == 202
    reply = await site.post("/tasks/batch", {"tasks": batches[change]}, headers=key)
    assert (reply.status_code, reply.json()["code"]) == (422, "mismatch")
    assert len((await site.get("/tasks")).json()["items"]) == 2
    other = {"idempotency-key": "another"}
    assert (await site.post("/tasks/batch", {"tasks": [one]}, headers=other)).status_code == 202


# The same enqueue twice --------------------------------------------------------------------------


async def test_a_known_id_or_unique_key_answers_the_task_that_is_there(site: Site) -> None:
    id = new_id()
    first = await site.enqueue("add", {"a": 1}, id=id, unique_key="k")
    by_id = await site.enqueue("add", {"a": 2}, id=id)
    by_key = await site.enqueue("add", {"a": 3}, unique_key="k")
    assert [task["existing"] for task in (first, by_id, by_key)] == [False, True, True]
    assert {task["id"] for task in (first, by_id, by_key)} == {id}
    assert by_key["payload"] == {"a": 1}


async def test_an_idempotency_key_means_the_same_request_also_when_it_is_over(busy: Site) -> None:
    body = {"type": "add", "payload": {"a": 1, "b": 2}, "tags": ["x"], "priority": 1}
    key = {"idempotency-key": "order 7"}
    first = (await busy.post("/tasks", body, headers=key)).json()
    await busy.ended(first["id"])
    # Another order of keys is no other request.
    same = {"priority": 1, "tags": ["x"], "payload": {"b": 2, "a": 1}, "type": "add"}
    again = (await busy.post("/tasks", same, headers=key)).json()
    assert (again["id"], again["existing"], again["status"]) == (first["id"], True, "completed")
    for other in ({"payload": {"a": 1, "b": 3}}, {"priority": 2}, {"tags": []}):
        reply = await busy.post("/tasks", {**body, **other}, headers=key)
        assert (reply.status_code, reply.json()["code"]) == (422, "mismatch")


async def test_parallel_requests_with_one_key_make_one_task(site: Site) -> None:
    body, key = {"type": "add", "payload": {"a": 1}}, {"idempotency-key": "k"}
    replies = await asyncio.gather(*(site.post("/tasks", body, headers=key) for _ in range(30)))
    told = [reply.json() for reply in replies]
    assert len({task["id"] for task in told}) == 1
    assert sorted(task["existing"] for task in told) == [False] + [True] * 29
    assert len((await site.get("/tasks")).json()["items"]) == 1


@pytest.mark.parametrize("key", ["", '""'])
async def test_an_empty_idempotency_key_is_refused(site: Site, key: str) -> None:
    one, headers = {"type": "add", "payload": {"a": 1}}, {"idempotency-key": key}
    for path, body in (("/tasks", one), ("/tasks/batch", {"tasks": [one]})):
        reply = await site.post(path, body, headers=headers)
        assert (reply.status_code, reply.json()["field"]) == (422, "Idempotency-Key"), path
    assert (await site.get("/tasks")).json()["items"] == []


async def test_an_idempotency_key_may_be_as_long_as_it_says(site: Site) -> None:
    one, headers = {"type": "add", "payload": {"a": 1}}, {"idempotency-key": "k" * 200}
    for path, body in (("/tasks", one), ("/tasks/batch", {"tasks": [one]})):
        first, again = [(await site.post(path, body, headers=headers)).json() for _ in range(2)]
        [first], [again] = first.get("items", [first]), again.get("items", [again])
        assert (again["id"], again["existing"]) == (first["id"], True), path


async def test_an_idempotency_key_and_a_unique_key_are_too_much(site: Site) -> None:
    body = {"type": "add", "payload": {"a": 1}, "unique_key": "u"}
    reply = await site.post("/tasks", body, headers={"idempotency-key": "k"})
    assert (reply.status_code, reply.json()["field"]) == (422, "unique_key")


# Looking -----------------------------------------------------------------------------------------


async def test_prefer_wait_answers_when_the_task_ends(busy: Site) -> None:
    id = (await busy.enqueue("wait", {"gate": "g"}))["id"]
    await until(lambda: "g" in busy.gates)
    waiting = asyncio.create_task(
        busy.get(f"/tasks/{id}", headers={"prefer": "respond-async, wait=20"})
    )
    await until(lambda: busy.open_streams == 1)
    busy.gates["g"].set()
    reply = await waiting
    assert (reply.json()["status"], reply.json()["result"]) == ("completed", "g")
    assert reply.headers["preference-applied"] == "wait=20"
    assert busy.open_streams == 0


async def test_prefer_wait_answers_the_task_as_it_is_when_the_time_is_over(site: Site) -> None:
    id = (await site.enqueue("add", {"a": 1}))["id"]
    reply = await site.get(f"/tasks/{id}", headers={"prefer": "wait=1"})
    assert (reply.status_code, reply.json()["status"]) == (200, "ready")
    assert reply.headers["preference-applied"] == "wait=1"


@pytest.mark.parametrize("prefer", ["wait=0", "wait=soon", "waited=9", "wait=-1", "return=minimal"])
async def test_a_preference_that_makes_no_sense_is_ignored(site: Site, prefer: str) -> None:
    id = (await site.enqueue("add", {"a": 1}))["id"]
    reply = await site.get(f"/tasks/{id}", headers={"prefer": prefer})
    assert reply.status_code == 200
    assert "preference-applied" not in reply.headers


async def test_a_wait_ends_with_its_client(site: Site) -> None:
    id = (await site.enqueue("add", {"a": 1}))["id"]
    waiting = asyncio.create_task(site.task(id, headers={"prefer": "wait=60"}))
    await until(lambda: site.open_streams == 1)
    waiting.cancel()
    await until(lambda: site.open_streams == 0)


async def test_why_names_what_a_task_waits_for(site: Site) -> None:
    id = (await site.enqueue("add", {"a": 1}))["id"]
    told = (await site.get(f"/tasks/{id}/why")).json()
    assert (told["task_id"], told["waits_for"]) == (id, "no_worker")
    assert told["text"] and told["action"]


async def test_a_list_is_newest_first_and_filtered(site: Site) -> None:
    first = await site.enqueue("add", {"a": 1}, tags=["x"], user_id="ada", session_id="s")
    second = await site.enqueue("wait", {"gate": "needle"}, queue="q", workflow_id="w")
    third = await site.enqueue("add", {"a": 3}, delay=60)
    ids = [third["id"], second["id"], first["id"]]

    async def found(**filters: str) -> list[str]:
        page = (await site.get("/tasks", params=filters)).json()
        return [task["id"] for task in page["items"]]

    assert await found() == ids
    assert await found(type="add") == [ids[0], ids[2]]
    assert await found(type="add,wait") == ids
    assert await found(status="scheduled") == [ids[0]]
    assert await found(queue="q") == await found(workflow_id="w") == await found(q="needle")
    assert await found(tag="x") == await found(user_id="ada") == await found(session_id="s")
    assert await found(tag="x", type="wait") == []
    twice = await site.http.get(f"{API}/tasks?status=ready&status=scheduled")
    assert [task["id"] for task in twice.json()["items"]] == ids


@pytest.mark.parametrize("path", ["/tasks", "/queues/dlq", "/sessions/s/tasks"])
@pytest.mark.parametrize("name", ["q", "type", "user_id", "tag"])
async def test_a_nul_is_refused_before_an_engine_sees_it(site: Site, path: str, name: str) -> None:
    reply = await site.get(path, params={name: "a\0b"})
    assert (reply.status_code, reply.json()["field"]) == (422, name)
    assert "NUL" in reply.json()["detail"]


async def test_pages_meet_every_task_once_while_new_ones_come(site: Site) -> None:
    for n in range(7):
        await site.enqueue("add", {"a": n})
    seen, cursor = [], ""
    while cursor is not None:
        page = (await site.get("/tasks", params={"limit": 3, "cursor": cursor})).json()
        seen += [task["payload"]["a"] for task in page["items"]]
        cursor = page["next"]
        await site.enqueue("add", {"a": 100})
    assert seen == [6, 5, 4, 3, 2, 1, 0]


async def test_a_page_is_bounded_in_bytes_too(site: Site) -> None:
    data = b'{"content":"%b"}' % (b"x" * 500_000)
    many = [NewTask(id=new_id(), type="summarize", payload=data) for _ in range(70)]
    await site.app.engine.enqueue(many)
    page = (await site.get("/tasks", params={"limit": 500})).json()
    assert len(page["items"]) == tasks.STEP
    rest = (await site.get("/tasks", params={"limit": 500, "cursor": page["next"]})).json()
    assert (len(rest["items"]), rest["next"]) == (20, None)


# Changing ----------------------------------------------------------------------------------------


async def test_a_dead_task_runs_again_on_retry_with_another_payload(busy: Site) -> None:
    id = (await busy.enqueue("doomed"))["id"]
    task = await busy.ended(id)
    assert (task["status"], task["reason"], task["error"]["message"]) == (
        "dead", "permanent", "it cannot be",
    )  # fmt: skip
    assert {"code", "type", "message", "details", "traceback"} <= task["error"].keys()
    assert (await busy.post(f"/tasks/{id}/retry")).status_code == 200
    assert len((await busy.ended(id))["attempts"]) == 2
    reply = await busy.post(f"/tasks/{id}/retry", {"payload": {"no": 1}})
    assert (reply.status_code, reply.json()["field"]) == (422, "$.no")
    reply = await busy.post(f"/tasks/{id}/retry", {"payload": [1]})
    assert (reply.status_code, reply.json()["field"]) == (422, "payload")


async def test_what_does_not_apply_is_a_conflict(busy: Site) -> None:
    done = (await busy.enqueue("add", {"a": 1}))["id"]
    await busy.ended(done)
    runs = (await busy.enqueue("wait", {"gate": "g"}))["id"]
    await until(lambda: "g" in busy.gates)
    for call in (f"{done}/retry", f"{done}/cancel", f"{runs}/retry", f"{done}/signal/x"):
        reply = await busy.post(f"/tasks/{call}")
        assert (reply.status_code, reply.json()["code"]) == (409, "conflict"), call
    assert (await busy.http.delete(f"{API}/tasks/{runs}")).status_code == 409
    busy.gates["g"].set()


async def test_cancelling_stops_what_waits_and_what_runs(busy: Site) -> None:
    runs = (await busy.enqueue("wait", {"gate": "g"}))["id"]
    await until(lambda: "g" in busy.gates)
    waits = (await busy.enqueue("add", {"a": 1}, delay=60))["id"]
    reply = await busy.post(f"/tasks/{waits}/cancel", {"reason": "changed my mind"})
    assert (reply.json()["status"], reply.json()["reason"]) == ("cancelled", "changed my mind")
    reply = await busy.post(f"/tasks/{runs}/cancel")
    assert reply.status_code == 200
    assert (await busy.ended(runs))["status"] == "cancelled"


async def test_a_forgotten_task_is_gone(site: Site) -> None:
    id = (await site.enqueue("add", {"a": 1}))["id"]
    assert (await site.http.delete(f"{API}/tasks/{id}")).status_code == 204
    assert (await site.get(f"/tasks/{id}")).status_code == 404


async def test_orphaned_tasks_are_requeued_at_once(site: Site) -> None:
    reply = await site.post("/tasks/requeue-orphaned")
    assert (reply.status_code, reply.json()) == (200, {"requeued": 0, "died": 0})


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_many_are_changed_by_filter_as_a_task(busy: Site) -> None:
    doomed = [await busy.enqueue("doomed", tags=["x"]) for _ in range(5)]
    for task in doomed:
        await busy.ended(task["id"])
    other = await busy.enqueue("doomed", tags=["y"])
    await busy.ended(other["id"])
    asked = {"action": "delete", "filter": "status:dead tag:x"}
    dry = await busy.post("/tasks/bulk", {**asked, "dry_run": True})
    assert (dry.status_code, dry.json()) == (200, {"matched": 5, "dry_run": True})
    reply = await busy.post("/tasks/bulk", asked)
    assert (reply.status_code, reply.json()["matched"]) == (202, 5)
    ended = await busy.ended(reply.json()["id"])
    assert ended["result"] == {"changed": 5}
    assert ended["progress"]["percent"] == 100
    left = (await busy.get("/tasks?status=dead")).json()["items"]
    assert [task["id"] for task in left] == [other["id"]]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"action": "retry", "filter": " "}, "say which tasks"),
        ({"action": "burn", "filter": "type:a"}, "Actions are: retry, cancel, delete"),
        ({"action": "delete", "filter": "type:a", "rate": "1/s"}, "takes none"),
        ({"action": "retry", "filter": "type:a", "rate": "fast"}, "fast"),
        ({"action": "retry", "filter": "colour:red"}, "There is no filter"),
        ({"action": "retry"}, "filter"),
    ],
)
async def test_a_bulk_that_is_wrong_changes_nothing(
    site: Site, body: dict[str, str], words: str
) -> None:
    reply = await site.post("/tasks/bulk", body)
    assert reply.status_code == 422
    assert words in reply.json()["detail"]
