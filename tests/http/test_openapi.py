"""The OpenAPI document is complete: every route of the router says what it takes and answers."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from outlast import Outlast
from outlast.http import schemas
from outlast.http.api import create_api
from outlast.http.examples import EXAMPLES
from outlast.http.openapi import operations
from outlast.http.schemas import PREFIX

API: Final = create_api(Outlast("memory://"))
DOCUMENT: Final = API.openapi()
CALLS: Final = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
every_call = pytest.mark.parametrize("call", CALLS)


def found(told: dict[str, Any]) -> dict[str, Any]:
    """What a reference leads to."""
    while "$ref" in told:
        place: Any = DOCUMENT
        for part in told["$ref"].removeprefix("#/").split("/"):
            place = place[part]
        told = place
    return told


def test_every_route_of_the_router_is_in_it() -> None:
    routed = {
        f"{method} {route.path_format}" for route in API.state.routes for method in route.methods
    }
    assert routed == CALLS.keys()


@every_call
def test_a_call_says_what_it_does(call: str) -> None:
    told = CALLS[call]
    assert told["summary"] and told["description"], "write a docstring for the route"
    assert told["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}


@every_call
def test_parameters_are_described(call: str) -> None:
    for parameter in CALLS[call].get("parameters", ()):
        assert parameter.get("description"), f"{parameter['name']}: see outlast.http.openapi"
        assert parameter["schema"], parameter["name"]


@every_call
def test_bodies_have_a_schema_and_an_example(call: str) -> None:
    told = CALLS[call]
    bodies = [told["requestBody"]] if "requestBody" in told else []
    bodies += [body for status, body in told["responses"].items() if status.startswith("2")]
    for body in bodies:
        if told["responses"].get("204") is body:
            assert "content" not in body
            continue
        assert body["content"]
        for media, content in body["content"].items():
            assert "schema" in content
            assert "example" in content or content.get("examples"), f"{media}: see http.examples"


@every_call
def test_refusals_are_problems(call: str) -> None:
    told = CALLS[call]
    refusals = {s: found(r) for s, r in told["responses"].items() if not s.startswith(("2", "3"))}
    for status, refusal in refusals.items():
        problem = refusal["content"]["application/problem+json"]
        assert problem["schema"] == {"$ref": PREFIX + "Problem"}
        assert refusal["description"]
        assert status == "default" or problem["example"]["status"] == int(status)
    assert {"default", "503"} <= refusals.keys()
    if told["security"]:
        assert {"401", "403", "429"} <= refusals.keys()
    if "requestBody" in told:
        assert {"400", "413", "415", "422"} <= refusals.keys()


def test_security_is_said_for_every_call() -> None:
    schemes = DOCUMENT["components"]["securitySchemes"].keys()
    for _, operation in operations(DOCUMENT):
        assert {name for one in operation["security"] for name in one} <= schemes


def test_names_of_operations_are_unique() -> None:
    names = [operation["operationId"] for _, operation in operations(DOCUMENT)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_the_shape_it_is_for(name: str) -> None:
    shape, example = getattr(schemas, name), EXAMPLES[name]
    made = msgspec.convert(example, shape)  # what comes in has no unknown fields
    if not issubclass(shape, schemas.Sent):
        assert msgspec.to_builtins(made) == example, "a field is missing, or unknown"
