"""What Schemathesis cannot know from the document: which types the fuzzed app has."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import schemathesis


@schemathesis.hook
def before_load_schema(ctx: schemathesis.HookContext, raw_schema: dict[str, Any]) -> None:
    """Most tasks are of a type that there is, so that what comes behind the type is reached."""
    shapes = raw_schema["components"]["schemas"]
    shapes["NewTask"]["properties"]["type"] = {"enum": ["add", "elsewhere", "doomed"]}
    numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    shapes["NewTask"]["properties"]["payload"] = {
        "type": "object",
        "properties": numbers,
        "required": ["a"],
    }
    claim = shapes["NewClaim"]["properties"]
    claim["queues"] = {"enum": [["default"], ["default", "other"]]}
    claim["types"] = {"enum": [["elsewhere"]]}


@schemathesis.hook
def before_call(
    ctx: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]
) -> None:
    """Nobody has a minute for every claim and poll."""
    if isinstance(case.query, dict) and "wait" in case.query:
        with suppress(ValueError, TypeError):
            if 0 <= float(case.query["wait"]) <= 60:
                case.query["wait"] = 0.2
    body = case.body
    if isinstance(body, dict) and type(body.get("wait")) in (int, float) and 0 < body["wait"] <= 60:
        body["wait"] = 0.2
