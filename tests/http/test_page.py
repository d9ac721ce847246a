"""The page and the OpenAPI document: complete, and without a word from any other host."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from outlast.http import schemas
from outlast.http.api import create_api
from outlast.http.pages import STATIC
from outlast.options import fields_of

from .site import API, Site, until


async def test_the_page_is_there_and_loads_nothing_from_elsewhere(site: Site) -> None:
    page = await site.http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    docs = await site.http.get("/docs")
    for text in (page.text, docs.text):
        for path in re.findall(r'(?:src|href)="([^"]+)"', text):
            assert not path.startswith(("http:", "https:", "//")), path
            assert (await site.http.get(f"/{path.removeprefix('./')}")).status_code == 200, path


def test_no_markup_is_made_from_text_and_nothing_is_inline() -> None:
    """What the Content-Security-Policy forbids is not tried; task data is text, never markup."""
    for file in STATIC.iterdir():
        text = file.read_text()
        assert "https://" not in text and "//cdn" not in text, file
        if file.suffix == ".js":
            for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
                assert word not in text, (file, word)
        if file.suffix == ".html":
            assert not re.search(r"<style|<script(?![^>]*src=)|\son\w+=|\sstyle=", text), file


# OpenAPI -----------------------------------------------------------------------------------------


async def test_openapi_tells_every_route_and_only_those(site: Site) -> None:
    document = (await site.http.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    told = {(path, m.upper()) for path, item in document["paths"].items() for m in item}
    there = {
        (re.sub(r":path\}", "}", route.path), method)
        for route in create_api(site.app).state.routes
        for method in route.methods
    }
    assert told == there
    for _, operation in _operations(document):
        assert operation["summary"]
        assert "application/problem+json" in operation["responses"]["default"]["content"]


async def test_openapi_refers_only_to_shapes_that_are_there(site: Site) -> None:
    document = (await site.http.get("/openapi.json")).json()
    known = document["components"]["schemas"]
    refs = set(re.findall(r'"#/components/schemas/(\w+)"', msgspec.json.encode(document).decode()))
    assert refs and refs <= known.keys()


async def test_the_shapes_are_those_of_the_answers(busy: Site) -> None:
    id = (await busy.enqueue("tell", {"chunks": 1, "fails": 1}))["id"]
    await busy.ended(id)
    runs = (await busy.enqueue("wait", {"gate": "g"}))["id"]

    async def has_progress() -> bool:
        return (await busy.task(runs))["progress"] is not None

    await until(has_progress)
    dead = (await busy.enqueue("doomed"))["id"]
    await busy.ended(dead)
    for path, shape in (
        (f"{API}/tasks/{id}", schemas.Task),
        (f"{API}/tasks", schemas.TaskPage),
        (f"{API}/tasks/{id}/why", schemas.Why),
        (f"{API}/tasks/{runs}/why", schemas.Why),
        (f"{API}/queues/status", schemas.Queues),
        (f"{API}/queues/dlq", schemas.TaskPage),
        (f"{API}/queues/dlq?group_by=fingerprint", schemas.DeadGroupPage),
        (f"{API}/workers", schemas.WorkerPage),
        (f"{API}/limits", schemas.LimitPage),
        (f"{API}/types", schemas.TypePage),
        ("/health", schemas.Health),
        ("/livez", schemas.Alive),
        ("/nope", schemas.Problem),
    ):
        body = (await busy.http.get(path)).json()
        _same_fields(body, msgspec.convert(body, shape), path)
    busy.gates["g"].set()


def test_the_options_told_are_the_options_there_are() -> None:
    told = {field.name for field in msgspec.structs.fields(schemas.TaskOptions)}
    there = set(re.findall(r"(\w+)", _known_options()))
    assert told == there


def _known_options() -> str:
    try:
        fields_of({"nope": 1})
    except Exception as error:
        return str(error).partition("Options are:")[2]
    raise AssertionError("an unknown option was accepted")


def _operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (method, operation)
        for item in document["paths"].values()
        for method, operation in item.items()
    ]


def _same_fields(body: Any, shape: Any, where: str) -> None:
    """Nothing is answered that the shape does not tell (`convert` has checked the reverse)."""
    if isinstance(shape, msgspec.Struct):
        told = {field.encode_name for field in msgspec.structs.fields(shape)}
        assert set(body) <= told, (where, set(body) - told)
        for name in body:
            _same_fields(body[name], getattr(shape, name), f"{where}.{name}")
    elif isinstance(body, list):
        for item, part in zip(body, shape, strict=True):
            _same_fields(item, part, where)
    elif isinstance(body, dict):
        for name in body:
            _same_fields(body[name], shape[name], f"{where}.{name}")
