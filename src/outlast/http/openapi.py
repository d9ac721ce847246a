"""The OpenAPI document: what each route tells of itself (`doc`), completed by what holds for many.

A path's parameters, the problems a route can answer and the examples are told here once.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from fastapi.routing import APIRoute

from outlast.http.examples import ANY, CONTENT, EXAMPLES, FLOW, ID, LEASE, SESSION, STREAM, WORKER
from outlast.http.links import add_links
from outlast.http.schemas import PREFIX, Problem, components

RESPONSES: Final = "#/components/responses/"
ERRORS: Final = "x-outlast-errors"

TAGS: Final[dict[str, str]] = {
    "tasks": "Hand work over, look at it, wait for it, change it.",
    "workflows": "Graphs of tasks: handed over whole, looked at as one.",
    "schedules": "Tasks that are made by the clock.",
    "approvals": "What tasks ask people, and the answers.",
    "events": "Follow what happens, without a gap: every event has a cursor to come back with.",
    "content": "Pictures, films and sounds that handlers stored.",
    "leases": "Work on tasks, in any language.",
    "sessions": "End users: their tasks, notifications and preferences.",
    "webhooks": "Be told by HTTP what happened.",
    "operating": "Queues, dead tasks, workers, limits and types.",
    "usage": "What was used of models, and what may be.",
    "access": "API keys, and tokens for end users.",
    "health": "Is it alive, is it ready, and how is everything?",
}

# Name -> what it is, and an example.
PARAMETERS: Final[dict[str, tuple[str, str]]] = {
    "task_id": ("The task's id.", ID),
    "workflow_id": ("The workflow's id.", FLOW),
    "schedule": ("The schedule's name.", "nightly"),
    "session_id": ("The session: any text of yours that names one conversation.", SESSION),
    "webhook_id": ("The webhook's id.", ID),
    "content_id": ("The content's id, from a result.", CONTENT),
    "key_id": ("The key's id, as the list has it; not the key.", "k_7f3a"),
    "lease": ("The lease, as the claim gave it; opaque.", LEASE),
    "key": ("The key of a limit or a budget, exact or a family.", "user:*"),
    "worker_id": ("The worker, as `GET /workers` names it.", WORKER),
}
NAMES: Final[dict[str, tuple[str, str]]] = {
    "signal": ("The signal's name.", "approved"),
    "queues": ("The queue's name.", "default"),
}
"""What `{name}` is, by a part of the path."""

SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 50},
    "group_by": {"type": "string", "enum": ["fingerprint"]},
}
"""Query parameters that are more than text."""

PROBLEMS: Final[dict[int, tuple[str, str, str]]] = {
    400: ("The body is no JSON.", "bad_json", "The body is not JSON: it ends too early."),
    401: ("No key or token, or one that is unknown, revoked or over.", "unauthorized",
          "Send an API key or a session token: Authorization: Bearer …"),
    403: ("This key or token may not do that.", "forbidden", "client 'web' may not do that."),
    404: ("There is no such thing, or the caller may not see it.", "not_found",
          f"There is no task {ID}."),
    408: ("The body did not arrive in time.", "too_slow", "The body did not arrive within 30 s."),
    409: ("It does not apply to the state that the task, lease or record is in.", "conflict",
          f"Cannot cancel task {ID}: it is completed."),
    413: ("The body, the payload or the result is too large.", "too_large",
          "The body is larger than 1,258,291 bytes. Store it and pass a reference."),
    415: ("The body is not JSON in UTF-8.", "not_json",
          "Send JSON in UTF-8, with Content-Type: application/json."),
    416: ("There is no such part of it.", "no_such_range", "It has 1,024 bytes."),
    422: ("What was sent is wrong; `field` says which part.", "bad_input",
          "limit=0: give a number from 1 to 500."),
    429: ("Asked too often; `Retry-After` says when to come back.", "too_many_requests",
          "'web' may ask 600/min: come back in 2 s."),
    503: ("The engine does not answer, or the server is busy or shutting down.", "engine_down",
          "The engine does not answer."),
}  # fmt: skip
"""Status -> when it is answered, and an example's code and detail."""
OF_BODIES: Final = (400, 408, 413, 415, 422)
OF_CALLERS: Final = (401, 403, 429)


