"""Every route of the API has a method of the clients."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

from outlast import Outlast
from outlast.client import Client, flows, leases, operating, sessions, tasks
from outlast.client.wire import Call
from outlast.http.api import create_api

ALIASES: Final = {"POST /tasks/summarize", "GET /tasks/x/events", "GET /events/poll"}
"""What another call does as well."""
FOR_BROWSERS: Final = {"POST /tickets", "POST /login", "GET /login", "POST /logout"}
"""What takes the place of a header, which these clients can send."""
HELPERS: Final = {"listing", "given", "plain", "idempotent"}
GIVEN: Final[dict[str, object]] = {"percent": 1, "kinds": (), "tasks": (), "nodes": ()}


def built() -> Iterator[tuple[str, Call[object]]]:
    """Every call that the clients can make, with something for its arguments."""
    for module in (tasks, flows, operating, sessions, leases):
        for name, build in inspect.getmembers(module, inspect.isfunction):
            if build.__module__ != module.__name__ or name.startswith("_") or name in HELPERS:
                continue
            wanted = inspect.signature(build).parameters.values()
            args = [
                GIVEN.get(p.name, "x")
                for p in wanted
                if p.default is p.empty and p.kind is not p.VAR_KEYWORD
            ]
            yield name, build(*args)


def test_every_route_can_be_called() -> None:
    routes = create_api(Outlast("memory://")).state.routes
    sent = {f"{call.method} {call.path}" for _, call in built()} | ALIASES | FOR_BROWSERS
    missing = []
    for route in routes:
        if not route.path.startswith("/api/v1/"):
            continue
        [method] = route.methods
        shape = re.sub(r"\{[^}]+\}", "[^/]+", route.path_format.removeprefix("/api/v1"))
        if not any(re.fullmatch(f"{method} {shape}", call) for call in sent):
            missing.append(f"{method} {route.path_format}")
    assert missing == [], "write a function for it in outlast.client"


def test_every_call_is_a_method() -> None:
    assert [name for name, _ in built() if not hasattr(Client, name)] == []
