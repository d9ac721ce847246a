"""Schedules over HTTP: made, listed with what comes next, paused, run, deleted."""

from __future__ import annotations

from typing import Any, Final

import pytest

from outlast import Outlast

from .site import Site, serving

NIGHTLY: Final[dict[str, Any]] = {
    "name": "every night/all", "type": "add", "payload": {"a": 1, "password": "x"},
    "every": "0 3 * * *", "tz": "Europe/Berlin", "overlap": "skip", "jitter": "30s",
    "options": {"priority": "low"},
}  # fmt: skip
PATH: Final = "/schedules/every night/all"


def make_app() -> Outlast:
    app = Outlast("memory://")

    @app.task
    async def add(a: int, password: str = "") -> int:
        return a

    app.schedule("by code", add, {"a": 2}, every="1h")
    return app


@pytest.fixture
async def site() -> Any:
    async with serving(make_app()) as site:
        yield site


async def test_made_and_listed(site: Site) -> None:
    made = await site.post("/schedules", NIGHTLY)
    assert made.status_code == 201, made.text
    told = made.json()
    assert told["payload"] == {"a": 1, "password": "***"}
    assert (told["jitter"], told["overlap"], told["source"]) == (30, "skip", "people")
    assert len(told["next"]) == 10
    assert all(at.endswith(":00:00.000Z") for at in told["next"])
    assert (await site.get(PATH)).json() == told
    listed = (await site.get("/schedules")).json()["items"]
    assert [one["name"] for one in listed] == ["by code", "every night/all"]
    assert (listed[0]["source"], listed[0]["every"], len(listed[0]["next"])) == ("code", "1h", 3)
    [hourly, _] = (await site.get("/schedules", params={"ahead": 24})).json()["items"]
    assert hourly["next"][:3] == listed[0]["next"]
    assert len(hourly["next"]) == 24
    for wrong in ("0", "101", "many", "٣"):
        refused = await site.get("/schedules", params={"ahead": wrong})
        assert (refused.status_code, refused.json()["field"]) == (422, "ahead"), wrong


async def test_paused_resumed_run_and_deleted(site: Site) -> None:
    await site.post("/schedules", NIGHTLY)
    paused = (await site.post(f"{PATH}/pause")).json()
    assert (paused["paused"], paused["next"]) == (True, [])
    task = await site.post(f"{PATH}/run")
    assert task.status_code == 202
    assert task.json()["tags"] == ["schedule:every night/all"]
    assert task.json()["priority"] == 3
    assert (await site.post(f"{PATH}/resume")).json()["paused"] is False
    assert (await site.http.delete(f"/api/v1{PATH}")).status_code == 204
    for verb in ("", "/pause", "/resume", "/run"):
        method = "POST" if verb else "GET"
        reply = await site.http.request(method, f"/api/v1{PATH}{verb}")
        assert (reply.status_code, reply.json()["code"]) == (404, "not_found"), verb


async def test_one_moment(site: Site) -> None:
    body = {"name": "once", "type": "add", "payload": {"a": 1}, "at": "2050-01-01T00:00:00Z"}
    told = (await site.post("/schedules", body)).json()
    assert (told["at"], told["every"]) == ("2050-01-01T00:00:00.000Z", None)
    assert told["next"] == ["2050-01-01T00:00:00.000Z"]


WRONG: Final[list[tuple[dict[str, Any], str | None]]] = [
    ({"every": "0 3 * *  "}, "every"),
    ({"every": "5 5 30 2 *"}, "every"),
    ({"every": None}, "every"),
    ({"at": "2050-01-01T00:00:00Z"}, "every"),
    ({"every": None, "at": "soon"}, "at"),
    ({"every": None, "at": "2020-01-01T00:00:00Z"}, "at"),
    ({"every": 0.5}, "every"),
    ({"tz": "Mars/Base"}, "tz"),
    ({"overlap": "maybe"}, "overlap"),
    ({"catch_up": "some"}, "catch_up"),
    ({"jitter": "2d"}, "jitter"),
    ({"payload": {"a": "x"}}, "$.a"),
    ({"options": {"colour": "red"}}, "colour"),
    ({"type": "outlast.bulk"}, "type"),
    ({"type": "sub"}, None),
    ({"name": ""}, "name"),
    ({"colour": "red"}, None),
]


async def test_what_is_wrong_is_told(site: Site) -> None:
    for change, field in WRONG:
        reply = await site.post("/schedules", {**NIGHTLY, **change})
        assert (reply.status_code, reply.json().get("field")) == (422, field), reply.text
    assert len((await site.get("/schedules")).json()["items"]) == 1