def operation_id(route: APIRoute) -> str:
    return f"{route.tags[0] if route.tags else 'other'}_{route.name}"


def complete(document: dict[str, Any]) -> None:
    """Put in what the routes need not say each for itself."""
    document["tags"] = [{"name": name, "description": told} for name, told in TAGS.items()]
    document["components"] = {
        "schemas": components(),
        "responses": dict(map(_problem, PROBLEMS)),
        "securitySchemes": {
            "bearer": {
                "type": "http",
                "scheme": "bearer",
                "description": "An API key (`outlast keys create`) or a session token. A server"
                " without keys asks for none, and answers on its own machine only.",
            }
        },
    }
    for path, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            _describe(parameter, path)
        for status in _statuses(operation):
            operation["responses"][str(status)] = {"$ref": RESPONSES + _name(status)}
        default = operation["responses"].pop("default")
        operation["responses"]["default"] = default  # the last word
        for content in _contents(operation):
            _exemplify(content)
    add_links(document["paths"])


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


def _describe(parameter: dict[str, Any], path: str) -> None:
    if parameter["in"] == "path":
        known = PARAMETERS.get(parameter["name"])
        if parameter["name"] == "name":
            known = next((told for part, told in NAMES.items() if f"/{part}/" in path), None)
        if known is not None:
            parameter["description"], parameter["example"] = known
        parameter["schema"].pop("title", None)
    elif parameter["name"] in SCHEMAS:
        parameter["schema"] = SCHEMAS[parameter["name"]]


def _statuses(operation: dict[str, Any]) -> list[int]:
    """The problems that the route can answer, by what it takes and by what it says."""
    found = {503, *operation.pop(ERRORS, ())}
    places = {parameter["in"] for parameter in operation.get("parameters", ())}
    if operation["security"]:
        found.update(OF_CALLERS)
    if "requestBody" in operation:
        found.update(OF_BODIES)
    if "query" in places:
        found.add(422)
    if "path" in places:
        found.update((404, 422))
    return sorted(found)


def _contents(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield operation.get("requestBody", {}).get("content", {})
    for response in operation["responses"].values():
        yield response.get("content", {})


def _exemplify(content: dict[str, Any]) -> None:
    for media, told in content.items():
        if media == "text/event-stream":
            told["example"] = STREAM
        if media != "application/json":
            continue
        shapes = told["schema"].get("anyOf", [told["schema"]])
        names = [shape.get("$ref", "").removeprefix(PREFIX) for shape in shapes]
        if len(names) > 1:
            told["examples"] = {n: {"value": EXAMPLES[n]} for n in names if n in EXAMPLES}
        elif not names[0]:
            told["example"] = ANY
        elif names[0] in EXAMPLES:
            told["example"] = EXAMPLES[names[0]]


def _name(status: int) -> str:
    return HTTPStatus(status).name.title().replace("_", "")


def _problem(status: int) -> tuple[str, dict[str, Any]]:
    told, code, detail = PROBLEMS[status]
    title = HTTPStatus(status).phrase
    response: dict[str, Any] = {
        "description": told,
        "content": {
            "application/problem+json": {
                "schema": {"$ref": PREFIX + Problem.__name__},
                "example": {
                    "type": f"urn:outlast:{code}", "title": title, "status": status,
                    "detail": detail, "code": code,
                },
            }
        },
    }  # fmt: skip
    if status in (429, 503):
        seconds = {"description": "Seconds to wait.", "schema": {"type": "integer"}}
        response["headers"] = {"Retry-After": seconds}
    return _name(status), response
